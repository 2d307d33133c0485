"""How fast the audit reads, and how much memory it takes: by batch size, input size, engine, cores.

    python -m bench.audit [--quick] [--json]          parts of it in this process, and whole commands over 1 GB
    python -m bench.audit --large [--spark-only]       whole commands over 1 GB and 10 GB (minutes)
    python -m bench.audit --executors                  threads of one Spark process, and executors, over 1 GB
    python -m bench.audit --histories 100000,1000000   both engines with so many events: the driver's memory

Records of 100 bytes in two replicas, files in the page cache (`audit_input`). `first pass` condenses sound parts,
`second pass` looks at every batch of partitions in doubt; both on one core, in CPU time. A `command` is `odradek audit
run` from start to end, with all its processes: MB/s by the clock, MB/s for each second of CPU (which a busy machine
does not change much), the most memory at once.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from odradek_audit.engine.local import BatchCheckInputs, check_closely
from odradek_audit.engine.parts import part_tasks
from odradek_audit.engine.proof import prove_part
from odradek_audit.inputs.disk import LocalDisk
from odradek_audit.inputs.layout import Layout, read_layout
from odradek_proto.compression import Codec

from bench.audit_input import REPLICAS, plain, write_history, write_replicas
from bench.process_tree import Taken, run_measured
from bench.report import Figure, show

BATCHES = {"1 KiB": 1024, "16 KiB": 16 * 1024, "256 KiB": 256 * 1024}
GB = 1_000_000_000
ROUNDS = 3
BENCH = "audit"


def cpu(work: Callable[[], object]) -> float:
    """CPU seconds of this process for some work: the best of some rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.process_time()
        work()
        best = min(best, time.process_time() - started)
    return best


def first_pass(layout: Layout) -> None:
    disk = LocalDisk()
    for task in part_tasks(disk, layout.partitions):
        proof = prove_part(disk, task)
        assert not proof.doubt, proof.doubt


def second_pass(layout: Layout) -> None:
    for partition in layout.partitions:
        assert not check_closely(LocalDisk(), BatchCheckInputs(partition, None, False, False)).findings


def passes(quick: bool) -> list[Figure]:
    """Both passes by batch size, with and without compression."""
    found = []
    total = 64_000_000 if quick else 256_000_000
    for codec in (Codec.NONE, Codec.ZSTD):
        for name, size in BATCHES.items():
            with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
                replicas, read, records = write_replicas(Path(folder), plain(size, codec), total)
                layout = read_layout(LocalDisk(), {key: str(path) for key, path in replicas.items()})
                what = f"{name} batches" + (", zstd" if codec is Codec.ZSTD else "")
                floor = 150.0 if name == "16 KiB" else None
                first, second = cpu(partial(first_pass, layout)), cpu(partial(second_pass, layout))
                found += [
                    Figure(BENCH, f"first pass, {what}", read / first / 1e6, "MB/s core", floor, True),
                    Figure(BENCH, f"first pass, {what}", records / first / 1e6, "M rec/s"),
                    Figure(BENCH, f"second pass, {what}", read / second / 1e6, "MB/s core", floor, True),
                    Figure(BENCH, f"first pass over second, {what}", second / first, "times", *_at_least(1.2, name)),
                ]
    return found


def _at_least(floor: float, name: str) -> tuple[float | None, bool]:
    """A ratio within one run: it holds on a busy machine too. Large batches are all CRC in both passes."""
    return (floor, True) if name == "1 KiB" else (None, False)


def command(replicas: Mapping[str, Path], *options: str) -> Taken:
    """`odradek audit run --json` over some replicas."""
    named = [argument for name, path in replicas.items() for argument in ("--replica", f"{name}={path}")]
    arguments = [sys.executable, "-m", "odradek.cli.main", "audit", "run", *named, "--json", *options]
    taken = run_measured(arguments)
    assert taken.exit_code == 0, f"exit code {taken.exit_code} of {arguments}: {taken.output[-1000:]}{taken.errors}"
    assert json.loads(taken.output)["verdict"] == "fine"
    return taken


ENGINES = {
    "local, 1 core": ("--engine", "local", "--jobs", "1"),
    "local, 2 cores": ("--engine", "local", "--jobs", "2"),
    "spark, 1 core": ("--engine", "spark", "--master", "local[1]"),
    "spark, 2 cores": ("--engine", "spark", "--master", "local[2]"),
}

EXECUTORS = {name: options for name, options in ENGINES.items() if "spark" in name} | {
    f"spark, {number} executor{'s'[: number - 1]}": ("--engine", "spark", "--master", f"local-cluster[{number},1,1024]")
    for number in (1, 2)
}


