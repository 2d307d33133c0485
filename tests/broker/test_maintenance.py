"""What a broker does by the clock goes in small steps, so that heartbeats do not wait for it (R-163)."""

from __future__ import annotations

import gc
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from odradek import NewTopic
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.runtime.offloading import finish
from odradek_broker.runtime.replicas import maintenance
from odradek_broker.storage.log import Log
from odradek_broker.storage.segment import Segment
from odradek_broker.storage.settings import LogSettings
from odradek_broker.testing.files import BrokerFiles
from odradek_broker.testing.unflushed import Unflushed
from odradek_chaos.worlds.simulated.cluster.cluster import LOG_DIRECTORY
from odradek_proto.records import read_header
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Files

from tests.broker.log_bench import START_MS, batch
from tests.broker.sim_brokers import NODE, SimBrokers
from tests.playing import plays

TINY = TopicPartition("tiny", 0)
SEGMENTS = 150
SLOW_MS = 40.0  # of a flush or removal in a thread: so that every one can be seen
TINY_SEGMENTS = {"internal.segment.bytes": "100", "retention.bytes": "-1", "file.delete.delay.ms": "12000"}
SELDOM = BrokerSettings(log_retention_check_interval_ms=5000)
OFTEN = BrokerSettings(log_retention_check_interval_ms=5000, log_segment_delete_delay_ms=5000)


class Brokers(SimBrokers):
    """One broker with a topic of many segments, and somebody who looks at it all the time."""

    def __init__(self, settings: BrokerSettings = OFTEN) -> None:
        super().__init__(settings=settings)

    async def begin(self) -> None:
        self.start(NODE)
        await self.as_admin(
            lambda admin: admin.create_topics([NewTopic(TINY.topic, partitions=1, configs=TINY_SEGMENTS)])
        )
        await self.write(TINY.topic, SEGMENTS)
        self.machines[NODE].disk.slow_ms = SLOW_MS

    async def set(self, **configs: str) -> None:
        changed = {name.replace("_", "."): value for name, value in configs.items()}
        await self.as_admin(lambda admin: admin.alter_configs("topic", TINY.topic, set=changed))

    async def delete(self) -> None:
        await self.as_admin(lambda admin: admin.delete_topics([TINY.topic]))

    async def largest_step(self, count: Callable[[], int], until: int) -> int:
        """The largest fall of a count between two looks, very shortly one after the other, until it is so low."""
        largest, before = 0, count()
        while before > until:
            await self.loop.sleep(SLOW_MS / 2)
            now = count()
            largest, before = max(largest, before - now), now
        return largest

    def segments(self) -> int:
        return len(self.replica(TINY).log.segments)

    def files(self, part: str) -> int:
        """Of the topic, by a part of their paths."""
        files = self.disk_files
        directories = [f"{LOG_DIRECTORY}/{name}/" for name in files.list(LOG_DIRECTORY) if name.startswith(str(TINY))]
        return sum(part in path + name for path in directories for name in files.list(path))


def at_work(story: Callable[[Brokers], Coroutine[Any, Any, None]], settings: BrokerSettings = OFTEN) -> None:
    """Play it with a broker as `Brokers` has it."""
    brokers = Brokers(settings)

    async def told() -> None:
        await brokers.begin()
        await story(brokers)

    brokers.play(told())


@plays(at_work)
async def test_retention_gives_up_one_segment_at_a_time(brokers: Brokers) -> None:
    """Many segments that are due at once do not keep the loop from anything else."""
    assert brokers.segments() >= SEGMENTS
    await brokers.set(retention_bytes="0")
    assert await brokers.largest_step(brokers.segments, until=1) == 1


