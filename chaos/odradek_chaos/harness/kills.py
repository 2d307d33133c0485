"""The kill harness: real brokers, killed while they are written to, and a verdict on what was promised.

One round: the cluster is whole, as each of its brokers sees it, writers keep hundreds of records in flight, and at a
random moment one process gets kill -9 (or is stopped cleanly, frozen, or cut off): the leader of a partition, one of
its followers, the active controller, all brokers at once, or all of them one after the other. Then acknowledgements
must come again on every partition; the fault is made good and the cluster must become whole again. The longest silence
of each partition in the round is the price that a user pays. After all rounds a reader compares all records with what
the writers were told.

`odradek chaos rounds` runs it on a cluster of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from odradek import Admin, Producer
from odradek.administration.descriptions import NewTopic
from odradek.shared.errors import OdradekError
from odradek_audit.inputs.history import read_events
from odradek_broker.local.cluster import ClusterError
from odradek_proto.transport.clock import LoopClock
from odradek_proto.words import noun

from odradek_chaos.harness.cluster_health import ClusterHealth, wait_until_converged
from odradek_chaos.harness.reading_back import read_back
from odradek_chaos.harness.topics import create_topic
from odradek_chaos.harness.verify import ReadBack
from odradek_chaos.harness.workload import Ledger, WorkloadWriter
from odradek_chaos.worlds.real import FAULTS, RealWorld

TOPIC = "orders"
TARGETS = ("leader", "follower", "controller")
RECOVERY_TIMEOUT_S = 180  # twenty session timeouts: who has not recovered by then never will
MIN_IN_FLIGHT = 100  # unacknowledged records at the moment of a kill
UNIFORM_WINDOW_MS = 1_500  # a kill comes at a uniformly random moment of this window
FRESH_ACKS = 50  # acknowledgements of records that were sent after the fault, on each partition
POLL_MS = 10
ALONE_S = 30  # for a leader to acknowledge something while the others stand still


class NotRecovered(Exception):
    """The cluster did not do within the time what it must do after a fault."""


@dataclass(frozen=True, slots=True)
class Round:
    """One fault and its price."""

    number: int
    at_ms: int  # since the start of the run, when the fault was injected
    target: str
    brokers: tuple[int, ...]
    led: int  # partitions that the struck led
    in_flight: int
    silence_ms: int  # the longest of any partition
    isr_full_ms: int  # from the restart until every ISR is full again


@dataclass(slots=True)
class KillsOutcome:
    rounds: list[Round] = field(default_factory=list)
    seed: int = 0
    acks: str = "all"
    interrupted: bool = False  # told to stop before all rounds were over
    sent: int = 0
    failed: int = 0
    read_back: ReadBack = field(default_factory=ReadBack)

    def silences(self) -> list[int]:
        return [each.silence_ms for each in self.rounds]


@dataclass(frozen=True, slots=True)
class KillsPlan:
    """What a run does. `targets` are taken in a shuffled order, each equally often."""

    rounds: int = 50
    seed: int = 1
    acks: str = "all"
    targets: Sequence[str] = TARGETS
    partitions: int = 3
    writers: int = 2
    in_flight: int = 60  # per writer and partition
    fault: str = "kill"  # of odradek_chaos.worlds.real.FAULTS
    topic: str = TOPIC
    stall_others_ms: int = 0
    patience_s: float = RECOVERY_TIMEOUT_S  # for anything that the cluster must do after a fault


class KillHarness:
    """Runs a plan on a cluster that it has been given; says what happens through `say`.

    What the writers were told goes to the file `history`, and to memory only portion by portion.
    """

    def __init__(
        self,
        cluster: RealWorld,
        plan: KillsPlan,
        history: Path,
        *,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._cluster = cluster
        self._plan = plan
        self._fault = FAULTS[plan.fault]
        self._rng = random.Random(plan.seed)
        self._clock = LoopClock(random.Random(plan.seed))
        self._history = history
        self._ledger = Ledger(self._clock, history, keep=False)
        self._say = say
        self._writers: list[WorkloadWriter] = []
        self._last_error: OdradekError | None = None  # of a record that failed
        self._stopping = False
        self._has_begun = False
        self._started_ms = 0

    def stop(self) -> bool:
        """The round under way is the last one; false when none has begun, and there will be nothing to judge."""
        self._stopping = True
        return self._has_begun

    async def run(self) -> KillsOutcome:
        """All rounds, or those until `stop`, then the read back. Raises `NotRecovered`."""
        plan = self._plan
        self._started_ms = self._clock.now_ms()
        outcome = KillsOutcome(seed=plan.seed, acks=plan.acks)
        for node_id in self._cluster.nodes:
            self._cluster.start(node_id)
        await self._healthy("the cluster to be whole at the start")
        async with Admin(self._cluster.bootstrap, bootstrap_timeout_ms=self._patience_ms) as admin:
            topic = NewTopic(plan.topic, plan.partitions, min(3, len(self._cluster.nodes)))
            await create_topic(admin, topic, timeout_s=plan.patience_s)
        await self._healthy("the topic to have its full ISR", self._has_topic)
        tasks = await self._start_writers()
        try:
            await self._until(self._enough_in_flight, "records in flight")
            self._has_begun = True
            for number, target in enumerate(self._schedule(), 1):
                outcome.rounds.append(await self._round(number, target))
                if self._stopping:
                    break
        finally:
            for writer in self._writers:
                writer.stop()
        await asyncio.gather(*tasks)
        for writer in self._writers:
            await self._close(writer.producer)
        outcome.sent = sum(sum(writer.sent.values()) for writer in self._writers)
        outcome.failed, outcome.interrupted = self._ledger.failed, len(outcome.rounds) < plan.rounds
        self._ledger.close()
        outcome.read_back = await self._read_back()
        return outcome

    async def _start_writers(self) -> list[asyncio.Task[None]]:
        plan = self._plan
        for index in range(plan.writers):
            producer: Producer[bytes, bytes] = Producer(
                self._cluster.bootstrap,
                acks="all" if plan.acks == "all" else 1,
                enable_idempotence=plan.acks == "all",
                batch_size=256,  # so that five batches of a partition are on the wire
                linger_ms=1,
                bootstrap_timeout_ms=self._patience_ms,
            )
            await producer.start()
            self._writers.append(
                WorkloadWriter(
                    producer, self._ledger, self._clock, plan.topic, plan.partitions, f"w{index}",
                    acks="all" if plan.acks == "all" else 1, in_flight=plan.in_flight, on_error=self._failed,
                )
            )  # fmt: skip
        return [asyncio.create_task(writer.run()) for writer in self._writers]

    def _failed(self, error: OdradekError) -> None:
        self._last_error = error

    async def _close(self, producer: Producer[bytes, bytes]) -> None:
        with contextlib.suppress(ExceptionGroup):  # each failure is in the ledger already
            await producer.close()

    def _schedule(self) -> list[str]:
        """Each target equally often, in a random order."""
        plan = self._plan
        targets = [plan.targets[index % len(plan.targets)] for index in range(plan.rounds)]
        self._rng.shuffle(targets)
        return targets

    # --- One round --------------------------------------------------------------------------------------------------

    async def _round(self, number: int, target: str) -> Round:
        await self._clock.sleep(self._rng.uniform(0, UNIFORM_WINDOW_MS))
        struck, led = self._targets(target, await self._healthy("the cluster to be whole before a fault"))
        await self._until(self._enough_in_flight, "records in flight")  # last: they are answered while one asks
        self._ledger.forget_silence()
        in_flight, at_ms = self._ledger.unacknowledged, self._clock.now_ms() - self._started_ms
        silence_ms = isr_full_ms = 0
        for targets in [[node_id] for node_id in struck] if target == "rolling" else [struck]:
            silence_ms, restarted_ms = await self._injected(targets)
            await self._healthy("full ISRs after the restart")
            isr_full_ms = max(isr_full_ms, self._clock.now_ms() - restarted_ms)
        result = Round(number, at_ms, target, tuple(struck), led, in_flight, silence_ms, isr_full_ms)
        self._say(
            f"round {number:3} at {at_ms / 1000:.1f} s: {self._fault.done} {target} {struck} (led {led}), "
            f"{in_flight} in flight, silence {silence_ms} ms, full ISR {result.isr_full_ms} ms after the restart"
        )
        return result

    async def _injected(self, struck: Sequence[int]) -> tuple[int, int]:
        """The fault, until acknowledgements come again; returns the longest silence so far and when it was repaired."""
        fresh = await self._stalled_and_hit(struck)
        restarted_ms = 0
        if len(struck) == len(self._cluster.nodes):  # nobody is left: they come back first
            restarted_ms = self._restart(struck)
        await self._until(lambda: all(fresh()), "acknowledgements on every partition", self._what_is_missing)
        silence_ms = self._ledger.longest_silence_ms()
        return silence_ms, restarted_ms or self._restart(struck)

    async def _stalled_and_hit(self, struck: Sequence[int]) -> Callable[[], list[bool]]:
        """The fault; with `stall_others_ms` the others stand still for so long before, as in a long pause.

        With acks=1 the stall lasts until the struck have had their turn, however late the machine lets them: they
        acknowledge alone what the others never see. If they lead nothing any more, that is not waited for.
        Returns what tells of each partition whether it has recovered: nothing was sent since.
        """
        others = [node_id for node_id in self._cluster.nodes if node_id not in struck]
        if self._plan.stall_others_ms:
            for other in others:
                self._cluster.pause(other)
            alone = self._ledger.fresh(FRESH_ACKS)
            await self._clock.sleep(self._plan.stall_others_ms)
            if self._plan.acks == "1":
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ALONE_S):
                        await self._until(lambda: any(alone()), "acknowledgements of a leader that is alone")
        fresh = self._ledger.fresh(FRESH_ACKS)
        if self._fault.name == "stop":  # which takes a while: all at the same time, and the writers go on
            inject, cluster = self._fault.inject, self._cluster
            await asyncio.gather(*(asyncio.to_thread(inject, cluster, node_id) for node_id in struck))
            fresh = self._ledger.fresh(FRESH_ACKS)
        else:
            for node_id in struck:
                self._fault.inject(self._cluster, node_id)
        if self._plan.stall_others_ms:
            for other in others:
                self._cluster.resume(other)
        return fresh

    def _restart(self, struck: Sequence[int]) -> int:
        for node_id in struck:
            self._fault.repair(self._cluster, node_id)
        return self._clock.now_ms()

    def _targets(self, target: str, health: ClusterHealth) -> tuple[list[int], int]:
        """The brokers to kill, and how many partitions they lead."""
        partitions = list(health.of_topic(self._plan.topic).values())
        if target in ("all", "rolling"):
            return list(self._cluster.nodes), len(partitions)
        if target == "controller":
            node_id = health.controller_id
        else:
            chosen = self._rng.choice(partitions)
            leader = chosen.leadership.leader_id
            followers = [replica for replica in chosen.replicas if replica != leader]
            node_id = leader if target == "leader" else self._rng.choice(followers)
        return [node_id], sum(item.leadership.leader_id == node_id for item in partitions)

    def _enough_in_flight(self) -> bool:
        """Records are on their way, and every partition has acknowledged some: the silence is measured from there."""
        written = sum(item.acknowledged > 0 for item in self._ledger.progress.values())
        return self._ledger.unacknowledged >= MIN_IN_FLIGHT and written == self._plan.partitions

    @property
    def _patience_ms(self) -> int:
        return round(self._plan.patience_s * 1000)

    def _has_topic(self, health: ClusterHealth) -> bool:
        return len(health.of_topic(self._plan.topic)) == self._plan.partitions

    async def _healthy(
        self, what: str, settled: Callable[[ClusterHealth], bool] = lambda health: True
    ) -> ClusterHealth:
        """Until every broker sees a whole cluster. Raises `NotRecovered` after the bound of recovery."""
        try:
            return await wait_until_converged(self._cluster, timeout_s=self._plan.patience_s, settled=settled)
        except ClusterError as error:
            raise NotRecovered(f"waited for {what}: {error}") from error

    def _what_is_missing(self) -> str:
        """Why acknowledgements do not come, as far as it is known here."""
        silences = self._ledger.silences_ms(self._clock.now_ms()).items()
        facts = [f"{topic}-{partition} silent for {silence} ms" for (topic, partition), silence in sorted(silences)]
        facts += [
            f"broker {node_id} does not run" for node_id in self._cluster.nodes if not self._cluster.running(node_id)
        ]
        facts += [f"{writer.name} held up by {writer.producer.held_up_by}" for writer in self._writers]
        return "; ".join(
            [
                *facts,
                f"{self._ledger.failed} {noun(self._ledger.failed, 'record')} failed, the last by {self._last_error}",
            ]
        )

    async def _until(self, condition: Callable[[], bool], what: str, why: Callable[[], str] = lambda: "") -> None:
        """Look until it holds. Raises `NotRecovered` after the bound of recovery; `why` then says more of it."""
        deadline_ms = self._clock.now_ms() + self._patience_ms
        while not condition():
            if self._clock.now_ms() > deadline_ms:
                waited = f"waited {self._plan.patience_s:g} s for {what}"
                raise NotRecovered(": ".join(filter(None, [waited, why()])))
            await self._clock.sleep(POLL_MS)

    async def _read_back(self) -> ReadBack:
        try:
            events = read_events(self._history)
            return await read_back(
                self._cluster, self._plan.topic, events, patience_s=self._plan.patience_s, say=self._say
            )
        except ClusterError as error:
            raise NotRecovered(f"waited for all replicas to be the same: {error}") from error


def report(outcome: KillsOutcome) -> str:
    """A few lines for people."""
    silences = sorted(outcome.silences())
    counts: dict[str, int] = {}
    for each in outcome.rounds:
        counts[each.target] = counts.get(each.target, 0) + 1
    rounds = len(outcome.rounds)
    kinds = ", ".join(f"{count} {target}" for target, count in sorted(counts.items()))
    lines = [
        f"{rounds} {noun(rounds, 'round')} ({kinds}), seed {outcome.seed}, acks={outcome.acks}"
        + ", then told to stop" * outcome.interrupted,
        f"records: {outcome.sent} sent, {outcome.read_back.acknowledged} acknowledged, "
        f"{outcome.failed} without an answer, {outcome.read_back.read} read back",
        f"longest silence of a partition: median {statistics.median(silences):.0f} ms, worst {silences[-1]} ms",
    ]
    for name, found in sorted(outcome.read_back.anomalies.items()):
        lines.append(f"{name}: {found.count}")
        lines += [f"  {sentence}" for sentence in found.examples[:5]]
    lines.append("verdict: every promise was kept" if outcome.read_back.sound else "verdict: promises were BROKEN")
    return "\n".join(lines)
