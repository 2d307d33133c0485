"""Short lives of a log directory, told to a recorder: everything that changes a disk is in one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek_broker.storage.settings import LogSettings

from odradek_chaos.worlds.simulated.crash.drivers import SMALL, Driver, LogDriver, QuorumDriver


def appends_and_rolls(it: LogDriver) -> None:
    it.append(3, 0)
    it.flush()
    it.append(4, 1, records=2)
    it.checkpoint()
    it.append(3, 1, size=700)
    it.roll()
    it.append(2, 2)
    it.flush_and_checkpoint()
    it.append(3, 3)


def rolls_after_flushes(it: LogDriver) -> None:
    """A segment is complete, and on the disk, before anybody knows that it is; its indexes are written later."""
    it.append(5, 0)
    it.flush_and_checkpoint()
    it.roll()
    it.append(2, 0)
    it.append(2, 1)
    it.flush()
    it.roll()
    it.checkpoint()
    it.append(1, 1)


def truncations(it: LogDriver) -> None:
    it.append(10, 0)
    it.flush_and_checkpoint()
    it.append(5, 2)
    it.truncate(12)
    it.append(3, 3)
    it.flush_and_checkpoint()
    it.truncate(3)
    it.append(8, 5, records=2)
    it.truncate(8)
    it.append(2, 6)
    it.flush()


def second_thoughts(it: LogDriver) -> None:
    """What is cut and written anew was on the disk as it was before."""
    it.append(22, 0)
    it.flush_and_checkpoint()
    it.append(3, 1)
    it.wait_long()
    it.truncate(4)
    it.append(11, 2, records=2, size=50)
    it.flush_and_checkpoint()
    it.append(2, 3)
    it.roll()
    it.append(2, 4)
    it.flush_and_checkpoint()


def rewritten_ends(it: LogDriver) -> None:
    """What is cut fits, by offsets and epochs, below what is written in its place, and above it."""
    it.append(4, 0)
    it.flush_and_checkpoint()
    it.append(1, 1)
    it.wait_long()
    it.truncate(4)
    it.append(1, 2)
    it.roll()
    it.append(1, 4)
    it.wait_long()
    it.truncate(4)
    it.append(1, 3)
    it.roll()
    it.append(2, 5)
    it.flush_and_checkpoint()


def flushes_before_rolls(it: LogDriver) -> None:
    """All batches of a segment are on the disk before it is complete; of its indexes an old version is."""
    it.append(12, 0)
    it.wait_long()
    it.truncate(1)
    it.append(4, 1, records=2, size=50)
    it.flush_and_checkpoint()
    it.roll()
    it.append(2, 1)
    it.flush_and_checkpoint()
    it.append(1, 1)


def restarts(it: LogDriver) -> None:
    it.append(10, 0)
    it.flush_and_checkpoint()
    it.append(2, 1)
    it.restart_at(40)
    it.append(6, 2)
    it.flush_and_checkpoint()
    it.restart_at(0)
    it.append(3, 3)
    it.roll()
    it.append(1, 3)
    it.checkpoint()
    it.flush()


def retention(it: LogDriver) -> None:
    it.append(12, 0)
    it.flush_and_checkpoint()
    it.append(4, 1)
    it.retain(9)
    it.append(3, 2)
    it.flush()
    it.retain(19)
    it.append(2, 2)
    it.checkpoint()


def clean_ends(it: LogDriver) -> None:
    it.append(7, 0)
    it.stop(clean=True)
    it.start()
    it.append(3, 1)
    it.stop(clean=True)
    it.start()
    it.append(2, 1)
    it.start()
    it.append(2, 2)
    it.stop(clean=True)


def deletion(it: LogDriver) -> None:
    it.append(20, 0)
    it.flush_and_checkpoint()
    it.retain(13)
    it.checkpoint()
    it.delete()
    it.open_log()
    it.mark("create again")
    it.append(2, 0)
    it.flush()
    it.append(16, 0)
    it.checkpoint()


def compactions(it: LogDriver) -> None:
    it.append(12, 0, keys=3, size=80)
    it.flush_and_checkpoint()
    it.append(3, 1, keys=5)
    it.roll()
    it.append(2, 1, keys=2)
    it.flush_and_checkpoint()
    it.clean()
    it.append(9, 2, keys=4, size=80)
    it.roll()
    it.flush()
    it.clean()
    it.append(2, 2, keys=1)
    it.stop(clean=True)
    it.start()
    it.roll()
    it.clean()
    it.append(1, 2, keys=1)


def compactions_of_cut_logs(it: LogDriver) -> None:
    """Records are cut, by an unclean election, where a cleaner is about to put in what it made of them."""
    for epoch, until in enumerate(("begin", "exchange")):
        it.append(16, 3 * epoch, keys=3, size=80)
        it.flush_and_checkpoint()
        it.roll()
        it.clean(until=until)
        it.truncate(it.log.segments[0].base_offset + 3)
        it.append(8, 3 * epoch + 1, keys=3, size=80)
        it.roll()
        it.append(1, 3 * epoch + 1, keys=3)
        it.flush_and_checkpoint()
        it.clean()


def votes(it: QuorumDriver) -> None:
    it.vote(1, 2)
    it.vote(2, -1)
    it.append(3)
    it.vote(7, 3)
    it.flush()
    it.start()
    it.vote(8, 1)


def metadata_truncations(it: QuorumDriver) -> None:
    it.append(14)
    it.flush()
    it.vote(3, 2)
    it.truncate(11)
    it.append(3)
    it.truncate(4)
    it.append(9)
    it.flush()
    it.start()
    it.append(2)


def metadata_rewritten_ends(it: QuorumDriver) -> None:
    """As in a log of data; the batch that is cut is the last one of its segment."""
    it.append(10)
    it.flush()
    it.append(1, epoch=1)
    it.wait_long()
    it.truncate(10)
    it.append(3, epoch=2)
    it.flush()
    it.append(1, epoch=2)


def metadata_snapshots(it: QuorumDriver) -> None:
    it.append(12)
    it.flush()
    it.take()
    it.append(6)
    it.flush()
    it.take()
    it.start_log_at(18)
    it.append(3)
    it.flush()
    it.start()
    it.append(2)


def metadata_installs(it: QuorumDriver) -> None:
    it.append(7)
    it.flush()
    it.install(35)
    it.append(4)
    it.flush()
    it.take()
    it.install(52)
    it.append(2)
    it.flush()


LOG_STORIES: Mapping[str, Callable[[LogDriver], None]] = {
    story.__name__: story
    for story in (
        appends_and_rolls,
        rolls_after_flushes,
        truncations,
        second_thoughts,
        rewritten_ends,
        flushes_before_rolls,
        restarts,
        retention,
        clean_ends,
        deletion,
        compactions,
        compactions_of_cut_logs,
    )
}
QUORUM_STORIES: Mapping[str, Callable[[QuorumDriver], None]] = {
    story.__name__: story
    for story in (votes, metadata_truncations, metadata_rewritten_ends, metadata_snapshots, metadata_installs)
}


def told(name: str, settings: LogSettings = SMALL) -> Driver:
    """Tell the story of this name to the end. Raises `KeyError`."""
    if name in LOG_STORIES:
        log = LogDriver(settings)
        LOG_STORIES[name](log)
        return log
    quorum = QuorumDriver(settings)
    QUORUM_STORIES[name](quorum)
    return quorum
