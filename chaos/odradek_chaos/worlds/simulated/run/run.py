"""Run one seed: a cluster, its clients, three nemeses or more at once, then recovery, then all checks.

    start      the brokers start, the topic is created, writers and the reader begin
    faults     for `faults_ms` the nemeses strike; the invariants are checked continuously
    recovery   all faults end; every ISR must fill, every partition acknowledge, the reader reach the end, in time
    evidence   a new client reads everything; the ledger, the read and the audit of the disks must agree

A run stops at its first finding: events after a broken invariant are of little use, and the seed can be repeated.
With `to_the_end` it continues, to show the losses of the users of a broken cluster.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
from collections.abc import Callable, Iterator
from functools import cache

from odradek_proto.transport.chance import decided_by

from odradek_chaos.worlds.simulated.faults.catalogue import nemeses_of, replaying
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.kernel.process import SimulationError
from odradek_chaos.worlds.simulated.observe.tapped_network import observe
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.plan.script import Script
from odradek_chaos.worlds.simulated.run.evidence import gather_evidence
from odradek_chaos.worlds.simulated.run.expansion import expand
from odradek_chaos.worlds.simulated.run.liveness import (
    LIVENESS_MS,
    ElectionStorm,
    LivenessCheck,
    acknowledged_since,
    break_one_for_ever,
    elected_unheard,
    unhealthy_without,
)
from odradek_chaos.worlds.simulated.run.load import ClusterLoad
from odradek_chaos.worlds.simulated.run.members import STABLE_MS
from odradek_chaos.worlds.simulated.run.result import SeedResult
from odradek_chaos.worlds.simulated.world.waiting import Stopped, until, within
from odradek_chaos.worlds.simulated.world.world import LogWatch, World

CORE_LIVENESS_MS = LIVENESS_MS  # L3: with one machine broken for ever
NOT_OWED_MS = 3_000  # where no recovery is owed, after faults out of contract: time for it to happen anyway
START_MS = 30_000
TIME_LIMIT_S = 600.0  # of the whole run: something waits for ever


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

    With a script its injections and sends take the place of those that the seed would draw. `prepare` is shown the
    world before anything happens in it. Nothing of the world is left when this returns but the result, and nothing at
    all when Ctrl-C ends it, by `KeyboardInterrupt`.
    """
    _set_aside_what_is_loaded()
    with _collected_at_the_end():
        return _run(seed, options, to_the_end=to_the_end, script=script, prepare=prepare)


