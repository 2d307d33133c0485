"""Events of the stage, as values. As text each is one line of a transcript; a lesson words them itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from odradek_proto.errors import ErrorCode

CONTROLLER = "controller"
PRODUCER = "producer"


class MessageFate(Enum):
    """How a message ends."""

    ARRIVES = "->"
    LOST = "-x"
    HELD = ".."


@dataclass(frozen=True)
class TranscriptLine:
    """One line."""


@dataclass(frozen=True)
class Comment(TranscriptLine):
    """Free text for the reader."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class MessageSent(TranscriptLine):
    """Between brokers, or a broker and the controller or a producer; both by name: `b1`, `controller`.

    `text` is as a transcript has it, `words` as people say it where that is something else.
    """

    source: str
    target: str
    text: str
    fate: MessageFate = MessageFate.ARRIVES
    words: str = ""

    def __str__(self) -> str:
        return f"{self.source} {self.fate.value} {self.target} {self.text}"


@dataclass(frozen=True)
class Evidence(TranscriptLine):
    """A line of a broker's event log: the event, its rule and its facts (docs/events.md)."""

    broker: int
    event: str
    rule: str
    facts: Mapping[str, object]

    def __str__(self) -> str:
        facts = " ".join(
            f"{name}={ids(value) if isinstance(value, tuple) else value}" for name, value in self.facts.items()
        )
        return f"b{self.broker} {self.event} ({self.rule}) {facts}"


@dataclass(frozen=True)
class HighWatermarkRaised(TranscriptLine):
    """A broker's high watermark rose."""

    broker: int
    old: int
    new: int

    def __str__(self) -> str:
        return f"b{self.broker} high watermark {self.old} => {self.new}"


@dataclass(frozen=True)
class FollowerAppended(TranscriptLine):
    """A follower appends a batch that begins below the end of its log (L-9)."""

    broker: int
    first: int
    last: int
    at: int

    def __str__(self) -> str:
        return f"b{self.broker} appends {self.first} to {self.last} at {self.at} (L-9)"


@dataclass(frozen=True)
class FollowerFailed(TranscriptLine):
    """A follower failed."""

    broker: int
    reason: str

    def __str__(self) -> str:
        return f"b{self.broker} failed: {self.reason}"


@dataclass(frozen=True)
class BatchAnswered(TranscriptLine):
    """A producer's response for a batch, named by the values of its records."""

    values: str
    error: ErrorCode
    base_offset: int
    acks: int
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.values} " + (
            "acknowledged" if self.error is ErrorCode.NONE else f"{self.error.name}{self.detail}"
        )


@dataclass(frozen=True)
class DuplicateBatch(TranscriptLine):
    """A batch came again, and is not written a second time (R-16)."""

    values: str
    offset: int

    def __str__(self) -> str:
        return f"{self.values} repeats offset {self.offset}"


@dataclass(frozen=True)
class FetchWaits(TranscriptLine):
    """A follower's fetch waits in its leader's purgatory."""

    broker: int
    leader: int

    def __str__(self) -> str:
        return f"b{self.broker}'s fetch waits at b{self.leader}"


@dataclass(frozen=True)
class ConsumerRead(TranscriptLine):
    """A consumer's response. `waited_ms` is None if it did not ask for a wait."""

    offset: int
    error: ErrorCode
    batches: Sequence[str]
    values: Sequence[str]
    waited_ms: int | None

    def __str__(self) -> str:
        after = "" if self.waited_ms is None else f" after {self.waited_ms} ms"
        found = self.error.name if self.error is not ErrorCode.NONE else " ".join(self.batches) or "nothing yet"
        return f"consumer at {self.offset}{after}: {found}"


@dataclass(frozen=True)
class LeaderElected(TranscriptLine):
    """The controller elected a leader, or none (-1), or changed the eligible replicas (None: not tracked)."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    eligible: tuple[int, ...] | None
    leads_already: bool

    def __str__(self) -> str:
        who = "no leader" if self.leader < 0 else f"leader b{self.leader}"
        eligible = "" if self.eligible is None else f" eligible={ids(self.eligible) or 'nobody'}"
        return f"controller: {who} epoch={self.epoch} isr={ids(self.isr) or 'nobody'}{eligible}"


@dataclass(frozen=True)
class StateChanged(TranscriptLine):
    """A broker's line, which has changed."""

    text: str

    def __str__(self) -> str:
        return self.text


def ids(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))
