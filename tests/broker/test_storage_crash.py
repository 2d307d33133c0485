"""Power loss and kills at every step of what a log does (R-239).

The disk is asked to stop before its n-th change, for every n; then it loses power, and the log is opened again. What
has to hold: everything below the durable recovery point is there, unchanged; everything else that is there was written
at that offset once; epochs and offsets rise; producer state is that of the log; and the log goes on.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from odradek_broker.core.partition.epochs import EpochCache
from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.settings import LogSettings
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_proto.records import read_header

from tests.broker.crashing_disk import CrashingFiles, PowerLost
from tests.broker.log_bench import ORDERS, START_MS, batch, read_all
from tests.seeds import seeds

TOPIC_ID = bytes(range(16))
STRIDE = 24


class Story:
    """A log directory with one partition, the few lines of a core, and a memory of everything that was written."""

    def __init__(self, disk: SimDisk, settings: LogSettings) -> None:
        self.disk = disk
        self.settings = settings
        self.written: dict[int, set[bytes]] = {}  # by base offset
        self.durable: list[bytes] = []  # must survive
        self.maximum_epoch = 0
        self.sequence = 0

    def start(self, steps: int = 1 << 60) -> None:
        self.files = CrashingFiles(self.disk, steps)
        self.directory = LogDirectory.open(
            self.files, "/data", node_id=1, cluster_id="c", wall_ms=START_MS, rng=random.Random(1)
        )
        self.log = self.directory.open_log(ORDERS, TOPIC_ID, self.settings, wall_ms=START_MS)

    def append(self, count: int, epoch: int, records: int = 1) -> None:
        for _ in range(count):
            state = self.log.state
            made = batch(self.log.end_offset, records, epoch=epoch, producer=(7, 0, self.sequence), size=30)
            header = read_header(made)
            if state.epochs.assign(epoch, header.base_offset):
                self.log.write_epochs(state.epochs.entries)
            self.written.setdefault(header.base_offset, set()).add(made)
            self.log.append([header], [made[:16], memoryview(made)[16:]])
            state.producers.update(header)
            self.sequence += records

    def truncate(self, offset: int) -> None:
        self.durable = [each for each in self.durable if read_header(each).next_offset <= offset]
        end = self.log.truncate(offset)
        self.log.state.epochs.truncate_from_end(end)
        self.log.write_epochs(self.log.state.epochs.entries)
        if self.settings.flush_before_ack:
            self.promise()

    def restart_at(self, offset: int) -> None:
        self.durable = []
        self.log.restart_at(offset)
        self.log.state.epochs.clear()
        self.log.write_epochs(())

    def retain(self, offset: int) -> None:
        self.durable = [each for each in self.durable if read_header(each).base_offset >= offset]
        self.log.advance_log_start(offset)
        self.log.delete_before_log_start(START_MS)
        self.directory.write_log_starts()
        self.log.purge(START_MS + 100_000)

    def flush(self) -> None:
        self.log.flush()
        self.promise()
        self.directory.write_recovery_points()

    def promise(self) -> None:
        """From here on, what is flushed must survive."""
        self.durable = [each for each in read_all(self.log) if read_header(each).next_offset <= self.log.recovery_point]

    def check(self) -> None:
        """Everything that has to hold of a log that was just opened."""
        log, found = self.log, read_all(self.log)
        log._tail.clear()
        kept = set(found)
        lost = [read_header(each).base_offset for each in self.durable if each not in kept]
        assert not lost, f"durable batches at {lost} are gone from {log.log_start_offset}..{log.end_offset}"
        offset, epoch = log.log_start_offset, -1
        producers, epochs = ProducerStates(), EpochCache()
        for each in found:
            header = read_header(each)
            assert each in self.written[header.base_offset]
            assert header.base_offset == offset, (header.base_offset, offset)
            assert header.leader_epoch >= epoch
            offset, epoch = header.next_offset, header.leader_epoch
            producers.update(header)
            epochs.assign(header.leader_epoch, header.base_offset)
        state = log.state
        assert log.end_offset == offset == state.log_end_offset
        assert log.log_start_offset <= log.recovery_point <= log.end_offset
        epochs.truncate_from_start(log.log_start_offset)
        if found:
            assert state.epochs.entries == epochs.entries
        else:
            assert all(entry.offset == offset for entry in state.epochs.entries)
        mine, theirs = producers.get(7), state.producers.get(7)
        if mine is not None:
            assert theirs is not None
            assert (mine.last_sequence, mine.batches[-1]) == (theirs.last_sequence, theirs.batches[-1])


def appends_and_rolls(story: Story) -> None:
    story.append(6, 0)
    story.flush()
    story.append(9, 1, records=2)
    story.log.roll(START_MS)
    story.append(3, 2)
    story.flush()
    story.append(4, 3)


def truncations(story: Story) -> None:
    story.append(20, 0)
    story.flush()
    story.append(9, 2)
    story.truncate(25)
    story.append(6, 3)
    story.flush()
    story.truncate(4)
    story.append(12, 5, records=2)
    story.truncate(15)
    story.append(3, 6)


def restarts_and_retention(story: Story) -> None:
    story.append(20, 0)
    story.flush()
    story.retain(11)
    story.append(5, 1)
    story.restart_at(40)
    story.append(12, 2)
    story.flush()
    story.retain(52)
    story.append(3, 2)


def clean_ends(story: Story) -> None:
    for epoch in range(3):
        story.append(7, epoch)
        story.directory.close(clean=True, broker_epoch=epoch)
        story.durable = sorted(each for kept in story.written.values() for each in kept)
        story.start(story.files.left)
        assert story.directory.previous_broker_epoch == epoch
        assert story.log.recovery.segments == 0


STORIES: list[Callable[[Story], None]] = [appends_and_rolls, truncations, restarts_and_retention, clean_ends]
SETTINGS = {
    "default": LogSettings(segment_bytes=700, index_interval_bytes=150),
    "before-ack": LogSettings(segment_bytes=700, index_interval_bytes=150, flush_before_ack=True),
}


def crash(tell: Callable[[Story], None], settings: LogSettings, steps: int, seed: int, power: bool) -> bool:
    """Tell a story until the disk stops, lose power, check; returns false when the story came to its end."""
    disk = SimDisk(random.Random(seed))
    story = Story(disk, settings)
    stopped = False
    try:
        story.start(steps)
        tell(story)
    except PowerLost:
        stopped = True
    story.files.detach()
    if power:
        disk.power_loss(random.Random(seed))
    story.start()
    story.check()
    epoch = max(story.log.state.epochs.latest_epoch, 10)
    story.append(8, epoch + 1)
    story.flush()
    expected = read_all(story.log)
    story.directory.close(clean=bool(seed % 2), broker_epoch=9)
    story.start()
    assert read_all(story.log) == expected
    return stopped


@pytest.mark.parametrize("first", seeds(STRIDE, every_day=1, slow=6))
@pytest.mark.parametrize("mode", sorted(SETTINGS))
@pytest.mark.parametrize("power", [True, False], ids=["power-loss", "kill"])
@pytest.mark.parametrize("tell", STORIES, ids=lambda tell: tell.__name__)
def test_a_crash_at_every_step_loses_nothing_durable(
    tell: Callable[[Story], None], power: bool, mode: str, first: int
) -> None:
    """For every 24th step of the story (the slow tests have others), with one of the disks that may be left."""
    steps = first
    while crash(tell, SETTINGS[mode], steps, seed=steps * 31 + 7, power=power):
        steps += STRIDE
    assert steps > 50
