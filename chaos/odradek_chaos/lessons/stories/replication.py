"""How a record becomes committed: log end offsets, high watermarks, the requests that wait, and who is in sync."""

from __future__ import annotations

from odradek_chaos.lessons.lesson import DrawingOptions, Lesson, LessonStep, Setting

REMEMBER, READ_ON = "Remember", "Read on"

HIGH_WATERMARK = Lesson(
    name="high-watermark",
    title="How a record becomes committed",
    promise=(
        "Each replica has a log end offset (LEO) of its own. The leader cannot look at other disks, so it keeps a copy "
        "of each follower's LEO: the high watermark (HW) is the smallest LEO of those in sync."
    ),
    worlds=(Setting("fetches are answered at once"), Setting("a fetch waits for records")),
    shows=DrawingOptions(remote=True),
    steps=(
        LessonStep(
            "Nothing yet",
            "Broker 2 fetches at 0 from its leader, broker 1. There is nothing to send.",
            'The position in a fetch is the only acknowledgement that a follower ever sends: "I have everything '
            'below". Now the leader knows that broker 2 is at 0.',
            "fetch 2",
            "fetch 2 wait",
        ),
        LessonStep(
            "A record",
            "A producer sends m1 with acks=all. It is in the leader's log.",
            "Left, broker 2 has to ask again. Right, its fetch is answered by the append: both LEOs are 1, and "
            "still the leader knows broker 2 at 0.",
            "produce 1 m1",
        ),
        LessonStep(
            "Broker 2 asks",
            "Broker 2 fetches again, at the end of its own log.",
            "Left, it gets m1. Right, it fetches at 1, which says that it has m1: the leader's copy moves, the HW "
            "with it, and the producer is told.",
            "fetch 2",
            "fetch 2 wait",
        ),
        LessonStep(
            "One round more",
            "Left, broker 2 fetches at 1. Right, its fetch waits, and half a second passes.",
            "Left, m1 is committed now, and the answer was made with the HW from before. Right, the answer brings "
            "HW 1.",
            "fetch 2",
            "time 500",
        ),
        LessonStep(
            "The follower hears of it",
            "Left, broker 2 fetches once more. Right, it fetches as always, and waits.",
            "A follower's HW is one round late: the answer is made before the leader counts the fetch. "
            "lost-write shows what a restart in this gap could do.",
            "fetch 2",
            "fetch 2 wait",
        ),
        LessonStep(
            "The next record",
            "A producer sends m2; broker 2 fetches as often as it needs to.",
            "Left, three fetches for one record. Right, two: the one that waited brings the record, and the next "
            "one commits it.",
            "quiet produce 1 m2; fetch 2; quiet fetch 2; quiet fetch 2",
            "produce 1 m2; quiet fetch 2 wait; quiet time 500",
        ),
    ),
    end={
        REMEMBER: (
            "There are two sets of log end offsets: each replica's own, and the leader's copies, which move only by "
            "fetches. HW = the smallest LEO of those in the ISR, the leader's own included. The leader's HW moves "
            "first, a follower's with the next answer."
        ),
        READ_ON: (
            "`odradek docs protocol`: R-6 (a fetch acknowledges what is below it), R-20 (the high watermark), R-24 (a "
            "follower's is one round late), R-127 (when a fetch that waits brings only a new high watermark)."
        ),
    },
)

