"""What parts of a log hold of producers and their transactions, condensed so that parts can be joined.

A part does not know what came before it: whether a producer's first sequence number follows on the last one, and where
a transaction began whose marker it holds. So of each producer it keeps how it begins and how it ends there.

Rules of this module: those of `proof`. What is joined without `Unproven` is what `checks.producers`, `checks.snapshots`
and `checks.transactions` find nothing wrong with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from odradek_proto.formats import AbortedTransaction

from odradek_audit.checks.producers import PRODUCER_EXPIRY_MS, SEQUENCES
from odradek_audit.checks.transactions import OpenTransaction

NOT_OPEN, NOT_INDEXED, NOT_COMPARED = -1, -1, -2


class Unproven(Exception):
    """Something that a proof cannot deal with."""


# --- Sequence numbers -------------------------------------------------------------------------------------------------


class ProducerSpan(NamedTuple):
    """What a part holds of one producer: how its first batch begins, and what is known of it behind its last one.

    The marker is the one with the largest epoch before the first batch: a new epoch ends the old one's sequence, which
    is -1 then. A span of markers alone has no batch, and -1 for all else.
    """

    marker_epoch: int = -1
    marker_leader_epoch: int = -1
    first_epoch: int = -1
    first_sequence: int = -1
    first_timestamp: int = -1
    epoch: int = -1
    sequence: int = -1
    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1

    @property
    def has_batch(self) -> bool:
        return self.first_sequence >= 0


def join_spans(before: ProducerSpan, behind: ProducerSpan) -> ProducerSpan:
    """Two stretches of one producer's batches as one. Raises `Unproven` when they do not follow."""
    if not before.has_batch:
        if before.marker_epoch >= 0 <= behind.marker_epoch != before.marker_epoch:
            raise Unproven("a producer's epoch that changes between markers")
        marker = before if before.marker_epoch >= 0 else behind
        return ProducerSpan(*marker[:2], *behind[2:])
    epoch, sequence = before.epoch, before.sequence
    if behind.marker_epoch > epoch:
        epoch, sequence = behind.marker_epoch, -1
        if not behind.has_batch:
            return ProducerSpan(*before[:5], epoch, -1, before.timestamp, -1, behind.marker_leader_epoch)
    elif 0 <= behind.marker_epoch < epoch:
        raise Unproven("a marker with an older epoch than its transaction")
    if not behind.has_batch:
        return before
    if behind.first_epoch < epoch:
        raise Unproven("a producer's epoch that falls")
    known = epoch == behind.first_epoch and behind.first_timestamp - before.timestamp < PRODUCER_EXPIRY_MS
    if known and sequence >= 0 and behind.first_sequence != (sequence + 1) % SEQUENCES:
        raise Unproven("a producer's sequence numbers that do not follow")
    return ProducerSpan(*before[:5], *behind[5:])


def joined_producers(before: Mapping[int, ProducerSpan], behind: Mapping[int, ProducerSpan]) -> dict[int, ProducerSpan]:
    """All producers of two parts."""
    joined = dict(before)
    for producer, span in behind.items():
        joined[producer] = join_spans(joined[producer], span) if producer in joined else span
    return joined


# --- Transactions -----------------------------------------------------------------------------------------------------


class TransactionEnd(NamedTuple):
    """A marker. `first` is where the transaction begins, `NOT_OPEN` when no record of it is known; `indexed` where it
    begins by the transaction index, `NOT_INDEXED` when it is not there, `NOT_COMPARED` when nobody asks."""

    aborted: bool
    first: int
    indexed: int

    def judge(self) -> None:
        """Raises `Unproven` when the index says something else than the log."""
        if self.indexed == NOT_COMPARED:
            return
        known = self.first != NOT_OPEN
        right = not (self.aborted and known) if self.indexed == NOT_INDEXED else self.aborted
        if not right or (self.indexed != NOT_INDEXED and known and self.first != self.indexed):
            raise Unproven("a transaction index that says something else than the log")


class TransactionSpan(NamedTuple):
    """What a part holds of one producer's transactions: its first marker, and what is open behind its last one."""

    ended: TransactionEnd | None
    open: OpenTransaction | None


class PartTransactions:
    """The transactions of one part, batch by batch. `entries` is the index of its segment, None when nobody asks."""

    def __init__(self, entries: Iterable[AbortedTransaction] | None) -> None:
        self._entries: dict[int, AbortedTransaction] | None = None
        self._open: dict[int, OpenTransaction] = {}
        self._ended: dict[int, TransactionEnd] = {}
        if entries is not None:
            listed = list(entries)
            self._entries = {entry.last_offset: entry for entry in listed}
            if len(self._entries) < len(listed):
                raise Unproven("a transaction index that names an offset twice")
            if any(entry.last_stable_offset > entry.last_offset + 1 for entry in listed):
                raise Unproven("a transaction index with a last stable offset behind the transaction's end")

    def records(self, producer: int, offset: int, timestamp: int) -> None:
        """A batch of a transaction."""
        if producer not in self._open:
            self._open[producer] = OpenTransaction(producer, offset, timestamp)

    def marker(self, producer: int, offset: int, aborted: bool) -> None:
        """The end of a transaction. Raises `Unproven`."""
        opened = self._open.pop(producer, None)
        ended = TransactionEnd(aborted, opened.offset if opened else NOT_OPEN, self._indexed(producer, offset))
        if producer in self._ended:
            ended.judge()
        else:
            self._ended[producer] = ended  # it may have begun before this part

    def _indexed(self, producer: int, offset: int) -> int:
        if self._entries is None:
            return NOT_COMPARED
        entry = self._entries.pop(offset, None)
        if entry is None:
            return NOT_INDEXED
        if entry.producer_id != producer:
            raise Unproven("a transaction index that names another producer")
        return entry.first_offset

    def finish(self, first_offset: int, next_offset: int) -> dict[int, TransactionSpan]:
        """The spans of a part that holds these offsets. Raises `Unproven` for an entry there without a marker."""
        if any(first_offset <= offset < next_offset for offset in self._entries or ()):
            raise Unproven("a transaction index that names what is no marker")
        producers = [*self._ended, *(producer for producer in self._open if producer not in self._ended)]
        return {
            producer: TransactionSpan(self._ended.get(producer), self._open.get(producer)) for producer in producers
        }


def join_transactions(open_before: dict[int, OpenTransaction], spans: Mapping[int, TransactionSpan]) -> None:
    """Let what is open at the end of a log learn of its next part. Raises `Unproven`."""
    for producer, span in spans.items():
        before = open_before.pop(producer, None)
        if span.ended is not None:
            (span.ended._replace(first=before.offset) if before else span.ended).judge()
            before = None
        now = before or span.open
        if now is not None:
            open_before[producer] = now
