"""The evidence file, where a life of the process ended in the middle of a line."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any, cast

from odradek_broker.config.log_levels import CONTROLLER
from odradek_broker.runtime.events import EVENT_FILE, OLDER_SUFFIX, EventLog
from odradek_broker.runtime.replicas.progress import PARTITIONS_AT_ONCE, ProgressLog
from odradek_broker.runtime.replicas.replica import Replica
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.topics import TopicPartition

from tests.broker.replica_world import ME, ORDERS, World, maintenance_of, run
from tests.playing import plays


def test_the_first_event_after_a_torn_line_has_a_line_of_its_own() -> None:
    """A power loss has taken the end of one, or the disk was full in the middle of it; the next life's is whole."""
    loop = SimLoop()
    files = SimFiles(SimDisk(random.Random(0)), loop, random.Random(0))
    files.makedirs("/data")
    for life in range(3):
        events = EventLog(
            files=files, clock=SimClock(loop, random.Random(0)), directory="/data", broker_id=1, enabled=True
        )
        events.write("first", "", {"life": life})
        events.write("second", "", {"life": life})
        events.close()
        if life == 1:
            file = files.open(f"/data/{EVENT_FILE}")
            file.truncate(file.size() - 10)
    lines = files.open(f"/data/{EVENT_FILE}").pread(0, 1 << 20).splitlines()
    torn = lines.pop(3)
    assert not torn.endswith(b"}")
    assert [(each["event"], each["life"]) for each in map(json.loads, lines)] == [
        ("first", 0),
        ("second", 0),
        ("first", 1),
        ("first", 2),
        ("second", 2),
    ]


def test_a_file_that_has_grown_to_its_size_becomes_the_older_one() -> None:
    """Two files at most, however much there is to say; no line is torn, and the last ones are there."""
    loop = SimLoop()
    files = SimFiles(SimDisk(random.Random(0)), loop, random.Random(0))
    files.makedirs("/data")
    most = 1_000
    events = EventLog(
        files=files, clock=SimClock(loop, random.Random(0)), directory="/data", broker_id=1, max_bytes=most
    )
    said = 50
    record = events.recorder(CONTROLLER)
    for number in range(said):
        record("broker_unfenced", {"broker_id": number, "broker_epoch": number})
    events.close()
    assert files.list("/data") == [EVENT_FILE, EVENT_FILE + OLDER_SUFFIX]
    told = []
    for name in (EVENT_FILE + OLDER_SUFFIX, EVENT_FILE):
        content = files.open(f"/data/{name}").pread(0, 2 * most)
        assert len(content) <= most
        told += [json.loads(line)["broker_id"] for line in content.splitlines()]
    assert told == list(range(said - len(told), said))
    assert len(told) > most // 150


# --- How far the logs are, in the evidence file: what has changed, some at a time, nobody left out for ever ----------


class Events:
    def __init__(self) -> None:
        self.offsets: list[dict[str, list[int]]] = []

    def write(self, event: str, rule: str, facts: dict[str, Any]) -> None:
        assert (event, rule) == ("progress", "")
        self.offsets.append(facts["offsets"])


def replica(number: int, end: int) -> Replica:
    state = SimpleNamespace(log_end_offset=end, high_watermark=end - 1)
    return cast(Replica, SimpleNamespace(topic_partition=TopicPartition("t", number), state=state))


def test_of_many_partitions_each_has_its_turn() -> None:
    """Three rounds tell all of them; what has not changed is not told again, and what is gone is forgotten."""
    events = Events()
    progress, count = ProgressLog(cast(EventLog, events)), 3 * PARTITIONS_AT_ONCE
    for end in range(10, 13):  # all of them go on between two rounds
        progress.write([replica(number, end) for number in range(count)])
    assert [len(each) for each in events.offsets] == [PARTITIONS_AT_ONCE] * 3
    assert len({name for each in events.offsets for name in each}) == count
    assert events.offsets[2]["t-149"] == [12, 11]
    progress.write([replica(0, 12)])
    progress.write([replica(0, 12)])
    progress.write([replica(number, 12) for number in (0, 1)])
    assert events.offsets[3:] == [{"t-0": [12, 11]}, {"t-1": [12, 11]}]


@plays(run)
async def test_a_broker_writes_its_progress_by_the_clock(world: World) -> None:
    """Beside the checkpoint of high watermarks, in one line of the evidence file."""
    maintenance = maintenance_of(world)
    await world.learn(ME, 0)
    world.produce()
    for _ in range(2):
        await maintenance.checkpoint_high_watermarks()
    lines = world.files.open(f"/data/{EVENT_FILE}").pread(0, 1 << 20).splitlines()
    told = [each for each in map(json.loads, lines) if each["event"] == "progress"]
    assert [each["offsets"] for each in told] == [{str(ORDERS): [1, 0]}]
