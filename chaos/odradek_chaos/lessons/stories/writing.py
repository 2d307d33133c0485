"""What a producer is promised: acks, min.insync.replicas, and idempotence."""

from __future__ import annotations

from odradek_chaos.lessons.lesson import DrawingOptions, ExpectedFinding, Lesson, LessonStep, Setting

REMEMBER, READ_ON = "Remember", "Read on"

ACKS = Lesson(
    name="acks",
    title="What an acknowledgement is worth",
    promise=(
        "acks=1 is answered when the leader has a record, acks=all when the whole ISR has it, acks=0 never. So each "
        "of them loses something else."
    ),
    worlds=(Setting("acks=1", lost=("m2",)), Setting("acks=all")),
    shows=DrawingOptions(acks_1=True),
    steps=(
        LessonStep(
            "Calm",
            "m1 is written with acks=all, and both brokers have it.",
            "With acks=all the producer waits for the high watermark; below it a record is on every in-sync replica.",
            "produce 1 m1; settle",
        ),
        LessonStep(
            "The same record, two promises",
            "m2 is sent: left with acks=1, right with acks=all.",
            "Left, the producer has its answer at once, and goes on. Right, it waits for broker 2. The logs are the "
            "same.",
            "produce 1 m2 acks=1",
            "produce 1 m2",
        ),
        LessonStep(
            "The leader dies",
            "Broker 1 dies before broker 2 has fetched. Broker 2 is in the ISR and leads: a clean election.",
            "Left, an acknowledged record is gone. Right, m2 is gone, too, but nobody was promised anything: the "
            "producer got no answer, and knows that it has to send again.",
            "crash 1; fence 1",
        ),
        LessonStep(
            "The producer goes on",
            "Left, the next record is m3. Right, the producer sends m2 again.",
            "Left, m3 takes the offset that m2 was acknowledged at.",
            "produce 2 m3 acks=1",
            "produce 2 m2",
        ),
        LessonStep(
            "acks=0",
            "Broker 1 is back, and follows. A producer with old metadata still sends m4 to it, with acks=0.",
            "Broker 1 does not lead, so it drops m4. With acks=0 there is no answer that could say so. (Kafka's broker "
            "closes the connection, so that the client asks who leads.)",
            "quiet start 1; quiet settle; produce 1 m4 acks=0",
        ),
        LessonStep(
            "In the end",
            "Both replicas agree.",
            "Left, m2 is lost although it was acknowledged. In both, m4 is lost, and no error named it. The "
            "auditor finds nothing wrong: acks=1 and acks=0 promise no more.",
            "settle",
        ),
    ),
    end={
        REMEMBER: (
            "acks=0 loses what is under way when a leader changes or a connection breaks, and says nothing. acks=1 "
            "loses what the leader had alone when it died. acks=all loses nothing while one in-sync replica survives "
            "with its disk."
        ),
        READ_ON: (
            "`odradek docs guarantees` (what is promised under which settings); `odradek docs protocol`: R-13 (who is "
            "answered when), R-15 (what an error means)."
        ),
    },
)