FOUR_MOMENTS = Lesson(
    name="four-moments",
    title="When a high watermark moves",
    promise=(
        "The leader looks at the high watermark again at four moments: when it appends, when a follower fetches, "
        "when the ISR changes, and when it has become the leader."
    ),
    worlds=(Setting("today"),),
    shows=DrawingOptions(remote=True),
    steps=(
        LessonStep(
            "1. A follower fetches",
            "m1 is written with acks=all, and broker 2 fetches twice.",
            "The second fetch, at 1, says that broker 2 has m1. It is the usual case: the HW moves with a fetch.",
            "produce 1 m1; fetch 2; fetch 2",
        ),
        LessonStep(
            "Nobody fetches",
            "Broker 2 dies, and nobody has noticed. m2 is written with acks=all.",
            "The append looks at the HW, too, and finds nothing: broker 2 counts as long as it is in the ISR, and "
            "is at 1 for all that the leader knows.",
            "crash 2; produce 1 m2",
        ),
        LessonStep(
            "2. The ISR changes",
            "The controller hears nothing more of broker 2 and takes it out of the ISR.",
            "Of those that count only the leader is left, and it has m2: the HW moves without any fetch, and the "
            "producer is told.",
            "fence 2",
        ),
        LessonStep(
            "3. An append",
            "m3 is written with acks=all.",
            "The leader is its own ISR, so nobody is left to fetch: the append itself moves the HW, in the same "
            "step. min.insync.replicas=2 would forbid it: see min-insync-replicas.",
            "produce 1 m3",
        ),
        LessonStep(
            "Broker 2 returns",
            "Broker 2 starts, catches up, and joins the ISR. Then m4 is written, and broker 2 fetches it.",
            "Broker 2 has m4, which is not committed yet: its next fetch would acknowledge it, and the HW would move.",
            "start 2; settle; produce 1 m4; fetch 2",
        ),
        LessonStep(
            "4. Becoming the leader",
            "Broker 1 dies before that fetch. Broker 2 is in the ISR and leads.",
            "A new leader begins with its own HW and looks at once: alone in the ISR, it commits all that it has. "
            "m4 is committed, although its producer was never told.",
            "crash 1; fence 1",
        ),
        LessonStep(
            "Both again",
            "Broker 1 returns and catches up.",
            "Both logs are equal. A producer that sends m4 again, because it heard nothing, writes it twice, unless "
            "it is idempotent: see idempotent-producer.",
            "start 1; settle",
        ),
    ),
    end={
        REMEMBER: (
            "Append, fetch, ISR change, new leader: four moments, and no timer in Kafka. (odradek looks every half "
            "lag time as well, since a replica outside of the ISR that the HW waited for may have fallen silent.) A "
            "leader's high watermark never goes back while it leads."
        ),
        READ_ON: (
            "`odradek docs protocol`: R-20 to R-23 (what counts, and when it is looked at), R-101 (what a new leader "
            "does first)."
        ),
    },
)

PURGATORY = Lesson(
    name="purgatory",
    title="The requests that wait",
    promise=(
        "A fetch waits for records up to 500 ms, a produce with acks=all for the high watermark up to its time-out "
        "(30 s by default). Both wait in the leader's purgatory, and cost nothing meanwhile."
    ),
    worlds=(Setting("today"),),
    shows=DrawingOptions(waiting=True),
    steps=(
        LessonStep(
            "A consumer waits",
            "A consumer fetches at 0 and would wait 500 ms (fetch.max.wait.ms). Nothing is there.",
            'It is not answered "nothing" at once: it would come back at once. The request is laid aside, with a '
            "condition and a deadline.",
            "read 1 from=0 wait=500",
        ),
        LessonStep(
            "Its time is over",
            "500 ms pass, and nobody has written anything.",
            "The deadline answers it: nothing new, which is no error.",
            "time 500",
        ),
        LessonStep(
            "Three wait",
            "A consumer waits again, a follower waits for records at 0, and a producer sends m1 with acks=all.",
            "The append is what the follower waits for, so it is answered in the same step. Now m1 waits for HW 1, "
            "and the consumer for records below the HW.",
            "read 1 from=0 wait=500; fetch 2 wait; produce 1 m1",
        ),
        LessonStep(
            "One fetch answers two",
            "The follower appends m1 and fetches at 1.",
            "The HW moves to 1. That completes the produce, and the consumer's fetch. The follower's own fetch "
            "waits now: there is nothing at 1.",
            "fetch 2 wait",
        ),
        LessonStep(
            "News without records",
            "500 ms pass without a record.",
            "A follower that waits is told of a new HW after 500 ms at the latest, in an answer without records. "
            "(In Kafka a follower is answered after 500 ms in any case.)",
            "time 500",
        ),
        LessonStep(
            "Nobody fetches",
            "m2 is sent with acks=all and a time-out of 1,500 ms. The follower does not fetch.",
            "m2 is in the leader's log, and its producer waits for the answer.",
            "produce 1 m2 timeout=1500; time 1000",
        ),
        LessonStep(
            "REQUEST_TIMED_OUT",
            "The time-out is over.",
            'The error says "unknown", not "no": m2 stays in the log. Nothing is taken back.',
            "time 500",
        ),
        LessonStep(
            "Committed after all",
            "The follower fetches again.",
            "m2 is committed after its producer was told an error. A producer that sends it again writes it twice, "
            "unless it is idempotent: see idempotent-producer.",
            "fetch 2; fetch 2; fetch 2",
        ),
    ),
    end={
        REMEMBER: (
            "A fetch is completed by records (an append for a follower, the high watermark for a consumer) or by "
            'its 500 ms; a produce by the high watermark, or by its time-out, which means "unknown".'
        ),
        READ_ON: (
            "`odradek docs protocol`: R-14 and R-15 (how a produce ends), R-120 to R-127 (what waits, and what wakes "
            "it); broker/odradek_broker/core/delayed.py."
        ),
    },
)

