"""One flipped bit of a replica's log, wherever it is: one finding, at its batch, on its replica.

Every day some hundreds by chance, in a log with every codec, several epochs, an idempotent producer and a transaction;
`make torture` flips each bit.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from odradek_audit.engine.local import audit
from odradek_proto.compression import Codec
from odradek_proto.records import ControlType

from tests.audit.sample import SampleBatch, SampleLog, SamplePartition, WriteCluster
from tests.seeds import unless_torture

SAMPLE = 60
BITS_OF_ALL = 8 * 1024  # and more: the set would be too small to mean anything


@pytest.fixture(scope="module")
def every_kind() -> SampleLog:
    """Batches of 80 to 200 bytes, the last ones of a transaction that was committed."""
    log = SampleLog()
    for number, codec in enumerate((Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)):
        log.append([b"value-%d-%d" % (number, each) for each in range(3)], epoch=number // 2, codec=codec)
    for number in range(4):
        log.append([b"idempotent-%d" % number], epoch=3, producer_id=7)
    log.end(ControlType.COMMIT, 8, epoch=3)
    return log.fill(2, epoch=4, size=40)


def bits(log: SampleLog) -> Iterator[tuple[SampleBatch, int]]:
    """Every bit of the log, with the batch in which it lies."""
    position = 0
    for batch in log.batches:
        for bit in range(8 * len(batch.data)):
            yield batch, 8 * position + bit
        position += len(batch.data)


def test_each_flipped_bit_is_found_at_its_batch(write_cluster: WriteCluster, every_kind: SampleLog) -> None:
    """Of a replica that agrees with two others, the first segment of two being full; nothing is found without it."""
    half = sum(len(batch.data) for batch in every_kind.batches) // 2
    replicas = write_cluster(*[SamplePartition(every_kind, segment_bytes=half)] * 3, clean_shutdown=True)
    assert audit(replicas).exit_code == 0
    paths = sorted((replicas["2"] / "t-0").glob("*.log"))
    sizes = [path.stat().st_size for path in paths]
    every = list(bits(every_kind))
    assert len(every) > BITS_OF_ALL
    chosen = unless_torture(random.Random(26).sample(every, SAMPLE), every)
    wrong = []
    for batch, bit in chosen:
        place, path = divmod(bit, 8), paths[0]
        at = place[0]
        for each, size in zip(paths, sizes, strict=True):
            if at < size:
                path = each
                break
            at -= size
        whole = path.read_bytes()
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << place[1]]) + whole[at + 1 :])
        found = audit(replicas).findings
        path.write_bytes(whole)
        near = [
            batch.base_offset - 1 <= each.offset <= batch.last_offset + 1
            or (each.file, each.position) == (path.name, whole.index(batch.data))  # a last batch that says another file
            for each in found
        ]
        right = near == [True] and found[0].replica == "2"
        if not right:
            told = [(each.check, each.replica, each.offset, each.end_offset) for each in found]
            wrong.append((batch.base_offset, at, bit % 8, told))
    assert wrong == []
