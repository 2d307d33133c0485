"""The network of the stage: one exchange between a follower and its leader at a time, lost or held on command.

Every answer is the broker's own: that of its replica to a fetch, and that of its services to the other questions. What
is played here is the stream on which a follower's fetch waits (`requests.fetch_gatherer`): it waits in the broker's
purgatory, and whether it is answered or waits on is decided by the broker's `core.fetching`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import NamedTuple, TypeVar, cast

from odradek_broker.core.context import ANONYMOUS, RequestContext
from odradek_broker.core.fetching import PartitionFetch, is_refusal
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.partition.follower import FollowerPartition
from odradek_broker.core.partition.messages import (
    Effect,
    EpochRequest,
    FetchAnswer,
    FetchDecision,
    FollowerFetch,
    FollowerFetchRequest,
    FollowerRequest,
    OffsetsRequest,
)
from odradek_broker.requests.offsets import EARLIEST, LATEST, EpochQuery, OffsetQuery, OffsetRequests
from odradek_broker.runtime.replicas.purgatory import DelayedFetch
from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import Files
from odradek_proto.values import replace

from odradek_chaos.stage.disk import batches_in
from odradek_chaos.stage.metadata import ORDERS, Brokers
from odradek_chaos.stage.node import StageNode
from odradek_chaos.stage.said import Comment, FetchWaits, MessageFate, MessageSent, TranscriptLine

T = TypeVar("T")
CALLER = RequestContext(ANONYMOUS, "GRPC")
MAX_WAIT_MS = 500  # replica.fetch.wait.max.ms
READ_BYTES = 1 << 20


class StageReply(NamedTuple):
    """A response on its way: its text, the follower's step at its arrival, and its batches."""

    text: str
    words: str
    arrive: Callable[[FollowerPartition], list[Effect]]
    data: bytes = b""


class FollowerCall:
    """A follower's request on its way, or waiting at the leader; only the process that sent it gets the response.

    `waiting` is its place in the leader's purgatory, and `named` is what `core.fetching` decides by.
    """

    def __init__(self, node: StageNode, target: StageNode, request: FollowerRequest) -> None:
        self.node = node
        self.process = node.here
        self.target = target
        self.request = request
        self.fetch = _as_follower_fetch(node, request) if isinstance(request, FollowerFetchRequest) else None
        self.woken = False
        self.waiting: DelayedFetch | None = None
        self.named: PartitionFetch | None = None

    def wait(self, named: PartitionFetch) -> None:
        """Wait for more to read, or for the end of the wait when there is news (R-127)."""
        here = self.target.here
        named.news_deadline_ms(here.state.high_watermark, here.state.log_start_offset, self.target.clock.now_ms())
        self.named, self.woken = named, False
        self.waiting = DelayedFetch(named, self._wake, deadline_ms=named.news_at_ms)
        here.purgatory.register(self.waiting, here.follower_fetches)

    def leave(self) -> None:
        if self.waiting is not None:
            self.target.purgatory.cancel(self.waiting)

    def _wake(self, fetch: PartitionFetch) -> None:
        self.woken = True


