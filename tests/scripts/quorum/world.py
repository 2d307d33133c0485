"""The world of a transcript's quorum: time, the network, and the commands that start, crash and part nodes.

A message is delivered after some milliseconds, unless its link is cut, nobody listens, or the story holds it. Its
sender sees it as on a real connection: refused when nobody listens, broken when the peer dies in between, timed
out when the link is cut. Same seed, same story. Histories by seed run on whole nodes: tests/broker/quorum_world.py.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.messages import (
    Answer,
    Effect,
    FetchAnswer,
    FetchSnapshotAnswer,
    NotLeader,
    QuorumConfig,
    QuorumState,
    Request,
    Send,
    Token,
    Unanswered,
    Vote,
)
from odradek_proto.values import replace

from tests.scripts.quorum.node import Disk, Node, StoredBatch

REQUEST_TIMEOUT_MS = 2_000  # quorum.request.timeout.ms


MAX_DELAY_MS = 3  # of a message
ARRIVES, IS_LOST, IS_HELD, IS_LATE = "->", "-x", "..", "late"


@dataclass(eq=False)
class Call:
    """A request under way. `peer_life` is the incarnation that received it."""

    sender: Node
    sender_life: int
    send: Send
    peer_life: int = -1
    over: bool = False


Listener = Callable[[Call, Answer | None, str], None]  # a request or its answer, and its fate


def name_of(request: Request) -> str:
    """A pre-vote is a `Vote` as well."""
    return "PreVote" if isinstance(request, Vote) and request.pre_vote else type(request).__name__


class QuorumWorld:
    """Some voters and observers, all down at first. Node ids count from 1; observers follow the voters.

    `listener` gets every message in the moment in which it arrives, or would have.
    """

    def __init__(
        self, voters: int, observers: int, *, seed: int, config: Mapping[str, int], listener: Listener
    ) -> None:
        """`config` has further fields of the nodes' `QuorumConfig`."""
        self.rng = random.Random(seed)
        self.now_ms = 0
        self.on_effect: Callable[[Node, Effect], None] = lambda node, effect: None
        self.damage = False  # the next piece of a snapshot arrives with a bit turned over
        self._listener = listener
        self._to_hold: tuple[int, int, str] | None = None
        self._held: tuple[Call, Answer] | None = None
        self._cut: dict[tuple[int, int], None] = {}
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._number = 0
        self._calls: dict[Call, None] = {}
        ids = tuple(range(1, voters + 1))
        self.nodes: dict[int, Node] = {
            node_id: Node(QuorumConfig(node_id, ids, **config), self, random.Random(self.rng.random()))
            for node_id in range(1, voters + observers + 1)
        }

    # --- commands ---

    def start(self, *node_ids: int) -> None:
        """Start these nodes; without any, all that are down."""
        for node_id in node_ids or [node_id for node_id in self.nodes if node_id not in self.up]:
            self.nodes[node_id].start(self.now_ms)

    def crash(self, node_id: int) -> None:
        """kill -9: unflushed batches may be lost, and the kernel closes the sockets."""
        self.nodes[node_id].crash()
        for call in list(self._calls):
            if call.send.peer_id == node_id and call.peer_life >= 0:
                self._after(self._delay(), partial(self._unanswered, call, Unanswered.BROKEN))

    def lose_disk(self, node_id: int) -> None:
        assert self.nodes[node_id].core is None, "only the disk of a node that is down can be replaced"
        self.nodes[node_id].disk = Disk(QuorumState(catching_up=True))  # as for a node that was never started

    def part(self, *node_ids: int) -> None:
        """Cut these nodes off from the others: no message arrives, and none is refused."""
        for inside in node_ids:
            for outside in (each for each in self.nodes if each not in node_ids):
                self._cut[outside, inside] = self._cut[inside, outside] = None

    def heal(self) -> None:
        self._cut.clear()

    def append(self, node_id: int, *records: bytes) -> int:
        """Append as the leader; returns the base offset. Raises `NotLeader`."""
        core = self.nodes[node_id].core
        if core is None:
            raise NotLeader(-1, -1)
        base_offset, effects = core.append(records, self.now_ms)
        self.nodes[node_id].carry_out(effects)
        return base_offset

    def resign(self, node_id: int) -> None:
        core = self.nodes[node_id].core
        assert core is not None
        self.nodes[node_id].carry_out(core.resign(self.now_ms))

    def hold(self, sender: int, receiver: int, name: str) -> None:
        """Keep one node's next answer to such a request of another one on its way, until it is delivered."""
        self._to_hold = sender, receiver, name

    def deliver(self) -> None:
        """The held answer arrives, whatever has become of the link since."""
        assert self._held is not None, "no answer is held"
        (call, answer), self._held = self._held, None
        assert self._is_waited_for(call), "whoever asked has given up or died"
        self._listener(call, answer, IS_LATE)
        self._answered(call, answer)

    # --- state ---

    @property
    def up(self) -> Mapping[int, Node]:
        return {node_id: node for node_id, node in self.nodes.items() if node.core is not None}

    def leader(self) -> Node | None:
        """The leader of the newest epoch that has one, if it runs."""
        leading = [
            (node.core.role.epoch, node)
            for node in self.up.values()
            if node.core and isinstance(node.core.role, Leader)
        ]
        return max(leading, key=lambda pair: pair[0])[1] if leading else None

    def replaced(self, old: Node) -> Callable[[], bool]:
        """The condition that another node leads."""
        return lambda: self.leader() not in (None, old)

    def settled(self) -> bool:
        """Whether one leader leads, and every running node follows it and knows all that is committed."""
        leader = self.leader()
        if leader is None or leader.core is None:
            return False
        log = leader.core.log
        return log.high_watermark == log.log_end_offset > 0 and all(
            node.core is not None
            and node.core.leader_id == leader.node_id
            and node.core.log.log_end_offset == log.log_end_offset
            and node.core.log.high_watermark == log.high_watermark
            for node in self.up.values()
        )

    # --- time ---

    def run_for(self, duration_ms: int) -> None:
        end_ms = self.now_ms + duration_ms
        while self._step(end_ms):
            pass
        self.now_ms = end_ms

    def run_until(self, condition: Callable[[], bool], limit_ms: int = 30_000) -> int:
        """Run until the condition holds; returns how long that took. Raises `TimeoutError`."""
        begin_ms = self.now_ms
        while not condition():
            if not self._step(begin_ms + limit_ms):
                roles = {node_id: node.core and type(node.core.role).__name__ for node_id, node in self.nodes.items()}
                raise TimeoutError(f"not within {limit_ms} ms: {roles}")
        return self.now_ms - begin_ms

    def _step(self, end_ms: int) -> bool:
        """Let the next thing happen, at `end_ms` at the latest."""
        timers = [
            (deadline_ms, node_id)
            for node_id, node in self.nodes.items()
            if (deadline_ms := node.next_deadline_ms()) is not None
        ]
        next_event_ms = self._events[0][0] if self._events else end_ms + 1
        timer_ms, node_id = min(timers, default=(end_ms + 1, 0))
        if min(next_event_ms, timer_ms) > end_ms:
            return False
        if next_event_ms <= timer_ms:
            self.now_ms, _, event = heapq.heappop(self._events)
            event()
        else:
            self.now_ms = max(self.now_ms, timer_ms)
            node = self.nodes[node_id]
            assert node.core is not None
            node.carry_out(node.core.on_time(self.now_ms))
        return True

    def _after(self, delay_ms: int, event: Callable[[], None]) -> None:
        self._number += 1
        heapq.heappush(self._events, (self.now_ms + delay_ms, self._number, event))

    def _delay(self) -> int:
        return self.rng.randint(0, MAX_DELAY_MS)

    # --- services for nodes ---

    def later(self, node: Node, what: str) -> None:
        life = node.life

        def finish() -> None:
            if node.core is not None and node.life == life:
                node.done(what, self.now_ms)

        self._after(self.rng.randint(1, 3), finish)  # an fsync of this class of machine takes 1 to 3 ms

    def dial(self, node: Node, peer_id: int) -> None:
        life = node.life

        def dialled() -> None:
            if node.core is not None and node.life == life:
                refused = (node.node_id, peer_id) not in self._cut and self.nodes[peer_id].core is None
                node.carry_out(node.core.on_dialled(peer_id, refused, self.now_ms))

        self._after(self._delay(), dialled)

    def send(self, node: Node, send: Send) -> None:
        call = Call(node, node.life, send)
        self._calls[call] = None
        self._after(REQUEST_TIMEOUT_MS, lambda: self._unanswered(call, Unanswered.TIMED_OUT))
        self._after(self._delay(), lambda: self._arrive(call))

    def _is_cut(self, sender: int, receiver: int) -> bool:
        if (sender, receiver) in self._cut:
            return True
        self.rng.random()  # the seeds of the stories were chosen with one draw more for each message
        return False

    def _arrive(self, call: Call) -> None:
        peer = self.nodes[call.send.peer_id]
        if call.over:
            return
        is_cut = self._is_cut(call.sender.node_id, peer.node_id)
        self._listener(call, None, IS_LOST if is_cut or peer.core is None else ARRIVES)
        if is_cut:
            return
        if peer.core is None:
            self._unanswered(call, Unanswered.REFUSED)
            return
        call.peer_life = peer.life
        peer.carry_out(peer.core.on_request(call.send.request, call, self.now_ms))

    def reply(self, node: Node, token: Token, answer: Answer, batches: Sequence[StoredBatch]) -> None:
        if isinstance(answer, FetchAnswer) and batches:
            data = b"".join(batch.data for batch in batches)
            answer = replace(answer, batches=data, headers=[batch.header for batch in batches])
        if isinstance(answer, FetchSnapshotAnswer) and answer.data and self.damage:
            self.damage = False
            answer = replace(answer, data=bytes([answer.data[0] ^ 1]) + answer.data[1:])
        assert isinstance(token, Call)
        if not self._is_cut(node.node_id, token.sender.node_id):
            self._after(self._delay(), lambda: self._reply_arrives(token, answer))
        elif self._is_waited_for(token):
            self._listener(token, answer, IS_LOST)

    def _reply_arrives(self, call: Call, answer: Answer) -> None:
        if not self._is_waited_for(call):
            return
        if (call.send.peer_id, call.sender.node_id, name_of(call.send.request)) == self._to_hold:
            self._to_hold, self._held = None, (call, answer)
            self._listener(call, answer, IS_HELD)
            return
        self._listener(call, answer, ARRIVES)
        self._answered(call, answer)

    def _is_waited_for(self, call: Call) -> bool:
        return not call.over and call.sender.life == call.sender_life and call.sender.core is not None

    def _answered(self, call: Call, answer: Answer) -> None:
        if self._end(call) and call.sender.core is not None:
            call.sender.carry_out(call.sender.core.on_answer(call.send, answer, self.now_ms))

    def _unanswered(self, call: Call, why: Unanswered) -> None:
        if self._end(call) and call.sender.core is not None:
            call.sender.carry_out(call.sender.core.on_unanswered(call.send, why, self.now_ms))

    def _end(self, call: Call) -> bool:
        """End the call, once; returns whether its sender is still the one that sent it."""
        if call.over:
            return False
        call.over = True
        del self._calls[call]
        return call.sender.life == call.sender_life
