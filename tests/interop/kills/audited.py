"""Apache Kafka under load and kills, audited all the while over the wire and in the end with a full history.

    python -m tests.interop.kills.audited [--minutes 10] [--quota 10]

Three nodes. Idempotent producers write in all codecs, a transactional one commits and aborts (and a consumer reads what
is committed), another one writes and deletes keys of a compacted topic whose cleaners run at once. Every ten seconds
the leader of a partition gets kill -9 and starts again, and `odradek audit live` goes through the cluster again and
again. Then, without kills, turns with an audit beside the producers and without one tell what it costs them: they go
at a fixed rate that the brokers could exceed, so acknowledgements and the brokers' CPU tell of the audit and not of who
else uses the machine. An audit that has nothing new to read tells how long it takes, and one after a record was changed
in a follower's segment must name it. No high watermark may be said to stay low. In the end one node is killed and the
others stop, and `odradek audit run` compares the directories with what every client was told. Nothing else may be
found.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import IllegalOperation, KafkaError
from odradek_audit.inputs.history import ACK, DELIVER, ERROR, SEND, Event, encode_event
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.clock import LoopClock

from bench.processes import cpu_seconds
from tests.audit.corruption import plant
from tests.interop.kafka.cluster import KafkaCluster
from tests.interop.kafka.java import classpath_of
from tests.interop.kafka.writing import CODECS, create_topic, leaders, whole

PLAIN, LEDGER, COMPACTED = "plain", "ledger", "compacted"
PARTITIONS = {PLAIN: 3, LEDGER: 2, COMPACTED: 1}
SMALL = {"internal.segment.bytes": "262144", "index.interval.bytes": "500"}
CLEANED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "100"}
BROKERS = {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": "500"}
AT_ONCE, KEYS, VALUE_BYTES = 60, 500, 100  # records of a batch: an hour's history still fits into memory
KILL_EVERY_MS, DOWN_MS = 10_000, 3_000
PACE_MS = 250  # from one of a producer's batches to its next: audits are to come round
WINDOW_MS, WINDOWS = 8_000, 9
TRANSACTION_MS = 5_000  # transactions of a producer that died are aborted after that
FAILURES = (KafkaError, IllegalOperation, TimeoutError, OSError)
"""The second one: the transaction's time was over."""


