"""Converts between the core's values and the messages of `odradek.v1.Quorum`. Unreadable bytes raise only
`UnreadableMessage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter
from typing import Any, Final

from google.protobuf.message import DecodeError, Message
from odradek_proto.errors import ErrorCode
from odradek_proto.records import BatchHeader, CorruptBatch, check_batch, iter_batches
from odradek_proto.v1 import quorum_pb2 as pb
from odradek_proto.values import Value, replace

from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.quorum.messages import (
    Answer,
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    Fetch,
    FetchSnapshot,
    FetchSnapshotAnswer,
    QuorumFetchAnswer,
    Request,
    SnapshotId,
    Vote,
    VoteAnswer,
)

SERVICE: Final = "odradek.v1.Quorum"
VOTE: Final = f"/{SERVICE}/Vote"
BEGIN: Final = f"/{SERVICE}/BeginQuorumEpoch"
END: Final = f"/{SERVICE}/EndQuorumEpoch"
FETCH: Final = f"/{SERVICE}/Fetch"
FETCH_SNAPSHOT: Final = f"/{SERVICE}/FetchSnapshot"
NO_SNAPSHOT: Final = SnapshotId(0, 0)


class UnreadableMessage(Exception):
    """Bytes that are no message of the quorum, or batches in it that are corrupt."""


class Incoming(Value, frozen=True):
    cluster_id: str
    request: Request


class _Form:
    """A value of the core and its message: for each field of the value, in their order, the name that it has there.

    A field without a name ("-") is none of the message.
    """

    def __init__(self, value: Any, message: type[Message], names: str) -> None:
        self.value = value
        self._message = message
        pairs = zip(value.__struct_fields__, names.split(), strict=True)
        self._names = {field: name for field, name in pairs if name != "-"}
        self._values, self._fields = attrgetter(*self._names), attrgetter(*self._names.values())

    def encode(self, value: Any, **more: object) -> bytes:
        fields = dict(zip(self._names.values(), self._values(value), strict=True)) | more
        snapshot = fields.get("snapshot")
        if snapshot is not None:
            fields["snapshot"] = pb.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)
        return self._message(**fields).SerializeToString()

    def decode(self, data: bytes) -> tuple[Any, Any]:
        """The message, and the value. A snapshot that is absent is `NO_SNAPSHOT`. Raises `UnreadableMessage`."""
        try:
            message: Any = self._message.FromString(data)
        except DecodeError as error:
            raise UnreadableMessage(f"{self._message.__name__}: {error}") from error
        fields = dict(zip(self._names, self._fields(message), strict=True))
        if "error" in fields:
            fields["error"] = ErrorCode.from_number(fields["error"])
        if "successors" in fields:
            fields["successors"] = tuple(fields["successors"])
        if "snapshot" in fields:
            fields["snapshot"] = SnapshotId(fields["snapshot"].end_offset, fields["snapshot"].epoch)
        return message, self.value(**fields)


_REQUESTS: Final[Mapping[str, _Form]] = {
    VOTE: _Form(Vote, pb.VoteRequest, "candidate_epoch candidate_id last_epoch last_epoch_end_offset pre_vote"),
    BEGIN: _Form(BeginEpoch, pb.BeginQuorumEpochRequest, "leader_id leader_epoch"),
    END: _Form(EndEpoch, pb.EndQuorumEpochRequest, "leader_id leader_epoch preferred_successors"),
    FETCH: _Form(
        Fetch,
        pb.QuorumFetchRequest,
        "replica_id current_leader_epoch fetch_offset last_fetched_epoch high_watermark max_wait_ms max_bytes"
        " catching_up voted_for_leader",
    ),
    FETCH_SNAPSHOT: _Form(
        FetchSnapshot,
        pb.FetchSnapshotRequest,
        "replica_id current_leader_epoch snapshot position max_bytes catching_up voted_for_leader",
    ),
}
_METHODS: Final = {Vote: VOTE, BeginEpoch: BEGIN, EndEpoch: END, Fetch: FETCH, FetchSnapshot: FETCH_SNAPSHOT}
_EPOCH_ANSWER: Final = _Form(EpochAnswer, pb.QuorumEpochResponse, "error_code leader_id leader_epoch")
_ANSWERS: Final[Mapping[str, _Form]] = {
    VOTE: _Form(VoteAnswer, pb.VoteResponse, "error_code leader_id leader_epoch vote_granted provisional"),
    BEGIN: _EPOCH_ANSWER,
    END: _EPOCH_ANSWER,
    FETCH: _Form(
        QuorumFetchAnswer,
        pb.QuorumFetchResponse,
        "error_code leader_id leader_epoch high_watermark log_start_offset - batches - snapshot caught_up",
    ),
    FETCH_SNAPSHOT: _Form(
        FetchSnapshotAnswer,
        pb.FetchSnapshotResponse,
        "error_code leader_id leader_epoch snapshot position size data",
    ),
}
_FORM_OF_ANSWER: Final = {
    VoteAnswer: _ANSWERS[VOTE],
    EpochAnswer: _EPOCH_ANSWER,
    QuorumFetchAnswer: _ANSWERS[FETCH],
    FetchSnapshotAnswer: _ANSWERS[FETCH_SNAPSHOT],
}


def encode_request(request: Request, cluster_id: str) -> tuple[str, bytes]:
    """The method to call and its request."""
    method = _METHODS[type(request)]
    return method, _REQUESTS[method].encode(request, cluster_id=cluster_id)


def decode_request(method: str, data: bytes) -> Incoming:
    message, request = _REQUESTS[method].decode(data)
    return Incoming(message.cluster_id, request)


def encode_answer(answer: Answer) -> bytes:
    form = _FORM_OF_ANSWER[type(answer)]
    if isinstance(answer, QuorumFetchAnswer) and answer.diverging is not None:
        epoch, end_offset = answer.diverging
        return form.encode(answer, diverging=True, diverging_epoch=epoch, diverging_end_offset=end_offset)
    return form.encode(answer)


def decode_answer(request: Request, data: bytes) -> Answer:
    """The answer to `request`; batches are whole and their CRCs right."""
    message, decoded = _ANSWERS[_METHODS[type(request)]].decode(data)
    answer: Answer = decoded
    if isinstance(answer, QuorumFetchAnswer):
        diverging = EpochEntry(message.diverging_epoch, message.diverging_end_offset) if message.diverging else None
        snapshot = answer.snapshot if message.HasField("snapshot") else None
        return replace(answer, diverging=diverging, snapshot=snapshot, headers=_checked_headers(answer.batches))
    return answer


def _checked_headers(batches: bytes) -> list[BatchHeader]:
    """The headers of batches that were sent whole: anything left over is damage."""
    try:
        headers = [check_batch(batches, position) for position, _ in iter_batches(batches)]
    except CorruptBatch as error:
        raise UnreadableMessage(str(error)) from error
    if sum(header.size for header in headers) != len(batches):
        raise UnreadableMessage("a batch was sent in part")
    return headers


def refusal(method: str, error: ErrorCode, leader_id: int, epoch: int) -> bytes:
    """An answer that says nothing but an error, in the words of the method."""
    more = (NO_SNAPSHOT, 0) if method == FETCH_SNAPSHOT else ()
    return encode_answer(_ANSWERS[method].value(error, leader_id, epoch, *more))
