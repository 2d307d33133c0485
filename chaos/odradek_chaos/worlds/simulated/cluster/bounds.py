"""N14: every queue of a broker has a bound, and a run's small load stays far below it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from odradek_broker.process.node import Node

MOST_TASKS = 2_000  # unfinished tasks of one process; a run's clients and partitions need some dozens
MOST_WAITING = 1_000  # produces or fetches that wait at one replica
MOST_BYTES = 8 * 1024 * 1024  # in all streams of one process, sent and not taken; a run writes less in all its time


class ReplicaWaits(NamedTuple):
    """What waits at one replica."""

    partition: object
    produces: int
    fetches: int


def waiting_at(node: Node) -> Iterator[ReplicaWaits]:
    """At each replica of a broker; nothing before it has opened them."""
    if node.broker is not None:
        for tp, hosted in node.broker.replicas.replicas.items():
            yield ReplicaWaits(tp, hosted.waiting_produces, hosted.waiting_fetches)


def queues_beyond_bounds(tasks: int, untaken_bytes: int, queues: Iterable[ReplicaWaits]) -> str:
    """What has grown beyond all measure, as a sentence; empty when nothing has."""
    if tasks > MOST_TASKS:
        return f"{tasks} tasks"
    if untaken_bytes > MOST_BYTES:
        return f"{untaken_bytes} bytes are in its streams, sent and not taken"
    for partition, produces, fetches in queues:
        if produces > MOST_WAITING:
            return f"{partition}: {produces} produce requests wait"
        if fetches > MOST_WAITING:
            return f"{partition}: {fetches} fetches wait"
    return ""
