"""Offsets that a partition's segments should hold and do not, and names of segments that are not those of their
offsets, for `odradek log verify` and `odradek log diff`.

A segment is named after its first offset, and the next one goes on where it ends. So the names tell of a loss even
where a segment is empty: only the active one may be, and only one that begins where the log ends. The rules are those
of the audit's `offset-gap`. Nothing is missed that Kafka's cleaner took out, or that lies below the log start offset,
as retention and DeleteRecords leave it. What cleaner, retention and DeleteRecords leave begins at or above a segment's
name, and a segment ends below the next one's name: so nothing excuses a batch below its segment's name, or a name below
the end of the segment before it. Lookups go by the names, and do not find such records.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from odradek_proto import formats
from odradek_proto.headers import BatchHeader
from odradek_proto.topics import INTERNAL_TOPICS, TopicPartition, parse_partition_directory

NEVER_MISSED: Final = 1 << 62


class MisplacedOffset(NamedTuple):
    """Offsets are missing from `offset` on, or a segment's name does not go with the one at which it begins."""

    offset: int
    sentence: str


@dataclass
class ExpectedOffset:
    """The next offset of a log that is read from its first segment on; -1 before that."""

    not_missed_below: int
    offset: int = -1
    empty: str = ""
    """The segment at hand, until a batch of it was seen."""

    def begin(self, file: Path, first: BatchHeader | None) -> MisplacedOffset | None:
        """A segment begins, with a first batch unless it has none that can be read; returns what is missing between the
        one before it and its name, or what is wrong with that name."""
        name = formats.parse_segment_file_name(file.name)
        found = self._named(name.base_offset, first) if name is not None else None
        self.empty = file.name
        return found

    def _named(self, base_offset: int, first: BatchHeader | None) -> MisplacedOffset | None:
        says = f"the segment's name says {base_offset}"
        if first is not None and first.base_offset < base_offset:
            return MisplacedOffset(first.base_offset, f"{says}, its first batch is at {first.base_offset}")
        if base_offset < self.offset:
            return MisplacedOffset(base_offset, f"{says}, the segment before it goes on to {self.offset - 1}")
        return self._reach(base_offset)

    def batch(self, header: BatchHeader) -> MisplacedOffset | None:
        """The next batch; returns what is missing before it."""
        self.empty = ""
        gap = self._reach(header.base_offset)
        self.offset = header.next_offset
        return gap

    def _reach(self, offset: int) -> MisplacedOffset | None:
        start, self.offset = self.offset, max(offset, self.offset)
        if not 0 <= start < offset or offset <= self.not_missed_below:
            return None
        why = f" ({self.empty} holds no batch)" if self.empty else ""
        sentence = f"offset {start} was expected: offsets {start} to {offset - 1} are missing{why}"
        return MisplacedOffset(start, sentence)


def not_missed_below(directory: Path) -> int:
    """The offset below which a partition may have gaps. Damaged checkpoints excuse nothing; one that may not be read
    leaves open what is missing, so `PermissionError` is raised."""
    place = Path(os.path.abspath(directory))  # beside a link, and not where it leads, lie the checkpoints
    partition = parse_partition_directory(place.name)
    if partition is None:
        return 0
    if partition.topic in INTERNAL_TOPICS:
        return NEVER_MISSED
    names = (formats.CLEANER_OFFSET_CHECKPOINT, formats.LOG_START_OFFSET_CHECKPOINT)
    return max(_checkpoint(place.parent / name, partition) for name in names)


def _checkpoint(file: Path, partition: TopicPartition) -> int:
    try:
        return formats.decode_offset_checkpoint(file.read_bytes()).get(partition, 0) if file.is_file() else 0
    except PermissionError:
        raise
    except (OSError, formats.CorruptFile):
        return 0
