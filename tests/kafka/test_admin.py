"""Kafka's admin APIs, most of them through librdkafka: topics, configs, records, elections, reassignments."""

from __future__ import annotations

import struct
import time
from contextlib import closing
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.cimpl import NewPartitions, NewTopic
from odradek.sync import Producer
from odradek_broker.kafka.messages.codec import reader_of, writer_of
from odradek_broker.kafka.messages.primitives import NO_UUID, MessageReader, MessageWriter
from odradek_broker.testing import Cluster
from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import OPERATIONS, ResourceType

from tests.kafka.raw import Raw, header

PATIENCE_S = 60
TOPIC = ConfigResource.Type.TOPIC


@pytest.fixture
def address(kafka_bootstrap: str) -> str:
    """One broker's."""
    return kafka_bootstrap.partition(",")[0]


@pytest.fixture
def admin(kafka_bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka_bootstrap})


def done(futures: dict[Any, Any]) -> dict[Any, Any]:
    return {key: future.result(PATIENCE_S) for key, future in futures.items()}


def error_of(futures: dict[Any, Any]) -> str:
    """The name of the one error that comes."""
    with pytest.raises(KafkaException) as failed:
        done(futures)
    return str(failed.value.args[0].name())


@pytest.fixture
def topic(odradek_topic: str) -> str:
    """A name that is not taken yet."""
    return f"{odradek_topic}-new"


