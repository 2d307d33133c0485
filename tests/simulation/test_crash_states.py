"""Power losses at every moment of what storage does, with every disk that they may leave (R-239, ALICE of OSDI'14)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from odradek_broker.core.cleaning import Revision, revise
from odradek_broker.core.quorum.messages import SnapshotId
from odradek_broker.storage.atomic import TEMPORARY_SUFFIX, replace_file
from odradek_broker.storage.cleaning import round as cleaning_round
from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.log import Log
from odradek_broker.storage.metadata_snapshots import MetadataSnapshots
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.segments import Segments
from odradek_broker.storage.settings import LogSettings
from odradek_chaos.worlds.simulated.crash.drivers import BEFORE_ACK, SMALL
from odradek_chaos.worlds.simulated.crash.explorer import Exploration, Explorer
from odradek_chaos.worlds.simulated.crash.runs import record_seed
from odradek_chaos.worlds.simulated.crash.stories import LOG_STORIES, QUORUM_STORIES, told
from odradek_proto.records import OpenBatch
from odradek_proto.transport.ports import Files

from tests.seeds import unless_torture

STORIES = [*LOG_STORIES, *QUORUM_STORIES]
# What ends where depends on them.
SEGMENT_SIZES = unless_torture((200, 700), (150, 200, 250, 300, 400, 500, 600, 700, 800, 1100, 1300))
MODES = {"default": SMALL, "before-ack": BEFORE_ACK}


def lose_power(name: str, settings: LogSettings = SMALL, *, points: int | None = None, **effort: Any) -> Exploration:
    """Of a story, with as much effort as `Explorer` is told."""
    driver = told(name, settings)
    return Explorer(driver.bench, **effort).explore(driver.operations, points)


def do_nothing(*_: object) -> None:
    """Instead of something that must be done."""


# --- what storage survives -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", sorted(MODES))
@pytest.mark.parametrize("name", STORIES)
def test_every_crash_of_a_story_is_recovered_from(name: str, mode: str) -> None:
    """A few disks at many moments of it, and some of them lose power while they are recovered."""
    result = lose_power(name, MODES[mode], per_point=3, points=unless_torture(4, 9), inside=0.05, points_inside=1)
    assert not result.findings, "\n".join(map(str, result.findings))
    assert result.states > 5


def cut_without_fsync(segment: Segment) -> None:
    """Whoever cuts is killed before the flush, each time; and who comes next finds the file as it should be."""
    if segment.file.size() != segment.size:
        segment.file.truncate(segment.size)


def segments_of(size: int) -> LogSettings:
    return LogSettings(segment_bytes=size, index_interval_bytes=0, segment_ms=1 << 60)


def undo_cuts(name: str, segment_bytes: int, points: int | None, wanted: str | None = None) -> Exploration:
    return lose_power(name, segments_of(segment_bytes), per_point=4, points=points, wanted=wanted)


@pytest.mark.parametrize(
    ("name", "segment_bytes", "points"),
    [
        ("second_thoughts", 500, unless_torture(30, None)),
        pytest.param("truncations", 200, unless_torture(60, None), marks=pytest.mark.slow),
    ],
)
def test_a_cut_that_is_undone_under_the_next_segment_is_done_again(
    monkeypatch: pytest.MonkeyPatch, name: str, segment_bytes: int, points: int | None
) -> None:
    """The log is cut inside of a segment and goes on in a new one at once; the power loss takes the cut alone.

    So it is only after a kill between the cut and its flush, which comes at once.
    """
    monkeypatch.setattr(Segment, "drop_garbage", cut_without_fsync)
    result = undo_cuts(name, segment_bytes, points)
    assert not result.findings, "\n".join(map(str, result.findings))
    assert result.states > 200


def test_a_cut_that_stays_undone_under_the_next_segment_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where a start believes the segment below the recovery point to its end."""
    rebuild = Segment.rebuild_indexes

    def rebuild_to_the_end(segment: Segment, end_offset: int | None = None) -> int:
        return rebuild(segment)

    monkeypatch.setattr(Segment, "drop_garbage", cut_without_fsync)
    monkeypatch.setattr(Segment, "rebuild_indexes", rebuild_to_the_end)
    sentence = "a segment begins at 4, the one before it ends at 5"
    found = [str(finding) for finding in undo_cuts("second_thoughts", 500, 60, sentence).findings]
    assert any(sentence in each for each in found), found