@contextlib.contextmanager
def _collected_at_the_end() -> Iterator[None]:
    """The collector finds next to nothing while a world lives, and all of it, whose parts know each other, afterwards.

    So it looks once, then; during long runs the loop has it look now and then, too.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect()
        if collecting:
            gc.enable()


def _run(
    seed: int,
    options: Options | None,
    *,
    to_the_end: bool,
    script: Script | None,
    prepare: Callable[[World], None] | None,
) -> SeedResult:
    plan = expand(SimLoop(seed).fork_rng("plan"), options or Options())
    loop = SimLoop(seed if script is None or not script.salt else f"{seed}+{script.salt}")
    world = World(loop, plan)
    observers = observe(world)
    world.findings.go_on = to_the_end
    if prepare is not None:
        prepare(world)
    result = SeedResult(seed, plan, world.timeline, world.board, findings=world.findings.found, script=script)
    load = ClusterLoad(world, observers)
    with _listening(world), decided_by(world.buggify):
        try:
            with _interrupts(loop):
                loop.run(_story(world, load, result, script), limit_s=TIME_LIMIT_S)
        except Stopped:
            pass
        except KeyboardInterrupt:
            _end(world)
            _forget(world, load)
            raise
        except SimulationError as error:
            world.findings.report(type(error).__name__.lower(), str(error))
        result.trace_hash, result.virtual_ms, result.events = loop.trace_digest(), world.now_ms, loop.events
        _end(world)
    for context in loop.unhandled:
        world.findings.report("unhandled-exception", f"{context.get('message')}: {context.get('exception')!r}")
    faults, buggify = world.faults, world.buggify
    result.faults, result.unavailable_ms = dict(sorted(faults.counts.items())), dict(faults.unavailability.longest_ms)
    result.points, result.branches, result.chances = (
        dict(buggify.points),
        dict(buggify.branches),
        tuple(buggify.drawn()),
    )
    result.injections, result.sends, result.costs = (
        tuple(faults.injected),
        tuple(load.sends),
        dict(world.findings.costs),
    )
    result.acknowledged, result.failed = load.ledger.acknowledged, load.ledger.failed
    result.generation = load.group.generation_id
    result.commits, result.commits_of_consumers = load.group.commits, load.consumers.commits
    _forget(world, load)
    return result


def _forget(world: World, load: ClusterLoad) -> None:
    world.loop.close()
    world.forget()
    load.ledger.events.clear()


@contextlib.contextmanager
def _interrupts(loop: SimLoop) -> Iterator[None]:
    """Ctrl-C lets the callback that runs come to its end; the second one does not wait for it.

    Where something else than Python's own handler is in place, or in a thread, all stays as it is.
    """

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        loop.interrupt()

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    try:
        signal.signal(signal.SIGINT, interrupt)
    except ValueError:  # in a thread, which no signal interrupts
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextlib.contextmanager
def _listening(world: World) -> Iterator[None]:
    """Take what the product logs: errors are findings, and nothing is printed."""
    watch, root = LogWatch(world.exemptions, world.findings, world.copies), logging.getLogger()
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


async def _story(world: World, load: ClusterLoad, result: SeedResult, script: Script | None) -> None:
    world.cluster.start_all()
    world.watch()
    world.operator.look()
    await within(world, load.create_topic(), START_MS, "the topic was not created")
    load.start_writers(None if script is None else script.sends)
    load.start_reader()
    if world.plan.compaction:
        load.states.start()
    load.start_members()
    load.start_kafka_writer()
    result.faults_began_us = world.loop.now_us
    await _faults(world, script)
    load.end_one_member_of_each_group()
    if world.plan.core:
        await _core(world, load)
    world.heal()
    liveness = await _recovery(world, load, result)
    await _recovery_of_groups(world, load)
    await gather_evidence(world, load, result)
    liveness.judge_errors()


async def _faults(world: World, script: Script | None) -> None:
    world.faults.faulty = True
    if script is None:
        tasks = [asyncio.ensure_future(nemesis.run()) for nemesis in nemeses_of(world)]
    else:
        tasks = [
            asyncio.ensure_future(who.replay(injections)) for who, injections in replaying(world, script.injections)
        ]
    end_ms = world.now_ms + world.plan.options.faults_ms
    await until(world, lambda: world.now_ms >= end_ms)
    world.faults.faulty = False
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


async def _core(world: World, load: ClusterLoad) -> None:
    """Liveness, L3: one machine stays broken for ever, the other two and what they have must be enough."""
    broken = break_one_for_ever(world)
    if broken == 0:
        return
    limit_ms = CORE_LIVENESS_MS + world.plan.settings.broker_session_timeout_ms
    begun_ms = world.now_ms
    try:
        await until(
            world, lambda: not unhealthy_without(world, broken) and acknowledged_since(world, load, begun_ms), limit_ms
        )
    except TimeoutError:
        unowed = elected_unheard(world, broken)
        state = unhealthy_without(world, broken, unowed)
        if not state and not acknowledged_since(world, load, begun_ms, unowed):
            state = "no acknowledgement"
        if state and world.expectations.recovers:
            world.findings.report("core-not-healthy", f"{limit_ms} ms with b{broken} broken for ever: {state}", broken)
            if world.findings.found:
                raise Stopped from None


async def _recovery_of_groups(world: World, load: ClusterLoad) -> None:
    """Without faults a group is stable after a few of its timeouts."""
    limit_ms = STABLE_MS
    try:
        await until(world, load.groups_are_stable, limit_ms if world.expectations.recovers else NOT_OWED_MS)
    except TimeoutError:
        if world.expectations.recovers:
            sentence = f"{limit_ms} ms after the faults, in generation {load.group.generation_id}"
            world.findings.report("group-not-stable", sentence)
            raise Stopped from None
    load.stop_members()


async def _recovery(world: World, load: ClusterLoad, result: SeedResult) -> LivenessCheck:
    """Liveness, L1, L2, L4, L7: with all faults healed, everything is well again in bounded time."""
    liveness, storm = LivenessCheck(world, load), ElectionStorm(world)
    limit_ms = (
        LIVENESS_MS if world.expectations.recovers else NOT_OWED_MS
    ) + world.plan.settings.broker_session_timeout_ms
    try:
        await until(world, liveness.is_healthy, limit_ms)
    except TimeoutError:
        liveness.give_up()
        if world.findings.found or not world.plan.options.checks:
            raise Stopped from None
    else:
        storm.judge()
        result.recovered_ms = world.now_ms - liveness.began_ms
    return liveness
