"""One round over a compacted log: what stays of it, byte for byte, and what readers, starts and indexes find then."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.cleaning import Cleanable, CompactionSettings, SegmentFacts, assess, dirtiest, groups
from odradek_broker.runtime.replicas.cleaner import LogCleaner
from odradek_broker.storage.cleaning.round import CleanedSegment, CleaningRound
from odradek_broker.storage.opening import KnownLog
from odradek_broker.storage.settings import LogSettings
from odradek_proto.checksum import crc32c
from odradek_proto.headers import DELETE_HORIZON
from odradek_proto.records import (
    Codec,
    ControlType,
    Record,
    decode_records,
    encode_batch,
    encode_control_batch,
    end_transaction_value,
    read_header,
)

from tests.broker.log_bench import START_MS, LogBench, opened
from tests.broker.replica_world import ME, ONE, World, answered, run
from tests.playing import plays

COMPACTED = LogSettings(
    segment_bytes=2_000, index_interval_bytes=100, segment_ms=1 << 60, compaction=CompactionSettings(0.0)
)
DAY_MS = 86_400_000


def bench(settings: LogSettings = COMPACTED) -> LogBench:
    return opened(settings, gaps=True)


def write(
    made: LogBench,
    *pairs: tuple[str, str | None],
    codec: Codec = Codec.NONE,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
) -> None:
    """One batch of keys and values, padded so that a few fill a segment."""
    end = made.log.end_offset
    rows = [
        (
            START_MS + end + place,
            key.encode(),
            None if value is None else value.ljust(150, ".").encode(),
            (("h", b"v"),),
        )
        for place, (key, value) in enumerate(pairs)
    ]
    made.append(
        encode_batch(
            rows,
            base_offset=end,
            leader_epoch=0,
            codec=codec,
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            transactional=transactional,
        )
    )


def clean(made: LogBench, *, wall_ms: int = START_MS, map_bytes: int = 1 << 20, first_dirty: int = 0) -> CleaningRound:
    """A whole round over all closed segments, each new one put in as the cleaner does it."""
    made.flush()
    log = made.log
    end = log.segments[-1].base_offset
    work = CleaningRound(
        made.files, log, first_dirty_offset=first_dirty, end_offset=end, wall_ms=wall_ms, map_bytes=map_bytes
    )
    for step in work.steps():
        if isinstance(step, CleanedSegment):
            put_in(made, step)
    made.cold()
    return work


def put_in(made: LogBench, step: CleanedSegment) -> None:
    replacement = made.log.replace(step.old, step.new)
    assert replacement.begin()
    replacement.exchange()
    replacement.finish()


def records(made: LogBench) -> list[Record]:
    return [record for batch in made.read_all() for record in decode_records(batch, read_header(batch))]


def values(made: LogBench) -> list[tuple[int, str, str | None]]:
    return [
        (each.offset, (each.key or b"").decode(), None if each.value is None else each.value.decode().rstrip("."))
        for each in records(made)
    ]


def newest(told: list[tuple[int, str, str | None]]) -> Mapping[str, tuple[int, str | None]]:
    return {key: (offset, value) for offset, key, value in told}


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_the_newest_record_of_each_key_stays_with_its_offset_and_time(codec: Codec) -> None:
    """Below the cleaned point there is one record of a key, above it all of them; nothing of a record changes."""
    made = bench()
    for turn in range(12):
        write(made, ("a", f"a{turn}"), (f"b{turn}", "once"), ("c", f"c{turn}"), codec=codec)
    before, whole = values(made), {each.offset: each for each in records(made)}
    made.log.roll(START_MS)
    size = made.log.size_bytes
    clean(made)
    after = values(made)
    assert newest(after) == newest(before)
    cleaned = [key for offset, key, _ in after]
    assert sorted(cleaned) == sorted(set(cleaned))
    assert all(each == whole[each.offset] for each in records(made))
    assert made.log.size_bytes < size / 2 or codec is not Codec.NONE


@pytest.mark.parametrize("clean_stop", [True, False])
def test_a_start_finds_the_log_as_it_was_cleaned(clean_stop: bool) -> None:
    """Ends, records, producers and indexes are the same after a recovery; segments are merged, and touch."""
    made = bench()
    for turn in range(30):
        write(made, ("a", f"a{turn}"), (f"b{turn % 3}", "some"), producer=(9, 0, 2 * turn))
    count = len(made.log.segments)
    made.log.roll(START_MS)
    write(made, ("z", "active"))
    clean(made)
    clean(made)  # what became small fits together now
    assert len(made.log.segments) < count / 2
    told, end = values(made), made.log.end_offset
    made.close(clean=clean_stop)
    made.log = made.log.open(
        made.files, made.log.directory, made.log.topic_partition, settings=COMPACTED,
        known=KnownLog(recovery_point=made.checkpoint, gaps=True), clean=clean_stop, wall_ms=START_MS,
    )  # fmt: skip
    assert (values(made), made.log.end_offset) == (told, end)
    assert made.log.recovery.cut_offset is None
    known = made.log.state.producers.get(9)
    assert known is not None
    assert known.last_sequence == 59
    for place, segment in enumerate(made.log.segments[:-1]):
        segment.know_indexes()
        assert [header for _, header in segment.batches()][-1].next_offset == made.log.segments[place + 1].base_offset


def test_a_tombstone_stays_for_delete_retention_after_the_first_cleaning_that_saw_it() -> None:
    """The first round stamps a horizon into the batch, and changes no timestamp; a later one removes it after that."""
    made = bench()
    for turn in range(6):
        write(made, ("gone", f"v{turn}"), ("kept", f"v{turn}"), (f"x{turn}", "v"))
    write(made, ("gone", None), ("y", "v"))
    offset, stamp = made.log.end_offset - 2, START_MS + made.log.end_offset - 2
    made.log.roll(START_MS)
    clean(made, wall_ms=START_MS)
    headers = [read_header(each) for each in made.read_all()]
    horizons = [each.base_timestamp for each in headers if each.attributes & DELETE_HORIZON]
    assert horizons == [START_MS + DAY_MS]
    assert [(each.offset, each.timestamp) for each in records(made) if each.key == b"gone"] == [(offset, stamp)]
    clean(made, wall_ms=START_MS + DAY_MS - 1)
    assert (offset, "gone", None) in values(made)
    clean(made, wall_ms=START_MS + DAY_MS)
    assert "gone" not in newest(values(made))
    assert {"kept", "y"} <= newest(values(made)).keys()


def test_the_last_batch_of_a_live_producer_stays_without_records() -> None:
    """Its sequence is known nowhere else after the loss of all snapshots."""
    made = bench()
    write(made, ("a", "1"), ("b", "1"), producer=(5, 3, 70))
    for turn in range(15):
        write(made, ("a", f"{turn}"), ("b", f"{turn}"))
    made.log.roll(START_MS)
    clean(made)
    first = read_header(made.read_all()[0])
    assert (first.producer_id, first.producer_epoch, first.last_sequence, first.record_count) == (5, 3, 71, 0)
    assert (first.base_offset, first.last_offset) == (0, 1)


def test_records_of_transactions_neither_go_nor_make_others_go() -> None:
    """They may have been aborted: what is older than they are could be the newest value that counts."""
    made = bench()
    write(made, ("a", "before"))
    write(made, ("a", "maybe"), producer=(5, 0, 0), transactional=True)
    for _ in range(12):
        write(made, ("b", "other"))
    made.log.roll(START_MS)
    clean(made)
    assert [value for _, key, value in values(made) if key == "a"] == ["before", "maybe"]


def test_a_map_that_is_full_ends_the_round_where_it_knows_all_keys() -> None:
    """What it did not read is dirty, and stays; round after round the whole log gets clean."""
    made = bench()
    for turn in range(40):
        write(made, (f"key {turn % 13}", f"{turn}"), ("often", f"{turn}"))
    before = newest(values(made))
    made.log.roll(START_MS)
    dirty = 0
    for turn in range(12):
        work = clean(made, map_bytes=1_000, first_dirty=dirty)
        assert newest(values(made)) == before, turn
        assert work.end_offset > dirty
        dirty = work.end_offset
        if dirty == made.log.segments[-1].base_offset:
            break
    assert turn > 1
    assert len(values(made)) < 2 * len(before)


def test_what_cannot_be_decoded_stays() -> None:
    """A client may have written it before the topic was compacted; its CRC is right."""
    made = bench()
    bad = bytearray(encode_batch([(START_MS, b"a", b"x" * 150, ())], base_offset=0, leader_epoch=0))
    bad[61] = 0x7E  # the record's length
    bad[17:21] = crc32c(bytes(bad[21:])).to_bytes(4, "big")
    made.append(bytes(bad))
    for turn in range(15):
        write(made, ("a", f"{turn}"))
    made.log.roll(START_MS)
    work = clean(made)
    assert made.read_all()[0] == bytes(bad)
    assert work.stats.undecodable_batches


@pytest.mark.parametrize(("first_dirty", "left"), [(0, []), (None, ["old"])])
def test_a_round_that_was_cut_off_begins_anew(first_dirty: int | None, left: list[str]) -> None:
    """What it did not reach is not clean: from its end on, the value below the tombstone would come back."""
    made = bench()
    for key, value in (*_fill("a"), ("K", "old"), *_fill("b"), ("K", None), *_fill("c")):
        write(made, (key, value))
    made.log.roll(START_MS)
    made.flush()
    end = made.log.segments[-1].base_offset
    work = CleaningRound(
        made.files, made.log, first_dirty_offset=0, end_offset=end, wall_ms=START_MS, map_bytes=1 << 20
    )
    put_in(made, next(step for step in work.steps() if isinstance(step, CleanedSegment)))
    work.drop_unfinished()
    made.cold()
    for day in (1, 3, 5):
        for key, value in _fill(f"d{day}"):
            write(made, (key, value))
        made.log.roll(START_MS)
        clean(made, wall_ms=START_MS + day * DAY_MS, first_dirty=end if first_dirty is None else first_dirty)
        end = made.log.segments[-1].base_offset
    assert [value for _, key, value in values(made) if key == "K"] == left


def _fill(key: str) -> list[tuple[str, str | None]]:
    return [(key, f"{key}{number}") for number in range(14)]


# --- What the cleaner of a broker may take: records that are stable, those of ended transactions among them ----------


KEYED = 40  # batches with one key, behind the transaction
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "1000"}


def transaction_and_more() -> bytes:
    """What a leader has whose directory was Kafka's: a transaction, its marker, and many values of one key."""
    written = encode_batch(
        [(0, b"k", b"v", ())], leader_epoch=0, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    written += encode_control_batch(
        ControlType.COMMIT,
        end_transaction_value(0),
        base_offset=1,
        leader_epoch=0,
        timestamp=0,
        producer_id=7,
        producer_epoch=0,
    )
    values = (
        encode_batch([(0, b"k", b"v" * 100, ())], base_offset=2 + place, leader_epoch=0) for place in range(KEYED)
    )
    return written + b"".join(values)


@plays(run)
async def test_a_transaction_that_has_ended_holds_up_no_cleaner(world: World) -> None:
    """Once its marker is below the high watermark, what follows is as stable as anything (PS-09)."""
    world.image.topic_configs["orders"] = CONFIGS
    await world.learn(ONE, 0)
    await answered(world, ONE, transaction_and_more(), epoch=0, high_watermark=2 + KEYED)
    replica = world.replica
    replica.log.flush()
    cleaner = LogCleaner(
        settings=BrokerSettings(node_id=ME),
        clock=world.clock,
        files=world.files,
        replicas=world.replicas,
        directory=world.replicas._directory,
        events=world.replicas.events,
        counters=world.replicas.counters,
    )
    before = replica.log.size_bytes
    assert await cleaner.clean_one()
    assert replica.log.size_bytes < before / 2


# --- Which compacted log is cleaned next, and how far: by dirty ratio, lags and what is stable (K-86) ----------------


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
