"""Logs when a node has known no leader of the metadata quorum for a while, and when it knows one again.

A starting broker itself logs which voters it waits for (`session.py`). This is for everything later, and for nodes that
are only controllers: without it they would be silent while nothing can be changed in the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from odradek_proto.transport.ports import Clock, TimerHandle

PATIENCE_MS: Final = 5_000  # an election takes less: it is not worth a line
AGAIN_MS: Final = 60_000


class LeaderWatch:
    """`silent` are the voters that did not answer when they were asked last, with their addresses.

    Nothing is said while `may_speak` is false, since somebody else speaks of it.
    """

    def __init__(
        self,
        *,
        node_id: int,
        clock: Clock,
        silent: Callable[[], Mapping[int, str]],
        may_speak: Callable[[], bool],
        say: Callable[[str], None],
    ) -> None:
        self._node_id = node_id
        self._clock = clock
        self._silent = silent
        self._may_speak = may_speak
        self._say = say
        self._since_ms = 0
        self._timer: TimerHandle | None = None
        self._said = self._stopped = False

    def start(self) -> None:
        """Nobody leads, as far as this node knows."""
        self._since_ms = self._clock.now_ms()
        self._timer = self._clock.call_later(PATIENCE_MS, self._tell)

    def stop(self) -> None:
        """Say nothing more: a node that ends resigns, and knows no leader then."""
        self._stopped = True
        self._rest()

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        """The quorum's word; `leader_id` -1 for nobody."""
        if leader_id < 0:
            if self._timer is None and not self._stopped:
                self.start()
            return
        self._rest()
        if self._said:
            self._said = False
            self._say(f"node {self._node_id} knows a leader of the quorum again: node {leader_id}, epoch {epoch}")

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _tell(self) -> None:
        self._timer = self._clock.call_later(AGAIN_MS, self._tell)
        if not self._may_speak():
            return
        self._said = True
        seconds = (self._clock.now_ms() - self._since_ms) // 1000
        whom = ", ".join(f"{voter} at {address}" for voter, address in sorted(self._silent().items()))
        why = f"cannot reach the voters {whom}" if whom else "no other voter is known to be away"
        self._say(f"node {self._node_id} has known no leader of the quorum for {seconds} s: {why}")
