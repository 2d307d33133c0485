"""What can be done to real brokers, in the same words in every world that has them.

A world of processes and a world of containers differ in how a fault is injected, not in what it is called or in what is
owed under it. The names of the faults are those of the simulated world (docs/simulation.md).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

Place = Mapping[str, str | int]
"""Where a broker runs, by kind of place: `{"pid": 4711}`, `{"container": "odradek-2", "pid": 4711}`."""


SLOW_DELAY_MS = 15_000  # above replica.lag.time.max.ms: 10 s
SLOW_FOR_MS = 60_000
SLOW_MOST_S = 3_600  # as the broker bounds both


class ObservedBrokers(Protocol):
    """Brokers that run outside of this process, as far as one must see them to wait for them."""

    @property
    def nodes(self) -> Collection[int]:
        """Their numbers, in order."""
        ...

    @property
    def bootstrap(self) -> str:
        """Addresses that clients can dial from here, comma-separated."""
        ...

    def running(self, node_id: int) -> bool:
        """Whether it lives; a frozen one and one that is cut off do."""
        ...

    def exit_status(self, node_id: int) -> int | None:
        """How it ended: its exit code, or minus the signal; None when unknown."""
        ...

    def last_lines(self, node_id: int, count: int = 15) -> list[str]:
        """The end of what it said."""
        ...

    def log_file(self, node_id: int) -> object:
        """Where people find all that it said."""
        ...


class RealWorld(ObservedBrokers, Protocol):
    """Brokers that can be struck. Acts return when they are done; all raise `ClusterError`."""

    def place(self, node_id: int) -> Place: ...

    def paused(self, node_id: int) -> bool: ...

    def is_cut(self, node_id: int) -> bool: ...

    def start(self, node_id: int) -> None:
        """Start it, unless it runs."""
        ...

    def stop(self, node_id: int) -> bool:
        """Controlled shutdown. Returns whether it stopped cleanly."""
        ...

    def kill(self, node_id: int) -> None:
        """kill -9, and wait until it is gone. It stays down until `start`."""
        ...

    def pause(self, node_id: int) -> None: ...

    def resume(self, node_id: int) -> None: ...

    def cut(self, node_id: int) -> None:
        """Take its network away, both ways: nobody is told, packets are lost."""
        ...

    def heal(self, node_id: int) -> None: ...

    def slow(self, node_id: int, delay_ms: int, for_ms: int) -> None:
        """Let it fetch from leaders so late for a while; 0 and 0: not any more."""
        ...

    def slowed(self, node_id: int) -> bool: ...


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault and how it is healed; `done` and `undone` say each in the past."""

    name: str
    inject: Callable[[RealWorld, int], None]
    repair: Callable[[RealWorld, int], None]
    suffers: Callable[[RealWorld, int], bool]
    done: str
    undone: str
    was: str
    remedy: str  # the subcommand that repairs
    remedied: str  # what it does


def _stop(world: RealWorld, node_id: int) -> None:
    world.stop(node_id)


KILL = Fault(
    "kill",
    lambda world, node_id: world.kill(node_id),
    lambda world, node_id: world.start(node_id),
    lambda world, node_id: not world.running(node_id),
    done="killed",
    undone="started",
    was="was not running",
    remedy="restart",
    remedied="starts it again",
)
FAULTS: Mapping[str, Fault] = {
    fault.name: fault
    for fault in (
        KILL,
        replace(KILL, name="stop", inject=_stop, done="stopped"),
        Fault(
            "pause",
            lambda world, node_id: world.pause(node_id),
            lambda world, node_id: world.resume(node_id),
            lambda world, node_id: world.paused(node_id),
            done="froze",
            undone="thawed",
            was="was frozen",
            remedy="resume",
            remedied="thaws it",
        ),
        Fault(
            "cut",
            lambda world, node_id: world.cut(node_id),
            lambda world, node_id: world.heal(node_id),
            lambda world, node_id: world.is_cut(node_id),
            done="cut off",
            undone="healed",
            was="was cut off",
            remedy="heal",
            remedied="gives it its network back",
        ),
        Fault(
            "slow",
            lambda world, node_id: world.slow(node_id, SLOW_DELAY_MS, SLOW_FOR_MS),
            lambda world, node_id: world.slow(node_id, 0, 0),
            lambda world, node_id: world.slowed(node_id),
            done="slowed down",
            undone="sped up",
            was="was slow",
            remedy="heal",
            remedied="lets it fetch as before",
        ),
    )
}
