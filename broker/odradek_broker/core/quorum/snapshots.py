"""Snapshots of the metadata log: when one is taken, which ones stay, and how another node gets one (KIP-630).

Rules of this module. A snapshot holds only committed records, so it is valid in every epoch and on every node. The log
starts at the end of a snapshot or at 0, and never moves back (M-6): a node that needs earlier records gets the newest
snapshot instead. A received snapshot replaces everything at once; half of it is never visible, and nothing of it counts
before it was read to its end and is on disk.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.values import replace

from odradek_broker.core.partition.messages import WriteEpochs
from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.member import QuorumMember
from odradek_broker.core.quorum.messages import (
    CheckSnapshot,
    Fail,
    FetchSnapshot,
    FetchSnapshotAnswer,
    InstallSnapshot,
    QuorumReply,
    ReceiveChunk,
    ReplyChunk,
    SegmentSize,
    Snapshot,
    SnapshotId,
    StartLogAt,
    TakeSnapshot,
    Token,
)
from odradek_broker.core.quorum.roles import Download, Follower

GONE = (ErrorCode.SNAPSHOT_NOT_FOUND, ErrorCode.POSITION_OUT_OF_RANGE)
"""The leader has no such snapshot (any more), or another one under this name: ask again which one it has."""


class QuorumSnapshots:
    """What a member does with snapshots, as a leader, as a follower and by itself."""

    def __init__(self, member: QuorumMember) -> None:
        self._member = member
        self._bytes = 0  # applied and in no snapshot
        self._since_ms: int | None = None  # when the first of them was applied
        self._taking = False

    # --- taking ---

    def on_applied(self, size: int, now_ms: int) -> None:
        """The state machine has taken in so many bytes of committed records."""
        self._bytes += size
        if self._since_ms is None:
            self._since_ms = now_ms

    def on_time(self, now_ms: int) -> None:
        if self._taking or self._since_ms is None:
            return
        due_ms = self.next_deadline_ms()
        if self._bytes >= self._member.config.snapshot_max_bytes or (due_ms is not None and now_ms >= due_ms):
            self._taking, self._bytes, self._since_ms = True, 0, None
            self._member.emit(TakeSnapshot())

    def next_deadline_ms(self) -> int | None:
        """When what was applied has waited for long enough."""
        interval_ms = self._member.config.snapshot_max_interval_ms
        if self._taking or self._since_ms is None or interval_ms <= 0:
            return None
        return self._since_ms + interval_ms

    def on_taken(self, snapshot: Snapshot | None, segments: Sequence[SegmentSize], wall_ms: int) -> None:
        """The snapshot that was ordered is on the disk; None: it was given up. `segments` are those that are closed,
        oldest first.
        """
        member = self._member
        self._taking = False
        if snapshot is None:
            return
        if member.snapshots and snapshot.id.end_offset <= member.snapshots[-1].id.end_offset:
            member.emit(StartLogAt(member.snapshots[0].id))  # a newer one was received meanwhile: this one goes
            return
        member.snapshots.append(snapshot)
        member.tell(
            "snapshot_taken",
            "R-200",
            end_offset=snapshot.id.end_offset,
            snapshot_epoch=snapshot.id.epoch,
            bytes=snapshot.size,
        )
        self._retain(segments, wall_ms)

    def _retain(self, segments: Sequence[SegmentSize], wall_ms: int) -> None:
        """Give up the oldest snapshots, and the log below the oldest that stays, by `metadata.max.retention.bytes` and
        `.ms`. One snapshot always stays.
        """
        member, config, kept = self._member, self._member.config, self._member.snapshots
        left = [segment for segment in segments if segment.end_offset > member.log.log_start_offset]
        total = sum(segment.size for segment in left) + sum(each.size for each in kept)
        before, gone_below = len(kept), 0
        while len(kept) > 1:
            too_large = 0 <= config.retention_bytes < total
            too_old = 0 <= config.retention_ms < wall_ms - kept[0].timestamp
            if not too_large and not too_old:
                break
            total -= kept.pop(0).size
            while left and left[0].end_offset <= kept[0].id.end_offset:
                gone_below = left[0].end_offset
                total -= left.pop(0).size
        if len(kept) < before:
            self._start_log_at(kept[0].id, gone_below)

    def _start_log_at(self, snapshot: SnapshotId, gone_below: int) -> None:
        """Epochs stay known as far as there are records, which go by whole segments."""
        member, log = self._member, self._member.log
        member.tell("metadata_log_start_moved", "R-200", to=snapshot.end_offset, before=log.log_start_offset)
        log.log_start_offset = snapshot.end_offset
        if log.log_end_offset == snapshot.end_offset:
            gone_below = snapshot.end_offset  # the last segment goes, too
        if log.epochs.truncate_from_start(gone_below):
            member.emit(WriteEpochs(log.epochs.entries))
        member.emit(StartLogAt(snapshot))

    # --- sending ---

    def on_fetch(self, fetch: FetchSnapshot, token: Token, now_ms: int) -> None:
        """Send a piece. It says that its receiver lives (R-211), and nothing of how far it is."""
        member, role = self._member, self._member.role
        size = next((each.size for each in member.snapshots if each.id == fetch.snapshot), None)
        error = self._error(fetch, size)
        answer = FetchSnapshotAnswer(error, role.leader_id, member.state.epoch, fetch.snapshot, fetch.position)
        if error is not ErrorCode.NONE or size is None or not isinstance(role, Leader):
            member.emit(QuorumReply(token, answer))
            return
        role.hear(fetch, member.log.log_end_offset, now_ms)
        member.emit(ReplyChunk(token, replace(answer, size=size), fetch.max_bytes))

    def _error(self, fetch: FetchSnapshot, size: int | None) -> ErrorCode:
        state = self._member.state
        if fetch.epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if fetch.epoch > state.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not isinstance(self._member.role, Leader):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if size is None:
            return ErrorCode.SNAPSHOT_NOT_FOUND
        return ErrorCode.POSITION_OUT_OF_RANGE if fetch.position >= size else ErrorCode.NONE

    # --- receiving ---

    def on_chunk(self, role: Follower, download: Download, answer: FetchSnapshotAnswer, now_ms: int) -> None:
        """The leader has answered the fetch of a piece: the next one is asked for behind it, until it is whole."""
        member = self._member
        if answer.error in GONE:
            self._give_up(role, download, answer.error.name, now_ms)
            return
        fits = answer.snapshot == download.snapshot and answer.position == download.position and answer.data
        end = answer.position + len(answer.data)
        if answer.error is not ErrorCode.NONE or not fits or end > answer.size:
            member.back_off(role, now_ms)
            return
        if download.size not in (None, answer.size):
            self._give_up(role, download, "its size changed", now_ms)
            return
        role.heard(now_ms, member.config.fetch_timeout_ms)
        download.size, download.position = answer.size, end
        member.emit(ReceiveChunk(download.snapshot, answer.position, answer.data))
        if end == answer.size:
            download.checking = True
            member.emit(CheckSnapshot(download.snapshot))

    def _give_up(self, role: Follower, download: Download, reason: str, now_ms: int) -> None:
        """Ask the leader anew for what it has, after a pause that grows: it may have nothing else for long."""
        member = self._member
        member.tell(
            "snapshot_fetch_failed",
            "R-208",
            leader=role.leader_id,
            end_offset=download.snapshot.end_offset,
            position=download.position,
            reason=reason,
        )
        role.download = None
        role.fetch_at_ms = now_ms + member.backoff_ms(role.failed_downloads)
        role.failed_downloads += 1

    def on_checked(self, snapshot_id: SnapshotId, found: Snapshot | str, now_ms: int) -> None:
        """The snapshot that was received has been read to its end: here it is, or what is wrong with it.

        Meanwhile the node may have heard of another leader; then nobody waits for this any more.
        """
        role = self._member.role
        if not isinstance(role, Follower) or role.download is None or role.download.snapshot != snapshot_id:
            return
        download = role.download
        if not download.checking:
            return
        role.heard(now_ms, self._member.config.fetch_timeout_ms)
        if isinstance(found, str):
            self._give_up(role, download, found, now_ms)
        else:
            self._install(role, found, now_ms)

    def _install(self, role: Follower, snapshot: Snapshot, now_ms: int) -> None:
        """Everything that this node had is replaced: the log is empty and begins where the snapshot ends."""
        member, log, end = self._member, self._member.log, snapshot.id.end_offset
        if end <= log.high_watermark:
            member.emit(Fail(f"a snapshot that ends at {end} is below the high watermark {log.high_watermark}"))
            return
        member.tell(
            "snapshot_installed",
            "R-208",
            leader=role.leader_id,
            end_offset=end,
            snapshot_epoch=snapshot.id.epoch,
            bytes=snapshot.size,
            leo=log.log_end_offset,
        )
        log.log_start_offset = log.log_end_offset = log.high_watermark = log.flushed_offset = end
        log.epochs.clear()
        log.epochs.assign(snapshot.id.epoch, end)  # of the record before, which is what the next fetch names
        member.snapshots[:] = [snapshot]
        self._bytes, self._since_ms = 0, None
        role.download, role.flushed, role.failures, role.fetch_at_ms = None, True, 0, now_ms
        role.failed_downloads = 0
        member.emit(InstallSnapshot(snapshot.id), WriteEpochs(log.epochs.entries))
