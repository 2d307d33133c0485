"""N14: every queue of a broker has a bound, and a run's small load stays far below it."""

from __future__ import annotations

from odradek_broker.node import Node

MOST_TASKS = 2_000  # unfinished tasks of one process; a run's clients and partitions need some dozens
MOST_WAITING = 1_000  # produces or fetches that wait at one replica


def queues_beyond_bounds(node: Node, tasks: int) -> str:
    """What has grown beyond all measure, as a sentence; empty when nothing has."""
    if tasks > MOST_TASKS:
        return f"{tasks} tasks"
    if node.broker is None:
        return ""
    for tp, hosted in node.broker.replicas.replicas.items():
        if hosted.waiting_produces > MOST_WAITING:
            return f"{tp}: {hosted.waiting_produces} produce requests wait"
        if hosted.waiting_fetches > MOST_WAITING:
            return f"{tp}: {hosted.waiting_fetches} fetches wait"
    return ""
