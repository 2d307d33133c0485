"""Settings of topics and brokers: what may be set, what then holds, and what it sets off."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.config.topic_settings import log_settings
from odradek_broker.core.controller.activation import activation_records
from odradek_broker.core.controller.configs import alter_configs, describe_configs, list_config_resources
from odradek_broker.core.controller.decision import MAX_BATCH_BYTES
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.controller.topics import create_topics
from odradek_broker.core.metadata.image import NO_LEADER, MetadataImage
from odradek_broker.core.metadata.topic_configs import (
    ALL_TOPIC_CONFIGS,
    BROKER_CONFIGS,
    BROKER_RATES,
    LARGEST_MESSAGE_BYTES,
    TOPIC_CONFIGS,
    effective_config,
    effective_configs,
    validate_topic_config,
)
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_messages
from odradek_proto.values import replace

from tests.broker.controller_images import CLUSTER_ID, SETTINGS, add_topic, image_of, partition_of, write


def alter(
    image: MetadataImage,
    kind: str,
    name: str,
    values: Mapping[str, str] | None = None,
    unset: Sequence[str] = (),
    validate_only: bool = False,
    settings: ControllerSettings = SETTINGS,
) -> ErrorCode:
    request = admin_messages.AlterConfigsRequest(
        resource_type=kind, resource_name=name, set=dict(values or {}), unset=unset, validate_only=validate_only
    )
    decision = alter_configs(image, settings, request)
    write(image, decision.records)
    return ErrorCode(decision.answer.error_code)


@pytest.mark.parametrize("name", sorted(TOPIC_CONFIGS))
def test_every_default_is_a_value_that_may_be_set(name: str) -> None:
    """A table that refuses its own defaults would be wrong somewhere."""
    validate_topic_config(name, TOPIC_CONFIGS[name].default)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max.message.bytes", str(LARGEST_MESSAGE_BYTES)),
        ("max.message.bytes", "0"),
        ("segment.bytes", "2147483647"),
        ("segment.bytes", "1048576"),
        ("internal.segment.bytes", "100"),
        ("retention.ms", "-1"),
        ("retention.bytes", "-9223372036854775808"),
        ("min.cleanable.dirty.ratio", "1"),
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "delete, compact"),
        ("cleanup.policy", ""),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", ",*"),
        ("leader.replication.throttled.replicas", "0:1, 12:3"),
        ("follower.replication.throttled.replicas", ""),
    ],
)
def test_both_ends_of_a_range_may_be_set(name: str, value: str) -> None:
    """A bound that is named in a refusal is itself no reason for one."""
    validate_topic_config(name, value)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cleanup.policy", "compress", "must be compact, delete, compact,delete, or empty"),
        ("cleanup.policy", "compact,compact", "must be compact, delete, compact,delete, or empty"),
        ("cleanup.policy", " , ", "must be compact, delete, compact,delete, or empty"),
        ("message.timestamp.type", "logappendtime", "must be one of CreateTime, LogAppendTime"),
        ("compression.type", "none", "must be one of gzip, lz4, producer, snappy, uncompressed, zstd"),
        ("compression.gzip.level", "0", "must be between 1 and 9, or -1"),
        ("max.message.bytes", str(LARGEST_MESSAGE_BYTES + 1), "one gRPC message of 16 MiB"),
        ("max.message.bytes", "-1", "at least 0"),
        ("preallocate", "true", "never preallocated"),
        ("remote.storage.enable", "true", "no remote storage"),
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "soon", "not a whole number"),
        ("retention.ms", "-1d", "whole number of milliseconds is expected, for example 604800000 for seven days"),
        ("retention.ms", "1.5h", "for example 604800000 for seven days"),
        ("retention.ms", "1e3", "not a whole number; a whole number of milliseconds"),
        ("retention.bytes", "7x", "a whole number of bytes is expected, for example 1048576 for 1 MiB"),
        ("min.insync.replicas", "99999999999", "does not fit into int, must be at most 2147483647"),
        ("retention.ms", "9223372036854775808", "does not fit into long, must be at most 9223372036854775807"),
        ("retention.bytes", "-9223372036854775809", "does not fit into long, must be at least -9223372036854775808"),
        ("retention.ms", "", "not a whole number"),
        ("retention.ms", "9" * 25, "does not fit into long, must be at most 9223372036854775807"),
        ("segment.bytes", "2147483648", "must be at most 2147483647"),
        ("segment.bytes", "-99999999999", "must be at least 1048576"),
        ("max.message.bytes", "99999999999", f"must be at most {LARGEST_MESSAGE_BYTES}"),
        ("segment.bytes", "1048575", "at least 1048576"),
        ("min.insync.replicas", "0", "at least 1"),
        ("unclean.leader.election.enable", "yes", "not true or false"),
        ("min.cleanable.dirty.ratio", "1.5", "between"),
        ("min.cleanable.dirty.ratio", "nan", "between"),
        ("leader.replication.throttled.replicas", "0:1,*", r"must be \*, or a list of PARTITION:BROKER"),
        ("leader.replication.throttled.replicas", "*,*", r"must be \*, or a list of PARTITION:BROKER"),
        ("follower.replication.throttled.replicas", "0", r"must be \*, or a list of PARTITION:BROKER"),
        ("follower.replication.throttled.replicas", "0:-1", r"must be \*, or a list of PARTITION:BROKER"),
        ("retention", "1", "no topic setting 'retention'"),
    ],
)
def test_what_cannot_be_is_refused_in_words(name: str, value: str, said: str) -> None:
    """The message names the setting and says why."""
    with pytest.raises(ValueError, match=said) as caught:
        validate_topic_config(name, value)
    assert name in str(caught.value)


@pytest.mark.parametrize(("value", "fits"), [(LARGEST_MESSAGE_BYTES, True), (LARGEST_MESSAGE_BYTES + 1, False)])
def test_a_cluster_wide_message_size_has_the_same_limit(value: int, fits: bool) -> None:
    """message.max.bytes is the broker's name for it."""
    image = image_of([1])
    error = alter(image, "broker", "", {"message.max.bytes": str(value)})
    assert error is (ErrorCode.NONE if fits else ErrorCode.INVALID_REQUEST)


