"""Which compacted log is cleaned next, and how far: by dirty ratio, lags and what is stable (K-86)."""

from __future__ import annotations

import pytest
from odradek_broker.core.cleaning import Cleanable, CompactionSettings, SegmentFacts, assess, dirtiest, groups

DAY_MS = 86_400_000
NOW_MS = 10 * DAY_MS


def segments(*sizes: int) -> list[SegmentFacts]:
    """Ten offsets each; the first one holds records of the first day, and so on."""
    return [
        SegmentFacts(10 * place, 10 * place + 10, size, place * DAY_MS, (place + 1) * DAY_MS - 1)
        for place, size in enumerate(sizes)
    ]


@pytest.mark.parametrize(
    ("first_dirty", "stable", "settings", "expected"),
    [
        (0, 100, CompactionSettings(), (0, 40, 0, 400, True)),
        (20, 100, CompactionSettings(), (20, 40, 200, 200, False)),
        (20, 100, CompactionSettings(0.49), (20, 40, 200, 200, True)),
        (20, 39, CompactionSettings(0.1), (20, 30, 200, 100, True)),
        (15, 100, CompactionSettings(), (15, 40, 100, 300, True)),
        (0, 9, CompactionSettings(), (0, 0, 0, 0, False)),
        (90, 100, CompactionSettings(), (0, 40, 0, 400, True)),
        (0, 100, CompactionSettings(min_compaction_lag_ms=8 * DAY_MS), (0, 10, 0, 100, True)),
        (20, 100, CompactionSettings(max_compaction_lag_ms=8 * DAY_MS), (20, 40, 200, 200, False)),
        (20, 100, CompactionSettings(max_compaction_lag_ms=7 * DAY_MS), (20, 40, 200, 200, True)),
    ],
    ids=[
        "all of it is dirty",
        "half is, which is not more than the ratio",
        "more than the ratio",
        "only what is stable counts",
        "a segment that was cleaned in part is dirty",
        "nothing is stable",
        "a checkpoint above the log's end is of another log",
        "too young",
        "old, and not too old",
        "too old to wait",
    ],
)
def test_how_dirty_a_log_is(
    first_dirty: int, stable: int, settings: CompactionSettings, expected: tuple[int, int, int, int, bool]
) -> None:
    """First dirty offset, end of what may be cleaned, clean bytes, dirty bytes, and whether a cleaner is wanted."""
    found = assess(segments(100, 100, 100, 100), first_dirty, stable, settings, NOW_MS - DAY_MS // 2)
    assert found == Cleanable(*expected)


def test_the_dirtiest_of_those_that_want_it_is_next() -> None:
    """Whoever is not dirty enough waits, and whoever has nothing to clean."""
    found = {
        "small": Cleanable(0, 10, 10, 90, True),
        "large": Cleanable(0, 10, 500, 900, True),
        "content": Cleanable(0, 10, 0, 900, False),
        "empty": Cleanable(0, 0, 0, 0, True),
    }
    assert dirtiest(found) == "small"
    del found["small"], found["large"]
    assert dirtiest(found) is None


def test_segments_in_a_row_become_one_as_large_as_a_segment_may_be() -> None:
    """By their sizes before; one that is too large stays alone, and so does one whose offsets no index can span."""
    assert groups(segments(40, 40, 40, 200, 10, 10), 100) == [2, 1, 1, 2]
    far = SegmentFacts(1 << 31, (1 << 31) + 1, 10)
    assert groups([*segments(10), far], 100) == [1, 1]
    assert groups([], 100) == []
