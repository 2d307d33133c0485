"""`odradek chaos write`: how fast it writes, how long, and what it leaves when it is told to stop while it ends."""

from __future__ import annotations

import asyncio
import json
import random
import signal
from pathlib import Path
from typing import cast

import pytest
from odradek import Producer
from odradek.cli.main import main
from odradek.cli.terminal.screen import Screen
from odradek.cli.terminal.stopping import TELLING
from odradek_audit.inputs.history import READ_COMMITTED, READ_UNCOMMITTED, read_events
from odradek_chaos.cli.write import _run
from odradek_chaos.harness.workload import Ledger, Pace, WorkloadWriter
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.ports import Clock


class ClockByHand:
    """It stands at `ms`."""

    ms = 1_000

    def now_ms(self) -> int:
        return self.ms


def test_partitions_take_turns_at_the_rate_of_all_of_them() -> None:
    """Four records a second over two partitions; the time in which nobody could write is not made up for."""
    clock = ClockByHand()
    pace = Pace(cast(Clock, clock), 4)
    assert [pace(), pace()] == [250, 500]
    clock.ms = 1_250
    assert pace() == 500
    clock.ms = 61_000
    assert [pace(), pace()] == [250, 500]


@pytest.mark.parametrize("rate", ["1", "100000"])
def test_a_writer_with_a_time_limit_needs_no_count(
    rate: str, odradek_bootstrap: str, odradek_topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It ends by itself, and not as one that was interrupted; all that it sent was acknowledged."""
    words = f"chaos write {odradek_topic} --seconds 0.2 --rate {rate} --json -b {odradek_bootstrap}"
    assert main(words.split()) == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["sent"] == facts["acknowledged"] > 0
    assert not facts["interrupted"]


class ProducerThatIsSlowToClose:
    """Somebody is impatient while it closes."""

    async def close(self, timeout: float) -> None:
        for number in TELLING:
            signal.raise_signal(number)
            await asyncio.to_thread(bool)  # the loop hears of it


def test_who_is_impatient_at_the_end_cuts_no_ledger_short(tmp_path: Path) -> None:
    """What was sent is in the file, although every signal comes once more; all was done before the first of them."""
    path = tmp_path / "history"

    async def story() -> bool:
        clock = LoopClock(random.Random(0))
        ledger = Ledger(clock, path, keep=False)
        producer = cast(Producer[bytes, bytes], ProducerThatIsSlowToClose())
        ledger.send("orders", 0, b"w1/0/0", "w1", "all")
        return await _run(WorkloadWriter(producer, ledger, clock, "orders", 1, "w1", limit=0), Screen())

    assert asyncio.run(story()) is False
    assert [event.value for event in read_events(path)] == [b"w1/0/0"]


def test_what_a_consumer_was_given_says_which_records_it_reads(tmp_path: Path) -> None:
    """A record of an aborted transaction is owed to nobody who reads committed ones, so the audit has to know."""
    path = tmp_path / "history"
    ledger = Ledger(LoopClock(random.Random(0)), path)
    for offset, isolation in enumerate((READ_COMMITTED, READ_UNCOMMITTED)):
        ledger.deliver("orders", 0, b"a", "r1", offset, isolation=isolation)
    ledger.close()
    assert [(event.offset, event.isolation) for event in read_events(path)] == [
        (0, READ_COMMITTED),
        (1, READ_UNCOMMITTED),
    ]
