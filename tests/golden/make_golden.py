"""Makes the golden files again: three nodes of Apache Kafka write them, one of them is killed.

    python -m tests.golden.make_golden

Needs Java and Maven, about a minute, and replaces the directory `kafka-4.1.1` beside this file. The bytes are new each
time (times, producer ids, topic ids); what the tests say of them holds for any.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import shutil
import tempfile
import time
from pathlib import Path

from tests.interop.kafka.cluster import KafkaCluster
from tests.interop.kafka.java import classpath_of
from tests.interop.kafka.opening import Opening, open_by_kafka
from tests.interop.kafka.writing import Writing, Written, create_topic, leaders, whole, write_transactions

GOLDEN = Path(__file__).parent / "kafka-4.1.1"
TOPICS = ("golden", "ledger")
SETTINGS = {
    "internal.segment.bytes": "4096",
    "index.interval.bytes": "300",
    "segment.index.bytes": "1200",  # the room that Kafka leaves at the end of an active index
}
NODES = (1, 2, 3)
KILLED = 3
TRANSACTIONS = ("commit", "abort", "commit", "abort", "commit")
CHECKPOINTS = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "meta.properties",
    ".kafka_cleanshutdown",
)


async def write(cluster: KafkaCluster) -> list[Written]:
    """Two topics: one in all codecs over a change of leaders, one of transactions that are committed and aborted."""
    for topic in TOPICS:
        await create_topic(cluster.bootstrap, topic, 1, SETTINGS)
    writing = Writing(cluster.bootstrap, "golden", 1, random.Random(1), int(time.time() * 1000) - 60_000)
    async with writing.producers() as producers:
        await writing.write(producers, 120, step_ms=7)
        target = (await leaders(cluster.bootstrap, "golden"))[0][0]
        cluster.kill(target)
        await writing.write(producers, 120, step_ms=7)
        cluster.start(target)
        await whole(cluster.bootstrap, "golden")
        await writing.write(producers, 60, step_ms=7)
    await write_transactions(cluster.bootstrap, "ledger", TRANSACTIONS)
    return writing.written


def keep(cluster: KafkaCluster, written: list[Written]) -> None:
    """Copy the partitions, the checkpoints beside them, and what was acknowledged."""
    shutil.rmtree(GOLDEN, ignore_errors=True)
    for node in NODES:
        home = GOLDEN / f"broker-{node}"
        home.mkdir(parents=True)
        for name in CHECKPOINTS:
            if (cluster.directory(node) / name).exists():
                shutil.copyfile(cluster.directory(node) / name, home / name)
        for topic in TOPICS:
            shutil.copytree(cluster.directory(node) / f"{topic}-0", home / f"{topic}-0")
    lines = [
        {
            "offset": each.offset,
            "timestamp": each.timestamp,
            "key": None if each.key is None else base64.b64encode(each.key).decode(),
            "value": None if each.value is None else base64.b64encode(each.value).decode(),
            "headers": [[name, base64.b64encode(value).decode()] for name, value in each.headers],
        }
        for each in sorted(written, key=lambda each: each.offset)
    ]
    (GOLDEN / "acknowledged.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def recover(classpath: str) -> None:
    """What Kafka's own recovery makes of the killed node's partitions, from their start."""
    openings = []
    for topic in TOPICS:
        copied = GOLDEN / "recovered" / f"{topic}-0"
        shutil.copytree(GOLDEN / f"broker-{KILLED}" / f"{topic}-0", copied)
        openings.append(Opening(copied, clean=False))
    open_by_kafka(classpath, openings, [f"{name}={value}" for name, value in SETTINGS.items()])


def main() -> None:
    classpath = classpath_of()
    with tempfile.TemporaryDirectory(prefix="odradek-golden-") as temporary:
        settings = {"transaction.state.log.replication.factor": "3", "log.index.size.max.bytes": "1200"}
        cluster = KafkaCluster(classpath, Path(temporary), settings)
        cluster.format()
        try:
            cluster.start()
            written = asyncio.run(write(cluster))
            cluster.kill(KILLED)
        finally:
            cluster.stop()
        keep(cluster, written)
    recover(classpath)


if __name__ == "__main__":
    main()
