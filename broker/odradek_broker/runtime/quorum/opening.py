"""From the directory of the metadata log to a log, its snapshots, and the state in the newest valid one.

Rules of this module. The newest snapshot that can be read to its end counts, and the log from there on. A damaged one
is set aside, and an older one is used, or the log alone, as long as the log still reaches back to it; otherwise the
node does not start, since records are missing in the middle. A snapshot that lies above the log, or has another epoch
than the log, was received just before a crash: the older log is dropped (R-231). Everything is blocking.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from odradek_proto.formats import LOG_SUFFIX, parse_segment_file_name
from odradek_proto.transport.ports import Files

from odradek_broker.core.quorum.messages import Snapshot, SnapshotId
from odradek_broker.runtime.quorum.flushed_end import FlushedEnd
from odradek_broker.runtime.quorum.log import METADATA_TOPIC_ID, QuorumLog
from odradek_broker.storage.directory import METADATA_PARTITION
from odradek_broker.storage.errors import StorageError
from odradek_broker.storage.log import Log
from odradek_broker.storage.metadata_snapshots import MetadataSnapshots
from odradek_broker.storage.opening import KnownLog
from odradek_broker.storage.settings import LogSettings

Load = Callable[[SnapshotId, Iterator[bytes]], object]
"""Makes the state of a snapshot's records. Raises `ValueError` when they cannot be read."""


class MetadataIncomplete(StorageError):
    """No sound snapshot reaches to where the metadata log begins."""


@dataclass(slots=True)
class OpenedQuorumLog:
    """`state` is what the last of `kept` holds, None when there is none; `damaged` cannot be read, with reasons.

    `promised` is how far this node may have said to have everything: the end of a damaged snapshot, or of what it had
    flushed once. `lost`: the log ends below. Whoever opened it first makes that durable, and then calls `take_over`.
    """

    log: QuorumLog
    snapshots: MetadataSnapshots
    kept: list[Snapshot]
    state: object | None
    damaged: list[tuple[SnapshotId, str]]
    flushed: FlushedEnd
    promised: int
    lost: bool

    def take_over(self) -> None:
        """From here on the next start finds no damaged snapshots, and no other end than that of now. Blocking."""
        for snapshot, _ in self.damaged:
            self.snapshots.set_aside(snapshot)
        self.flushed.begin(self.log.state.log_end_offset)


def open_quorum_log(
    files: Files, log_directory: str, load: Load, wall_ms: int, settings: LogSettings
) -> OpenedQuorumLog:
    """Open and recover the log, and flush what was found: the core takes all of it for durable.

    Raises storage's errors and `MetadataIncomplete`. The log is checked as a whole at every start; it is small.
    """
    directory = f"{log_directory}/{METADATA_PARTITION}"
    snapshots = MetadataSnapshots(files, directory)
    found: list[SnapshotId] = []
    damaged: list[tuple[SnapshotId, str]] = []
    first_base: int | None = None
    state: object | None = None
    if files.is_dir(directory):
        snapshots.tidy()
        found, first_base = snapshots.found(), _first_base(files, directory)
    while found:
        try:
            state = load(found[-1], snapshots.records(found[-1]))
            break
        except ValueError as error:
            damaged.append((found.pop(), str(error)))
    _demand_complete(directory, first_base, found, damaged)
    begins = first_base if first_base is not None else (found[-1].end_offset if found else 0)
    kept = [each for each in found if each.end_offset >= begins]
    log = Log.open(
        files,
        directory,
        METADATA_PARTITION,
        settings=settings,
        known=KnownLog(METADATA_TOPIC_ID, log_start_offset=begins),
        clean=False,
        wall_ms=wall_ms,
    )
    flushed = FlushedEnd(files, directory)
    promised = max((flushed.found, *(snapshot.end_offset for snapshot, _ in damaged)))
    if kept:
        _fit(log, kept)
        snapshots.drop_below(kept[0].end_offset)
    log.flush()
    log.state.flushed_offset = log.state.log_end_offset
    described = [snapshots.describe(each) for each in kept]
    lost = promised > log.end_offset
    return OpenedQuorumLog(QuorumLog(log, flushed), snapshots, described, state, damaged, flushed, promised, lost)


def _first_base(files: Files, directory: str) -> int | None:
    """Where the first segment begins; None without any."""
    names = (parse_segment_file_name(name) for name in files.list(directory))
    return min((name.base_offset for name in names if name is not None and name.suffix == LOG_SUFFIX), default=None)


def _demand_complete(
    directory: str, first_base: int | None, found: Sequence[SnapshotId], damaged: Sequence[tuple[SnapshotId, str]]
) -> None:
    """Raises `MetadataIncomplete` when the log begins above all that a sound snapshot holds."""
    begins = first_base if first_base is not None else (1 if damaged else 0)
    if begins <= (found[-1].end_offset if found else 0):
        return
    log = f"the log begins at {first_base}" if first_base is not None else "there is no log"
    newest = f"the newest sound snapshot ends at {found[-1].end_offset}" if found else "there is no sound snapshot"
    reasons = "".join(f"; {each.end_offset}-{each.epoch} is damaged: {reason}" for each, reason in damaged)
    raise MetadataIncomplete(
        f"{directory}: {log} and {newest}{reasons}. Records in between are missing: restore the snapshot (*.checkpoint)"
        " from a backup, or, while the other controllers are a majority of all, remove this directory as a whole: the"
        " node then joins as one with an empty disk and gets everything from them"
    )


def _fit(log: Log, kept: list[SnapshotId]) -> None:
    """Make log and snapshots speak of the same records. The newest snapshot is right in any case: it was committed.

    The log starts at the end of the oldest snapshot, unless it was never cut. Epochs are known for all records that are
    left, and those go by whole segments.
    """
    state, newest = log.state, kept[-1]
    end = newest.end_offset
    below = state.epochs.epoch_for_offset(end - 1) if end > state.log_start_offset else newest.epoch
    if end > state.log_end_offset or below != newest.epoch:
        log.restart_at(end)
        state.log_start_offset = state.log_end_offset = end
        state.epochs.clear()
        del kept[:-1]
    elif state.log_start_offset > 0:
        state.log_start_offset = kept[0].end_offset
        log.advance_log_start(state.log_start_offset)
    if not state.epochs.entries and state.log_end_offset == end:
        state.epochs.assign(newest.epoch, end)  # of the last record below, which a fetch and a vote name
        log.write_epochs(state.epochs.entries)
    state.high_watermark = max(state.high_watermark, end)
