"""Notifies listeners that this broker becomes leader of a partition of a topic, and that it ceases to be.

For components that depend on a leadership, as Kafka's coordinators do on the partitions of __consumer_offsets.
Listeners are called within the step of the change: after the role has started, and before it ends. They must not wait,
nor change the replica; they start slow work there.
"""

from __future__ import annotations

from typing import Protocol

from odradek_proto.topics import TopicPartition


class LeadershipListener(Protocol):
    """For each partition `began` and `ceased` take turns, but for one thing: a leader that leads on begins again."""

    def began(self, tp: TopicPartition, leader_epoch: int) -> None:
        """This broker leads; called again, without `ceased`, when it leads on in a larger epoch."""
        ...

    def ceased(self, tp: TopicPartition) -> None:
        """It leads no more: another broker does, the partition is gone, its disk failed, or this broker stops."""
        ...


class Leaderships:
    """What this broker leads, as its listeners know it."""

    def __init__(self) -> None:
        self._listeners: dict[str, list[LeadershipListener]] = {}
        self._leading: dict[TopicPartition, int] = {}  # and the leader epoch

    def register(self, topic: str, listener: LeadershipListener) -> None:
        """From now on; what this broker leads already is told at once."""
        self._listeners.setdefault(topic, []).append(listener)
        for tp, leader_epoch in sorted(self._leading.items()):
            if tp.topic == topic:
                listener.began(tp, leader_epoch)

    def began(self, tp: TopicPartition, leader_epoch: int) -> None:
        """The role of a leader has started, or taken over new metadata."""
        if self._leading.get(tp) != leader_epoch:
            self._leading[tp] = leader_epoch
            for listener in self._listeners.get(tp.topic, ()):
                listener.began(tp, leader_epoch)

    def ceased(self, tp: TopicPartition) -> None:
        """The role that a replica has is about to end, whichever it is."""
        if self._leading.pop(tp, None) is not None:
            for listener in self._listeners.get(tp.topic, ()):
                listener.ceased(tp)
