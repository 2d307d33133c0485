"""What a fault exempts: that broker and those bytes, and nobody and nothing beside them."""

from __future__ import annotations

import errno
import logging
from asyncio import sleep as virtual_sleep  # on the simulated loop: no real time passes
from typing import Any

import pytest
from odradek.shared.errors import CorruptRecords
from odradek_broker.core.quorum.elections import Elections
from odradek_chaos.worlds.simulated.cluster.cluster import Crash
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.faults.catalogue import nemesis
from odradek_chaos.worlds.simulated.observe.tapped_network import observe
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.plan.script import Injection, Script
from odradek_chaos.worlds.simulated.run import load as load_module
from odradek_chaos.worlds.simulated.run.load import ClusterLoad
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_chaos.worlds.simulated.world.world import LogWatch, World

from tests.simulation.worlds import new_world

SOUND, FULL = 1, 2
DISK_FULL = {"broker": FULL, "left_bytes": 0, "full_ms": 100}
NO_ROOM = OSError(errno.ENOSPC, "No space left on device")
BROKEN, PLANTED = AssertionError("a broken assertion"), ValueError("no disk raises this")
FAILED = RuntimeError("the log directory failed")
FAILED.__cause__ = NO_ROOM


def checks_of(world: World) -> list[str]:
    world.loop.close()
    return [finding.check for finding in world.findings.found]


async def room_again(world: World) -> None:
    """A disk was full for a while."""
    await nemesis(world, "disk-full").act(DISK_FULL)
    await virtual_sleep(1)


@pytest.mark.parametrize(("broker_id", "found"), [(SOUND, ["unexpected-error"]), (FULL, [])])
def test_a_full_disk_excuses_what_its_own_broker_logs(broker_id: int, found: list[str]) -> None:
    """An error of another broker has another cause."""
    world = new_world()
    logger = logging.getLogger(f"test of exemptions {broker_id}")
    logger.propagate = False
    logger.addHandler(LogWatch(world.exemptions, world.findings, world.copies))

    async def main(ports: NodePorts) -> None:
        logger.error("something failed")

    async def story() -> None:
        await nemesis(world, "disk-full").act(DISK_FULL)
        world.cluster.machines[broker_id].start(main)
        await virtual_sleep(0.01)

    world.loop.run(story())
    assert checks_of(world) == found


def test_a_disk_in_the_wrong_machine_excuses_its_owner_too() -> None:
    """What was done to it while two disks were swapped shows when he has it back; a third one has no part in it."""
    world = new_world()
    world.exemptions.swapped(1, 2)
    world.exemptions.tampered_with(2)
    world.exemptions.swapped(1, 2)
    world.exemptions.tampered_with(3)
    assert [world.exemptions.has_disk(broker_id) for broker_id in (1, 2, 3)] == [True, True, True]
    world = new_world()
    world.exemptions.swapped(1, 2)
    world.exemptions.swapped(1, 2)
    world.exemptions.tampered_with(2)
    assert [world.exemptions.has_disk(broker_id) for broker_id in (1, 2, 3)] == [False, True, False]
    world.loop.close()


def test_a_disk_that_is_mended_in_the_wrong_machine_is_mended_once() -> None:
    """Whose fault is over is who had it, wherever the disk is by then: the next one of either counts as any other."""
    world = new_world()
    mended = world.exemptions.tampered_with(2)
    world.exemptions.swapped(1, 2)
    mended()
    world.exemptions.swapped(1, 2)
    for broker_id in (1, 2):
        assert not world.exemptions.is_crash_exempt(Crash(broker_id, 1, 0, NO_ROOM))
        world.exemptions.tampered_with(broker_id)
        assert world.exemptions.is_crash_exempt(Crash(broker_id, 1, 0, NO_ROOM))
    world.loop.close()