@dataclass
class Load:
    """Writers and a reader, and what each is told, in a history's lines."""

    bootstrap: Sequence[str]
    history: TextIO
    rng: random.Random
    counts: Counter[str] = field(default_factory=Counter)
    clock: LoopClock = field(default_factory=lambda: LoopClock(random.Random()))
    ended: bool = False
    values: int = 0

    def tell(self, kind: str, event: Event) -> None:
        self.counts[f"{event.topic} {kind}"] += 1
        self.history.write(encode_event(event._replace(type=kind, time_ms=int(time.time() * 1000))) + "\n")

    def event(self, topic: str, client: str, *, key: bytes | None = None, tombstone: bool = False) -> Event:
        """A record that no other one is like."""
        self.values += 1
        value = b"" if tombstone else b"%d " % self.values + self.rng.choice((b"word ", b"x")) * VALUE_BYTES
        partition = self.rng.randrange(PARTITIONS[topic])
        return Event(SEND, topic, partition, value, client=client, key=key, tombstone=tombstone)

    async def write(self, topic: str, client: str, codec: str | None) -> None:
        """Batches of an idempotent producer, until the end; each record is told when it leaves and when it is there."""
        async with self._producer(enable_idempotence=True, compression_type=codec, linger_ms=3) as producer:
            due_ms = self.clock.now_ms()
            while not self.ended:
                due_ms = max(due_ms + PACE_MS, self.clock.now_ms())
                events = []
                for _ in range(AT_ONCE):
                    key = b"k%d" % self.rng.randrange(KEYS) if topic == COMPACTED else None
                    tombstone = topic == COMPACTED and self.rng.random() < 0.1
                    events.append(self.event(topic, client, key=key, tombstone=tombstone))
                await asyncio.gather(*[self._send(producer, event) for event in events])
                await self.clock.sleep(max(due_ms - self.clock.now_ms(), 0))

    async def _send(self, producer: Any, event: Event) -> bool:
        self.tell(SEND, event)
        try:
            sent = await producer.send_and_wait(event.topic, event.content, event.key, event.partition)
        except FAILURES:
            self.tell(ERROR, event)
            return False
        self.tell(ACK, event._replace(offset=sent.offset))
        return True

    async def transact(self, client: str) -> None:
        """Transactions of five records, three of four committed. After a failure the producer begins anew."""
        while not self.ended:
            with contextlib.suppress(*FAILURES):
                async with self._producer(
                    transactional_id=client, transaction_timeout_ms=TRANSACTION_MS, compression_type="lz4"
                ) as producer:
                    while not self.ended:
                        await producer.begin_transaction()
                        sent = [await self._send(producer, self.event(LEDGER, client)) for _ in range(5)]
                        if not all(sent):
                            break
                        commit = self.rng.random() < 0.75
                        await (producer.commit_transaction() if commit else producer.abort_transaction())
                        self.counts["committed" if commit else "aborted"] += 1

    async def read_committed(self, client: str) -> None:
        consumer = AIOKafkaConsumer(
            LEDGER,
            bootstrap_servers=list(self.bootstrap),
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        await consumer.start()
        try:
            while not self.ended:
                for batch in (await consumer.getmany(timeout_ms=500)).values():
                    for each in batch:
                        told = Event(DELIVER, LEDGER, each.partition, each.value, each.offset, client=client)
                        self.tell(DELIVER, told)
        finally:
            await consumer.stop()

    @contextlib.asynccontextmanager
    async def _producer(self, **options: Any) -> Any:
        producer = AIOKafkaProducer(bootstrap_servers=list(self.bootstrap), request_timeout_ms=60_000, **options)
        try:
            await producer.start()
            yield producer
        finally:
            with contextlib.suppress(*FAILURES):
                await producer.stop()

    def clients(self) -> list[Coroutine[Any, Any, None]]:
        plain = [self.write(PLAIN, f"w-{codec}", codec) for codec in CODECS]
        return [*plain, self.write(COMPACTED, "c", "zstd"), self.transact("t"), self.read_committed("r")]

    @property
    def acknowledged(self) -> int:
        return sum(self.counts[f"{topic} {ACK}"] for topic in PARTITIONS)


@dataclass
class Audits:
    """What `odradek audit` said, each time it was asked."""

    bootstrap: Sequence[str]
    folder: Path
    quota: str
    findings: list[Any] = field(default_factory=list)
    not_reached: list[str] = field(default_factory=list)
    """What lay above a high watermark that stayed low, though brokers come back and catch up."""
    runs: int = 0
    expected: Callable[[Any], bool] = lambda found: False
    """Whether a finding is of what was planted."""

    async def live(self, *options: str, quota: str = "") -> dict[str, Any]:
        command = ["live", "-b", ",".join(self.bootstrap), "--quota", quota or self.quota]
        return await self._run(*command, "--digests", str(self.folder / "digests.json"), *options)

    async def directories(self, cluster: KafkaCluster, history: Path) -> dict[str, Any]:
        named = [word for node in (1, 2, 3) for word in ("--replica", f"{node}={cluster.directory(node)}")]
        return await self._run("run", *named, "--history", str(history), "--deep")

    async def _run(self, *arguments: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "odradek.cli.main", "audit", *arguments, "--json"]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec("nice", *command, stdout=pipe, stderr=pipe)
        try:
            output, errors = await process.communicate()
        except asyncio.CancelledError:
            process.kill()
            await process.wait()
            raise
        assert process.returncode in (0, 1, 3), errors.decode()
        document: dict[str, Any] = json.loads(output)
        self.findings += [each for each in document["finding_list"] if not self.expected(each)]
        self.not_reached += [reason for reason in document["inconclusive"] if "high watermarks stay" in reason]
        self.runs += 1
        return document


async def killing(cluster: KafkaCluster, load: Load, minutes: float) -> int:
    """Kill the leader of a partition, again and again, and start it; returns how often."""
    kills, until_ms = 0, load.clock.now_ms() + int(60_000 * minutes)
    while load.clock.now_ms() < until_ms:
        await load.clock.sleep(KILL_EVERY_MS)
        topic = load.rng.choice(list(PARTITIONS))
        target = (await leaders(cluster.bootstrap, topic))[0][0]
        cluster.kill(target)
        kills += 1
        await load.clock.sleep(DOWN_MS)
        await asyncio.to_thread(cluster.start, target)
        for each in PARTITIONS:
            await whole(cluster.bootstrap, each)
    return kills


async def cost(cluster: KafkaCluster, load: Load, audits: Audits) -> dict[str, float]:
    """What an audit that reads all at the quota takes from producers and from brokers: medians over some turns."""

    async def turn() -> tuple[int, float]:
        acknowledged, used = load.acknowledged, _used(cluster)
        await load.clock.sleep(WINDOW_MS)
        return load.acknowledged - acknowledged, _used(cluster) - used

    beside, without = [], []
    for number in range(WINDOWS):
        audit = asyncio.ensure_future(audits.live("--from-start"))
        beside.append(await turn())
        assert not audit.done(), f"turn {number}: the audit had read all before the turn was over"
        audit.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await audit
        without.append(await turn())
    told = [statistics.median(a[each] / b[each] for a, b in zip(beside, without, strict=True)) for each in (0, 1)]
    seconds = statistics.median(each[1] for each in without)
    return {
        "producers lose beside an audit, %": round(100 * (1 - told[0]), 2),
        "brokers' CPU grows beside an audit, %": round(100 * (told[1] - 1), 1),
        "brokers' CPU without, % of a core": round(100_000 * seconds / WINDOW_MS, 1),
    }


def _used(cluster: KafkaCluster) -> float:
    """CPU seconds of all nodes so far."""
    return sum(cpu_seconds(pid) for pid in cluster.pids())


async def damage(cluster: KafkaCluster, audits: Audits) -> bool:
    """Whether an audit names a record that was changed in a follower's segment; the segment is as before then."""
    leader, _ = (await leaders(cluster.bootstrap, PLAIN))[0]
    follower = next(node for node in (1, 2, 3) if node != leader)
    kept = {path: path.read_bytes() for path in (cluster.directory(follower) / f"{PLAIN}-0").glob("*.log")}
    try:
        planted = plant("change-record", cluster.directory(follower), TopicPartition(PLAIN, 0), random.Random(4))
        named: list[Any] = []

        def expected(found: Any) -> bool:
            here = found["check"] == "log-matching" and (found["topic"], found["partition"]) == (PLAIN, 0)
            who = str(follower) in (found["replica"], found["other_replica"])
            if here and who and found["offset"] <= planted.offset < found["end_offset"]:
                named.append(found)
            return found in named

        audits.expected = expected
        await audits.live("--from-start", "--topics", PLAIN, quota="0")
        return len(named) == 1
    finally:
        audits.expected = lambda found: False
        for path, content in kept.items():
            path.write_bytes(content)


async def story(cluster: KafkaCluster, load: Load, audits: Audits, minutes: float) -> dict[str, Any]:
    """Run it all; returns the figures."""
    for topic, partitions in PARTITIONS.items():
        await create_topic(cluster.bootstrap, topic, partitions, SMALL | (CLEANED if topic == COMPACTED else {}))
    clients = [asyncio.ensure_future(each) for each in load.clients()]
    killer = asyncio.ensure_future(killing(cluster, load, minutes))
    while not killer.done():
        await audits.live()
    told: dict[str, Any] = {"kills": killer.result(), "audits beside kills": audits.runs}
    told |= await cost(cluster, load, audits)
    load.ended = True
    await asyncio.gather(*clients)
    for topic in PARTITIONS:
        await whole(cluster.bootstrap, topic)
    first = await audits.live("--from-start", "--topics", f"{PLAIN},{LEDGER}", quota="0")
    again = await audits.live("--topics", f"{PLAIN},{LEDGER}", quota="0")
    told["records compared over the wire, all and again"] = [first["compared_records"], again["compared_records"]]
    told["seconds, all and again"] = [round(first["seconds"], 1), round(again["seconds"], 1)]
    told["a changed record is named"] = await damage(cluster, audits)
    return told | dict(load.counts)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--minutes", type=float, default=10)
    arguments.add_argument("--quota", default="10", help="MB a second from all brokers")
    given = arguments.parse_args()
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)  # it says at each attempt that a killed node is away
    with tempfile.TemporaryDirectory(prefix="odradek-audited-") as folder:
        root = Path(folder)
        cluster = KafkaCluster(classpath_of(), root / "cluster", BROKERS)
        cluster.format()
        try:
            cluster.start()
            audits = Audits(cluster.bootstrap, root, given.quota)
            with (root / "history.jsonl").open("w") as history:
                load = Load(cluster.bootstrap, history, random.Random(1))
                told = asyncio.run(story(cluster, load, audits, given.minutes))
            cluster.kill(1)
        finally:
            cluster.stop()
        document = asyncio.run(audits.directories(cluster, root / "history.jsonl"))
        told |= {"events": document["history_events"], "compared in directories": document["compared_records"]}
    inconclusive = [*audits.not_reached, *document["inconclusive"]]
    told |= {"losses": document["losses"], "findings": audits.findings, "inconclusive": inconclusive}
    print(json.dumps(told, indent=1))
    sound = told["a changed record is named"] and not (audits.findings or document["losses"] or inconclusive)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
