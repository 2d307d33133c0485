"""Makes log directories with the broker's own storage, by chance and by seed: every codec, headers, idempotent
producers, many rolls, truncations, clean ends and kills.

Around the log stand the few lines of core that decide what is written: leader epochs before an append, producers after
it (R-222). Transactions are left out: storage keeps no transaction index yet.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from odradek_broker.core.cleaning import CompactionSettings
from odradek_broker.storage.cleaning.round import CleanedSegment, CleaningRound
from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings
from odradek_proto.records import BatchHeader, Codec, RecordToWrite, encode_batch, iter_batches, read_header
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.files import OsFiles
from odradek_proto.values import replace

SETTINGS = LogSettings(segment_bytes=5000, index_interval_bytes=400)
KAFKA_SETTINGS = ("internal.segment.bytes=5000", "index.interval.bytes=400")  # the same for Kafka's storage
CLUSTER = "odradek-interop-tests1"  # 22 characters
TORN = (
    bytes(300),
    b"\x00\x00\x00",
    encode_batch([(0, None, b"half a batch", ())])[:-5],
)  # what a kill may leave behind
TEXTS = (b"so much depends upon a red wheel barrow ", b"\x00\xff\xfe", "ähnlich, jedoch länger · ".encode())


@dataclass
class Producer:
    """An idempotent producer: its id, epoch, and the sequence of its next record."""

    producer_id: int
    epoch: int = 0
    sequence: int = 0

    def take(self, count: int) -> tuple[int, int, int]:
        """Id, epoch and first sequence of a batch of so many records."""
        first = self.sequence
        self.sequence += count
        return self.producer_id, self.epoch, first


@dataclass
class Story:
    """One partition and all that happens to it. `now_ms` moves on with every batch."""

    root: Path
    partition: TopicPartition
    rng: random.Random
    now_ms: int
    topic_id: bytes = b"odradek-interop!"
    elections: bool = True  # whether the leader epoch rises now and then
    epoch: int = 0
    producers: list[Producer] = field(default_factory=list)
    truncations: int = 0
    kills: int = 0
    moved_starts: int = 0
    torn: bool = False  # the last end was a kill in the middle of a write
    directory: LogDirectory = field(init=False)
    log: Log = field(init=False)

    def open(self) -> None:
        """Start the broker's storage, which recovers what was not closed cleanly."""
        self.directory = LogDirectory.open(
            OsFiles(), str(self.root), node_id=1, cluster_id=CLUSTER, wall_ms=self.now_ms, rng=self.rng
        )
        self.log = self.directory.open_log(self.partition, self.topic_id, SETTINGS, wall_ms=self.now_ms)

    def records(self, count: int) -> list[RecordToWrite]:
        """Records as people write them: with and without keys, values, headers; times that go back and forth."""
        rng = self.rng
        made: list[RecordToWrite] = []
        for _ in range(count):
            key = rng.choice((None, b"", b"k%d" % rng.randrange(9)))
            value = rng.choice((None, b"", rng.randbytes(rng.randrange(80)), rng.choice(TEXTS) * rng.randrange(9)))
            headers = [(f"h{place}", rng.choice((None, b"", b"v"))) for place in range(rng.choice((0, 0, 1, 3)))]
            made.append((self.now_ms + rng.randint(-300, 300), key, value, headers))
        return made

    def append(self) -> None:
        """One batch, perhaps of a producer that is known, perhaps with a bumped epoch or a new leader's."""
        rng, log, state = self.rng, self.log, self.log.state
        self.now_ms += rng.randrange(20)
        records = self.records(rng.choice((1, 1, 2, 7, 30)))
        if rng.random() < 0.1:
            self.producers.append(Producer(rng.randrange(10_000)))
        producer = rng.choice(self.producers) if self.producers and rng.random() < 0.8 else None
        if producer is not None and rng.random() < 0.03:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        producer_id, producer_epoch, sequence = producer.take(len(records)) if producer else (-1, -1, -1)
        data = encode_batch(
            records,
            base_offset=log.end_offset,
            leader_epoch=self.epoch,
            codec=rng.choice(list(Codec)),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )
        header = read_header(data)
        if state.epochs.assign(self.epoch, header.base_offset):
            log.write_epochs(state.epochs.entries)
        log.append([header], [data[:16], data[16:]], self.now_ms)
        state.producers.update(header)
        state.log_end_offset = header.next_offset

    def truncate(self) -> None:
        """A new leader's log ended earlier: cut at the start of a batch, and forget the epochs above."""
        starts = [header.base_offset for _, header in self.batches()]
        if not starts:
            return
        log, state = self.log, self.log.state
        self.truncations += 1
        end = log.truncate(self.rng.choice(starts[-30:]))
        state.log_end_offset = end
        state.epochs.truncate_from_end(end)
        log.write_epochs(state.epochs.entries)
        for producer in self.producers:
            entry = state.producers.get(producer.producer_id)
            producer.sequence = entry.last_sequence + 1 if entry else 0
            producer.epoch = entry.producer_epoch if entry else producer.epoch

    def end(self, *, clean: bool) -> None:
        """Stop the broker's storage, or leave its files as a kill would."""
        if clean:
            self.log.state.high_watermark = self.log.end_offset
        else:
            self.kills += 1
        active = Path(self.log.segments[-1].path)
        self.directory.close(clean=clean)
        self.torn = not clean and self.rng.random() < 0.5
        if self.torn:
            active.write_bytes(active.read_bytes() + self.rng.choice(TORN))

    def move_start(self) -> None:
        """DeleteRecords up to some batch, then the segments that are no longer needed."""
        starts = [header.base_offset for _, header in self.batches()]
        if starts:
            self.moved_starts += 1
            self.log.advance_log_start(self.rng.choice(starts[: len(starts) // 2 + 1]))
            if self.log.state.epochs.truncate_from_start(self.log.log_start_offset):
                self.log.write_epochs(self.log.state.epochs.entries)
            self.log.state.log_start_offset = self.log.log_start_offset
            self.log.delete_before_log_start(self.now_ms)
            self.directory.write_log_starts()

    def clean(self) -> None:
        """What the cleaner does with all that is closed and flushed, tombstones seen for the first time included."""
        log = self.log
        log.roll(self.now_ms)
        log.flush()
        log.use(replace(SETTINGS, compaction=CompactionSettings()))
        work = CleaningRound(
            OsFiles(),
            log,
            first_dirty_offset=log.log_start_offset,
            end_offset=log.segments[-1].base_offset,
            wall_ms=self.now_ms,
            map_bytes=1 << 20,
        )
        for step in work.steps():
            if isinstance(step, CleanedSegment):
                self.directory.write_cleaned(log, work.end_offset)
                replacement = log.replace(step.old, step.new)
                assert replacement.begin()
                replacement.exchange()
                replacement.finish()
        log.purge(1 << 62)

    def batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """All batches as the log serves them."""
        return iter_batches(served(self.log))

    def tell(self, steps: int, *, clean_end: bool) -> None:
        """Live through so many steps, most of them appends."""
        self.open()
        for _ in range(steps):
            act = self.rng.random()
            if act < 0.02:
                self.truncate()
            elif act < 0.05:
                self.epoch += self.rng.randint(1, 2) if self.elections else 0
            elif act < 0.07:
                self.log.flush()
                self.directory.write_recovery_points()
            elif act < 0.075:
                self.move_start()
            elif act < 0.09:
                self.end(clean=self.rng.random() < 0.5)
                self.open()
            else:
                self.append()
        self.end(clean=clean_end)


def served(log: Log) -> bytes:
    """Every batch that the log serves from its start to its end, read in many small pieces."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while offset < log.end_offset:
        data = b"".join(bytes(piece) for piece in log.read(offset, 20_000, log.end_offset))
        assert data, f"{log.topic_partition}: nothing is served at {offset}, below the end {log.end_offset}"
        found.append(data)
        *_, (_, last) = iter_batches(data)
        offset = last.next_offset
    return b"".join(found)
