"""The log against what clients were told: `acknowledged-lost`, `delivered-lost`, `duplicated`, `phantom`,
`failed-present`, `reordered`, `aborted-delivered`.

What counts is the reference replica's log (newest epoch, then longest): the next leader's, if one were elected now from
these copies (S-2, S-3). Not violations: lost records of acks=0 and acks=1; records below the log start; a record in
the log whose send ended in an unknown error; a value twice in the log when its producer had no producer id or sent
it twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from odradek_proto.compression import CodecUnavailable
from odradek_proto.records import CorruptBatch

from odradek_audit.catalogue import (
    ABORTED_DELIVERED,
    ACKNOWLEDGED_LOST,
    DELIVERED_LOST,
    DUPLICATED,
    FAILED_PRESENT,
    PHANTOM,
    REORDERED,
)
from odradek_audit.checks.decoding import report_undecodable
from odradek_audit.checks.losses import losses_of
from odradek_audit.checks.transactions import aborted_rows
from odradek_audit.checks.unread import NOT_COMPARED
from odradek_audit.findings import Check, FindingSink
from odradek_audit.inputs.facts import NO_PRODUCER, BatchTable, PartitionInputs, SegmentReader, log_end_offset
from odradek_audit.inputs.history import PartitionHistory, value_digest
from odradek_audit.inputs.records import iter_decoded, record_at
from odradek_audit.results import Loss
from odradek_audit.words import plural, replicas_have

HOLDERS_LOOKED_UP = 20
"""Lost records for which the other replicas are asked whether they have it; the rest is reported without."""
NO_VALUE = value_digest(None)


class _Place(NamedTuple):
    offset: int
    row: int


class _Log:
    """What the checks need of the reference replica's records: values by offset, offsets by value, for values the
    history knows."""

    def __init__(self) -> None:
        self.by_offset: dict[int, bytes] = {}
        self.first_place: dict[bytes, _Place] = {}
        self.places: dict[bytes, int] = {}
        self.newest: dict[bytes, int] = {}
        """The last offset of each key, where the history has keys."""
        self.records = 0
        self.undecodable: set[int] = set()
        self.never_sent: set[int] = set()
        """Acknowledged offsets that hold a value which the history never sent: told with the loss."""

    @property
    def by_value(self) -> bool:
        """Whether the log was searched by value, which needs the history's sends."""
        return bool(self.places)


class _NeverSent:
    """Records that the history never sent: those that follow on each other are one finding, for another writer's may
    be thousands."""

    def __init__(self, table: BatchTable, replica: str, sink: FindingSink) -> None:
        self._table = table
        self._replica = replica
        self._sink = sink
        self._run: list[tuple[_Place, bytes | None]] = []
        """The first and the last of a run."""

    def add(self, place: _Place, value: bytes | None) -> None:
        if self._run and place.offset != self._run[-1][0].offset + 1:
            self.report()
        self._run[1:] = [(place, value)]

    def report(self) -> None:
        """The run is over."""
        if not self._run:
            return
        (first, value), (last, last_value) = self._run[0], self._run[-1]
        self._run, table, epoch = [], self._table, self._table.epoch[first.row]
        records = last.offset - first.offset + 1
        what = (
            f"the value {_text(value)} at offset {first.offset} of epoch {epoch}, which"
            if records == 1
            else f"{records:,} values at offsets {first.offset} to {last.offset}, from {_text(value)} in epoch "
            f"{epoch} to {_text(last_value)} in epoch {table.epoch[last.row]}, which"
        )
        self._sink.report(
            PHANTOM,
            self._replica,
            f"replica {self._replica} holds {what} the history never sent",
            offset=first.offset,
            end_offset=last.offset + 1,
            epoch=epoch,
            file=table.file(first.row),
            position=table.position[first.row],
            records=records,
        )