def test_a_group_has_settings_of_its_own() -> None:
    """Within the brokers' limits; whatever is taken away is what all groups have."""
    image = image_of([1])
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"

    def told(group: str) -> dict[str, tuple[str, str]]:
        asked = admin_messages.DescribeConfigsRequest(resource_type="group", resource_name=group)
        answer = describe_configs(image, SETTINGS, asked)
        return {each.name: (each.value, each.source) for each in answer.entries}

    assert alter(image, "group", "readers", {session: "50000"}) is ErrorCode.NONE
    assert told("readers") == {interval: ("5000", "default"), session: ("50000", "group")}
    assert told("others") == {interval: ("5000", "default"), session: ("45000", "default")}
    for name, value in ((session, "44999"), (session, "60001"), (interval, "soon"), ("share.session.timeout.ms", "1")):
        assert alter(image, "group", "readers", {name: value}) is ErrorCode.INVALID_CONFIG
    assert alter(image, "group", "", {session: "50000"}) is ErrorCode.INVALID_REQUEST
    assert alter(image, "group", "readers", unset=[session]) is ErrorCode.NONE
    assert image.group_configs == {}


def test_the_nearest_value_holds() -> None:
    """Topic, this broker, all brokers, the node's own configuration, Kafka's default."""
    image = image_of([1, 2])
    add_topic(image, "orders", partition_of([1, 2]))

    def holds(node: Mapping[str, str]) -> tuple[str, str]:
        at_once = effective_configs(image, "orders", node, broker_id=1)
        found = {name: effective_config(image, "orders", name, node, broker_id=1) for name in ALL_TOPIC_CONFIGS}
        assert at_once == {name: each.value for name, each in found.items()}
        return found["retention.ms"]

    assert holds({}) == ("604800000", "default")
    assert holds({"retention.ms": "1"}) == ("1", "node")
    alter(image, "broker", "", {"log.retention.ms": "2"})
    assert holds({"retention.ms": "1"}) == ("2", "cluster")
    alter(image, "broker", "1", {"log.retention.ms": "3"})
    assert holds({}) == ("3", "broker")
    assert effective_config(image, "orders", "retention.ms", {}, broker_id=2) == ("2", "cluster")
    alter(image, "topic", "orders", {"retention.ms": "4"})
    assert holds({}) == ("4", "topic")
    alter(image, "topic", "orders", unset=["retention.ms"])
    alter(image, "broker", "1", unset=["log.retention.ms"])
    assert holds({}) == ("2", "cluster")
    assert image.topic_configs == {}