def commands(sizes: Mapping[str, int], engines: Mapping[str, tuple[str, ...]], batch: str = "16 KiB") -> list[Figure]:
    """Whole commands, by size of the input."""
    found = []
    peaks: dict[tuple[str, str], float] = {}
    walls: dict[tuple[str, str], float] = {}
    for size_name, size in sizes.items():
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
            replicas, read, _ = write_replicas(Path(folder), plain(BATCHES[batch]), size)
            for engine, options in engines.items():
                taken = command(replicas, *options)
                peaks[engine, size_name], walls[engine, size_name] = taken.peak_mib, taken.wall_s
                what = f"{engine}, {size_name} of {batch}"
                floor = 150.0 if size >= 10 * GB else None
                found += [
                    Figure(BENCH, what, read / taken.wall_s / 1e6, "MB/s"),
                    Figure(BENCH, what, read / taken.cpu_s / 1e6, "MB/s CPU", floor, True),
                    Figure(BENCH, what, taken.peak_mib, "MiB RSS", 3072),
                ]
    return found + _ratios(sizes, engines, peaks, walls)


def _ratios(
    sizes: Mapping[str, int],
    engines: Mapping[str, tuple[str, ...]],
    peaks: Mapping[tuple[str, str], float],
    walls: Mapping[tuple[str, str], float],
) -> list[Figure]:
    names = list(sizes)
    found = []
    if len(names) > 1:
        for engine in engines:
            growth = peaks[engine, names[-1]] / peaks[engine, names[0]]
            found.append(Figure(BENCH, f"memory {names[-1]} over {names[0]}, {engine}", growth, "times", 1.5))
    if "local, 1 core" in engines and "local, 2 cores" in engines:
        gain = walls["local, 1 core", names[-1]] / walls["local, 2 cores", names[-1]]
        found.append(Figure(BENCH, f"2 cores over 1, local, {names[-1]}", gain, "times"))
    return found


def histories(sizes: Sequence[int], engines: Sequence[str] = ("local, 1 core", "spark, 2 cores")) -> list[Figure]:
    """Logs of 100,000 records a partition with a history of every record: what the driver holds, and what it costs."""
    found = []
    batch = BATCHES["16 KiB"]
    for events in sizes:
        with tempfile.TemporaryDirectory(prefix="odradek-bench-") as folder:
            total = events // 2 * 109 * REPLICAS * 13 // 10  # whole partitions: the last one may not fit
            replicas, _, _ = write_replicas(
                Path(folder), plain(batch), total, segment_bytes=min(total // 4, 11_000_000)
            )
            path = Path(folder) / "history.jsonl"
            write_history(path, replicas, batch, events)
            for engine in engines:
                taken = command(replicas, *ENGINES[engine], "--history", str(path))
                assert json.loads(taken.output)["history_events"] == events, taken.output[:500]
                what = f"{engine}, history of {events:,} events"
                found += [
                    Figure(BENCH, what, taken.own_peak_mib, "MiB RSS driver", 1024),
                    Figure(BENCH, what, taken.peak_mib, "MiB RSS"),
                    Figure(BENCH, what, events / taken.cpu_s, "events/s CPU"),
                ]
    return found


def figures(quick: bool) -> list[Figure]:
    """Speed of the audit by batch size, and of whole commands over 1 GB."""
    local_only = {name: options for name, options in ENGINES.items() if name.startswith("local")}
    return passes(quick) + commands({"1 GB": GB}, local_only if quick else ENGINES)


def main() -> None:
    """Measure, then print one table."""
    arguments = argparse.ArgumentParser(description=figures.__doc__)
    arguments.add_argument("--quick", action="store_true", help="smaller inputs, no Spark")
    arguments.add_argument("--json", action="store_true", help="print JSON instead of a table")
    arguments.add_argument("--large", action="store_true", help="whole commands over 1 GB and 10 GB, nothing else")
    arguments.add_argument("--spark-only", action="store_true", help="with --large: without the local engine")
    arguments.add_argument("--executors", action="store_true", help="Spark's threads and executors, nothing else")
    arguments.add_argument("--histories", metavar="N,N", help="with histories of so many events, nothing else")
    given = arguments.parse_args()
    if given.histories:
        found = histories([int(text) for text in given.histories.split(",")])
    elif given.executors:
        found = commands({"1 GB": GB}, EXECUTORS)
    elif given.large:
        engines = {name: options for name, options in ENGINES.items() if "spark" in name or not given.spark_only}
        found = commands({"1 GB": GB, "10 GB": 10 * GB}, engines)
    else:
        found = figures(given.quick)
    show(found, as_json=given.json)


if __name__ == "__main__":
    main()
