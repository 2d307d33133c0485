"""A lesson: what it tells, its steps, and how it ends. `play` lets the same steps happen in two worlds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from odradek_broker.core.partition.messages import TruncationMode

from odradek_chaos.lessons.replica import Evidence
from odradek_chaos.lessons.views import WorldView, view
from odradek_chaos.lessons.world import World

TODAY = TruncationMode.FETCH


@dataclass(frozen=True)
class Step:
    """One page. `action` says what happens, `why` what to see in it; `act` lets it happen in one world."""

    title: str
    action: str
    why: str
    act: Callable[[World], None]


@dataclass(frozen=True)
class Expected:
    """What the auditor must find in the old world: a check, the offset, and the epoch that stands there."""

    check: str
    offset: int
    epoch: int


@dataclass(frozen=True)
class Cause:
    """What did it in the old world, and what happened instead in today's; from what the brokers wrote down."""

    old: str
    new: str


@dataclass(frozen=True)
class Lesson:
    """One famous failure. `kafka` is what Kafka did about it, `read_on` the rules to look up in docs/protocol.md."""

    name: str
    title: str
    promise: str
    old_mode: TruncationMode
    steps: tuple[Step, ...]
    expected: tuple[Expected, ...]
    cause: Callable[[World, World], Cause]
    kafka: str
    read_on: str
    shows_disk: bool = False  # whether it matters what is flushed


@dataclass(frozen=True)
class Frame:
    """Both worlds after a step, the old one first."""

    number: int
    step: Step
    worlds: tuple[WorldView, WorldView]

    def as_json(self, lesson: Lesson) -> dict[str, Any]:
        return {
            "lesson": lesson.name,
            "step": self.number,
            "steps": len(lesson.steps),
            "title": self.step.title,
            "action": self.step.action,
            "why": self.step.why,
            "worlds": [world.as_json() for world in self.worlds],
        }


@dataclass(frozen=True)
class Played:
    """A lesson that has happened."""

    lesson: Lesson
    frames: tuple[Frame, ...]
    old: World
    new: World


def play(lesson: Lesson) -> Played:
    """Let every step happen in both worlds. Takes some milliseconds; nothing in it depends on time or chance."""
    worlds = World(lesson.old_mode), World(TODAY)
    frames = []
    for number, step in enumerate(lesson.steps, 1):
        for world in worlds:
            world.begin_step()
            step.act(world)
        frames.append(Frame(number, step, (view(worlds[0]), view(worlds[1]))))
    return Played(lesson, tuple(frames), *worlds)


def evidence(world: World, broker: int, event: str, rule: str = "") -> Evidence:
    """The last thing of this kind that a broker wrote down. Raises `LookupError` when it never did."""
    for each in reversed(world.evidence):
        if (each.broker, each.event) == (broker, event) and rule in ("", each.rule):
            return each
    raise LookupError(f"broker {broker} wrote down no {event} {rule}".rstrip())
