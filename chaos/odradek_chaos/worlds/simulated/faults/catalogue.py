"""Makes the nemeses of a run from their names."""

from __future__ import annotations

from odradek_chaos.worlds.simulated.faults.administration import Reassign
from odradek_chaos.worlds.simulated.faults.calls import DuplicateCalls, LoseCalls, Reset, StaleMetadata
from odradek_chaos.worlds.simulated.faults.clients import ClientCrash, ZombieClient
from odradek_chaos.worlds.simulated.faults.clocks import Skew
from odradek_chaos.worlds.simulated.faults.damage import (
    FlipAny,
    FlipIndex,
    FlipLog,
    NewDisk,
    StaleCheckpoint,
    TornTail,
    Wipe,
)
from odradek_chaos.worlds.simulated.faults.disks import DiskFull, IoError, SlowDisk, SwapDisks
from odradek_chaos.worlds.simulated.faults.links import Bridge, Cut, Ring, Slow, SlowFollower, Stall, Swizzle
from odradek_chaos.worlds.simulated.faults.nemesis import Nemesis
from odradek_chaos.worlds.simulated.faults.power import Blackout, LyingFsync, Power, PowerOne
from odradek_chaos.worlds.simulated.faults.processes import (
    ControllerBounce,
    CrashAll,
    DoubleKill,
    Kill,
    Pause,
    QuorumLoss,
    Rolling,
    RollingHard,
    Stop,
)
from odradek_chaos.worlds.simulated.plan.kinds import KINDS
from odradek_chaos.worlds.simulated.plan.script import Strike, by_name
from odradek_chaos.worlds.simulated.world.world import World

PROCESSES = (Kill, DoubleKill, Stop, Pause, Rolling, RollingHard, CrashAll, QuorumLoss, ControllerBounce)
LINKS = (Cut, Bridge, Ring, Swizzle, Stall, Slow, SlowFollower)
CALLS = (Reset, LoseCalls, DuplicateCalls, StaleMetadata)
DISKS = (DiskFull, IoError, SlowDisk, SwapDisks)
POWER = (PowerOne, Power, Blackout, LyingFsync)
DAMAGE = (TornTail, StaleCheckpoint, FlipIndex, FlipLog, Wipe, FlipAny, NewDisk)
CLASSES: dict[str, type[Nemesis]] = {
    kind.name: kind
    for kind in (*PROCESSES, *LINKS, *CALLS, Skew, *DISKS, ClientCrash, ZombieClient, *POWER, *DAMAGE, Reassign)
}
assert CLASSES.keys() == KINDS.keys(), CLASSES.keys() ^ KINDS.keys()


def nemesis(world: World, name: str) -> Nemesis:
    """One nemesis with chance of its own."""
    return CLASSES[name](world, world.loop.fork_rng(f"nemesis {name}"), world.plan.paces_ms.get(name, 1.0))


def nemeses_of(world: World) -> list[Nemesis]:
    """The nemeses of the plan."""
    return [nemesis(world, name) for name in world.plan.paces_ms]


def replaying(world: World, strikes: tuple[Strike, ...]) -> list[tuple[Nemesis, list[Strike]]]:
    """Who carries out the strikes of a script. Raises `KeyError` for a name that there is not."""
    return [(nemesis(world, name), found) for name, found in by_name(strikes).items()]
