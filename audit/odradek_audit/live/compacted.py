"""The replicas of one partition of a compacted topic, by what their cleaners must leave: each cleans on its own, so
batches cannot be laid beside each other (K-89).

Replicas are read side by side. Where two have a record at one offset it is the same one, and each key has the same
newest record below the smallest high watermark; `checks.compaction` says what is no violation. A cluster that runs goes
on meanwhile: a key that was written again behind that mark may be cleaned away below it, and then what was written, if
that was a tombstone. So all logs are read on before a key is missed, and what differs must do so a second time. Memory
hangs on the number of keys.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from odradek_proto.compression import CodecUnavailable
from odradek_proto.errors import ErrorCode
from odradek_proto.records import CorruptBatch, Record, decode_records, read_header

from odradek_audit.catalogue import BATCH_UNREADABLE, COMPACTION_MISMATCH
from odradek_audit.checks.compaction import (
    Difference,
    NewestRecords,
    by_kind,
    content_of,
    differing,
    other_newest,
    other_record,
)
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.records import CONTROL_BIT
from odradek_audit.live.partition import (
    LiveBatch,
    PartitionComparison,
    ReplicaStream,
    ReplicaUnreadable,
    begun,
    tell_problem,
)


@dataclass
class _Copy:
    """One replica on its way through its log."""

    stream: ReplicaStream
    newest: NewestRecords = field(default_factory=NewestRecords)
    is_whole: bool = True
    """Whether every batch could be read: else nobody knows which keys it lacks."""

    batches: int = 0

    def read_on(self, end: int, sink: FindingSink) -> None:
        """What was written behind an offset meanwhile, up to the high watermark of this moment."""
        self.stream = ReplicaStream(self.stream.replica, self.stream.source)
        self.stream.begin(end)
        for _ in self.records(self.stream.high_watermark, sink):
            pass

    def records(self, end: int, sink: FindingSink) -> Iterator[tuple[int, str, bytes]]:
        """Offset, replica and content of each record below an offset."""
        while (batch := self.stream.peek(end)) is not None:
            self.stream.take()
            if batch.problem:
                self.is_whole = False
                tell_problem(self.stream, batch, sink)
                continue
            self.batches += 1
            attributes, records = self._decoded(batch, sink)
            if not attributes & CONTROL_BIT:
                yield from (
                    (record.offset, self.stream.replica, content) for record, content in records if record.offset < end
                )

    def _decoded(self, batch: LiveBatch, sink: FindingSink) -> tuple[int, list[tuple[Record, bytes]]]:
        header = read_header(batch.data)
        try:
            records = [(record, content_of(record)) for record in decode_records(batch.data, header)]
            self.newest.add(header.attributes, header.producer_id, records)
        except CodecUnavailable as error:
            raise OSError(f"replica {self.stream.replica}, offset {batch.base_offset}: {error}") from error
        except CorruptBatch as error:
            self.is_whole, records = False, []
            sink.report(
                BATCH_UNREADABLE,
                self.stream.replica,
                f"replica {self.stream.replica}: the batch at offset {batch.base_offset} has a right CRC, but its "
                f"records cannot be decoded: {error.reason}",
                offset=batch.base_offset,
                end_offset=batch.last_offset + 1,
                epoch=batch.epoch,
            )
        return header.attributes, records


def compare_compacted(
    leader: ReplicaStream, others: Sequence[ReplicaStream], since: int, sink: FindingSink
) -> PartitionComparison:
    """Lay the records of each replica beside the leader's. Raises `OSError`."""
    compared, found = _laid_beside(leader, others, since, sink)
    if found:
        anew = [ReplicaStream(stream.replica, stream.source) for stream in (leader, *others)]
        again = set(_laid_beside(anew[0], anew[1:], since, FindingSink(sink.topic, sink.partition))[1])
        found = [each for each in found if each in again]
    for (name, what), offsets in by_kind(found).items():
        sink.report(
            COMPACTION_MISMATCH,
            name,
            differing(name, what, offsets),
            offset=offsets[0],
            end_offset=offsets[-1] + 1,
            records=len(offsets),
        )
    return compared


def _laid_beside(
    leader: ReplicaStream, others: Sequence[ReplicaStream], since: int, sink: FindingSink
) -> tuple[PartitionComparison, list[Difference]]:
    compared = begun(leader, others, since, sink)
    copies = {stream.replica: _Copy(stream) for stream in (leader, *others)}
    end = min(compared.high_watermarks.values())
    found: list[Difference] = []
    rows = heapq.merge(*(copy.records(end, sink) for copy in copies.values()), key=itemgetter(0))
    for offset, group in groupby(rows, itemgetter(0)):
        held = {name: content for _, name, content in group}
        leaders = held.get(leader.replica)
        compared.records += sum(content == leaders for name, content in held.items() if name != leader.replica)
        found += other_record(offset, held, leader.replica)
    compared.batches = sum(copies[stream.replica].batches for stream in others)
    return compared, [*found, *_other_newest(copies, copies[leader.replica], end, sink)]


def _other_newest(copies: Mapping[str, _Copy], leader: _Copy, end: int, sink: FindingSink) -> list[Difference]:
    """Keys that some replica lacks or holds another newest record of."""
    if broken := sorted(name for name, copy in copies.items() if not copy.is_whole):
        sink.note(
            "not-compared", broken[0], f"newest records of keys: replica {', '.join(broken)} cannot be read whole"
        )
    newest = {name: copy.newest.by_key for name, copy in copies.items() if copy.is_whole}
    if not any(other_newest(newest, 0, end)) or not leader.is_whole:
        return []
    for copy in copies.values():
        if copy.is_whole:
            copy.read_on(end, sink)
    for key in set().union(*(copy.newest.undecided() for copy in copies.values())):
        for each in newest.values():
            each.pop(key, None)  # the marker behind the end may already have let a cleaner take what was before
    starts = []
    for name, copy in copies.items():
        error, start = copy.stream.source.earliest()
        if error:
            said = f"does not say where its log begins: {ErrorCode.from_number(error).name}"
            raise ReplicaUnreadable(name, said)
        starts.append(start)
    return list(other_newest(newest, max(starts), end))
