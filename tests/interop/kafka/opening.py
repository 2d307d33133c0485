"""Kafka's storage opens partition directories (`OpenLogs`), and what it leaves is compared with what ours leaves.

Compared byte for byte: segments, both indexes, leader epochs, topic id, and which files there are. The producers in a
snapshot are compared as a set, since Kafka writes them in the order of a hash table. Coordinator
epochs are left out: they stand in transaction markers, which our storage does not read yet.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek_proto.formats import PRODUCER_SNAPSHOT_SUFFIX, ProducerSnapshotEntry, decode_producer_snapshot

from tests.interop.kafka.java import run_program

IGNORED = (".txnindex", ".deleted")  # we write no transaction index yet; Kafka deletes a minute later
_OPENED = re.compile(r"opened (\S+) (-?\d+) (-?\d+)")


@dataclass(frozen=True)
class Opening:
    """How a partition's directory is opened: what the checkpoints and the clean shutdown file say of it."""

    directory: Path
    clean: bool
    recovery_point: int = 0
    log_start: int = 0
    truncate_to: int = -1  # -1: not
    gaps: bool = False  # offsets may be missing


@dataclass(frozen=True)
class Bounds:
    """Where an opened log begins and ends."""

    log_start: int
    log_end: int


def open_by_kafka(classpath: str, openings: Iterable[Opening], settings: Sequence[str]) -> dict[Path, Bounds]:
    """Kafka opens each log, perhaps truncates it, and closes it cleanly. Changes the files."""
    lines = [
        f"{each.directory} {'clean' if each.clean else 'unclean'} {each.recovery_point} {each.log_start} "
        f"{each.truncate_to}"
        for each in openings
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listed:
        listed.write("\n".join(lines))
        listed.flush()
        output = run_program(classpath, "OpenLogs", [listed.name, *settings])
    found = _OPENED.findall(output)
    assert len(found) == len(lines), output[-4000:]
    return {Path(path): Bounds(int(start), int(end)) for path, start, end in found}


def differences(ours: Path, kafkas: Path) -> list[str]:
    """In which files two directories of one partition differ."""
    mine, theirs = _files(ours), _files(kafkas)
    found = [f"only ours: {name}" for name in sorted(mine - theirs)]
    found += [f"only Kafka's: {name}" for name in sorted(theirs - mine)]
    for name in sorted(mine & theirs):
        a, b = (ours / name).read_bytes(), (kafkas / name).read_bytes()
        if name.endswith(PRODUCER_SNAPSHOT_SUFFIX):
            if _producers(a) != _producers(b):
                found.append(f"{name}: {_producers(a)} here, {_producers(b)} of Kafka")
        elif a != b:
            place = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
            found.append(f"{name}: {len(a)} bytes here, {len(b)} of Kafka, different from byte {place} on")
    return found


def _producers(snapshot: bytes) -> list[ProducerSnapshotEntry]:
    return sorted(entry._replace(coordinator_epoch=-1) for entry in decode_producer_snapshot(snapshot))


def _files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir() if path.suffix not in IGNORED}
