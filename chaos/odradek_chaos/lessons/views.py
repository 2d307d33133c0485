"""What a world looks like after a step: plain values, to be drawn, to be printed as JSON, to be compared in tests."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from typing import Any

from odradek_broker.core.partition.leader import LeaderPartition

from odradek_chaos.lessons.network import Happening
from odradek_chaos.lessons.replica import RecordOnDisk, Replica
from odradek_chaos.lessons.world import World

LEADER, FOLLOWER, DOWN = "leader", "follower", "down"


@dataclass(frozen=True)
class RecordView:
    """`differs`: the other replica holds something else at this offset. `again`: the offset is not above the last."""

    offset: int
    value: str
    leader_epoch: int
    differs: bool
    again: bool


@dataclass(frozen=True)
class ReplicaView:
    """One broker. While it is down the offsets are what its disk would start from."""

    broker: int
    role: str
    leader_epoch: int  # that it knows; -1 while it is down
    isr: tuple[int, ...]  # as leader, else empty
    records: tuple[RecordView, ...]
    log_end_offset: int
    high_watermark: int
    flushed: int  # everything below survives a power loss
    high_watermark_file: int


@dataclass(frozen=True)
class AcknowledgedView:
    """A record that a producer believes to be written. `gone`: there is a leader, and its log lacks it."""

    value: str
    offset: int
    acks_all: bool
    gone: bool


@dataclass(frozen=True)
class WorldView:
    """One world after one step."""

    mode: str
    replicas: tuple[ReplicaView, ...]
    acknowledged: tuple[AcknowledgedView, ...]
    happenings: tuple[Happening, ...]

    def as_json(self) -> dict[str, Any]:
        """The same with plain types; a kind of happening is its word."""
        raw = asdict(self)
        raw["happenings"] = [{"kind": each.kind.value, "text": each.text} for each in self.happenings]
        return raw


def view(world: World) -> WorldView:
    """Look at a world; nothing in it changes."""
    logs = {replica.number: replica.records() for replica in world.replicas.values()}
    replicas = tuple(_replica(replica, logs) for replica in world.replicas.values())
    leading = next((each.broker for each in replicas if each.role == LEADER), None)
    held = None if leading is None else {(record.offset, record.value) for record in logs[leading]}
    acknowledged = tuple(
        AcknowledgedView(
            each.value, each.offset, each.acks_all, held is not None and (each.offset, each.value) not in held
        )
        for each in world.acknowledged
    )
    return WorldView(world.mode.value, replicas, acknowledged, tuple(world.happenings))


def _replica(replica: Replica, logs: dict[int, list[RecordOnDisk]]) -> ReplicaView:
    own = logs[replica.number]
    others = [_by_offset(log) for number, log in logs.items() if number != replica.number]
    mine = _by_offset(own)
    records = []
    highest = -1
    for record in own:
        differs = any(record.offset in other and other[record.offset] != mine[record.offset] for other in others)
        records.append(RecordView(record.offset, record.value, record.leader_epoch, differs, record.offset <= highest))
        highest = max(highest, record.offset)
    end = own[-1].offset + 1 if own else 0
    in_file = replica.checkpointed_high_watermark()
    if replica.role is None:
        held = min(in_file, end)
        return ReplicaView(replica.number, DOWN, -1, (), tuple(records), end, held, replica.durable_end(), in_file)
    state = replica.log.state
    leads = isinstance(replica.role, LeaderPartition)
    return ReplicaView(
        replica.number,
        LEADER if leads else FOLLOWER,
        replica.role.leader_epoch,
        replica.leader.isr if leads else (),
        tuple(records),
        state.log_end_offset,
        state.high_watermark,
        replica.durable_end(),
        in_file,
    )


def _by_offset(log: list[RecordOnDisk]) -> dict[int, list[RecordOnDisk]]:
    found: dict[int, list[RecordOnDisk]] = defaultdict(list)
    for record in log:
        found[record.offset].append(record)
    return found
