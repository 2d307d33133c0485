"""Consumer groups of Kafka's clients, unchanged, on a cluster of odradek."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from odradek_broker.core.groups.records import partition_for
from odradek_broker.testing import Cluster
from odradek_proto.topics import OFFSETS_TOPIC, TopicPartition

from tests.interop import group_story
from tests.interop.kafka.dump import TOOL
from tests.interop.kafka.java import programs_of, run_program, tool
from tests.interop.scenarios.telling import until

EVERYDAY = "confluent"
SLOW = pytest.mark.slow


@pytest.fixture
def topic(odradek_cluster: Cluster, odradek_topic: str) -> str:
    name = f"{odradek_topic}-shared"
    odradek_cluster.create_topic(name, group_story.PARTITIONS)
    return name


def home_of(bootstrap: str, group: str) -> TopicPartition:
    """The group's partition of the offsets topic."""
    from confluent_kafka.admin import AdminClient

    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=60).topics
    return TopicPartition(OFFSETS_TOPIC, partition_for(group, len(topics[OFFSETS_TOPIC].partitions)))


def consumer_of(bootstrap: str, group: str, **settings: Any) -> Any:
    from confluent_kafka import Consumer

    own = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    return Consumer({**own, "enable.auto.commit": False, **settings})


@pytest.mark.parametrize(
    "client", [pytest.param(name, marks=() if name == EVERYDAY else SLOW) for name in group_story.STORIES]
)
def test_a_group_shares_partitions_and_goes_on_where_it_was(client: str, kafka_bootstrap: str, topic: str) -> None:
    """Closing commits, at once; who comes later is given what nobody has read."""
    if reason := group_story.missing(client):
        pytest.skip(reason)
    group_story.STORIES[client](kafka_bootstrap, topic, f"{topic}-group")


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"partition.assignment.strategy": "cooperative-sticky"}, {"partition.assignment.strategy": "roundrobin"}],
    ids=lambda settings: str(*settings.values()),
)
def test_other_assignments(settings: dict[str, str], kafka_bootstrap: str, topic: str) -> None:
    """Subscription and assignment are the clients' own (K-44)."""
    group_story.confluent(kafka_bootstrap, topic, f"{topic}-group", **settings)


KIP_848 = {"group.protocol": "consumer"}


@pytest.mark.odradek(settings={"group.consumer.heartbeat.interval.ms": 200})
def test_a_group_whose_partitions_the_coordinator_assigns(kafka_bootstrap: str, topic: str) -> None:
    """KIP-848: halves, commits at close, and the next member goes on. An empty group changes over, and back (K-61)."""
    group_story.confluent(kafka_bootstrap, topic, f"{topic}-group", **KIP_848)
    member = consumer_of(kafka_bootstrap, f"{topic}-group")
    group_story.produce(kafka_bootstrap, topic, [100])
    member.subscribe([topic])
    (message,) = read(member, 1)
    assert message.value() == b"100"
    member.close()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_changes_its_protocol_while_it_reads(strategy: str, kafka_bootstrap: str, topic: str) -> None:
    """One by one: a member of KIP-848 beside a classic one, then alone, then a classic one beside it, and alone."""
    classic = {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": 200, "session.timeout.ms": 6000}
    half, whole = group_story.PARTITIONS // 2, group_story.PARTITIONS

    def settled(*members: Any, each: int) -> None:
        for _ in until(lambda: [len(member.assignment()) for member in members] == [each] * len(members)):
            for member in members:
                member.poll(0.05)

    def joined(**settings: Any) -> Any:
        member = consumer_of(kafka_bootstrap, f"{topic}-group", **settings)
        member.subscribe([topic])
        return member

    old = joined(**classic)
    settled(old, each=whole)
    new = joined(**KIP_848)
    settled(old, new, each=half)
    old.close()
    settled(new, each=whole)
    back = joined(**classic)
    settled(new, back, each=half)
    new.close()
    settled(back, each=whole)
    group_story.produce(kafka_bootstrap, topic, range(8))
    assert {int(message.value()) for message in read(back, 8)} == set(range(8))
    back.close()


@pytest.mark.parametrize("settings", [{}, KIP_848], ids=["classic", "consumer"])
def test_a_group_outlives_its_coordinator(
    settings: dict[str, str], odradek_cluster: Cluster, kafka_bootstrap: str, topic: str
) -> None:
    """Its broker is killed: the member goes on with another, and a commit from before and one from after are there."""
    from confluent_kafka import TopicPartition as Partition

    group = f"{topic}-group"
    group_story.produce(kafka_bootstrap, topic, range(20))
    consumer = consumer_of(kafka_bootstrap, group, **settings)
    consumer.subscribe([topic])
    assert len({message.value() for message in read(consumer, 20)}) == 20
    consumer.commit(asynchronous=False)
    home = home_of(kafka_bootstrap, group)
    killed = odradek_cluster.leader_of(*home)
    odradek_cluster.kill(killed)
    group_story.produce(kafka_bootstrap, topic, range(20, 28))
    assert {int(message.value()) for message in read(consumer, 8)} == set(range(20, 28))
    consumer.commit(asynchronous=False)
    consumer.close()
    assert odradek_cluster.leader_of(*home) != killed
    other = consumer_of(kafka_bootstrap, group)
    partitions = [Partition(topic, number) for number in range(group_story.PARTITIONS)]
    assert [each.offset for each in other.committed(partitions, timeout=60)] == [7] * group_story.PARTITIONS
    other.close()


def read(consumer: Any, count: int) -> list[Any]:
    found: list[Any] = []
    while len(found) < count:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message)
    return found


