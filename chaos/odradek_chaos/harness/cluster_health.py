"""Whether a cluster of real brokers is whole, in the eyes of each of its brokers.

A client's question goes to any broker, and one that was frozen or cut off a moment ago answers with what it knew
before: that all replicas are in sync, that it leads, that the old controller is in charge. So each is asked by itself,
over a new connection, and whole means all of this at one time:

- everyone answers, and all tell the same of brokers, leaders, ISRs and the controller;
- nobody is fenced, and every partition of every topic has a leader and its full ISR;
- everyone reaches the active controller by the name that it dials: DescribeQuorum is passed on to it;
- the quorum's voters have all that is committed;
- every replica has the role that the metadata gives it: nobody leads who was replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from odradek.shared.security import network_for
from odradek_broker.local.cluster import ClusterError
from odradek_proto.errors import ErrorCode
from odradek_proto.messages import Request, Response
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Network, NetworkError
from odradek_proto.v1 import admin_messages, broker_pb2

from odradek_chaos.harness.waiting import POLL_S
from odradek_chaos.worlds.real import ObservedBrokers

CALL_TIMEOUT_MS = 5_000  # of one broker; a busy one may need a second
METADATA = "/odradek.v1.Broker/Metadata"
DESCRIBE_REPLICAS = "/odradek.v1.Broker/DescribeReplicas"
DESCRIBE_QUORUM = "/odradek.v1.Admin/DescribeQuorum"


R = TypeVar("R", bound=Response)


class NotConverged(Exception):
    """What is still missing."""


class Leadership(NamedTuple):
    leader_id: int
    leader_epoch: int


class ReplicaEnd(NamedTuple):
    log_end_offset: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class PartitionView:
    """What a broker knows of a partition."""

    leadership: Leadership
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class HealthView:
    """A cluster as one broker knows it. `brokers` has the epoch of each, and whether it is fenced."""

    controller_id: int
    brokers: Mapping[int, tuple[int, bool]]
    partitions: Mapping[TopicPartition, PartitionView]


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """A cluster that was whole when it was looked at: what all its brokers told, and where their replicas ended."""

    controller_id: int
    broker_epochs: Mapping[int, int]
    partitions: Mapping[TopicPartition, PartitionView]
    replicas: Mapping[tuple[int, TopicPartition], ReplicaEnd]  # by broker

    def of_topic(self, topic: str) -> dict[int, PartitionView]:
        """The partitions of a topic by number, in order; none when there is no such topic."""
        return {tp.partition: view for tp, view in sorted(self.partitions.items()) if tp.topic == topic}

    def leaderships(self, topic: str) -> dict[int, Leadership]:
        return {partition: view.leadership for partition, view in self.of_topic(topic).items()}

    def is_at_rest(self, topic: str) -> bool:
        """Whether all replicas of each partition end at one offset, and the leader's high watermark stands there."""
        for tp, view in self.partitions.items():
            if tp.topic == topic:
                leader = self.replicas[view.leadership.leader_id, tp]
                ends = {self.replicas[broker_id, tp].log_end_offset for broker_id in view.replicas}
                if ends != {leader.high_watermark}:
                    return False
        return True


async def wait_until_converged(
    world: ObservedBrokers, *, timeout_s: float, settled: Callable[[ClusterHealth], bool] = lambda health: True
) -> ClusterHealth:
    """Until the cluster is whole and `settled` holds, too. Raises `ClusterError` with what was missing last."""
    missing = "nobody has answered"
    try:
        async with asyncio.timeout(timeout_s):
            while True:
                try:
                    health = await look(world)
                except NotConverged as error:
                    missing = str(error)
                else:
                    if settled(health):
                        return health
                    missing = "it has not come to rest"
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise ClusterError(f"the cluster is not whole after {timeout_s:g} s: {missing}") from None


async def look(world: ObservedBrokers, *, call_timeout_ms: float = CALL_TIMEOUT_MS) -> ClusterHealth:
    """Ask every broker once. Raises `NotConverged`."""
    network = network_for()
    try:
        asking = _Asking(network, world.bootstrap.split(","), call_timeout_ms)
        view = agreed(await _views(asking, world.nodes))
        check_view(view)
        await _check_quorum(asking, view.controller_id)
        epochs = {broker_id: epoch for broker_id, (epoch, _) in view.brokers.items()}
        return ClusterHealth(view.controller_id, epochs, view.partitions, await _replicas(asking, view))
    finally:
        await network.close()