SLOW_FOLLOWER = Lesson(
    name="slow-follower",
    title="Out of the ISR, and back",
    promise=(
        "A follower that has not caught up for replica.lag.time.max.ms leaves the ISR: then records are committed "
        "without it. When it has caught up it comes back."
    ),
    worlds=(Setting("today"),),
    brokers="1,2,3",
    shows=DrawingOptions(remote=True),
    steps=(
        LessonStep(
            "All in sync",
            "m1 is written, and both followers have it.",
            "The ISR are the replicas that the high watermark waits for.",
            "quiet produce 1 m1; settle",
        ),
        LessonStep(
            "Broker 3 is slow",
            "m2 is written. Broker 2 fetches it, broker 3 does not.",
            "Two of three have m2, and it is not committed: no majority counts here, but every member of the ISR.",
            "produce 1 m2; fetch 2; fetch 2",
        ),
        LessonStep(
            "10 seconds, and the next look",
            "replica.lag.time.max.ms passes (10 s here, 30 s in Kafka), and half of it more: that is how often the "
            "leader looks.",
            "The leader asks the controller for an ISR without broker 3 (1,2?). The HW still waits: until the "
            "controller agrees it may elect broker 3, which lacks m2.",
            "time 10000; quiet fetch 2; time 5000",
        ),
        LessonStep(
            "The controller agrees",
            "The controller confirms the ISR 1,2.",
            "That moves the HW, and m2 is acknowledged, 15 seconds late: this is what one slow replica costs, once.",
            "controller",
        ),
        LessonStep(
            "Without it",
            "m3 is written; broker 2 fetches it.",
            "The HW does not wait for broker 3 any more.",
            "produce 1 m3; fetch 2; fetch 2",
        ),
        LessonStep(
            "Broker 3 fetches",
            "Broker 3 is back at work: it fetches from 1, then from 3.",
            "It has all below the HW now, so the leader asks for an ISR with it. From here on the HW waits for it "
            "again, even before the answer.",
            "fetch 3; fetch 3",
        ),
        LessonStep(
            "In sync again",
            "The controller confirms, and everybody catches up.",
            "Leaving takes one to one and a half lag times, coming back one fetch at the HW.",
            "controller; settle",
        ),
    ),
    end={
        REMEMBER: (
            "In sync means: at the leader's end of the log within the last replica.lag.time.max.ms. A replica leaves "
            "the ISR only by a change that the controller confirms, and may come back when it has reached the high "
            "watermark."
        ),
        READ_ON: (
            "`odradek docs protocol`: R-40 to R-46 (who leaves the ISR, who joins, and what counts meanwhile), R-54 "
            "(what the controller checks)."
        ),
    },
)

LESSONS = (HIGH_WATERMARK, FOUR_MOMENTS, PURGATORY, SLOW_FOLLOWER)