@pytest.mark.slow
def test_crashes_of_a_real_run_are_recovered_from() -> None:
    """A broker in a cluster that is killed, stopped, cut off and loses power: some moments of its life."""
    operations, bench = record_seed(2)
    result = Explorer(bench, per_point=5).explore(operations, 25)
    assert not result.findings, "\n".join(map(str, result.findings))
    assert result.states > 30


def test_a_real_run_without_fsync_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same broker with a disk that is never asked to flush its logs, although the broker says that they are."""
    monkeypatch.setattr(Segment, "fsync", do_nothing)
    operations, bench = record_seed(2)
    sentence = "was promised"
    explored = Explorer(bench, per_point=5, wanted=sentence).explore(operations, 40)
    found = [str(each) for each in explored.findings]
    assert any(sentence in each for each in found), found


def lose_newest(batch: OpenBatch, newest: object, *more: Any, **named: Any) -> Revision:
    """A cleaner that drops the newest record of a key, too."""
    return revise(batch, lambda key: 1 << 60, *more, **named)


@pytest.mark.parametrize(
    ("name", "place", "broken", "sentence"),
    [
        ("compactions", (Log, "flush_directory"), do_nothing, "index says"),
        ("compactions", (cleaning_round, "revise"), lose_newest, "the newest record of the key"),
        ("compactions_of_cut_logs", (Segments, "settle"), do_nothing, "was promised"),
    ],
)
def test_a_careless_cleaner_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, place: tuple[object, str], broken: object, sentence: str
) -> None:
    """Names that change before the ones of before are gone for good; the newest value of a key; a cut log."""
    monkeypatch.setattr(*place, broken)
    assert_noticed(name, sentence)


@pytest.mark.slow
def test_very_many_crash_states_are_recovered_from(capsys: pytest.CaptureFixture[str]) -> None:
    """All stories with some disks at many moments, with segments of other sizes, and a real run; `make torture` has
    every moment."""
    total = Exploration()
    points, per_point, recoveries = unless_torture((12, 2, 0.004), (None, 6, 0.0005))
    for name in STORIES:
        for settings in MODES.values():
            lose_power(name, settings, per_point=per_point, points=points, inside=recoveries, result=total)
        for size in SEGMENT_SIZES:
            lose_power(name, segments_of(size), seed=size, per_point=3, points=6, result=total)
    for seed in range(100, unless_torture(101, 103)):
        operations, bench = record_seed(seed)
        Explorer(bench, seed=seed, per_point=8, result=total).explore(operations, 60)
    with capsys.disabled():
        print(f"\n{total.states} crash states at {total.points} moments, {total.recoveries} recoveries interrupted")
    assert not total.findings, "\n".join(map(str, total.findings))
    assert total.states > unless_torture(2_000, 30_000)


# --- what would be noticed -------------------------------------------------------------------------------------------

CHECKPOINTS, VOTES = "odradek_broker.storage.checkpoint_file", "odradek_broker.runtime.quorum.state_file"


def replace_without_directory_fsync(files: Files, directory: str, name: str, content: bytes, **_: bool) -> None:
    file = files.open(f"{directory}/{name}{TEMPORARY_SUFFIX}", create=True)
    file.truncate(0)
    file.pwritev([content], 0)
    file.fsync()
    files.rename(f"{directory}/{name}{TEMPORARY_SUFFIX}", f"{directory}/{name}")


def replace_without_content_fsync(files: Files, directory: str, name: str, content: bytes, **_: bool) -> None:
    replace_file(files, directory, name, content, durable=False)
    files.fsync_dir(directory)


def write_in_place(files: Files, directory: str, name: str, content: bytes, **_: bool) -> None:
    file = files.open(f"{directory}/{name}", create=True)
    file.truncate(0)
    file.pwritev([content], 0)
    file.fsync()
    files.fsync_dir(directory)


@pytest.mark.parametrize(
    ("mutant", "module", "name", "sentence"),
    [
        (replace_without_directory_fsync, CHECKPOINTS, "appends_and_rolls", "recovery-point-offset-checkpoint is gone"),
        (replace_without_directory_fsync, VOTES, "votes", "quorum-state is older than promised"),
        (replace_without_content_fsync, CHECKPOINTS, "appends_and_rolls", "checkpoint is neither old nor new"),
        (replace_without_content_fsync, VOTES, "votes", "quorum-state is neither old nor new"),
        (write_in_place, CHECKPOINTS, "appends_and_rolls", "checkpoint is neither old nor new"),
        (write_in_place, VOTES, "votes", "quorum-state is neither old nor new"),
    ],
)
def test_a_careless_replacement_is_noticed(
    mutant: Callable[..., None], module: str, name: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints and votes: no fsync of the directory, or of the content, or written in place."""
    monkeypatch.setattr(f"{module}.replace_file", mutant)
    assert_noticed(name, sentence)


