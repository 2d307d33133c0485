"""Requests to brokers and their answers, as plain values. `taps.py` gathers them from the wire."""

from __future__ import annotations

from odradek_proto.values import Value


class AnsweredRequest(Value, frozen=True):
    """One answer that was due to a sender's epoch, or to its incarnation. -1 is an epoch that nobody named or knows.

    `known` is what the broker knew when it took the request, `known_then` when it answered: an epoch never falls, so
    what was old already when the request was taken has to be refused, and so has what is still ahead of the answer.
    """

    broker_id: int
    partition: str
    request: str  # the last part of the method's name
    asked: int  # leader epoch, or quorum epoch
    known: int
    known_then: int
    is_refused: bool
    sender_id: int = -1  # a broker
    sender_epoch: int = -1  # broker epoch of the incarnation that sent the request
    newest_epoch: int = -1  # and of the newest one that the broker knew when it took the request


class EndOffsetSent(Value, frozen=True):
    """An end offset that a leader told to a client. `epoch_start` is where its leadership began."""

    broker_id: int
    partition: str
    leader_epoch: int
    end: int
    epoch_start: int
    by_fetch: bool  # the high watermark in an answer to a fetch


class EndOffsetReceived(Value, frozen=True):
    """An end offset that arrived at a client. `floor` is the largest that had arrived there when it asked."""

    client: str
    partition: str
    leader_epoch: int
    end: int
    floor: int
    epoch_start: int
    by_fetch: bool


class PartitionAltered(Value, frozen=True):
    """A controller accepted a proposed ISR: the partition epoch that the proposal named, and the one of the answer."""

    broker_id: int
    partition: str
    asked: int
    altered: int


class VoteGranted(Value, frozen=True):
    """A voter says that a candidate has its vote. Pre-votes are none."""

    broker_id: int
    epoch: int
    candidate_id: int
