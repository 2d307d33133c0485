"""Invariants of the metadata quorum: what is committed is on a majority, never goes, and means the same to all."""

from __future__ import annotations

from odradek_broker.core.metadata.image import MetadataImage
from odradek_proto.metadata_snapshots import CHECKPOINT_SUFFIX, parse_snapshot_file_name

from odradek_chaos.worlds.simulated.checks.invariant import Invariant, Violations
from odradek_chaos.worlds.simulated.checks.state import METADATA, ClusterState, QuorumNodeState
from odradek_chaos.worlds.simulated.disk.inodes import Directory

IMAGES_KEPT = 256


class MajorityReachedHighWatermark(Invariant):
    """A majority of the voters has everything below the quorum leader's high watermark."""

    name = "majority-reached-high-watermark"
    rules = "N11, M-3"

    def on_quorum(self, now: ClusterState, seen: QuorumNodeState, before: QuorumNodeState | None) -> Violations:
        if not seen.is_leader or (before is not None and before.high_watermark == seen.high_watermark):
            return
        if any((voter, METADATA) in now.damaged for voter in now.voter_ends):
            return  # nobody looks at what it has
        have = [voter for voter, end in now.voter_ends.items() if end >= seen.high_watermark]
        if 2 * len(have) <= len(now.voter_ends):
            sentence = f"high watermark {seen.high_watermark}, and only voters {have} have it: {now.voter_ends}"
            yield seen.broker_id, METADATA, sentence


class MetadataHighWatermarkNeverFalls(Invariant):
    """A quorum leader's high watermark never falls, and one that begins to move is past what older epochs committed.

    A leader that was deposed in its sleep may still learn what its own epoch had committed, while a newer one is ahead.
    """

    name = "metadata-high-watermark-never-falls"
    rules = "N11, M-4"

    def __init__(self) -> None:
        self._largest: dict[int, int] = {}  # of each epoch's leader

    def on_quorum(self, now: ClusterState, seen: QuorumNodeState, before: QuorumNodeState | None) -> Violations:
        if not seen.is_leader or before is None or not before.is_leader or before.epoch != seen.epoch:
            return
        if seen.high_watermark < before.high_watermark:
            yield seen.broker_id, METADATA, f"fell from {before.high_watermark} to {seen.high_watermark}"
        elif seen.high_watermark > before.high_watermark:
            earlier = max((offset for epoch, offset in self._largest.items() if epoch < seen.epoch), default=0)
            if seen.high_watermark < earlier:
                sentence = f"rose to {seen.high_watermark} in epoch {seen.epoch}; an earlier leader had {earlier}"
                yield seen.broker_id, METADATA, sentence
            self._largest[seen.epoch] = seen.high_watermark


class MetadataImagesEqual(Invariant):
    """All brokers interpret the same prefix of the metadata log identically."""

    name = "metadata-images-equal"
    rules = "N11 (state machine safety)"

    def __init__(self) -> None:
        self._first: dict[int, tuple[int, MetadataImage]] = {}

    def on_image(self, now: ClusterState, broker_id: int, image: MetadataImage, before: MetadataImage) -> Violations:
        first = self._first.get(image.offset)
        if first is None:
            if len(self._first) >= IMAGES_KEPT:
                del self._first[next(iter(self._first))]
            self._first[image.offset] = (broker_id, image)
        elif first[1] is not image and first[1] != image:
            sentence = f"its image at offset {image.offset} is not that of broker {first[0]}"
            yield broker_id, METADATA, sentence


class SnapshotAtLogStart(Invariant):
    """A metadata log that does not begin at 0 has a snapshot that ends where the log begins, or later.

    And the epoch that a snapshot is named by is that of its last record, as it was committed; the log may have it no
    more.
    """

    name = "snapshot-at-log-start"
    rules = "M-6"

    def __init__(self) -> None:
        self._right: dict[str, None] = {}  # names that were held against what was committed

    def on_quorum(self, now: ClusterState, seen: QuorumNodeState, before: QuorumNodeState | None) -> Violations:
        if before is not None and before.log_end_offset == seen.log_end_offset:
            return
        directory = now.disks[seen.broker_id].find(f"{now.root}/{METADATA}")
        if not isinstance(directory, Directory):
            return
        first = min((name for name in directory.entries if name.endswith(".log")), default="0.log")
        start = int(first[:-4])
        named = (name for name in directory.entries if name.endswith(CHECKPOINT_SUFFIX))
        found = {name: id_ for name in named if (id_ := parse_snapshot_file_name(name)) is not None}
        if start > 0 and not any(end >= start for end, _ in found.values()):
            snapshots = [end for end, _ in found.values()]
            yield seen.broker_id, METADATA, f"begins at {start}, and has snapshots at {snapshots}"
        for name, (end, epoch) in found.items():
            if name in self._right:
                continue
            committed = now.history(METADATA).committed_epoch_below(end)
            if committed == epoch:
                self._right[name] = None
            elif committed is not None:  # None: nobody has told yet that this is committed
                yield seen.broker_id, METADATA, f"has {name}, and the record before {end} is of epoch {committed}"
