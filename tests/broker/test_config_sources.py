"""Where a setting's value comes from, and the synonyms behind it, as DescribeConfigs tells them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from odradek_broker.config.own_configs import OwnConfigs
from odradek_broker.config.settings import FIELD_BY_KEY, BrokerSettings
from odradek_broker.core.metadata.config_sources import (
    ConfigSource,
    broker_sources,
    config_entry,
    is_sensitive,
    topic_sources,
)
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.topic_configs import BROKER_CONFIGS
from odradek_proto.v1 import admin_messages

RETENTION = "log.retention.ms"
DEFAULT = ConfigSource(RETENTION, "604800000", "default")


@pytest.mark.parametrize(
    ("own", "cluster", "node", "broker", "sources"),
    [
        (None, None, None, "1", ["default"]),
        (None, None, "604800000", "1", ["default"]),  # the file says what holds anyway
        (None, None, "7", "1", ["node", "default"]),
        (None, "6", "7", "1", ["cluster", "node", "default"]),
        ("5", "6", "7", "1", ["broker", "cluster", "node", "default"]),
        ("5", "6", "7", "2", ["cluster", "node", "default"]),
        ("5", "6", "7", "", ["cluster", "node", "default"]),
        ("5", None, None, "", ["default"]),
    ],
)
def test_the_nearest_place_wins_and_the_others_are_synonyms(
    own: str | None, cluster: str | None, node: str | None, broker: str, sources: list[str]
) -> None:
    """One broker's value over that of all, over its own configuration, over Kafka's default."""
    image = MetadataImage()
    if own is not None:
        image.broker_configs["1"] = {RETENTION: own}
    if cluster is not None:
        image.broker_configs[""] = {RETENTION: cluster}
    found = broker_sources(image, RETENTION, {} if node is None else {RETENTION: node}, broker)
    assert [source.source for source in found] == sources
    assert found[-1] == DEFAULT
    image.topic_configs["orders"] = {"retention.ms": "4"}
    of_topic = topic_sources(image, "orders", "retention.ms", {} if node is None else {RETENTION: node})
    assert of_topic[0] == ConfigSource("retention.ms", "4", "topic")
    assert of_topic[1:] == broker_sources(image, RETENTION, {} if node is None else {RETENTION: node}, "")


@pytest.mark.parametrize(
    ("name", "hidden"),
    [
        ("ssl.keystore.password", True),
        ("ssl.key.password", True),
        ("sasl.jaas.client.secret", True),
        ("log.retention.ms", False),
        ("ssl.keystore.key", True),
        ("node.id", False),
    ],
)
def test_secrets_are_not_told(name: str, hidden: bool) -> None:
    """Neither as a value nor as a synonym."""
    assert is_sensitive(name) is hidden
    sources = [ConfigSource(name, "hush", "node"), ConfigSource(name, "", "default")]
    entry = config_entry(name, "string", sources, read_only=True)
    assert entry.sensitive is hidden
    assert ("hush" in str(entry)) is not hidden


def test_a_broker_tells_its_own_settings_and_no_others() -> None:
    """Everything in its configuration; what cannot be changed while it runs is read-only."""
    settings = replace(BrokerSettings(), node_id=3, log_segment_bytes=1_000, auto_create_topics_enable=False)
    image = MetadataImage()
    image.broker_configs["3"] = {"log.segment.bytes": "2000"}
    describe = OwnConfigs(settings, lambda: image).describe
    for kind, name in (("broker", "2"), ("broker", ""), ("topic", "3")):
        assert describe(admin_messages.DescribeConfigsRequest(resource_type=kind, resource_name=name)) is None
    answer = describe(admin_messages.DescribeConfigsRequest(resource_type="broker", resource_name="3"))
    assert answer is not None
    entries = {entry.name: entry for entry in answer.entries}
    assert set(entries) == {*FIELD_BY_KEY, *BROKER_CONFIGS}
    segment = entries["log.segment.bytes"]
    assert (segment.value, segment.source, segment.read_only) == ("2000", "broker", False)
    assert [synonym.value for synonym in segment.synonyms] == ["2000", "1000", str(1 << 30)]
    auto = entries["auto.create.topics.enable"]
    assert (auto.value, auto.source, auto.read_only, auto.type) == ("false", "node", True, "boolean")
    assert entries["node.id"].value == "3"
