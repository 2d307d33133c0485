"""Produces, fetches, ISR changes and elections of one partition in every order, by seed (PA-48).

The replica is the broker's own, with its log, its purgatories and its waiting fetches; the followers and the
controller are played here, and they know the truth: who really has what, and who really is in the ISR.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from odradek_broker.core.partition.messages import IsrAnswer
from odradek_broker.runtime.replicas.purgatory import ProduceAnswer
from odradek_broker.runtime.replicas.replica import Replica
from odradek_proto.errors import ErrorCode

from tests.broker.replica_world import ME, ONE, THREE, Waiter, World, batch_of, run
from tests.playing import plays
from tests.seeds import seeds

STEPS = 400
FOLLOWERS = (ONE, THREE)
UNKNOWN = {ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_LEADER_OR_FOLLOWER}


@dataclass
class Request:
    """One produce request with acks=all."""

    required_offset: int = -1
    answers: list[ErrorCode] = field(default_factory=list)


class Partition:
    """The played part of the world, and what must hold after each step."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.isr: tuple[int, ...] = (ONE, ME, THREE)  # as the controller has it
        self.epoch = self.version = 0
        self.leads = True
        self.epochs: list[int] = []  # of each record in the leader's log
        self.ends = dict.fromkeys(FOLLOWERS, 0)
        self.waiting: dict[int, Waiter] = {}
        self.consumer: Waiter | None = None
        self.requests: list[Request] = []
        self.silent = 0  # a follower that says nothing for a while

    @property
    def replica(self) -> Replica:
        return self.world.replica

    async def begin(self) -> None:
        self.world.image.topic_configs["orders"] = {"min.insync.replicas": str(self.random.choice([1, 2]))}
        await self.metadata()

    async def metadata(self) -> None:
        leader = ME if self.leads else ONE
        await self.world.learn(leader, self.epoch, isr=self.isr, version=self.version)

    # --- Steps -----------------------------------------------------------------------------------------------------

    async def step(self) -> None:
        choice = self.random.random()
        if choice < 0.25:
            self.produce()
        elif choice < 0.55:
            self.fetch(self.random.choice(FOLLOWERS))
        elif choice < 0.6:
            self.consume()
        elif choice < 0.75:
            await self.answer_a_proposal()
        elif choice < 0.78:
            await self.metadata()
        elif choice < 0.79:
            await self.elect()
        elif choice < 0.85:
            self.silent = self.random.choice([0, 0, *FOLLOWERS])
        else:
            await self.world.clock.sleep(self.random.choice([20, 60, 400, 6_000, 11_000]))
            self.world.replicas.check_isrs()

    def produce(self) -> None:
        request = Request()
        self.requests.append(request)
        before = self.replica.state.log_end_offset

        def answer(told: ProduceAnswer) -> None:
            request.answers.append(told.error)
            assert len(request.answers) == 1, request
            if told.error is ErrorCode.NONE:
                request.required_offset = max(request.required_offset, told.base_offset + 1)
                assert all(self.ends[each] >= request.required_offset for each in self.isr if each != ME), self.isr

        sent = memoryview(batch_of(self.world))
        self.replica.produce(sent, -1, self.random.choice([50, 2_000, 30_000]), answer)
        if not request.answers or request.answers[0] is ErrorCode.NONE:
            request.required_offset = before + 1
        self.epochs += [self.epoch] * (self.replica.state.log_end_offset - len(self.epochs))

    def fetch(self, follower: int) -> None:
        """It asks where it stands, takes some of what it may read, and waits when there is nothing."""
        if follower == self.silent:
            return
        end = self.ends[follower]
        last_epoch = self.epochs[end - 1] if end else -1
        decision = self.world.fetched_by(follower, end, epoch=self.epoch, last=last_epoch)
        assert decision.error is ErrorCode.NONE, decision
        assert decision.diverging is None, decision
        if follower in self.waiting:
            self.waiting.pop(follower).leave()
        if decision.limit > end:
            self.ends[follower] = self.random.randint(end, decision.limit)
        else:
            self.waiting[follower] = Waiter(self.replica, follower=True, offset=end)

    def consume(self) -> None:
        if self.consumer is not None:
            self.consumer.leave()
        self.consumer = Waiter(self.replica, follower=False, offset=self.replica.state.high_watermark)

    async def answer_a_proposal(self) -> None:
        """Applied, refused, or applied with the answer lost; metadata come before the answer, after it, or later."""
        if not self.world.proposals:
            return
        proposal = self.world.proposals.pop(0)
        luck = self.random.random()
        if proposal.leader_epoch != self.epoch:
            answer = IsrAnswer(ErrorCode.FENCED_LEADER_EPOCH)
        elif proposal.partition_epoch != self.version:
            answer = IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
        elif luck < 0.1:
            answer = IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
        elif luck < 0.3:
            answer = IsrAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)  # it will be sent again
        else:
            self.isr = tuple(member.broker_id for member in proposal.new_isr)
            self.version += 1
            answer = IsrAnswer(ErrorCode.NONE, ME, self.epoch, self.version, self.isr)
            if luck < 0.5:
                answer = IsrAnswer(ErrorCode.UNKNOWN_SERVER_ERROR)
        if self.random.random() < 0.3:
            await self.metadata()
        self.world.replicas.on_isr_answer(proposal, answer)

    async def elect(self) -> None:
        """A new epoch of the same leader, or a term of another one that writes nothing."""
        self.epoch += 1
        self.version += 1
        if self.random.random() < 0.5 and len(self.isr) > 1:
            self.leads = False
            await self.metadata()
            self.waiting.clear()
            self.check()
            self.epoch += 1
            self.version += 1
            self.leads = True
        await self.metadata()

    # --- What must hold --------------------------------------------------------------------------------------------

    def check(self) -> None:
        state = self.replica.state
        open_requests = [request for request in self.requests if not request.answers]
        assert self.replica.waiting_produces == len(open_requests)
        if self.leads:
            assert all(request.required_offset > state.high_watermark for request in open_requests), "stuck"
            assert all(each.woken for each in self.waiting.values() if each.offset < state.log_end_offset), "asleep"
        else:
            assert open_requests == []
        if self.consumer is not None and self.consumer.offset < state.high_watermark:
            assert self.consumer.woken, "asleep"

    async def heal(self) -> None:
        """No more faults: everybody is in sync in the end, and nobody waits."""
        self.silent = 0
        for _ in range(40):
            while self.world.proposals:
                proposal = self.world.proposals.pop(0)
                if proposal.leader_epoch == self.epoch and proposal.partition_epoch == self.version:
                    self.isr = tuple(member.broker_id for member in proposal.new_isr)
                    self.version += 1
                    answer = IsrAnswer(ErrorCode.NONE, ME, self.epoch, self.version, self.isr)
                else:
                    answer = IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
                self.world.replicas.on_isr_answer(proposal, answer)
            await self.metadata()
            for follower in FOLLOWERS:
                self.fetch(follower)
                self.ends[follower] = self.replica.state.log_end_offset
                self.fetch(follower)
            await self.world.clock.sleep(100)


@pytest.mark.parametrize("seed", seeds(25, every_day=10))
@plays(run)
async def test_every_request_is_answered_exactly_once(world: World, seed: int) -> None:
    """No request is lost, stuck or answered twice; who has what is acknowledged is known (R-120, R-126, PA-48)."""
    partition = Partition(world, seed)
    await partition.begin()
    for _ in range(STEPS):
        await partition.step()
        partition.check()
    partition.produce()
    await partition.heal()
    partition.check()
    assert sorted(partition.isr) == [ONE, ME, THREE]
    state = partition.replica.state
    assert state.high_watermark == state.log_end_offset
    answers = [answer for request in partition.requests for answer in request.answers]
    assert len(answers) == len(partition.requests)
    assert set(answers) <= {ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS, *UNKNOWN}
