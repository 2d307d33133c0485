"""A lesson: what it tells, its steps, and how it ends. `play` lets the same steps happen in each of its worlds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from odradek_broker.core.partition.messages import TruncationMode
from odradek_proto.errors import ErrorCode

from odradek_chaos.lessons.narration import NarratedEvent, of_command, of_said
from odradek_chaos.lessons.views import Acknowledged, WorldView, view
from odradek_chaos.stage.said import BatchAnswered, Evidence, TranscriptLine
from odradek_chaos.stage.stage import Stage

QUIET = "quiet "  # before a command of which only acknowledgements and cuts are told


@dataclass(frozen=True)
class LessonStep:
    """One page. `action` says what happens, `why` what to see in it.

    `commands` let it happen, with semicolons between them; `right` those of the second world where they differ.
    """

    title: str
    action: str
    why: str
    commands: str
    right: str | None = None


@dataclass(frozen=True)
class ExpectedFinding:
    """What the auditor must find in a world: a check, the offset, and the epoch that stands there."""

    check: str
    offset: int
    epoch: int


@dataclass(frozen=True)
class Setting:
    """One world of a lesson: its name, the options of its `cluster` command, and how it has to end.

    `lost` are acknowledged records that its last leader lacks, `expected` what the auditor finds, nothing by default.
    """

    name: str
    options: str = ""
    lost: tuple[str, ...] = ()
    expected: tuple[ExpectedFinding, ...] = ()


@dataclass(frozen=True)
class DrawingOptions:
    """What is drawn beside logs, high watermarks and log end offsets."""

    disk: bool = False  # what is flushed, and the file with the high watermark
    remote: bool = False  # what the leader knows of the others' log end offsets
    waiting: bool = False  # the requests in the leader's purgatory, and the time
    acks_1: bool = False  # acknowledgements that promise nothing


@dataclass(frozen=True)
class Lesson:
    """One lesson. `end` are headings with what to take along; `cause` finds in the evidence what is said before it."""

    name: str
    title: str
    promise: str
    worlds: tuple[Setting, ...]
    steps: tuple[LessonStep, ...]
    end: Mapping[str, str]
    cause: Callable[[LessonRun], Mapping[str, str]] = lambda played: {}
    shows: DrawingOptions = DrawingOptions()
    brokers: str = "1,2"


class LessonWorld:
    """One world while its lesson is played."""

    def __init__(self, setting: Setting, brokers: str) -> None:
        self.setting = setting
        self.stage = Stage()
        self.acknowledged: list[Acknowledged] = []
        self.said: list[TranscriptLine] = []
        self._note(self.stage.run(f"cluster brokers={brokers} {setting.options}".rstrip()))

    def play(self, commands: str) -> list[NarratedEvent]:
        """Let a step happen. Returns its lines."""
        told: list[NarratedEvent] = []
        for line in commands.split("; "):
            quiet, command = line.startswith(QUIET), line.removeprefix(QUIET)
            said = self.stage.run(command)
            self._note(said)
            if not quiet:
                told += of_command(command)
            leader = self.stage.registration.leader
            told += [each for one in said for each in of_said(one, leader, quiet=quiet)]
        return told

    def _note(self, said: list[TranscriptLine]) -> None:
        self.said += said
        for each in said:
            if isinstance(each, BatchAnswered) and each.error is ErrorCode.NONE:
                self.acknowledged += [
                    Acknowledged(value, offset, each.acks)
                    for offset, value in enumerate(each.values.split("+"), each.base_offset)
                ]

    def all(self, broker: int, event: str, rule: str = "") -> list[Mapping[str, Any]]:
        """The facts of everything of this kind that a broker wrote down."""
        return [
            each.facts
            for each in self.said
            if isinstance(each, Evidence) and (each.broker, each.event) == (broker, event) and rule in ("", each.rule)
        ]

    def last(self, broker: int, event: str, rule: str = "") -> Mapping[str, Any]:
        """The facts of the last of them. Raises `LookupError` when there is none."""
        if not (found := self.all(broker, event, rule)):
            raise LookupError(f"broker {broker} wrote down no {event} {rule}".rstrip())
        return found[-1]


@dataclass(frozen=True)
class Frame:
    """All worlds after a step."""

    number: int
    step: LessonStep
    worlds: tuple[WorldView, ...]

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
class LessonRun:
    """A lesson that has happened."""

    lesson: Lesson
    frames: tuple[Frame, ...]
    worlds: tuple[LessonWorld, ...]


def play(lesson: Lesson) -> LessonRun:
    """Let every step happen in each world. Takes some milliseconds; nothing in it depends on time or chance."""
    worlds = tuple(LessonWorld(setting, lesson.brokers) for setting in lesson.worlds)
    frames = []
    for number, step in enumerate(lesson.steps, 1):
        views = []
        for place, world in enumerate(worlds):
            told = world.play(step.commands if place == 0 or step.right is None else step.right)
            views.append(view(world.setting.name, world.stage, world.acknowledged, told))
        frames.append(Frame(number, step, tuple(views)))
    return LessonRun(lesson, tuple(frames), worlds)


BEFORE_0_11 = f"mode={TruncationMode.HIGH_WATERMARK.value}"
IN_0_11 = f"mode={TruncationMode.EPOCH_SINGLE_ROUND.value}"
IN_2_0 = f"mode={TruncationMode.EPOCH_REQUEST.value}"