@pytest.mark.parametrize(
    ("kind", "name", "values", "unset", "error"),
    [
        ("topic", "none", {"retention.ms": "1"}, [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("broker", "7", {"log.retention.ms": "1"}, [], ErrorCode.INVALID_REQUEST),
        ("broker", "one", {"log.retention.ms": "1"}, [], ErrorCode.INVALID_REQUEST),
        ("user", "alice", {}, [], ErrorCode.INVALID_REQUEST),
        ("topic", "orders", {"retention.ms": "1"}, ["retention.ms"], ErrorCode.INVALID_REQUEST),
        ("topic", "orders", {"retention.ms": "1", "nonsense": "1"}, [], ErrorCode.INVALID_CONFIG),
        ("topic", "orders", {}, ["nonsense"], ErrorCode.INVALID_CONFIG),
        ("broker", "", {"retention.ms": "1"}, [], ErrorCode.INVALID_REQUEST),
        ("broker", "1", {"leader.replication.throttled.rate": "-1"}, [], ErrorCode.INVALID_REQUEST),
        ("broker", "1", {"replica.alter.log.dirs.io.max.bytes.per.second": "5"}, [], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_change_is_all_or_nothing(
    kind: str, name: str, values: dict[str, str], unset: list[str], error: ErrorCode
) -> None:
    """One wrong name or value, and nothing is written."""
    image = image_of([1])
    add_topic(image, "orders", partition_of([1]))
    assert alter(image, kind, name, values, unset) is error
    assert image.offset == 200


def test_setting_what_holds_already_writes_nothing() -> None:
    """Also when it is only to be validated."""
    image = image_of([1])
    add_topic(image, "orders", partition_of([1]), retention_ms="5")
    assert alter(image, "topic", "orders", {"retention.ms": "5"}, ["segment.bytes"]) is ErrorCode.NONE
    assert alter(image, "topic", "orders", {"retention.ms": "6"}, validate_only=True) is ErrorCode.NONE
    assert image.offset == 200


@pytest.mark.parametrize(("kind", "name"), [("topic", "orders"), ("broker", "")])
def test_allowing_unclean_elections_holds_them_at_once(kind: str, name: str) -> None:
    """R-137: for the partitions that have no leader, in the same batch."""
    image = image_of([1, 2], fenced=[1])
    orders = add_topic(image, "orders", partition_of([1, 2], [1], NO_LEADER))
    other = add_topic(image, "other", partition_of([1, 2], [1], NO_LEADER), topic_id=b"o" * 16)
    assert alter(image, kind, name, {"unclean.leader.election.enable": "TRUE"}) is ErrorCode.NONE
    assert (orders.partitions[0].leader, orders.partitions[0].isr) == (2, (2,))
    assert other.partitions[0].leader == (2 if kind == "broker" else NO_LEADER)


def test_a_description_says_where_each_value_comes_from() -> None:
    """For a topic all its settings; for brokers those that can be changed while they run."""
    image = image_of([1])
    add_topic(image, "orders", partition_of([1]), retention_ms="5")
    alter(image, "broker", "1", {"log.segment.bytes": "2000000", "leader.replication.throttled.rate": "5"})
    settings = ControllerSettings(node_id=0, cluster_id=CLUSTER_ID, min_insync_replicas=2)

    def describe(kind: str, name: str) -> dict[str, tuple[str, str]]:
        request = admin_messages.DescribeConfigsRequest(resource_type=kind, resource_name=name)
        answer = describe_configs(image, settings, request)
        assert answer.error_code == ErrorCode.NONE
        return {entry.name: (entry.value, entry.source) for entry in answer.entries}

    topic = describe("topic", "orders")
    assert list(topic) == list(TOPIC_CONFIGS)
    assert topic["retention.ms"] == ("5", "topic")
    assert topic["min.insync.replicas"] == ("2", "node")
    assert topic["segment.ms"] == ("604800000", "default")
    broker = describe("broker", "1")
    assert broker["leader.replication.throttled.rate"] == ("5", "broker")
    others = BROKER_RATES.keys() - {"leader.replication.throttled.rate"}
    assert set(broker) == BROKER_CONFIGS.keys() - others  # which are shown while they are set
    assert broker["log.segment.bytes"] == ("2000000", "broker")
    missing = admin_messages.DescribeConfigsRequest(resource_type="topic", resource_name="none")
    assert describe_configs(image, settings, missing).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


WITH_ELR = ControllerSettings(node_id=0, cluster_id=CLUSTER_ID, elr_enable=True)
MIN_ISR = "min.insync.replicas"


@pytest.mark.parametrize(
    ("kind", "name", "values", "unset"),
    [
        ("topic", "orders", {MIN_ISR: "1"}, []),
        ("topic", "orders", {}, [MIN_ISR]),
        ("broker", "", {MIN_ISR: "1"}, []),
    ],
    ids=["lowered", "unset", "lowered for all"],
)
def test_who_was_eligible_is_not_when_the_isr_is_enough(
    kind: str, name: str, values: dict[str, str], unset: list[str]
) -> None:
    """R-139: the leader may commit alone from then on, so nobody else may follow it; in the batch of the setting."""
    image = image_of([1, 2, 3], fenced=[2, 3])
    partition = partition_of([1, 2, 3], [1], eligible=[2, 3])
    if kind == "topic":
        topic = add_topic(image, "orders", partition, min_insync_replicas="2")
    else:
        topic = add_topic(image, "orders", partition)
        image.broker_configs[""] = {MIN_ISR: "2"}
    assert alter(image, kind, name, values, unset, settings=WITH_ELR) is ErrorCode.NONE
    after = topic.partitions[0]
    assert (after.leader, after.isr, after.eligible, after.leader_epoch) == (1, (1,), (), 5)


def test_a_lowered_minimum_of_another_topic_keeps_the_eligible() -> None:
    """R-139: and one that is raised, or still not met, changes nothing either."""
    image = image_of([1, 2, 3], fenced=[2, 3])
    add_topic(image, "others", partition_of([1, 2, 3]), topic_id=b"2" * 16)
    topic = add_topic(image, "orders", partition_of([1, 2, 3], [1], eligible=[2, 3]), min_insync_replicas="2")
    assert alter(image, "topic", "others", {MIN_ISR: "1"}, settings=WITH_ELR) is ErrorCode.NONE
    assert alter(image, "topic", "orders", {MIN_ISR: "3"}, settings=WITH_ELR) is ErrorCode.NONE
    assert alter(image, "topic", "orders", {MIN_ISR: "2"}, settings=WITH_ELR) is ErrorCode.NONE
    assert topic.partitions[0].eligible == (2, 3)


def test_a_lowered_minimum_leaves_an_empty_isr_to_the_eligible() -> None:
    """R-131: nobody leads, so nobody commits; each of them has everything still."""
    image = image_of([1, 2, 3], fenced=[1, 2, 3])
    before = partition_of([1, 2, 3], [], NO_LEADER, eligible=[2, 3], last_known=[2])
    topic = add_topic(image, "orders", before, min_insync_replicas="2")
    assert alter(image, "topic", "orders", {MIN_ISR: "1"}, settings=WITH_ELR) is ErrorCode.NONE
    assert topic.partitions[0] is before


def test_the_first_controller_gives_the_cluster_the_minimum_of_its_file() -> None:
    """R-139: leaders and controllers count with one value; a value that the cluster has already stays."""
    image = MetadataImage()
    settings = replace(WITH_ELR, min_insync_replicas=2)
    first = activation_records(image, settings)
    write(image, first)
    assert (image.cluster_id, image.broker_configs) == (CLUSTER_ID, {"": {MIN_ISR: "2"}})
    assert not activation_records(image, replace(settings, min_insync_replicas=1))
    assert len(activation_records(MetadataImage(), replace(settings, elr_enable=False))) == 1


def test_a_controller_takes_away_the_minimum_of_a_single_broker() -> None:
    """R-139: its leader would commit without those who are eligible. What else the broker was given stays."""
    image = image_of([1, 2])
    image.broker_configs = {"1": {MIN_ISR: "1", "log.retention.ms": "5"}, "2": {MIN_ISR: "3"}, "": {MIN_ISR: "2"}}
    write(image, activation_records(image, WITH_ELR))
    assert image.broker_configs == {"1": {"log.retention.ms": "5"}, "": {MIN_ISR: "2"}}


def test_a_minimum_that_is_written_first_says_who_is_eligible_no_longer() -> None:
    """R-139: the controller before went by a file of 2, this one by 1, and leaders may commit alone from then on."""
    image = image_of([1, 2], fenced=[2])
    topic = add_topic(image, "orders", partition_of([1, 2], [1], eligible=[2]))
    kept = add_topic(
        image, "kept", partition_of([1, 2], [1], eligible=[2]), topic_id=b"k" * 16, min_insync_replicas="2"
    )
    write(image, activation_records(image, WITH_ELR))
    assert topic.partitions[0].eligible == ()
    assert kept.partitions[0].eligible == (2,)


@pytest.mark.parametrize(
    ("name", "values", "unset", "with_elr"),
    [
        ("1", {MIN_ISR: "1"}, [], ErrorCode.INVALID_CONFIG),
        ("", {}, [MIN_ISR], ErrorCode.INVALID_CONFIG),
        ("1", {}, [MIN_ISR], ErrorCode.NONE),
        ("", {MIN_ISR: "3"}, [], ErrorCode.NONE),
        ("1", {"log.retention.ms": "1"}, [], ErrorCode.NONE),
        ("", {}, ["log.retention.ms"], ErrorCode.NONE),
    ],
)
def test_all_brokers_have_one_minimum(name: str, values: dict[str, str], unset: list[str], with_elr: ErrorCode) -> None:
    """R-139, KIP-966: none of a single broker, always one of all; no such rule without eligible replicas."""
    image = image_of([1])
    image.broker_configs[""] = {MIN_ISR: "2", "log.retention.ms": "5"}
    before = image.copy()
    assert alter(image, "broker", name, values, unset, settings=WITH_ELR) is with_elr
    if with_elr:
        assert image == before
    assert alter(image, "broker", name, values, unset) is ErrorCode.NONE


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_setting_that_no_follower_could_fetch_is_refused(validate_only: bool) -> None:
    """A batch of the metadata log goes over gRPC in one piece."""
    image = image_of([1])
    add_topic(image, "orders", partition_of([1]))
    long = {"cleanup.policy": "delete" + " " * MAX_BATCH_BYTES}
    assert alter(image, "topic", "orders", long, validate_only=validate_only) is ErrorCode.POLICY_VIOLATION
    assert image.offset == 200


@pytest.mark.parametrize(
    ("policy", "retention_ms"), [("delete", 604_800_000), ("compact", -1), ("compact, delete", 604_800_000)]
)
def test_nothing_of_a_compacted_topic_goes_by_age_or_size(policy: str, retention_ms: int) -> None:
    """Unless both policies hold: the newest value of a key may be years old."""
    image = MetadataImage(topic_configs={"orders": {"cleanup.policy": policy, "retention.bytes": "1000"}})
    found = log_settings(BrokerSettings(node_id=1), image, "orders")
    assert (found.retention_ms, found.retention_bytes) == (retention_ms, -1 if retention_ms < 0 else 1000)


@pytest.mark.parametrize(
    ("change", "error", "policy"),
    [
        ({"append": {"cleanup.policy": "compact"}}, ErrorCode.NONE, "delete,compact"),
        ({"append": {"cleanup.policy": "delete"}}, ErrorCode.NONE, "delete"),
        ({"append": {"cleanup.policy": "compact, delete"}}, ErrorCode.NONE, "delete,compact"),
        ({"subtract": {"cleanup.policy": "delete"}}, ErrorCode.NONE, ""),  # nothing goes
        ({"subtract": {"cleanup.policy": "compact"}}, ErrorCode.NONE, "delete"),
        ({"append": {"retention.ms": "5"}}, ErrorCode.INVALID_CONFIG, "delete"),
        ({"subtract": {"no.such.config": "5"}}, ErrorCode.INVALID_CONFIG, "delete"),
    ],
)
def test_lists_are_appended_to_and_subtracted_from(change: dict[str, Any], error: ErrorCode, policy: str) -> None:
    """From the default, where nothing is set."""
    image = image_of([1])
    add_topic(image, "orders", partition_of([1]))
    request = admin_messages.AlterConfigsRequest(resource_type="topic", resource_name="orders", **change)
    decision = alter_configs(image, SETTINGS, request)
    write(image, decision.records)
    assert decision.answer.error_code == error
    assert effective_config(image, "orders", "cleanup.policy", {}).value == policy


def test_what_a_replacement_does_not_name_goes_back_to_its_default() -> None:
    """In one batch of the controller, so that nothing that another sets meanwhile is lost unseen."""
    image = image_of([1])
    add_topic(image, "orders", partition_of([1]))
    assert alter(image, "topic", "orders", {"retention.ms": "5", "segment.ms": "6"}) is ErrorCode.NONE
    request = admin_messages.AlterConfigsRequest(
        resource_type="topic", resource_name="orders", set={"segment.ms": "7"}, replace=True
    )
    write(image, alter_configs(image, SETTINGS, request).records)
    assert image.topic_configs["orders"] == {"segment.ms": "7"}


def test_nothing_is_too_young_and_too_old_to_be_compacted() -> None:
    """Kafka's check, of what holds after the change, wherever it comes from."""
    image = image_of([1])
    add_topic(image, "orders", partition_of([1]))
    assert alter(image, "topic", "orders", {"min.compaction.lag.ms": "100"}) is ErrorCode.NONE
    assert alter(image, "topic", "orders", {"max.compaction.lag.ms": "99"}) is ErrorCode.INVALID_CONFIG
    assert alter(image, "topic", "orders", {"max.compaction.lag.ms": "100"}) is ErrorCode.NONE
    assert alter(image, "topic", "orders", {"min.compaction.lag.ms": "101"}) is ErrorCode.INVALID_CONFIG
    topic = admin_messages.NewTopic(
        name="new", partitions=1, replication_factor=1,
        configs={"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
    )  # fmt: skip
    created = create_topics(image, SETTINGS, admin_messages.CreateTopicsRequest(topics=[topic]), random.Random(1))
    assert created.answer.topics[0].error_code == ErrorCode.INVALID_CONFIG


def test_what_can_have_settings_is_listed_with_those_that_it_was_given() -> None:
    """Also what was given none; all brokers together have no name; a type that there is not is refused."""
    image = image_of([1, 2])
    for topic in ("sales", "orders"):
        add_topic(image, topic, partition_of([1, 2]))
    alter(image, "topic", "orders", {"retention.ms": "1000"})
    alter(image, "broker", "", {"log.retention.ms": "5000"})

    def listed(*types: str) -> list[tuple[str, str, dict[str, str]]]:
        answer = list_config_resources(image, admin_messages.ListConfigResourcesRequest(resource_types=types))
        return [(each.resource_type, each.resource_name, dict(each.configs)) for each in answer.resources]

    topics = [("topic", "orders", {"retention.ms": "1000"}), ("topic", "sales", {})]
    brokers = [("broker", "", {"log.retention.ms": "5000"}), ("broker", "1", {}), ("broker", "2", {})]
    image.group_configs["g"] = {"consumer.session.timeout.ms": "50000"}
    groups = [("group", "g", {"consumer.session.timeout.ms": "50000"})]
    assert (listed(), listed("topic"), listed("broker", "group")) == (
        topics + brokers + groups,
        topics,
        brokers + groups,
    )
    refused = list_config_resources(image, admin_messages.ListConfigResourcesRequest(resource_types=["topic", "user"]))
    assert (refused.error_code, refused.resources) == (ErrorCode.INVALID_REQUEST, ())
    assert "'user'" in refused.error_message
