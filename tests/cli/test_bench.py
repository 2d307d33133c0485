"""`odradek bench`, against a cluster that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.cli.conftest import Run
from tests.waiting import until

SHARES = ("p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms")


def test_all_that_is_written_is_read_and_both_are_measured(odradek: Run, bootstrap: str, odradek_topic: str) -> None:
    """Records, bytes and rates agree; of percentiles none is above a later one; reading has none without --live."""
    wrote = json.loads(odradek("bench", "produce", odradek_topic, "--count", "2000", "--size", "50", "--json").out)
    read = json.loads(odradek("bench", "consume", odradek_topic, "--json").out)
    assert [(facts["records"], facts["bytes"]) for facts in (wrote, read)] == [(2000, 100_000)] * 2
    shares = [wrote[name] for name in SHARES]
    assert shares == sorted(shares)
    assert shares[0] > 0
    assert [read[name] for name in SHARES] == [None] * len(SHARES)
    for facts in (wrote, read):
        assert facts["records_per_second"] == pytest.approx(facts["records"] / facts["seconds"], rel=0.05)
    some = odradek("bench", "consume", odradek_topic, "--count", "700")
    assert some.out.startswith("700 records read, 34.2 KiB in ")


def test_a_time_limit_ends_writing(odradek: Run, bootstrap: str, odradek_topic: str) -> None:
    """Without --count there is no other one; what was taken is waited for."""
    facts = json.loads(odradek("bench", "produce", odradek_topic, "--seconds", "0.2", "--json").out)
    assert facts["records"] > 0
    assert (facts["unknown"], facts["interrupted"]) == (0, False)


@pytest.mark.slow
def test_how_late_records_come_is_measured_live(odradek: Run, bootstrap: str, odradek_topic: str) -> None:
    """A reader of what is written from now on says how old records were when it had them."""
    words = [sys.executable, "-m", "odradek.cli.main", "bench", "consume", odradek_topic, "--live", "--count", "5"]
    reader = subprocess.Popen([*words, "--json"], stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        until(
            lambda: (odradek("produce", odradek_topic, "--count", "1", "-q"), reader.poll()), lambda told: told[1] == 0
        )
        assert reader.stdout is not None
        facts = json.loads(reader.stdout.read())
    finally:
        reader.kill()
        reader.communicate()
    assert facts["records"] == 5
    assert 0 <= facts["p50_ms"] <= facts["max_ms"] <= facts["seconds"] * 1000
    assert facts["max_ms"] > 0


def test_a_topic_that_is_not_there_is_named(odradek: Run, bootstrap: str, odradek_topic: str) -> None:
    """By both, with the nearest name."""
    for word in ("produce", "consume"):
        outcome = odradek("bench", word, odradek_topic + "x", "--count", "1")
        assert (outcome.code, f"did you mean '{odradek_topic}'?" in outcome.err) == (1, True), outcome
