"""What a broker of the stage keeps of its partition: the real storage on a simulated disk, and views of it.

The disk outlives the process: a kill leaves all that was written, a power loss what was flushed and nothing else (of
what a power loss may leave, that is the least).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings
from odradek_proto.formats import REPLICATION_OFFSET_CHECKPOINT, decode_offset_checkpoint
from odradek_proto.records import BatchHeader, decode_records, iter_batches
from odradek_proto.topics import partition_directory
from odradek_proto.transport.ports import Buffer

from odradek_chaos.stage.metadata import ORDERS, TOPIC_ID
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

CLUSTER_ID = "stage"
DIRECTORY = "/data"
CHECKPOINT = f"{DIRECTORY}/{REPLICATION_OFFSET_CHECKPOINT}"
LOG_SUFFIX = ".log"


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch in a log: its header, and the values of its records."""

    header: BatchHeader
    values: tuple[str, ...]

    def __str__(self) -> str:
        base, epoch = self.header.base_offset, self.header.leader_epoch
        records = " ".join(f"{base + delta}:{value}" for delta, value in enumerate(self.values))
        return f"{records}@{epoch}" if len(self.values) == 1 else f"[{records}]@{epoch}"

    def records(self) -> Iterator[tuple[int, str]]:
        """(offset, value) of each record."""
        return enumerate(self.values, self.header.base_offset)


def batches_in(buffers: Iterable[Buffer]) -> list[StoredBatch]:
    """The batches in some bytes of a log."""
    data = b"".join(buffers)
    return [
        StoredBatch(header, tuple((record.value or b"").decode() for record in decode_records(data, header, position)))
        for position, header in iter_batches(data)
    ]


class _LosesAll(random.Random):
    """Randomness of a power loss that keeps no unflushed data."""

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randint(self, a: int, b: int) -> int:
        return a


class StageDisk:
    """One machine's disk, and while a process runs the log that it has open."""

    def __init__(self, number: int, settings: LogSettings, loop: SimLoop) -> None:
        self._number = number
        self._settings = settings
        self._loop = loop
        self._sim = SimDisk(random.Random(0))
        self._files: SimFiles | None = None
        self._directory: LogDirectory | None = None
        self._log: Log | None = None
        self._read: tuple[bytes, list[StoredBatch]] = b"", []  # the bytes that were decoded last

    # --- Life ------------------------------------------------------------------------------------------------------

    def open(self, wall_ms: int) -> Log:
        """A new process locks the directory and recovers the log."""
        self._files = SimFiles(self._sim, self._loop, random.Random(0))
        self._directory = LogDirectory.open(
            self._files,
            DIRECTORY,
            node_id=self._number,
            cluster_id=CLUSTER_ID,
            wall_ms=wall_ms,
            rng=random.Random(self._number),
        )
        self._log = self._directory.open_log(ORDERS, TOPIC_ID, self._settings, wall_ms=wall_ms)
        return self._log

    def kill(self) -> None:
        """The process dies in this moment."""
        assert self._files is not None, f"b{self._number} is down"
        self._files.detach()
        self._files = self._directory = self._log = None

    def lose_power(self) -> None:
        """What was not flushed is gone (R-239)."""
        self._sim.power_loss(_LosesAll())

    def close(self) -> None:
        """Stop cleanly: the log flushed, checkpoints written."""
        self.directory.close(clean=True)
        self._files = self._directory = self._log = None

    @property
    def directory(self) -> LogDirectory:
        assert self._directory is not None, f"b{self._number} is down"
        return self._directory

    @property
    def log(self) -> Log:
        assert self._log is not None, f"b{self._number} is down"
        return self._log

    def checkpoint(self, *, lost: bool = False) -> None:
        """Write the high watermark to its file, as every few seconds; or lose that file."""
        if not lost:
            self.directory.write_high_watermarks()
        elif self._sim.find(CHECKPOINT) is not None:
            parent, name = self._sim.parent(CHECKPOINT)
            self._sim.change(parent, (name, None))

    # --- Views -----------------------------------------------------------------------------------------------------

    @property
    def batches(self) -> list[StoredBatch]:
        """All that stands in the log's files, whether the broker runs or not."""
        data = b"".join(self._segments())
        if self._read[0] != data:
            self._read = data, batches_in([data])
        return self._read[1]

    def _segments(self, *, durable: bool = False) -> Iterator[bytes]:
        for path, inode in self._sim.walk(f"{DIRECTORY}/{partition_directory(ORDERS)}"):
            if path.endswith(LOG_SUFFIX):
                yield bytes(inode.durable() if durable else inode.data)

    def read(self, offset: int, limit: int) -> list[StoredBatch]:
        """Whole batches that hold an offset in the range; the first may begin below it (R-39)."""
        return [each for each in self.batches if each.header.last_offset >= offset and each.header.base_offset < limit]

    def flushed(self) -> int:
        """Where the log would end after a power loss."""
        durable = batches_in(self._segments(durable=True))
        return durable[-1].header.next_offset if durable else 0

    def checkpointed_high_watermark(self) -> int:
        """The file's content as a restart would read it."""
        if self._sim.find(CHECKPOINT) is None:
            return 0
        return decode_offset_checkpoint(self._sim.read(CHECKPOINT)).get(ORDERS, 0)

    def copy_to(self, target: Path) -> None:
        """Write all files, byte for byte, into a real directory. Raises `OSError`."""
        for path, inode in self._sim.walk(DIRECTORY):
            file = target / path.removeprefix(f"{DIRECTORY}/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(inode.data)
