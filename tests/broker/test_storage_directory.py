"""A log directory: whose it is, its checkpoints, and its clean end (R-2, R-3, R-142, R-150, R-233)."""

from __future__ import annotations

import random

import pytest
from odradek_broker.storage.directory import METADATA_PARTITION, LogDirectory
from odradek_broker.storage.errors import InconsistentTopicId, LogDirectoryFailed, LogDirectoryLocked, WrongLogDirectory
from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.formats import decode_meta_properties, decode_offset_checkpoint
from odradek_proto.records import read_header
from odradek_proto.topics import TopicPartition

from tests.broker.log_bench import ORDERS, START_MS, batch, read_all

PATH = "/data"
ONE, TWO = bytes(range(16)), bytes(range(16, 32))
SETTINGS = LogSettings(segment_bytes=1000)


class Machine:
    """A disk, and brokers that come and go on it."""

    def __init__(self, path: str = PATH) -> None:
        self.path = path
        self.disk = SimDisk(random.Random(1))
        self.files = SimFiles(self.disk, SimLoop(), random.Random(1))

    def open(self, node_id: int = 1, cluster_id: str | None = "cluster") -> LogDirectory:
        return LogDirectory.open(
            self.files, self.path, node_id=node_id, cluster_id=cluster_id, wall_ms=START_MS, rng=random.Random(2)
        )

    def kill(self) -> None:
        self.files.detach()
        self.files = SimFiles(self.disk, SimLoop(), random.Random(1))

    def offsets(self, name: str) -> dict[TopicPartition, int]:
        return decode_offset_checkpoint(self.disk.read(f"{PATH}/{name}-checkpoint"))


@pytest.fixture
def machine() -> Machine:
    return Machine()


def open_log(directory: LogDirectory, partition: TopicPartition = ORDERS, topic_id: bytes = ONE) -> Log:
    return directory.open_log(partition, topic_id, SETTINGS, wall_ms=START_MS)


def fill(log: Log, count: int, epoch: int = 0) -> None:
    for _ in range(count):
        made = batch(log.end_offset, epoch=epoch)
        log.append([read_header(made)], [made])
        log.state.producers.update(read_header(made))
    log.state.log_end_offset = log.end_offset


def begin(machine: Machine, count: int, *, high_watermark: int = 0) -> tuple[LogDirectory, Log]:
    """A process with a log of so many records."""
    directory = machine.open()
    log = open_log(directory)
    fill(log, count)
    log.state.high_watermark = high_watermark
    return directory, log


def purge(directory: LogDirectory, wall_ms: int) -> None:
    """What the rim does by the clock: remove what is due, two files at a time."""
    for path in directory.due(wall_ms):
        while directory.remove_some(path, 2):
            pass


def test_one_process_at_a_time(machine: Machine) -> None:
    """A second one is told which file stands in its way; the lock goes with the process."""
    directory = machine.open()
    with pytest.raises(LogDirectoryLocked, match=r"/data.*\.lock"):
        machine.open()
    directory.close(clean=False)
    machine.open()
    machine.kill()
    machine.open()


def test_a_directory_knows_whose_it_is(machine: Machine) -> None:
    """Another node's or cluster's is refused by both names, and its lock is free again."""
    directory = machine.open()
    made = decode_meta_properties(machine.disk.read(f"{PATH}/meta.properties"))
    assert made == directory.properties
    assert (made.node_id, made.cluster_id) == (1, "cluster")
    assert made.directory_id is not None
    directory.close(clean=True)
    with pytest.raises(WrongLogDirectory, match="node 1, not to node 2"):
        machine.open(node_id=2)
    with pytest.raises(WrongLogDirectory, match="cluster cluster, not to cluster other"):
        machine.open(cluster_id="other")
    assert machine.open(cluster_id=None).properties == made


