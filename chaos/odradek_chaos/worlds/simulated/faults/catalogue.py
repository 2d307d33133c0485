"""All nemeses there are, and those of a run from their names."""

from __future__ import annotations

from odradek_chaos.worlds.simulated.faults import (
    administration,
    calls,
    clients,
    clocks,
    damage,
    disks,
    links,
    power,
    processes,
    strangers,
)
from odradek_chaos.worlds.simulated.faults.choices import Participants
from odradek_chaos.worlds.simulated.faults.nemesis import Guarantee, Nemesis
from odradek_chaos.worlds.simulated.plan.named import named_classes
from odradek_chaos.worlds.simulated.plan.script import Injection, by_name
from odradek_chaos.worlds.simulated.world.world import World

_KINDS = named_classes(
    Nemesis, processes, links, calls, clocks, disks, clients, power, damage, administration, strangers
)
_FOUND = {each.name: each for each in _KINDS}
assert len(_FOUND) == len(_KINDS), "two of them have one name"
_LAST = (
    "power",
    "blackout",
    "lying-fsync",
    "flip-any",
    "new-disk",
    "flip-metadata",
    "forged-peer",
    "alternate-leaders",
)
CLASSES = {name: _FOUND[name] for name in (*(name for name in _FOUND if name not in _LAST), *_LAST)}
TABLE = tuple(CLASSES.values())  # the draw of a seed goes by this order
BESIDE = tuple(each.name for each in TABLE if each.beside)
SAFE_NEMESES = tuple(each.name for each in TABLE if each.drawn and each.owed in (Guarantee.ALWAYS, Guarantee.QUIESCENT))


def family_of(kind: type[Nemesis]) -> str:
    """The file that it stands in."""
    return kind.__module__.rpartition(".")[2]


def kind_of(name: str) -> type[Nemesis]:
    """Raises `ValueError` for a name that there is not."""
    if name not in CLASSES:
        raise ValueError(f"no nemesis is called {name!r}; there are {', '.join(CLASSES)}")
    return CLASSES[name]


def what_is_wrong(injection: Injection, cast: Participants) -> str:
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
