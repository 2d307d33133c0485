"""AlterPartition from the broker's side: one request in flight, answered once, repeated until then."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import cast

import pytest
from odradek_broker.core.partition.messages import IsrAnswer, IsrProposal
from odradek_broker.runtime.membership.controller_channel import ControllerChannel
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import controller_messages
from odradek_proto.values import replace

from tests.broker.controller_cluster import Cluster, in_cluster


@in_cluster()
async def test_an_isr_change_is_answered_with_its_new_partition_epoch(cluster: Cluster) -> None:
    """R-55: the answer comes after the commit, so the sender's own metadata has it by then or soon."""
    await cluster.begin(assignment=(3, 2, 1))
    answer = await cluster.join_isr(leader=3, members=(3, 2))
    assert (answer.error, answer.isr, answer.partition_epoch) == (ErrorCode.NONE, (3, 2), 1)
    await cluster.until(lambda: cluster.partition(3).isr == (3, 2), limit_ms=20)


@in_cluster()
async def test_a_second_proposal_for_a_partition_is_not_attempted(cluster: Cluster) -> None:
    """R-48: OPERATION_NOT_ATTEMPTED for the second, while the first is answered as if nothing were."""
    await cluster.begin(assignment=(3, 2, 1))
    member = cluster.members[3]
    first, second = cluster.proposal(3, (3, 2)), cluster.proposal(3, (3, 1))
    member.isr.submit(first)
    member.isr.submit(second)
    assert member.answers == []
    await cluster.until(lambda: len(member.answers) == 2)
    assert {(item.new_isr, answer.error) for item, answer in member.answers} == {
        (second.new_isr, ErrorCode.OPERATION_NOT_ATTEMPTED),
        (first.new_isr, ErrorCode.NONE),
    }


@in_cluster()
async def test_a_proposal_in_flight_admits_no_second_one(cluster: Cluster) -> None:
    """R-48: also after the request has left. Both are answered; no answer makes it forget the other (KAFKA-12686)."""
    await cluster.begin(assignment=(3, 2, 1))
    member = cluster.members[3]
    member.isr.submit(cluster.proposal(3, (3, 2)))
    await cluster.sleep(1)
    member.isr.submit(cluster.proposal(3, (3, 1)))
    await cluster.until(lambda: len(member.answers) == 2)
    assert [answer.error for _, answer in member.answers] == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.NONE]


@in_cluster()
async def test_what_waits_during_a_request_goes_with_the_next_one(cluster: Cluster) -> None:
    """R-48: one request in flight, and the next carries all that gathered meanwhile. (PA-49)"""
    await cluster.begin(assignment=(3, 2, 1))
    names = [f"topic-{i}" for i in range(6)]
    for name in names:
        await cluster.create_topic(name, (3, 2, 1))
    member = cluster.members[3]
    before = len(cluster.log.batches)
    member.isr.submit(cluster.proposal(3, (3, 2)))
    await cluster.sleep(0)
    for name in names:
        member.isr.submit(cluster.proposal(3, (3, 2), name))
    assert len(member.isr.pending()) == 7
    await cluster.until(lambda: len(member.answers) == 7)
    assert {answer.error for _, answer in member.answers} == {ErrorCode.NONE}
    assert len(cluster.log.batches) - before == 2


class Forgetful:
    """A channel to the controller whose first answer says nothing of the first partition."""

    def __init__(self, channel: ControllerChannel) -> None:
        self._channel = channel
        self.calls: list[int] = []

    async def call(self, method: str, request: bytes, timeout_ms: float) -> bytes:
        self.calls.append(len(controller_messages.AlterPartitionRequest.FromString(request).partitions))
        answer = controller_messages.AlterPartitionResponse.FromString(
            await self._channel.call(method, request, timeout_ms)
        )
        if len(self.calls) == 1:
            answer = replace(answer, partitions=answer.partitions[1:])
        return answer.SerializeToString()


