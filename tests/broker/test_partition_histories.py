"""Random histories of three replicas: real leaders and followers, crashes, elections, lost messages, by seed.

What must hold in every mode with epochs: an acknowledged record stays, with acks=all and min.insync.replicas=2 and no
loss of power; logs agree below their high watermarks; when the faults stop, all logs become equal. What must be seen in
the oldest mode: a loss. Otherwise these histories could not find one.
"""

from __future__ import annotations

import random

import pytest
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import TruncationMode
from odradek_chaos.stage.node import StageNode
from odradek_chaos.stage.said import BatchAnswered
from odradek_chaos.stage.stage import Stage
from odradek_proto.errors import ErrorCode

from tests.seeds import seeds

STEPS = 150
MODES_WITH_EPOCHS = [TruncationMode.FETCH, TruncationMode.EPOCH_REQUEST]


class History:
    """One seed's cluster, and the values that were acknowledged with acks=all."""

    def __init__(self, seed: int, mode: TruncationMode) -> None:
        self.random = random.Random(seed)
        self.stage = Stage()
        self.acknowledged: list[str] = []
        self.run(f"cluster brokers=3 mode={mode.value} min_isr=2")

    def run(self, command: str) -> None:
        for said in self.stage.run(command):
            if isinstance(said, BatchAnswered) and said.error is ErrorCode.NONE:
                self.acknowledged += said.values.split("+")

    def step(self, number: int) -> None:
        """One random thing happens."""
        up = [node for node in self.stage.nodes.values() if node.running]
        down = [node for node in self.stage.nodes.values() if not node.running]
        node = self.random.choice(up)
        choice = self.random.random()
        if choice < 0.25 and isinstance(node.role, LeaderPartition):
            size = self.random.randint(1, 3)
            self.run(f"produce {node.number} {'+'.join(f'v{number}.{each}' for each in range(size))}")
        elif choice < 0.85:
            self.exchange(node)
        elif choice < 0.88 and len(up) > 1:
            self.run(f"crash {node.number}")
            self.run(f"fence {node.number}")
        elif choice < 0.95 and down:
            self.run(f"start {self.random.choice(down).number}")
        elif choice < 0.97:
            self.elect_another()
        else:
            self.run(f"time {self.random.choice([100, 3_000, 12_000])}")

    def exchange(self, node: StageNode) -> None:
        """A follower asks, or the controller answers the leader; messages may be lost."""
        lost = self.random.random()
        if isinstance(node.role, LeaderPartition):
            if node.proposals and node.number == self.stage.registration.leader:
                self.run("controller lose=answer" if lost < 0.2 else "controller")
            return
        follower = node.follower
        if follower.leader >= 0 and follower.in_flight is None and follower.failed is None:
            how = " lose=reply" if lost < 0.1 else " lose=request" if lost < 0.15 else ""
            self.run(f"fetch {node.number}{how}")

    def elect_another(self) -> None:
        """A clean election among those that run, as a preferred leader election would make."""
        metadata = self.stage.registration
        others = [each for each in metadata.isr if self.stage.nodes[each].running and each != metadata.leader]
        if others and metadata.leader >= 0:
            self.run(f"elect {self.random.choice(others)}")

    def heal(self) -> None:
        """All faults stop."""
        for node in self.stage.nodes.values():
            if not node.running:
                self.run(f"start {node.number}")
        self.run("publish")
        self.run("settle")
        self.run(f"produce {self.stage.registration.leader} last")
        self.run("settle")

    def logs(self) -> list[list[str]]:
        return [[str(batch) for batch in node.disk.batches] for node in self.stage.nodes.values()]

    def lost(self) -> list[str]:
        """Acknowledged values that the leader does not have."""
        leader = self.stage.nodes[self.stage.registration.leader]
        kept = {value for batch in leader.disk.batches for value in batch.values}
        return [value for value in self.acknowledged if value not in kept]

    def disagreement(self) -> str:
        """Where two running replicas differ below both high watermarks; empty when nowhere."""
        nodes = [node for node in self.stage.nodes.values() if node.running]
        for node in nodes:
            for other in nodes:
                bound = min(node.open_log.high_watermark, other.open_log.high_watermark)
                mine, theirs = ([str(each) for each in at.disk.read(0, bound)] for at in (node, other))
                if mine != theirs:
                    return f"below {bound}: b{node.number} {mine}, b{other.number} {theirs}"
        return ""


def live(seed: int, mode: TruncationMode, *, checked: bool) -> History:
    history = History(seed, mode)
    for number in range(STEPS):
        before = [(node.role, node.open_log.high_watermark) for node in history.stage.nodes.values() if node.running]
        history.step(number)
        if checked:
            assert history.disagreement() == "", (seed, number)
            for role, high_watermark in before:
                if isinstance(role, LeaderPartition):
                    assert high_watermark <= role.log.high_watermark <= role.log.log_end_offset, (seed, number)
    history.heal()
    return history


@pytest.mark.parametrize("mode", MODES_WITH_EPOCHS)
@pytest.mark.parametrize("seed", seeds(20, every_day=3))
def test_acknowledged_records_survive_and_replicas_agree(seed: int, mode: TruncationMode) -> None:
    """acks=all with two in sync: nothing acknowledged is lost, and all logs are equal in the end."""
    history = live(seed, mode, checked=True)
    first, *others = history.logs()
    assert all(log == first for log in others), seed
    assert history.acknowledged[-1] == "last"
    assert history.lost() == [], seed
    assert sorted(history.stage.registration.isr) == [0, 1, 2]


def test_oldest_protocol_loses_records() -> None:
    """The same histories under truncation to the high watermark do lose acknowledged records (KIP-101)."""
    assert any(live(seed, TruncationMode.HIGH_WATERMARK, checked=False).lost() for seed in range(20))


def test_same_seed_tells_the_same_story() -> None:
    """A seed is a bug report: it repeats."""
    assert live(3, TruncationMode.FETCH, checked=False).logs() == live(3, TruncationMode.FETCH, checked=False).logs()