class Exchange:
    """The brokers and their messages. `Clients` and `Stage` add the other senders."""

    def __init__(self) -> None:
        self.nodes: dict[int, StageNode] = {}
        self.brokers = Brokers(())
        self._said: list[TranscriptLine] = []
        self._late: dict[int, FollowerCall] = {}
        self._held: dict[int, tuple[FollowerCall, StageReply]] = {}
        self._waiting: dict[int, FollowerCall] = {}
        self._told: dict[int, tuple[int, int]] = {}  # high watermark and log start that each follower knows

    def _say(self, said: TranscriptLine) -> None:
        self._said.append(said)

    def _request(self, question: FollowerCall, fate: MessageFate) -> None:
        source, target = f"b{question.node.number}", f"b{question.target.number}"
        self._say(MessageSent(source, target, _text(question), fate, _words(question.request)))

    def _answer(self, question: FollowerCall, reply: StageReply, fate: MessageFate = MessageFate.ARRIVES) -> None:
        source, target = f"b{question.target.number}", f"b{question.node.number}"
        self._say(MessageSent(source, target, reply.text, fate, reply.words))

    def waiting_fetches(self) -> Iterator[tuple[int, int, int | None]]:
        """(broker, offset, deadline) of each follower whose fetch waits; without news it waits as long as it takes."""
        for number, question in self._waiting.items():
            assert isinstance(question.request, FollowerFetchRequest)
            assert question.waiting is not None
            yield number, question.request.fetch_offset, question.waiting.deadline_ms

    # --- Commands --------------------------------------------------------------------------------------------------

    def do_fetch(self, number: str, *words: str, lose: str = "", last: str = "") -> None:
        """One request of a follower and its response."""
        node = self.nodes[int(number)]
        request = node.follower.next_request(node.clock.now_ms())
        if request is None:
            self._say(Comment(f"b{number} asks nothing"))
            return
        if last:
            assert isinstance(request, FollowerFetchRequest), request
            request = replace(request, last_fetched_epoch=int(last))
        question = FollowerCall(node, self.nodes[node.follower.leader], request)
        if "late" in words:
            self._late[node.number] = question
            self._request(question, MessageFate.HELD)
            return
        self._ask(question, words, lose)

    def do_deliver(self, number: str, *words: str) -> None:
        """What is held arrives: the request, whose answer may be held then, or the answer."""
        question = self._late.pop(int(number), None)
        if question is not None:
            self._ask(question, words, "")
            return
        question, reply = self._held.pop(int(number))
        self._arrive(question, reply)

    # --- The leader's side -----------------------------------------------------------------------------------------

    def _ask(self, question: FollowerCall, words: Sequence[str], lose: str) -> None:
        node, target, request = question.node, question.target, question.request
        lost = lose == "request" or not target.running
        self._request(question, MessageFate.LOST if lost else MessageFate.ARRIVES)
        if lost:
            self._lost(question)
            return
        if isinstance(request, EpochRequest):
            reply = _epoch_reply(node, target, request)
        elif isinstance(request, OffsetsRequest):
            reply = _offsets_reply(node, target, request)
        else:
            assert question.fetch is not None
            decision = target.here.fetch_as_follower(question.fetch)
            named = self._named(node, request)
            if "wait" in words and named.waits_with(decision):
                self._waiting[node.number] = question
                question.wait(named)
                self._say(FetchWaits(node.number, target.number))
                return
            reply = self._fetch_reply(node, target, request, decision)
        if lose == "reply":
            self._answer(question, reply, MessageFate.LOST)
            self._lost(question)
        elif "hold" in words:
            self._held[node.number] = question, reply
            self._answer(question, reply, MessageFate.HELD)
        else:
            self._answer(question, reply)
            self._arrive(question, reply)

    def _answer_woken(self) -> None:
        """Fetches that a leader woke read again, and record no position a second time (R-122, R-123)."""
        for number, question in list(self._waiting.items()):
            if question.woken:
                self._look_again(number, question)

    def _look_again(self, number: int, question: FollowerCall) -> None:
        node, target, request, named = question.node, question.target, question.request, question.named
        assert question.fetch is not None
        assert isinstance(request, FollowerFetchRequest)
        assert named is not None
        decision = target.here.reread_for_follower(question.fetch)
        if named.waits_with(decision) and not named.has_news(decision, target.clock.now_ms()):
            question.wait(named)
            return
        del self._waiting[number]
        reply = self._fetch_reply(node, target, request, decision)
        self._answer(question, reply)
        self._arrive(question, reply)

    def _named(self, node: StageNode, request: FollowerFetchRequest) -> PartitionFetch:
        """The fetch as the leader's session has it, with the bounds that the follower knows."""
        told = self._told.get(node.number, (-1, -1))
        return PartitionFetch(
            request.topic_partition,
            request.fetch_offset,
            request.current_leader_epoch,
            request.last_fetched_epoch,
            request.log_start_offset,
            request.max_bytes,
            MAX_WAIT_MS,
            *told,
        )

    def _fetch_reply(
        self, node: StageNode, target: StageNode, request: FollowerFetchRequest, decision: FetchDecision
    ) -> StageReply:
        """The batches are read now, not when the answer arrives."""
        fine = not is_refusal(decision)
        if fine:
            self._told[node.number] = decision.high_watermark, decision.log_start_offset
        data = b"".join(target.here.log.read(request.fetch_offset, READ_BYTES, decision.limit)) if fine else b""
        batches = batches_in([data])
        answer = FetchAnswer(
            request.fetch_offset,
            decision.error,
            decision.high_watermark,
            decision.log_start_offset,
            [each.header for each in batches],
            decision.diverging,
            request.current_leader_epoch,
        )
        if decision.error != ErrorCode.NONE:
            text, words = f"FetchReply {decision.error.name}", decision.error.name
        elif decision.diverging is not None:
            epoch, end = decision.diverging.epoch, decision.diverging.offset
            text, words = f"FetchReply diverging epoch={epoch} end={end}", f"diverging: epoch {epoch} ends at {end}"
        else:
            values = [value for each in batches for value in each.values]
            text = f"FetchReply records={len(values)} hw={decision.high_watermark}"
            words = f"{' '.join(values) or 'nothing new'}, HW {decision.high_watermark}"
        clock = node.clock
        return StageReply(text, words, lambda role: role.on_fetch_answer(answer, clock.now_ms()), data)

    def _hang_up(self, gone: StageNode) -> None:
        """A process is gone, and its streams with it: none of its requests waits any more."""
        for number, question in list(self._waiting.items()):
            if gone in (question.node, question.target):
                del self._waiting[number]
                question.leave()

    # --- The follower's side ---------------------------------------------------------------------------------------

    def _lost(self, question: FollowerCall) -> None:
        node = question.node
        if node.replica is question.process and isinstance(node.role, FollowerPartition):
            node.here.carry_out(node.follower.on_transport_error(node.clock.now_ms()))

    def _arrive(self, question: FollowerCall, reply: StageReply) -> None:
        node = question.node
        role = node.role
        if node.replica is question.process and isinstance(role, FollowerPartition):
            node.here.append_run(memoryview(reply.data), lambda: reply.arrive(role))


