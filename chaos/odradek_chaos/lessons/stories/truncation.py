"""How replicas came apart before Kafka 0.11, and do not today: four failures, the old protocol beside today's.

The lost write is KIP-101's first scenario. It lives on two rules: a follower hears of a commit one fetch later than it
happens (L-11), and whoever becomes a follower cuts its log at its own high watermark (L-1). The divergence is the
second scenario, after a loss of power; in KAFKA-3918 a batch spans the end of the old log, and the old rule looks at
the last offset of a batch only (L-9). The last (KAFKA-6361, KIP-279) is about epochs that are asked for only once.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_chaos.lessons.lesson import (
    BEFORE_0_11,
    IN_0_11,
    DrawingOptions,
    ExpectedFinding,
    Lesson,
    LessonRun,
    LessonStep,
    Setting,
)
from odradek_chaos.stage.said import FollowerAppended

OLD, TODAY = "before Kafka 0.11", "today"
DID_IT, INSTEAD = "What did it, left", "What happened instead, right"
KAFKA, READ_ON = "What Kafka did about it", "Read on"


def _cause_of_lost_write(played: LessonRun) -> Mapping[str, str]:
    old, new = played.worlds
    cut = old.last(2, "truncated", "L-1")
    elected = new.last(2, "leader_elected")
    return {
        DID_IT: (
            f"Broker 2 cut its log from {cut['from']} to {cut['to']} when it restarted: its high watermark was "
            f"still {cut['high_watermark']}, although m2 at offset {cut['to']} was acknowledged. Then it led without "
            "m2."
        ),
        INSTEAD: (
            "Broker 2 cut nothing when it restarted; it would have asked its leader by offset and epoch. So it led "
            f"from offset {elected['epoch_start_offset']} on, with m2 below."
        ),
    }


LOST_WRITE = Lesson(
    name="lost-write",
    title="The lost write",
    promise="An acknowledged record, held by both replicas, disappears by one restart and one clean election.",
    shows=DrawingOptions(remote=True),
    worlds=(
        Setting(
            OLD,
            BEFORE_0_11,
            ("m2",),
            (ExpectedFinding("acknowledged-lost", 1, 1), ExpectedFinding("log-matching", 1, 0)),
        ),
        Setting(TODAY),
    ),
    steps=(
        LessonStep(
            "Calm",
            "A producer writes m1 with acks=all. Broker 2 copies it, both brokers know that it is committed, a "
            "consumer reads it.",
            "Below the high watermark (HW) a record is on every in-sync replica, and consumers may see it. The log end "
            "offset (LEO) is where the next record goes.",
            "produce 1 m1; settle; quiet checkpoint 1; quiet checkpoint 2; read 1 from=0",
        ),
        LessonStep(
            "A second record",
            "The producer writes m2 with acks=all. It is in the leader's log only, and the producer waits.",
            "The leader will acknowledge m2 when it knows that broker 2 has it, too.",
            "produce 1 m2",
        ),
        LessonStep(
            "Copied",
            "Broker 2 fetches at 1, gets m2, and appends it.",
            "Now m2 is on both. But the leader does not know yet: only the next fetch, at 2, will tell it.",
            "fetch 2",
        ),
        LessonStep(
            "Acknowledged",
            "Broker 2 fetches at 2. The leader commits m2 and tells the producer; a consumer reads it. The answer to "
            "broker 2 is lost.",
            "Broker 2 has m2 and has not heard that it is committed: its HW is one round behind. This lag is "
            "normal, and the loss depends on it.",
            "fetch 2 lose=reply; read 1 from=1",
        ),
        LessonStep(
            "A restart",
            "Broker 1 writes its HW to the file, as it does every few seconds. Broker 2 is killed and is back at once: "
            "it keeps its place in the ISR, as brokers did then.",
            "The old rule: who becomes a follower cuts its log at its own HW. Today's: cut nothing before the "
            "leader has said where your log parts from its own.",
            "checkpoint 1; crash 2; start 2 keep",
        ),
        LessonStep(
            "Fail-over",
            "Before broker 2 can fetch, broker 1 dies. Broker 2 is in the ISR, so its election is clean. The consumer "
            "goes on at 2.",
            "Left, nobody alive has m2 any more: an acknowledged record is lost, and the consumer's position lies "
            "beyond the end of the log.",
            "crash 1; fence 1; read 2 from=2",
        ),
        LessonStep(
            "Life goes on",
            "The producer writes m3 to the new leader.",
            "Left, m3 takes the offset that m2 had. Right, it goes after m2.",
            "produce 2 m3",
        ),
        LessonStep(
            "The old leader returns",
            "Broker 1 starts with its own log and its own HW of 2, fetches what is missing, and joins the ISR.",
            "Left, it cuts at 2, which is nothing, and then nobody ever compares offset 1: two truths for one offset. "
            "Right, the logs are equal.",
            "start 1; fetch 1; settle",
        ),
    ),
    cause=_cause_of_lost_write,
    end={
        KAFKA: (
            "KIP-101 (Kafka 0.11) wrote the leader epoch into every batch and noted where each epoch began, so that "
            "a follower asks its leader where its newest epoch ended instead of trusting its own high watermark. "
            "KIP-595 (since 2.7) put the question into the fetch itself, as on the right."
        ),
        READ_ON: (
            "`odradek docs protocol`: R-6 and R-24 (what a fetch says, and why a follower's HW is one round late), "
            "R-70 to R-79 (what is cut, and how it is asked for); L-1 (the cut at the own HW, before 0.11)."
        ),
    },
)


def _cause_of_divergence(played: LessonRun) -> Mapping[str, str]:
    old, new = played.worlds
    back = old.last(1, "became_follower")
    cut = new.last(1, "truncated", "R-79")
    return {
        DID_IT: (
            f"Broker 1 came back with a high watermark of {back['high_watermark']} and cut there, which was "
            f"nothing: its log ended at {back['log_end_offset']}. It fetched from there on, and nobody compared "
            "offset 1."
        ),
        INSTEAD: (
            f"Broker 1 named its newest epoch, {cut['last_epoch']}. The leader answered that epoch "
            f"{cut['answer_epoch']} ended at {cut['answer_end']}, and broker 1 cut its log from {cut['from']} to "
            f"{cut['to']}."
        ),
    }


DIVERGENCE = Lesson(
    name="divergence",
    title="The divergence",
    promise="After a power loss two replicas hold different records at one offset, for ever, and both count as "
    "in sync.",
    worlds=(
        Setting(
            OLD,
            BEFORE_0_11,
            expected=(ExpectedFinding("log-matching", 1, 0), ExpectedFinding("acknowledged-lost", 1, 0)),
        ),
        Setting(TODAY),
    ),
    shows=DrawingOptions(disk=True),
    steps=(
        LessonStep(
            "Calm",
            "A producer writes m1 with acks=all. Both brokers have it, and both flush their logs and write their high "
            "watermark to its file.",
            "Kafka does not flush before it acknowledges: replicas protect each other, as long as they do not fail "
            "together.",
            "produce 1 m1; settle; quiet flush 1; quiet flush 2; quiet checkpoint 1; quiet checkpoint 2",
        ),
        LessonStep(
            "Half flushed",
            "The producer writes m2 with acks=1, and broker 2 copies it. Only broker 1 gets it onto its disk, and its "
            "high watermark of 2.",
            "acks=1 promises nothing against a power loss. (With acks=all m2 would be lost as well, in both worlds: "
            "only a flush before the answer helps against that.)",
            "produce 1 m2 acks=1; settle; flush 1; checkpoint 1",
        ),
        LessonStep(
            "Power fails",
            "Both machines lose power; what was not flushed is gone. The controller fences broker 1 first, so broker 2 "
            "is the last member of the ISR.",
            "The disks tell two stories now, and the one with less is to lead.",
            "crash 1,2 power; quiet fence 1; quiet fence 2",
        ),
        LessonStep(
            "The shorter log returns",
            "Broker 2 starts with m1 alone. It is the whole ISR, so it leads, cleanly.",
            "From here on offset 1 is free, as far as anybody alive knows.",
            "start 2",
        ),
        LessonStep(
            "A new truth",
            "The producer writes m3 with acks=all. The ISR is broker 2, so it is acknowledged.",
            "Offset 1 is m3 here, in the epoch of this leader, and m2 on the disk of broker 1.",
            "produce 2 m3",
        ),
        LessonStep(
            "The longer log returns",
            "Broker 1 starts with m1 and m2, becomes a follower, and fetches for the first time.",
            "Left, its HW is its end: nothing to cut, and 2 is in the leader's range. Right, it names its newest epoch "
            "and hears where that ended.",
            "start 1; fetch 1",
        ),
        LessonStep(
            "In sync",
            "Broker 1 catches up and joins the ISR. The producer writes m4, and both brokers append it.",
            "Left, both logs end at 3, both HWs are 3, and offset 1 depends on whom you ask. No later fetch will ever "
            "look below.",
            "settle; produce 2 m4; settle",
        ),
    ),
    cause=_cause_of_divergence,
    end={
        KAFKA: (
            "KIP-101 (Kafka 0.11) keeps on every replica where each leader epoch began, so that a follower can be "
            "told where its log parts from the leader's. KIP-279 (Kafka 2.0) repaired the case of several fast "
            "elections, and today the fetch itself finds the divergence."
        ),
        READ_ON: (
            "`odradek docs protocol`: R-60 to R-69 (the epochs of a log), R-75 and R-79 (how a divergence is found and "
            "cut); L-1 (the cut at the own HW before 0.11), L-5 (no answer spoke of a divergence)."
        ),
    },
)


def _cause_of_offsets_go_backwards(played: LessonRun) -> Mapping[str, str]:
    old, new = played.worlds
    whole = next((each for each in old.said if isinstance(each, FollowerAppended)), None)
    if whole is None:
        raise LookupError("broker 1 appended no batch that begins below the end of its log (L-9)")
    cut = new.last(1, "truncated", "R-79")
    return {
        DID_IT: f"Broker 1 fetched at {whole.at} and appended the batch {whole.first} to "
        f"{whole.last} whole, since its last offset was not below the end of the log.",
        INSTEAD: (
            f"The leader answered that epoch {cut['answer_epoch']} ended at {cut['answer_end']}. Broker 1 cut its "
            f"log from {cut['from']} to {cut['to']} and took every batch from its first offset on."
        ),
    }


OFFSETS_GO_BACKWARDS = Lesson(
    name="offsets-go-backwards",
    title="Offsets go backwards",
    promise="A log in which offset 3 comes twice: a batch is appended that begins before the end of the log.",
    worlds=(
        Setting(
            OLD,
            BEFORE_0_11,
            expected=(ExpectedFinding("offset-not-increasing", 3, 3), ExpectedFinding("log-matching", 2, 0)),
        ),
        Setting(TODAY),
    ),
    shows=DrawingOptions(disk=True),
    steps=(
        LessonStep(
            "Calm",
            "A producer writes r0 and r1 with acks=all. Both brokers have them, flushed.",
            "Each record is a batch of its own so far.",
            "quiet produce 1 r0 r1; settle; quiet flush 1; quiet flush 2; quiet checkpoint 1; quiet checkpoint 2",
        ),
        LessonStep(
            "Half flushed",
            "The producer writes r2 and r3 with acks=1, and broker 2 copies them. Only broker 1 flushes.",
            "As in the divergence: what acks=1 loses in a power loss was never promised.",
            "quiet produce 1 r2 r3 acks=1; settle; flush 1; checkpoint 1",
        ),
        LessonStep(
            "Power fails",
            "Both machines lose power. Broker 2 comes back first, with r0 and r1, and leads.",
            "Offsets 2 and 3 are free again, as far as the new leader knows.",
            "crash 1,2 power; quiet fence 1; quiet fence 2; start 2",
        ),
        LessonStep(
            "Larger batches",
            "The producer writes s2 alone, then s3 and s4 in one batch.",
            "A batch is stored and sent as it came. The one of 3 and 4 spans offset 4, where the log on the disk of "
            "broker 1 ends.",
            "quiet produce 2 s2; quiet produce 2 s3+s4",
        ),
        LessonStep(
            "The longer log returns",
            "Broker 1 starts with r0 to r3 and fetches at the end of its log, or learns that it must not.",
            "Left, offset 4 lies in the middle of a batch, and the leader sends the whole of it: the follower compares "
            "only the last offset with its end.",
            "start 1; fetch 1",
        ),
        LessonStep(
            "In sync",
            "Broker 1 catches up and joins the ISR.",
            "Left, offset 3 comes twice in one log, and 2 and 3 differ between the replicas. Right, the logs are "
            "equal.",
            "settle",
        ),
    ),
    cause=_cause_of_offsets_go_backwards,
    end={
        KAFKA: "Epochs (KIP-101, Kafka 0.11) remove the divergence before a batch could straddle the end of a log. And "
        "since the record format of 0.11 a batch names its first offset, so a follower refuses one that begins below "
        "its end.",
        READ_ON: (
            "`odradek docs protocol`: R-39 (batches are never cut), R-81 and R-85 (where a batch may be appended), "
            "R-79 (divergence); L-9 (what was compared before 0.11)."
        ),
    },
)


def _cause_of_fast_leader_change(played: LessonRun) -> Mapping[str, str]:
    old, new = played.worlds
    back = old.last(2, "became_follower")
    cuts = new.all(2, "truncated")
    way = ", then ".join(f"from {cut['from']} to {cut['to']}" for cut in cuts)
    return {
        DID_IT: (
            f"Broker 2 asked once where epoch {back['last_epoch']} ends, an epoch that its leader never had, and got "
            f"an offset at or beyond its own end, {back['log_end_offset']}: nothing to cut. It fetched on from there."
        ),
        INSTEAD: (
            "The answer names the epoch that the offset belongs to, so broker 2 sees that it is another one, and "
            f"goes back until both have the same: it cut its log {way}."
        ),
    }


FAST_LEADER_CHANGE = Lesson(
    name="fast-leader-change",
    title="The fast leader change",
    promise="Leader epochs alone are not enough: asked only once, they miss a divergence after quick elections.",
    worlds=(Setting("Kafka 0.11", IN_0_11, expected=(ExpectedFinding("log-matching", 1, 1),)), Setting(TODAY)),
    steps=(
        LessonStep(
            "Calm",
            "A producer writes x with acks=all, and both brokers have it. From now on unclean elections are allowed, "
            "and records are written with acks=1.",
            "Unclean elections lose records, in every protocol; that is their price. The replicas must agree all the "
            "same.",
            "produce 1 x; settle",
        ),
        LessonStep(
            "Epoch 1: broker 2",
            "Broker 1 dies, broker 2 leads and writes q1.",
            "Offset 1 is q1 in epoch 1.",
            "crash 1; fence 1; quiet produce 2 q1 acks=1",
        ),
        LessonStep(
            "Epoch 2: broker 1",
            "Broker 2 dies, broker 1 comes back, is elected uncleanly, and writes p1, p2, p3.",
            "Offset 1 is p1 in epoch 2, and broker 1 has never heard of epoch 1.",
            "crash 2; quiet start 1; unclean 1; quiet produce 1 p1 p2 p3 acks=1",
        ),
        LessonStep(
            "Epoch 3: broker 2",
            "Again the other way round: broker 2 leads and writes q2.",
            "Neither broker has seen the epochs of the other: 1 and 3 here, 2 there.",
            "crash 1; quiet start 2; unclean 2; quiet produce 2 q2 acks=1",
        ),
        LessonStep(
            "Epoch 4: broker 1",
            "And again: broker 1 leads and writes p4.",
            "After x the two logs have nothing in common.",
            "crash 2; quiet start 1; unclean 1; quiet produce 1 p4 acks=1",
        ),
        LessonStep(
            "Broker 2 returns",
            "It becomes a follower with x, q1, q2, its newest epoch is 3, and it asks its leader.",
            "Left, the answer is an offset alone, 4, beyond the end of the asker's log: nothing is cut. Right, the "
            "answer names the epoch, too.",
            "start 2; fetch 2",
        ),
        LessonStep(
            "It asks again",
            "Broker 2 sends its next request.",
            "Left, it fetches records already, after two that its leader never had. Right, it asks with an older "
            "epoch, and learns that this one parts, too.",
            "fetch 2",
        ),
        LessonStep(
            "In sync",
            "Broker 2 catches up and joins the ISR.",
            "Left, offsets 1 and 2 differ for ever. Right, each round goes back at least one epoch, until both sides "
            "name the same one.",
            "settle",
        ),
    ),
    cause=_cause_of_fast_leader_change,
    end={
        KAFKA: "KIP-279 (Kafka 2.0) lets the leader answer with the epoch beside its end offset, and the follower asks "
        "again until both have the epoch. With KIP-595 the rounds became part of the fetch.",
        READ_ON: (
            "`odradek docs protocol`: R-62 (where an epoch ends), R-75 to R-79 (the questions, round by round); its "
            "last section is the old protocol."
        ),
    },
)


LESSONS = (LOST_WRITE, DIVERGENCE, OFFSETS_GO_BACKWARDS, FAST_LEADER_CHANGE)
