"""Compares what Kafka's dump says of log directories with what `odradek log dump` says."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from odradek_broker.commands.log_rows import rows_of

from tests.interop.kafka.dump import READABLE, Dump, check_directories


def as_kafka_says(row: dict[str, Any]) -> dict[str, str]:
    """A row of ours with the words of Kafka's tool."""
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in row.items()}


def disagreements(found: Dump, suffix: str) -> list[str]:
    """Where Kafka's rows of the files with a suffix are not ours. Relative offsets become absolute, as Kafka says."""
    wrong = []
    for name, theirs in found.rows.items():
        if not name.endswith(suffix):
            continue
        theirs = [{word: each for word, each in row.items() if word != "deleteHorizonMs"} for row in theirs]
        ours = [as_kafka_says(row) for row in rows_of(Path(name))]
        for row in ours if suffix != ".log" else ():
            row["offset"] = str(int(Path(name).stem) + int(row.pop("relativeOffset")))
        wrong += [f"{name}: {a} here, {b} of Kafka" for a, b in zip(ours, theirs, strict=False) if a != b]
        if len(ours) != len(theirs):
            wrong.append(f"{name}: {len(ours)} rows here, {len(theirs)} of Kafka")
    return wrong


def producer_disagreements(found: Dump) -> list[str]:
    """The same for producer snapshots, whose words differ."""
    wrong = []
    for name, theirs in found.rows.items():
        if name.endswith(".snapshot"):
            ours = [(row["producerId"], row["producerEpoch"], row["lastOffset"]) for row in rows_of(Path(name))]
            said = [(int(row["producerId"]), int(row["producerEpoch"]), int(row["lastOffset"])) for row in theirs]
            wrong += [f"{name}: {ours} here, {said} of Kafka"] if ours != said else []
    return wrong


def check_against_kafka(classpath: str, roots: Iterable[Path], known: Iterable[str] = ()) -> Dump:
    """Let Kafka's tool read everything: no complaint but `known` ones, and every row is ours, too. Prints how many."""
    found = check_directories(classpath, roots)
    complaints = [each for each in found.complaints if not any(words in each for words in known)]
    assert not complaints, "\n".join(complaints[:20])
    for suffix in (".log", ".index", ".timeindex"):
        assert disagreements(found, suffix) == []
    assert producer_disagreements(found) == []
    counts = ", ".join(f"{found.count(suffix)} {suffix}" for suffix in READABLE)
    print(f"{counts}; {found.batches()} batches, {sum(found.records.values())} records")
    return found