@pytest.mark.parametrize(
    ("crash", "found"),
    [
        (Crash(FULL, 1, 0, NO_ROOM), []),
        (Crash(SOUND, 1, 0, NO_ROOM), ["no-crash"]),
        (Crash(FULL, 1, 0, BROKEN), ["no-crash"]),
        (Crash(FULL, 1, 0, PLANTED), ["no-crash"]),
        (Crash(FULL, 1, 0, FAILED), []),
        (Crash(FULL, 2, 0, NO_ROOM), ["no-crash"]),
        (Crash(FULL, 1, 0, ExceptionGroup("tasks", [NO_ROOM, BROKEN])), ["no-crash"]),
    ],
    ids=[
        "full",
        "another broker",
        "a mistake",
        "another mistake",
        "from it",
        "started since",
        "a mistake among others",
    ],
)
def test_a_full_disk_excuses_the_end_that_it_makes(crash: Crash, found: list[str]) -> None:
    """No disk breaks an assertion: such an end would have come without the fault, too. Nor does one that is mended."""
    world = new_world()
    world.cluster.machines[FULL].incarnation = 1
    world.loop.run(room_again(world))
    world.cluster.crashes.append(crash)
    world.look_for_crashes()
    assert checks_of(world) == found


def test_damaged_bytes_excuse_a_broken_assertion_of_who_has_them() -> None:
    """What is checked twice is checked for that."""
    world = new_world()
    world.exemptions.damaged_bytes(FULL, "t-0")
    world.cluster.crashes += [Crash(FULL, 1, 0, BROKEN), Crash(SOUND, 1, 0, BROKEN)]
    world.look_for_crashes()
    assert [finding.broker_id for finding in world.findings.found] == [SOUND]
    world.loop.close()


@pytest.mark.slow
def test_who_ran_on_the_wrong_disk_is_excused_for_that_life() -> None:
    """Back on its own disk a broker is like any other one."""
    injection = Injection(800_000, "swap-disks", {"brokers": [1, 2], "wrong_ms": 50, "down_ms": 50})
    options = Options(faults_ms=2_000, chance="none", core="never", shape="combined")
    assert not run_seed(1, options, script=Script((injection,))).findings

    def prepare(world: World) -> None:
        world.faults.later(2_000, lambda: world.cluster.crashes.append(Crash(1, 3, 0, NO_ROOM)))

    found = run_seed(1, options, script=Script((injection,)), prepare=prepare).findings
    assert [(finding.check, finding.broker_id) for finding in found] == [("no-crash", 1)]


@pytest.mark.parametrize(("is_damaged", "found"), [(False, ["client-failed"]), (True, [])])
def test_a_reader_may_meet_damage_only_where_bytes_were_damaged(
    is_damaged: bool, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever else is done to a disk: what is served has to be sound."""
    world = new_world()
    left = [CorruptRecords("t-0: a batch does not have its CRC")]

    class Meets:
        def __init__(self, *_: Any, **__: Any) -> None:
            if left:
                raise left.pop()

        async def __aenter__(self) -> Any:
            await virtual_sleep(1_000)

        async def __aexit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(load_module, "Consumer", Meets)

    async def story() -> None:
        await nemesis(world, "disk-full").act(DISK_FULL)
        if is_damaged:
            world.exemptions.damaged_bytes(FULL, "t-0")
        ClusterLoad(world, observe(world)).start_reader()
        await virtual_sleep(0.5)

    world.loop.run(story())
    assert checks_of(world) == found


@pytest.mark.slow
def test_no_disk_excuses_a_mistake_of_the_product(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody may end by what no disk raises, whatever was done to his disk before."""

    def planted(*_: object) -> None:
        raise ValueError("planted")

    monkeypatch.setattr(Elections, "on_end", planted)
    result = run_seed(1, Options(faults_ms=5_000, nemeses=("stop", "disk-full")), to_the_end=True)
    assert "planted" in str(result.findings[0])
    ended = [event for event in result.timeline.moments if event.event == "!ended"]
    assert not [event for event in ended if event.facts["error"] == "ValueError"]
