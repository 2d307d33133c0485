"""A history that is compared with a full read in portions has the verdict of one that is compared at once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from odradek_audit.inputs.history import ACK, ERROR, SEND, Event
from odradek_chaos.harness import portions
from odradek_chaos.harness.portions import Portions
from odradek_chaos.harness.verify import Record, verify

TOPIC, PARTITIONS, WRITERS, NUMBERS = "orders", 2, 2, 40


def written(rng: random.Random) -> tuple[list[Event], list[Record]]:
    """What two writers were told of all their records, and a log that keeps every promise."""
    events, records = list[Event](), list[Record]()
    for partition in range(PARTITIONS):
        values = [
            f"w{writer}/{partition}/{number} padding".encode() for number in range(NUMBERS) for writer in range(WRITERS)
        ]
        for offset, value in enumerate(values):
            records.append((TOPIC, partition, offset, value))
            events.append(Event(SEND, TOPIC, partition, value))
            outcome = ERROR if rng.random() < 0.1 else ACK
            events.append(Event(outcome, TOPIC, partition, value, offset=offset if outcome == ACK else -1))
    return events, records


def damaged(rng: random.Random, records: list[Record]) -> list[Record]:
    """Some records gone, twice, in the place of another, in the other partition, and never sent."""
    made = list(records)
    for _ in range(rng.randrange(4)):
        at, other = rng.randrange(len(made)), rng.randrange(len(made))
        topic, partition, offset, value = made[at]
        match rng.randrange(5):
            case 0:
                del made[at]
            case 1:
                made.append((topic, partition, 10 * NUMBERS, value))
            case 2 if made[other][1] == partition:
                made[at], made[other] = (*made[at][:3], made[other][3]), (*made[other][:3], value)
            case 3:
                made.append((topic, 1 - partition, 10 * NUMBERS, value))
            case _:
                made[at] = (topic, partition, offset, rng.choice((b"w9/0/7", b"no number", b"w0/1/")))
    return sorted(made, key=lambda record: record[1:3])


def test_numbers_that_nobody_counts_to_cost_nothing(tmp_path: Path) -> None:
    """A stranger's values look like a writer's, with more portions before them than anybody can look at, and with more
    digits than a file's name or a number may have: never sent, and told at once."""
    laid_down = Portions(tmp_path)
    laid_down.add_records((TOPIC, 0, offset, b"w1/0/" + b"7" * digits) for offset, digits in enumerate((18, 300, 5000)))
    assert {name: each.count for name, each in laid_down.verify().anomalies.items()} == {"phantom": 3}


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 16])
def test_portions_find_what_is_found_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Whatever is lost, twice, in another place or never sent is counted alike; what stands before records that were
    sent earlier is seen across the borders of portions, too."""
    monkeypatch.setattr(portions, "NUMBERS", size)
    monkeypatch.setattr(portions, "BUFFERED", 10)
    found = set[str]()
    for seed in range(60):
        rng = random.Random(seed)
        events, records = written(rng)
        records = damaged(rng, records)
        directory = tmp_path / str(seed)
        directory.mkdir()
        laid_down = Portions(directory)
        laid_down.add_records(records[: len(records) // 2])  # the leaders changed
        laid_down.forget_records()
        laid_down.add_records(records)
        laid_down.add_events(events)
        whole, parts = verify(events, records), laid_down.verify()
        assert (parts.acknowledged, parts.read) == (whole.acknowledged, whole.read), seed
        assert parts.anomalies.keys() == whole.anomalies.keys(), seed
        for name in parts.anomalies.keys() - {"reordered"}:  # of two in the wrong order either may be called so
            assert parts.anomalies[name].count == whole.anomalies[name].count, (seed, name)
        found |= parts.anomalies.keys()
    assert found == {"lost", "duplicated", "misplaced", "phantom", "reordered"}
