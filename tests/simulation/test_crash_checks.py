"""What is judged of a directory after a power loss: each check fires on what it speaks of."""

from __future__ import annotations

import random
from typing import Any

import pytest
from odradek_chaos.worlds.simulated.crash import checks as crash_checks
from odradek_chaos.worlds.simulated.crash.checks import Bench, judge
from odradek_chaos.worlds.simulated.crash.drivers import ORDERS
from odradek_chaos.worlds.simulated.crash.durability import DurabilityModel, OwedLogs
from odradek_chaos.worlds.simulated.crash.model import DiskModel
from odradek_chaos.worlds.simulated.crash.states import crash_states
from odradek_chaos.worlds.simulated.crash.stories import told
from odradek_proto.records import encode_batch
from odradek_proto.transport.ports import Files

FIRST, RECORDS = 5, 4


def judged(name: str, owed: OwedLogs | None = None) -> list[str]:
    """What is wrong with what a whole story has written, or with that beside what is owed."""
    driver, model = told(name), DiskModel()
    for operation in driver.operations:
        model.apply(operation)
    promises = DurabilityModel(driver.operations, driver.bench.root)
    *_, whole = crash_states(model, random.Random(0), 1)
    last = len(driver.operations) - 1
    return judge(whole, promises, owed or promises.owed_at(last), last, driver.bench)


@pytest.mark.parametrize("name", ["clean_ends", "metadata_snapshots"])
def test_a_disk_that_lost_nothing_is_sound(name: str) -> None:
    """Otherwise the tests below would show nothing."""
    assert judged(name) == []


@pytest.mark.parametrize(("covered", "found"), [(0, 1), (FIRST, 1), (FIRST + RECORDS - 1, 1), (FIRST + RECORDS, 0)])
def test_a_batch_that_a_snapshot_holds_in_part_is_still_owed(covered: int, found: int) -> None:
    """The snapshot ends inside of it: the rest of its records is nowhere."""
    rows = [(0, None, b"value", ())] * RECORDS
    batch = bytes(encode_batch(rows, base_offset=FIRST, leader_epoch=0))

    class Log:
        log_start_offset, end_offset = 20, 20

    log: Any = Log()
    assert len(list(crash_checks._lost(log, [], {FIRST: batch}, covered))) == found


@pytest.mark.parametrize("path", ["", "/data/left-behind", f"/data/{ORDERS}/left-behind"])
def test_what_a_second_start_removes_is_noticed(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one should have: whatever is opened twice must be the same."""
    opened, starts = crash_checks.open_everything, 0

    def careless(files: Files, bench: Bench) -> crash_checks.OpenedDirectory:
        nonlocal starts
        starts += 1
        if path and starts == 1:
            files.open(path, create=True)
        elif path:
            files.remove(path)
        return opened(files, bench)

    monkeypatch.setattr(crash_checks, "open_everything", careless)
    found = judged("truncations")
    assert starts == 2
    assert [each for each in found if "left-behind is changed by a second recovery" in each] == found
    assert bool(found) == bool(path)


def test_a_log_that_is_gone_with_what_it_promised_is_noticed() -> None:
    """A directory that nobody finds again has lost all that was in it."""
    owed = OwedLogs(0, {"nowhere-0": {0: b"a batch"}}, {})
    assert judged("truncations", owed) == ["nowhere-0: is gone with 1 batches that were promised"]
