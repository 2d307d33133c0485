"""`flushed-offset-checkpoint`: up to where the metadata log was on the disk (R-217), in Kafka's format of checkpoints.

    0
    1
    __cluster_metadata 0 0000000000000001234

A voter that has flushed a record may have acknowledged it. If a start finds that its log ends below, it has lost some
of that, as one that has lost its disk. Without this a torn write and damage look the same.

Rules of this module. It never says more than what is on the disk: it rises behind a flush, and falls, durably, before a
cut. It is written in place, all of it within a sector, so a crash leaves it as it was before or after. Rising costs no
flush: after a power loss it may say less, which finds less and wrongs nobody.
"""

from __future__ import annotations

from odradek_proto.formats import FLUSHED_OFFSET_CHECKPOINT, CorruptFile, decode_offset_checkpoint
from odradek_proto.transport.ports import File, Files

from odradek_broker.storage.atomic import read_file, replace_file
from odradek_broker.storage.directory import METADATA_PARTITION
from odradek_broker.storage.errors import NO_ROOM, log_ignored


class FlushedEnd:
    """The file of one directory. `found` is what it said before `begin`, 0 for nothing."""

    def __init__(self, files: Files, directory: str) -> None:
        """Blocking. A file that cannot be read says nothing."""
        self._files = files
        self._directory = directory
        self._file: File | None = None
        self._said = self.found = 0
        path = f"{directory}/{FLUSHED_OFFSET_CHECKPOINT}"
        try:
            self.found = decode_offset_checkpoint(read_file(files, path) or b"").get(METADATA_PARTITION, 0)
        except CorruptFile as error:
            log_ignored(path, error)

    def begin(self, end: int) -> None:
        """From here on a start finds `end`, or more. Blocking. Without room the file stays, and falls with the log."""
        path, self._said = f"{self._directory}/{FLUSHED_OFFSET_CHECKPOINT}", end
        try:
            if end != self.found:
                replace_file(self._files, self._directory, FLUSHED_OFFSET_CHECKPOINT, _content(end), durable=True)
            self._file = self._files.open(path, create=True)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            if self.found:
                self._file, self._said = self._files.open(path), self.found

    def rise(self, end: int) -> None:
        """The log is on the disk up to `end`. Raises `OSError`."""
        if end > self._said and self._file is not None:
            self._file.pwritev([_content(end)], 0)
            self._said = end

    def fall(self, end: int) -> None:
        """The log is about to be cut to end at `end`. Raises `OSError`."""
        if end < self._said and self._file is not None:
            self._file.pwritev([_content(end)], 0)
            self._file.fsync()
            self._said = end

    def close(self, end: int | None = None) -> None:
        """With `end`, the log's on the disk, durably. Blocking. Raises `OSError`."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            if end is not None:
                file.pwritev([_content(end)], 0)
                file.fsync()
        finally:
            file.close()


def _content(end: int) -> bytes:
    """As long for each offset: the file keeps its size."""
    return f"0\n1\n{METADATA_PARTITION.topic} {METADATA_PARTITION.partition} {end:019d}\n".encode()
