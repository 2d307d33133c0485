"""`odradek log` on segments that are called by other offsets than those at which they begin."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from odradek_proto import formats
from odradek_proto.topics import TopicPartition

from tests.cli.conftest import Run
from tests.cli.test_log_commands import all_find, batch

TEN = [b"v"] * 10


def log(directory: Path, **segments: list[bytes]) -> Path:
    """A partition's directory; `s600=[...]` is the segment that is called by the offset 600."""
    directory.mkdir(parents=True)
    for name, batches in segments.items():
        (directory / formats.segment_file_name(int(name[1:]))).write_bytes(b"".join(batches))
    return directory


def test_a_segment_that_begins_below_its_name_is_a_finding(odradek: Run, tmp_path: Path) -> None:
    """Alone, in its directory, behind one that ends where it begins, and to a comparison; nothing is called missing."""
    said = "the segment's name says 600, its first batch is at 500"
    right = log(tmp_path / "b1/orders-0", s490=[batch(490, TEN)], s500=[batch(500, TEN)])
    wrong = log(tmp_path / "b2/orders-0", s490=[batch(490, TEN)], s600=[batch(500, TEN)])
    alone = log(tmp_path / "b3/orders-0", s600=[batch(500, TEN)])
    odradek("log", "verify", str(right), code=0)
    segment = wrong / formats.segment_file_name(600)
    for words in (["verify", wrong], ["verify", segment], ["verify", alone], ["diff", right, wrong]):
        outcome = odradek("log", *map(str, words), code=3)
        assert (outcome.out.count(said), "missing" in outcome.out, ": 1 problem\n" in outcome.out) == (1, False, True)
    (problem,) = json.loads(odradek("log", "verify", str(wrong), "--json", code=3).out)["problems"]
    assert (problem["file"], problem["position"], problem["offset"]) == (str(segment), 0, 500)


@pytest.mark.parametrize("first", [500, 505, 510, None])
def test_a_name_below_the_end_of_the_segment_before_it_is_a_finding(
    odradek: Run, tmp_path: Path, first: int | None
) -> None:
    """Whatever is in the file: the same offsets again, those that follow, or nothing. It is one problem."""
    again = [] if first is None else [batch(first, TEN)]
    wrong = log(tmp_path / "b1/orders-0", s500=[batch(500, TEN)], s505=again)
    said = "the segment's name says 505, its first batch is at 500"
    if first != 500:
        said = "the segment's name says 505, the segment before it goes on to 509"
    all_find(odradek, (["verify", wrong], ["diff", wrong, _copy(wrong)]), said, ": 1 problem\n")


def _copy(directory: Path) -> Path:
    copy = log(directory.parents[1] / "copy/orders-0")
    for file in directory.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    return copy


@pytest.mark.parametrize("topic", ["orders", "__consumer_offsets"])
def test_a_cleaner_excuses_a_late_beginning_and_no_early_one(odradek: Run, tmp_path: Path, topic: str) -> None:
    """It takes records out, so a segment may begin above its name; it puts none in below it."""
    late = log(tmp_path / f"b1/{topic}-0", s500=[batch(503, TEN)], s600=[batch(640, TEN)])
    early = log(tmp_path / f"b2/{topic}-0", s500=[batch(499, TEN)])
    overlapping = log(tmp_path / f"b3/{topic}-0", s500=[batch(503, TEN)], s510=[batch(640, TEN)])
    for directory in (late, early, overlapping):
        cleaned = {TopicPartition(topic, 0): 1000}
        (directory.parent / formats.CLEANER_OFFSET_CHECKPOINT).write_bytes(formats.encode_offset_checkpoint(cleaned))
    odradek("log", "verify", str(late), code=0)
    all_find(odradek, [["verify", early]], "the segment's name says 500, its first batch is at 499")
    all_find(odradek, [["verify", overlapping]], "the segment's name says 510, the segment before it goes on to 512")