class _Cleaned:
    """What the cleaner may have taken out of the reference replica's log: below where it has been, all of a key but its
    newest record, and in time tombstones, too (K-87)."""

    def __init__(
        self, partition: PartitionInputs, reference_replica: str, log: _Log, history: PartitionHistory
    ) -> None:
        self.end = partition.cleaned_to(partition.replicas[reference_replica])
        self.replica = reference_replica
        self.log = log
        self.history = history
        self.unjudged = self.lacks = 0
        self.deleted: dict[bytes, int] = {}  # the last tombstone of each key that a client was told of
        told = (*history.acknowledged, *history.delivered) if self.end else ()
        for offset, digest, *_ in told:
            if digest == NO_VALUE and offset in history.keys:
                key = history.keys[offset]
                self.deleted[key] = max(offset, self.deleted.get(key, -1))

    def may_lack(self, offset: int, digest: bytes) -> bool:
        """Whether nothing is wrong although the log does not have this record. Another one in its place is wrong."""
        if offset >= self.end or offset in self.log.by_offset or not self._removes(offset, digest):
            return False
        self.lacks += 1
        return True

    def _removes(self, offset: int, digest: bytes) -> bool:
        if digest == NO_VALUE:
            return True
        key = self.history.keys.get(offset)
        if key is None:
            self.unjudged += 1
            return True
        return max(self.log.newest.get(key, -1), self.deleted.get(key, -1)) > offset

    def note_unjudged(self, sink: FindingSink) -> None:
        if self.unjudged:
            sink.note(
                "compacted-without-keys",
                self.replica,
                f"{plural(self.unjudged, 'acknowledged record')} below where the cleaner of replica {self.replica} has "
                f"been {'is' if self.unjudged == 1 else 'are'} not in its log; the history has no keys, so nobody "
                "knows whether a newer one took the place",
            )


def check_history(
    partition: PartitionInputs,
    tables: Mapping[str, BatchTable],
    reference_replica: str,
    history: PartitionHistory,
    sent: Mapping[bytes, int],
    reader: SegmentReader,
    sink: FindingSink,
    *,
    given: PartitionInputs,
) -> tuple[dict[str, int], list[Loss]]:
    """All checks of one partition against its history; returns what was checked, in numbers, and what is gone.

    `given` is the partition with all of its checkpoints, also those that cannot be true.
    """
    checks = _Checks(partition, tables, reference_replica, history, reader, sink)
    checks.read_log(sent)
    numbers, lost = checks.acknowledged()
    checks.delivered()
    checks.committed()
    checks.note_missed()
    checks.order(lost)
    log = checks.log
    gone = losses_of(given, tables, history, log.by_offset, reader, by_value=log.by_value)
    if gone.unknown:
        _note_unknown(gone.unknown, reference_replica, sink)
    by_leader = len(history.acknowledged_by_leader) + len(history.acknowledged_by_leader_anywhere)
    return numbers | {
        "records": log.records,
        "acknowledged_by_leader": by_leader,
        "delivered": len(history.delivered),
        "sent": sum(history.sent.values()),
        "perhaps_gone": len(gone.unknown),
    }, gone.losses


def _note_unknown(offsets: Sequence[int], reference_replica: str, sink: FindingSink) -> None:
    """Acknowledged records that only bytes which cannot be read may still hold."""
    first, last = offsets[0], offsets[-1]
    where = "" if first < 0 else f" (offset {first})" if first == last else f" (offsets {first} to {last})"
    sink.note(
        "losses-unknown",
        reference_replica,
        f"whether any replica still has {plural(len(offsets), 'acknowledged record')}{where} cannot be told: bytes "
        "that may hold them cannot be read",
        offset=first,
        end_offset=last + 1 if first >= 0 else -1,
    )


