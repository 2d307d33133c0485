"""Between the core's words and the messages of `odradek.v1.Quorum`. What cannot be read is `UnreadableMessage`,
nothing else.
"""

from __future__ import annotations

from typing import Final

from google.protobuf.message import DecodeError, Message
from odradek_proto.errors import ErrorCode
from odradek_proto.records import BatchHeader, CorruptBatch, check_batch, iter_batches
from odradek_proto.v1 import quorum_pb2 as pb
from odradek_proto.values import Value

from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.core.quorum.messages import (
    Answer,
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    FetchSnapshotAnswer,
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


def _parse(message: Message, data: bytes) -> None:
    try:
        message.ParseFromString(data)
    except DecodeError as error:
        raise UnreadableMessage(f"{type(message).__name__}: {error}") from error


def encode_request(request: Request, cluster_id: str) -> tuple[str, bytes]:
    """The method to call and its request."""
    message: Message
    match request:
        case Vote():
            message = pb.VoteRequest(
                cluster_id=cluster_id,
                candidate_epoch=request.epoch,
                candidate_id=request.candidate_id,
                last_epoch=request.last_epoch,
                last_epoch_end_offset=request.end_offset,
                pre_vote=request.pre_vote,
            )
            return VOTE, message.SerializeToString()
        case BeginEpoch():
            message = pb.BeginQuorumEpochRequest(
                cluster_id=cluster_id, leader_id=request.leader_id, leader_epoch=request.epoch
            )
            return BEGIN, message.SerializeToString()
        case EndEpoch():
            message = pb.EndQuorumEpochRequest(
                cluster_id=cluster_id,
                leader_id=request.leader_id,
                leader_epoch=request.epoch,
                preferred_successors=request.successors,
            )
            return END, message.SerializeToString()
        case Fetch():
            message = pb.QuorumFetchRequest(
                cluster_id=cluster_id,
                replica_id=request.replica_id,
                current_leader_epoch=request.epoch,
                fetch_offset=request.fetch_offset,
                last_fetched_epoch=request.last_epoch,
                max_wait_ms=request.max_wait_ms,
                max_bytes=request.max_bytes,
                high_watermark=request.high_watermark,
                catching_up=request.catching_up,
                voted_for_leader=request.voted,
            )
            return FETCH, message.SerializeToString()
        case FetchSnapshot():
            message = pb.FetchSnapshotRequest(
                cluster_id=cluster_id,
                replica_id=request.replica_id,
                current_leader_epoch=request.epoch,
                snapshot=_snapshot_message(request.snapshot),
                position=request.position,
                max_bytes=request.max_bytes,
                catching_up=request.catching_up,
                voted_for_leader=request.voted,
            )
            return FETCH_SNAPSHOT, message.SerializeToString()


def _snapshot_message(snapshot: SnapshotId) -> pb.SnapshotId:
    return pb.SnapshotId(end_offset=snapshot.end_offset, epoch=snapshot.epoch)


def decode_request(method: str, data: bytes) -> Incoming:
    if method == VOTE:
        vote = pb.VoteRequest()
        _parse(vote, data)
        asked = Vote(
            vote.candidate_epoch, vote.candidate_id, vote.last_epoch, vote.last_epoch_end_offset, vote.pre_vote
        )
        return Incoming(vote.cluster_id, asked)
    if method == BEGIN:
        begin = pb.BeginQuorumEpochRequest()
        _parse(begin, data)
        return Incoming(begin.cluster_id, BeginEpoch(begin.leader_id, begin.leader_epoch))
    if method == END:
        end = pb.EndQuorumEpochRequest()
        _parse(end, data)
        return Incoming(end.cluster_id, EndEpoch(end.leader_id, end.leader_epoch, tuple(end.preferred_successors)))
    if method == FETCH_SNAPSHOT:
        piece = pb.FetchSnapshotRequest()
        _parse(piece, data)
        snapshot = SnapshotId(piece.snapshot.end_offset, piece.snapshot.epoch)
        return Incoming(
            piece.cluster_id,
            FetchSnapshot(
                piece.replica_id,
                piece.current_leader_epoch,
                snapshot,
                piece.position,
                piece.max_bytes,
                piece.catching_up,
                piece.voted_for_leader,
            ),
        )
    fetch = pb.QuorumFetchRequest()
    _parse(fetch, data)
    wanted = Fetch(
        fetch.replica_id,
        fetch.current_leader_epoch,
        fetch.fetch_offset,
        fetch.last_fetched_epoch,
        fetch.high_watermark,
        fetch.max_wait_ms,
        fetch.max_bytes,
        fetch.catching_up,
        fetch.voted_for_leader,
    )
    return Incoming(fetch.cluster_id, wanted)


def encode_answer(answer: Answer) -> bytes:
    match answer:
        case VoteAnswer():
            return pb.VoteResponse(
                error_code=answer.error,
                leader_id=answer.leader_id,
                leader_epoch=answer.epoch,
                vote_granted=answer.granted,
                provisional=answer.provisional,
            ).SerializeToString()
        case EpochAnswer():
            return pb.QuorumEpochResponse(
                error_code=answer.error, leader_id=answer.leader_id, leader_epoch=answer.epoch
            ).SerializeToString()
        case FetchAnswer():
            message = pb.QuorumFetchResponse(
                error_code=answer.error,
                leader_id=answer.leader_id,
                leader_epoch=answer.epoch,
                high_watermark=answer.high_watermark,
                log_start_offset=answer.log_start_offset,
                batches=answer.batches,
                caught_up=answer.caught_up,
            )
            if answer.diverging is not None:
                message.diverging = True
                message.diverging_epoch, message.diverging_end_offset = answer.diverging
            if answer.snapshot is not None:
                message.snapshot.CopyFrom(_snapshot_message(answer.snapshot))
            return message.SerializeToString()
        case FetchSnapshotAnswer():
            return pb.FetchSnapshotResponse(
                error_code=answer.error,
                leader_id=answer.leader_id,
                leader_epoch=answer.epoch,
                snapshot=_snapshot_message(answer.snapshot),
                position=answer.position,
                size=answer.size,
                data=answer.data,
            ).SerializeToString()


def decode_answer(request: Request, data: bytes) -> Answer:
    """The answer to `request`; batches are whole and their CRCs right."""
    match request:
        case Vote():
            vote = pb.VoteResponse()
            _parse(vote, data)
            error = ErrorCode.from_number(vote.error_code)
            return VoteAnswer(error, vote.leader_id, vote.leader_epoch, vote.vote_granted, vote.provisional)
        case BeginEpoch() | EndEpoch():
            said = pb.QuorumEpochResponse()
            _parse(said, data)
            return EpochAnswer(ErrorCode.from_number(said.error_code), said.leader_id, said.leader_epoch)
        case Fetch():
            found = pb.QuorumFetchResponse()
            _parse(found, data)
            diverging = EpochEntry(found.diverging_epoch, found.diverging_end_offset) if found.diverging else None
            return FetchAnswer(
                ErrorCode.from_number(found.error_code),
                found.leader_id,
                found.leader_epoch,
                found.high_watermark,
                found.log_start_offset,
                diverging,
                found.batches,
                _checked_headers(found.batches),
                SnapshotId(found.snapshot.end_offset, found.snapshot.epoch) if found.HasField("snapshot") else None,
                found.caught_up,
            )
        case FetchSnapshot():
            piece = pb.FetchSnapshotResponse()
            _parse(piece, data)
            return FetchSnapshotAnswer(
                ErrorCode.from_number(piece.error_code),
                piece.leader_id,
                piece.leader_epoch,
                SnapshotId(piece.snapshot.end_offset, piece.snapshot.epoch),
                piece.position,
                piece.size,
                piece.data,
            )


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
    if method == VOTE:
        return encode_answer(VoteAnswer(error, leader_id, epoch))
    if method == FETCH:
        return encode_answer(FetchAnswer(error, leader_id, epoch))
    if method == FETCH_SNAPSHOT:
        return encode_answer(FetchSnapshotAnswer(error, leader_id, epoch, NO_SNAPSHOT, 0))
    return encode_answer(EpochAnswer(error, leader_id, epoch))
