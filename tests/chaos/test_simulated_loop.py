"""The loop with virtual time: asyncio runs on it, time costs nothing, and a seed decides everything."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import sys
import zlib
from asyncio import sleep as virtual_sleep  # on the simulated loop: no real time passes
from collections.abc import AsyncIterator
from random import Random

import pytest
from odradek_chaos.worlds.simulated.kernel.clock import WALL_START_MS, Monotonic, SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.kernel.process import Deadlock, Livelock, SimulationError, TimeLimit
from odradek_chaos.worlds.simulated.kernel.trace import GATHERED, Trace


def test_time_is_virtual() -> None:
    """A day passes at once, and timers fire in order at their exact times."""
    loop = SimLoop()
    clock = SimClock(loop, loop.fork_rng("clock"), skew_ms=-250)
    fired: list[tuple[str, int]] = []

    async def story() -> None:
        clock.call_later(50, lambda: fired.append(("second", clock.now_ms())))
        clock.call_later(20, lambda: fired.append(("first", clock.now_ms())))
        clock.call_later(30, lambda: fired.append(("never", clock.now_ms()))).cancel()
        await clock.sleep(86_400_000)

    loop.run(story())
    assert fired == [("first", 20), ("second", 50)]
    assert clock.now_ms() == 86_400_000
    assert clock.wall_ms() == WALL_START_MS + 86_400_000 - 250


def test_asyncio_runs_on_it() -> None:
    """Tasks, queues, locks, timeouts, groups and generators behave as on any loop."""
    loop = SimLoop()

    async def numbers() -> AsyncIterator[int]:
        for number in range(3):
            await virtual_sleep(0.1)
            yield number

    async def story() -> list[object]:
        queue: asyncio.Queue[int] = asyncio.Queue(1)
        lock, event = asyncio.Lock(), asyncio.Event()
        seen: list[object] = []

        async def produce() -> None:
            async for number in numbers():
                async with lock:
                    await queue.put(number)
            event.set()

        async with asyncio.TaskGroup() as group:
            group.create_task(produce())
            seen += [await queue.get() for _ in range(3)]
        await asyncio.wait_for(event.wait(), 1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await virtual_sleep(9)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(loop.create_future(), 0.5)
        seen += await asyncio.gather(virtual_sleep(2, "a"), virtual_sleep(1, "b"))
        async for number in numbers():
            if number == 1:
                break
        return seen

    assert loop.run(story()) == [0, 1, 2, "a", "b"]
    assert loop.now_us == 300_000 + 500_000 + 500_000 + 2_000_000 + 200_000
    assert loop.unhandled == []


def test_order_is_fifo_inside_a_node_and_open_between_nodes() -> None:
    """Callbacks of one node never overtake each other; those of several nodes interleave by seed."""

    def history(seed: int) -> list[tuple[str, int]]:
        loop = SimLoop(seed)
        ran: list[tuple[str, int]] = []

        async def node(name: str) -> None:
            for number in range(20):
                loop.call_soon(ran.append, (name, number))

        async def story() -> None:
            await asyncio.gather(*[loop.spawn(loop.new_process(name), node(name)) for name in ("a", "b")])
            await virtual_sleep(0.001)

        loop.run(story())
        return ran

    histories = [history(seed) for seed in range(5)]
    for ran in histories:
        for name in ("a", "b"):
            assert [number for who, number in ran if who == name] == list(range(20))
    assert len({tuple(ran) for ran in histories}) == 5


def test_paused_node_runs_its_timers_at_resume() -> None:
    """Nothing of a paused node runs; what piled up runs at resume, in order."""
    loop = SimLoop()
    ticks: list[int] = []

    def tick(delay_ms: int) -> None:
        ticks.append(loop.now_us + delay_ms)

    async def ticking() -> None:
        for delay_ms in (10, 20, 30):
            loop.call_later(delay_ms / 1000, tick, delay_ms)
        await virtual_sleep(0.015)
        ticks.append(loop.now_us)

    async def story() -> None:
        process = loop.new_process("n")
        task = loop.spawn(process, ticking())
        await virtual_sleep(0.005)
        loop.pause(process)
        await virtual_sleep(1)
        assert ticks == []
        loop.resume(process)
        await task

    loop.run(story())
    assert ticks == [1_005_010, 1_005_020, 1_005_030, 1_005_000]
    assert loop.now_us == 1_005_000


def test_killed_node_unwinds_alone_and_never_runs_again() -> None:
    """Its tasks see their cancellation at once; a cleanup that waits never comes back; timers are dropped."""
    loop = SimLoop()
    seen: list[str] = []

    async def worker(name: str) -> None:
        try:
            await virtual_sleep(10)
        finally:
            seen.append(f"{name} unwinds at {loop.now_us}")
            await virtual_sleep(1)
            seen.append("a dead node waited successfully")

    async def node() -> None:
        loop.call_later(0.5, lambda: seen.append("a dead node's timer fired"))
        await asyncio.gather(worker("a"), worker("b"))

    async def story() -> None:
        process = loop.new_process("n")
        loop.spawn(process, node())
        await virtual_sleep(0.1)
        loop.kill(process)
        loop.kill(process)
        await virtual_sleep(0)
        assert seen == ["a unwinds at 100000", "b unwinds at 100000"]
        await virtual_sleep(20)

    loop.run(story())
    assert len(seen) == 2
    assert loop.unhandled == []


def test_node_that_kills_itself_in_the_middle_of_a_step() -> None:
    """A kill from inside a node's own task takes effect at its next wait."""
    loop = SimLoop()
    seen: list[str] = []

    async def story() -> None:
        process = loop.new_process("n")

        async def node() -> None:
            loop.kill(process)
            seen.append("end of the step")
            await virtual_sleep(0)
            seen.append("another step")

        loop.spawn(process, node())
        await virtual_sleep(1)

    loop.run(story())
    assert seen == ["end of the step"]