def configs_of(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    (found,) = done(admin.describe_configs([ConfigResource(TOPIC, topic)])).values()
    return dict(found)


def source(entry: ConfigEntry) -> ConfigSource:
    """Which the client keeps as a number."""
    return ConfigSource(entry.source)


def test_topics_are_created_grown_described_and_deleted(admin: AdminClient, topic: str) -> None:
    """With the errors that Kafka has for each."""
    done(admin.create_topics([NewTopic(topic, 2, 3, config={"retention.ms": "100000"})]))
    assert error_of(admin.create_topics([NewTopic(topic, 2, 3)])) == "TOPIC_ALREADY_EXISTS"
    assert error_of(admin.create_topics([NewTopic(f"{topic}-wide", 1, 9)])) == "INVALID_REPLICATION_FACTOR"
    done(admin.create_partitions([NewPartitions(topic, 4)]))
    assert error_of(admin.create_partitions([NewPartitions(topic, 3)])) == "INVALID_PARTITIONS"
    described = done(admin.describe_topics(TopicCollection([topic])))[topic]
    assert [(each.id, len(each.replicas), len(each.isr)) for each in described.partitions] == [
        (index, 3, 3) for index in range(4)
    ]
    done(admin.delete_topics([topic]))
    assert error_of(admin.delete_topics([topic])) == "UNKNOWN_TOPIC_OR_PART"


def test_a_topic_that_is_named_twice_is_not_created(admin: AdminClient, topic: str) -> None:
    """One INVALID_REQUEST for it, as in Kafka: librdkafka fails on two (_BAD_MSG). The other topics are created."""
    twice, once = f"{topic}-twice", f"{topic}-once"
    created = admin.create_topics([NewTopic(name, 1, 3) for name in (twice, once, twice)])
    assert created[once].result(PATIENCE_S) is None
    assert error_of({twice: created[twice]}) == "INVALID_REQUEST"
    assert error_of(admin.describe_topics(TopicCollection([twice]))) == "UNKNOWN_TOPIC_OR_PART"


def test_configs_of_a_resource_that_is_named_twice_are_not_altered(
    odradek_cluster: Cluster, admin: AdminClient, address: str, topic: str
) -> None:
    """INVALID_REQUEST for each, as in Kafka: neither of two values is the right one. Other resources are altered."""
    for name in (topic, f"{topic}-other"):
        odradek_cluster.create_topic(name, partitions=1, configs={"retention.ms": "70000"})

    def resource(name: str, value: str) -> dict[str, Any]:
        change = {"name": "retention.ms", "config_operation": 0, "value": value}
        return {"resource_type": 2, "resource_name": name, "configs": [change]}

    resources = [resource(topic, "80000"), resource(f"{topic}-other", "80000"), resource(topic, "90000")]
    refused = [ErrorCode.INVALID_REQUEST, ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    for api, version in ((44, 1), (33, 2)):
        answer = ask(address, api, version, {"resources": resources, "validate_only": False})
        assert [each["error_code"] for each in answer["responses"]] == refused
    assert configs_of(admin, topic)["retention.ms"].value == "70000"


def test_a_topic_that_is_named_twice_is_not_deleted(odradek_cluster: Cluster, address: str, topic: str) -> None:
    """INVALID_REQUEST for it, as in Kafka; the others of the request are deleted."""
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names:
        odradek_cluster.create_topic(name, partitions=1)
    described = ask(address, 75, 0, {"topics": [{"name": names[1]}], "response_partition_limit": 9, "cursor": None})
    by_id = {"name": None, "topic_id": described["topics"][0]["topic_id"]}
    unknown = {"name": None, "topic_id": bytes([7] * 16)}
    by_name = [{"name": name, "topic_id": NO_UUID} for name in names]
    asked = [by_name[0], *by_name, by_id, unknown]
    answer = ask(address, 20, 6, {"topics": asked, "timeout_ms": 10_000})
    assert [(each["name"], each["error_code"]) for each in answer["responses"]] == [
        (names[0], ErrorCode.INVALID_REQUEST),
        (names[1], ErrorCode.INVALID_REQUEST),
        (names[2], ErrorCode.NONE),
        (None, ErrorCode.UNKNOWN_TOPIC_ID),
    ]


@pytest.mark.parametrize("enabled", [
    pytest.param(True, marks=pytest.mark.odradek(brokers=1)),
    pytest.param(False, marks=pytest.mark.odradek(brokers=1, settings={"odradek.elr.enable": "false"})),
])  # fmt: skip
def test_finalized_features_are_those_that_are_there(enabled: bool, kafka_bootstrap: str) -> None:
    """Eligible leader replicas are a setting (K-32); of transactions nothing is said."""
    with Raw(kafka_bootstrap) as raw:
        told = raw.ask(header(18, 4, 7, flexible=True) + b"\2a\2b\0")
    assert told is not None
    answer = reader_of(18, "response", 4)(MessageReader(memoryview(told), 4))
    levels = {each["name"]: each["max_version_level"] for each in answer["finalized_features"]}
    elr = {"eligible.leader.replicas.version": 1} if enabled else {}
    assert levels == {"group.version": 1, "metadata.version": 27, **elr}
    assert {each["name"]: each["max_version"] for each in answer["supported_features"]} == levels


def test_configs_are_told_with_their_source_and_changed(admin: AdminClient, odradek_topic: str) -> None:
    """One by one, or all at once by the old call, which sets the others back to their defaults."""
    resource = ConfigResource(
        TOPIC,
        odradek_topic,
        incremental_configs=[ConfigEntry("retention.ms", "200000", incremental_operation=AlterConfigOpType.SET)],
    )
    done(admin.incremental_alter_configs([resource]))
    found = configs_of(admin, odradek_topic)
    assert (found["retention.ms"].value, source(found["retention.ms"])) == ("200000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert source(found["segment.bytes"]) is ConfigSource.DEFAULT_CONFIG
    with pytest.warns(DeprecationWarning, match="alter_configs"):
        done(admin.alter_configs([ConfigResource(TOPIC, odradek_topic, set_config={"segment.bytes": "2000000"})]))
    found = configs_of(admin, odradek_topic)
    assert (found["segment.bytes"].value, source(found["retention.ms"])) == ("2000000", ConfigSource.DEFAULT_CONFIG)
    wrong = ConfigResource(
        TOPIC,
        odradek_topic,
        incremental_configs=[ConfigEntry("retention.ms", "soon", incremental_operation=AlterConfigOpType.SET)],
    )
    assert error_of(admin.incremental_alter_configs([wrong])) == "INVALID_CONFIG"
    (of_broker,) = done(admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, "1")])).values()
    assert of_broker["node.id"].value == "1"


def test_records_are_deleted_up_to_an_offset(
    admin: AdminClient, odradek_cluster: Cluster, odradek_bootstrap: str, odradek_topic: str
) -> None:
    """The answer says where the log begins now, when all replicas have moved."""
    with Producer(odradek_bootstrap) as producer:
        for number in range(10):
            producer.send(odradek_topic, b"%d" % number)
    (deleted,) = done(admin.delete_records([TopicPartition(odradek_topic, 0, 4)])).values()
    assert deleted.low_watermark == 4
    assert error_of(admin.delete_records([TopicPartition(odradek_topic, 0, 99)])) == "OFFSET_OUT_OF_RANGE"