@dataclass(frozen=True, slots=True)
class _Asking:
    network: Network
    addresses: Sequence[str]
    timeout_ms: float

    async def all(self, method: str, question: Request, kind: type[R]) -> list[R]:
        """The same question to all at once, and the answers in order; raises when one does not answer."""
        request = question.SerializeToString()
        asked = [self.network.call(address, method, request, self.timeout_ms) for address in self.addresses]
        answers = []
        for told in await asyncio.gather(*asked, return_exceptions=True):
            if isinstance(told, NetworkError):
                raise NotConverged(f"no answer: {told}")
            if isinstance(told, BaseException):
                raise told
            answers.append(kind.FromString(told))
        return answers


async def _views(asking: _Asking, nodes: Collection[int]) -> dict[int, HealthView]:
    """What every broker knows; raises unless each of them has answered."""
    question = broker_pb2.MetadataRequest(all_topics=True)
    answers = await asking.all(METADATA, question, broker_pb2.MetadataResponse)
    found = {answer.answered_by: _view(answer) for answer in answers}
    if sorted(found) != sorted(nodes):
        raise NotConverged(f"of the brokers {sorted(nodes)} only {sorted(found)} can be asked")
    return found


def _view(answer: broker_pb2.MetadataResponse) -> HealthView:
    for topic in answer.topics:
        if topic.error_code:
            raise NotConverged(f"{topic.topic}: {ErrorCode.from_number(topic.error_code).name} at {answer.answered_by}")
    return HealthView(
        answer.controller_id,
        {broker.broker_id: (broker.broker_epoch, broker.fenced) for broker in answer.brokers},
        {
            TopicPartition(topic.topic, each.partition): PartitionView(
                Leadership(each.leader_id, each.leader_epoch),
                each.partition_epoch,
                tuple(each.replicas),
                tuple(sorted(each.isr)),
            )
            for topic in answer.topics
            for each in topic.partitions
        },
    )


def agreed(views: Mapping[int, HealthView]) -> HealthView:
    """What all brokers tell; raises `NotConverged` when one tells something else."""
    (first_id, first), *others = sorted(views.items())
    for broker_id, view in others:
        if view.controller_id != first.controller_id:
            raise NotConverged(
                f"the controller is {first.controller_id} for broker {first_id}, {view.controller_id} for {broker_id}"
            )
        if view != first:
            raise NotConverged(f"brokers {first_id} and {broker_id} have not read the same metadata")
    return first


def check_view(view: HealthView) -> None:
    """Raise `NotConverged` when something is missing in what the brokers tell."""
    if view.controller_id not in view.brokers:
        raise NotConverged("there is no active controller")
    for broker_id, (_, fenced) in sorted(view.brokers.items()):
        if fenced:
            raise NotConverged(f"broker {broker_id} is fenced")
    for tp, partition in sorted(view.partitions.items()):
        leader = partition.leadership.leader_id
        if leader not in partition.isr or partition.isr != tuple(sorted(partition.replicas)):
            raise NotConverged(f"{tp}: leader {leader}, ISR {partition.isr} of the replicas {partition.replicas}")


async def _check_quorum(asking: _Asking, controller_id: int) -> None:
    """Everyone reaches the same active controller, and no voter lacks what is committed."""
    question = admin_messages.DescribeQuorumRequest()
    answers = await asking.all(DESCRIBE_QUORUM, question, admin_messages.DescribeQuorumResponse)
    for address, quorum in zip(asking.addresses, answers, strict=True):
        if quorum.error_code or quorum.leader_id != controller_id:
            name = ErrorCode.from_number(quorum.error_code).name
            raise NotConverged(f"{address} does not reach controller {controller_id}: {name}")
        for voter in quorum.voters:
            if voter.log_end_offset < quorum.high_watermark:
                raise NotConverged(f"voter {voter.node_id} has the metadata up to {voter.log_end_offset} only")


async def _replicas(asking: _Asking, view: HealthView) -> dict[tuple[int, TopicPartition], ReplicaEnd]:
    """Where every replica ends; raises unless each has the role and the leader epoch that the metadata gives it."""
    question = broker_pb2.DescribeReplicasRequest()
    roles: dict[tuple[int, TopicPartition], tuple[str, int]] = {}
    ends: dict[tuple[int, TopicPartition], ReplicaEnd] = {}
    for answer in await asking.all(DESCRIBE_REPLICAS, question, broker_pb2.DescribeReplicasResponse):
        for replica in answer.replicas:
            place = answer.broker_id, TopicPartition(replica.topic, replica.partition)
            roles[place] = replica.role, replica.leader_epoch
            ends[place] = ReplicaEnd(replica.log_end_offset, replica.high_watermark)
    for tp, partition in sorted(view.partitions.items()):
        for broker_id in partition.replicas:
            role = "leader" if broker_id == partition.leadership.leader_id else "follower"
            if roles.get((broker_id, tp)) != (role, partition.leadership.leader_epoch):
                raise NotConverged(f"{tp}: broker {broker_id} is not yet {role} in {partition.leadership}")
    return ends