def complete_without_fsync(snapshots: MetadataSnapshots, snapshot: SnapshotId) -> None:
    path = snapshots.path(snapshot)
    snapshots._files.rename(path + ".part", path)
    snapshots._files.fsync_dir(snapshots.directory)


roll = Segments.roll


def roll_without_a_mark(segments: Segments, base_offset: int, created_ms: int) -> Segment:
    old, was_dirty = segments.active, segments.active.dirty
    new = roll(segments, base_offset, created_ms)
    old.dirty = was_dirty
    return new


def remove_without_fsync(segments: Segments, keep: int) -> None:
    for segment in reversed(segments.all[keep:]):
        segment.remove()
    segments.directory_dirty = True
    segments._replace(segments.all[:keep])


flush_files = Log._flush_files


def flush_without_directory(log: Log) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(type(log._files), "fsync_dir", do_nothing)
        flush_files(log)


@pytest.mark.parametrize(
    ("owner", "method", "mutant", "name", "sentence"),
    [
        (Segment, "fsync", do_nothing, "appends_and_rolls", "was promised"),
        (Segment, "fsync", do_nothing, "metadata_snapshots", "was promised"),
        (Segment, "fsync_indexes", do_nothing, "second_thoughts", "the index says"),
        (Segment, "drop_garbage", cut_without_fsync, "rewritten_ends", "was not written behind the one before it"),
        (Segments, "_remove_newest", remove_without_fsync, "rewritten_ends", "was not written behind"),
        (Segments, "roll", roll_without_a_mark, "flushes_before_rolls", "the index says"),
        (Log, "_flush_files", flush_without_directory, "appends_and_rolls", "was promised"),
        (LogDirectory, "_lower_recovery_point", do_nothing, "truncations", "damage below the recovery point"),
        (LogDirectory, "_forget_checkpoints", do_nothing, "deletion", "was promised"),
        (MetadataSnapshots, "complete", complete_without_fsync, "metadata_snapshots", "neither old nor new"),
    ],
)
def test_a_missing_precaution_is_noticed(
    owner: type, method: str, mutant: object, name: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No fsync before the recovery point moves, or of a cut, checkpoints that outlive what they speak of, and so on."""
    monkeypatch.setattr(owner, method, mutant)
    assert_noticed(name, sentence)


def assert_noticed(name: str, sentence: str) -> None:
    """At some moments of the story, as it mostly is; or else somewhere in all of it."""
    for points in (20, None):
        found = [str(each) for each in lose_power(name, per_point=12, points=points, wanted=sentence).findings]
        if any(sentence in each for each in found):
            return
    pytest.fail(f"none of {found} says {sentence!r}")
