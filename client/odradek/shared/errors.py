"""Every error that this client raises: one hierarchy, four questions that each of them answers.

    OdradekError
      BrokerError      a broker refused; one class per code of the protocol, in `odradek.broker_errors`
      ClientError      decided on this side: no connection, no time, no room, a wrong setting

Rules of this module. `retriable` says that the same call may succeed later without a change; `fatal` says that this
client object cannot go on and a new one is needed; `hint` says to a person what to do next, or is empty. The error of
a record that was sent answers a fourth: with `maybe_written` it may be in the log all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition


class OdradekError(Exception):
    """Base of all errors of this package."""

    retriable: bool = False
    fatal: bool = False
    maybe_written: bool = False

    def __init_subclass__(cls) -> None:
        if cls.__module__ == __name__:
            cls.__module__ = "odradek"  # where users find it, and what a traceback says

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class BrokerError(OdradekError):
    """A broker answered with an error code. `code` is the protocol's; subclasses carry Kafka's names in camel case."""

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str = "", *, where: str = "", hint: str = "") -> None:
        text = f"{self.code.name}: {message or self.code.message}"
        super().__init__(f"{where}: {text}" if where else text, hint=hint or HINTS.get(self.code, ""))


HINTS: Mapping[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`odradek topic list` shows what is there, `odradek topic create` makes one",
    ErrorCode.NOT_ENOUGH_REPLICAS: "see `odradek cluster status`: too few replicas are in sync for min.insync.replicas",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "the records may be there all the same; see `odradek cluster status`",
    ErrorCode.MESSAGE_TOO_LARGE: "send smaller records, or raise max.message.bytes of the topic",
    ErrorCode.INVALID_REPLICATION_FACTOR: "it cannot be larger than the number of brokers",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or delete the topic first",
    ErrorCode.OFFSET_OUT_OF_RANGE: "seek to another offset, or set auto_offset_reset to earliest or latest",
    ErrorCode.LEADER_NOT_AVAILABLE: "see `odradek cluster status`: the partition's replicas may all be down",
    ErrorCode.KAFKA_STORAGE_ERROR: "the leader cannot use its replica: see its log; stop that broker and another "
    "eligible replica leads",
    ErrorCode.SECURITY_DISABLED: "`odradek cluster up --secure` starts a cluster with TLS, SASL and ACLs",
    ErrorCode.GROUP_ID_NOT_FOUND: "`odradek group list` shows what is there",
    ErrorCode.INVALID_CONFIG: "`odradek docs configuration` lists the settings and their values",
    ErrorCode.INVALID_PARTITIONS: "`odradek topic describe` shows how many there are",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "`odradek cluster describe` lists the brokers",
    ErrorCode.CORRUPT_MESSAGE: "run `odradek audit run` over the log directories",
}


def _class_of(code: ErrorCode) -> type[BrokerError]:
    name = "".join(word.capitalize() for word in code.name.split("_"))
    fields = {"code": code, "retriable": code.retriable, "__module__": "odradek.broker_errors", "__doc__": code.message}
    return type(name, (BrokerError,), fields)


BROKER_ERRORS: Final[Mapping[ErrorCode, type[BrokerError]]] = {
    code: _class_of(code) for code in ErrorCode if code is not ErrorCode.NONE
}


def broker_error(code: ErrorCode | int, message: str = "", *, where: str = "") -> BrokerError:
    """The error for a code; a number that nobody knows becomes UNKNOWN_SERVER_ERROR. `where` names topic or broker."""
    known = code if isinstance(code, ErrorCode) else ErrorCode.from_number(code)
    return BROKER_ERRORS.get(known, BrokerError)(message, where=where)


def raise_for(code: int, message: str = "", *, where: str = "") -> None:
    """Raise the error of a code, unless it is NONE."""
    if code:
        raise broker_error(code, message, where=where)


class ClientError(OdradekError):
    """Decided by the client itself."""


class BootstrapError(ClientError):
    """None of the bootstrap addresses led into a cluster. `causes` has one sentence per address, as they were asked.

    The text has them sorted: brokers are asked in any order, and what is the same has to read the same.
    """

    retriable = True

    def __init__(self, causes: Mapping[str, str], *, hint: str = "") -> None:
        self.causes = dict(causes)
        listed = "; ".join(f"{address}: {cause}" for address, cause in sorted(self.causes.items()))
        super().__init__(f"no broker could be reached: {listed}", hint=hint)


class BrokerUnreachable(ClientError):
    """A broker cannot be reached under its address, or the connection broke under a call.

    Only when `undelivered` is true it is certain that the broker did not get the call.
    """

    retriable = True

    def __init__(self, message: str, *, undelivered: bool = False, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.undelivered = undelivered


class RequestTimeout(ClientError, TimeoutError):
    """A call was not answered in time. Whether it took effect is unknown."""

    retriable = True


class DeliveryTimeout(ClientError, TimeoutError):
    """A record was not acknowledged within delivery.timeout.ms.

    When `maybe_written` is true it was sent at least once, and may be in the log all the same.
    """

    retriable = True

    def __init__(self, message: str, *, maybe_written: bool, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.maybe_written = maybe_written


class BufferFull(ClientError, TimeoutError):
    """No room in buffer.memory within max.block.ms: records come faster than the cluster takes them."""

    retriable = True


class RecordTooLarge(ClientError, ValueError):
    """A record is larger than max.request.size, or than the whole buffer.memory."""


class ClientClosed(ClientError):
    """The client was closed, or never started; it takes nothing more."""

    fatal = True


class ClientFailed(ClientError):
    """Something happened inside the client that it was not made for; `__cause__` is what. It takes nothing more."""

    fatal = True


class ConfigError(ClientError, ValueError):
    """An unknown setting, or a value that it cannot have."""


class UnsupportedFeature(ClientError, NotImplementedError):
    """Something that Kafka has and odradek has not yet."""


class UnknownTopic(ClientError, LookupError):
    """The cluster has no such topic, or the topic no such partition."""

    def __init__(self, message: str, *, topic: str, hint: str = "") -> None:
        super().__init__(message, hint=hint or HINTS[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        self.topic = topic


def no_such_partition(topic: str, partition: int | None, partitions: int) -> UnknownTopic:
    """The error for a number that is none of a topic's."""
    return UnknownTopic(
        f"topic {topic!r} has no partition {partition}", topic=topic, hint=f"it has {partitions}, counted from 0"
    )


