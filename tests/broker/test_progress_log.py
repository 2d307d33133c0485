"""How far the logs are, in the evidence file: what has changed, some at a time, nobody left out for ever."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.runtime.events import EVENT_FILE, EventLog
from odradek_broker.runtime.replicas.progress import PARTITIONS_AT_ONCE, ProgressLog
from odradek_broker.runtime.replicas.replica import Replica
from odradek_proto.topics import TopicPartition

from tests.broker.replica_world import ME, ORDERS, World, maintenance_of, run
from tests.broker.test_full_disk import produced
from tests.playing import plays


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
    maintenance = maintenance_of(world, BrokerSettings(node_id=ME))
    await world.learn(ME, 0)
    produced(world)
    for _ in range(2):
        await maintenance.checkpoint_high_watermarks()
    lines = world.files.open(f"/data/{EVENT_FILE}").pread(0, 1 << 20).splitlines()
    told = [each for each in map(json.loads, lines) if each["event"] == "progress"]
    assert [each["offsets"] for each in told] == [{str(ORDERS): [1, 0]}]