def test_a_clean_end_is_known_once(machine: Machine) -> None:
    """The file is gone as soon as it was read, so that a crash counts as unclean (R-233)."""
    directory = machine.open()
    assert (directory.clean, directory.previous_broker_epoch) == (False, -1)
    directory.close(clean=True, broker_epoch=57)
    assert machine.disk.read(f"{PATH}/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":57}'
    again = machine.open()
    assert (again.clean, again.previous_broker_epoch) == (True, 57)
    machine.kill()
    assert machine.open().clean is False


@pytest.mark.parametrize(("count", "counts_as_clean"), [(3, False), (0, True)])
def test_a_partition_that_was_removed_meanwhile_makes_a_stop_unclean(
    machine: Machine, count: int, counts_as_clean: bool
) -> None:
    """Whoever lost committed records tells no controller of its clean stop: others are asked first (R-150, R-152)."""
    directory, log = begin(machine, count, high_watermark=count)
    directory.close(clean=True, broker_epoch=57)
    machine.files.remove_tree(log.directory)
    again = machine.open()
    assert (again.clean, again.previous_broker_epoch) == (True, 57 if counts_as_clean else -1)
    assert open_log(again).end_offset == 0
    assert dict(again.promised) == ({} if counts_as_clean else {log.topic_partition: count})
    again.close(clean=True, broker_epoch=58)
    assert machine.open().previous_broker_epoch == 58


def test_a_partition_that_was_deleted_just_before_a_kill_makes_no_later_stop_unclean(machine: Machine) -> None:
    """Its entry in the checkpoints is dropped at the next start, and does not come back with the next checkpoint."""
    directory, log = begin(machine, 3, high_watermark=3)
    directory.write_high_watermarks()
    directory.write_recovery_points()
    directory.delete_log(log, START_MS)
    machine.kill()
    again = machine.open()
    assert again.promised == {}
    again.close(clean=True, broker_epoch=58)
    assert machine.offsets("replication-offset") == machine.offsets("recovery-point-offset") == {}
    assert machine.open().previous_broker_epoch == 58


def test_a_failure_while_loading_leaves_no_clean_mark(machine: Machine) -> None:
    """The next start must recover (LG-21)."""
    directory, _ = begin(machine, 3)
    directory.close(clean=True, broker_epoch=1)
    again = machine.open()
    machine.disk.inject("read", "orders-0", times=1)
    with pytest.raises(OSError, match="orders-0"):
        open_log(again)
    again.close(clean=True, broker_epoch=2)
    third = machine.open()
    assert not third.clean
    assert len(read_all(open_log(third))) == 3


def test_offsets_come_back_from_the_checkpoints(machine: Machine) -> None:
    """High watermark, recovery point, and a log start inside of a segment (R-2, R-3). (PA-51, R-31)"""
    directory = machine.open()
    orders, other = open_log(directory), open_log(directory, TopicPartition("other", 3), TWO)
    fill(orders, 20)
    fill(other, 2)
    orders.state.high_watermark = 17
    orders.advance_log_start(5)
    orders.flush()
    directory.write_high_watermarks()
    directory.write_recovery_points()
    directory.write_log_starts()
    assert machine.offsets("replication-offset") == {ORDERS: 17, other.topic_partition: 0}
    assert machine.offsets("recovery-point-offset") == {ORDERS: 20, other.topic_partition: 0}
    assert machine.offsets("log-start-offset") == {ORDERS: 5}
    fill(orders, 3)
    machine.kill()
    again = open_log(machine.open())
    state = again.state
    assert (state.log_start_offset, state.high_watermark, state.log_end_offset) == (5, 17, 23)
    assert again.recovery_point == 20
    assert state.topic_id == ONE


def test_a_checkpoint_keeps_what_is_not_open_yet(machine: Machine) -> None:
    """Logs are opened one after the other, and files are written meanwhile."""
    directory = machine.open()
    for place in range(3):
        fill(open_log(directory, TopicPartition("orders", place)), place + 1)
    directory.close(clean=True)
    again = machine.open()
    open_log(again, TopicPartition("orders", 1))
    again.write_recovery_points()
    assert machine.offsets("recovery-point-offset") == {
        TopicPartition("orders", place): place + 1 for place in range(3)
    }


