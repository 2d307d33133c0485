"""What is committed of a consumer group: its records in `__consumer_offsets` below the high watermark (K-43, K-64).

The records are read from the simulated disks as they are committed, and held to what no coordinator may write: after no
batch two members of a group of KIP-848 own a partition. What a client is told has to be among them by then.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from operator import attrgetter

from odradek_broker.core.groups import consumer_records
from odradek_broker.core.groups.consumer_records import CurrentAssignment
from odradek_broker.core.groups.fields import FieldReader
from odradek_broker.core.groups.records import GroupRecord, OffsetRecord, decode, key_type, partition_for
from odradek_proto.records import CorruptBatch, Record, check_batch, decode_records

from odradek_chaos.worlds.simulated.checks.history import BatchSummary, LogView
from odradek_chaos.worlds.simulated.checks.state import ClusterState

OFFSETS = "__consumer_offsets"
_BASE_OFFSET = attrgetter("base_offset")
Owned = frozenset[tuple[bytes, int]]


class CommittedGroup:
    """Of one group."""

    def __init__(self, state: ClusterState, group_id: str, report: Callable[[str], None]) -> None:
        self._state = state
        self._group_id = group_id
        self._report = report
        self._read_to = 0
        self._offsets: dict[int, int] = {}  # by partition the largest; they only rise here
        self._generation_id = -1  # of the classic protocol, the newest
        self._owned: dict[str, Owned] = {}  # by member of KIP-848

    def offset(self, partition: int) -> int | None:
        """The largest that was ever committed, -1 for none; None when it cannot be said."""
        return self._offsets.get(partition, -1) if self._read() else None

    def generation(self) -> int | None:
        """The newest that was ever committed, as `offset`."""
        return self._generation_id if self._read() else None

    def _read(self) -> bool:
        """Read what was committed since. Whether all of it could be read: it cannot be from damaged copies."""
        topic = self._state.image.topics.get(OFFSETS)
        if topic is None:
            return False
        name = f"{OFFSETS}-{partition_for(self._group_id, len(topic.partitions))}"
        end = self._state.committed_end(name)
        if any(damaged == name for _, damaged in self._state.damaged):
            return False
        history = self._state.history(name)
        for view in history.views.values():
            if self._read_to < end:
                self._read_from(view, end, history.is_committed)
        return self._read_to >= end

    def _read_from(self, view: LogView, end: int, is_committed: Callable[[BatchSummary], bool]) -> None:
        with suppress(CorruptBatch):  # another copy may have it
            for batch, records in records_after(view, self._read_to, end):
                if not is_committed(batch):  # of a leader that died: another one stands at that offset
                    return
                self._take(records)
                self._read_to = batch.next_offset

    def _take(self, records: list[Record]) -> None:
        """The records of one batch."""
        assigned = False
        for record in records:
            if record.key is None or FieldReader(record.key[2:]).string() != self._group_id:
                continue
            if key_type(record.key) in consumer_records.KEY_TYPES:
                found = consumer_records.decode(record.key, record.value)
                if found.type == consumer_records.CURRENT:
                    assert found.value is None or isinstance(found.value, CurrentAssignment), found
                    self._owned[found.name], assigned = _owned_by(found.value), True
                continue
            match decode(record.key, record.value):
                case OffsetRecord(_, tp, value) if value is not None:
                    self._offsets[tp.partition] = max(value.offset, self._offsets.get(tp.partition, -1))
                case GroupRecord(_, value) if value is not None:
                    self._generation_id = max(value.generation_id, self._generation_id)
        if assigned:
            self._judge()

    def _judge(self) -> None:
        owners: dict[tuple[bytes, int], str] = {}
        for member, owned in self._owned.items():
            for topic_id, partition in sorted(owned):
                owner = owners.setdefault((topic_id, partition), member)
                if owner != member:
                    self._report(f"{owner} and {member} are both written to own partition {partition}")


def _owned_by(current: CurrentAssignment | None) -> Owned:
    """What a member has, and what it has to give up."""
    if current is None:
        return frozenset()
    both = (*current.assigned.items(), *current.to_revoke.items())
    return frozenset((topic_id, partition) for topic_id, partitions in both for partition in partitions)


def records_after(view: LogView, offset: int, end: int) -> Iterator[tuple[BatchSummary, list[Record]]]:
    """The batches between the two offsets, with their records. Raises `CorruptBatch` for damaged bytes."""
    batches = view.batches
    for number in range(bisect_left(batches, offset, key=_BASE_OFFSET), len(batches)):
        batch, before = batches[number], batches[number - 1] if number else None
        if batch.next_offset > end:
            return
        yield batch, _records(batch, before)


def _records(batch: BatchSummary, before: BatchSummary | None) -> list[Record]:
    """Raises `CorruptBatch` for damaged bytes."""
    assert batch.segment is not None, batch
    start = before.end_position if before is not None and before.segment is batch.segment else 0
    data = bytes(memoryview(batch.segment.data)[start : batch.end_position])
    header = check_batch(data)
    return [] if header.is_control else list(decode_records(data, header))
