"""Who leads, and what followers make of a new leader: epochs, unclean elections, the last replica."""

from __future__ import annotations

from odradek_chaos.lessons.lesson import IN_2_0, DrawingOptions, ExpectedFinding, Lesson, LessonStep, Setting

REMEMBER, READ_ON = "Remember", "Read on"

LEADER_EPOCHS = Lesson(
    name="leader-epochs",
    title="Where did my epoch end?",
    promise=(
        "Every new leader has a leader epoch one higher, which stands in each batch that it writes. A follower names "
        "its newest one, and learns where its log parts from the leader's."
    ),
    worlds=(Setting("OffsetsForLeaderEpoch (Kafka 2.0)", IN_2_0), Setting("in the fetch (today)")),
    steps=(
        LessonStep(
            "Epoch 0",
            "Broker 1 leads epoch 0. m1 is written, and both have it.",
            "Each replica notes where an epoch begins in its log: epoch 0 at offset 0.",
            "produce 1 m1; settle",
        ),
        LessonStep(
            "Two records alone",
            "a2 and a3 are written with acks=1, and broker 1 dies before anybody has fetched them.",
            "acks=1 promised that broker 1 has them, and no more. Its log is longer than any other.",
            "produce 1 a2 a3 acks=1; crash 1",
        ),
        LessonStep(
            "Epoch 1",
            "Broker 2 leads epoch 1, from offset 1 on, and b2 is written.",
            "Offset 1 is a2 of epoch 0 on one disk, and b2 of epoch 1 on the other. The epoch tells them apart; the "
            "offset cannot.",
            "fence 1; produce 2 b2",
        ),
        LessonStep(
            "The question",
            "Broker 1 comes back as a follower with m1, a2, a3. Its newest epoch is 0, and it asks.",
            "Left it has a request of its own for that: where does epoch 0 end? Right, its first fetch names the "
            "epoch. It does not know yet that two of its records are nowhere else.",
            "start 1; fetch 1 late",
        ),
        LessonStep(
            "The answer",
            "Broker 2 looks at where its epochs began: 0 at offset 0, 1 at offset 1.",
            "So epoch 0 ends at 1, where epoch 1 begins: there the logs part. That is all it has "
            "to know of broker 1's log: its newest epoch.",
            "deliver 1 hold",
        ),
        LessonStep(
            "The cut",
            "The answer arrives.",
            "Broker 1 cuts all that is behind the end of epoch 0: a2 and a3, which were never committed. Its own high "
            "watermark does not matter.",
            "deliver 1",
        ),
        LessonStep(
            "The fetch",
            "Broker 1 fetches from 1 on, where its log ends now.",
            "It gets b2 of epoch 1, and notes that epoch 1 begins at 1.",
            "fetch 1",
        ),
        LessonStep(
            "The same log",
            "Broker 1 catches up and joins the ISR.",
            "Both logs are equal, record by record and epoch by epoch.",
            "settle",
        ),
    ),
    end={
        REMEMBER: (
            "A log is known by its offsets and epochs: two replicas that have the same epoch at the same offset "
            "agree on all before it. So one question finds where they part, or a few: see fast-leader-change."
        ),
        READ_ON: (
            "`odradek docs protocol`: R-60 to R-63 (the epochs of a log, and where one ends), R-75 and R-79 (what a "
            "follower cuts)."
        ),
    },
)