def test_a_checkpoint_keeps_what_could_not_be_opened(machine: Machine) -> None:
    """One damaged log is that replica's failure (R-86): what was deleted from it does not come back with its repair."""
    directory, log = begin(machine, 20, high_watermark=17)
    log.advance_log_start(5)
    directory.close(clean=True, broker_epoch=1)
    again = machine.open()
    with pytest.raises(InconsistentTopicId):
        open_log(again, topic_id=TWO)
    again.write_high_watermarks()
    again.write_recovery_points()
    again.write_log_starts()
    assert machine.offsets("replication-offset") == {ORDERS: 17}
    assert machine.offsets("recovery-point-offset") == {ORDERS: 20}
    assert machine.offsets("log-start-offset") == {ORDERS: 5}
    repaired = open_log(again).state
    assert (repaired.log_start_offset, repaired.high_watermark) == (5, 17)
    again.close(clean=True, broker_epoch=2)
    assert machine.open().clean


def test_a_cut_below_the_checkpoint_is_written_first(machine: Machine) -> None:
    """After a kill in the middle, recovery begins at the cut (R-230)."""
    directory, log = begin(machine, 20)
    log.flush()
    directory.write_recovery_points()
    log.truncate(7)
    assert machine.offsets("recovery-point-offset") == {ORDERS: 7}
    fill(log, 30)
    log.truncate(12)
    assert machine.offsets("recovery-point-offset") == {ORDERS: 7}


def test_the_metadata_log_is_no_data_partition(machine: Machine) -> None:
    """It lies here and is opened like one, but is not listed."""
    directory = machine.open()
    fill(open_log(directory, METADATA_PARTITION, b""), 1)
    fill(open_log(directory), 1)
    assert directory.partitions() == {ORDERS: ONE}
    directory.close(clean=True)
    assert machine.offsets("recovery-point-offset") == {METADATA_PARTITION: 1, ORDERS: 1}
    assert open_log(machine.open(), METADATA_PARTITION, b"").end_offset == 1


def test_a_log_of_another_topic_is_not_opened(machine: Machine) -> None:
    """Its name now belongs to a topic with another id (R-150)."""
    directory = machine.open()
    for place, topic_id in enumerate((ONE, TWO)):
        open_log(directory, TopicPartition("orders", place), topic_id)
    directory.close(clean=True)
    with pytest.raises(InconsistentTopicId):
        open_log(machine.open(), TopicPartition("orders", 1), ONE)


def test_a_deleted_partition_makes_room_at_once_and_goes_later(machine: Machine) -> None:
    """A topic of the same name can come back before the files are gone."""
    directory, log = begin(machine, 5)
    directory.delete_log(log, START_MS)
    assert directory.partitions() == {}
    fresh = open_log(directory, topic_id=TWO)
    assert fresh.end_offset == 0
    doomed = [name for name in machine.files.list(PATH) if name.endswith("-delete")]
    assert len(doomed) == 1
    assert doomed[0].startswith("orders-0.")
    purge(directory, START_MS + 59_999)
    assert doomed[0] in machine.files.list(PATH)
    purge(directory, START_MS + 60_000)
    assert doomed[0] not in machine.files.list(PATH)


def test_a_partition_can_be_deleted_when_the_disk_is_full(machine: Machine) -> None:
    """That is when somebody needs the room: nothing is written first for a log that goes."""
    directory, log = begin(machine, 5)
    machine.disk.quota = machine.disk.used
    directory.delete_log(log, START_MS)
    purge(directory, START_MS + 60_000)
    assert machine.disk.used < machine.disk.quota
    assert not [name for name in machine.files.list(PATH) if name.startswith("orders-0")]