def test_records_of_a_topic_that_is_only_compacted_are_not_deleted(
    admin: AdminClient, odradek_cluster: Cluster, topic: str
) -> None:
    """POLICY_VIOLATION, as in Kafka; with `delete` among its policies they are."""
    odradek_cluster.create_topic(topic, partitions=1, configs={"cleanup.policy": "compact"})
    assert error_of(admin.delete_records([TopicPartition(topic, 0, 0)])) == "POLICY_VIOLATION"
    odradek_cluster.create_topic(f"{topic}-both", partitions=1, configs={"cleanup.policy": "compact,delete"})
    done(admin.delete_records([TopicPartition(f"{topic}-both", 0, 0)]))
    policy = ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.APPEND)
    done(admin.incremental_alter_configs([ConfigResource(TOPIC, topic, incremental_configs=[policy])]))
    assert configs_of(admin, topic)["cleanup.policy"].value == "compact,delete"


def test_producers_and_transactions_are_described(
    odradek_cluster: Cluster, odradek_bootstrap: str, odradek_topic: str
) -> None:
    """What `kafka-transactions` asks: who wrote to a partition; of transactions there are none."""
    with Producer(odradek_bootstrap, enable_idempotence=True) as producer:
        for _ in range(3):
            written = producer.send(odradek_topic, b"book", partition=0)
    leader = odradek_cluster.leader_of(odradek_topic, written.partition)
    address = odradek_cluster.kafka_addresses[leader]
    answer = ask(address, 61, 0, {"topics": [{"name": odradek_topic, "partition_indexes": [0, 99]}]})
    there, unknown = answer["topics"][0]["partitions"]
    (known,) = there["active_producers"]
    assert known["last_sequence"] == 2
    assert known["current_txn_start_offset"] == -1
    assert unknown["error_code"] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    listed = ask(address, 66, 2, {"state_filters": ["Ongoing", "Nonsense"], "producer_id_filters": []})
    assert (listed["unknown_state_filters"], listed["transaction_states"]) == (["Nonsense"], [])
    for pattern, error in ((".*", ErrorCode.NONE), ("[", ErrorCode.INVALID_REGULAR_EXPRESSION)):
        wanted = {"state_filters": [], "producer_id_filters": [], "transactional_id_pattern": pattern}
        assert ask(address, 66, 2, wanted)["error_code"] == error
    (described,) = ask(address, 65, 0, {"transactional_ids": ["tx"]})["transaction_states"]
    assert described["error_code"] == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_the_cluster_and_its_quorum_are_described(
    admin: AdminClient, odradek_cluster: Cluster, address: str, odradek_topic: str
) -> None:
    """Brokers by the addresses of this listener; the quorum's leader is the controller; sizes of replicas."""
    cluster = admin.describe_cluster().result(PATIENCE_S)
    assert {node.id: f"{node.host}:{node.port}" for node in cluster.nodes} == odradek_cluster.kafka_addresses
    quorum = ask(
        address, 55, 2, {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
    )
    (partition,) = quorum["topics"][0]["partitions"]
    assert partition["leader_id"] == odradek_cluster.controller()
    assert sorted(voter["replica_id"] for voter in partition["current_voters"]) == [1, 2, 3]
    (directory,) = ask(address, 35, 4, {"topics": None})["results"]
    assert odradek_topic in [topic["name"] for topic in directory["topics"]]
    assert ask(address, 60, 2, {"endpoint_type": 2})["error_code"] == 114  # MISMATCHED_ENDPOINT_TYPE


def test_a_replica_moves_to_no_other_directory(odradek_cluster: Cluster, address: str, odradek_topic: str) -> None:
    """There is one: who moves a replica there has nothing to do, and each other case has Kafka's code."""
    (directory,) = ask(address, 35, 4, {"topics": None})["results"]
    here = {"name": odradek_topic, "partitions": [0, 1]}
    asked = [
        {"path": directory["log_dir"], "topics": [here, {"name": "nobody-made-it", "partitions": [0]}]},
        {"path": "/elsewhere", "topics": [{"name": odradek_topic, "partitions": [0]}]},
    ]
    told = ask(address, 34, 2, {"dirs": asked})["results"]
    assert [
        (
            each["topic_name"],
            [(partition["partition_index"], partition["error_code"]) for partition in each["partitions"]],
        )
        for each in told
    ] == [
        (odradek_topic, [(0, 0), (1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (0, ErrorCode.LOG_DIR_NOT_FOUND)]),
        ("nobody-made-it", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]
    odradek_cluster.create_topic("lean", replication_factor=1)
    (leader,) = odradek_cluster.isr_of("lean")
    elsewhere = next(other for broker, other in odradek_cluster.kafka_addresses.items() if broker != leader)
    (directory,) = ask(elsewhere, 35, 4, {"topics": None})["results"]
    lean = {"path": directory["log_dir"], "topics": [{"name": "lean", "partitions": [0]}]}
    ((partition,),) = [each["partitions"] for each in ask(elsewhere, 34, 2, {"dirs": [lean]})["results"]]
    assert partition["error_code"] == ErrorCode.REPLICA_NOT_AVAILABLE


def test_resources_that_may_have_configs_are_listed(address: str, odradek_topic: str) -> None:
    """All types, or those that are named; version 0 asks for client metrics alone (KIP-1142)."""

    def listed(*types: int) -> list[tuple[int, str]]:
        found = ask(address, 74, 1, {"resource_types": list(types)})
        assert not found["error_code"]
        return sorted((each["resource_type"], each["resource_name"]) for each in found["config_resources"])

    topics, brokers, loggers = (
        [(2, odradek_topic)],
        [(4, str(each)) for each in (1, 2, 3)],
        [(8, str(each)) for each in (1, 2, 3)],
    )
    assert listed() == topics + brokers + loggers
    assert listed(4, 32) == brokers
    assert ask(address, 74, 1, {"resource_types": [3]})["error_code"] == ErrorCode.UNSUPPORTED_VERSION
    assert ask(address, 74, 0, {})["config_resources"] == []


def test_a_topic_is_described_by_its_id(odradek_cluster: Cluster, address: str, topic: str) -> None:
    """Java's admin client writes an empty name beside the id, others none; an id wins over a name, as in Kafka."""
    odradek_cluster.create_topic(topic, partitions=2)
    (known,) = ask(address, 3, 12, {"topics": [{"name": topic}]})["topics"]
    for name in ("", None, "another"):
        (told,) = ask(address, 3, 12, {"topics": [{"topic_id": known["topic_id"], "name": name}]})["topics"]
        assert (told["name"], told["error_code"], len(told["partitions"])) == (topic, 0, 2)
    (told,) = ask(address, 3, 12, {"topics": [{"topic_id": b"?" * 16, "name": ""}]})["topics"]
    assert (told["name"], told["topic_id"], told["error_code"]) == (None, b"?" * 16, ErrorCode.UNKNOWN_TOPIC_ID)


def test_whoever_asks_is_told_what_it_may_do(admin: AdminClient, kafka_bootstrap: str, odradek_topic: str) -> None:
    """Without an authorizer all that there is for a resource (KIP-430), and nothing to who does not ask."""
    group = f"{odradek_topic}-readers"
    with closing(Consumer({"bootstrap.servers": kafka_bootstrap, "group.id": group})) as consumer:
        consumer.commit(offsets=[TopicPartition(odradek_topic, 0, 0)], asynchronous=False)
    for asked in (True, False):
        told = [
            admin.describe_cluster(include_authorized_operations=asked).result(PATIENCE_S),
            *done(
                admin.describe_topics(TopicCollection([odradek_topic]), include_authorized_operations=asked)
            ).values(),
            *done(admin.describe_consumer_groups([group], include_authorized_operations=asked)).values(),
        ]
        found = [{each.value for each in one.authorized_operations or ()} for one in told]
        kinds = (ResourceType.CLUSTER, ResourceType.TOPIC, ResourceType.GROUP)
        assert found == [{*OPERATIONS[kind]} if asked else set() for kind in kinds]


def test_features_and_voters_stay_as_they_are(address: str) -> None:
    """A feature's own level is taken, any other fails the whole request; voters are refused as with kraft.version 0."""

    def updated(version: int, **levels: int) -> dict[str, Any]:
        updates = [{"feature": name.replace("_", "."), "max_version_level": level} for name, level in levels.items()]
        return ask(address, 57, version, {"feature_updates": updates})

    (told,) = updated(1, group_version=1)["results"]
    assert (told["feature"], told["error_code"]) == ("group.version", 0)
    assert updated(2, group_version=1)["error_code"] == 0
    for levels in ({"group_version": 9}, {"group_version": 0}, {"group_version": 1, "nonsense": 1}):
        assert updated(2, **levels)["error_code"] == ErrorCode.INVALID_UPDATE_VERSION
    voter = {"cluster_id": None, "voter_id": 7, "voter_directory_id": b"d" * 16}
    assert ask(address, 80, 0, voter | {"timeout_ms": 1, "listeners": []})["error_code"] == 35  # UNSUPPORTED_VERSION
    assert ask(address, 81, 0, voter)["error_code"] == 35


def test_a_group_has_configs_of_its_own(odradek_cluster: Cluster, kafka_bootstrap: str, odradek_topic: str) -> None:
    """They are set, told with their source, listed, and its members hear of them; another group's are refused alone."""
    address, group, name = (
        kafka_bootstrap.partition(",")[0],
        f"{odradek_topic}-readers",
        "consumer.heartbeat.interval.ms",
    )

    def altered(value: str) -> list[int]:
        configs = [{"name": name, "config_operation": 0, "value": value}]
        resources = [{"resource_type": 32, "resource_name": each, "configs": configs} for each in (group, "")]
        return [each["error_code"] for each in ask(address, 44, 1, {"resources": resources})["responses"]]

    assert altered("soon") == [ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST]
    assert altered("1234") == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    (listed,) = ask(address, 74, 1, {"resource_types": [32]})["config_resources"]
    assert listed["resource_name"] == group
    resource = {"resource_type": 32, "resource_name": group, "configuration_keys": [name]}
    (told,) = ask(address, 32, 4, {"resources": [resource]})["results"][0]["configs"]
    assert (told["value"], told["config_source"]) == ("1234", 8)
    ask(address, 10, 4, {"key_type": 0, "coordinator_keys": [group]})  # the first that looks for one makes its topic
    coordinator = odradek_cluster.kafka_addresses[odradek_cluster.coordinator_of(group)]
    joins = {"group_id": group, "member_id": "m1", "rebalance_timeout_ms": 30_000, "topic_partitions": []}
    end = time.monotonic() + PATIENCE_S
    while ask(coordinator, 68, 1, joins | {"subscribed_topic_names": [odradek_topic]})["heartbeat_interval_ms"] != 1234:
        assert time.monotonic() < end, "the coordinator does not go by it"


def test_leaders_are_elected_and_partitions_reassigned(odradek_cluster: Cluster, address: str, topic: str) -> None:
    """Kafka's tool asks to take back throttles, too, that nobody has set."""
    odradek_cluster.create_topic(topic, replication_factor=2)
    partitions = [{"topic": topic, "partitions": [0]}]
    elected = ask(address, 43, 2, {"election_type": 0, "topic_partitions": partitions})
    assert elected["replica_election_results"][0]["partition_result"][0]["error_code"] == 84  # ELECTION_NOT_NEEDED
    target = [broker for broker in (3, 2, 1) if broker != odradek_cluster.leader_of(topic)]
    asked = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "replicas": target}]}]}
    assert ask(address, 45, 1, asked)["responses"][0]["partitions"][0]["error_code"] == 0
    odradek_cluster.wait_until_reassigned(topic)
    assert sorted(odradek_cluster.isr_of(topic)) == sorted(target)
    assert ask(address, 46, 0, {"topics": None})["topics"] == []
    throttle = {"name": "leader.replication.throttled.rate", "config_operation": 1, "value": None}
    resource = {"resource_type": 4, "resource_name": "1", "configs": [throttle]}
    assert ask(address, 44, 1, {"resources": [resource]})["responses"][0]["error_code"] == 0


