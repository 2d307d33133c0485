"""All nemeses there are, and those of a run from their names."""

from __future__ import annotations

from odradek_chaos.worlds.simulated.faults.administration import (
    AlternateLeaders,
    AlterSettings,
    Elect,
    Reassign,
    Topics,
)
from odradek_chaos.worlds.simulated.faults.calls import DuplicateCalls, LoseCalls, Reset, StaleMetadata
from odradek_chaos.worlds.simulated.faults.choices import Cast
from odradek_chaos.worlds.simulated.faults.clients import ClientCrash, ZombieClient
from odradek_chaos.worlds.simulated.faults.clocks import Drift, Skew
from odradek_chaos.worlds.simulated.faults.damage import (
    FlipAny,
    FlipCopy,
    FlipIndex,
    FlipLog,
    FlipMetadata,
    NewDisk,
    StaleCheckpoint,
    TornTail,
    Wipe,
)
from odradek_chaos.worlds.simulated.faults.disks import DiskFull, IoError, SlowDisk, SwapDisks
from odradek_chaos.worlds.simulated.faults.links import (
    Bridge,
    Cut,
    Flap,
    Ring,
    Slow,
    SlowFollower,
    Stall,
    Swizzle,
    Unreachable,
)
from odradek_chaos.worlds.simulated.faults.nemesis import Nemesis, Owed
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
    StopAll,
)
from odradek_chaos.worlds.simulated.faults.strangers import ForgedPeer
from odradek_chaos.worlds.simulated.plan.script import Injection, by_name
from odradek_chaos.worlds.simulated.world.world import World

TABLE: tuple[type[Nemesis], ...] = (  # the draw of a seed goes by this order
    Kill,
    DoubleKill,
    Stop,
    Pause,
    Rolling,
    RollingHard,
    CrashAll,
    StopAll,
    QuorumLoss,
    ControllerBounce,
    Cut,
    Bridge,
    Ring,
    Swizzle,
    Flap,
    Unreachable,
    Stall,
    Slow,
    SlowFollower,
    Reset,
    LoseCalls,
    DuplicateCalls,
    StaleMetadata,
    Skew,
    Drift,
    DiskFull,
    IoError,
    SlowDisk,
    SwapDisks,
    ClientCrash,
    ZombieClient,
    PowerOne,
    TornTail,
    StaleCheckpoint,
    FlipIndex,
    FlipLog,
    FlipCopy,
    Wipe,
    Reassign,
    Elect,
    AlterSettings,
    Topics,
    Power,
    Blackout,
    LyingFsync,
    FlipAny,
    NewDisk,
    FlipMetadata,
    ForgedPeer,
    AlternateLeaders,
)
CLASSES: dict[str, type[Nemesis]] = {each.name: each for each in TABLE}
BESIDE = tuple(each.name for each in TABLE if each.beside)
SAFE_NEMESES = tuple(each.name for each in TABLE if each.drawn and each.owed in (Owed.ALWAYS, Owed.QUIESCENT))


def family_of(kind: type[Nemesis]) -> str:
    """The file that it stands in."""
    return kind.__module__.rpartition(".")[2]


def kind_of(name: str) -> type[Nemesis]:
    """Raises `ValueError` for a name that there is not."""
    if name not in CLASSES:
        raise ValueError(f"no nemesis is called {name!r}; there are {', '.join(CLASSES)}")
    return CLASSES[name]


def what_is_wrong(injection: Injection, cast: Cast) -> str:
    """Why an injection cannot be carried out; empty when it can."""
    try:
        takes = kind_of(injection.name).takes
    except ValueError as error:
        return str(error)
    known = ", ".join(takes)
    for unknown in sorted(injection.choice.keys() - takes.keys()):
        return f"{injection.name} has no {unknown!r}; it takes {known}"
    for name, argument in takes.items():
        if name not in injection.choice:
            return f"{injection.name} says no {name!r}; it takes {known}"
        if not argument.fits(injection.choice[name], cast):
            return f"{name} of {injection.name} must be {argument.says(cast)}, not {injection.choice[name]!r}"
    return ""


def nemesis(world: World, name: str) -> Nemesis:
    """One nemesis with chance of its own."""
    return CLASSES[name](world, world.loop.fork_rng(f"nemesis {name}"), world.plan.paces_ms.get(name, 1.0))


def nemeses_of(world: World) -> list[Nemesis]:
    """The nemeses of the plan."""
    return [nemesis(world, name) for name in world.plan.paces_ms]


def replaying(world: World, injections: tuple[Injection, ...]) -> list[tuple[Nemesis, list[Injection]]]:
    """Who carries out the injections of a script. Raises `KeyError` for a name that there is not."""
    return [(nemesis(world, name), found) for name, found in by_name(injections).items()]