def test_an_interrupted_deletion_is_ended_by_the_next_process(machine: Machine) -> None:
    """What a crash left is removed."""
    directory = machine.open()
    directory.delete_log(open_log(directory), START_MS)
    machine.kill()
    again = machine.open()
    purge(again, START_MS)
    assert not [name for name in machine.files.list(PATH) if name.endswith("-delete")]


def test_what_only_sounds_like_ours_is_left_alone(machine: Machine) -> None:
    """A file is no deleted partition, and a directory no half-written checkpoint: neither stops a broker."""
    machine.files.makedirs(f"{PATH}/mine.tmp")
    machine.files.open(f"{PATH}/notes-delete", create=True)
    directory = machine.open()
    assert directory.next_due_ms is None
    purge(directory, START_MS)
    assert machine.files.exists(f"{PATH}/notes-delete")
    assert machine.files.is_dir(f"{PATH}/mine.tmp")


def test_a_stray_is_kept_under_another_name_for_its_time(machine: Machine) -> None:
    """Nobody deletes data at once because of a mistake in the metadata; the time goes on over a start."""

    def strays() -> list[str]:
        return [name for name in machine.files.list(PATH) if name.endswith("-stray")]

    directory, log = begin(machine, 5)
    directory.set_aside_stray(log, START_MS)
    purge(directory, START_MS + 10**9)  # it is not told for how long
    assert len(strays()) == 1
    assert directory.partitions() == {}
    directory.close(clean=True)
    machine.files.makedirs(f"{PATH}/orders-1.mine-stray")
    again = machine.open()
    again.stray_retention_ms = 1_000
    again.find_strays(START_MS + 500)
    purge(again, START_MS + 999)
    assert len(strays()) == 2
    purge(again, START_MS + 1_000)
    assert strays() == ["orders-1.mine-stray"]


def test_bad_checkpoints_mean_more_recovery(machine: Machine) -> None:
    """A file that cannot be read is as good as none, and the logs are not believed."""
    directory, _ = begin(machine, 3)
    directory.close(clean=True)
    machine.files.open(f"{PATH}/recovery-point-offset-checkpoint").pwritev([b"rubbish"], 0)
    again = machine.open()
    assert not again.clean
    assert open_log(again).recovery.batches == 3


@pytest.mark.parametrize("seed", range(6))
def test_a_clean_mark_that_was_read_does_not_survive_a_power_loss(machine: Machine, seed: int) -> None:
    """R-233, R-239: its removal is flushed before any log is opened; else what was written since would be believed."""
    machine.open().close(clean=True, broker_epoch=57)
    assert machine.open().clean
    machine.files.detach()
    machine.disk.power_loss(random.Random(seed))
    machine.kill()
    assert not machine.open().clean


def test_a_clean_mark_that_nobody_can_read_is_none(machine: Machine) -> None:
    """R-233: neither the logs nor an epoch are believed."""
    machine.open().close(clean=True, broker_epoch=57)
    machine.files.open(f"{PATH}/.kafka_cleanshutdown").pwritev([b"rubbish"], 0)
    again = machine.open()
    assert (again.clean, again.previous_broker_epoch) == (False, -1)


def test_a_failed_log_leaves_no_clean_mark_and_the_others_close(machine: Machine) -> None:
    """One bad flush, and the next start recovers everything (R-238)."""
    directory = machine.open()
    orders, other = open_log(directory), open_log(directory, TopicPartition("other", 0), TWO)
    fill(orders, 2)
    fill(other, 2)
    machine.disk.inject("fsync", "orders-0")
    with pytest.raises(LogDirectoryFailed):
        orders.flush()
    assert directory.failed is orders.failed
    directory.close(clean=True, broker_epoch=3)
    again = machine.open()
    assert not again.clean
    assert open_log(again, TopicPartition("other", 0), TWO).end_offset == 2


