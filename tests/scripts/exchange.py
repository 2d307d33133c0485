"""The network of a transcript: one exchange between a follower and its leader at a time, lost or held on command."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import (
    EpochRequest,
    FetchAnswer,
    FetchDecision,
    FetchRequest,
    FollowerFetch,
    FollowerRequest,
    OffsetsRequest,
)
from odradek_proto.errors import ErrorCode

from tests.scripts.in_memory import Brokers
from tests.scripts.node import Node

Arrival = Callable[[], None]


class Exchange:
    """The brokers and what they say to each other. `Stage` adds the controller, the clients and the disks."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        self.brokers = Brokers(0)
        self.now_ms = 1_000
        self._said: list[str] = []
        self._held: dict[int, Arrival] = {}

    def _say(self, text: str) -> None:
        self._said.append(text)

    def do_fetch(self, number: str, *words: str, lose: str = "") -> None:
        """One exchange between a follower and its leader, whatever the follower has to ask."""
        node = self.nodes[int(number)]
        request = node.follower.next_request(self.now_ms)
        if request is None:
            self._say(f"b{number} asks nothing")
            return
        target = self.nodes[node.follower.leader]
        arrow = f"b{number} {'-x' if lose == 'request' else '->'} b{target.number}"
        self._say(f"{arrow} {_request_text(request)}")
        if lose == "request" or not target.running:
            node.step(node.follower.on_transport_error(self.now_ms), self.now_ms)
            return
        if isinstance(request, EpochRequest):
            self._ask_epoch(node, target, request)
        elif isinstance(request, OffsetsRequest):
            self._ask_offsets(node, target, request)
        else:
            self._ask_records(node, target, request, words, lose)

    def _ask_records(self, node: Node, target: Node, request: FetchRequest, words: Sequence[str], lose: str) -> None:
        fetch = self._as_follower_fetch(node, request)
        if not isinstance(target.role, LeaderPartition):
            refusal = target.follower.refusal(request.current_leader_epoch)
            self._reply(node, target, request, FetchDecision(refusal, 0, 0, 0))
            return
        decision, effects = target.role.fetch_by_follower(fetch, self.now_ms)
        target.step(effects, self.now_ms)
        nothing = (
            decision.error == ErrorCode.NONE and decision.diverging is None and decision.limit <= request.fetch_offset
        )
        if "wait" in words and nothing:
            target.waiting_fetches[node.number] = request
            self._say(f"b{node.number}'s fetch waits at b{target.number}")
            return
        answer = self._prepare_reply(node, target, request, decision)
        if lose == "reply":
            self._say(f"b{target.number} -x b{node.number} {answer[0]}")
            node.step(node.follower.on_transport_error(self.now_ms), self.now_ms)
        elif "hold" in words:
            self._held[node.number] = answer[1]
            self._say(f"b{target.number} .. b{node.number} {answer[0]}")
        else:
            self._say(f"b{target.number} -> b{node.number} {answer[0]}")
            answer[1]()

    def _reply(self, node: Node, target: Node, request: FetchRequest, decision: FetchDecision) -> None:
        text, arrive = self._prepare_reply(node, target, request, decision)
        self._say(f"b{target.number} -> b{node.number} {text}")
        arrive()

    def _prepare_reply(
        self, node: Node, target: Node, request: FetchRequest, decision: FetchDecision
    ) -> tuple[str, Callable[[], None]]:
        """The answer's text, and what its arrival does. The batches are read now, not then."""
        fine = decision.error == ErrorCode.NONE and decision.diverging is None
        batches = target.disk.read(request.fetch_offset, decision.limit) if fine else []
        answer = FetchAnswer(
            request.fetch_offset,
            decision.error,
            decision.high_watermark,
            decision.log_start_offset,
            [each.header for each in batches],
            decision.diverging,
            request.current_leader_epoch,
        )

        def arrive() -> None:
            if node.running:
                node.batches = batches
                node.step(node.follower.on_fetch_answer(answer, self.now_ms), self.now_ms)

        if decision.error != ErrorCode.NONE:
            return f"FetchReply {decision.error.name}", arrive
        if decision.diverging is not None:
            return f"FetchReply diverging epoch={decision.diverging.epoch} end={decision.diverging.offset}", arrive
        count = sum(len(each.values) for each in batches)
        return f"FetchReply records={count} hw={decision.high_watermark}", arrive

    def _answer_waiting(self, target: Node) -> None:
        """The leader appended: its waiting fetches read again, and record nothing a second time (R-122, R-123)."""
        waiting, target.waiting_fetches = target.waiting_fetches, {}
        for number, request in waiting.items():
            self._answer_one(self.nodes[number], target, request)

    def _answer_one(self, node: Node, target: Node, request: FetchRequest) -> None:
        decision = target.leader.read_for_follower(self._as_follower_fetch(node, request))
        self._reply(node, target, request, decision)

    def _as_follower_fetch(self, node: Node, request: FetchRequest) -> FollowerFetch:
        broker = self.brokers.broker(node.number)
        return FollowerFetch(
            node.number,
            -1 if broker is None else broker.broker_epoch,
            request.fetch_offset,
            request.current_leader_epoch,
            request.last_fetched_epoch,
            request.log_start_offset,
        )

    def _ask_epoch(self, node: Node, target: Node, request: EpochRequest) -> None:
        error, end = target.leader.end_offset_for_epoch(request.current_leader_epoch, request.leader_epoch)
        said = error.name if error else f"epoch={end.epoch} end={end.offset}"
        self._say(f"b{target.number} -> b{node.number} EpochReply {said}")
        node.step(node.follower.on_epoch_answer(request, error, end, self.now_ms), self.now_ms)

    def _ask_offsets(self, node: Node, target: Node, request: OffsetsRequest) -> None:
        error, end = target.leader.offset_bound(request.current_leader_epoch, replica=True, read_committed=False)
        start = target.open_log.log_start_offset
        self._say(
            f"b{target.number} -> b{node.number} OffsetsReply {error.name if error else f'start={start} end={end}'}"
        )
        node.step(node.follower.on_offsets_answer(request, error, start, end, self.now_ms), self.now_ms)

    def do_deliver(self, number: str) -> None:
        self._held.pop(int(number))()

    def do_expire(self, number: str) -> None:
        node = self.nodes[int(number)]
        target = self.nodes[node.follower.leader]
        self._answer_one(node, target, target.waiting_fetches.pop(int(number)))


def _request_text(request: FollowerRequest) -> str:
    match request:
        case FetchRequest():
            last = f" last={request.last_fetched_epoch}" if request.last_fetched_epoch >= 0 else ""
            epoch = f" epoch={request.current_leader_epoch}" if request.current_leader_epoch >= 0 else ""
            return f"Fetch offset={request.fetch_offset}{epoch}{last}"
        case EpochRequest():
            return f"OffsetForLeaderEpoch epoch={request.current_leader_epoch} asked={request.leader_epoch}"
        case OffsetsRequest():
            return "ListOffsets"