MIN_INSYNC_REPLICAS = Lesson(
    name="min-insync-replicas",
    title="How many are all",
    promise=(
        "acks=all waits for the ISR, and the ISR may be the leader alone. min.insync.replicas says how few may be "
        "enough: before the append by a refusal, after it by waiting."
    ),
    worlds=(
        Setting("min.insync.replicas=1", "min_isr=1", ("m2", "m3"), (ExpectedFinding("acknowledged-lost", 1, 2),)),
        Setting("min.insync.replicas=2", "min_isr=2"),
    ),
    steps=(
        LessonStep(
            "Calm",
            "m1 is written with acks=all, and both brokers have it.",
            "Two in sync: both worlds are content.",
            "produce 1 m1; settle",
        ),
        LessonStep(
            "After the append",
            "Broker 2 dies, and nobody has noticed. m2 is sent with acks=all.",
            "The ISR is 1,2, so both worlds take m2 and wait for broker 2.",
            "crash 2; produce 1 m2 timeout=20000",
        ),
        LessonStep(
            "The ISR shrinks",
            "The controller takes broker 2 out of the ISR.",
            "Left, the leader is all, and m2 is acknowledged with one copy. Right, one is too few: the HW stays "
            "where it is.",
            "fence 2",
        ),
        LessonStep(
            "Before the append",
            "m3 is sent with acks=all.",
            "Left, it is acknowledged at once. Right, it is refused before anything is written: NOT_ENOUGH_REPLICAS "
            'means "not written", so m3 can safely be sent again.',
            "produce 1 m3",
        ),
        LessonStep(
            "Unknown",
            "20 seconds pass: the time-out of m2.",
            "Right, the producer of m2 is told REQUEST_TIMED_OUT: m2 is in a log, and may yet be committed or lost. "
            "(So it may after NOT_ENOUGH_REPLICAS_AFTER_APPEND: the ISR became too small behind the append.)",
            "time 20000",
        ),
        LessonStep(
            "The last copy",
            "Broker 1's machine is gone. Broker 2 comes back, and an administrator lets it lead (an unclean election).",
            "Left, m2 and m3 are lost, both acknowledged. Right, nothing that was acknowledged is lost; m1 can be read "
            "when two are in sync again. (In epoch 1 nobody led.)",
            "crash 1 power; quiet fence 1; quiet start 2; unclean 2",
        ),
        LessonStep(
            "In the end",
            "Broker 1 is back with an empty disk, and copies what broker 2 has. m4 is written.",
            "The logs agree in both worlds. Only the producers can tell the difference.",
            "quiet start 1; settle; produce 2 m4; settle",
        ),
    ),
    end={
        REMEMBER: (
            "Three replicas, min.insync.replicas=2 and acks=all: one broker may be down for writing, and one more "
            'may be lost for what was acknowledged. With min.insync.replicas=1 "all" may mean one.'
        ),
        READ_ON: (
            "`odradek docs protocol`: R-11 (refused before the append), R-18 and R-21 (under the minimum the high "
            "watermark does not move), R-133 (unclean elections)."
        ),
    },
)

IDEMPOTENT_PRODUCER = Lesson(
    name="idempotent-producer",
    title="The lost answer",
    promise=(
        "A record is written, its answer is lost, and the producer sends it again. An idempotent producer numbers "
        "its batches, so that every replica knows a repetition."
    ),
    worlds=(Setting("without idempotence"), Setting("idempotent (the default)")),
    steps=(
        LessonStep(
            "Calm",
            "m1 is written with acks=all, and both brokers have it.",
            "Right, the batch carries a producer id, its epoch, and the sequence number 0.",
            "produce 1 m1; settle",
            "produce 1 m1 producer=7 epoch=0 sequence=0; settle",
        ),
        LessonStep(
            "The answer is lost",
            "m2 is written and committed. The connection breaks, and the answer with it.",
            "The producer cannot tell a lost answer from a lost record. It has to send again, or m2 may be missing.",
            "produce 1 m2 lose=answer; quiet fetch 2; fetch 2",
            "produce 1 m2 producer=7 epoch=0 sequence=1 lose=answer; quiet fetch 2; fetch 2",
        ),
        LessonStep(
            "Once more",
            "The producer sends m2 again.",
            "Left, it is a new record for the leader: m2 is there twice. Right, the leader has sequence 1 of this "
            "producer already; it writes nothing, and answers with the offset of the first one.",
            "produce 1 m2; settle",
            "produce 1 m2 producer=7 epoch=0 sequence=1; settle",
        ),
        LessonStep(
            "Another leader",
            "m3 is committed, its answer is lost as well, and then broker 1 dies. Broker 2 leads.",
            "The producer will send m3 again: to a broker that it never spoke to.",
            "produce 1 m3 lose=answer; settle; crash 1; fence 1",
            "produce 1 m3 producer=7 epoch=0 sequence=2 lose=answer; settle; crash 1; fence 1",
        ),
        LessonStep(
            "It knows, too",
            "The producer sends m3 to broker 2.",
            "Left, m3 is there twice. Right, broker 2 knows the repetition: the sequence numbers came with the "
            "batches that it copied.",
            "produce 2 m3",
            "produce 2 m3 producer=7 epoch=0 sequence=2",
        ),
        LessonStep(
            "In the end",
            "Broker 1 returns, and catches up.",
            "Both worlds keep every record, and their replicas agree. Left, two are there twice, and the auditor "
            "finds nothing wrong: without idempotence nobody promised more.",
            "quiet start 1; settle",
        ),
    ),
    end={
        REMEMBER: (
            "Sending again is safe only with idempotence: producer id, epoch and sequence number are part of each "
            "batch, and so of the log and of every replica. It is about one producer's life: a program that starts "
            "anew is another producer."
        ),
        READ_ON: (
            "`odradek docs protocol`: R-16 (how a repetition is answered); `odradek docs client` (what odradek's "
            "producer does)."
        ),
    },
)

LESSONS = (ACKS, MIN_INSYNC_REPLICAS, IDEMPOTENT_PRODUCER)
