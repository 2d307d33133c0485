"""The three ports between odradek and the world: clock (with randomness), files, network.

Everything above these interfaces, the asyncio runtime included, runs unchanged on real processes and in the simulated
world. So nothing above them may import `time`, `random`, `os`, `threading`, `socket` or `grpc`, call `asyncio.sleep`
or read a wall clock by itself.

Two rules hold for every implementation. A port never retries: whoever asked decides what a failure means. And a peer
is a string `host:port`; who it is and whether it may be trusted is settled above.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, TypeVar, runtime_checkable

from odradek_proto.security.tls import PeerCertificate
from odradek_proto.values import Value

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview


# --- Clock ---------------------------------------------------------------------------------------------------------


class TimerHandle(Protocol):
    """A call that was asked for and may still be called off."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time and chance. Milliseconds are integers; monotonic time has an arbitrary start."""

    @property
    def rng(self) -> random.Random: ...

    def now_ms(self) -> int:
        """Monotonic milliseconds. Every protocol decision uses this one."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970. Only for record timestamps, retention and events: it may jump."""
        ...

    async def sleep(self, delay_ms: float) -> None: ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> TimerHandle: ...


# --- Files ---------------------------------------------------------------------------------------------------------


class File(Protocol):
    """One open file. Reads and writes are positional and synchronous; a failure is an `OSError`."""

    @property
    def path(self) -> str: ...

    def pread(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes; fewer only at the end of the file."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write all the buffers one after the other from `offset` on; returns the bytes written, always all of them."""
        ...

    def size(self) -> int: ...

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None:
        """Make the file's bytes and size durable. Blocking: on the event loop, call it through `Files.offload`."""
        ...

    def close(self) -> None: ...


class Files(Protocol):
    """A file system. Paths are absolute strings with `/`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. Raises `FileNotFoundError` when it is absent and `create` is false."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        ...

    def size(self, path: str) -> int: ...

    def makedirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomically replace `target`. Durable only after `fsync_dir` of the directory."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def free_bytes(self, path: str) -> int:
        """Free space of the file system that holds `path`."""
        ...

    def lock(self, path: str) -> File:
        """Take an exclusive lock on a file, created if absent, until it is closed or the process dies.

        Raises `BlockingIOError` when somebody else holds it.
        """
        ...

    async def offload(self, function: Callable[[], T]) -> T:
        """Run blocking work away from the event loop and return its result.

        Real world: a small thread pool. Simulated world: the same loop, after a sampled virtual delay.
        """
        ...

    async def compute(self, function: Callable[[], T]) -> T:
        """The same for what keeps a processor busy and no disk: one at a time, and in nobody's way who needs a disk."""
        ...


# --- Network -------------------------------------------------------------------------------------------------------


class NetworkError(Exception):
    """A call or stream failed on the way.

    `undelivered` is true when the peer certainly did not get what was asked; otherwise it may have acted on it.
    """

    undelivered = False


class PeerUnavailable(NetworkError):
    """No connection could be had, or it broke.

    `refused` is true when the peer's machine said that nobody listens. What was asked is undelivered when it was
    refused, when the peer's name was not found, or when no connection came about.
    """

    def __init__(self, message: str, *, refused: bool = False, undelivered: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        self.undelivered = refused or undelivered


class DeadlineExceeded(NetworkError):
    """No answer within the deadline."""


class CallRejected(NetworkError):
    """The peer's transport refused the call itself: unknown method, message too large, internal error."""

    def __init__(self, message: str, *, status: str = "UNKNOWN") -> None:
        super().__init__(message)
        self.status = status


class NotAuthenticated(NetworkError):
    """The peer does not believe who this is; what was asked was not done, and asking again does not help."""

    undelivered = True


class StreamClosed(NetworkError):
    """The stream has ended. `clean` is true when the other side closed it on purpose."""

    def __init__(self, message: str = "stream closed", *, clean: bool = False) -> None:
        super().__init__(message)
        self.clean = clean


class DialResult(Enum):
    LISTENING = "listening"
    REFUSED = "refused"  # proof that no process listens there
    SILENT = "silent"  # proof of nothing


class Stream(Protocol):
    """One end of a bidirectional stream of messages, in order, each delivered whole or not at all."""

    @property
    def peer(self) -> str: ...

    async def send(self, message: bytes) -> None:
        """Send one message; waits while the other side's window is full. Raises `StreamClosed`. One sender at a time.

        Cancelling a waiting `send` closes the stream, since nobody could say whether the message went out. Cancelling
        a `recv` loses nothing.
        """
        ...

    async def recv(self) -> bytes:
        """The next message. Raises `StreamClosed` at the end. One receiver at a time."""
        ...

    def close(self) -> None:
        """End the stream on both sides. Never raises; a waiting `recv` here ends with `StreamClosed`."""
        ...


class CallContext(Value, frozen=True):
    """What the serving side knows about a call."""

    peer: str
    deadline_ms: float | None = None  # time left when the call arrived; None: the caller set no deadline
    certificate: PeerCertificate | None = None  # that the caller has shown, with TLS
    token: str = ""  # by which the caller has authenticated before (SASL)


UnaryHandler = Callable[[bytes, CallContext], Awaitable[bytes]]
StreamHandler = Callable[[Stream, CallContext], Awaitable[None]]


@dataclass(frozen=True)
class Handlers:
    """What a server answers: full method names such as `/odradek.v1.Broker/Produce` to coroutines over bytes."""

    unary: Mapping[str, UnaryHandler] = field(default_factory=dict)
    streams: Mapping[str, StreamHandler] = field(default_factory=dict)
    services: Sequence[str] = ()  # full service names, for health and reflection
    reflection: bool = False  # whether gRPC's reflection tells whoever asks what is served: for development


@runtime_checkable
class Server(Protocol):
    @property
    def address(self) -> str:
        """`host:port`, with the port that the system gave when 0 was asked for."""
        ...

    def set_serving(self, serving: bool) -> None:
        """What the health service says."""
        ...

    async def stop(self, grace_ms: float = 0) -> None:
        """Refuse new calls; end open ones after the grace, those of streams included."""
        ...


class ByteConnection(Protocol):
    """One accepted connection of a byte stream, as its receiver sees it. Nothing here raises or blocks."""

    @property
    def peer(self) -> str: ...

    @property
    def certificate(self) -> PeerCertificate | None:
        """That the peer has shown, with TLS."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """What was written and has not left this process."""
        ...

    def write(self, buffers: Sequence[Buffer]) -> None:
        """Send these bytes, in order. They are kept until they have left, however slowly the peer reads."""
        ...

    def pause(self) -> None:
        """Read no more for the time being; may be called again."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None:
        """End the connection once everything written has left."""
        ...

    def abort(self) -> None:
        """End it now."""
        ...


class ByteReceiver(Protocol):
    """What takes the bytes of one connection. It is called on the event loop, never inside of its own calls."""

    def room(self) -> memoryview:
        """Where the next bytes are to be put; at least one byte."""
        ...

    def on_bytes(self, count: int) -> None:
        """So many bytes were put into the room, at its beginning."""
        ...

    @property
    def missing(self) -> int:
        """How many more bytes have to come before any of them is of use; 0 when it is not known."""
        ...

    def on_full(self) -> None:
        """The peer is slow: write no more until `on_drained`."""
        ...

    def on_drained(self) -> None:
        """Everything written has left."""
        ...

    def on_lost(self) -> None:
        """The connection has ended. The last call."""
        ...


Accept = Callable[[ByteConnection], ByteReceiver | None]  # None: not taken, and closed


class Network(Protocol):
    async def call(self, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        """One unary call. Raises `PeerUnavailable`, `DeadlineExceeded` or `CallRejected`."""
        ...

    async def open(self, peer: str, method: str, timeout_ms: float = 5000) -> Stream:
        """Open a stream; returns once the peer has accepted it. Raises as `call` does."""
        ...

    async def dial(self, peer: str, timeout_ms: float) -> DialResult:
        """Find out whether anybody listens there, without saying anything."""
        ...

    async def serve(self, address: str, handlers: Handlers) -> Server:
        """Listen on `host:port`. Raises `OSError` when the address is taken."""
        ...

    async def listen_bytes(self, address: str, accept: Accept) -> Server:
        """Listen on `host:port` for byte streams. Raises `OSError` when the address is taken."""
        ...

    async def close(self) -> None:
        """Drop all channels that this side opened."""
        ...
