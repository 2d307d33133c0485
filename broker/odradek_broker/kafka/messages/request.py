"""One request as a handler sees it, and a row of the table of APIs."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from odradek_proto.transport.ports import Buffer
from odradek_proto.values import Value

from odradek_broker.kafka.messages.codec import REQUEST, RESPONSE, Message, reader_of, writer_of
from odradek_broker.kafka.messages.primitives import MALFORMED, MessageReader, MessageWriter
from odradek_broker.requests.authentication import Conversation
from odradek_broker.requests.context import Principal, RequestContext

T = TypeVar("T")
_TAKEN = MessageReader(memoryview(b""))


@dataclass(slots=True)
class ClientInformation:
    """What a connection knows of whoever is at its other end: ApiVersions (K-17) and SASL (K-34) fill it in."""

    software: str = ""
    version: str = ""
    principal: Principal | None = None  # None: has to authenticate before anything else
    conversation: Conversation | None = None  # that is under way
    mechanism: str = ""  # by which it has authenticated
    session_ends_ms: int | None = None  # from then on it has to authenticate again, before anything else
    begun_again_ms: int | None = None  # when it began to, the last time
    refused: bool = False  # the connection ends with this answer

    def has_to_authenticate(self, now_ms: int) -> bool:
        """Before anything else: for the first time, or again, or it is about to."""
        if self.principal is None or self.conversation is not None:
            return True
        return self.session_ends_ms is not None and now_ms >= self.session_ends_ms

    def __str__(self) -> str:
        return f"{self.software} {self.version}".strip() or "a client that did not say its name"


@dataclass(slots=True)
class KafkaRequest:
    """`reader` stands behind the header, at the body."""

    key: int
    version: int
    reader: MessageReader
    context: RequestContext
    client: ClientInformation
    reserve: Callable[[int], int] = lambda size: size  # of so many bytes of record batches the answer may have these
    release: Callable[[], None] = lambda: None  # its frame counts no longer: what was read is bounded by who keeps it
    throttle_ms: int = 0  # for how long its client has exceeded a quota: the answer says so, and nothing is read
    hang_up: Callable[[str], None] = lambda reason: None  # what `HangUp` does, for what fails when `start` has returned

    def read(self) -> Message:
        """The body as `schemas.py` defines it. Raises `HangUp` when it is malformed."""
        read = reader_of(self.key, REQUEST, self.version)
        return self.decoded(lambda reader, _version: read(reader))

    def decoded(self, decode: Callable[[MessageReader, int], T]) -> T:
        """The body as `decode` reads it, once. Raises `HangUp` when it is malformed; no other error is the client's."""
        reader, self.reader = self.reader, _TAKEN  # a request that waits does not keep its frame
        try:
            return decode(reader, self.version)
        except MALFORMED as error:
            raise HangUp(f"a malformed request, API key {self.key} of version {self.version}: {error}") from error

    def answered(self, message: Mapping[str, Any]) -> Body:
        """The body of an answer of the same version."""
        writer = MessageWriter()
        writer_of(self.key, RESPONSE, self.version)(writer, {"throttle_time_ms": self.throttle_ms, **message})
        return writer.buffers()


Body = Sequence[Buffer]
Done = Callable[[Body | None], None]  # the body of the answer; None: there is none (acks=0)


class HangUp(Exception):
    """Close the connection instead of an answer; what was asked before is answered first."""


class Api(Value, frozen=True):
    """One API that is served: exactly one of `answer` and `start`.

    `start` must call `done` once, now or later, and the next request of the same kind may start before it has (K-8).
    """

    key: int
    name: str  # Kafka's
    first: int
    last: int
    flexible_from: int
    answer: Callable[[KafkaRequest], Coroutine[Any, Any, Body]] | None = None
    start: Callable[[KafkaRequest, Done], None] | None = None
    measures_itself: bool = False  # the request layer observes its times
    any_version: bool = False  # ApiVersions answers versions that it does not know