UNCLEAN_ELECTION = Lesson(
    name="unclean-election",
    title="A leader, or the records",
    promise=(
        "All in-sync replicas are gone, and one that was left behind is there. It may lead and lose records, or the "
        "partition waits."
    ),
    worlds=(
        Setting("unclean elections are allowed", lost=("m2",), expected=(ExpectedFinding("acknowledged-lost", 1, 2),)),
        Setting("clean elections only (the default)"),
    ),
    steps=(
        LessonStep(
            "Calm",
            "m1 is written with acks=all, and both brokers have it.",
            "min.insync.replicas is 1 here: two brokers fit on a page.",
            "produce 1 m1; settle",
        ),
        LessonStep(
            "One falls behind",
            "Broker 2 dies and leaves the ISR. m2 is acknowledged by the whole ISR, which is broker 1.",
            "From now on broker 2 lacks a committed record: that is why a replica outside of the ISR may not lead.",
            "quiet crash 2; fence 2; produce 1 m2; checkpoint 1",
        ),
        LessonStep(
            "The other one dies",
            "Broker 1 dies. Broker 2 comes back.",
            "No replica that was in sync is there. The last member stays in the ISR, so that the controller knows "
            "which broker has everything.",
            "crash 1; fence 1; start 2",
        ),
        LessonStep(
            "The choice",
            "Left, unclean.leader.election.enable=true: broker 2 is elected. Right, the controller waits.",
            "Left, there is a leader, and m2 is gone. Right, nothing is gone, and nobody can write or read.",
            "unclean 2",
            "produce 2 m3",
        ),
        LessonStep(
            "Life goes on, or not yet",
            "Left, m3 is written. Right, broker 1 returns: it is in the ISR, so it leads.",
            "Left, m3 takes the offset of m2. Right, m2 is where it was.",
            "produce 2 m3",
            "start 1; quiet produce 1 m3",
        ),
        LessonStep(
            "Both again",
            "Left, broker 1 returns and cuts m2. Right, broker 2 catches up.",
            "The replicas agree in both worlds. Left, broker 1 cuts below its own high watermark, and writes that "
            "down as evidence (an event `truncated`).",
            "quiet start 1; settle",
            "settle",
        ),
    ),
    end={
        REMEMBER: (
            "An unclean election is a choice for availability, and the auditor finds what it cost. It is off by "
            "default, in Kafka as here; an administrator can order one when the missing disks will never come back."
        ),
        READ_ON: (
            "`odradek docs protocol`: R-133 (unclean elections), R-135 (the last member stays), R-92 (a cut below the "
            "own high watermark); `odradek docs administration`."
        ),
    },
)

LAST_REPLICA = Lesson(
    name="last-replica",
    title="The last replica standing",
    promise=(
        "The last member of the ISR loses its power, and what it had not flushed. Others have everything on their "
        "disks. Who may lead?"
    ),
    worlds=(
        Setting(
            "without eligible leader replicas",
            "min_isr=2 elr=off",
            ("m1",),
            (ExpectedFinding("acknowledged-lost", 0, 2),),
        ),
        Setting("eligible leader replicas (KIP-966)", "min_isr=2 elr=on"),
    ),
    shows=DrawingOptions(disk=True),
    steps=(
        LessonStep(
            "Calm",
            "m1 is written with acks=all and min.insync.replicas=2. Both brokers have it; broker 2 has flushed it.",
            "Kafka does not flush before it acknowledges. Two copies are the protection, unless both fail together.",
            "produce 1 m1; settle; flush 2",
        ),
        LessonStep(
            "One stops",
            "Broker 2 is stopped cleanly. The ISR is broker 1 alone, below the minimum.",
            "Right, broker 2 becomes eligible: as long as the ISR is below the minimum nothing is committed without "
            "it, so it has all that was ever acknowledged.",
            "quiet crash 2; fence 2",
        ),
        LessonStep(
            "Nothing is taken",
            "m2 is sent with acks=all.",
            "It is refused in both worlds: one in-sync replica is too few.",
            "produce 1 m2",
        ),
        LessonStep(
            "The power fails",
            "The machine of broker 1 loses its power. m1 was never flushed there.",
            "The only member of the ISR has an empty disk now, and nobody knows.",
            "crash 1 power; quiet fence 1",
        ),
        LessonStep(
            "Broker 2 is back",
            "Broker 2 starts. It was stopped cleanly, and has m1.",
            "Left, it may not lead: it is not in the ISR. Right, it is eligible, and leads.",
            "start 2 clean",
        ),
        LessonStep(
            "Broker 1 is back",
            "Broker 1 starts with an empty log.",
            "Left, it is the ISR and leads: broker 2 cuts m1, which was acknowledged, and on its disk all the time. "
            "Right, it copies m1.",
            "start 1; settle",
        ),
        LessonStep(
            "In the end",
            "n1, n2 and n3 are written with acks=all.",
            "The logs agree in both worlds, and m1 is missing in one of them.",
            "quiet produce 1 n1 n2 n3; settle",
            "quiet produce 2 n1 n2 n3; settle",
        ),
    ),
    end={
        REMEMBER: (
            '"In the ISR" is about the past of a process, not about its disk. With eligible leader replicas the '
            "controller also knows who has everything that was acknowledged, and an unclean stop ends it. It is on "
            "by default here and in Kafka 4.1."
        ),
        READ_ON: (
            "`odradek docs protocol`: R-135 (the last member of an ISR), R-139 to R-141 (who is eligible, and until "
            "when); `odradek docs guarantees`."
        ),
    },
)

LESSONS = (LEADER_EPOCHS, UNCLEAN_ELECTION, LAST_REPLICA)
