"""The simulated world of a quorum's transcript: it says what becomes of each message, and keeps an answer on its way.

Stories have no loss by chance, so a message is lost for one of two reasons: its link was cut, or nobody listens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from odradek_broker.core.quorum.messages import Answer, Request, Token, Vote

from tests.broker.quorum_simulation.node import Node, StoredBatch
from tests.broker.quorum_simulation.world import Call, QuorumWorld

ARRIVES, IS_LOST, IS_HELD, IS_LATE = "->", "-x", "..", "late"

Listener = Callable[[Call, Answer | None, str], None]  # a request or its answer, and what becomes of it


def name_of(request: Request) -> str:
    """A pre-vote is a `Vote` as well."""
    return "PreVote" if isinstance(request, Vote) and request.pre_vote else type(request).__name__


class ToldWorld(QuorumWorld):
    """`listener` is told of every message in the moment in which it arrives, or would have."""

    def __init__(
        self, voters: int, observers: int, *, seed: int, config: Mapping[str, int], listener: Listener
    ) -> None:
        super().__init__(voters, observers, seed=seed, config=config)
        self._listener = listener
        self._to_hold: tuple[int, int, str] | None = None
        self._held: tuple[Call, Answer] | None = None

    def hold(self, sender: int, receiver: int, name: str) -> None:
        """Keep one node's next answer to such a request of another one on its way, until it is delivered."""
        self._to_hold = sender, receiver, name

    def deliver(self) -> None:
        """The held answer arrives, whatever has become of the link since."""
        assert self._held is not None, "no answer is held"
        (call, answer), self._held = self._held, None
        assert self._is_waited_for(call), "whoever asked has given up or died"
        self._listener(call, answer, IS_LATE)
        super()._answered(call, answer)

    def reply(self, node: Node, token: Token, answer: Answer, batches: Sequence[StoredBatch]) -> None:
        assert isinstance(token, Call)
        if self._is_waited_for(token) and (node.node_id, token.sender.node_id) in self._cut:
            self._listener(token, answer, IS_LOST)
        super().reply(node, token, answer, batches)

    def _arrive(self, call: Call) -> None:
        receiver = call.send.peer_id
        if not call.over:
            is_lost = receiver not in self.up or (call.sender.node_id, receiver) in self._cut
            self._listener(call, None, IS_LOST if is_lost else ARRIVES)
        super()._arrive(call)

    def _answered(self, call: Call, answer: Answer) -> None:
        if self._is_waited_for(call):
            if (call.send.peer_id, call.sender.node_id, name_of(call.send.request)) == self._to_hold:
                self._to_hold, self._held = None, (call, answer)
                self._listener(call, answer, IS_HELD)
                return
            self._listener(call, answer, ARRIVES)
        super()._answered(call, answer)

    def _is_waited_for(self, call: Call) -> bool:
        return not call.over and call.sender.life == call.sender_life and call.sender.core is not None