def test_a_log_that_begins_anew_owes_nothing_to_a_deleted_one_of_its_name(machine: Machine) -> None:
    """A topic is deleted and made again: after a kill the checkpoints speak of the new log, which is all there."""
    directory = machine.open()
    old = open_log(directory)
    fill(old, 20)
    old.flush()
    old.advance_log_start(13)
    old.state.high_watermark = 20
    directory.write_high_watermarks()
    directory.write_recovery_points()
    directory.write_log_starts()
    directory.delete_log(old, START_MS)
    new = open_log(directory, topic_id=TWO)
    fill(new, 5)
    new.flush()
    written = read_all(new)
    machine.kill()
    directory = machine.open()
    assert (directory.log_starts, directory.recovery_points, directory.high_watermarks) == ({}, {}, {})
    again = open_log(directory, topic_id=TWO)
    assert (again.log_start_offset, again.end_offset) == (0, 5)
    assert again.state.high_watermark == 0
    assert read_all(again) == written


# --- What a checkpoint says of a log that was cut or begun anew ------------------------------------------------------


def cut(log: Log, offset: int) -> None:
    """A truncation with what the core does after it."""
    state = log.state
    state.log_end_offset = end = log.truncate(offset)
    state.log_start_offset, state.high_watermark = min(state.log_start_offset, end), min(state.high_watermark, end)


def test_a_log_start_above_a_cut_does_not_drop_what_is_appended_then(machine: Machine) -> None:
    """DeleteRecords, an unclean election, a kill: flushed records below the old log start are all there (R-235)."""
    directory = machine.open()
    log = directory.open_log(ORDERS, ONE, LogSettings(segment_bytes=1 << 20), wall_ms=START_MS)
    fill(log, 120, epoch=0)
    log.state.high_watermark = 120
    log.advance_log_start(100)
    log.state.log_start_offset = 100
    directory.write_log_starts()
    assert machine.offsets("log-start-offset") == {ORDERS: 100}
    cut(log, 50)
    assert machine.offsets("log-start-offset") == {ORDERS: 50}
    fill(log, 30, epoch=1)
    log.flush()
    directory.write_recovery_points()
    machine.kill()
    log = open_log(machine.open())
    assert (log.log_start_offset, log.end_offset) == (50, 80)
    assert len(read_all(log)) == 30


def test_a_high_watermark_above_a_cut_does_not_commit_what_is_appended_then(machine: Machine) -> None:
    """An old checkpoint may cost progress; it says of no record that it is committed when it is not (R-31)."""
    directory, log = begin(machine, 120, high_watermark=120)
    directory.write_high_watermarks()
    cut(log, 50)
    assert machine.offsets("replication-offset") == {ORDERS: 50}
    fill(log, 60, epoch=1)
    log.state.high_watermark = 60
    machine.kill()
    state = open_log(machine.open()).state
    assert (state.high_watermark, state.log_end_offset) == (50, 110)


@pytest.mark.parametrize("name", ["replication-offset", "log-start-offset"])
def test_a_checkpoint_is_lowered_before_the_cut(machine: Machine, name: str) -> None:
    """A power loss in the middle of the cut finds what it needs; a cut above what it says writes nothing."""
    directory, log = begin(machine, 40, high_watermark=30)
    log.advance_log_start(20)
    directory.write_high_watermarks()
    directory.write_log_starts()
    file = machine.disk.file(f"{PATH}/{name}-checkpoint")
    log.truncate(35)
    assert machine.disk.file(f"{PATH}/{name}-checkpoint") is file
    machine.disk.inject("fsync", ".log")
    with pytest.raises(LogDirectoryFailed):
        log.truncate(12)
    machine.disk.power_loss()
    assert machine.offsets(name) == {ORDERS: 12}


def test_a_restart_of_a_log_lowers_only_what_lies_above_it(machine: Machine) -> None:
    """It ends where it begins (R-231): nothing is committed above; a log start below stays as it is for a crash."""
    directory, log = begin(machine, 40, high_watermark=40)
    log.advance_log_start(5)
    directory.write_high_watermarks()
    directory.write_log_starts()
    log.restart_at(25)
    assert machine.offsets("replication-offset") == {ORDERS: 25}
    assert machine.offsets("log-start-offset") == {ORDERS: 5}


