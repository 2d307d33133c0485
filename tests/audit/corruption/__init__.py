"""Plants damage in copies of log directories: so that everybody can see the audit find it.

Never point it at the only copy. Each kind of damage is a function of a partition's directory that changes one thing
and says what the audit must then report: the check, the offset, the epoch. Kinds that need a changed batch to look
whole make its CRC right again. `NEAR_MISSES` has for each kind something that looks much like it, and that a healthy
broker may leave behind.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

from odradek_proto.topics import TopicPartition, partition_directory

from tests.audit.corruption import beside_log, in_batches, in_log, in_segments
from tests.audit.corruption.near import NEAR_MISSES, NearMiss
from tests.audit.corruption.places import NothingToDamage, Planted

__all__ = [
    "KINDS",
    "NEAR_MISSES",
    "NEEDS_CLEAN_STOP",
    "NEEDS_PRODUCERS",
    "NearMiss",
    "NothingToDamage",
    "Planted",
    "plant",
]

Damage = Callable[[Path, random.Random], Planted]

_ANYWHERE: tuple[Damage, ...] = (
    in_log.flip_byte,
    in_log.flip_length,
    in_log.flip_crc,
    in_log.flip_magic,
    in_log.lower_base_offset,
    in_log.overwrite_header,
    in_log.zero_page,
    in_log.remove_batch,
    in_log.move_batch,
    in_log.repeat_batch,
    in_log.swap_batches,
    in_log.displace_batch,
    in_log.lower_epoch,
    in_log.raise_epoch,
    in_log.cut_segment,
    in_log.shorten_segment,
    in_log.remove_segment,
    in_segments.empty_segment,
    in_segments.empty_file_inside,
    in_segments.zero_segment,
    in_segments.scramble_segment,
    in_segments.compress_segment,
    in_segments.swap_segments,
    in_segments.copy_segment,
    in_segments.overlap_segments,
    in_segments.rename_segment,
    in_segments.rename_segment_down,
    in_batches.change_record,
    in_batches.grow_record_count,
    in_batches.change_timestamp,
    in_batches.change_record_count,
    in_batches.break_sequence,
    in_batches.raise_producer_epoch,
    in_batches.change_producer,
    in_batches.make_control,
    in_batches.raise_timestamp,
    in_batches.recompress_batch,
    in_batches.garble_payload,
    in_batches.turn_marker,
    beside_log.misplace_index_entry,
    beside_log.age_time_entry,
    beside_log.shift_index_entry,
    beside_log.flip_snapshot,
    beside_log.change_snapshot,
    beside_log.cut_snapshot,
    beside_log.exchange_snapshot,
    beside_log.garble_aborted,
    beside_log.forget_aborted,
    beside_log.raise_stable_offset,
    beside_log.change_topic_id,
    beside_log.copy_identity,
)
_AT_ONE_PLACE: tuple[Callable[[Path], Planted], ...] = (
    in_log.cut_log,
    in_segments.empty_file_ahead,
    in_segments.remove_first_segment,
    in_segments.tear_after_stop,
    in_segments.zeros_after_stop,
    in_batches.miss_truncation,
    beside_log.raise_recovery_point,
    beside_log.raise_high_watermark,
    beside_log.raise_log_start,
    beside_log.raise_cleaner_offset,
    beside_log.remove_directory,
    beside_log.shift_epoch,
    beside_log.forget_epoch,
    beside_log.garble_epoch_file,
    beside_log.raise_epoch_line,
    beside_log.turn_epochs,
    beside_log.garble_topic_id,
    beside_log.recreate_topic,
    beside_log.garble_identity,
    beside_log.garble_high_watermarks,
    beside_log.garble_recovery_points,
    beside_log.turn_index_entries,
    beside_log.turn_time_entries,
    beside_log.remove_aborted,
    beside_log.change_cluster_id,
)


def _name(function: Callable[..., Planted]) -> str:
    return function.__name__.replace("_", "-")


def _without_chance(change: Callable[[Path], Planted]) -> Damage:
    return lambda directory, _: change(directory)


KINDS: dict[str, Damage] = {_name(each): each for each in _ANYWHERE} | {
    _name(each): _without_chance(each) for each in _AT_ONE_PLACE
}

NEEDS_PRODUCERS = (
    "break-sequence",
    "raise-producer-epoch",
    "change-producer",
    "make-control",
    "garble-payload",
    "turn-marker",
    "flip-snapshot",
    "change-snapshot",
    "cut-snapshot",
    "exchange-snapshot",
    "forget-aborted",
    "raise-stable-offset",
    "garble-aborted",
    "remove-aborted",
)
"""Kinds for which `sample` writes nothing that could be damaged: idempotent and transactional producers,
compression. A broker's directories have it."""

NEEDS_CLEAN_STOP = (
    "raise-cleaner-offset",
    "remove-directory",
    "remove-first-segment",
    "tear-after-stop",
    "zeros-after-stop",
)
"""Kinds that a kill would explain: a torn tail, a checkpoint that is older than a deletion."""


def plant(kind: str, log_directory: Path, partition: TopicPartition, rng: random.Random) -> Planted:
    """Damage one partition in a copy of a log directory.

    Raises `NothingToDamage` when the partition is too small for this kind, `KeyError` for an unknown kind, `OSError`.
    """
    directory = log_directory / partition_directory(partition)
    return KINDS[kind](directory, rng)
