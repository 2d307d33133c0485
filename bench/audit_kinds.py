"""What data costs the audit that is not plain and sound: its CPU over that of as many plain bytes, within one run.

    python -m bench.audit_kinds [--quick] [--json]     partitions of 64 MB, two replicas, in this process
    python -m bench.audit_kinds --large 1,10           so many GB of some kinds by `odradek audit run`, its memory too

- *one changed byte*: in the middle of one replica's log, so the partition is in doubt and read a second time.
- *zeros*: half of each log is zeros behind its last batch, as a power loss or preallocation leaves them; the partition
  is in doubt, and so a zero is compared with a byte of data in doubt.
- *transactional*: transactions of ten batches, every fourth aborted, with their index.
- *compacted*: each batch has lost half of its offsets, on both replicas alike; *cleaned apart*: one replica more than
  the other, so that the newest value of each key is compared.
"""

from __future__ import annotations

import argparse
import itertools
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from odradek_audit.engine.local import audit
from odradek_proto.formats import (
    CLEANER_OFFSET_CHECKPOINT,
    AbortedTransaction,
    encode_offset_checkpoint,
    encode_transaction_index,
    segment_file_name,
)
from odradek_proto.topics import TopicPartition

from bench.audit import BATCHES, ENGINES, GB, command
from bench.audit_input import Batches, cleaned, plain, transactional, write_replicas
from bench.report import Figure, show

SIZE, QUICK_SIZE = 128_000_000, 32_000_000
ROUNDS = 5
FLOOR = 2.0
"""Of a partition in doubt over a sound one, in batches of 16 KiB: what producers make."""


@dataclass(frozen=True)
class Kind:
    """Batches, what is done to the replicas then, and whether the audit must find something."""

    batches: Callable[[int, list[AbortedTransaction]], Batches] = lambda size, _: plain(size)
    change: Callable[[Path], None] = lambda root: None
    exit_code: int = 0
    floor: float | None = None


def _own_copy(root: Path, partition: int = 0) -> Path:
    """The log of a partition of replica 2, no longer the file that all others are."""
    path = root / "2" / f"bench-{partition}" / segment_file_name(0)
    shutil.copyfile(path, path.with_suffix(".copy"))
    path.with_suffix(".copy").replace(path)
    return path


def change_byte(root: Path) -> None:
    path = _own_copy(root)
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))


def add_zeros(root: Path) -> None:
    """As many as there are bytes of batches; all partitions are one file."""
    path = root / "1" / "bench-0" / segment_file_name(0)
    with path.open("r+b") as file:
        file.truncate(2 * path.stat().st_size)


def clean(root: Path) -> None:
    """Where the cleaners have been: everywhere."""
    for node in ("1", "2"):
        marks = {
            TopicPartition("bench", int(path.name.rpartition("-")[2])): 1 << 40
            for path in (root / node).glob("bench-*")
        }
        (root / node / CLEANER_OFFSET_CHECKPOINT).write_bytes(encode_offset_checkpoint(marks))


def clean_apart(root: Path) -> None:
    """Replica 2 has lost its first batches."""
    clean(root)
    path = _own_copy(root)
    size = 12 + int.from_bytes(path.read_bytes()[8:12], "big")
    path.write_bytes(path.read_bytes()[size:])
    for index in path.parent.glob("*index"):
        index.unlink()


KINDS = {
    "plain": Kind(),
    "one changed byte": Kind(change=change_byte, exit_code=3, floor=FLOOR),
    "zeros": Kind(change=add_zeros),
    "transactional": Kind(batches=transactional),
    "compacted": Kind(batches=lambda size, _: cleaned(size), change=clean),
    "cleaned apart": Kind(batches=lambda size, _: cleaned(size), change=clean_apart),
}


def written(root: Path, kind: Kind, batch_bytes: int, total: int) -> tuple[Mapping[str, Path], int]:
    """Replicas of a kind, and their bytes."""
    aborted: list[AbortedTransaction] = []
    total //= 2 if kind.change is add_zeros else 1
    replicas, size, _ = write_replicas(root, kind.batches(batch_bytes, aborted), total)
    for path in root.glob("*/bench-*") if aborted else ():
        (path / segment_file_name(0, ".txnindex")).write_bytes(encode_transaction_index(aborted))
    kind.change(root)
    return replicas, size * 2 if kind.change is add_zeros else size


def ratios(batch: str, total: int) -> list[Figure]:
    """Each kind's CPU for a byte over that of plain data: the least of some rounds, in turn."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
        made = {name: written(Path(folder) / name, kind, BATCHES[batch], total) for name, kind in KINDS.items()}
        costs = dict.fromkeys(KINDS, float("inf"))
        for _ in range(ROUNDS):
            for name, (replicas, size) in made.items():
                began = time.process_time()
                report = audit(replicas, deep=False)
                costs[name] = min(costs[name], (time.process_time() - began) / size)
                assert report.exit_code == KINDS[name].exit_code, (name, report.findings, report.inconclusive)
    plainly, doubtful = costs.pop("plain"), costs["one changed byte"]
    zeros = (2 * costs.pop("zeros") - doubtful) / doubtful
    floors = {name: KINDS[name].floor if batch == "16 KiB" else None for name in costs}
    return [
        Figure("audit_kinds", f"plain, {batch}", 1 / plainly / 1e6, "MB/s core"),
        Figure("audit_kinds", f"a zero over a byte of data, {batch}", zeros, "times", 1.0),
        *(
            Figure("audit_kinds", f"{name} over plain, {batch}", cost / plainly, "times", floors[name])
            for name, cost in costs.items()
        ),
    ]


def large(sizes: Sequence[int]) -> list[Figure]:
    """Whole commands of both engines over some GB of 16 KiB batches in this machine's page cache."""
    found = []
    for name, size in itertools.product(("plain", "transactional", "compacted"), sizes):
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
            replicas, read = written(Path(folder), KINDS[name], BATCHES["16 KiB"], size)
            for engine in ("local, 1 core", "spark, 2 cores"):
                taken = command(replicas, *ENGINES[engine])
                what = f"{name}, {size // GB} GB, {engine}"
                found += [
                    Figure("audit_kinds", what, read / taken.cpu_s / 1e6, "MB/s CPU"),
                    Figure("audit_kinds", what, taken.own_peak_mib, "MiB RSS driver", 1024),
                    Figure("audit_kinds", what, taken.peak_mib, "MiB RSS"),
                ]
    return found


def figures(quick: bool) -> list[Figure]:
    """Ratios by size of batches."""
    return [each for batch in ("1 KiB", "16 KiB") for each in ratios(batch, QUICK_SIZE if quick else SIZE)]


def main() -> int:
    arguments = argparse.ArgumentParser(description=figures.__doc__)
    arguments.add_argument("--quick", action="store_true", help="smaller inputs")
    arguments.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments.add_argument("--large", metavar="GB,GB", help="so much of some kinds, nothing else")
    given = arguments.parse_args()
    show(
        large([int(text) * GB for text in given.large.split(",")]) if given.large else figures(given.quick),
        as_json=given.json,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