def finished(work: Coroutine[object, object, T]) -> T:
    """The result of a handler that has nothing to wait for."""
    try:
        work.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    raise AssertionError(f"{work} waits")


def offsets_of(target: StageNode) -> OffsetRequests:
    """The broker's own answers to ListOffsets and OffsetsForLeaderEpoch."""
    return OffsetRequests(lookup=lambda tp, topic_id: target.here, files=cast("Files", None))


def list_offset(target: StageNode, epoch: int, timestamp_ms: int, replica_id: int) -> tuple[ErrorCode, int]:
    query = OffsetQuery(ORDERS, timestamp_ms, epoch)
    (listed,) = finished(offsets_of(target).list_offsets(CALLER, [query], replica_id))
    return listed.error, listed.offset


def end_of_epoch(target: StageNode, believed: int, epoch: int, replica_id: int) -> tuple[ErrorCode, EpochEntry]:
    query = EpochQuery(ORDERS, believed, epoch)
    (end,) = finished(offsets_of(target).offsets_for_leader_epoch(CALLER, [query], replica_id))
    return end.error, EpochEntry(end.leader_epoch, end.end_offset)


def _as_follower_fetch(node: StageNode, request: FollowerFetchRequest) -> FollowerFetch:
    return FollowerFetch(
        node.number,
        node.broker_epoch,
        request.fetch_offset,
        request.current_leader_epoch,
        request.last_fetched_epoch,
        request.log_start_offset,
    )


def _epoch_reply(node: StageNode, target: StageNode, request: EpochRequest) -> StageReply:
    error, end = end_of_epoch(target, request.current_leader_epoch, request.leader_epoch, node.number)
    said = error.name if error else f"epoch={end.epoch} end={end.offset}"
    words = error.name if error else f"epoch {end.epoch} ends at {end.offset}" if end.epoch >= 0 else f"at {end.offset}"
    clock = node.clock
    return StageReply(
        f"EpochReply {said}", words, lambda role: role.on_epoch_answer(request, error, end, clock.now_ms())
    )


def _offsets_reply(node: StageNode, target: StageNode, request: OffsetsRequest) -> StageReply:
    epoch = request.current_leader_epoch
    error, end = list_offset(target, epoch, LATEST, node.number)
    _, start = list_offset(target, epoch, EARLIEST, node.number)
    said = error.name if error else f"start={start} end={end}"
    clock = node.clock
    return StageReply(
        f"OffsetsReply {said}",
        f"at {end}",
        lambda role: role.on_offsets_answer(request, error, start, end, clock.now_ms()),
    )


def _words(request: FollowerRequest) -> str:
    match request:
        case FollowerFetchRequest():
            last = f", last epoch {request.last_fetched_epoch}" if request.last_fetched_epoch >= 0 else ""
            return f"fetch at {request.fetch_offset}{last}"
        case EpochRequest():
            return f"where does epoch {request.leader_epoch} end?"
        case OffsetsRequest():
            return "where does your log end?"


def _text(question: FollowerCall) -> str:
    request = question.request
    match request:
        case FollowerFetchRequest():
            last = f" last={request.last_fetched_epoch}" if request.last_fetched_epoch >= 0 else ""
            epoch = f" epoch={request.current_leader_epoch}" if request.current_leader_epoch >= 0 else ""
            return f"Fetch offset={request.fetch_offset}{epoch}{last}{_sender(question)}"
        case EpochRequest():
            return f"OffsetForLeaderEpoch epoch={request.current_leader_epoch} asked={request.leader_epoch}"
        case OffsetsRequest():
            return "ListOffsets"


def _sender(question: FollowerCall) -> str:
    """The sender's broker epoch, when it is not that of the leader's metadata."""
    assert question.fetch is not None
    known = question.target.brokers.broker(question.node.number)
    mine = question.fetch.replica_epoch
    return f" broker_epoch={mine}" if known is not None and known.broker_epoch != mine else ""
