"""Run one seed: a cluster, its clients, three nemeses or more at once, then peace, then every check there is.

    start      brokers come up, the topic is made, writers and the reader begin
    faults     for `faults_ms` the nemeses strike; the invariants are looked at all the time
    peace      all faults end; every ISR must fill, every partition acknowledge, the reader reach the end, in time
    evidence   a fresh client reads everything; the ledger, the read and the audit of the disks must agree

A run stops at its first finding: what follows a broken invariant is of little use, and the seed can be run again.
With `to_the_end` it goes on, so that one can see what the users of a broken cluster lose.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from odradek_audit.history import DELIVER, History
from odradek_audit.local import audit_disk
from odradek_proto.transport.chance import decided_by

from odradek_chaos.verify import verify
from odradek_chaos.worlds.simulated.board import Board
from odradek_chaos.worlds.simulated.checks.at_rest import logs_at_rest
from odradek_chaos.worlds.simulated.checks.invariant import Finding
from odradek_chaos.worlds.simulated.cluster import LOG_DIRECTORY
from odradek_chaos.worlds.simulated.faults.catalogue import nemeses_of, replaying
from odradek_chaos.worlds.simulated.load import Load, Record
from odradek_chaos.worlds.simulated.loop import SimLoop
from odradek_chaos.worlds.simulated.options import Options, Plan, expand
from odradek_chaos.worlds.simulated.process import SimulationError
from odradek_chaos.worlds.simulated.recovery import (
    ElectionStorm,
    acknowledged_since,
    break_one_for_ever,
    not_in_sync,
    not_well_without,
)
from odradek_chaos.worlds.simulated.script import Script, Send, Strike
from odradek_chaos.worlds.simulated.timeline import Timeline
from odradek_chaos.worlds.simulated.views import ClusterDisk
from odradek_chaos.worlds.simulated.world import LogWatch, World

POLL_US = 20_000
PEACE_MS = 20_000  # L1, L2, L4: leaders, acknowledgements and full ISRs within this, plus the session timeout
NOT_OWED_MS = 3_000  # for a peace that is not owed, after faults out of contract: it is given a chance, no more
REACH_END_MS = 30_000  # L5
START_MS = 30_000
TIME_LIMIT_S = 600.0  # of the whole run: something waits for ever


class Stopped(Exception):
    """There is a finding: the run ends here."""


@dataclass(slots=True)
class SeedResult:
    """What one seed gave. `virtual_ms` is the length of the run in virtual time."""

    seed: int
    plan: Plan
    timeline: Timeline
    board: Board
    trace_hash: str = ""
    virtual_ms: int = 0
    events: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    acknowledged: int = 0
    failed: int = 0
    read: int = 0
    compared: int = 0  # records that the audit compared between replicas
    faults_began_us: int = 0
    silences_ms: dict[str, int] = field(default_factory=dict)  # longest without an acknowledgement, by kind of fault
    recovered_ms: int = -1  # from the end of the faults to full ISRs and an acknowledgement of every partition
    findings: list[Finding] = field(default_factory=list)
    costs: dict[str, int] = field(default_factory=dict)  # checks that found what is not owed under these faults
    chances: tuple[str, ...] = ()  # chance points that may strike under this seed
    points: dict[str, int] = field(default_factory=dict)  # and how often each did
    branches: dict[str, int] = field(default_factory=dict)  # rare branches of the product that were taken
    script: Script | None = None  # what replaced the draw of faults and records
    strikes: tuple[Strike, ...] = ()
    sends: tuple[Send, ...] = ()

    @property
    def command(self) -> str:
        """The one command that runs this again."""
        arguments = self.plan.options.arguments()
        return f"make sim SEED={self.seed}" + (f' SIM_OPTIONS="{arguments}"' if arguments else "")

    def report(self) -> str:
        """A failure as a text: the check, the events around it, what the seed expands to, how to repeat it."""
        lines = [f"seed {self.seed}: {finding}" for finding in self.findings]
        if self.findings:
            first = self.findings[0]
            partition = first.partition if first.partition.rpartition("-")[2].isdigit() else ""
            brokers = sorted({moment.broker_id for moment in self.timeline.moments} - {0})
            if partition:
                lines += ["", *self.board.screen(self.timeline, partition, first.time_us, brokers), ""]
            else:
                lines += ["", *self.timeline.around(first.time_us), ""]
        lines += [f"{name} = {value}" for name, value in self.plan.describe().items()]
        if self.script is not None:
            lines += ["", f"{len(self.script.strikes)} faults of the script:"]
            lines += [strike.line() for strike in self.script.strikes]
            sends = self.script.sends
            lines += [] if sends is None else ["", f"{len(sends)} records of the script:", *map(str, sends)]
            return "\n".join(lines)
        lines.append(f"chance points = {', '.join(self.chances) or 'none'}")
        lines += ["", f"again: {self.command}"]
        return "\n".join(lines)


@cache
def _set_aside_what_is_loaded() -> None:
    """Once in a process: the collector need not look through all modules again whenever a run makes garbage."""
    gc.collect()
    gc.freeze()


def run_seed(
    seed: int,
    options: Options | None = None,
    *,
    to_the_end: bool = False,
    script: Script | None = None,
    prepare: Callable[[World], None] | None = None,
) -> SeedResult:
    """Run one seed to its end, or to its first finding. Same seed and options, same result and trace hash.

    With a script its strikes and sends take the place of those that the seed would draw. `prepare` is shown the world
    before anything happens in it.
    """
    _set_aside_what_is_loaded()
    plan = expand(SimLoop(seed).fork_rng("plan"), options or Options())
    loop = SimLoop(seed if script is None or not script.salt else f"{seed}+{script.salt}")
    world = World(loop, plan)
    world.goes_on = to_the_end
    if prepare is not None:
        prepare(world)
    result = SeedResult(seed, plan, world.timeline, world.board, findings=world.findings, script=script)
    load = Load(world)
    with _listening(world), decided_by(world.luck):
        try:
            loop.run(_story(world, load, result, script), limit_s=TIME_LIMIT_S)
        except Stopped:
            pass
        except SimulationError as error:
            world.report(type(error).__name__.lower(), str(error))
        result.trace_hash, result.virtual_ms, result.events = loop.trace_digest(), world.now_ms, loop.events
        _end(world)
    for context in loop.unhandled:
        world.report("unhandled-exception", f"{context.get('message')}: {context.get('exception')!r}")
    result.faults, result.silences_ms = dict(sorted(world.faults.items())), dict(world.silences.longest_ms)
    result.points, result.branches = dict(world.luck.points), dict(world.luck.branches)
    result.chances = tuple(world.luck.drawn())
    result.strikes, result.sends, result.costs = tuple(world.strikes), tuple(load.sends), dict(world.costs)
    result.acknowledged, result.failed = load.ledger.acknowledged, load.ledger.failed
    loop.close()
    return result


@contextlib.contextmanager
def _listening(world: World) -> Iterator[None]:
    """Take what the product logs: errors are findings, and nothing is printed."""
    watch, root = LogWatch(world), logging.getLogger()
    before, root.handlers = root.handlers, [watch]
    try:
        yield
    finally:
        root.handlers = before


def _end(world: World) -> None:
    """Kill whoever still runs, so that nothing is left to the garbage collector."""
    if world.loop.is_closed():
        return

    async def kill_all() -> None:
        for machine in (*world.cluster.machines.values(), *world.cluster.clients):
            machine.kill()
        await asyncio.sleep(0.001)

    world.loop.run(kill_all())


# --- the story ---------------------------------------------------------------------------------------------------


async def _story(world: World, load: Load, result: SeedResult, script: Script | None) -> None:
    world.cluster.start_all()
    world.watch()
    world.operator.look()
    await _within(world, load.create_topic(), START_MS, "the topic was not created")
    load.start_writers(None if script is None else script.sends)
    load.start_reader()
    result.faults_began_us = world.loop.now_us
    await _faults(world, script)
    if world.plan.core:
        await _core(world, load)
    world.heal()
    await _peace(world, load, result)
    await _evidence(world, load, result)


async def _faults(world: World, script: Script | None) -> None:
    world.faulty = True
    if script is None:
        tasks = [asyncio.ensure_future(nemesis.run()) for nemesis in nemeses_of(world)]
    else:
        tasks = [asyncio.ensure_future(who.replay(strikes)) for who, strikes in replaying(world, script.strikes)]
    end_ms = world.now_ms + world.plan.options.faults_ms
    await _until(world, lambda: world.now_ms >= end_ms)
    world.faulty = False
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


async def _core(world: World, load: Load) -> None:
    """Liveness, L3: one machine stays broken for ever, the other two and what they have must be enough."""
    broken = break_one_for_ever(world)
    if broken == 0:
        return
    limit_ms = PEACE_MS + world.plan.settings.broker_session_timeout_ms
    begun_ms = world.now_ms
    try:
        await _until(
            world, lambda: not not_well_without(world, broken) and acknowledged_since(world, load, begun_ms), limit_ms
        )
    except TimeoutError:
        if world.promises.recovers:
            state = not_well_without(world, broken) or "no acknowledgement"
            world.report("core-not-healthy", f"{limit_ms} ms with b{broken} broken for ever: {state}", broken)
            raise Stopped from None


async def _peace(world: World, load: Load, result: SeedResult) -> None:
    """Liveness, L1, L2, L4, L7: with all faults healed, everything is well again in bounded time."""
    healed_ms, storm = world.now_ms, ElectionStorm(world)
    limit_ms = (PEACE_MS if world.promises.recovers else NOT_OWED_MS) + world.plan.settings.broker_session_timeout_ms

    def is_well() -> bool:
        return world.operator.is_done and not not_in_sync(world) and acknowledged_since(world, load, healed_ms)

    try:
        await _until(world, is_well, limit_ms)
    except TimeoutError:
        if world.promises.recovers:
            sentence = f"{limit_ms} ms after the faults ended: {not_in_sync(world) or 'no acknowledgement'}"
            world.report("not-healthy-again", sentence)
        raise Stopped from None
    storm.judge()
    result.recovered_ms = world.now_ms - healed_ms


async def _evidence(world: World, load: Load, result: SeedResult) -> None:
    await _within(world, load.stop_writers(), REACH_END_MS, "the writers did not end")
    records: list[Record] = []

    async def read() -> None:
        records.extend(await load.read_everything())

    await _within(world, read(), REACH_END_MS, "the last read did not end")
    result.read = len(records)
    _judge_read(world, load, records)
    ends = _ends(records)
    try:
        await _until(world, lambda: all(load.positions.get(p, 0) >= end for p, end in ends.items()), REACH_END_MS)
    except TimeoutError:
        world.report("reader-behind", f"the reader is at {load.positions}, the partitions end at {ends}")
    try:
        await _until(world, lambda: not _differing_ends(world), REACH_END_MS)
    except TimeoutError:
        world.report("not-converged", _differing_ends(world))
    for check, (broker_id, partition, sentence) in logs_at_rest(world.watcher.now):
        world.report(check, sentence, broker_id, partition)
    _judge_disks(world, load, result)


def _judge_read(world: World, load: Load, records: list[Record]) -> None:
    verdict = verify(load.ledger.events, records)
    for anomaly, found in sorted(verdict.anomalies.items()):
        if anomaly != "phantom" and world.plan.options.acks != "all":
            continue  # nothing else is owed (B.2): such a producer is not idempotent either
        world.report(anomaly, f"{found.count} times: {found.examples[0]}")
    there = {(partition, offset): value for _, partition, offset, value in records}
    for event in load.ledger.events:
        if event.type == DELIVER and there.get((event.partition, event.offset), event.value) != event.value:
            sentence = f"offset {event.offset} was delivered as {event.value!r} and is another record now"
            world.report("inconsistent-read", sentence, partition=f"{event.topic}-{event.partition}")


def _ends(records: list[Record]) -> dict[int, int]:
    ends: dict[int, int] = {}
    for _, partition, offset, _ in records:
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    return ends


def _differing_ends(world: World) -> str:
    """Where replicas at rest differ in log end offset or high watermark; empty when nowhere (G5)."""
    image = world.cluster.newest_image()
    for tp in world.partitions:
        states = {
            broker_id: (hosted[tp].state.log_end_offset, hosted[tp].state.high_watermark)
            for broker_id in world.cluster.machines
            if tp in (hosted := world.cluster.hosted(broker_id))
        }
        registration = image.partition(tp)
        replicas = registration.replicas if registration is not None else ()
        if sorted(states) != sorted(replicas) or len(set(states.values())) > 1:
            return f"{tp}: log end offset and high watermark by broker are {states}"
    return ""


def _judge_disks(world: World, load: Load, result: SeedResult) -> None:
    """The audit over the simulated disks, through the same code that reads real directories."""
    disk = ClusterDisk({machine.name: machine.disk for machine in world.cluster.machines.values()})
    replicas = {name: f"/{name}{LOG_DIRECTORY}" for name in disk.machines}
    history = History(load.ledger.events) if world.plan.options.acks == "all" else None
    report = audit_disk(disk, replicas, history=history, settled=True)
    result.compared = report.compared_records
    for finding in report.findings:
        partition = f"{finding.topic}-{finding.partition}"
        world.report(f"audit-{finding.check}", f"{finding.replica}: {finding.sentence}", partition=partition)


# --- waiting -----------------------------------------------------------------------------------------------------


async def _until(world: World, condition: Callable[[], bool], limit_ms: int | None = None) -> None:
    """Wait in virtual time. Raises `Stopped` at a finding, `TimeoutError` at the limit."""
    end_ms = None if limit_ms is None else world.now_ms + limit_ms
    while not condition():
        if world.findings and not world.goes_on:
            raise Stopped
        if end_ms is not None and world.now_ms >= end_ms:
            raise TimeoutError
        await world.loop.sleep_us(POLL_US)
    if world.findings and not world.goes_on:
        raise Stopped


async def _within(world: World, work: Coroutine[Any, Any, None], limit_ms: int, otherwise: str) -> None:
    task = asyncio.ensure_future(work)
    try:
        await _until(world, task.done, limit_ms)
    except TimeoutError:
        world.report("stuck", f"{otherwise} within {limit_ms} ms")
        raise Stopped from None
    task.result()
