"""What a world looks like after a step: plain values, to be drawn, to be printed as JSON, to be compared in tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.runtime.replicas.purgatory import AwaitedBatch

from odradek_chaos.lessons.narration import NarratedEvent
from odradek_chaos.stage.node import StageNode
from odradek_chaos.stage.stage import Stage

LEADER, FOLLOWER, DOWN = "leader", "follower", "down"


@dataclass(frozen=True)
class Acknowledged:
    """A record that its producer believes to be written. `acks` is -1 for all."""

    value: str
    offset: int
    acks: int


@dataclass(frozen=True)
class LogRecordView:
    """`differs`: another replica holds something else at this offset. `again`: the offset is not above the last."""

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
    records: tuple[LogRecordView, ...]
    log_end_offset: int
    high_watermark: int
    flushed: int  # everything below survives a power loss
    high_watermark_file: int
    remote: tuple[tuple[int, int], ...] = ()  # as leader: (broker, its log end offset by its last fetch, -1: none yet)


@dataclass(frozen=True)
class AcknowledgedView:
    """A record that a producer believes to be written. `gone`: there is a leader, and its log lacks it."""

    value: str
    offset: int
    acks_all: bool
    gone: bool


@dataclass(frozen=True)
class WorldView:
    """One world after one step. `waiting` are the requests in the leader's purgatory."""

    world: str
    now_ms: int
    replicas: tuple[ReplicaView, ...]
    acknowledged: tuple[AcknowledgedView, ...]
    waiting: tuple[str, ...]
    happenings: tuple[NarratedEvent, ...]

    def as_json(self) -> dict[str, Any]:
        """The same with plain types; a kind of happening is its word."""
        raw = asdict(self)
        raw["happenings"] = [{"kind": each.kind.value, "text": each.text} for each in self.happenings]
        return raw


@dataclass(frozen=True)
class _Record:
    offset: int
    value: str
    leader_epoch: int


def view(
    name: str, stage: Stage, acknowledged: Sequence[Acknowledged], happenings: Sequence[NarratedEvent]
) -> WorldView:
    """Look at a world; nothing in it changes."""
    logs = {number: list(_records(node)) for number, node in stage.nodes.items()}
    replicas = tuple(_replica(node, logs) for node in stage.nodes.values())
    leading = next((each.broker for each in replicas if each.role == LEADER), None)
    held = None if leading is None else {(record.offset, record.value) for record in logs[leading]}
    told = tuple(
        AcknowledgedView(
            each.value, each.offset, each.acks < 0, held is not None and (each.offset, each.value) not in held
        )
        for each in acknowledged
    )
    waiting = () if leading is None else tuple(_waiting(stage, stage.nodes[leading]))
    return WorldView(name, stage.now_ms, replicas, told, waiting, tuple(happenings))


def _records(node: StageNode) -> Iterator[_Record]:
    for batch in node.disk.batches:
        for offset, value in batch.records():
            yield _Record(offset, value, batch.header.leader_epoch)


def _waiting(stage: Stage, leader: StageNode) -> Iterator[str]:
    """Each request that waits at the leader, and for what."""
    names = {batch.header.base_offset: " ".join(batch.values) for batch in leader.disk.batches}

    def or_time(deadline_ms: int | None) -> str:
        return "" if deadline_ms is None else f", or {deadline_ms - stage.now_ms:,} ms"

    for request in leader.purgatory.waiting(leader.here.produces):
        if isinstance(request, AwaitedBatch):
            what = names[request.decision.base_offset]
            yield f"produce of {what}: HW {request.required}{or_time(request.deadline_ms)}"
    for number, offset, deadline_ms in stage.waiting_fetches():
        yield f"fetch of broker {number}: records at {offset}{or_time(deadline_ms)}"
    for fetch in leader.purgatory.waiting(leader.here.consumer_fetches):
        yield f"fetch of a consumer: records below the HW{or_time(fetch.deadline_ms)}"


def _replica(node: StageNode, logs: dict[int, list[_Record]]) -> ReplicaView:
    own = logs[node.number]
    others = [_by_offset(log) for number, log in logs.items() if number != node.number]
    mine = _by_offset(own)
    records = []
    highest = -1
    for record in own:
        differs = any(record.offset in other and other[record.offset] != mine[record.offset] for other in others)
        records.append(
            LogRecordView(record.offset, record.value, record.leader_epoch, differs, record.offset <= highest)
        )
        highest = max(highest, record.offset)
    end = own[-1].offset + 1 if own else 0
    in_file, flushed = node.disk.checkpointed_high_watermark(), node.disk.flushed()
    role = node.role
    if role is None:
        return ReplicaView(node.number, DOWN, -1, (), tuple(records), end, min(in_file, end), flushed, in_file)
    state = node.here.state
    leads = isinstance(role, LeaderPartition)
    return ReplicaView(
        node.number,
        LEADER if leads else FOLLOWER,
        role.leader_epoch,
        node.leader.isr if leads else (),
        tuple(records),
        state.log_end_offset,
        state.high_watermark,
        flushed,
        in_file,
        tuple((each.broker_id, each.log_end_offset) for each in node.remote_replicas()) if leads else (),
    )


def _by_offset(log: list[_Record]) -> dict[int, list[_Record]]:
    found: dict[int, list[_Record]] = defaultdict(list)
    for record in log:
        found[record.offset].append(record)
    return found
