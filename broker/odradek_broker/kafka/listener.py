"""A listener for Kafka's clients: it takes connections, and ends those that are stuck or idle.

Nothing here is a decision about records: those are the request layer's. What is bounded: connections in all and of one
address (`max.connections`, `max.connections.per.ip`), one frame (`socket.request.max.bytes`), the frames of all
connections together (`queued.max.request.bytes`): at that bound nobody is read until some have been answered, and
who has not sent a large frame for which it holds room within 30 s is ended.
"""

from __future__ import annotations

from collections import Counter

from odradek_proto.transport.ports import ByteConnection, ByteReceiver, TimerHandle

from odradek_broker.kafka.connection import KafkaConnection
from odradek_broker.kafka.shared import Shared

SWEEP_MS = 5_000  # how often idle and stuck connections are looked for
STUCK_MS = 30_000  # a client that takes no answer, or sends no more of a frame, for so long is closed (K-16)


class KafkaListener:
    """All connections of one listener. `accept` is what `Network.listen_bytes` calls; nothing is read before `open`."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self._connections: dict[KafkaConnection, str] = {}  # and their hosts
        self._by_host: Counter[str] = Counter()
        self._sweep: TimerHandle | None = None

    def open(self) -> None:
        """The broker's metadata is applied: requests are answered from now on."""
        self.shared.open()

    def accept(self, connection: ByteConnection) -> ByteReceiver | None:
        """A new connection; None when there are too many."""
        host, settings = connection.peer.rpartition(":")[0], self.shared.settings
        open_now = len(self._connections)
        if open_now >= settings.max_connections or self._by_host[host] >= settings.max_connections_per_ip:
            self.shared.warn(f"too many {host}", f"{host}: not taken, {open_now} connections are open")
            return None
        taken = KafkaConnection(connection, self.shared, self._lost)
        self._connections[taken] = host
        self._by_host[host] += 1
        if self._sweep is None:
            self._sweep = self.shared.call_later(SWEEP_MS, self._look_around)
        return taken

    def _lost(self, connection: KafkaConnection) -> None:
        host = self._connections.pop(connection)
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]
        if not self._connections and self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None

    def _look_around(self) -> None:
        """End what is stuck or idle. One timer for all connections."""
        now_ms = self.shared.now_ms()
        for connection in tuple(self._connections):
            connection.look()
            silent_ms = now_ms - connection.last_activity_ms
            if self.shared.is_short and connection.is_in_the_way(now_ms - STUCK_MS):
                connection.abort()
            elif connection.is_stuck():
                if silent_ms >= STUCK_MS:
                    connection.abort()
            elif connection.is_idle() and silent_ms >= self.shared.settings.connections_max_idle_ms:
                connection.close()
        self._sweep = self.shared.call_later(SWEEP_MS, self._look_around) if self._connections else None
