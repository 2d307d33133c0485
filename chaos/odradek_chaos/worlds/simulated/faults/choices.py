"""What an injection has to be told: arguments by kind, which values fit a world, groups that several nemeses take.

Nemeses choose such values by themselves (`Nemesis.choose`); here they are judged when they come from a file. Whatever
this lets through can be carried out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

PLACES_OF_DAMAGE = 6
OPERATIONS = ("read", "write", "fsync")
TOPIC_OPERATIONS = ("make", "fill", "grow", "empty", "alter", "retain", "delete")  # of topics


class Participants(NamedTuple):
    """Whom an injection may name. Clients are w1, w2, ... who write, r1 who reads, and those who make topics.

    With members of groups there are g1, g2, ... of the classic one, c1, c2, ... of the other one, and Kafka's writer
    p1; with a compacted topic k1, who writes it.
    """

    partitions: int
    writers: int
    brokers: tuple[int, ...]  # the ids of all nodes
    members: int
    compaction: bool

    @property
    def crashing(self) -> tuple[str, ...]:
        members = [f"{group}{number}" for number in range(1, self.members + 1) for group in "gc"]
        if members:
            members.append("p1")
        return (*(f"w{number}" for number in range(1, self.writers + 1)), "r1", *members)

    @property
    def clients(self) -> tuple[str, ...]:
        return (*self.crashing, *(("k1",) if self.compaction else ()), "admin", "op")

    @property
    def machines(self) -> tuple[str, ...]:
        return (*(f"b{number}" for number in self.brokers), *self.clients)


class Argument(NamedTuple):
    """One choice: what it has to be, in words, and whether a JSON value is that."""

    says: Callable[[Participants], str]
    fits: Callable[[Any, Participants], bool]


def arguments(**named: Argument) -> Mapping[str, Argument]:
    return named


def is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_list(value: Any, fits: Callable[[Any], bool]) -> bool:
    return isinstance(value, list | tuple) and all(map(fits, value))


def _is_broker(value: Any, cast: Participants) -> bool:
    return is_int(value) and value in cast.brokers


def _are_brokers(value: Any, cast: Participants) -> bool:
    return _is_list(value, lambda each: _is_broker(each, cast)) and len(set(value)) == len(value)


def _is_time(value: Any) -> bool:
    return is_number(value) and value >= 0


def _is_share(value: Any) -> bool:
    return is_number(value) and 0 <= value <= 1


def _is_place(value: Any) -> bool:
    return is_number(value) and 0 <= value < 1


def _is_way(value: Any, cast: Participants) -> bool:
    return _is_list(value, lambda each: each in cast.machines) and len(value) == 2


def _are_times(value: Any, cast: Participants) -> bool:
    """Of brokers by id; the keys of JSON are texts."""
    ids = [str(each) for each in cast.brokers]
    return isinstance(value, Mapping) and all(each in ids and _is_time(time) for each, time in value.items())


def _is_message(value: Any, cast: Participants) -> bool:
    if not isinstance(value, list | tuple) or len(value) != 3:
        return False
    broker, method, request = value
    try:
        return _is_broker(broker, cast) and isinstance(method, str) and bytes.fromhex(request) is not None
    except (TypeError, ValueError):
        return False


def _ids(cast: Participants) -> str:
    return ", ".join(map(str, cast.brokers))


def _plain(says: str, fits: Callable[[Any], bool]) -> Argument:
    return Argument(lambda cast: says, lambda value, cast: fits(value))


def _names(says: str, among: Callable[[Participants], tuple[str, ...]]) -> Argument:
    return Argument(
        lambda cast: f"{says} ({', '.join(among(cast))})",
        lambda value, cast: isinstance(value, str) and value in among(cast),
    )


BROKER = Argument(lambda cast: f"a broker ({_ids(cast)})", _is_broker)
ORDER = Argument(lambda cast: f"a list of different brokers ({_ids(cast)})", _are_brokers)
TWO = Argument(
    lambda cast: f"two different brokers ({_ids(cast)})",
    lambda value, cast: _are_brokers(value, cast) and len(value) == 2,
)
MS = _plain("milliseconds, not negative", _is_time)
SKEWS = _plain("a list of milliseconds", lambda value: _is_list(value, is_number))
SOME_MS = Argument(lambda cast: f'milliseconds by broker, as {{"1": 20}} ({_ids(cast)})', _are_times)
ALL_MS = Argument(
    lambda cast: f"milliseconds by broker, of each of {_ids(cast)}",
    lambda value, cast: _are_times(value, cast) and len(value) == len(cast.brokers),
)
SHARE = _plain("a probability, 0 to 1", _is_share)
COUNT = _plain("a whole number, not negative", lambda value: is_int(value) and value >= 0)
TEXT = _plain("a text", lambda value: isinstance(value, str))
OPERATION = _plain(f"one of {', '.join(OPERATIONS)}", lambda value: value in OPERATIONS)
TOPIC_OPERATION = _plain(f"one of {', '.join(TOPIC_OPERATIONS)}", lambda value: value in TOPIC_OPERATIONS)
RATE = _plain("a positive number", lambda value: is_number(value) and value > 0)
PLACES = _plain(
    f"{PLACES_OF_DAMAGE} fractions, each below 1",
    lambda value: _is_list(value, _is_place) and len(value) == PLACES_OF_DAMAGE,
)
PARTITION = Argument(
    lambda cast: f"a partition (0 to {cast.partitions - 1})",
    lambda value, cast: is_int(value) and 0 <= value < cast.partitions,
)
MACHINE = _names("a machine", lambda cast: cast.machines)
CLIENT = _names("a client", lambda cast: cast.clients)
CRASHING = _names("a client", lambda cast: cast.crashing)
MACHINES = Argument(
    lambda cast: f"a list of machines ({', '.join(cast.machines)})",
    lambda value, cast: _is_list(value, lambda each: each in cast.machines),
)
WAYS = Argument(
    lambda cast: f"a list of pairs of machines ({', '.join(cast.machines)})",
    lambda value, cast: _is_list(value, lambda each: _is_way(each, cast)),
)

MESSAGES = Argument(
    lambda cast: "a list of messages, each a broker, a method and its request in hexadecimal",
    lambda value, cast: _is_list(value, lambda each: _is_message(each, cast)),
)

DOWN = arguments(broker=BROKER, down_ms=MS)
DARK = arguments(broker=BROKER, dark_ms=MS)
ROLLING = arguments(order=ORDER, down_ms=MS, between_ms=MS, held_ms=MS)
CUT = arguments(kind=TEXT, ways=WAYS, cut_ms=MS)
SLOW = arguments(ways=WAYS, slow_ms=MS, delay_ms=MS)
DAMAGE = arguments(**DOWN, places=PLACES)
