"""What all connections of a listener share: the table of APIs, the memory for frames, and what the log has said."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Protocol

from odradek_proto.transport.ports import Clock, TimerHandle

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.kafka.framing import ARRIVAL_BYTES
from odradek_broker.kafka.messages.request import Api, HangUp
from odradek_broker.requests.quotas import NO_QUOTAS, Throttle
from odradek_broker.runtime.counters import Counters

logger = logging.getLogger(__name__)

UNTAKEN_BYTES = 64 * 1024 * 1024  # of answers that are read or that slow clients leave lying; then one batch for each
SHARE_OF_ROOM = 4  # an answer has at most so much of what is left of it: many at once are smaller
LARGE_SHARE = 0.75  # of the memory for frames, for large ones: small requests always have some
MOST_WARNED = 256  # kinds of clients whose malformed requests are logged, each once
MOST_LOGGED = 1_000  # characters of one line, in which clients have names of their choice


class WaitingConnection(Protocol):
    """A connection that is not read until there is room."""

    def resume_reading(self) -> None: ...

    def abort(self) -> None: ...


class Shared:
    """`held` is bounded: frames that have arrived or have their buffer, and are not answered yet."""

    def __init__(
        self,
        name: str,
        apis: Callable[[], Mapping[int, Api]],
        *,
        clock: Clock,
        settings: BrokerSettings,
        counters: Counters,
        needs_sasl: bool = False,
        throttle: Throttle = NO_QUOTAS,
        grpc: Callable[[], str] = str,
    ) -> None:
        self._grpc = grpc  # where clients that speak gRPC are served; empty for nowhere
        self.throttle = throttle
        self.name = name
        self.needs_sasl = needs_sasl
        self.settings = settings
        self.untaken_bytes = 0
        self._reserved_bytes = 0  # of answers that are not written yet
        self.refused_requests = 0
        self._make_apis = apis
        self._clock = clock
        self._counters = counters
        self._held_bytes = 0
        self._is_open = False
        self._waiting: dict[WaitingConnection, None] = {}
        self._turns: deque[asyncio.Future[None]] = deque()
        self._warned: set[str] = set()

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def call_later(self, delay_ms: int, callback: Callable[[], None]) -> TimerHandle:
        return self._clock.call_later(delay_ms, callback)

    # --- The table --------------------------------------------------------------------------------------------------

    @cached_property
    def arrival(self) -> memoryview:
        """Where all of them read to. A listener that nobody connects to has none."""
        return memoryview(bytearray(ARRIVAL_BYTES))

    @cached_property
    def _apis(self) -> Mapping[int, Api]:
        return self._make_apis()  # when the first client asks

    def api(self, key: int, version: int) -> Api:
        """Raises `HangUp` for what is not served (K-13, K-31)."""
        api = self._apis.get(key)
        if api is None:
            raise HangUp(f"API key {key} is not served")
        if not api.first <= version <= api.last and not api.any_version:
            raise HangUp(f"{api.name} has versions {api.first} to {api.last}, not {version}")
        return api

    def overlaps(self, key: int) -> bool:
        """Whether requests of this kind may start before those before them are answered (K-8)."""
        api = self._apis.get(key)
        return api is not None and api.start is not None

    def time(self) -> float:
        timer = self._counters.timer
        return 0.0 if timer is None else timer()

    def observe(self, api: Api, started: float) -> None:
        """A request has its answer."""
        timer = self._counters.timer
        if timer is not None and not api.measures_itself:
            self._counters.request(api.name).observe(timer() - started)

    # --- Memory -----------------------------------------------------------------------------------------------------

    @property
    def is_short(self) -> bool:
        """Whether connections wait for room."""
        return self._is_open and bool(self._waiting)

    def open(self) -> None:
        """From now on connections are read."""
        self._is_open = True
        self._wake()

    def has_room(self, connection: WaitingConnection) -> bool:
        """Whether more may be read; if not, the connection goes on when there is room again."""
        if self._is_open and self._held_bytes < self.settings.queued_max_request_bytes:
            return True
        self._waiting[connection] = None
        return False

    def hold(self, connection: WaitingConnection, size: int, *, anyway: bool = False) -> bool:
        """Count a frame's bytes. Large frames are refused while others have their room; the first always fits."""
        if (
            not anyway
            and self._held_bytes
            and self._held_bytes + size > LARGE_SHARE * self.settings.queued_max_request_bytes
        ):
            self._waiting[connection] = None
            return False
        self._held_bytes += size
        return True

    def release(self, size: int) -> None:
        self._held_bytes -= size
        if self._waiting and self._held_bytes < self.settings.queued_max_request_bytes:
            self._wake()

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for connection in waiting:
            try:
                connection.resume_reading()
            except Exception:  # the others still go on
                logger.exception("listener %s: %s failed, and is ended", self.name, connection)
                connection.abort()

    def forget(self, connection: WaitingConnection, held_bytes: int) -> None:
        """It has ended, and lets go of so many bytes."""
        self._waiting.pop(connection, None)
        self.release(held_bytes)

    def reserve(self, size: int) -> int:
        """How much of it one answer may hold, until `unreserve`; its first batch may be larger (KIP-74)."""
        room = (UNTAKEN_BYTES - self.untaken_bytes - self._reserved_bytes) // SHARE_OF_ROOM
        granted = max(1, min(size, self.settings.fetch_max_bytes, room))
        self._reserved_bytes += granted
        return granted

    def unreserve(self, size: int) -> None:
        """The answer is written, or will not be."""
        self._reserved_bytes -= size

    # --- Time -------------------------------------------------------------------------------------------------------

    async def turn(self) -> None:
        """Wait for a turn of the loop: who names much gets one after the other, and all else goes on between."""
        turn = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        if len(self._turns) == 1:
            asyncio.get_running_loop().call_soon(self._next_turn)
        await turn

    def _next_turn(self) -> None:
        if not self._turns[0].done():  # its client may have gone
            self._turns[0].set_result(None)
        self._turns.popleft()
        if self._turns:
            asyncio.get_running_loop().call_soon(self._next_turn)

    # --- The log ----------------------------------------------------------------------------------------------------

    def refused(self, kind: str, text: str) -> None:
        """A client of this kind said what cannot be understood, and is hung up on."""
        self.refused_requests += 1
        self.warn(kind, f"{text}; the connection is closed")

    def mistaken(self, peer: str, protocol: str) -> None:
        """A client of another protocol has come here, as far as its first bytes say."""
        grpc = self._grpc() if protocol == "HTTP/2" else ""
        meant = f"; gRPC clients, odradek's among them, are served at {grpc}" if grpc else ""
        self.refused(protocol, f"{peer} speaks {protocol}, and this listener is for Kafka's clients{meant}")

    def warn(self, kind: str, text: str) -> None:
        """Once for each kind."""
        kind = kind[:MOST_LOGGED]
        if kind not in self._warned and len(self._warned) < MOST_WARNED:
            self._warned.add(kind)
            logger.warning("listener %s: %s", self.name, text[:MOST_LOGGED])
