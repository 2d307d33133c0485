"""Edges of the metadata that mutants were not caught at."""

from __future__ import annotations

import pytest
from odradek_broker.core.metadata.delta import MetadataDelta, TopicConfigChanged, TopicDeleted
from odradek_broker.core.metadata.topic_configs import validate_topic_config


def test_a_topic_that_is_deleted_takes_its_changed_settings_out_of_the_delta() -> None:
    """What came before in the same run is named nowhere but among the deleted topics."""
    delta = MetadataDelta.of(
        [TopicConfigChanged("orders"), TopicConfigChanged("bills"), TopicDeleted("orders", bytes(range(16)), ())]
    )
    assert list(delta.topic_configs) == ["bills"]
    assert list(delta.deleted_topics) == [bytes(range(16))]


def test_a_number_that_is_too_small_is_told_the_smallest_one() -> None:
    """Of the type, where the setting has no limit of its own."""
    with pytest.raises(ValueError, match="does not fit into long, must be at least -9223372036854775808"):
        validate_topic_config("retention.bytes", "-9223372036854775809")
    validate_topic_config("retention.bytes", "-9223372036854775808")


def test_no_message_at_all_may_be_allowed() -> None:
    """As in Kafka, max.message.bytes may be 0."""
    validate_topic_config("max.message.bytes", "0")