@in_cluster()
async def test_a_partition_that_the_answer_forgets_is_sent_again(cluster: Cluster) -> None:
    """R-48: the others are answered, and that one goes with the next request, until it has its own answer. (PA-50)"""
    await cluster.begin(assignment=(3, 2, 1))
    await cluster.create_topic("bills", (3, 2, 1))
    member = cluster.members[3]
    forgetful = Forgetful(member.channel)
    answers: list[tuple[str, ErrorCode]] = []
    channel = member.isr_channel(
        lambda item, answer: answers.append((item.topic_partition.topic, answer.error)),
        channel=cast(ControllerChannel, forgetful),
    )
    for topic in ("orders", "bills"):
        channel.submit(cluster.proposal(3, (3, 2), topic))
    await cluster.until(lambda: len(answers) == 2)
    assert forgetful.calls == [2, 1]
    assert answers[0] == ("bills", ErrorCode.NONE)
    assert answers[1][0] == "orders"
    assert channel.pending() == []
    await channel.stop()


@in_cluster()
async def test_a_proposal_outlives_controllers(cluster: Cluster) -> None:
    """R-50: lost with one controller, granted by the next, or refused by it; in any case answered once."""
    await cluster.begin(assignment=(3, 2, 1))
    member = cluster.members[3]
    cluster.log.stalled = True
    member.isr.submit(cluster.proposal(3, (3, 2)))
    await cluster.sleep(500)
    assert member.answers == []
    cluster.log.stalled = False
    cluster.log.elect(2)
    await cluster.until(lambda: len(member.answers) == 1, limit_ms=1_000)
    assert member.answers[0][1].error is ErrorCode.NONE
    await cluster.sleep(1_000)
    assert len(member.answers) == 1


@in_cluster()
async def test_a_leader_that_hears_no_answers_removes_nobody(cluster: Cluster) -> None:
    """A machine that sends and receives nothing is fenced in the end; who was in sync with it is there to lead."""
    await cluster.begin(assignment=(3, 2, 1))
    for other in (1, 2):
        cluster.fabric.cut(f"node{other}", "node3", both_ways=False)
    member = cluster.members[3]
    member.isr.submit(cluster.proposal(3, (3,)))
    await cluster.until(lambda: cluster.partition(1).leader != 3, limit_ms=20_000)
    assert (cluster.partition(1).leader, cluster.partition(1).isr) == (2, (2, 1))
    cluster.fabric.heal_all()
    await cluster.until(lambda: len(member.answers) == 1, limit_ms=20_000)
    assert member.answers[0][1].error is ErrorCode.FENCED_LEADER_EPOCH


@in_cluster()
async def test_a_stopped_channel_says_nothing_more(cluster: Cluster) -> None:
    """After `stop` no answer reaches the partitions, whatever was on its way."""
    await cluster.begin(assignment=(3, 2, 1))
    member = cluster.members[3]
    member.isr.submit(cluster.proposal(3, (3, 2)))
    await cluster.sleep(1)
    await member.isr.stop()
    member.isr.submit(cluster.proposal(3, (3, 1)))
    await cluster.sleep(1_000)
    assert member.answers == []


@in_cluster()
async def test_a_channel_that_dies_is_the_nodes_failure(cluster: Cluster) -> None:
    """Its task is run by the node, which hears of the error; the ISR would never change again otherwise."""
    await cluster.begin(assignment=(3, 2, 1))
    member = cluster.members[3]
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        tasks.append(asyncio.get_running_loop().create_task(work))
        return tasks[-1]

    def on_answer(proposal: IsrProposal, answer: IsrAnswer) -> None:
        raise ArithmeticError(answer.error)

    channel = member.isr_channel(on_answer, spawn)
    channel.submit(cluster.proposal(3, (3, 2)))
    with pytest.raises(ArithmeticError):
        await tasks[0]
    await channel.stop()
