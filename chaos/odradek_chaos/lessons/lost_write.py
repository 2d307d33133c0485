"""The first failure (KIP-101, first scenario): an acknowledged record is cut off by a follower that restarts.

It lives on two rules: a follower hears of a commit one fetch later than it happens (L-11), and whoever becomes a
follower cuts its log at its own high watermark (L-1). Restarting fast enough to stay in the ISR is L-12.
"""

from __future__ import annotations

from odradek_broker.core.partition.messages import TruncationMode

from odradek_chaos.lessons.lesson import Cause, Expected, Lesson, Step, evidence
from odradek_chaos.lessons.world import World


def _begin(world: World) -> None:
    world.produce("m1")
    world.settle()
    with world.quiet():
        for number in world.replicas:
            world.checkpoint(number)
    world.consume()


def _append(world: World) -> None:
    world.produce("m2")


def _copy(world: World) -> None:
    world.fetch(2)


def _commit(world: World) -> None:
    world.fetch(2, lose_answer=True)
    world.consume()


def _restart(world: World) -> None:
    world.checkpoint(1)
    world.kill(2)
    world.start(2, keeps_isr=True)


def _fail_over(world: World) -> None:
    world.kill(1)
    world.fence(1)
    world.consume()


def _go_on(world: World) -> None:
    world.produce("m3")


def _return(world: World) -> None:
    world.start(1)
    world.fetch(1)
    world.settle()


def _cause(old: World, new: World) -> Cause:
    cut = evidence(old, 2, "truncated", "L-1").facts
    elected = evidence(new, 2, "leader_elected").facts
    return Cause(
        f"Broker 2 cut its log from {cut['from']} to {cut['to']} when it restarted (L-1): its high watermark was still "
        f"{cut['high_watermark']}, although m2 at offset {cut['to']} was acknowledged. Then it led without m2.",
        f"Broker 2 cut nothing when it restarted; it would have asked its leader by offset and epoch (R-36, R-79). So "
        f"it led from offset {elected['epoch_start_offset']} on, with m2 below.",
    )


LESSON = Lesson(
    name="lost-write",
    title="The lost write",
    promise="An acknowledged record, held by both replicas, disappears by one restart and one clean election.",
    old_mode=TruncationMode.HIGH_WATERMARK,
    steps=(
        Step(
            "Calm",
            "A producer writes m1 with acks=all. Broker 2 copies it, both brokers know that it is committed, a "
            "consumer reads it.",
            "Below the high watermark (HW) a record is on every in-sync replica, and consumers may see it. The log end "
            "offset (LEO) is where the next record goes.",
            _begin,
        ),
        Step(
            "A second record",
            "The producer writes m2 with acks=all. It is in the leader's log only, and the producer waits.",
            "The leader will acknowledge m2 when it knows that broker 2 has it, too.",
            _append,
        ),
        Step(
            "Copied",
            "Broker 2 fetches at 1, gets m2, and appends it.",
            "Now m2 is on both. But the leader does not know yet: only the next fetch, at 2, will tell it (R-6, R-24).",
            _copy,
        ),
        Step(
            "Acknowledged",
            "Broker 2 fetches at 2. The leader commits m2 and tells the producer; a consumer reads it. The answer to "
            "broker 2 is lost.",
            "Broker 2 has m2 and has not heard that it is committed: its HW is one round behind. This is how it always "
            "is; both failures live on it.",
            _commit,
        ),
        Step(
            "A restart",
            "Broker 1 writes its HW to the file, as it does every few seconds. Broker 2 is killed and is back at once: "
            "it keeps its place in the ISR (L-12).",
            "The old rule: who becomes a follower cuts its log at its own HW (L-1). Today's: cut nothing before the "
            "leader has said where your log parts from its own.",
            _restart,
        ),
        Step(
            "Fail-over",
            "Before broker 2 can fetch, broker 1 dies. Broker 2 is in the ISR, so its election is clean. The consumer "
            "goes on at 2.",
            "Left, nobody alive has m2 any more: an acknowledged record is lost, and the consumer's position lies "
            "behind the end of the log.",
            _fail_over,
        ),
        Step(
            "Life goes on",
            "The producer writes m3 to the new leader.",
            "Left, m3 takes the offset that m2 had. Right, it goes behind m2.",
            _go_on,
        ),
        Step(
            "The old leader returns",
            "Broker 1 starts with its own log and its own HW of 2, fetches what is missing, and joins the ISR.",
            "Left, it cuts at 2, which is nothing, and then nobody ever compares offset 1: two truths for one offset. "
            "Right, the logs are equal.",
            _return,
        ),
    ),
    expected=(Expected("acknowledged-lost", 1, 1), Expected("log-matching", 1, 0)),
    cause=_cause,
    kafka="KIP-101 (Kafka 0.11) wrote the leader epoch into every batch and noted where each epoch began, so that a "
    "follower asks its leader where its newest epoch ended instead of trusting its own high watermark. KIP-595 (used "
    "by replicas since 2.7) put the question into the fetch itself, as in the world on the right.",
    read_on="R-24, R-36, R-70 to R-79; L-1, L-11, L-12",
)
