"""The story of the demo: three brokers, writers, kill -9 of a leader, restart, read back, audit.

Everything is real: processes, files, signals. The settings are the defaults, so the silence that it measures is what
a user would see.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from odradek import Admin, Consumer, NewTopic, OdradekError, Producer, TopicPartition
from odradek.cli.clusters.current import talk_as_told
from odradek.cli.clusters.status import gather_status
from odradek_audit.inputs.history import READ_UNCOMMITTED
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.transport.clock import LoopClock

from odradek_chaos.demo.auditing import LOCAL, arguments, as_command, audit, engine, report_path
from odradek_chaos.demo.state import DemoState
from odradek_chaos.harness.cluster_health import ClusterHealth, NotConverged, look
from odradek_chaos.harness.starting import start_on_free_ports
from odradek_chaos.harness.topics import create_topic
from odradek_chaos.harness.verify import verify
from odradek_chaos.harness.waiting import check_alive, wait_until_ready
from odradek_chaos.harness.workload import Ledger, WorkloadWriter
from odradek_chaos.worlds.processes import ProcessesWorld

TOPIC = "orders"
PAYLOAD = b" " + b"." * 180
LOOK_EVERY_MS = 120  # how often the brokers are asked for their state
POLL_MS = 10
PATIENCE_S = 90  # for any one step; a healthy cluster needs a fraction, on a busy machine, too
FRESH = 20  # acknowledgements per partition of what was sent after the kill


class DemoFailed(Exception):
    """The cluster did not do in time what it must do."""

    exit_code = 1
    hint = "the brokers' own words are in the broker-*.log files of the kept directory"


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """How much of everything. Times are milliseconds."""

    seed: int
    partitions: int = 6
    writers: int = 2
    in_flight: int = 60  # per writer and partition
    pause_ms: float = 2  # between two records of one writer to one partition
    calm_ms: int = 3_000  # writing before the kill
    alone_ms: int = 2_500  # writing without the target
    after_ms: int = 1_500  # writing when it is back


class Demo:
    """One run on a cluster that was laid out and not started. Fills in `state` as it goes."""

    def __init__(self, cluster: LocalCluster, plan: DemoPlan, state: DemoState) -> None:
        self.cluster = cluster
        self.history = cluster.directory / "history.jsonl"
        self._plan = plan
        self._state = state
        self._down: set[int] = set()  # killed on purpose
        self._rng = random.Random(plan.seed)
        self._clock = LoopClock(random.Random(plan.seed))
        self._ledger = state.ledger = Ledger(self._clock, self.history)

    async def run(self) -> None:
        """The whole story. Raises `DemoFailed`, and `ClusterError` when the brokers do not start."""
        state = self._state
        state.begin("start", "starting three brokers")
        await start_on_free_ports(
            self.cluster, partial(wait_until_ready, self.cluster, timeout_s=PATIENCE_S), state.tell
        )
        count = len(self.cluster.nodes)
        state.tell(f"{count} brokers are up and form a quorum")
        async with Admin(self.cluster.bootstrap) as admin, self._looking(admin):
            await self._create_topic(admin)
            async with self._writing():
                await self._kill_and_restart(admin)
            await self._until(self._at_rest, "all replicas to have every record")
            await self._read_back()
        state.begin("audit", "stopping the brokers")
        await asyncio.to_thread(self.cluster.stop_all)
        state.stopped = True
        state.tell("the brokers have stopped; the log directories no longer change")
        await self._audit()

    async def _create_topic(self, admin: Admin) -> None:
        plan = self._plan
        replicas = min(3, len(self.cluster.nodes))
        configs = {"min.insync.replicas": str(min(2, replicas))}
        await create_topic(admin, NewTopic(TOPIC, plan.partitions, replicas, configs), timeout_s=PATIENCE_S)
        await self._until(self._whole, "the topic to have all its replicas in sync")
        self._state.tell(f"topic {TOPIC}: {plan.partitions} partitions, {replicas} replicas, min.insync.replicas=2")

    # --- Writing ----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _writing(self) -> AsyncIterator[None]:
        """Writers with acks=all run inside; at the end nothing is on its way any more."""
        plan, state = self._plan, self._state
        state.begin("write", "writing unique records with acks=all")
        producers = [Producer[bytes, bytes](self.cluster.bootstrap, acks="all") for _ in range(plan.writers)]
        patience: float = 0  # an interrupted demo waits for nobody
        try:
            writers = []
            for number, producer in enumerate(producers, 1):
                await producer.start()
                writers.append(
                    WorkloadWriter(producer, self._ledger, self._clock, TOPIC, plan.partitions, f"w{number}",
                           in_flight=plan.in_flight, pause_ms=lambda: plan.pause_ms, payload=PAYLOAD)
                )  # fmt: skip
            async with asyncio.TaskGroup() as tasks:
                for writer in writers:
                    tasks.create_task(writer.run())
                state.tell(f"{plan.writers} producers write unique records to every partition, acks=all")
                yield
                for writer in writers:
                    writer.stop()
            patience = PATIENCE_S
        finally:
            for producer in producers:
                with contextlib.suppress(ExceptionGroup):  # each failure is in the ledger already
                    await producer.close(patience)
        state.tell(f"the producers have ended: {self._ledger.acknowledged:,} records acknowledged")

    async def _kill_and_restart(self, admin: Admin) -> None:
        plan, state, ledger = self._plan, self._state, self._ledger
        await self._clock.sleep(plan.calm_ms + self._rng.uniform(0, 500))
        await self._until(self._every_partition_written, "acknowledgements on every partition")
        chosen = self._rng.randrange(plan.partitions)
        target, led = await self._leader(chosen)
        ledger.forget_silence()
        fresh = ledger.fresh(FRESH)
        state.begin("kill", f"kill -9 of broker {target}")
        state.in_flight_at_kill = ledger.unacknowledged
        self._down.add(target)
        ProcessesWorld(self.cluster).kill(target)
        killed_ms = self._clock.now_ms()
        state.dead.add(target)
        state.tell(f"kill -9: broker {target}, leader of {TOPIC}-{chosen}; it led {led}", bad=True)
        await self._until(lambda: self._led_by_others(admin, target), "new leaders")
        state.tell(f"new leaders for {led} after {self._clock.now_ms() - killed_ms} ms")
        await self._until(lambda: self._reached(fresh), "acknowledgements on every partition")
        state.failover_ms = ledger.longest_silence_ms()
        state.tell(f"every partition takes records again; longest silence {state.failover_ms} ms")
        await self._clock.sleep(plan.alone_ms)
        state.begin("restart", f"starting broker {target} again")
        ProcessesWorld(self.cluster).start(target)
        self._down.discard(target)
        started_ms = self._clock.now_ms()
        state.tell(f"broker {target} starts again with what is on its disk")
        await self._until(self._whole, "the restarted broker to be in sync")
        state.dead.discard(target)
        state.tell(f"broker {target} is in sync everywhere, {self._clock.now_ms() - started_ms} ms after its start")
        await self._clock.sleep(plan.after_ms)

    async def _leader(self, chosen: int) -> tuple[int, list[int]]:
        """Who leads a partition, and which ones it leads, once all brokers tell the same of it."""
        leaders: dict[int, int] = {}

        def told(health: ClusterHealth) -> bool:
            leaders.update({partition: each.leader_id for partition, each in health.leaderships(TOPIC).items()})
            return chosen in leaders

        await self._until(lambda: self._settled(told), f"a leader of {TOPIC}-{chosen}")
        target = leaders[chosen]
        return target, [partition for partition, leader in leaders.items() if leader == target]

    # --- Judging ----------------------------------------------------------------------------------------------------

    async def _read_back(self) -> None:
        state = self._state
        state.begin("read back", "reading every record")
        records: list[tuple[str, int, int, bytes]] = []
        consumer = Consumer[bytes | None, bytes | None](
            self.cluster.bootstrap, auto_offset_reset="earliest", isolation_level=READ_UNCOMMITTED
        )
        async with asyncio.timeout(PATIENCE_S), consumer:
            consumer.assign([TopicPartition(TOPIC, number) for number in range(self._plan.partitions)])
            async for batch in consumer.batches(until="end"):
                for each in batch:
                    value = each.value or b""
                    records.append((each.topic, each.partition, each.offset, value))
                    given = (each.topic, each.partition, value, "reader", each.offset)
                    self._ledger.deliver(*given, isolation=READ_UNCOMMITTED)
        self._ledger.close()
        state.read_back = found = verify(self._ledger.events, records)
        text = (
            "every acknowledged one is present exactly once, in order"
            if found.sound
            else ", ".join(sorted(found.anomalies))
        )
        state.tell(f"{found.read:,} records read back: {text}", bad=not found.sound)

    async def _audit(self) -> None:
        state = self._state
        chosen = engine()
        if chosen == LOCAL:
            state.tell("pyspark is not installed (pip install 'odradek[audit]'): the audit runs in plain Python")
        state.begin("audit", f"auditing three log directories ({chosen})")
        state.tell(f"the audit begins ({chosen}): it reads the directories and the producers' history")
        state.audited = done = await audit(self.cluster, self.history, chosen)
        state.tell(f"the audit has ended after {done.seconds:.1f} s", bad=done.exit_code != 0)

    @property
    def audit_command(self) -> str:
        """How to repeat the audit while the data is kept."""
        return as_command(arguments(self.cluster, self.history, engine()))

    @property
    def report(self) -> Path | None:
        """The audit's page; None when it has written none."""
        path = report_path(self.cluster)
        return path if path.exists() else None

    # --- Looking ----------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _looking(self, admin: Admin) -> AsyncIterator[None]:
        """Keep `state.status` fresh inside."""
        looking = asyncio.create_task(self._look(admin))
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self, admin: Admin) -> None:
        while True:
            with contextlib.suppress(OdradekError):
                self._state.status = await gather_status(admin)
            self._state.silence_ms = self._ledger.longest_silence_ms()
            await self._clock.sleep(LOOK_EVERY_MS)

    async def _until(self, condition: Callable[[], Awaitable[bool]], what: str) -> None:
        """Ask until it holds. Raises `DemoFailed` when patience is over, `ClusterError` when a broker ends unasked."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    check_alive(self.cluster, self._down)
                    with contextlib.suppress(OdradekError):
                        if await condition():
                            return
                    await self._clock.sleep(POLL_MS)
        except TimeoutError:
            raise DemoFailed(f"waited {PATIENCE_S} s in vain for {what}") from None

    async def _whole(self) -> bool:
        """Whether every broker tells that all are in sync: one that had no turn for a while tells what was before."""
        return await self._settled(lambda health: len(health.of_topic(TOPIC)) == self._plan.partitions)

    async def _at_rest(self) -> bool:
        """Whether every replica has every record, which is what `--settled` tells the audit."""
        return await self._settled(lambda health: health.is_at_rest(TOPIC))

    async def _settled(self, settled: Callable[[ClusterHealth], bool]) -> bool:
        try:
            return settled(await look(self.cluster))
        except NotConverged:
            return False

    async def _led_by_others(self, admin: Admin, target: int) -> bool:
        topics = await admin.describe_topics([TOPIC])
        return all(each.leader_id not in (target, -1) for each in topics[0].partitions)

    async def _every_partition_written(self) -> bool:
        progress = self._ledger.progress
        return len(progress) == self._plan.partitions and all(each.acknowledged for each in progress.values())

    async def _reached(self, fresh: Callable[[], list[bool]]) -> bool:
        return all(fresh())


def lay_out(directory: Path, brokers: int = 3, *, secure: bool = False) -> LocalCluster:
    """The demo's cluster: default settings and replicas everywhere."""
    cluster = LocalCluster.create(directory, brokers=brokers, secure=secure)
    cluster.ends_with_parent = True
    talk_as_told(cluster.directory)
    return cluster
