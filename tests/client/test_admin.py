"""What the administrator's client asks and how it reads the answers, against a peer that answers in the protocol."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from odradek import (
    Admin,
    BrokerError,
    BrokerUnreachable,
    ConfigError,
    NewTopic,
    RequestTimeout,
    TopicPartition,
    UnknownTopic,
    broker_errors,
)
from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import CallContext, Handlers
from odradek_proto.v1 import admin_messages as pb
from odradek_proto.values import replace

ADMIN = "/odradek.v1.Admin/"


class Controller:
    """Answers for admin calls: topics and settings in dictionaries, and orders to fail."""

    def __init__(self) -> None:
        self.topics: dict[str, pb.NewTopic] = {}
        self.calls: list[str] = []
        self.takers: list[Any] = []
        self.not_controller = self.resigned = 0
        self.silent = False

    async def CreateTopics(self, request: bytes, context: CallContext) -> bytes:
        self.calls.append("CreateTopics")
        if self.silent:
            await asyncio.get_running_loop().create_future()
        created = []
        for topic in pb.CreateTopicsRequest.FromString(request).topics:
            error = ErrorCode.TOPIC_ALREADY_EXISTS if topic.name in self.topics else ErrorCode.NONE
            if self.not_controller:
                self.not_controller -= 1
                error = ErrorCode.NOT_CONTROLLER
            if not error:
                self.topics[topic.name] = topic
            answer = pb.CreatedTopic(name=topic.name, error_code=error, topic_id=b"i" * 16, partitions=3)
            created.append(replace(answer, replication_factor=2))
        return pb.CreateTopicsResponse(topics=created).SerializeToString()

    async def DescribeConfigs(self, request: bytes, context: CallContext) -> bytes:
        topic = self.topics[pb.DescribeConfigsRequest.FromString(request).resource_name]
        entries = [pb.ConfigEntry(name=name, value=value, source="topic") for name, value in topic.configs.items()]
        return pb.DescribeConfigsResponse(entries=entries).SerializeToString()

    async def AlterConfigs(self, request: bytes, context: CallContext) -> bytes:
        asked = pb.AlterConfigsRequest.FromString(request)
        topic = self.topics[asked.resource_name]
        configs = {name: value for name, value in {**topic.configs, **asked.set}.items() if name not in asked.unset}
        self.topics[asked.resource_name] = replace(topic, configs=configs)
        return pb.AlterConfigsResponse().SerializeToString()

    async def ElectLeaders(self, request: bytes, context: CallContext) -> bytes:
        asked = pb.ElectLeadersRequest.FromString(request)
        results = [
            pb.ElectionResult(topic=item.topic, partition=item.partition, error_code=84 if number else 0)
            for number, item in enumerate(asked.partitions)
        ]
        return pb.ElectLeadersResponse(partitions=results).SerializeToString()

    async def AlterPartitionReassignments(self, request: bytes, context: CallContext) -> bytes:
        asked = pb.AlterPartitionReassignmentsRequest.FromString(request)
        results = []
        for item in asked.partitions:
            error = ErrorCode.NONE if item.replicas else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
            if asked.keep_replication_factor:
                error = ErrorCode.INVALID_REPLICATION_FACTOR
            results.append(pb.ReassignmentResult(topic=item.topic, partition=item.partition, error_code=error))
        return pb.AlterPartitionReassignmentsResponse(partitions=results).SerializeToString()

    async def ListPartitionReassignments(self, request: bytes, context: CallContext) -> bytes:
        ongoing = pb.OngoingReassignment(
            topic="orders", partition=1, replicas=[3, 4, 1, 2], adding_replicas=[3, 4], removing_replicas=[1, 2]
        )
        return pb.ListPartitionReassignmentsResponse(partitions=[ongoing]).SerializeToString()

    async def DescribeQuorum(self, request: bytes, context: CallContext) -> bytes:
        self.calls.append("DescribeQuorum")
        if self.resigned:
            self.resigned -= 1
            return pb.DescribeQuorumResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER).SerializeToString()
        voters = [pb.QuorumReplica(node_id=number, log_end_offset=7) for number in (1, 2, 3)]
        return pb.DescribeQuorumResponse(leader_id=2, leader_epoch=5, voters=voters).SerializeToString()

    def handlers(self, broker: Any) -> Handlers:
        """The service as it runs on a broker; `takers` remembers which brokers were given orders."""

        async def create(request: bytes, context: CallContext) -> bytes:
            self.takers.append(broker)
            return await self.CreateTopics(request, context)

        names = ("DescribeConfigs", "AlterConfigs", "ElectLeaders", "DescribeQuorum", "AlterPartitionReassignments",
                 "ListPartitionReassignments")  # fmt: skip
        return Handlers({ADMIN + "CreateTopics": create} | {ADMIN + name: getattr(self, name) for name in names})


@pytest.fixture
def controller(peers: Any) -> Controller:
    """An admin service on every broker of the peer cluster."""
    made = Controller()
    for broker in peers.brokers.values():
        broker.more_handlers = made.handlers(broker)
    return made


async def test_a_topic_is_created_and_its_settings_changed(peers: Any, controller: Controller) -> None:
    """Names, counts, assignments and settings go there; ids and counts come back."""
    async with peers.client(Admin) as admin:
        [made] = await admin.create_topics([NewTopic("orders", configs={"a": "1"}, assignments={0: [1, 2]})])
        assert (made.name, made.partitions, made.replication_factor, len(made.topic_id)) == ("orders", 3, 2, 22)
        assert [*controller.topics["orders"].assignments[0].broker_ids] == [1, 2]
        await admin.alter_configs("topic", "orders", set={"b": "2"}, unset=["a"])
        [entry] = await admin.describe_configs("topic", "orders")
        assert (entry.name, entry.value, entry.source) == ("b", "2", "DYNAMIC_TOPIC_CONFIG")


async def test_reassignments_are_ordered_and_listed(peers: Any, controller: Controller) -> None:
    """Each partition has its own answer, an error of its own class or none; None cancels, no replicas are a mistake."""
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    async with peers.client(Admin) as admin:
        answers = await admin.alter_partition_reassignments({first: [3, 4], second: None})
        assert answers[first] is None
        assert isinstance(answers[second], broker_errors.NoReassignmentInProgress)
        kept = await admin.alter_partition_reassignments({first: [3]}, allow_replication_factor_change=False)
        assert isinstance(kept[first], broker_errors.InvalidReplicationFactor)
        with pytest.raises(ValueError, match="None cancels"):
            await admin.alter_partition_reassignments({first: []})
        ongoing = await admin.list_partition_reassignments()
        assert list(ongoing) == [second]
        assert (ongoing[second].target, ongoing[second].original) == ((3, 4), (1, 2))
        assert await admin.list_partition_reassignments([]) == {}


async def test_an_absent_controller_is_waited_for(peers: Any, controller: Controller) -> None:
    """NOT_CONTROLLER says that nothing was done: the order is given again."""
    controller.not_controller = 3
    async with peers.client(Admin) as admin:
        await admin.create_topics([NewTopic("orders")])
    assert controller.calls == ["CreateTopics"] * 4


async def test_a_controller_that_has_just_resigned_is_waited_for(peers: Any, controller: Controller) -> None:
    """It answers for the quorum as a leader that it was when the question was sent to it."""
    controller.resigned = 3
    async with peers.client(Admin) as admin:
        assert (await admin.describe_quorum()).leader_id == 2
    assert controller.calls == ["DescribeQuorum"] * 4


async def test_an_order_without_an_answer_is_not_given_twice(peers: Any, controller: Controller) -> None:
    """Nobody knows whether it took effect, and it says so."""
    controller.silent = True
    async with peers.client(Admin) as admin:
        with pytest.raises(RequestTimeout):
            await admin.create_topics([NewTopic("orders")], timeout=1)
    assert controller.calls == ["CreateTopics"]


async def test_an_order_whose_connection_broke_is_not_given_twice(peers: Any, controller: Controller) -> None:
    """The broker that had it died: nobody knows whether it took effect, and no other broker gets it."""
    controller.silent = True
    async with peers.client(Admin) as admin:
        order = asyncio.get_running_loop().create_task(admin.create_topics([NewTopic("orders")]))
        await peers.until(lambda: controller.calls)
        controller.takers[0].kill()
        with pytest.raises(BrokerUnreachable) as caught:
            await order
        assert not caught.value.undelivered
    assert controller.calls == ["CreateTopics"]


async def test_an_order_that_nobody_took_goes_to_the_next_broker(peers: Any, controller: Controller) -> None:
    """A machine that refuses the connection says that nobody there has the order."""
    async with peers.client(Admin) as admin:
        peers.brokers[2].kill()
        peers.brokers[3].kill()
        for number in range(5):
            await admin.create_topics([NewTopic(f"orders{number}")], timeout=1)
    assert controller.calls == ["CreateTopics"] * 5


async def test_orders_go_to_the_broker_that_has_just_answered(peers: Any, controller: Controller) -> None:
    """Others may be frozen meanwhile, and an order that one of these took is not given to the next one."""
    async with peers.client(Admin) as admin:
        for number in range(10):
            await admin.create_topics([NewTopic(f"orders{number}")], timeout=1)
            for broker in peers.brokers.values():
                if broker is not controller.takers[0]:
                    broker.node.pause()
    assert controller.takers == controller.takers[:1] * 10


async def test_a_fenced_broker_gets_no_orders(peers: Any, controller: Controller) -> None:
    """It is frozen, the metadata say so, and it is the first of the bootstrap addresses: no order waits for it."""
    peers.fenced.add(1)
    async with peers.client(Admin) as admin:
        peers.brokers[1].node.pause()
        for number in range(10):
            await admin.create_topics([NewTopic(f"orders{number}")], timeout=1)
    assert controller.calls == ["CreateTopics"] * 10


async def test_when_all_brokers_are_fenced_they_are_asked_all_the_same(peers: Any, controller: Controller) -> None:
    """The bootstrap addresses are the last resort."""
    peers.fenced.update((1, 2, 3))
    async with peers.client(Admin) as admin:
        await admin.create_topics([NewTopic("orders")], timeout=1)
    assert controller.calls == ["CreateTopics"]


async def test_refusals_name_their_topic(peers: Any, controller: Controller) -> None:
    """The first is raised, the others are its notes."""
    async with peers.client(Admin) as admin:
        await admin.create_topics([NewTopic("a"), NewTopic("b")])
        with pytest.raises(BrokerError, match="a: TOPIC_ALREADY_EXISTS") as caught:
            await admin.create_topics([NewTopic("a"), NewTopic("b"), NewTopic("c")])
        assert len(caught.value.__notes__) == 1
        assert "c" in controller.topics


async def test_elections_say_what_came_of_each(peers: Any, controller: Controller) -> None:
    """An error per partition, or None."""
    async with peers.client(Admin) as admin:
        one, two = TopicPartition("orders", 0), TopicPartition("orders", 1)
        found = await admin.elect_leaders("preferred", [one, two])
        assert found[one] is None
        refused = found[two]
        assert refused is not None
        assert refused.code is ErrorCode.ELECTION_NOT_NEEDED


async def test_the_cluster_describes_itself(peers: Any, controller: Controller) -> None:
    """Brokers, quorum, topics, and the replicas of every broker that answers."""
    peers.topic("orders", partitions=2)
    async with peers.client(Admin) as admin:
        assert (await admin.describe_cluster()).brokers[0].endpoints == {"GRPC": "broker1:50051"}
        quorum = await admin.describe_quorum()
        assert (quorum.leader_id, [voter.node_id for voter in quorum.voters]) == (2, [1, 2, 3])
        [topic] = await admin.describe_topics(["orders"])
        assert [partition.leader_id for partition in topic.partitions] == [1, 2]
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await admin.describe_topics(["nowhere"])
        peers.brokers[3].kill()
        peers.brokers[2].node.pause()
        described = await admin.describe_replicas()
        assert [(replica.broker_id, replica.partition) for replica in described.replicas] == [(1, 0), (1, 1)]
        assert sorted(described.unreachable) == [2, 3]
        assert described.unreachable[3] == "connection refused"


async def test_arguments_that_cannot_be_are_refused_with_a_remedy(peers: Any) -> None:
    """As other clients take them, or nearly right; one name is not a list of letters."""
    peers.topic("orders", partitions=2)
    deletions: list[bytes] = []

    async def delete(request: bytes, context: CallContext) -> bytes:
        deletions.append(request)
        raise AssertionError("nothing was to be deleted")

    for broker in peers.brokers.values():
        broker.more_handlers = Handlers({"/odradek.v1.Broker/DeleteRecords": delete}, {})
    async with peers.client(Admin) as admin:
        wrong: list[tuple[Callable[[Any], Any], Any, str]] = [
            (admin.create_topics, ["a.b"], r"'a\.b' is no NewTopic \(for example NewTopic\('a\.b', 3\)\)"),
            (admin.create_topics, "a.b", r"'a\.b' is no NewTopic"),
            (admin.delete_records, {"orders": 5}, "'orders' is no partition"),
            (admin.delete_records, {("orders", 0): 5, ("orders", 1): "all"}, "orders-1: offset 'all' is not a whole"),
            (admin.delete_topics, None, "None is no name"),
            (admin.describe_topics, [b"orders"], "b'orders' is no name"),
        ]
        for call, argument, words in wrong:
            with pytest.raises(ConfigError, match=words):
                await call(argument)
        with pytest.raises(UnknownTopic, match=r"has no partition 7 \(it has 2, counted from 0\)"):
            await admin.delete_records({TopicPartition("orders", 0): 5, TopicPartition("orders", 7): 5})
        assert deletions == []
        assert [topic.name for topic in await admin.describe_topics("orders")] == ["orders"]