class _Checks:
    """The reference replica's log, beside what clients were told of one partition."""

    def __init__(
        self,
        partition: PartitionInputs,
        tables: Mapping[str, BatchTable],
        reference_replica: str,
        history: PartitionHistory,
        reader: SegmentReader,
        sink: FindingSink,
    ) -> None:
        self.partition = partition
        self.tables = tables
        self.replica = reference_replica
        self.table = tables[reference_replica]
        self.inputs = partition.replicas[reference_replica]
        self.history = history
        self.reader = reader
        self.sink = sink
        self.missed = FindingSink(partition.topic, partition.partition) if partition.unread else sink
        """Where it goes what the log lacks: while a replica is not read, nowhere."""
        self.log = _Log()

    def read_log(self, sent: Mapping[bytes, int]) -> None:
        """Go through the records once; phantoms, duplicates and visible failures are found on the way."""
        log, history, strangers = self.log, self.history, _NeverSent(self.table, self.replica, self.sink)
        told = (history.acknowledged, history.acknowledged_by_leader, history.delivered)
        wanted = {offset for events in told for offset, *_ in events}
        owed = {offset for offset, *_ in history.acknowledged}
        for batch in iter_decoded(self.table, self.replica, self.reader):
            if batch.problem:
                log.undecodable.add(batch.row)
                report_undecodable(self.table, self.replica, batch, self.sink)
                continue
            for record in batch.records:
                if record.offset < self.inputs.log_start:
                    continue
                log.records += 1
                digest = value_digest(record.value)
                if history.keys and record.key is not None:
                    log.newest[value_digest(record.key)] = record.offset
                if record.offset in wanted:
                    log.by_offset[record.offset] = digest
                if not sent:
                    continue
                place = _Place(record.offset, batch.row)
                if digest not in sent and record.value is None and not history.keys:
                    continue  # a history without keys may come from somebody who cannot write down tombstones
                if digest not in sent and record.offset in owed:
                    log.never_sent.add(record.offset)
                    continue
                if digest not in sent:
                    strangers.add(place, record.value)
                    continue
                self._see_again(digest, place, record.value, sent[digest])
                if digest in history.failed and sent[digest] == 1:
                    self._report_failed(place, record.value, history.failed[digest])
        strangers.report()

    def _see_again(self, digest: bytes, place: _Place, value: bytes | None, sent: int) -> None:
        table, log = self.table, self.log
        count = log.places.get(digest, 0) + 1
        log.places[digest] = count
        first = log.first_place.setdefault(digest, place)
        if count <= sent:
            return
        if NO_PRODUCER in (table.producer_id[place.row], table.producer_id[first.row]):
            self.sink.note(
                "repeated-without-idempotence",
                self.replica,
                f"the value {_text(value)} is at offsets {first.offset} and {place.offset}; its producer had no "
                "producer id",
                offset=place.offset,
            )
            return
        self.sink.report(
            DUPLICATED,
            self.replica,
            f"replica {self.replica} holds the value {_text(value)} at offset {place.offset} of epoch "
            f"{table.epoch[place.row]} and at offset {first.offset} of epoch {table.epoch[first.row]}; it was sent "
            f"{'once' if sent == 1 else f'{sent} times'}",
            **(table.place(place.row) | {"offset": place.offset, "end_offset": place.offset + 1}),
            first_offset=first.offset,
            producer_id=table.producer_id[place.row],
            first_producer_id=table.producer_id[first.row],
        )

    def _report_failed(self, place: _Place, value: bytes | None, line: int) -> None:
        epoch = self.table.epoch[place.row]
        self.sink.report(
            FAILED_PRESENT,
            self.replica,
            f"replica {self.replica} holds the value {_text(value)} at offset {place.offset} of epoch {epoch}, and its "
            f"producer was told that it is not written (history, line {line})",
            offset=place.offset,
            end_offset=place.offset + 1,
            epoch=epoch,
        )

    def acknowledged(self) -> tuple[dict[str, int], list[int]]:
        """How many records were told, looked for, missing and cleaned away, and the offsets of those that are lost,
        rising."""
        log, history = self.log, self.history
        cleaned = _Cleaned(self.partition, self.replica, log, history)
        checked = missing = 0
        lost: list[int] = []
        for offset, digest, client, line in history.acknowledged:
            if offset < self.inputs.log_start or self._in_undecodable(offset):
                continue
            checked += 1
            if log.by_offset.get(offset) == digest or cleaned.may_lack(offset, digest):
                continue
            lost.append(offset)
            found = log.first_place.get(digest)
            self._report_lost(
                ACKNOWLEDGED_LOST,
                (offset, digest, client, line),
                f"offset {offset} was acknowledged to {client or 'a client'} with acks=all as "
                f"{history.labels.get(digest, '?')!r} (history, line {line})",
                f"; the value stands at offset {found.offset}" if found is not None else "",
                ask=len(lost) <= HOLDERS_LOOKED_UP,
                phantom=offset in log.never_sent,
            )
        cleaned.note_unjudged(self.sink)
        if self.inputs.log_start == 0 and not cleaned.end and log.by_value:
            for digest, client, line in history.acknowledged_anywhere:
                checked += 1
                if digest not in log.places:
                    missing += 1
                    self.missed.report(
                        ACKNOWLEDGED_LOST,
                        self.replica,
                        f"{history.labels.get(digest, '?')!r} was acknowledged to {client or 'a client'} with acks=all "
                        f"(history, line {line}), and replica {self.replica} holds it nowhere",
                        client=client,
                        line=line,
                    )
        numbers = {
            "told": len(history.acknowledged) + len(history.acknowledged_anywhere),
            "acknowledged": checked,
            "missing": missing + len(lost),
            "cleaned_away": cleaned.lacks,
        }
        return numbers, sorted(lost)

    def delivered(self) -> None:
        """What consumers were given is there."""
        cleaned = _Cleaned(self.partition, self.replica, self.log, self.history)
        reported: set[tuple[int, bytes]] = set()
        for offset, digest, client, line in self.history.delivered:
            there = self.log.by_offset.get(offset) == digest
            if offset < self.inputs.log_start or there or (offset, digest) in reported:
                continue
            if self._in_undecodable(offset) or cleaned.may_lack(offset, digest):
                continue
            reported.add((offset, digest))
            label = self.history.labels.get(digest, "?")
            self._report_lost(
                DELIVERED_LOST,
                (offset, digest, client, line),
                f"{client or 'a consumer'} was given {label!r} at offset {offset} (history, line {line})",
                ask=len(reported) <= HOLDERS_LOOKED_UP,
            )

    def _report_lost(
        self, check: Check, event: tuple[int, bytes, str, int], said: str, moved: str = "", *, ask: bool, **more: Any
    ) -> None:
        """A client was told of a record that the log does not have."""
        offset, digest, client, line = event
        holders = self._holders(offset, digest) if ask else []
        where = f"; {replicas_have(holders, 'still ')} it" if holders else ""
        self.missed.report(
            check,
            self.replica,
            f"{said}, and {self._what_stands_at(offset)}{moved}{where}",
            other_replica=holders[0] if holders else "",
            offset=offset,
            end_offset=offset + 1,
            epoch=self._epoch_at(offset),
            client=client,
            line=line,
            held_by=holders,
            **more,
        )

    def _in_undecodable(self, offset: int) -> bool:
        table = self.table
        return any(table.base_offset[row] <= offset <= table.last_offset[row] for row in self.log.undecodable)

    def _what_stands_at(self, offset: int) -> str:
        if offset in self.log.never_sent:
            return f"replica {self.replica} holds another value there, which the history never sent"
        if offset in self.log.by_offset:
            return f"replica {self.replica} holds another value there"
        log_end = log_end_offset(self.inputs, self.table)
        if offset >= log_end:
            return f"the log of replica {self.replica} ends at {log_end}"
        return f"replica {self.replica} holds no record there"

    def _holders(self, offset: int, digest: bytes) -> list[str]:
        """The other replicas that have a record."""
        holders = []
        for name in sorted(self.partition.replicas):
            record = record_at(self.tables[name], offset, name, self.reader) if name != self.replica else None
            if record is not None and value_digest(record.value) == digest:
                holders.append(name)
        return holders

    def _epoch_at(self, offset: int) -> int:
        """The epoch of the batch that holds an offset; behind the log's end, the last one."""
        row = min(bisect_left(self.table.last_offset, offset), len(self.table) - 1)
        return self.table.epoch[row] if row >= 0 else -1

    def committed(self) -> None:
        """Whoever reads committed records alone is given none of a transaction that was aborted (KIP-98)."""
        table, history = self.table, self.history
        if not history.delivered_committed:
            return
        try:
            aborted = set(aborted_rows(self.inputs, table, self.reader))
        except (CorruptBatch, CodecUnavailable) as error:
            self.sink.note(NOT_COMPARED, self.replica, f"which transactions were aborted was not read: {error}")
            return
        reported: set[tuple[int, str]] = set()
        for offset, digest, client, line in history.delivered_committed:
            row = bisect_left(table.last_offset, offset)
            if row not in aborted or self.log.by_offset.get(offset) != digest or (offset, client) in reported:
                continue
            reported.add((offset, client))
            self.sink.report(
                ABORTED_DELIVERED,
                self.replica,
                f"{client or 'a consumer'}, which reads committed records alone, was given "
                f"{history.labels.get(digest, '?')!r} at offset {offset} (history, line {line}), of a transaction of "
                f"producer {table.producer_id[row]} that was aborted",
                **(table.place(row) | {"offset": offset, "end_offset": offset + 1}),
                client=client,
                line=line,
            )

    def note_missed(self) -> None:
        """What the log that counts lacks is not lost while another one, which may be the one that counts, is not
        read."""
        count = len(self.missed.findings) + sum(self.missed.suppressed.values())
        if self.missed is not self.sink and count:
            self.sink.note(
                NOT_COMPARED,
                self.replica,
                f"{plural(count, 'record')} that clients were told of {'is' if count == 1 else 'are'} not at "
                f"{'its place' if count == 1 else 'their places'} in the log of replica {self.replica}; what could "
                f"not be read may have {'it' if count == 1 else 'them'} (replica {', '.join(self.partition.unread)})",
            )

    def order(self, lost: Sequence[int]) -> None:
        """S-5: what a client sent after an acknowledgement has a larger offset than what was acknowledged.

        In the place of lost records later ones get smaller offsets: that is told with the loss.
        """
        given_again = range(lost[0], lost[-1]) if lost else range(0)
        consequences = 0
        by_client: dict[str, dict[tuple[int, bytes], tuple[int, int, int]]] = {}
        for client, offset, value, sent_line, ack_line in self.history.order:  # of what was told twice the first counts
            by_client.setdefault(client, {}).setdefault((offset, value), (sent_line, ack_line, offset))
        for client in sorted(by_client):
            sends = sorted(by_client[client].values())
            acks = sorted((ack_line, offset) for _, ack_line, offset in sends)
            done, highest = 0, -1
            for sent_line, ack_line, offset in sends:
                while done < len(acks) and acks[done][0] < sent_line:
                    highest = max(highest, acks[done][1])
                    done += 1
                if offset < highest and offset in given_again:
                    consequences += 1
                elif offset < highest:
                    self.sink.report(
                        REORDERED,
                        self.replica,
                        f"{client or 'a client'} sent a record (history, line {sent_line}) after offset {highest} had "
                        f"been acknowledged to it, and it got the smaller offset {offset}",
                        offset=offset,
                        end_offset=offset + 1,
                        epoch=-1,
                        client=client,
                        line=ack_line,
                    )
        loss = next((each for each in self.missed.findings if each.check == ACKNOWLEDGED_LOST.name), None)
        if loss is not None and consequences:
            loss.evidence["reordered"] = consequences


def _text(value: bytes | None) -> str:
    return "null" if value is None else repr(value[:40].decode("utf-8", "replace"))
