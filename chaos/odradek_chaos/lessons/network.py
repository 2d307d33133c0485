"""The wire between the brokers of a lesson: one question and its answer at a time, delivered or lost as a story wants.

`World` adds the controller, the clients and the power.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from odradek_broker.core.metadata.image import BrokerRegistration
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import (
    EpochRequest,
    FetchAnswer,
    FetchDecision,
    FetchRequest,
    FollowerFetch,
    OffsetsRequest,
)
from odradek_proto.errors import ErrorCode
from odradek_proto.records import decode_records, iter_batches

from odradek_chaos.lessons.replica import Replica


class Kind(Enum):
    """What a line of a step speaks of; each has its own mark beside its colour."""

    WIRE = "wire"  # a message arrived
    LOST = "lost"  # a message did not
    ACKNOWLEDGED = "acknowledged"  # a producer was told that its record is written
    CUT = "cut"  # records were removed from a log, or stand where they must not
    REFUSED = "refused"  # a client was told an error
    FACT = "fact"  # anything else


@dataclass(frozen=True)
class Happening:
    """One line of what happened in a step."""

    kind: Kind
    text: str


class Known:
    """The brokers as the metadata know them."""

    def __init__(self, numbers: tuple[int, ...]) -> None:
        self._known = {number: BrokerRegistration(number, 100 + number, b"", {}, fenced=False) for number in numbers}
        self._next_epoch = 200

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self._known.get(broker_id)

    def is_active(self, broker_id: int) -> bool:
        return self._known[broker_id].active

    def fence(self, broker_id: int) -> None:
        epoch = self._known[broker_id].broker_epoch
        self._known[broker_id] = BrokerRegistration(broker_id, epoch, b"", {}, fenced=True)

    def register(self, broker_id: int) -> None:
        """A new incarnation, unfenced."""
        self._next_epoch += 1
        self._known[broker_id] = BrokerRegistration(broker_id, self._next_epoch, b"", {}, fenced=False)


class Network:
    """The brokers, and what they say to each other. `happenings` are those of the step at hand."""

    def __init__(self, replicas: tuple[Replica, ...], known: Known) -> None:
        self.replicas = {replica.number: replica for replica in replicas}
        self.known = known
        self.now_ms = 1_000
        self.happenings: list[Happening] = []
        self._quiet = False

    def say(self, kind: Kind, text: str) -> None:
        if not self._quiet or kind in (Kind.ACKNOWLEDGED, Kind.CUT):
            self.happenings.append(Happening(kind, text))

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """What happens here is no subject of the step: only acknowledgements and cuts are told."""
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def _message(self, source: int, target: int, text: str, *, lost: bool = False) -> None:
        arrow = "──✗ " if lost else "──► "
        said = f"{source} {arrow}{target}  {text}"
        self.say(Kind.LOST if lost else Kind.WIRE, f"{said} LOST" if lost else said)

    # --- A follower asks -------------------------------------------------------------------------------------------

    def fetch(self, number: int, *, lose_answer: bool = False) -> None:
        """A follower asks its leader whatever it has to ask now, and takes the answer unless it is lost."""
        asking = self.replicas[number]
        request = asking.follower.next_request(self.now_ms)
        if request is None:
            return
        leader = self.replicas[asking.follower.leader]
        if not isinstance(leader.role, LeaderPartition):
            asking.step(asking.follower.on_transport_error(self.now_ms), self.now_ms)
        elif isinstance(request, EpochRequest):
            self._ask_epoch(asking, leader, request)
        elif isinstance(request, OffsetsRequest):
            self._ask_offsets(asking, leader, request)
        else:
            self._ask_records(asking, leader, request, lose_answer)

    def _ask_records(self, asking: Replica, leader: Replica, request: FetchRequest, lose_answer: bool) -> None:
        last = f", last epoch {request.last_fetched_epoch}" if request.last_fetched_epoch >= 0 else ""
        self._message(asking.number, leader.number, f"fetch at {request.fetch_offset}{last}")
        decision, effects = leader.leader.fetch_by_follower(self._as_fetch(asking.number, request), self.now_ms)
        leader.step(effects, self.now_ms)
        fine = decision.error == ErrorCode.NONE and decision.diverging is None
        headers, data = leader.read(request.fetch_offset, decision.limit) if fine else ([], b"")
        self._message(leader.number, asking.number, answer_text(decision, data), lost=lose_answer)
        if lose_answer:
            asking.step(asking.follower.on_transport_error(self.now_ms), self.now_ms)
            return
        asking.answer_bytes = (data,)
        answer = FetchAnswer(
            request.fetch_offset,
            decision.error,
            decision.high_watermark,
            decision.log_start_offset,
            headers,
            decision.diverging,
            request.current_leader_epoch,
        )
        asking.step(asking.follower.on_fetch_answer(answer, self.now_ms), self.now_ms)

    def _as_fetch(self, number: int, request: FetchRequest) -> FollowerFetch:
        broker = self.known.broker(number)
        return FollowerFetch(
            number,
            -1 if broker is None else broker.broker_epoch,
            request.fetch_offset,
            request.current_leader_epoch,
            request.last_fetched_epoch,
            request.log_start_offset,
        )

    def _ask_epoch(self, asking: Replica, leader: Replica, request: EpochRequest) -> None:
        self._message(asking.number, leader.number, f"where does epoch {request.leader_epoch} end?")
        error, end = leader.leader.end_offset_for_epoch(request.current_leader_epoch, request.leader_epoch)
        of_epoch = f"epoch {end.epoch} ends " if end.epoch >= 0 else ""
        self._message(leader.number, asking.number, error.name if error else f"{of_epoch}at {end.offset}")
        asking.step(asking.follower.on_epoch_answer(request, error, end, self.now_ms), self.now_ms)

    def _ask_offsets(self, asking: Replica, leader: Replica, request: OffsetsRequest) -> None:
        self._message(asking.number, leader.number, "where does your log end?")
        error, end = leader.leader.offset_bound(request.current_leader_epoch, replica=True, read_committed=False)
        start = leader.log.log_start_offset
        self._message(leader.number, asking.number, error.name if error else f"at {end}")
        asking.step(asking.follower.on_offsets_answer(request, error, start, end, self.now_ms), self.now_ms)


def values_in(data: bytes) -> list[tuple[int, str]]:
    """(offset, value) of every record in some batches."""
    return [
        (record.offset, (record.value or b"").decode())
        for position, header in iter_batches(data)
        for record in decode_records(data, header, position)
    ]


def answer_text(decision: FetchDecision, data: bytes) -> str:
    """A fetch answer in few words."""
    if decision.error != ErrorCode.NONE:
        return decision.error.name
    if decision.diverging is not None:
        return f"diverging: epoch {decision.diverging.epoch} ends at {decision.diverging.offset}"
    found = " ".join(value for _, value in values_in(data)) or "nothing new"
    return f"{found}, HW {decision.high_watermark}"
