"""The result of an operation of the controller: records for the metadata log, and a response for the caller.

An operation reads the image that runs ahead and changes nothing. The runtime appends the records as one atomic batch,
applies them to that image at once, and responds when the batch is committed (R-216). A request that cannot be granted
raises a `RequestRefused`, which becomes the response.

An admin request has a row, a `ChangeRequest` or a `ReadRequest`, in `REQUESTS` of the module that decides it;
`admin.py` combines these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

from odradek_proto.errors import ErrorCode
from odradek_proto.messages import Message
from odradek_proto.v1 import admin_messages
from odradek_proto.v1.metadata_messages import BrokerStateRecord, ConfigRecord
from odradek_proto.values import Value

from odradek_broker.core.context import RequestContext, RequiredPermission
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord, encode

Answer = TypeVar("Answer")


class Decision(Value, Generic[Answer], frozen=True):
    """One atomic batch (perhaps none) and what to say once it is committed."""

    records: Sequence[MetadataRecord]
    answer: Answer


class RequestRefused(Exception):
    """Raised while a request is looked at; caught where its answer is made. `message` is a sentence for people."""

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(f"{error.name}: {message}")
        self.error = error
        self.message = message


class MetadataCall(Value, frozen=True):
    """One request, and the committed metadata that answer it."""

    request: Any  # of the method's request type
    image: MetadataImage
    settings: ControllerSettings


class AdminCall(MetadataCall, frozen=True):
    """One request at the active controller. `image` runs ahead of the commit where the request may change something."""

    context: RequestContext  # of the client, also when a broker has passed the request on
    rng: random.Random
    describe_quorum: Callable[[], admin_messages.DescribeQuorumResponse]
    unfit: Callable[[], Sequence[int]] = tuple
    """Brokers that should lead nothing that another one can lead (R-147, R-148)."""


class AdminRequest(Value, frozen=True):
    """A request's name in admin.proto, from which its two messages have theirs, and what its caller must be allowed.

    A request that names the type of its resource needs what `of` says of that type, if it does.
    """

    name: str
    need: RequiredPermission
    of: Mapping[str, RequiredPermission] = {}
    kafka_name: str = ""  # where Kafka's differs

    @property
    def request(self) -> type[Message]:
        found: type[Message] = getattr(admin_messages, f"{self.name}Request")
        return found

    @property
    def response(self) -> type[Message]:
        found: type[Message] = getattr(admin_messages, f"{self.name}Response")
        return found


class ChangeRequest(AdminRequest, frozen=True, kw_only=True):
    """A request that may change something: it is sent at most once, and answered when its records are committed."""

    decide: Callable[[AdminCall], Decision[Any]]


class ReadRequest(AdminRequest, frozen=True, kw_only=True):
    """A request that changes nothing: it may be sent twice, and is answered at once from what is committed.

    A broker that reaches no controller answers from its own metadata, as Kafka's brokers always do.
    """

    answer: Callable[[MetadataCall], Message]


class QuorumRequest(AdminRequest, frozen=True, kw_only=True):
    """The same, answered from what only the active controller knows."""

    answer: Callable[[AdminCall], Message]


def broker_state_record(
    registration: BrokerRegistration, *, fenced: bool, in_controlled_shutdown: bool = False
) -> MetadataRecord:
    return BrokerStateRecord(
        broker_id=registration.broker_id,
        broker_epoch=registration.broker_epoch,
        fenced=fenced,
        in_controlled_shutdown=in_controlled_shutdown,
    )


def config_record(resource_type: str, resource_name: str, name: str, value: str | None) -> MetadataRecord:
    """`value` None removes the setting."""
    return ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)


# --- The size of the one batch of a request -----------------------------------------------------------------
# Followers fetch a batch in one gRPC message, of 16 MiB at most with everything else in it: a larger batch would stop
# the metadata quorum forever. So a request that needs more is refused before anything is written.


MAX_BATCH_BYTES: Final = 8 << 20  # half of a message
RECORD_OVERHEAD: Final = 16  # of a record beside its value: two lengths of up to 4 bytes, offset, and what is empty


def batch_bytes(records: Iterable[MetadataRecord]) -> int:
    """What the records take of a batch, a little too much rather than too little."""
    return sum(len(encode(record)) + RECORD_OVERHEAD for record in records)


def check_batch_bytes(size: int, room: int, remedy: str) -> None:
    """Raise `RequestRefused` for more than there is room for."""
    if size > room:
        reason = f"one request writes at most {MAX_BATCH_BYTES} bytes of metadata: {remedy}"
        raise RequestRefused(ErrorCode.POLICY_VIOLATION, reason)
