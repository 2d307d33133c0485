"""The second failure (KIP-101, second scenario): two logs that differ for ever after both machines lost power.

m2 is written with acks=1, which promises nothing against a power loss: so its loss is not what this is about, and what
is left to see is whether the replicas agree.
"""

from __future__ import annotations

from odradek_broker.core.partition.messages import TruncationMode

from odradek_chaos.lessons.lesson import Cause, Expected, Lesson, Step, evidence
from odradek_chaos.lessons.world import ACKS_LEADER, World


def _begin(world: World) -> None:
    world.produce("m1")
    world.settle()
    with world.quiet():
        for number in world.replicas:
            world.flush(number)
            world.checkpoint(number)


def _half_flushed(world: World) -> None:
    world.produce("m2", acks=ACKS_LEADER)
    world.settle()
    world.flush(1)
    world.checkpoint(1)


def _power(world: World) -> None:
    world.lose_power()
    with world.quiet():
        world.fence(1)  # broker 2 leads epoch 1 on paper, until its session ends, too
    world.fence(2)


def _one_is_back(world: World) -> None:
    world.start(2)


def _go_on(world: World) -> None:
    world.produce("m3")


def _other_is_back(world: World) -> None:
    world.start(1)
    world.fetch(1)


def _catch_up(world: World) -> None:
    world.settle()
    world.produce("m4")
    world.settle()


def _cause(old: World, new: World) -> Cause:
    back = evidence(old, 1, "became_follower").facts
    cut = evidence(new, 1, "truncated", "R-79").facts
    return Cause(
        f"Broker 1 came back with a high watermark of {back['high_watermark']} and cut there (L-1), which was nothing: "
        f"its log ended at {back['log_end_offset']}. It fetched from there on, and nobody compared offset 1.",
        f"Broker 1 named its newest epoch, {cut['last_epoch']}. The leader answered that epoch {cut['answer_epoch']} "
        f"ended at {cut['answer_end']}, and broker 1 cut its log from {cut['from']} to {cut['to']} (R-79).",
    )


LESSON = Lesson(
    name="divergence",
    title="The divergence",
    promise="After a power loss two replicas hold different records at one offset, for ever, and both believe to be "
    "in sync.",
    old_mode=TruncationMode.HIGH_WATERMARK,
    shows_disk=True,
    steps=(
        Step(
            "Calm",
            "A producer writes m1 with acks=all. Both brokers have it, and both flush their logs and write their high "
            "watermark to its file.",
            "Kafka does not flush before it acknowledges: replicas protect each other, as long as they do not fail "
            "together.",
            _begin,
        ),
        Step(
            "Half flushed",
            "The producer writes m2 with acks=1, and broker 2 copies it. Only broker 1 gets it onto its disk, and its "
            "high watermark of 2.",
            "acks=1 promises nothing against a power loss. (With acks=all, m2 would be lost as well, in both worlds: "
            "against that helps fsync, or KIP-966.)",
            _half_flushed,
        ),
        Step(
            "Power fails",
            "Both machines lose power; what was not flushed is gone. The controller fences broker 1 first, so broker 2 "
            "is the last member of the ISR.",
            "The disks tell two stories now, and the one with less is to lead.",
            _power,
        ),
        Step(
            "The shorter log returns",
            "Broker 2 starts with m1 alone. It is the whole ISR, so it leads, cleanly.",
            "From here on offset 1 is free, as far as anybody alive knows.",
            _one_is_back,
        ),
        Step(
            "A new truth",
            "The producer writes m3 with acks=all. The ISR is broker 2, so it is acknowledged.",
            "Offset 1 is m3 here, in the epoch of this leader, and m2 on the disk of broker 1.",
            _go_on,
        ),
        Step(
            "The longer log returns",
            "Broker 1 starts with m1 and m2, becomes a follower, and fetches for the first time.",
            "Left, its HW is its end: nothing to cut, and 2 is in the leader's range. Right, it names its newest epoch "
            "and hears where that ended.",
            _other_is_back,
        ),
        Step(
            "In sync",
            "Broker 1 catches up and joins the ISR. The producer writes m4, and both brokers append it.",
            "Left, both logs end at 3, both HWs are 3, and offset 1 depends on whom you ask. No later fetch will ever "
            "look below.",
            _catch_up,
        ),
    ),
    expected=(Expected("log-matching", 1, 0), Expected("acknowledged-lost", 1, 0)),
    cause=_cause,
    kafka="KIP-101 (Kafka 0.11) keeps on every replica where each leader epoch began, so that a follower can be told "
    "where its log parts from the leader's. KIP-279 (Kafka 2.0) repaired the case of several fast elections, and "
    "today the fetch itself finds the divergence.",
    read_on="R-36, R-60 to R-69, R-75, R-79; L-1, L-5, L-8",
)