def test_stuck_programs_are_errors_with_a_dump() -> None:
    """Deadlock, livelock and a missed time limit say which task waits where."""

    async def waits() -> None:
        await asyncio.get_running_loop().create_future()

    loop = SimLoop(most_at_one_instant=1_000)

    def spin() -> None:
        loop.call_soon(spin)

    async def spins() -> None:
        spin()
        await virtual_sleep(1)

    with pytest.raises(Deadlock, match=r"world/main in .*test_simulated_loop\.py"):
        SimLoop().run(waits())
    with pytest.raises(TimeLimit, match="world/main"):
        SimLoop().run(virtual_sleep(100), limit_s=99)
    with pytest.raises(Livelock):
        loop.run(spins())


def test_a_stuck_world_leaves_nothing_to_the_garbage_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tasks end with it, their `finally` blocks in a running loop; the collector would find them half-way."""
    complaints, ended = list[object](), list[str]()
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    loop = SimLoop(most_at_one_instant=1_000)

    async def holds(name: str) -> None:
        try:
            await loop.create_future()
        finally:
            await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0))])
            ended.append(name)

    def spin() -> None:
        loop.call_soon(spin)

    async def story() -> None:
        loop.spawn(loop.new_process("one"), holds("one"))
        waiting = asyncio.ensure_future(holds("world"))
        await virtual_sleep(0.01)
        spin()
        await waiting

    with pytest.raises(Livelock):
        loop.run(story())
    loop.close()
    gc.collect()
    assert (sorted(ended), complaints) == (["one", "world"], [])


def test_threads_are_refused() -> None:
    """Neither executors nor other threads' callbacks exist in the simulated world."""
    loop = SimLoop()

    async def story() -> None:
        with pytest.raises(SimulationError):
            await asyncio.to_thread(lambda: None)
        with pytest.raises(SimulationError):
            loop.call_soon_threadsafe(lambda: None)

    loop.run(story())


