"""What each kind of strike has to be told: the names of its choices, and which values fit a world.

Nemeses choose such values by themselves (`Nemesis.choose`); here they are judged when they come from a file. Whatever
this lets through can be carried out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from odradek_chaos.worlds.simulated.plan.kinds import KINDS

BROKERS = (1, 2, 3)  # of every run
PLACES = 6
OPERATIONS = ("read", "write", "fsync")


class Cast(NamedTuple):
    """Whom a strike may name. Clients are w1, w2, ... who write, r1 who reads, and those who make topics and orders."""

    partitions: int
    writers: int

    @property
    def crashing(self) -> tuple[str, ...]:
        return (*(f"w{number}" for number in range(1, self.writers + 1)), "r1")

    @property
    def clients(self) -> tuple[str, ...]:
        return (*self.crashing, "admin", "op")

    @property
    def machines(self) -> tuple[str, ...]:
        return (*(f"b{number}" for number in BROKERS), *self.clients)


class Argument(NamedTuple):
    """One choice: what it has to be, in words, and whether a JSON value is that."""

    says: Callable[[Cast], str]
    fits: Callable[[Any, Cast], bool]


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_list(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and all(map(fits, value))


def _is_broker(value: Any) -> bool:
    return is_int(value) and value in BROKERS


def _are_brokers(value: Any) -> bool:
    return _is_list(value, _is_broker) and len(set(value)) == len(value)


def _is_time(value: Any) -> bool:
    return is_number(value) and value >= 0


def _is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def _is_place(value: Any) -> bool:
    return is_number(value) and 0 <= value < 1


def _is_way(value: Any, cast: Cast) -> bool:
    return _is_list(value, lambda each: each in cast.machines) and len(value) == 2


def _are_times(value: Any) -> bool:
    """Of brokers by id; the keys of JSON are texts."""
    ids = [str(each) for each in BROKERS]
    return isinstance(value, Mapping) and all(each in ids and _is_time(time) for each, time in value.items())


def _plain(says: str, fits: Callable[[Any], bool]) -> Argument:
    return Argument(lambda cast: says, lambda value, cast: fits(value))


def _names(says: str, among: Callable[[Cast], tuple[str, ...]]) -> Argument:
    return Argument(
        lambda cast: f"{says} ({', '.join(among(cast))})",
        lambda value, cast: isinstance(value, str) and value in among(cast),
    )


_IDS = ", ".join(map(str, BROKERS))
_BROKER = _plain(f"a broker ({_IDS})", _is_broker)
_ORDER = _plain(f"a list of different brokers ({_IDS})", _are_brokers)
_TWO = _plain(f"two different brokers ({_IDS})", lambda value: _are_brokers(value) and len(value) == 2)
_MS = _plain("milliseconds, not negative", _is_time)
_SKEWS = _plain("a list of milliseconds", lambda value: _is_list(value, is_number))
_SOME_MS = _plain(f'milliseconds by broker, as {{"1": 20}} ({_IDS})', _are_times)
_ALL_MS = _plain(
    f"milliseconds by broker, of each of {_IDS}", lambda value: _are_times(value) and len(value) == len(BROKERS)
)
_SHARE = _plain("a probability, 0 to 1", _is_share)
_COUNT = _plain("a whole number, not negative", lambda value: is_int(value) and value >= 0)
_TEXT = _plain("a text", lambda value: isinstance(value, str))
_OPERATION = _plain(f"one of {', '.join(OPERATIONS)}", lambda value: value in OPERATIONS)
_PLACES = _plain(f"{PLACES} fractions, each below 1", lambda value: _is_list(value, _is_place) and len(value) == PLACES)
_PARTITION = Argument(
    lambda cast: f"a partition (0 to {cast.partitions - 1})",
    lambda value, cast: is_int(value) and 0 <= value < cast.partitions,
)
_MACHINE = _names("a machine", lambda cast: cast.machines)
_CLIENT = _names("a client", lambda cast: cast.clients)
_CRASHING = _names("a client", lambda cast: cast.crashing)
_MACHINES = Argument(
    lambda cast: f"a list of machines ({', '.join(cast.machines)})",
    lambda value, cast: _is_list(value, lambda each: each in cast.machines),
)
_WAYS = Argument(
    lambda cast: f"a list of pairs of machines ({', '.join(cast.machines)})",
    lambda value, cast: _is_list(value, lambda each: _is_way(each, cast)),
)

_DOWN = {"broker": _BROKER, "down_ms": _MS}
_DARK = {"broker": _BROKER, "dark_ms": _MS}
_ROLLING = {"order": _ORDER, "down_ms": _MS, "between_ms": _MS}
_CUT = {"kind": _TEXT, "ways": _WAYS, "cut_ms": _MS}
_SLOW = {"ways": _WAYS, "slow_ms": _MS, "delay_ms": _MS}
_DAMAGE = {**_DOWN, "places": _PLACES}
CHOICES: dict[str, dict[str, Argument]] = {
    "kill": _DOWN,
    "double-kill": {
        **_DOWN,
        "partition": _PARTITION,
        "held_ms": _MS,
        "wait_ms": _MS,
        "second_down_ms": _MS,
    },
    "stop": _DOWN,
    "pause": {"broker": _BROKER, "pause_ms": _MS},
    "rolling": _ROLLING,
    "rolling-hard": _ROLLING,
    "crash-all": {"down_ms": _SOME_MS},
    "quorum-loss": {"brokers": _ORDER, "down_ms": _MS},
    "controller-bounce": {**_DOWN, "wait_ms": _MS, "controller": _BROKER, "controller_down_ms": _MS},
    "cut": _CUT,
    "bridge": _CUT,
    "ring": _CUT,
    "swizzle": {"cut": _MACHINES, "heal": _MACHINES, "step_ms": _MS, "cut_ms": _MS},
    "stall": {"source": _MACHINE, "target": _MACHINE, "stall_ms": _MS},
    "slow": _SLOW,
    "slow-follower": _SLOW,
    "reset": {"one": _MACHINE, "other": _MACHINE},
    "lose-calls": {"source": _MACHINE, "target": _MACHINE, "before": _SHARE, "after": _SHARE, "ms": _MS},
    "duplicate-calls": {"source": _MACHINE, "target": _MACHINE, "probability": _SHARE, "late_ms": _MS, "ms": _MS},
    "stale-metadata": {"broker": _BROKER, "stale_ms": _MS},
    "skew": {"broker": _BROKER, "skews_ms": _SKEWS, "every_ms": _MS},
    "disk-full": {"broker": _BROKER, "left_bytes": _COUNT, "full_ms": _MS},
    "io-error": {"broker": _BROKER, "operation": _OPERATION, "path": _TEXT, "times": _COUNT, "ms": _MS},
    "slow-disk": {"broker": _BROKER, "delay_ms": _MS, "slow_ms": _MS},
    "swap-disks": {"brokers": _TWO, "wrong_ms": _MS, "down_ms": _MS},
    "client-crash": {"client": _CRASHING, "down_ms": _MS},
    "zombie-client": {"client": _CLIENT, "ms": _MS},
    "power-one": _DARK,
    "torn-tail": _DAMAGE,
    "stale-checkpoint": {**_DOWN, "age_ms": _MS},
    "flip-index": _DAMAGE,
    "flip-log": _DAMAGE,
    "wipe": _DAMAGE,
    "reassign": {"partition": _PARTITION, "target": _ORDER},
    "power": _DARK,
    "blackout": {"off_ms": _ALL_MS, "on_ms": _ALL_MS},
    "lying-fsync": {"broker": _BROKER, "lies_ms": _MS, "dark_ms": _MS},
    "flip-any": _DAMAGE,
    "new-disk": _DAMAGE,
}
assert CHOICES.keys() == KINDS.keys(), CHOICES.keys() ^ KINDS.keys()


def what_is_wrong(name: str, choice: Mapping[str, Any], cast: Cast) -> str:
    """Why a strike of this name with these choices cannot be carried out; empty when it can."""
    arguments = CHOICES.get(name)
    if arguments is None:
        return f"no nemesis is called {name!r}; there are {', '.join(CHOICES)}"
    known = ", ".join(arguments)
    for unknown in sorted(choice.keys() - arguments.keys()):
        return f"{name} has no {unknown!r}; it takes {known}"
    for each, argument in arguments.items():
        if each not in choice:
            return f"{name} says no {each!r}; it takes {known}"
        if not argument.fits(choice[each], cast):
            return f"{each} of {name} must be {argument.says(cast)}, not {choice[each]!r}"
    return ""
