"""What happened in a step of a lesson, in words: one line for each thing that a learner should see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from odradek_proto.errors import ErrorCode

from odradek_chaos.stage.said import (
    BatchAnswered,
    Comment,
    ConsumerRead,
    DuplicateBatch,
    Evidence,
    FetchWaits,
    FollowerAppended,
    HighWatermarkRaised,
    LeaderElected,
    MessageFate,
    MessageSent,
    TranscriptLine,
    ids,
)

ACKS_ALL = -1
NO_LEADER = -1
ARROWS = {MessageFate.ARRIVES: "──►", MessageFate.LOST: "──✗", MessageFate.HELD: "···"}
RULES = {  # why a follower cuts its log, in few words
    "L-1": "at HW",
    "R-73": "at HW",
    "R-75": "by epoch",
    "R-79": "by epoch",
    "R-84": "at the leader's end",
}
COMMANDS = {  # what an order of the story is, where the brokers say nothing of it
    "flush": "broker {0} flushes its log",
    "checkpoint": "broker {0} writes its HW to the file",
    "fence": "the controller fences broker {0}",
}


class EventKind(Enum):
    """What a line of a step speaks of; each has its own mark beside its colour."""

    WIRE = "wire"  # a message arrived
    LOST = "lost"  # a message did not
    ACKNOWLEDGED = "acknowledged"  # a producer was told that its record is written
    CUT = "cut"  # records were removed from a log, or stand where they must not
    REFUSED = "refused"  # a client was told an error
    FACT = "fact"  # anything else


@dataclass(frozen=True)
class NarratedEvent:
    """One line of what happened in a step."""

    kind: EventKind
    text: str


def of_command(command: str) -> Iterator[NarratedEvent]:
    """What is to be told of a command itself."""
    name, *words = command.split()
    plain = [word for word in words if "=" not in word]
    named = dict(word.split("=", 1) for word in words if "=" in word)
    if name == "crash":
        who = f"brokers {plain[0].replace(',', ' and ')}" if "," in plain[0] else f"broker {plain[0]}"
        yield NarratedEvent(EventKind.FACT, f"{'power fails at' if 'power' in plain else 'kill -9:'} {who}")
    elif name == "produce":
        numbered = f", sequence {named['sequence']}" if "sequence" in named else ""
        acks = named.get("acks", "all")
        yield NarratedEvent(EventKind.FACT, f"{' '.join(plain[1:])} to broker {plain[0]}, acks={acks}{numbered}")
    elif name == "read" and "wait" in named:
        yield NarratedEvent(
            EventKind.WIRE, f"consumer ──► {plain[0]}  fetch at {named['from']}, max {named['wait']} ms"
        )
    elif name == "time":
        yield NarratedEvent(EventKind.FACT, f"{int(plain[0]):,} ms pass")
    elif name in COMMANDS:
        yield NarratedEvent(EventKind.FACT, COMMANDS[name].format(*plain))


def of_said(said: TranscriptLine, leader: int, *, quiet: bool = False) -> Iterator[NarratedEvent]:
    """The lines for one thing that was said. With `quiet` only acknowledgements and cuts."""
    for each in _told(said, leader):
        if not quiet or each.kind in (EventKind.ACKNOWLEDGED, EventKind.CUT):
            yield each


def _told(said: TranscriptLine, leader: int) -> Iterator[NarratedEvent]:
    match said:
        case MessageSent(source, target, text, fate, words):
            line = f"{source.removeprefix('b')} {ARROWS[fate]} {target.removeprefix('b')}  {words or text}"
            yield (
                NarratedEvent(EventKind.WIRE, line)
                if fate is not MessageFate.LOST
                else NarratedEvent(EventKind.LOST, f"{line} LOST")
            )
        case HighWatermarkRaised(broker, old, new) if broker == leader:
            yield NarratedEvent(EventKind.FACT, f"broker {broker} raises its HW {old} → {new}")
        case FollowerAppended(broker, first, last, at):
            yield NarratedEvent(EventKind.CUT, f"broker {broker} appends {first} to {last} at {at}")
        case Evidence(broker, event, rule, facts):
            yield from _of_evidence(broker, event, rule, facts)
        case BatchAnswered():
            yield _answer(said)
        case DuplicateBatch(values, offset):
            yield NarratedEvent(EventKind.FACT, f"{values} was written at {offset} already")
        case FetchWaits(broker, where):
            yield NarratedEvent(EventKind.FACT, f"the fetch of {broker} waits at broker {where}")
        case ConsumerRead(offset, error, _, values, waited_ms):
            after = "" if waited_ms is None else f" after {waited_ms} ms"
            if error is not ErrorCode.NONE:
                yield NarratedEvent(EventKind.REFUSED, f"consumer at {offset}{after}: {error.name}")
            else:
                yield NarratedEvent(EventKind.FACT, f"consumer at {offset}{after}: {' '.join(values) or 'nothing new'}")
        case LeaderElected(who, epoch, isr, eligible, leads_already):
            name = "nobody" if who == NO_LEADER else f"broker {who}"
            if not leads_already:
                yield NarratedEvent(EventKind.FACT, f"{name} leads epoch {epoch}, ISR {ids(isr) or 'empty'}")
            if eligible is not None:
                yield NarratedEvent(EventKind.FACT, f"eligible to lead: {ids(eligible) or 'no other'}")
        case Comment(text):
            yield NarratedEvent(EventKind.FACT, text)


def _answer(said: BatchAnswered) -> NarratedEvent:
    values = said.values.replace("+", " ")
    if said.error is ErrorCode.NONE:
        acks = "all" if said.acks == ACKS_ALL else said.acks
        return NarratedEvent(EventKind.ACKNOWLEDGED, f"{values} acknowledged at {said.base_offset} (acks={acks})")
    if said.acks == 0:
        return NarratedEvent(EventKind.REFUSED, f"{values} is dropped, and nobody is told: {said.error.name}")
    return NarratedEvent(EventKind.REFUSED, f"{values}: {said.error.name}")


def _of_evidence(broker: int, event: str, rule: str, facts: Any) -> Iterator[NarratedEvent]:
    if event == "truncated":
        text = f"broker {broker} cuts its log {facts['from']} → {facts['to']} {RULES[rule]}"
        yield NarratedEvent(EventKind.CUT, text)
    elif event == "became_follower":
        text = f"broker {broker} follows: LEO {facts['log_end_offset']}, HW {facts['high_watermark']}"
        yield NarratedEvent(EventKind.FACT, text)
    elif event == "isr_changed":
        yield NarratedEvent(EventKind.FACT, f"the ISR: {ids(facts['from'])} → {ids(facts['to'])}")
