"""Checks of one replica's segments, and the comparison of two, for `odradek log verify` and `odradek log diff`.

These are quick looks at one or two directories. The audit knows more rules, and what clients were told.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from odradek_proto import formats
from odradek_proto.formats import CorruptFile
from odradek_proto.headers import BatchHeader, CorruptBatch
from odradek_proto.records import CodecUnavailable, decode_records
from odradek_proto.topics import DELETED_PARTITION_SUFFIX, parse_partition_directory
from odradek_proto.words import plural

from odradek_broker.commands.log_gaps import ExpectedOffset, MisplacedOffset, not_missed_below
from odradek_broker.commands.log_listing import below, entries, segments
from odradek_broker.commands.log_rows import batches, open_regular, parse_name

OF_PARTITIONS = (formats.LEADER_EPOCH_CHECKPOINT, formats.PARTITION_METADATA)
OF_LOG_DIRECTORIES = (
    formats.META_PROPERTIES,
    formats.RECOVERY_POINT_CHECKPOINT,
    formats.REPLICATION_OFFSET_CHECKPOINT,
    formats.LOG_START_OFFSET_CHECKPOINT,
)


class LogProblem(NamedTuple):
    """What is wrong, where."""

    file: str
    position: int
    offset: int
    sentence: str


class LocatedBatch(NamedTuple):
    """A batch and where it stands; the header is None for bytes that are no batch, for a gap, and for a segment's
    name that does not go with its offsets.

    `offset` is that of the batch, or where the gap begins; -1 when it is not known.
    """

    file: Path
    position: int
    header: BatchHeader | None
    batch: bytes
    problem: str
    offset: int = -1


@dataclass
class NotDecoded:
    """Batches of which the records were not read, because the package of their codec is not installed."""

    batches: int = 0
    first: LogProblem | None = None

    def add(self, batches: int, first: LogProblem | None) -> None:
        self.batches += batches
        self.first = self.first or first

    @property
    def sentence(self) -> str:
        """Where the first one is, and the remedy; empty when every batch was decoded."""
        if self.first is None:
            return ""
        return f"{self.summary}; the first: {self.first.file}: {self.first.sentence}"

    @property
    def summary(self) -> str:
        return f"{plural(self.batches, 'batch was', 'batches were')} not decoded"

    def as_json(self) -> dict[str, Any]:
        return {"batches": self.batches, "first": self.first and self.first._asdict()}


@dataclass
class CheckResult:
    """What was looked at, and what was found."""

    batches: int = 0
    records: int = 0
    problems: list[LogProblem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    not_decoded: NotDecoded = field(default_factory=NotDecoded)


def without_segments(path: Path) -> list[Path]:
    """The directories of partitions at and below `path` that have no segment, sorted. A sound one has at least one.

    Such a directory has other files of a partition, or it has a partition's name and lies in a broker's log directory.
    Raises `OSError` for a directory that cannot be read: whether it has a segment is not known then.
    """
    directories = [path, *(each for each in below(path) if each.is_dir() and not _leads_elsewhere(each))]
    return [each for each in directories if _lacks_segments(each) and _is_partitions(each)]


def _leads_elsewhere(path: Path) -> bool:
    """Whether it is a symbolic link that is no partition's: what is behind it belongs to somebody else."""
    return path.is_symlink() and parse_partition_directory(path.name) is None


def no_segment(directory: Path) -> LogProblem:
    sentence = (
        "no segment (.log) is there, so this replica's records are gone; if another replica has them, stop the broker,"
        f" remove this directory and {formats.CLEAN_SHUTDOWN} beside it, and they are fetched anew"
    )
    return LogProblem(str(directory), 0, -1, sentence)


def _lacks_segments(directory: Path) -> bool:
    return all(each.is_dir() for each in segments(directory))


def _is_partitions(directory: Path) -> bool:
    name = directory.resolve().name
    if name.endswith(DELETED_PARTITION_SUFFIX):
        return False
    if any(file.name in OF_PARTITIONS or parse_name(file.name) for file in entries(directory)):
        return True
    among = directory.resolve().parent
    return parse_partition_directory(name) is not None and any((among / each).exists() for each in OF_LOG_DIRECTORIES)


def all_batches(directory: Path) -> Iterator[LocatedBatch]:
    """The batches of a partition's directory, segment by segment, and between them the gaps and wrong names."""
    yield from _batches_of(segments(directory) if not _lacks_segments(directory) else (), directory)


def _batches_of(files: Iterable[Path], directory: Path) -> Iterator[LocatedBatch]:
    expected = ExpectedOffset(not_missed_below(directory))
    for file in files:
        try:
            with open_regular(file) as opened:
                found = batches(opened)
                first = [*islice(found, 1)]
                if (misplaced := expected.begin(file, first[0][1] if first else None)) is not None:
                    yield _misplaced(file, 0, misplaced)
                for position, header, batch, problem in chain(first, found):
                    if header is not None and (misplaced := expected.batch(header)) is not None:
                        yield _misplaced(file, position, misplaced)
                    yield LocatedBatch(
                        file, position, header, batch, problem, -1 if header is None else header.base_offset
                    )
        except CorruptFile as error:
            yield LocatedBatch(file, 0, None, b"", str(error))


def _misplaced(file: Path, position: int, found: MisplacedOffset) -> LocatedBatch:
    return LocatedBatch(file, position, None, b"", found.sentence, found.offset)


