"""The kinds of faults by name, their families, and what is owed while each of them strikes (docs/guarantees.md).

A leaf: options, nemeses and documentation read this table, and it reads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Owed(Enum):
    """What acks=all with min.insync.replicas=2 is owed under a kind of fault."""

    ALWAYS = "always"  # no loss, and all is well again in time
    QUIESCENT = "quiescent"  # the same, since it strikes one machine alone while the others are well and in every ISR
    FLUSHED = "flushed"  # the same only with odradek.fsync=before-ack
    SAFETY = "safety"  # out of contract: replicas may lose records or stay away, and must not lie about it


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of fault. `deadly`: it ends processes, so it makes elections."""

    name: str
    family: str
    owed: Owed
    does: str
    deadly: bool = False


TABLE = (
    Kind(
        "kill", "processes", Owed.ALWAYS, "kill -9 of a leader, follower, controller or anybody; up to 3 s down", True
    ),
    Kind("double-kill", "processes", Owed.ALWAYS, "kills a leader, and its successor as soon as it leads", True),
    Kind("stop", "processes", Owed.ALWAYS, "asks a broker to shut down in peace, starts it again", True),
    Kind("pause", "processes", Owed.ALWAYS, "freezes a process for up to 6 s; its timers and messages pile up"),
    Kind("rolling", "processes", Owed.ALWAYS, "restarts all brokers one after the other, cleanly", True),
    Kind("rolling-hard", "processes", Owed.ALWAYS, "the same with kill -9", True),
    Kind("crash-all", "processes", Owed.ALWAYS, "kills everything, starts it again in any order", True),
    Kind("quorum-loss", "processes", Owed.ALWAYS, "keeps a majority of the voters down for a while", True),
    Kind(
        "controller-bounce", "processes", Owed.ALWAYS, "kills a broker, and the controller while it handles that", True
    ),
    Kind("cut", "links", Owed.ALWAYS, "cuts one machine off, a pair, one direction, or controller to broker only"),
    Kind("bridge", "links", Owed.ALWAYS, "two brokers hear nothing of each other, the third hears both"),
    Kind("ring", "links", Owed.ALWAYS, "each broker hears only one other: three majorities in a ring"),
    Kind("swizzle", "links", Owed.ALWAYS, "stops links one by one, heals them in another order"),
    Kind("stall", "links", Owed.ALWAYS, "holds one direction up for a moment"),
    Kind("slow", "links", Owed.ALWAYS, "makes one direction slow for a while"),
    Kind("slow-follower", "links", Owed.ALWAYS, "makes all that one broker hears from the others slow"),
    Kind("reset", "calls", Owed.ALWAYS, "breaks all streams between two machines; what was under way may be lost"),
    Kind("lose-calls", "calls", Owed.ALWAYS, "loses unary calls, before or after they acted"),
    Kind("duplicate-calls", "calls", Owed.ALWAYS, "delivers unary requests twice, the second time late"),
    Kind("stale-metadata", "calls", Owed.ALWAYS, "keeps one broker from reading the metadata log for a while"),
    Kind("skew", "clocks", Owed.ALWAYS, "lets a wall clock jump by up to 50 minutes, once or to and fro"),
    Kind("disk-full", "disks", Owed.ALWAYS, "leaves a disk a few hundred bytes for a while"),
    Kind("io-error", "disks", Owed.ALWAYS, "lets a read, a write or an fsync fail", True),
    Kind("slow-disk", "disks", Owed.ALWAYS, "makes fsyncs and cold reads slow for a while"),
    Kind("swap-disks", "disks", Owed.ALWAYS, "starts two brokers on each other's disk, then puts them right", True),
    Kind("client-crash", "clients", Owed.ALWAYS, "kills a writer or the reader; a new one begins"),
    Kind("zombie-client", "clients", Owed.ALWAYS, "freezes a client for up to 6 s, three times its request timeout"),
    Kind("power-one", "power", Owed.QUIESCENT, "cuts one machine's power while all others are well", True),
    Kind("torn-tail", "damage", Owed.QUIESCENT, "kills a broker and cuts an unflushed tail inside of a batch", True),
    Kind("stale-checkpoint", "damage", Owed.QUIESCENT, "kills a broker and puts older checkpoints back", True),
    Kind("flip-index", "damage", Owed.QUIESCENT, "flips bits in indexes of a broker that is down", True),
    Kind(
        "flip-log",
        "damage",
        Owed.QUIESCENT,
        "flips bits in one copy of a log; an operator replaces the copy later",
        True,
    ),
    Kind("wipe", "damage", Owed.QUIESCENT, "deletes all partition directories of one broker while it is down", True),
    Kind("reassign", "administration", Owed.ALWAYS, "moves partitions to other replicas, cancels such moves"),
    Kind("power", "power", Owed.FLUSHED, "cuts a machine's power: its disk forgets what was not flushed", True),
    Kind("blackout", "power", Owed.FLUSHED, "cuts the power of all machines within 300 ms", True),
    Kind("lying-fsync", "power", Owed.SAFETY, "fsyncs that do nothing, then power losses", True),
    Kind("flip-any", "damage", Owed.SAFETY, "flips bits in any file of any broker, running or not", True),
    Kind(
        "new-disk",
        "damage",
        Owed.SAFETY,
        "gives a broker an empty disk, votes and all, while the other voters have everything",
        True,
    ),
)
KINDS = {kind.name: kind for kind in TABLE}
SAFE_NEMESES = tuple(kind.name for kind in TABLE if kind.owed in (Owed.ALWAYS, Owed.QUIESCENT))
ALL_NEMESES = tuple(kind.name for kind in TABLE)
LOSSES = frozenset(  # checks that say that a record went; under faults that may cost records they are no findings
    {
        "acknowledged-below-high-watermark",
        "audit-acknowledged-lost",
        "audit-checkpoint-order",
        "audit-delivered-lost",
        "audit-failed-present",
        "audit-reordered",
        "candidate-completeness",
        "committed-prefix-immutable",
        "end-offsets-never-fall",
        "high-watermark-on-every-isr-member",
        "follower-high-watermark-bound",
        "inconsistent-read",
        "leader-completeness",
        "lost",
        "misplaced",
        "read-below-high-watermark",
        "reordered",
        "skipped",
        "strong-isr",
        "truncate-safe",
    }
)
