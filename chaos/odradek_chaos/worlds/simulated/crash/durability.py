"""What had been promised at each moment of a recording, so that no crash may take it back.

Of a log: the batches that were flushed, until it is truncated. Between two marks owed is what was owed at both: what is
promised is owed when it has been said, and what is cut is not owed any more when the cut begins. Of a small file that
is replaced whole: the content of the last mark or a newer one, never an older one, never a part.

Of each batch it is known below which other one it was written: what a power loss mixes of two pasts of a log may
have fitting offsets and epochs, and is still no log that there ever was (log matching).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from struct import Struct

from odradek_broker.runtime.quorum.state_file import QUORUM_STATE
from odradek_broker.storage.segments import SWAP_SUFFIX
from odradek_proto.formats import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    LOG_SUFFIX,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    parse_segment_file_name,
)
from odradek_proto.metadata_snapshots import parse_snapshot_file_name
from odradek_proto.records import HEADER_SIZE, Record, decode_records, read_header

from odradek_chaos.worlds.simulated.crash.model import DiskModel
from odradek_chaos.worlds.simulated.disk.recording import (
    ABSENT,
    Begin,
    DirectoryChange,
    DurabilityMark,
    FileTruncation,
    LogPromise,
    Operation,
    Write,
)

WHOLE = frozenset(
    (
        META_PROPERTIES,
        CLEAN_SHUTDOWN,
        CLEANER_OFFSET_CHECKPOINT,
        RECOVERY_POINT_CHECKPOINT,
        REPLICATION_OFFSET_CHECKPOINT,
        LOG_START_OFFSET_CHECKPOINT,
        PARTITION_METADATA,
        QUORUM_STATE,
    )
)  # the leader epochs are not among them: without before-ack they may be torn, and are read from the log then
Batches = dict[int, bytes]  # by base offset
Newest = dict[bytes, Record]  # by key
_OF_A_LOG = (LOG_SUFFIX, LOG_SUFFIX + SWAP_SUFFIX)  # the latter is complete, and gets its name by the next start
_START = Struct(">qi")  # of a batch: base offset, and the length of what follows these twelve bytes
Place = tuple[int, str]  # number of a directory, and a name in it
Written = dict[bytes, set[bytes]]  # batches, each with those that it was written right behind
NONE_BEFORE = b""  # stands before a batch that began a log


class ContentVersions:
    """Every content that one name ever stood for, with the index of the operation that gave it; None is no file."""

    __slots__ = ("_contents", "_indexes", "removal_lasts")

    def __init__(self, *, removal_lasts: bool) -> None:
        self.removal_lasts = removal_lasts  # whether a removal was meant to survive
        self._indexes = [-1]
        self._contents: list[bytes | None] = [None]

    def add(self, index: int, content: bytes | None) -> None:
        self._indexes.append(index)
        self._contents.append(content)

    def judge(self, content: bytes | None, promised: int, now: int) -> str:
        """What is wrong with a content at operation `now` when the last mark was at `promised`; empty when nothing."""
        oldest = bisect_right(self._indexes, promised) - 1
        known = self._contents[: bisect_right(self._indexes, now)]
        if content in known[oldest:]:
            return ""
        if content is None:
            return "is gone"
        if content not in known:
            return f"is neither old nor new, but {content[:80]!r}"
        if not self.removal_lasts and None in known[oldest:]:
            return ""
        return f"is older than promised: {content[:80]!r}"


class OwedLogs:
    """What each log owes at one mark, by directory name."""

    __slots__ = ("index", "logs", "newest", "starts")

    def __init__(
        self, index: int, logs: dict[str, Batches], starts: dict[str, int], newest: dict[str, Newest] | None = None
    ) -> None:
        self.index = index
        self.logs = logs
        self.starts = starts
        self.newest = newest or {}  # of each key the last record, also where its batch became another one


NOTHING = OwedLogs(-1, {}, {})
_index_of = attrgetter("index")


class DurabilityModel:
    """Everything that was promised in a recording, and everything that was ever written to its logs."""

    def __init__(self, operations: Sequence[Operation], root: str) -> None:
        self.written: dict[int, Written] = {}  # by number of the directory
        self.versions: dict[Place, ContentVersions] = {}
        self.marks: list[OwedLogs] = []
        self._root = root
        self._model = DiskModel()
        self._lives: dict[str, int] = {}
        self._segments: dict[int, tuple[int, Batches]] = {}  # by file: how much was read, and the batches in it
        self._holders: dict[int, int] = {}  # of the file of a segment: the directory that it was made in
        self._last: dict[int, tuple[int, bytes]] = {}  # by file: the last batch that was written, and its end
        for index, operation in enumerate(operations):
            self._model.apply(operation)
            match operation:
                case DirectoryChange():
                    self._note_names(index, operation.directory, (step.name for step in operation.steps))
                case Begin():
                    self._segments.clear()
                    self._last.clear()
                    for number, directory in self._model.directories.items():
                        gone = {name for (holder, name) in self.versions if holder == number}
                        self._note_names(index, number, sorted(gone.union(directory.current)))
                case FileTruncation():
                    if operation.size < self._segments.get(operation.file, (0, {}))[0]:
                        self._segments.pop(operation.file, None)
                case Write():
                    if operation.offset < self._segments.get(operation.file, (0, {}))[0]:
                        self._segments.pop(operation.file, None)
                    if operation.file in self._holders:
                        self._note_batches(operation.file, operation.offset, operation.data)
                case DurabilityMark():
                    self._mark(index, operation)
                case _:
                    pass

    def _note_names(self, index: int, directory: int, names: Iterable[str]) -> None:
        entries = self._model.directories[directory].current
        for name in names:
            node = entries.get(name, ABSENT)
            if name.endswith(_OF_A_LOG) and node != ABSENT and node not in self._holders:
                self._holders[node] = directory
                self._note_batches(node, 0, self._model.files[node].current)
            is_snapshot = parse_snapshot_file_name(name) is not None
            if name not in WHOLE and not is_snapshot:
                continue
            versions = self.versions.get((directory, name))
            if versions is None:
                versions = self.versions[directory, name] = ContentVersions(removal_lasts=not is_snapshot)
            versions.add(index, None if node == ABSENT else bytes(self._model.files[node].current))

    def _note_batches(self, node: int, start: int, data: bytes | bytearray) -> None:
        """Batches came to byte `start` of a file, which has them already."""
        written, before = self.written.setdefault(self._holders[node], {}), None
        for position, batch in whole_batches(data):
            if before is None:
                before = self._before(node, start)
            written.setdefault(batch, set()).add(before)
            before = batch
            self._last[node] = (start + position + len(batch), batch)

    def _before(self, node: int, position: int) -> bytes:
        """The batch in front of a byte of a segment: at its start the last one of the segment before it."""
        if position:
            return self._ends_at(node, position)
        entries = self._model.directories[self._holders[node]].current
        below = NONE_BEFORE
        for name, other in sorted(entries.items()):
            if other == node:
                return below
            if name.endswith(LOG_SUFFIX) and self._model.files[other].current:
                below = self._ends_at(other, len(self._model.files[other].current))
        return NONE_BEFORE

    def _ends_at(self, node: int, position: int) -> bytes:
        last_end, last = self._last.get(node, (-1, NONE_BEFORE))
        if last_end == position:
            return last
        batches = whole_batches(self._model.files[node].current)
        return next((batch for start, batch in batches if start + len(batch) == position), NONE_BEFORE)

    def _mark(self, index: int, mark: DurabilityMark) -> None:
        before = self.marks[-1] if self.marks else NOTHING
        logs, starts = dict(before.logs), dict(before.starts)
        for name in mark.gone:
            logs.pop(name, None)
            self._lives.pop(name, None)
        for name, promise in mark.logs.items():
            there = self._batches(name)
            logs[name] = self._owed(name, promise, logs.get(name, {}), there)
            starts[name] = promise.start
            self._lives[name] = promise.life
        self.marks.append(OwedLogs(index, logs, starts))

    def _owed(self, name: str, promise: LogPromise, before: Mapping[int, bytes], there: Mapping[int, bytes]) -> Batches:
        """What was owed and was not cut, and what the log has below its recovery point now.

        What is missing of a log that was opened anew was not cut, but lost: it stays owed.
        """
        opened_anew = self._lives.get(name, promise.life) != promise.life
        owed = {base: batch for base, batch in before.items() if opened_anew or there.get(base) == batch}
        owed |= {base: batch for base, batch in there.items() if end_of(base, batch) <= promise.recovery_point}
        return {base: batch for base, batch in owed.items() if end_of(base, batch) > promise.start}

    def _batches(self, name: str) -> Batches:
        """The batches of a partition in the page cache."""
        directory = self._model.directories.get(self._model.find(f"{self._root}/{name}"))
        found: Batches = {}
        for entry, node in sorted(directory.current.items()) if directory is not None else ():
            parsed = parse_segment_file_name(entry)
            if parsed is not None and parsed.suffix == LOG_SUFFIX:
                found |= self._batches_of(node)
        return found

    def _batches_of(self, node: int) -> Batches:
        content = self._model.files[node].current
        read, batches = self._segments.get(node, (0, {}))
        if read < len(content):
            for position, batch in whole_batches(content, read):
                batches[_START.unpack_from(batch)[0]] = batch
                read = position + len(batch)
            self._segments[node] = (read, batches)
        return batches

    def go_on(self, owed: OwedLogs, written: Mapping[str, Written]) -> None:
        """What was owed and written before this recording began, by the names of the partitions' directories."""
        self.marks.insert(0, OwedLogs(0, owed.logs, owed.starts))
        for name, batches in written.items():
            number = self._model.find(f"{self._root}/{name}")
            if number != ABSENT:
                mine = self.written.setdefault(number, {})
                for batch, before in batches.items():
                    mine.setdefault(batch, set()).update(before)

    def owed_at(self, index: int) -> OwedLogs:
        """What is owed after an operation: what was at the last mark, unless the next one says that it was cut."""
        place = bisect_right(self.marks, index, key=_index_of) - 1
        before = self.marks[place] if place >= 0 else NOTHING
        after = self.marks[place + 1] if place + 1 < len(self.marks) else before
        logs = {
            name: {base: batch for base, batch in batches.items() if after.logs[name].get(base) == batch}
            for name, batches in before.logs.items()
            if name in after.logs
        }
        newest: dict[str, Newest] = {}
        for name, batches in before.logs.items():
            end = max((end_of(*each) for each in after.logs.get(name, {}).items()), default=0)  # lower after a cut
            newest[name] = {key: each for key, each in newest_of(batches.values()).items() if each.offset < end}
        return OwedLogs(before.index, logs, after.starts, newest)


def newest_of(batches: Iterable[bytes]) -> Newest:
    """The last record of each key."""
    found: Newest = {}
    for batch in batches:
        for record in decode_records(batch, read_header(batch)):
            if record.key is not None and (record.key not in found or found[record.key].offset < record.offset):
                found[record.key] = record
    return found


def whole_batches(data: bytes | bytearray, position: int = 0) -> Iterator[tuple[int, bytes]]:
    """(position, batch) of what looks like batches, one behind the other; nobody checks them."""
    while position + HEADER_SIZE <= len(data):
        size = 12 + _START.unpack_from(data, position)[1]
        if size < HEADER_SIZE or position + size > len(data):
            return
        yield position, bytes(data[position : position + size])
        position += size


def end_of(base: int, batch: bytes) -> int:
    """The offset behind a batch that stands at `base`."""
    return base + int.from_bytes(batch[23:27], "big") + 1  # the last offset delta of a batch header
