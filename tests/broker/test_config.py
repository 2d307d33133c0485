"""Settings from files, environment and command line: names, values, sources, and clear errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from odradek_broker import config
from odradek_broker.config import ConfigError, load, parse_listeners, parse_number, parse_voters


def test_later_sources_win_and_are_named(tmp_path: Path) -> None:
    """Default < file < environment < command line; each value says where it came from."""
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nmin.insync.replicas = 2\nlog.retention.hours: 1\n# a comment\nnum.partitions=3\n")
    loaded = load(file, environment={"KAFKA_NUM_PARTITIONS": "4"}, overrides=["min.insync.replicas=3"])
    settings = loaded.settings
    assert (settings.node_id, settings.num_partitions, settings.min_insync_replicas) == (1, 4, 3)
    assert settings.log_retention_ms == 3_600_000
    assert loaded.sources["num.partitions"] == "environment"
    assert loaded.sources["min.insync.replicas"] == "command line"
    assert loaded.sources["log.retention.ms"] == str(file)


def test_toml_tables_and_units(tmp_path: Path) -> None:
    """Tables flatten with dots, and numbers may have units."""
    file = tmp_path / "broker.toml"
    file.write_text('node.id = 7\n[log]\nsegment.bytes = "64MiB"\nroll.ms = "2h"\n[odradek]\nfsync = "before-ack"\n')
    settings = load(file).settings
    assert (settings.log_segment_bytes, settings.log_roll_ms) == (64 << 20, 7_200_000)
    assert settings.odradek_fsync == "before-ack"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("min.insync.replcas=2", "did you mean 'min.insync.replicas'"),
        ("odradek.fsnyc=never", "did you mean 'odradek.fsync'"),
        ("num.partitions=many", "num.partitions must be a whole number"),
        ("auto.create.topics.enable=maybe", "must be true or false"),
        ("odradek.fsync=sometimes", "must be one of never, before-ack"),
        ("log.cleanup.policy=compact", "must be one of delete"),
        ("listeners=127.0.0.1:9092", "a listener looks like GRPC://"),
        ("controller.quorum.voters=127.0.0.1:9092", "controller.quorum.voters looks like"),
        ("process.roles=leader", "process.roles must name"),
        ("message.max.bytes=16MiB", "does not fit one message"),
        ("nonsense", "expected key=value"),
    ],
)
def test_a_wrong_setting_is_named_with_its_remedy(override: str, message: str) -> None:
    """The error says which setting, what is wrong with it, and what would be right."""
    with pytest.raises(ConfigError, match=message):
        load(overrides=["node.id=1", override])


def test_settings_of_kafka_that_are_not_used_are_reported_and_not_refused() -> None:
    """Real files load."""
    loaded = load(overrides=["node.id=1", "num.io.threads=8", "listener.name.internal.ssl.key.password=x"])
    assert loaded.unused == ["listener.name.internal.ssl.key.password", "num.io.threads"]


def test_a_node_needs_its_id() -> None:
    """Without node.id nothing starts, and the message says how to give one."""
    with pytest.raises(ConfigError, match=r"-X node\.id=1"):
        load()


def test_the_environment_of_kafkas_image_is_understood() -> None:
    """Prefixes come off, underscores become dots; variables of other meanings are left alone."""
    found = config.from_environment(
        {
            "KAFKA_NODE_ID": "1",
            "KAFKA_CFG_NUM_PARTITIONS": "2",
            "ODRADEK_FSYNC": "never",
            "CLUSTER_ID": "abc",
            "KAFKA_HEAP_OPTS": "-Xmx1g",
            "PATH": "/bin",
        }
    )
    assert found == {"node.id": "1", "num.partitions": "2", "odradek.fsync": "never", "cluster.id": "abc"}


def test_numbers_listeners_and_voters() -> None:
    """The small grammars, and what they refuse."""
    assert [parse_number(text) for text in ("-1", "30s", "64MiB", "5 min")] == [-1, 30_000, 64 << 20, 300_000]
    assert parse_listeners("GRPC://:50051,CONTROLLER://[::1]:50061") == {
        "GRPC": "0.0.0.0:50051",
        "CONTROLLER": "[::1]:50061",
    }
    assert parse_voters("1@a:1, 2@b:2") == {1: "a:1", 2: "b:2"}
    with pytest.raises(ValueError, match="12x"):
        parse_number("12x")
    with pytest.raises(ConfigError, match="named twice"):
        parse_listeners("GRPC://a:1,GRPC://b:2")