def test_unhandled_errors_are_kept() -> None:
    """A callback that raises does not stop the world, and is found afterwards."""
    loop = SimLoop()

    async def story() -> None:
        loop.call_soon(lambda: 1 // 0)
        await virtual_sleep(1)

    loop.run(story())
    assert [type(context["exception"]) for context in loop.unhandled] == [ZeroDivisionError]


def test_to_look_at_the_trace_changes_nothing() -> None:
    """Twice in a row it is the same, and a run in which somebody looked ends with the same digest."""

    async def story(loop: SimLoop, looks: bool) -> None:
        for _ in range(3):
            await virtual_sleep(0.01)
            loop.trace("something")
            if looks:
                assert loop.trace_digest() == loop.trace_digest()

    digests = set()
    for looks in (False, True):
        loop = SimLoop(5)
        loop.run(story(loop, looks))
        digests.add(loop.trace_digest())
        loop.close()
    assert len(digests) == 1


def test_a_trace_is_the_same_in_every_python_and_on_every_machine() -> None:
    """A BLAKE2b of 64-bit numbers, little-endian: what this process, or any other program, makes of them."""
    trace, words = Trace(), list[int]()
    for moment in range(3 * GATHERED):
        trace.label("something")
        trace.steps.append(moment % 7)
        trace.mix(moment)
        words += [zlib.crc32(b"something"), moment % 7, ~moment]
    told = b"".join(word.to_bytes(8, "little", signed=True) for word in [*words, ~99])
    assert trace.digest(99) == hashlib.blake2b(told, digest_size=8).hexdigest() == "8de1dcc1e008e953"


def test_a_dead_process_cannot_be_resumed() -> None:
    """Whoever thaws it later does no harm: what it is asked to run is dropped."""
    loop = SimLoop(5)
    process = loop.new_process("one")
    ran: list[int] = []

    async def story() -> None:
        loop.spawn(process, virtual_sleep(10))
        await virtual_sleep(0.01)
        loop.kill(process)
        await virtual_sleep(0.01)
        loop.resume(process)
        loop.call_soon(ran.append, 1, context=loop.context_of(process))
        await virtual_sleep(0.01)

    loop.run(story())
    loop.close()
    assert ran == []


def test_a_cancelled_sleeper_is_nothing_to_wait_for() -> None:
    """When nobody else waits for anything, the loop says so at once and not when the sleep would have ended."""
    loop = SimLoop(5)
    clock = SimClock(loop, loop.fork_rng("clock"))

    async def story() -> None:
        sleeping = asyncio.ensure_future(clock.sleep(3_600_000))
        await virtual_sleep(0.01)
        sleeping.cancel()
        await loop.create_future()

    with pytest.raises(Deadlock):
        loop.run(story())
    assert loop.now_us < 1_000_000
    loop.close()


def test_a_clock_at_another_rate_is_consistent_with_itself() -> None:
    """Whoever sleeps a second finds a second passed, half of one for the others at a rate of 2. It never jumps."""
    loop = SimLoop(1)
    monotonic = Monotonic(loop)
    clock = SimClock(loop, Random(1), monotonic=monotonic)
    seen: list[int] = []

    async def story() -> None:
        for rate, lasts_ms in ((1.0, 1_000), (2.0, 500), (0.8, 1_250), (1.0, 1_000)):
            before, began_us = clock.now_ms(), loop.now_us
            monotonic.go_at(rate)
            assert clock.now_ms() == before
            await clock.sleep(1_000)
            assert (clock.now_ms() - before, (loop.now_us - began_us) // 1000) == (1_000, lasts_ms)
            rung = asyncio.Event()
            clock.call_later(1_000, rung.set)
            await rung.wait()
            seen.append(clock.now_ms() - before)

    loop.run(story())
    loop.close()
    assert seen == [2_000] * 4