def verify_directory(directory: Path) -> CheckResult:
    """Segments and their names, CRC, form, rising offsets without gaps, leader epochs that do not fall, readable
    records."""
    result = CheckResult()
    if _lacks_segments(directory):
        result.problems.append(no_segment(directory))
    return _verified(all_batches(directory), result)


def verify_segment(file: Path) -> CheckResult:
    """The same of one segment by itself, from the offset in its name on: what is beside it is not read."""
    return _verified(_batches_of([file], file.parent), CheckResult())


def _verified(found: Iterable[LocatedBatch], result: CheckResult) -> CheckResult:
    expected, epoch = -1, -1
    for each in found:
        header = each.header
        offset = each.offset if each.offset >= 0 else expected

        def located(sentence: str, each: LocatedBatch = each, offset: int = offset) -> LogProblem:
            where = f"byte {each.position}" + (f", offset {offset}" if offset >= 0 else "")
            return LogProblem(str(each.file), each.position, offset, f"{where}: {sentence}")

        told = any(problem[:2] == (str(each.file), each.position) for problem in result.problems[-1:])  # of its name
        if each.problem:
            result.problems.append(located(each.problem))
        if header is None:
            continue
        result.batches += 1
        result.records += header.record_count
        if header.base_offset < expected and not told:
            result.problems.append(located(f"offset {expected} was expected"))
        if header.leader_epoch < epoch:
            result.problems.append(located(f"leader epoch {header.leader_epoch} after {epoch}"))
        if not each.problem:
            try:
                decode_records(each.batch, header)
            except CorruptBatch as error:
                result.problems.append(located(error.reason))
            except CodecUnavailable as error:
                result.not_decoded.add(1, located(str(error)))
        expected, epoch = header.next_offset, max(epoch, header.leader_epoch)
    return result


def _of_two_partitions(left: Path, right: Path) -> Iterator[str]:
    """That what will be compared are no two replicas: by the names of the directories, and the ids of the topics."""
    one, other = (parse_partition_directory(os.path.basename(os.path.realpath(each))) for each in (left, right))
    if one is not None and other is not None and one != other:
        yield f"{left} is of {one} and {right} of {other}: these are no replicas of one partition"
    elif (ids := {_topic_id(left), _topic_id(right)} - {None}) and len(ids) == 2:
        yield f"{left} and {right} are of two topics of one name: the ids in {formats.PARTITION_METADATA} differ"


def _topic_id(directory: Path) -> bytes | None:
    """None where nothing says it."""
    try:
        return formats.decode_partition_metadata((directory / formats.PARTITION_METADATA).read_bytes())
    except (OSError, CorruptFile):
        return None


def diff_directories(left: Path, right: Path) -> CheckResult:
    """Walk two replicas from the later of their starts to the earlier of their ends, up to the first difference.

    Bytes that cannot be read, offsets that are missing, and a batch that both have with the same wrong bytes, are
    problems and end the walk.
    """
    result = CheckResult()
    result.problems.extend(no_segment(each) for each in (left, right) if _lacks_segments(each))
    if result.problems:
        return result
    result.notes.extend(_of_two_partitions(left, right))
    a, b = (all_batches(directory) for directory in (left, right))
    x, y = next(a, None), next(b, None)
    while x is not None and y is not None:
        mine, theirs = x.header, y.header
        if mine is None or theirs is None:
            result.problems.append(_cannot_be_compared(x if mine is None else y))
            return result
        if mine.base_offset < theirs.base_offset and not result.batches:
            x = next(a, None)  # the other log starts later
            continue
        if theirs.base_offset < mine.base_offset and not result.batches:
            y = next(b, None)
            continue
        result.batches += 1
        if (difference := _difference(mine, theirs, x, y)) is not None:
            offset = min(mine.base_offset, theirs.base_offset)
            sentence = f"offset {offset}: {difference} (the other: {y.file} byte {y.position})"
            result.problems.append(LogProblem(str(x.file), x.position, offset, sentence))
            return result
        if x.problem:
            result.problems.append(_cannot_be_compared(x))
            return result
        x, y = next(a, None), next(b, None)
    rest = x or y
    if rest is not None and rest.header is None:
        result.problems.append(_cannot_be_compared(rest))
    elif rest is not None and rest.header is not None:
        longer = left if x is not None else right
        result.notes.append(f"{longer} goes on from offset {rest.header.base_offset}, the other ends there")
    return result


def _cannot_be_compared(broken: LocatedBatch) -> LogProblem:
    sentence = f"byte {broken.position}: {broken.problem}; compared up to there"
    return LogProblem(str(broken.file), broken.position, broken.offset, sentence)


def _difference(x: BatchHeader, y: BatchHeader, here: LocatedBatch, there: LocatedBatch) -> str | None:
    if x.base_offset != y.base_offset or x.last_offset != y.last_offset:
        return f"offsets {x.base_offset}-{x.last_offset} here, {y.base_offset}-{y.last_offset} there"
    if x.leader_epoch != y.leader_epoch:
        return f"leader epoch {x.leader_epoch} here, {y.leader_epoch} there"
    if here.batch == there.batch:
        return None
    if x.crc != y.crc:
        return f"other bytes (CRC {x.crc} here, {y.crc} there)"
    damaged = " and ".join(word for word, each in (("here", here), ("there", there)) if each.problem)
    return f"other bytes, though both say CRC {x.crc}" + (f": it is wrong {damaged}" if damaged else "")