@pytest.mark.parametrize("seed", range(8))
def test_an_older_checkpoint_does_not_come_back_behind_a_correction(machine: Machine, seed: int) -> None:
    """Its name may be renamed and not flushed yet: then both that a start may find are looked at (R-31)."""
    directory, log = begin(machine, 40, high_watermark=40)
    directory.write_high_watermarks()
    log.state.high_watermark = 10  # the follower of a new leader
    draft = directory.draft_high_watermarks()
    draft.write()
    assert draft.publish()
    cut(log, 20)
    machine.kill()
    machine.disk.power_loss(random.Random(seed))
    assert machine.offsets("replication-offset") == {ORDERS: 10}


@pytest.mark.parametrize("below", [40, 20])
def test_a_draft_from_before_a_cut_gives_way(machine: Machine, below: int) -> None:
    """Also when the checkpoint that there is says no more than the cut; what was drafted is removed."""
    directory, log = begin(machine, 50, high_watermark=10)
    directory.write_high_watermarks()
    log.state.high_watermark = 45
    draft = directory.draft_high_watermarks()
    draft.write()
    cut(log, below)
    assert not draft.publish()
    assert machine.offsets("replication-offset") == {ORDERS: 10}
    assert not [name for name in machine.files.list(PATH) if "draft" in name]


def test_a_clean_end_leaves_no_draft(machine: Machine) -> None:
    """Somebody may be told to stop between the two steps in threads."""
    directory, _ = begin(machine, 5)
    directory.draft_high_watermarks().write()
    directory.draft_log_starts().write()
    assert [name for name in machine.files.list(PATH) if "draft" in name]
    directory.close(clean=True)
    assert not [name for name in machine.files.list(PATH) if "draft" in name]


def test_a_jitter_above_the_time_of_a_segment_rolls_no_log_with_each_batch(machine: Machine) -> None:
    """It counts modulo `segment.ms`, as in Kafka: neither it nor a shorter time that is set later does harm (R-225)."""
    directory = machine.open()
    settings = LogSettings(segment_ms=3_600_000, segment_jitter_ms=1 << 62)
    log = directory.open_log(ORDERS, ONE, settings, wall_ms=START_MS)
    fill(log, 20)
    log.use(LogSettings(segment_ms=60_000, segment_jitter_ms=1 << 62))
    fill(log, 20)
    assert len(log.segments) == 1


def test_each_log_has_a_jitter_of_its_own_below_the_largest(machine: Machine) -> None:
    """Drawn when the log is opened, so that logs that were created together do not roll together (R-225)."""
    directory = machine.open()
    settings = LogSettings(segment_jitter_ms=1_000)
    drawn = {
        directory.open_log(TopicPartition("orders", each), ONE, settings, wall_ms=START_MS).segment_jitter_ms
        for each in range(8)
    }
    assert len(drawn) > 1
    assert all(0 <= each < 1_000 for each in drawn)


def test_every_directory_on_the_way_to_a_new_log_directory_is_there_for_good() -> None:
    """Otherwise a power loss takes all logs with the name of a directory far above them."""
    machine = Machine(path="/srv/odradek/data")
    machine.open()
    for parent, name in (("/", "srv"), ("/srv", "odradek"), ("/srv/odradek", "data")):
        assert name in machine.disk.directory(parent).durable, name


def test_a_clean_end_keeps_a_log_start_within_a_segment(machine: Machine) -> None:
    """What was deleted does not come back (R-142, R-160), although no checkpoint was written while it ran."""
    directory, log = begin(machine, 5)
    log.advance_log_start(3)
    directory.close(clean=True)
    again = open_log(machine.open())
    assert (again.log_start_offset, again.end_offset) == (3, 5)
