"""The disk operations of a node of the quorum: the vote, the log, its snapshots.

Rules of this module. Nothing is decided here. Slow operations run in a thread, one flush of the log at a time: all
appends that arrived meanwhile share the next one. A snapshot is written a batch at a time, from an immutable state, and
a received one is read to its end before it gets its name. A full disk costs a snapshot and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence

from odradek_proto.transport.chance import chance
from odradek_proto.transport.ports import Files

from odradek_broker.core.quorum.messages import QuorumState, Snapshot, SnapshotId
from odradek_broker.runtime.counters import Counters, measured
from odradek_broker.runtime.quorum.opening import Load, OpenedQuorumLog
from odradek_broker.runtime.quorum.state_file import write_quorum_state
from odradek_broker.storage.directory import METADATA_PARTITION
from odradek_broker.storage.errors import NO_ROOM
from odradek_broker.storage.metadata_snapshots import SnapshotWriter

Spawn = Callable[[Coroutine[object, object, None]], None]


class QuorumDisk:
    """The directory of the metadata log, from its opening to `close`."""

    def __init__(
        self,
        files: Files,
        log_directory: str,
        opened: OpenedQuorumLog,
        *,
        load: Load,
        voters: Sequence[int],
        spawn: Spawn,
        on_flushed: Callable[[int], None],
        counters: Counters,
    ) -> None:
        """`spawn` runs work that has to be finished before `close`."""
        self.log = opened.log
        self.snapshots = opened.snapshots
        self.flushing = False
        self.leaving = False  # what can be left undone is left
        self._files = files
        self._directory = f"{log_directory}/{METADATA_PARTITION}"
        self._load = load
        self._voters = voters
        self._spawn = spawn
        self._on_flushed = on_flushed
        self._counters = counters
        self._flush_again = False
        self._downloads = 0  # snapshots whose receiving has begun
        self._received: tuple[Snapshot, object] | None = None  # checked, and the state that it holds

    async def persist(self, state: QuorumState) -> None:
        files, directory, voters = self._files, self._directory, self._voters
        await files.offload(lambda: write_quorum_state(files, directory, state, voters))

    def flush(self) -> None:
        if self.flushing:
            self._flush_again = True
            return
        self.flushing = True
        self._spawn(self._run_flush())

    async def _run_flush(self) -> None:
        flush = measured(self.log.flush, self._counters.metadata_fsyncs, self._counters.timer)
        if chance("quorum-flush-late", 0.02):
            await self._files.offload(lambda: None)
            await self._files.offload(lambda: None)
        await self._files.offload(flush)
        again, self._flush_again = self._flush_again, False
        self.flushing = False
        self._on_flushed(self.log.flushed())
        state = self.log.state
        if again and not self.flushing and not self.leaving and state.flushed_offset < state.log_end_offset:
            self.flush()

    # --- snapshots ---

    async def take(self, snapshot: SnapshotId, values: Iterator[bytes], timestamp: int) -> Snapshot | None:
        """Write a snapshot of these records; None when there is no room for it, or the node stops."""
        files, offload = self._files, self._files.offload
        writer = SnapshotWriter(files, self.snapshots, snapshot, values, timestamp)
        try:
            await offload(writer.begin)
            while not self.leaving and await offload(writer.write_some):
                pass
            if not self.leaving:
                return await offload(writer.finish)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        await offload(writer.abandon)
        return None

    def receive(self, snapshot: SnapshotId, position: int, data: bytes) -> None:
        """Write a piece of what another node sends; the one at 0 begins anew. Raises `OSError`."""
        self._downloads += position == 0
        self.snapshots.receive(snapshot, position, data)

    async def check(self, snapshot: SnapshotId) -> Snapshot | str | None:
        """Read what was received to its end; what it is, or what is wrong with it. None: nobody waits for that any
        more, because receiving has begun anew.
        """
        download = self._downloads
        found = await self._files.offload(lambda: self._check(snapshot))
        if download != self._downloads:
            return None  # the file is another one's by now
        if isinstance(found, str):
            self.snapshots.discard_part(snapshot)
            return found
        self._received = found
        return found[0]

    def _check(self, snapshot: SnapshotId) -> tuple[Snapshot, object] | str:
        try:
            state = self._load(snapshot, self.snapshots.records(snapshot, part=True))
            return self.snapshots.describe(snapshot, part=True), state
        except (ValueError, FileNotFoundError) as error:
            return str(error)

    async def install(self, snapshot: SnapshotId) -> tuple[Snapshot, object]:
        """Make a checked snapshot what this directory holds; returns it and the state in it.

        The snapshot is durable before the log goes: whatever a crash leaves is one of the two.
        """
        received, self._received = self._received, None
        assert received is not None, snapshot
        assert received[0].id == snapshot, (received[0], snapshot)
        assert not self.flushing, "a log is not cut while it is flushed"
        await self._files.offload(lambda: self.snapshots.complete(snapshot))
        self.log.restart_at(snapshot)
        self.snapshots.drop_below(snapshot.end_offset)
        return received

    def start_log_at(self, snapshot: SnapshotId, wall_ms: int) -> None:
        self.log.start_at(snapshot.end_offset, wall_ms)
        self.snapshots.drop_below(snapshot.end_offset)

    async def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> bytes | None:
        """A piece of a snapshot; None when it is gone."""
        try:
            return await self._files.offload(lambda: self.snapshots.read(snapshot, position, max_bytes))
        except FileNotFoundError:
            return None

    async def close(self, *, sound: bool) -> None:
        """With `sound` the log is completed first. A node that failed writes no more; its disk may be full."""
        await self._files.offload(lambda: self.log.close(complete=sound))
