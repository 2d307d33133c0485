"""Lets Kafka's storage and ours open copies of the same directories in the same way, and compares what they leave."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from odradek_broker.storage.log import Log
from odradek_broker.storage.opening import KnownLog
from odradek_broker.storage.settings import LogSettings
from odradek_proto.formats import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    PARTITION_METADATA,
    RECOVERY_POINT_CHECKPOINT,
    decode_offset_checkpoint,
)
from odradek_proto.records import iter_batches
from odradek_proto.topics import TopicPartition, parse_partition_directory
from odradek_proto.transport.files import OsFiles

from tests.interop.kafka.opening import Bounds, Opening, differences, open_by_kafka
from tests.interop.our_logs import served

WAYS = ("as it is", "unclean", "from the start", "truncated")


def partitions_of(root: Path) -> list[Path]:
    """The directories of partitions in the log directories below a directory."""
    return sorted(path.parent for path in root.rglob(PARTITION_METADATA))


def checkpointed(directory: Path, name: str) -> int:
    """What a checkpoint beside a partition's directory says of it; 0 when it says nothing."""
    path = directory.parent / name
    partition = parse_partition_directory(directory.name)
    assert partition is not None
    return decode_offset_checkpoint(path.read_bytes()).get(partition, 0) if path.exists() else 0


def opening_of(directory: Path, way: str, copied: Path) -> Opening:
    """How a broker would open a copy, but for what the way changes; where a truncation cuts is still open."""
    return Opening(
        copied,
        clean=(directory.parent / CLEAN_SHUTDOWN).exists() and way in ("as it is", "truncated"),
        recovery_point=0 if way == "from the start" else checkpointed(directory, RECOVERY_POINT_CHECKPOINT),
        log_start=checkpointed(directory, LOG_START_OFFSET_CHECKPOINT),
        gaps=(directory.parent / CLEANER_OFFSET_CHECKPOINT).exists(),
    )


def open_log(opening: Opening, settings: LogSettings) -> Log:
    """Open a partition's directory by our storage, on this machine's disk."""
    partition = parse_partition_directory(opening.directory.name)
    assert isinstance(partition, TopicPartition)
    return Log.open(
        OsFiles(),
        str(opening.directory),
        partition,
        settings=settings,
        known=KnownLog(recovery_point=opening.recovery_point, log_start_offset=opening.log_start, gaps=opening.gaps),
        clean=opening.clean,
        wall_ms=int(time.time() * 1000),
    )


def open_by_us(opening: Opening, settings: LogSettings, rng: random.Random | None) -> tuple[Bounds, int]:
    """Our storage opens a log, truncates it somewhere when there is a chance, and closes it; where it cut, or -1."""
    log = open_log(opening, settings)
    cut = -1
    starts = [header.base_offset for _, header in iter_batches(served(log))]
    if rng is not None and starts:
        cut = rng.choice(starts)
        end = log.truncate(cut)
        log.state.epochs.truncate_from_end(end)
        log.write_epochs(log.state.epochs.entries)
    bounds = Bounds(log.log_start_offset, log.end_offset)
    log.close(clean=True)
    return bounds, cut


def compare_openings(
    classpath: str,
    directories: Sequence[Path],
    temporary: Path,
    settings: LogSettings,
    kafka_settings: Sequence[str],
) -> Mapping[tuple[str, Path], list[str]]:
    """Open each directory in each way by both; returns the differences of each pair, mostly empty lists.

    A log that starts within a segment is not recovered from there: Kafka then takes producers from below the log start
    into its snapshots, although without a recovery it would not (R-246), and we never do. Unlike Kafka we keep
    snapshots at or below the log start: producers whose records were deleted may repeat them.
    """
    pairs: dict[tuple[str, Path], tuple[Path, Opening, Bounds]] = {}
    for number, directory in enumerate(directories):
        within = checkpointed(directory, LOG_START_OFFSET_CHECKPOINT) > 0
        for way in WAYS:
            if way == "from the start" and within:
                continue
            ours, kafkas = (temporary / str(number) / way.replace(" ", "-") / name for name in ("ours", "kafkas"))
            for copied in (ours, kafkas):
                shutil.copytree(directory, copied / directory.name)
            opening = opening_of(directory, way, ours / directory.name)
            rng = random.Random(f"{directory.name} {number}") if way == "truncated" else None
            bounds, cut = open_by_us(opening, settings, rng)
            opening = opening_of(directory, way, kafkas / directory.name)
            opening = Opening(opening.directory, opening.clean, opening.recovery_point, opening.log_start, cut)
            pairs[way, directory] = (ours / directory.name, opening, bounds)
    opened = open_by_kafka(classpath, [opening for _, opening, _ in pairs.values()], kafka_settings)
    found: dict[tuple[str, Path], list[str]] = {}
    for key, (ours, opening, bounds) in pairs.items():
        kept = {f"only ours: {path.name}" for path in ours.glob("*.snapshot") if int(path.stem) <= bounds.log_start}
        found[key] = [each for each in differences(ours, opening.directory) if each not in kept]
        if opened[opening.directory] != bounds:
            found[key].append(f"{bounds} here, {opened[opening.directory]} of Kafka")
    return found
