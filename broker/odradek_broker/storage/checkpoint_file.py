"""One file of offsets of all partitions in a log directory (R-2), and who may write it.

Rules of this module. It changes on the event loop alone, where logs are cut, deleted and begun: what is corrected
because of that is on the disk before the log changes, and nothing older comes after it. What a thread may do is in
`Draft`: the slow parts, before and after the new content takes the name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek_proto.formats import decode_offset_checkpoint, encode_offset_checkpoint
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Files

from odradek_broker.storage.atomic import TEMPORARY_SUFFIX, read_file, replace_file

DRAFT_SUFFIX = ".draft" + TEMPORARY_SUFFIX  # the loop may write the same checkpoint meanwhile


class CheckpointFile:
    """A checkpoint, and all that a start may find in it now: what it says, and what it said before the last flush."""

    __slots__ = ("_acting", "_directory", "_files", "_generation", "_may_say", "name")

    def __init__(
        self, files: Files, directory: str, name: str, acting: Callable[[str, Callable[[], None]], None]
    ) -> None:
        """`acting` calls a function that may raise `OSError`, and turns that into the directory's failure."""
        self.name = name
        self._files = files
        self._directory = directory
        self._acting = acting
        self._may_say: list[Mapping[TopicPartition, int]] = [{}]  # the newest is the last
        self._generation = 0  # rises with all that a draft from before must not undo

    def read(self) -> dict[TopicPartition, int]:
        """What it says. Raises `CorruptFile`."""
        offsets = decode_offset_checkpoint(read_file(self._files, f"{self._directory}/{self.name}") or b"")
        self._may_say = [dict(offsets)]
        return offsets

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Replace it for good. Raises `LogDirectoryFailed`."""
        self._generation += 1
        content = encode_offset_checkpoint(offsets)
        self._acting(
            f"writing {self.name}",
            lambda: replace_file(self._files, self._directory, self.name, content, durable=True),
        )
        self._may_say = [dict(offsets)]

    def lower(self, topic_partition: TopicPartition, offset: int) -> None:
        """From now on no start finds more than `offset` for a partition. Cheap when it says no more already."""
        self._generation += 1
        if any(said.get(topic_partition, 0) > offset for said in self._may_say):
            newest = self._may_say[-1]
            lowered = {topic_partition: min(newest[topic_partition], offset)} if topic_partition in newest else {}
            self.write({**newest, **lowered})

    def forget(self, topic_partition: TopicPartition) -> None:
        """From now on no start finds anything for a partition."""
        self._generation += 1
        if any(topic_partition in said for said in self._may_say):
            self.write({known: offset for known, offset in self._may_say[-1].items() if known != topic_partition})

    def discard_draft(self) -> None:
        """Remove what somebody wrote who was told to stop before it could take the name."""
        draft = f"{self._directory}/{self.name}{DRAFT_SUFFIX}"
        if self._files.exists(draft):
            self._acting(f"removing {draft}", lambda: self._files.remove(draft))

    def draft(self, offsets: Mapping[TopicPartition, int]) -> Draft:
        """Begin to replace it without making the event loop wait for the disk. One at a time."""
        return Draft(self, offsets)


class Draft:
    """The next content of a checkpoint: `write` it in a thread, `publish` it, and then `flush` it in a thread."""

    __slots__ = ("_checkpoint", "_generation", "_offsets")

    def __init__(self, checkpoint: CheckpointFile, offsets: Mapping[TopicPartition, int]) -> None:
        self._checkpoint = checkpoint
        self._offsets = dict(offsets)
        self._generation = checkpoint._generation

    @property
    def _path(self) -> str:
        return f"{self._checkpoint._directory}/{self._checkpoint.name}"

    def write(self) -> None:
        """Beside the checkpoint. Blocking, safe in a thread. Raises `LogDirectoryFailed`."""
        content = encode_offset_checkpoint(self._offsets)
        files = self._checkpoint._files

        def act() -> None:
            file = files.open(self._path + DRAFT_SUFFIX, create=True)
            try:
                file.truncate(0)
                file.pwritev([content], 0)
                file.fsync()
            finally:
                file.close()

        self._checkpoint._acting(f"writing {self._checkpoint.name}", act)

    def publish(self) -> bool:
        """Give it the name, on the event loop. Raises `LogDirectoryFailed`.

        False, and nothing is done, when a log was cut or begun since: what it says of that one is of before. There is
        a next checkpoint soon.
        """
        checkpoint = self._checkpoint
        if self._generation != checkpoint._generation:
            checkpoint.discard_draft()
            return False
        checkpoint._acting(
            f"renaming {checkpoint.name}",
            lambda: checkpoint._files.rename(self._path + DRAFT_SUFFIX, self._path),
        )
        checkpoint._may_say = [*checkpoint._may_say, self._offsets]
        return True

    def flush(self) -> None:
        """Make the name durable. Blocking, safe in a thread. Raises `LogDirectoryFailed`."""
        checkpoint = self._checkpoint
        checkpoint._acting(f"flushing {checkpoint.name}", lambda: checkpoint._files.fsync_dir(checkpoint._directory))

    def settle(self) -> None:
        """After the flush: no start finds what the checkpoint said before."""
        checkpoint = self._checkpoint
        if checkpoint._may_say[-1] is self._offsets:
            checkpoint._may_say = [self._offsets]
