"""All lessons, in the order in which they are best seen: what each is called, and in a line what it shows.

Nothing of a lesson is imported before it is asked for: the command line lists them all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from odradek_chaos.lessons.lesson import Lesson

SHOWN = {
    "high-watermark": ("replication", "how a record becomes committed, with fetches that wait and that do not"),
    "four-moments": ("replication", "the four moments at which a high watermark is looked at again"),
    "purgatory": ("replication", "how long a fetch and a produce wait, and for what"),
    "slow-follower": ("replication", "a follower lags out of the ISR, and comes back"),
    "acks": ("writing", "acks=0, acks=1 and acks=all, and what each loses"),
    "min-insync-replicas": ("writing", "min.insync.replicas, before and after the append"),
    "idempotent-producer": ("writing", "an answer is lost, and the producer sends again"),
    "leader-epochs": ("leaders", "a follower asks where its epoch ended, step by step"),
    "unclean-election": ("leaders", "whether a replica may lead that is not in sync"),
    "last-replica": ("leaders", "the last member of an ISR loses its power"),
    "lost-write": ("truncation", "a restart loses an acknowledged record"),
    "divergence": ("truncation", "replicas that differ for ever"),
    "offsets-go-backwards": ("truncation", "one offset twice in a log"),
    "fast-leader-change": ("truncation", "one look at the epochs is not enough"),
}
"""Each lesson's name, the module of `stories` that has it, and what it shows."""


def lesson(name: str) -> Lesson:
    """A lesson by its name."""
    module = import_module(f"odradek_chaos.lessons.stories.{SHOWN[name][0]}")
    found: Lesson = next(each for each in module.LESSONS if each.name == name)
    return found
