"""What holds in every quorum at every moment (M-1 to M-5 of Kafka's RaftEventSimulationTest). Each is checked after
every effect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.messages import Effect, HighWatermarkAdvanced, PersistState

from tests.broker.quorum_simulation.node import Node, QuorumFault


class Invariant(Protocol):
    def check(self, nodes: Mapping[int, Node], node: Node, effect: Effect) -> None:
        """`node` has just carried out `effect`. Raises `QuorumFault`."""


def demand(condition: bool, message: str) -> None:
    if not condition:
        raise QuorumFault(message)


class EpochNeverFalls:
    """M-1: the epoch that a node writes down never falls."""

    def __init__(self) -> None:
        self._epochs: dict[int, int] = {}

    def check(self, nodes: Mapping[int, Node], node: Node, effect: Effect) -> None:
        if isinstance(effect, PersistState):
            before = self._epochs.get(node.node_id, 0)
            demand(effect.state.epoch >= before, f"node {node.node_id}: epoch {before} fell to {effect.state.epoch}")
            self._epochs[node.node_id] = effect.state.epoch

    def forget(self, node_id: int) -> None:
        """This node's disk was replaced."""
        self._epochs.pop(node_id, None)


class OneLeaderPerEpoch:
    """M-2: at most one node ever leads an epoch."""

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}

    def check(self, nodes: Mapping[int, Node], node: Node, effect: Effect) -> None:
        if node.core is not None and isinstance(node.core.role, Leader):
            epoch = node.core.role.epoch
            known = self._leaders.setdefault(epoch, node.node_id)
            demand(known == node.node_id, f"epoch {epoch} has the leaders {known} and {node.node_id}")


class MajorityReachedHighWatermark:
    """M-3: a majority of the voters has everything below a leader's high watermark on its disk, the running and the
    dead.
    """

    def check(self, nodes: Mapping[int, Node], node: Node, effect: Effect) -> None:
        if node.core is None or not isinstance(node.core.role, Leader) or not isinstance(effect, HighWatermarkAdvanced):
            return
        ends = sorted((nodes[voter].disk.flushed_end_offset for voter in node.config.voters), reverse=True)
        reached = ends[node.config.majority - 1]
        demand(reached >= effect.new, f"high watermark {effect.new} of {node.node_id}, but a majority has {reached}")


class HighWatermarkNeverFalls:
    """M-4: the high watermark of the quorum never falls, not even from one leader to the next."""

    def __init__(self) -> None:
        self._of_epoch: dict[int, int] = {}

    def check(self, nodes: Mapping[int, Node], node: Node, effect: Effect) -> None:
        if node.core is None or not isinstance(node.core.role, Leader) or not isinstance(effect, HighWatermarkAdvanced):
            return
        epoch = node.core.role.epoch
        before = max((known for older, known in self._of_epoch.items() if older <= epoch), default=0)
        demand(effect.new > before, f"high watermark {before} was followed by {effect.new} in epoch {epoch}")
        self._of_epoch[epoch] = effect.new


class CommittedRecordsAgree:
    """M-5: what one node holds below a high watermark, every node holds there, byte for byte, for ever."""

    def __init__(self) -> None:
        self.committed: dict[int, bytes] = {}  # by base offset

    def check(self, nodes: Mapping[int, Node], node: Node, effect: Effect) -> None:
        if not isinstance(effect, HighWatermarkAdvanced):
            return
        offset = effect.old
        for batch in node.disk.read(effect.old, effect.new, 1 << 30):
            demand(batch.header.base_offset == offset, f"node {node.node_id}: a gap at {offset}")
            known = self.committed.setdefault(offset, batch.data)
            demand(known == batch.data, f"node {node.node_id}: another batch at {offset} than was committed")
            offset = batch.header.next_offset
        demand(offset == effect.new, f"node {node.node_id}: high watermark {effect.new} inside a batch")


class SnapshotAtLogStart:
    """M-6: a log that does not begin at 0 begins at the end of a snapshot that its node has."""

    def check(self, nodes: Mapping[int, Node], node: Node, effect: Effect) -> None:
        start = node.disk.start
        if start > 0:
            found = [each.end_offset for each in node.disk.snapshots]
            demand(start in found, f"node {node.node_id}: the log starts at {start}, snapshots end at {found}")
        if node.disk.first_offset > start:
            raise QuorumFault(f"node {node.node_id}: nothing between {start} and the first batch")
