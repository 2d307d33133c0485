"""What the broker's storage writes is what the audit reads: no finding on healthy logs, through both kinds of disk."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from odradek_audit.engine.local import audit
from odradek_broker.core.partition.epochs import EpochEntry
from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings
from odradek_proto.records import encode_batch, read_header
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.files import OsFiles

PARTITION = TopicPartition("orders", 3)
TOPIC_ID = bytes(range(16))
NOW_MS = 1_700_000_000_000
SETTINGS = LogSettings(segment_bytes=6000, index_interval_bytes=300)


def append(log: Log, offset: int, epoch: int, chance: random.Random) -> int:
    """One batch with times that go back and forth; returns the next offset."""
    values = [(NOW_MS + chance.randint(-5000, 5000), b"k", chance.randbytes(40), ()) for _ in range(3)]
    data = encode_batch(
        values, base_offset=offset, leader_epoch=epoch, producer_id=4, producer_epoch=0, base_sequence=offset
    )
    header = read_header(data)
    log.append([header], [data], NOW_MS)
    log.state.producers.update(header)
    return offset + 3


def write_replica(path: Path, node: int, *, detour: bool, clean: bool) -> None:
    """A log of three epochs; with a detour, one that appended a tail of its own and cut it off again."""
    directory = LogDirectory.open(
        OsFiles(), str(path), node_id=node, cluster_id="c" * 22, wall_ms=NOW_MS, rng=random.Random(node)
    )
    log = directory.open_log(PARTITION, TOPIC_ID, SETTINGS, wall_ms=NOW_MS)
    chance = random.Random(7)
    offset = 0
    starts: list[EpochEntry] = []
    for epoch in (0, 2, 5):
        if detour and epoch == 5:
            tail = offset
            for _ in range(40):
                tail = append(log, tail, 2, random.Random(tail))
            assert log.truncate(offset) == offset
        starts.append(EpochEntry(epoch, offset))
        log.write_epochs(starts)
        for _ in range(50):
            offset = append(log, offset, epoch, chance)
    log.flush()
    directory.write_recovery_points()
    directory.write_high_watermarks({PARTITION: offset})
    directory.close(clean=clean)


@pytest.mark.parametrize("clean", [True, False])
def test_logs_of_the_broker_agree(tmp_path: Path, clean: bool) -> None:
    """Rolled, truncated and flushed logs of two replicas, one of which took a detour, are equal to the audit."""
    replicas = {str(node): tmp_path / str(node) for node in (1, 2)}
    for node in (1, 2):
        write_replica(replicas[str(node)], node, detour=node == 2, clean=clean)
    report = audit(replicas)
    assert [finding.sentence for finding in report.findings] == []
    assert (report.exit_code, report.compared_records) == (0, 450)
    assert report.partitions[0].replicas[0].segments > 3
