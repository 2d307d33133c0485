"""What lies between the brokers of one process, and between them and their clients: links that faults act on.

Brokers of such a cluster speak with each other without sockets; what they say to clients goes through real ones. Both
pass a link, one for each direction between two of them. Rules of this module. A link keeps order and loses nothing,
as TCP does: what may not pass waits. A frozen broker hears and says nothing, while whoever connects to it is taken, as
by the kernel of a process that got SIGSTOP. A cut is between two brokers, and both ways.
"""

from __future__ import annotations

import asyncio

from odradek_broker.testing.links import BrokerLink
from odradek_broker.testing.local_calls import LocalServer

OUTSIDE = 0  # clients, as an end of a link; brokers count from 1


class Fabric:
    """The links of one cluster, who listens at its brokers' own addresses, and the faults that are on now."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.owners: dict[str, int] = {}  # addresses that are reached without sockets, and whose they are
        self.listeners: dict[str, LocalServer] = {}
        self.doors_are_open = False  # whether brokers listen for gRPC clients, or wait until somebody wants them to
        self.is_calm = True  # no fault is on
        self._links: dict[tuple[int, int], BrokerLink] = {}
        self._frozen: set[int] = set()
        self._cuts: set[frozenset[int]] = set()
        self._slow_ms: dict[int, float] = {}

    def link(self, source: int, target: int) -> BrokerLink:
        found = self._links.get((source, target))
        if found is None:
            found = self._links[source, target] = BrokerLink(self, source, target)
        return found

    # --- What faults there are --------------------------------------------------------------------------------------

    def is_frozen(self, broker: int) -> bool:
        return broker in self._frozen

    def is_cut(self, one: int, other: int) -> bool:
        return frozenset((one, other)) in self._cuts

    def holds(self, source: int, target: int) -> bool:
        return source in self._frozen or target in self._frozen or self.is_cut(source, target)

    def delay_ms(self, source: int, target: int) -> float:
        return max(self._slow_ms.get(source, 0), self._slow_ms.get(target, 0))

    def passes_at_once(self, source: int, target: int) -> bool:
        return not self.holds(source, target) and not self.delay_ms(source, target)

    # --- Their beginning and end ------------------------------------------------------------------------------------

    def freeze(self, broker: int) -> None:
        self._frozen.add(broker)
        self._look()

    def thaw(self, broker: int) -> None:
        self._frozen.discard(broker)
        self._look()

    def cut(self, one: int, other: int) -> None:
        self._cuts.add(frozenset((one, other)))
        self._look()

    def slow(self, broker: int, delay_ms: float) -> None:
        self._slow_ms[broker] = delay_ms
        self._look()

    def mend(self) -> None:
        """No fault is on any more: what waited arrives."""
        self._frozen.clear()
        self._cuts.clear()
        self._slow_ms.clear()
        self._look()

    def _look(self) -> None:
        self.is_calm = not (self._frozen or self._cuts or self._slow_ms)
        for link in tuple(self._links.values()):
            link.look()