def test_topics_are_described_in_pages(odradek_cluster: Cluster, kafka_bootstrap: str, topic: str) -> None:
    """The cursor of one page is the beginning of the next; nothing is told twice or left out."""
    names = [f"{topic}-{letter}" for letter in "abc"]
    for name in names:
        odradek_cluster.create_topic(name, partitions=3)
    address, cursor, found, pages = kafka_bootstrap.partition(",")[0], None, [], 0
    while True:
        asked = {"topics": [{"name": name} for name in names], "response_partition_limit": 2, "cursor": cursor}
        answer = ask(address, 75, 0, asked)
        found += [(each["name"], part["partition_index"]) for each in answer["topics"] for part in each["partitions"]]
        pages += 1
        cursor = answer["next_cursor"]
        if cursor is None:
            break
    assert found == [(name, index) for name in names for index in range(3)]
    assert pages == 5


def ask(address: str, key: int, version: int, message: dict[str, Any]) -> dict[str, Any]:
    """One request by our own codec, for what librdkafka does not ask."""
    writer = MessageWriter()
    writer_of(key, "request", version)(writer, message)
    with Raw(address) as raw:
        answer = raw.ask(header(key, version, 7, flexible=True) + bytes(writer.out))
    assert answer is not None
    assert struct.unpack_from(">ib", answer) == (7, 0)
    return reader_of(key, "response", version)(MessageReader(memoryview(answer), 5))
