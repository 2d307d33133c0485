"""A rim without disk and network for the partition's core: a list of batches is the log, a dictionary the metadata.

Used by the transcripts and by the tests of the partition. It carries out what real storage carries out (R-230, R-231,
R-234, R-247), so that the core can be stepped by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from odradek_broker.core.metadata.image import BrokerRegistration, PartitionRegistration
from odradek_broker.core.partition.epochs import EpochCache, EpochEntry
from odradek_broker.core.partition.messages import ReplicaLog
from odradek_broker.core.partition.producers import ProducerStates
from odradek_proto.records import BatchHeader
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Buffer

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
WALL_MS = 1_763_700_000_000


def header(
    base_offset: int = 0,
    count: int = 1,
    *,
    leader_epoch: int = -1,
    timestamp: int = WALL_MS,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    length: int = 0,
) -> BatchHeader:
    """The header of a batch with `count` records, as a producer sends it unless offset and epoch are given.

    Without a `length` it is as long as such a batch may be.
    """
    return BatchHeader(
        base_offset=base_offset,
        length=length or max(100, 49 + 7 * count),
        leader_epoch=leader_epoch,
        magic=2,
        crc=0,
        attributes=attributes,
        last_offset_delta=count - 1,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        record_count=count,
    )


def replica_log(
    log_end_offset: int = 0,
    high_watermark: int = 0,
    epochs: Iterable[tuple[int, int]] = (),
    log_start_offset: int = 0,
) -> ReplicaLog:
    """A log's state without a log; `epochs` are (epoch, start offset)."""
    cache = EpochCache(EpochEntry(epoch, offset) for epoch, offset in epochs)
    return ReplicaLog(
        ORDERS, TOPIC_ID, log_start_offset, log_end_offset, high_watermark, cache, ProducerStates(), log_end_offset
    )


def registration(
    leader: int = 0,
    *,
    replicas: Sequence[int] = (0, 1, 2),
    isr: Sequence[int] | None = None,
    leader_epoch: int = 0,
    partition_epoch: int = 0,
) -> PartitionRegistration:
    """A partition's metadata; the ISR is all replicas unless given."""
    members = tuple(replicas if isr is None else isr)
    return PartitionRegistration(tuple(replicas), members, leader, leader_epoch, partition_epoch)


class Brokers:
    """The brokers in one metadata image: active, with a broker epoch of 100 plus their id, until changed."""

    def __init__(self, count: int = 3) -> None:
        self._known = {
            number: BrokerRegistration(number, 100 + number, b"", {}, fenced=False) for number in range(count)
        }

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self._known.get(broker_id)

    def take(self, others: Brokers) -> None:
        """Know what `others` know: newer metadata came."""
        self._known = dict(others.known)

    @property
    def known(self) -> dict[int, BrokerRegistration]:
        return self._known

    def change(self, broker_id: int, *, epoch: int | None = None, fenced: bool = False, stopping: bool = False) -> None:
        """Replace one broker's registration; without `epoch` it keeps its own."""
        old = self._known.get(broker_id)
        number = epoch if epoch is not None else (old.broker_epoch if old else 100 + broker_id)
        self._known[broker_id] = BrokerRegistration(
            broker_id, number, b"", {}, fenced=fenced, in_controlled_shutdown=stopping
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the rim holds it: the header that the core sees, and the records that it does not."""

    header: BatchHeader
    values: tuple[str, ...]

    def __str__(self) -> str:
        base, epoch = self.header.base_offset, self.header.leader_epoch
        records = " ".join(f"{base + delta}:{value}" for delta, value in enumerate(self.values))
        return f"{records}@{epoch}" if len(self.values) == 1 else f"[{records}]@{epoch}"


@dataclass(slots=True)
class Disk:
    """What a broker keeps of one partition over a crash, and what it only wrote: batches, epoch file, checkpoint."""

    batches: list[Batch] = field(default_factory=list)
    flushed: int = 0  # batches below this index survive a power loss
    epochs: tuple[EpochEntry, ...] = ()
    high_watermark_checkpoint: int = 0
    log_start_offset: int = 0

    def read(self, offset: int, limit: int) -> list[Batch]:
        """Whole batches that hold an offset in the range; the first may begin below it (R-39)."""
        return [each for each in self.batches if each.header.last_offset >= offset and each.header.base_offset < limit]

    def append(self, batches: Sequence[Batch]) -> None:
        self.batches += batches

    def truncate(self, offset: int) -> int:
        """Drop batches that reach `offset`, whole; the log ends where the lowest dropped one began (R-230)."""
        kept = [each for each in self.batches if each.header.last_offset < offset]
        dropped = self.batches[len(kept) :]
        self.batches = kept
        self.flushed = min(self.flushed, len(kept))
        return min([offset, *(each.header.base_offset for each in dropped[:1])])

    def restart(self, offset: int) -> None:
        self.batches = []
        self.flushed = 0
        self.log_start_offset = offset

    def lose_power(self) -> None:
        """What was not flushed is gone (R-239)."""
        del self.batches[self.flushed :]

    def open(self) -> ReplicaLog:
        """Recover: the log ends behind the last batch, the epoch file is cut there and completed (R-66, R-235)."""
        end = self.batches[-1].header.next_offset if self.batches else self.log_start_offset
        cache = EpochCache(self.epochs)
        cache.truncate_from_end(end)
        for each in self.batches:
            if each.header.leader_epoch > cache.latest_epoch:
                cache.assign(each.header.leader_epoch, each.header.base_offset)
        high_watermark = max(self.log_start_offset, min(self.high_watermark_checkpoint, end))
        log = ReplicaLog(ORDERS, TOPIC_ID, self.log_start_offset, end, high_watermark, cache, ProducerStates(), end)
        self.rebuild_producers(log)
        return log

    def rebuild_producers(self, log: ReplicaLog) -> None:
        """Replay what is left (R-247)."""
        log.producers.clear()
        for each in self.batches:
            log.producers.update(each.header)


class OpenLog:
    """What a broker's replica asks of its log (`storage.log.Log`), above a `Disk`.

    `in_hand` are the values of the batches that are about to be appended: a story tells them by their names.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.state = disk.open()
        self.topic_partition = ORDERS
        self.in_hand: Sequence[tuple[str, ...]] = ()

    def append(self, headers: Sequence[BatchHeader], buffers: Sequence[Buffer], wall_ms: int) -> None:
        self._disk.append([Batch(*each) for each in zip(headers, self.in_hand, strict=True)])

    def is_hot(self, offset: int) -> bool:
        return True

    def count_in_memory(self, offset: int, limit: int, enough: int) -> tuple[int, int]:
        found = self._disk.read(offset, min(limit, self.state.log_end_offset)) if offset < limit else []
        return sum(each.header.size for each in found), found[-1].header.next_offset if found else offset

    def read(self, offset: int, max_bytes: int, limit: int, *, at_least_one: bool = True) -> list[Buffer]:
        """The batches as a story writes them."""
        return [str(each).encode() for each in self._disk.read(offset, limit)]

    def truncate(self, offset: int) -> int:
        end = self._disk.truncate(offset)
        self._disk.rebuild_producers(self.state)
        return end

    def restart_at(self, offset: int) -> None:
        self._disk.restart(offset)

    def advance_log_start(self, offset: int) -> None:
        self._disk.log_start_offset = offset

    def write_epochs(self, entries: tuple[EpochEntry, ...]) -> None:
        self._disk.epochs = entries
