"""The third failure (KAFKA-3918): as in the divergence, but a batch of the new leader spans the end of the old log.

The old rule looks at the last offset of a batch only (L-9), so it is appended whole and offsets go back in the log.
"""

from __future__ import annotations

from odradek_broker.core.partition.messages import TruncationMode

from odradek_chaos.lessons.lesson import Cause, Expected, Lesson, Step, evidence
from odradek_chaos.lessons.world import ACKS_LEADER, World


def _begin(world: World) -> None:
    with world.quiet():
        for value in ("r0", "r1"):
            world.produce(value)
        world.settle()
        for number in world.replicas:
            world.flush(number)
            world.checkpoint(number)


def _half_flushed(world: World) -> None:
    with world.quiet():
        for value in ("r2", "r3"):
            world.produce(value, acks=ACKS_LEADER)
        world.settle()
    world.flush(1)
    world.checkpoint(1)


def _power(world: World) -> None:
    world.lose_power()
    with world.quiet():
        world.fence(1)
        world.fence(2)
    world.start(2)


def _go_on(world: World) -> None:
    with world.quiet():
        world.produce("s2")
        world.produce("s3", "s4")


def _back(world: World) -> None:
    world.start(1)
    world.fetch(1)


def _settle(world: World) -> None:
    world.settle()


def _cause(old: World, new: World) -> Cause:
    straddling = evidence(old, 1, "appended", "L-9").facts
    cut = evidence(new, 1, "truncated", "R-79").facts
    return Cause(
        f"Broker 1 fetched at {straddling['log_end_offset']} and appended the batch {straddling['base_offset']} to "
        f"{straddling['last_offset']} whole, since its last offset was not below the end of the log (L-9).",
        f"The leader answered that epoch {cut['answer_epoch']} ended at {cut['answer_end']}. Broker 1 cut its log from "
        f"{cut['from']} to {cut['to']} (R-79) and took every batch from its first offset on (R-81).",
    )


LESSON = Lesson(
    name="offsets-go-backwards",
    title="Offsets go backwards",
    promise="A log in which offset 3 comes twice: a batch is appended that begins before the end of the log.",
    old_mode=TruncationMode.HIGH_WATERMARK,
    shows_disk=True,
    steps=(
        Step(
            "Calm",
            "A producer writes r0 and r1 with acks=all. Both brokers have them, flushed.",
            "Each record is a batch of its own so far.",
            _begin,
        ),
        Step(
            "Half flushed",
            "The producer writes r2 and r3 with acks=1, and broker 2 copies them. Only broker 1 flushes.",
            "As in the divergence: what acks=1 loses in a power loss was never promised.",
            _half_flushed,
        ),
        Step(
            "Power fails",
            "Both machines lose power. Broker 2 comes back first, with r0 and r1, and leads.",
            "Offsets 2 and 3 are free again, as far as the new leader knows.",
            _power,
        ),
        Step(
            "Larger batches",
            "The producer writes s2 alone, then s3 and s4 in one batch.",
            "A batch is stored and sent as it came. The one of 3 and 4 spans offset 4, where the log on the disk of "
            "broker 1 ends.",
            _go_on,
        ),
        Step(
            "The longer log returns",
            "Broker 1 starts with r0 to r3 and fetches at the end of its log, or learns that it must not.",
            "Left, offset 4 lies in the middle of a batch, and the leader sends the whole of it: the follower compares "
            "only the last offset with its end.",
            _back,
        ),
        Step(
            "In sync",
            "Broker 1 catches up and joins the ISR.",
            "Left, offset 3 comes twice in one log, and 2 and 3 differ between the replicas. Right, the logs are "
            "equal.",
            _settle,
        ),
    ),
    expected=(Expected("offset-not-increasing", 3, 3), Expected("log-matching", 2, 0)),
    cause=_cause,
    kafka="Epochs (KIP-101, Kafka 0.11) remove the divergence before a batch could straddle the end of a log. And "
    "since the record format of 0.11 a batch names its first offset, so a follower refuses one that begins below "
    "its end.",
    read_on="R-39, R-79, R-81, R-85, R-221; L-1, L-9",
)