def test_offsets_are_there_after_all_brokers_were_stopped(
    odradek_cluster: Cluster, kafka_bootstrap: str, topic: str
) -> None:
    """They are records of a topic like any other; one that was never committed has none."""
    from confluent_kafka import OFFSET_INVALID
    from confluent_kafka import TopicPartition as Partition

    group = f"{topic}-group"
    consumer = consumer_of(kafka_bootstrap, group)
    consumer.commit(offsets=[Partition(topic, 0, 3, metadata="batch 7")], asynchronous=False)
    for broker in odradek_cluster.brokers:
        odradek_cluster.stop(broker)
    odradek_cluster.heal()
    told = consumer.committed([Partition(topic, 0), Partition(topic, 1)], timeout=60)
    assert [(each.offset, each.metadata) for each in told] == [(3, "batch 7"), (OFFSET_INVALID, None)]
    consumer.close()


# --- Java -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tools:
    """Apache Kafka's own, on one cluster."""

    classpath: str
    bootstrap: str

    def ask(self, program: str, *arguments: str) -> str:
        """What it printed. Its exit code must be 0."""
        return run_program(self.classpath, tool(program), ("--bootstrap-server", self.bootstrap, *arguments))

    def refused(self, program: str, *arguments: str) -> str:
        """What it says on both channels."""
        asked = ("--bootstrap-server", self.bootstrap, *arguments)
        said = programs_of(self.classpath).run(tool(program), asked)
        return said.output + said.errors


@pytest.fixture
def tools(classpath: str, kafka_bootstrap: str) -> Tools:
    return Tools(classpath, kafka_bootstrap)


ONE_JVM = pytest.mark.xdist_group("kafka")
GROUPS = "consumer.group.ConsumerGroupCommand"


@pytest.mark.slow
@ONE_JVM
def test_the_console_consumer_and_the_groups_tool(tools: Tools, classpath: str, topic: str) -> None:
    """Read with a group, list, describe, reset, delete offsets, delete; a group with a member is not deleted."""
    group = f"{topic}-group"
    group_story.produce(tools.bootstrap, topic, range(20))
    wanted = ("--topic", topic, "--group", group, "--from-beginning")
    lines = tools.ask("consumer.ConsoleConsumer", *wanted, "--max-messages", "20").split()
    assert sorted(lines) == sorted(map(str, range(20)))
    assert group in tools.ask(GROUPS, "--list").split()
    group_story.produce(tools.bootstrap, topic, range(20, 24))
    rows = [line.split() for line in tools.ask(GROUPS, "--describe", "--group", group).splitlines() if topic in line]
    assert [row[:6] for row in sorted(rows)] == [[group, topic, str(each), "5", "6", "1"] for each in range(4)]
    assert "Empty" in tools.ask(GROUPS, "--describe", "--group", group, "--state")
    tools.ask(GROUPS, "--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "2", "--execute")
    again = tools.ask("consumer.ConsoleConsumer", *wanted, "--max-messages", "16").split()
    assert len(again) == 16
    member = consumer_of(tools.bootstrap, group)
    member.subscribe([topic])
    while not member.assignment():
        member.poll(0.1)
    members = tools.ask(GROUPS, "--describe", "--group", group, "--members", "--verbose")
    assert "/127.0.0.1" in members
    assert f"{topic}:0,1,2,3" in members
    assert "GroupNotEmptyException" in tools.refused(GROUPS, "--delete", "--group", group)
    member.close()
    assert "Successful" in tools.ask(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{topic}:0")
    tools.ask(GROUPS, "--delete", "--group", group)
    assert group not in tools.ask(GROUPS, "--list").split()


@pytest.mark.slow
@ONE_JVM
def test_java_in_a_group_that_the_coordinator_assigns(tools: Tools, topic: str) -> None:
    """The console consumer with group.protocol=consumer, and what the tools say of its group."""
    group = f"{topic}-group"
    group_story.produce(tools.bootstrap, topic, range(20))
    wanted = ("--topic", topic, "--group", group, "--from-beginning", "--max-messages", "20")
    lines = tools.ask("consumer.ConsoleConsumer", *wanted, "--consumer-property", "group.protocol=consumer").split()
    assert sorted(lines) == sorted(map(str, range(20)))
    state = tools.ask(GROUPS, "--describe", "--group", group, "--state", "--verbose")
    assert "uniform" in state
    assert "Consumer" in tools.ask(GROUPS, "--list", "--type")
    rows = [line.split() for line in tools.ask(GROUPS, "--describe", "--group", group).splitlines() if topic in line]
    assert [row[:6] for row in sorted(rows)] == [[group, topic, str(each), "5", "5", "0"] for each in range(4)]
    assert "group.version" in tools.ask("FeatureCommand", "describe")


@pytest.mark.slow
@ONE_JVM
def test_kafkas_dump_decodes_our_offsets_topic(classpath: str, odradek_cluster: Cluster, topic: str) -> None:
    """Groups and commits, by the decoder that Kafka's own records have."""
    group = f"{topic}-group"
    group_story.confluent(odradek_cluster.kafka_bootstrap, topic, group)
    home = home_of(odradek_cluster.kafka_bootstrap, group)
    logs = [log for root in odradek_cluster.replicas().values() for log in (root / str(home)).glob("*.log")]
    assert logs
    files = ",".join(map(str, logs))
    said = run_program(classpath, TOOL, ["--offsets-decoder", "--files", files])
    assert f'"group":"{group}","topic":"{topic}","partition":3' in said
    assert '"protocolType":"consumer"' in said
    assert "Error" not in said
