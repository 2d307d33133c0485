"""`odradek log` where the package of a codec is not installed: what nobody has read is not called sound."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from odradek_proto.compression import Codec
from odradek_proto.records import encode_batch

from tests.cli.conftest import Run
from tests.cli.test_log_commands import NAME, batch, replica

PLAIN = batch(0, [b"a"])
REMEDY = "zstd needs zstandard: pip install 'odradek[compression]'"


@pytest.fixture
def compressed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A replica with two batches in zstd, whose package is missing."""
    zstd = [
        encode_batch([(1, b"k", b"v" * 99, ())], base_offset=offset, leader_epoch=0, codec=Codec.ZSTD)
        for offset in (1, 2)
    ]
    directory = replica(tmp_path / "b1/orders-0", PLAIN, *zstd)
    monkeypatch.setitem(sys.modules, "zstandard", None)
    return directory


def test_batches_that_are_not_decoded_are_inconclusive(odradek: Run, compressed: Path) -> None:
    """verify counts them, and names the first one, the codec and the remedy; code 1, as an audit has it."""
    said = f"2 batches were not decoded; the first: {compressed / NAME}: byte {len(PLAIN)}, offset 1: {REMEDY}"
    for place in (compressed, compressed.parent, compressed / NAME):
        outcome = odradek("log", "verify", str(place), code=1)
        assert "no problems" not in outcome.out
        assert outcome.out.endswith(": inconclusive, 2 batches were not decoded\n")
        assert outcome.err == f"odradek: inconclusive: {said}\n"
    report = json.loads(odradek("log", "verify", str(compressed), "--json", code=1).out)
    first = {"file": str(compressed / NAME), "position": len(PLAIN), "offset": 1}
    assert report["problems"] == []
    assert report["not_decoded"]["batches"] == 2
    assert report["not_decoded"]["first"].items() >= first.items()
    assert REMEDY in report["not_decoded"]["first"]["sentence"]


def test_a_problem_counts_for_more_than_what_is_not_decoded(odradek: Run, compressed: Path) -> None:
    """Code 3, and both are told; where all was decoded --json says so."""
    file = compressed / NAME
    file.write_bytes(file.read_bytes()[:-1])
    outcome = odradek("log", "verify", str(compressed), code=3)
    assert outcome.out.endswith(": 1 problem, 1 batch was not decoded\n")
    assert REMEDY in outcome.err
    file.write_bytes(PLAIN)
    report = json.loads(odradek("log", "verify", str(compressed), "--json", code=0).out)
    assert report["not_decoded"] == {"batches": 0, "first": None}


def test_a_dump_that_cannot_show_records_has_not_succeeded(odradek: Run, compressed: Path) -> None:
    """Their place says why, code 1; without --records nothing is to be decoded, nor by a comparison of bytes."""
    outcome = odradek("log", "dump", str(compressed), "--records", code=1)
    assert outcome.out.count(f"error: not decoded: {REMEDY}") == 2
    odradek("log", "dump", str(compressed), code=0)
    other = replica(compressed.parents[1] / "b2/orders-0", (compressed / NAME).read_bytes())
    odradek("log", "diff", str(compressed), str(other), code=0)
