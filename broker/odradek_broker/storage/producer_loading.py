"""The state of a partition's producers, from what is on the disk: a snapshot, and the log (R-245 to R-247).

Kafka's snapshots hold the last batch of each producer, and a broker knows the last five (R-245): a client may have that
many on the wire, and repeats them all when their answers were lost. Unlike Kafka, which after a clean stop takes the
repetition of an earlier one for a gap, the other four are read back from the end of the log.
"""

from __future__ import annotations

from itertools import islice

from odradek_proto.records import CorruptBatch

from odradek_broker.core.partition.earlier_batches import EarlierBatches
from odradek_broker.core.partition.producers import ProducerStates
from odradek_broker.storage.segments import Segments
from odradek_broker.storage.snapshots import ProducerSnapshots
from odradek_broker.storage.walk import walk_headers

READ_BACK_BYTES = 64 << 20  # of the log: five of a producer's largest batches fit three times
READ_BACK_BATCHES = 20_000  # what limits the time, to some 100 ms: five of 4,000 producers
READ_BACK_BATCHES_ON_LOOP = 1_000  # after a truncation, which the event loop waits for: some 5 ms
FIRST_STEP_BYTES, LAST_STEP_BYTES = 64 << 10, 1 << 20


def load_producers(
    producers: ProducerStates, snapshots: ProducerSnapshots, segments: Segments, end_offset: int
) -> None:
    """Make `producers` what it was when the log ended at `end_offset`, but for what `read_back` finds."""
    snapshots.restore(producers, segments.first.base_offset, end_offset)
    start = producers.end_offset
    for header in segments.headers(start, end_offset):
        if header.next_offset > end_offset:
            break
        if header.next_offset > start:
            producers.update(header)
    producers.end_offset = end_offset


def read_back(producers: ProducerStates, segments: Segments, most_batches: int | None = None) -> None:
    """Complete the last five batches of each producer from the segments that reach into the last `READ_BACK_BYTES`.

    No more bytes than that are passed over, and no more than `most_batches`, by default
    `READ_BACK_BATCHES`. Damage ends it, too: the log is judged when it is read. Blocking. Raises `OSError`.
    """
    earlier = EarlierBatches(producers)
    lowest = _lowest(segments)
    bytes_left, step = READ_BACK_BYTES, FIRST_STEP_BYTES
    batches_left = READ_BACK_BATCHES if most_batches is None else most_batches
    while (offset := earlier.wanted_below) is not None and offset > lowest:
        segment = segments.all[segments.find(offset - 1)]
        start, end = segment.stretch_before(offset, step)
        bytes_left -= end - start
        if bytes_left < 0:
            return
        try:
            headers = [header for _, header in islice(walk_headers(segment.file, start, end), batches_left + 1)]
        except CorruptBatch:
            return
        batches_left -= len(headers)
        if batches_left < 0 or not headers:
            return
        for header in reversed(headers):
            earlier.take(header)
        earlier.reach(headers[0].base_offset if start else segment.base_offset)
        step = min(2 * step, LAST_STEP_BYTES)


def _lowest(segments: Segments) -> int:
    """Where the segments begin that reach into the last `READ_BACK_BYTES`."""
    size = 0
    for segment in reversed(segments.all):
        size += segment.size
        if size >= READ_BACK_BYTES:
            return segment.base_offset
    return segments.first.base_offset