class CommitFailed(ClientError):
    """The partitions belong to another member of the group by now, or the consumer has not joined it yet."""

    def __init__(self, group_id: str, why: str) -> None:
        super().__init__(
            f"group {group_id!r}: nothing was committed: {why}",
            hint="the records since the last commit come again, here or at another member; a consumer that works for "
            "longer than max_poll_interval_ms without asking for records is taken for dead",
        )


class NotAssigned(ClientError, LookupError):
    """The consumer was asked about a partition that is not assigned to it."""


class NoOffset(ClientError):
    """A partition has no position and auto.offset.reset is none."""

    def __init__(self, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(
            f"no position for {', '.join(map(str, partitions))} and auto.offset.reset is none",
            hint="call seek() first, or set auto_offset_reset",
        )
        self.partitions = list(partitions)


class LogTruncated(ClientError):
    """Records that this consumer has read are no longer in the log (KIP-320).

    The consumer was at `position` with `epoch` as the leader epoch of the record before it; the log of that epoch now
    ends at `divergent_offset` (None: the leader knows nothing of that epoch).
    """

    def __init__(
        self,
        partition: TopicPartition,
        *,
        position: int,
        epoch: int,
        divergent_offset: int | None,
        divergent_epoch: int | None,
    ) -> None:
        upto = (
            "an unknown offset" if divergent_offset is None else f"{divergent_offset} (leader epoch {divergent_epoch})"
        )
        super().__init__(
            f"{partition}: the log was truncated: read up to {position} in leader epoch {epoch}, it now ends at {upto}",
            hint="seek() to where you want to go on; what was read from there to the old position is gone",
        )
        self.partition = partition
        self.position = position
        self.epoch = epoch
        self.divergent_offset = divergent_offset
        self.divergent_epoch = divergent_epoch


class CorruptRecords(ClientError):
    """A fetched record batch has a wrong CRC or form."""


class SerializationError(ClientError, ValueError):
    """A key or value is not bytes and no serializer was given, or the (de)serializer failed."""
