"""The fourth failure (KAFKA-6361, KIP-279): one round of truncation by epoch is not enough after fast elections.

The old world is KIP-101 as it first was: the leader answers only an end offset, and the follower cuts there, once.
"""

from __future__ import annotations

from odradek_broker.core.partition.messages import TruncationMode

from odradek_chaos.lessons.lesson import Cause, Expected, Lesson, Step, evidence
from odradek_chaos.lessons.world import ACKS_LEADER, World


def _write_alone(world: World, *values: str) -> None:
    with world.quiet():
        for value in values:
            world.produce(value, acks=ACKS_LEADER)


def _change_to(world: World, number: int) -> None:
    """The other broker dies; this one comes back and is elected, although it is not in the ISR."""
    world.kill(3 - number)
    with world.quiet():
        world.start(number)
    world.elect_uncleanly(number)


def _begin(world: World) -> None:
    world.produce("x")
    world.settle()


def _first(world: World) -> None:
    world.kill(1)
    world.fence(1)
    _write_alone(world, "q1")


def _second(world: World) -> None:
    _change_to(world, 1)
    _write_alone(world, "p1", "p2", "p3")


def _third(world: World) -> None:
    _change_to(world, 2)
    _write_alone(world, "q2")


def _fourth(world: World) -> None:
    _change_to(world, 1)
    _write_alone(world, "p4")


def _back(world: World) -> None:
    world.start(2)
    world.fetch(2)


def _again(world: World) -> None:
    world.fetch(2)


def _settle(world: World) -> None:
    world.settle()


def _cause(old: World, new: World) -> Cause:
    back = evidence(old, 2, "became_follower").facts
    cuts = [each.facts for each in new.evidence if (each.broker, each.event) == (2, "truncated")]
    way = ", then ".join(f"from {cut['from']} to {cut['to']}" for cut in cuts)
    return Cause(
        f"Broker 2 asked once where epoch {back['last_epoch']} ends, an epoch that its leader never had, and got an "
        f"offset at or behind its own end, {back['log_end_offset']}: nothing to cut. It fetched on from there.",
        f"The answer names the epoch that the offset belongs to, so broker 2 sees that it is another one, and goes "
        f"back until both have the same (R-75): it cut its log {way} (R-79).",
    )


LESSON = Lesson(
    name="fast-leader-change",
    title="The fast leader change",
    promise="Leader epochs alone are not enough: asked only once, they miss a divergence after quick elections.",
    old_mode=TruncationMode.EPOCH_SINGLE_ROUND,
    steps=(
        Step(
            "Calm",
            "A producer writes x with acks=all, and both brokers have it. From now on unclean elections are allowed, "
            "and records are written with acks=1.",
            "Unclean elections lose records, in every protocol; that is their price. The replicas must agree all the "
            "same.",
            _begin,
        ),
        Step(
            "Epoch 1: broker 2",
            "Broker 1 dies, broker 2 leads and writes q1.",
            "Offset 1 is q1 in epoch 1.",
            _first,
        ),
        Step(
            "Epoch 2: broker 1",
            "Broker 2 dies, broker 1 comes back, is elected uncleanly, and writes p1, p2, p3.",
            "Offset 1 is p1 in epoch 2, and broker 1 has never heard of epoch 1.",
            _second,
        ),
        Step(
            "Epoch 3: broker 2",
            "Again the other way round: broker 2 leads and writes q2.",
            "Neither broker has seen the epochs of the other: 1 and 3 here, 2 there.",
            _third,
        ),
        Step(
            "Epoch 4: broker 1",
            "And again: broker 1 leads and writes p4.",
            "Behind x the two logs have nothing in common.",
            _fourth,
        ),
        Step(
            "Broker 2 returns",
            "It becomes a follower with x, q1, q2, its newest epoch is 3, and it asks its leader.",
            "Left, the answer is an offset alone, 4: there ends what the leader has of epochs up to 3. The asker's log "
            "is shorter, so it cuts nothing. Right, the answer names the epoch, too.",
            _back,
        ),
        Step(
            "It asks again",
            "Broker 2 sends its next request.",
            "Left, it fetches records already, behind two that its leader never had. Right, it asks with an older "
            "epoch, and learns that this one parts from the leader's as well.",
            _again,
        ),
        Step(
            "In sync",
            "Broker 2 catches up and joins the ISR.",
            "Left, offsets 1 and 2 differ for ever. Right, each round goes back at least one epoch, until both sides "
            "name the same one.",
            _settle,
        ),
    ),
    expected=(Expected("log-matching", 1, 1),),
    cause=_cause,
    kafka="KIP-279 (Kafka 2.0) lets the leader answer with the epoch beside its end offset, and the follower asks "
    "again until both have the epoch. With KIP-595 the rounds became part of the fetch.",
    read_on="R-62, R-75 to R-79; The old protocol",
)