@plays(at_work)
async def test_retention_reads_a_few_cold_segments_at_a_time(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their largest timestamps come from the disk after a start, in the loop: others have their turn in between."""
    reads: list[int] = []
    know_times = Segment._know_times

    def counted(segment: Segment) -> int:
        reads[-1] += 1
        return know_times(segment)

    def waited(files: Files, function: Callable[[], object]) -> Awaitable[object]:
        reads.append(0)
        return finish(files, function)

    brokers.machines[NODE].kill()
    await brokers.loop.sleep(10)
    brokers.machines[NODE].disk.slow_ms = 0
    brokers.start(NODE)
    await brokers.until(lambda: TINY in brokers.hosted(NODE), limit_ms=5000)
    for segment in brokers.hosted(NODE)[TINY].log.segments[:-1]:
        segment._times_known = False  # as after a clean stop
    reads.append(0)
    monkeypatch.setattr(Segment, "_know_times", counted)
    monkeypatch.setattr("odradek_broker.runtime.replicas.maintenance.finish", waited)
    await brokers.set(retention_bytes="0")
    await brokers.until(lambda: brokers.segments() == 1, limit_ms=60_000)
    assert sum(reads) > SEGMENTS // 2
    assert max(reads) <= 4


@plays(at_work)
async def test_files_of_given_up_segments_are_removed_in_pieces(brokers: Brokers) -> None:
    """One call into a thread removes so many files and no more: a stop waits for its end."""
    await brokers.set(retention_bytes="0")
    await brokers.largest_step(brokers.segments, until=1)
    assert brokers.files(".deleted") > 2 * maintenance.FILES_AT_ONCE
    step = await brokers.largest_step(lambda: brokers.files(".deleted"), until=0)
    assert 0 < step <= maintenance.FILES_AT_ONCE


@plays(at_work)
async def test_a_deleted_partition_is_removed_in_pieces(brokers: Brokers) -> None:
    """The same for the directory of a deleted topic."""
    await brokers.delete()
    assert brokers.files("-delete/") > 2 * maintenance.FILES_AT_ONCE
    step = await brokers.largest_step(lambda: brokers.files("-delete/"), until=0)
    assert 0 < step <= maintenance.FILES_AT_ONCE


@pytest.mark.parametrize("deleted", ["segments", "partition"])
@plays(partial(at_work, settings=SELDOM))
async def test_a_short_delay_of_a_topic_holds_at_once(brokers: Brokers, deleted: str) -> None:
    """Files go when their own `file.delete.delay.ms` is over, also while the broker's delay is far longer (R-163)."""

    brokers.machines[NODE].disk.slow_ms = 0
    await (brokers.set(retention_bytes="0") if deleted == "segments" else brokers.delete())
    part = ".deleted" if deleted == "segments" else "-delete/"
    await brokers.until(lambda: brokers.files(part) > 0, limit_ms=6000)
    await brokers.loop.sleep(11_000)
    assert brokers.files(part) > 0
    await brokers.until(lambda: brokers.files(part) == 0, limit_ms=2500)


@plays(partial(at_work, settings=SELDOM))
async def test_no_delay_is_no_busy_loop(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `file.delete.delay.ms=0` purges are some time apart, however many segments retention gives up."""
    purges: list[float] = []
    purge = maintenance.Maintenance._purge

    async def counted(self: maintenance.Maintenance) -> None:
        purges.append(brokers.loop.time() * 1000)
        await purge(self)

    monkeypatch.setattr(maintenance.Maintenance, "_purge", counted)

    await brokers.set(file_delete_delay_ms="0")
    await brokers.set(retention_bytes="0")
    await brokers.until(lambda: brokers.segments() == 1 and brokers.files(".deleted") == 0, limit_ms=60_000)
    apart = [later - earlier for earlier, later in pairwise(purges)]
    assert len(apart) > 10
    assert min(apart) >= maintenance.PURGES_APART_MS - 0.001


# --- Files that a log holds open, on a real disk ---------------------------------------------------------------------


class OnDisk:
    """A log of small segments, opened by a process that counts its files."""

    def __init__(self, directory: Path, *, clean: bool = True) -> None:
        self.files = BrokerFiles(Unflushed(directory))
        settings = LogSettings(segment_bytes=100)
        path = f"{directory}/{TINY}"
        self.log = Log.open(self.files, path, TINY, settings=settings, clean=clean, wall_ms=START_MS)

    def write(self, first: int, last: int) -> None:
        for offset in range(first, last):
            self.log.append([read_header(batch(offset))], [memoryview(batch(offset))])

    @property
    def opened(self) -> int:
        return len(self.files.opened)

    def close(self) -> None:
        self.log.close(clean=True)
        assert not self.files.opened
        self.files.close()


def test_a_flush_lets_go_of_the_indexes_of_complete_segments(tmp_path: Path) -> None:
    """Of a segment that was flushed only the log file stays open, or small segments would use up all descriptors."""
    made = OnDisk(tmp_path)
    made.write(0, 20)
    assert made.opened == 20 * 3
    made.log.close_indexes()
    assert made.opened == 20 * 3  # a flush in a thread may need them
    made.log.flush()
    made.log.close_indexes()
    assert made.opened == 20 + 2
    assert made.log.truncate(10) == 10
    made.write(10, 11)
    made.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_log_that_was_opened_again_holds_no_indexes_of_complete_segments(tmp_path: Path, clean: bool) -> None:
    """Nor do readers leave any open; what a recovery has made anew goes with the next flush."""
    before = OnDisk(tmp_path)
    before.write(0, 20)
    before.close()
    made = OnDisk(tmp_path, clean=clean)
    assert made.opened <= 20 + (2 if clean else 20 * 2)
    made.log.flush()
    made.log.close_indexes()
    made.log.read(7, 1000, 20)
    assert made.log.max_timestamp(20) is not None
    assert made.opened <= 20 + 2
    made.close()


def test_a_log_forgets_the_segments_that_it_gave_up(tmp_path: Path) -> None:
    """Given up or cut away, flushed or not: only those that there are stay in memory, with their indexes."""
    made = OnDisk(tmp_path)

    def held() -> int:
        return sum(type(each) is Segment and each.path.startswith(str(tmp_path)) for each in gc.get_objects())

    made.write(0, 40)
    made.log.flush()
    made.log.advance_log_start(30)
    made.log.delete_before_log_start(START_MS)
    made.write(40, 50)
    made.log.truncate(35)
    made.log.purge(START_MS + made.log.settings.file_delete_delay_ms)
    assert held() == len(made.log.segments) < 10
    made.close()


def test_padded_indexes_that_were_cut_while_reading_are_closed_again(tmp_path: Path) -> None:
    """Kafka pads the indexes of an active segment with zeros, and a kill leaves them so."""
    before = OnDisk(tmp_path)
    before.write(0, 20)
    before.close()
    indexes = sorted(tmp_path.rglob("*index"))
    sizes = [path.stat().st_size for path in indexes]
    for path in indexes:
        path.write_bytes(path.read_bytes() + bytes(480))
    made = OnDisk(tmp_path)
    for offset in range(20):
        made.log.read(offset, 1000, 20)
    assert made.log.max_timestamp(20) is not None
    assert made.opened <= 20 + 2
    assert [path.stat().st_size for path in indexes] == sizes
    made.close()
