"""Settings from files, environment and command line: names, values, sources, and clear errors."""

from __future__ import annotations

from pathlib import Path

import pytest
from odradek_broker.config.environment import from_environment
from odradek_broker.config.listeners import (
    BROKERS,
    CLIENTS,
    CONTROLLERS,
    beyond_loopback,
    check_listeners,
    kind_of,
    parse_listeners,
    parse_voters,
)
from odradek_broker.config.own_configs import OwnConfigs
from odradek_broker.config.ranges import RANGES, check_ranges
from odradek_broker.config.settings import FIELD_BY_KEY, FIELDS, BrokerSettings
from odradek_broker.config.sources import SettingError, load, parse_number
from odradek_broker.config.startup_topics import StartupTopic, parse_topics
from odradek_broker.config.startup_users import AUTHORIZER
from odradek_broker.core.metadata.config_sources import (
    ConfigSource,
    broker_sources,
    config_entry,
    is_sensitive,
    topic_sources,
)
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.topic_configs import BROKER_CONFIGS, BROKER_RATES
from odradek_broker.process.server import single_node_defaults, warnings
from odradek_broker.process.wiring import advertised_endpoints
from odradek_proto.v1 import admin_messages
from odradek_proto.values import replace


def test_later_sources_win_and_are_named(tmp_path: Path) -> None:
    """Default < file < environment < command line; each value says where it came from."""
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nmin.insync.replicas = 2\nlog.retention.hours: 1\n# a comment\nnum.partitions=3\n")
    loaded = load(file, environment={"KAFKA_NUM_PARTITIONS": "4"}, overrides=["min.insync.replicas=3"])
    settings = loaded.settings
    assert (settings.node_id, settings.num_partitions, settings.min_insync_replicas) == (1, 4, 3)
    assert settings.log_retention_ms == 3_600_000
    assert loaded.sources["num.partitions"] == "environment KAFKA_NUM_PARTITIONS"
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
    ("lines", "retention_ms"),
    [
        ("log.retention.hours=-1", -1),
        ("log.retention.minutes=-1", -1),
        ("log.retention.ms=60000 log.retention.hours=168", 60_000),
        ("log.retention.hours=168 log.retention.ms=60000", 60_000),
        ("log.retention.ms=60000 log.retention.minutes=2", 60_000),
        ("log.retention.minutes=2 log.retention.hours=168", 120_000),
        ("log.retention.hours=168 log.retention.minutes=2", 120_000),
        ("log.retention.minutes=2 log.retention.minutes=3", 180_000),
    ],
)
def test_milliseconds_win_over_minutes_and_minutes_over_hours(tmp_path: Path, lines: str, retention_ms: int) -> None:
    """Whatever their order in one source, as in Kafka, and -1 is without limit in all of them."""
    file = tmp_path / "server.properties"
    file.write_text("\n".join(("node.id=1", *lines.split())))
    assert load(file).settings.log_retention_ms == retention_ms
    assert load(overrides=["node.id=1", *lines.split()]).settings.log_retention_ms == retention_ms
    pairs = (line.split("=") for line in lines.split())
    environment = {"KAFKA_" + key.upper().replace(".", "_"): value for key, value in pairs}
    assert load(environment={"KAFKA_NODE_ID": "1", **environment}).settings.log_retention_ms == retention_ms


def test_a_later_source_wins_by_whichever_name(tmp_path: Path) -> None:
    """Hours on the command line win over milliseconds in the file."""
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nlog.retention.ms=60000\nlog.roll.ms=5000\nlog.roll.hours=1\nlog.dirs=a\nlog.dir=b\n")
    loaded = load(file, overrides=["log.retention.hours=2"])
    assert (loaded.settings.log_retention_ms, loaded.settings.log_roll_ms) == (7_200_000, 5_000)
    assert loaded.settings.log_dirs == "a"
    assert loaded.sources["log.retention.ms"] == "command line"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("log.retention.hours=7d", "log.retention.hours must be a whole number of hours, not '7d'"),
        ("log.retention.minutes=1h", "log.retention.minutes must be a whole number of minutes, not '1h'"),
        ("log.retention.hours=-2", "^log.retention.hours=-2: .*at least -1"),
        ("log.roll.hours=-1", "^log.roll.hours=-1: .*at least 1"),
        ("min.insync.replcas=2", "did you mean 'min.insync.replicas'"),
        ("odradek.fsnyc=never", "did you mean 'odradek.fsync'"),
        ("num.partitions=many", "num.partitions must be a whole number, not 'many'"),
        ("num.partitions=3s", "num.partitions must be a whole number, not '3s'"),
        ("log.retention.ms=1m", r"log.retention.ms must be a whole number \(milliseconds, or with ms, s, min, h, d\)"),
        ("log.retention.ms=64MiB", "log.retention.ms must be a whole number"),
        (
            "log.segment.bytes=30s",
            r"log.segment.bytes must be a whole number \(bytes, or with KiB, MiB, GiB, k, m, g\)",
        ),
        ("auto.create.topics.enable=maybe", "must be true or false"),
        ("odradek.fsync=sometimes", "must be one of never, before-ack"),
        ("log.cleanup.policy=shred", "log.cleanup.policy.*must be compact, delete, compact,delete, or empty"),
        ("log.cleaner.min.cleanable.ratio=2", "log.cleaner.min.cleanable.ratio.*must lie between 0.0 and 1.0"),
        ("listeners=127.0.0.1:9092", "a listener looks like GRPC://"),
        ("controller.quorum.voters=127.0.0.1:9092", "controller.quorum.voters looks like"),
        ("process.roles=leader", "process.roles must name"),
        ("message.max.bytes=16MiB", "does not fit one message"),
        ("nonsense", "expected key=value"),
        ("listeners=SSL://127.0.0.1:9093", "SSL: TLS needs a key and a certificate: set ssl.keystore.location"),
        ("listeners=KAFKA://:9092", "Kafka's clients cannot dial KAFKA://0.0.0.0:9092: set advertised.listeners"),
        ("listener.security.protocol.map=GRPC:GRPC,CONTROLLER:PLAINTEXT", "CONTROLLER is the listener of controllers"),
        ("listeners=GRPC://127.0.0.1:1,GRPC_HOST://127.0.0.1:2", r"protocol\.map=GRPC:GRPC,.*GRPC_HOST:GRPC"),
        ("listeners=GRPC://127.0.0.1:1,CONTROLLER://127.0.0.1:1", "GRPC and CONTROLLER have the same address"),
        ("listeners=CONTROLLER://127.0.0.1:1", "needs a listener for clients"),
        ("listeners=REPLICATION://127.0.0.1:1", "no listener is left for clients: REPLICATION is"),
        (
            "listeners=GRPC://127.0.0.1:1",
            r"REPLICATION is not one of the listeners GRPC: .*add REPLICATION://HOST:PORT",
        ),
        ("listeners=GRPC://0.0.0.0:1", "set advertised.listeners=GRPC://HOST:PORT"),
        ("listeners=GRPC://[::]:1", "set advertised.listeners=GRPC://HOST:PORT"),
        ("advertised.listeners=GRPC://0.0.0.0:1", "clients cannot dial GRPC://0.0.0.0:1"),
        ("advertised.listeners=GRPC://here:0", "no port that could be dialled"),
        ("advertised.listeners=GRPC_HOST://here:1", "GRPC_HOST, which is not one of the listeners GRPC, REPLICATION"),
        ("listener.security.protocol.map=GRPC:TLS", "unknown protocol 'TLS'.*those that begin with GRPC are odradek's"),
        (
            "listener.security.protocol.map=GRPC:GRPC,REPLICATION:GRPC_SASL_SSL",
            "who speak GRPC or GRPC_SSL among themselves",
        ),
        ("sasl.enabled.mechanisms=GSSAPI", "there are PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, not 'GSSAPI'"),
        ("group.consumer.assignors=uniform,sticky", "there are uniform, range, not 'sticky'"),
        ("group.consumer.migration.policy=up", "must be one of bidirectional, upgrade, downgrade, disabled, not 'up'"),
        (
            "group.consumer.session.timeout.ms=30000",
            "must lie between group.consumer.min.session.timeout.ms=45000 and .*max.session.timeout.ms=60000",
        ),
        ("group.consumer.heartbeat.interval.ms=15001", "and group.consumer.max.heartbeat.interval.ms=15000"),
        ("odradek.create.users=admin", "looks like admin=secret,alice=other"),
        ("listener.security.protocol.map=GRPC:GRPC,CONTROLLER:GRPC_SSL", "CONTROLLER with TLS and REPLICATION without"),
        ("ssl.client.auth=yes", "must be one of none, requested, required, not 'yes'"),
        ("ssl.keystore.type=JKS", "ssl.keystore.type must be PEM, not 'JKS'"),
        ("listener.security.protocol.map=GRPC", "looks like GRPC:GRPC,GRPC_HOST:GRPC, not 'GRPC'"),
        ("listener.security.protocol.map=GRPC:GRPC,GRPC:GRPC", "names the listener GRPC twice"),
        ("inter.broker.listener.name=INSIDE", "INSIDE is not one of the listeners GRPC"),
        ("inter.broker.listener.name=CONTROLLER", "CONTROLLER is not one of the listeners GRPC"),
        ("listeners=GRPC://127.0.0.1:1,REPLICATION://0.0.0.0:2", "brokers cannot dial REPLICATION://0.0.0.0:2"),
        ("controller.quorum.voters=1@a:1,1@b:2", "the voter 1 is named twice"),
        ("controller.quorum.voters=1@0.0.0.0:1,2@b:2", "other nodes cannot dial 0.0.0.0:1"),
        ("controller.quorum.voters=1@a:1,2@a:1", "names a:1 for two voters"),
        ("controller.quorum.voters=1@a:1,2147483648@b:1", "2147483648 is no node id; 2147483647 is the largest"),
        (
            "controller.quorum.voters=2@a:1,3@b:1",
            r"node 1 is to be a controller, .* names \[2, 3\]: correct node.id",
        ),
        ("odradek.create.topics=orders:none:3", "a topic looks like orders:3:3"),
        ("odradek.create.topics=orders:0:3", "a topic looks like orders:3:3"),
        ("odradek.create.topics=orders,orders:3", "names the topic 'orders' twice"),
        ("odradek.create.topics=orders:1:1:retention", "a setting looks like retention.ms=60000"),
        ("odradek.create.topics=..:1:1", "odradek.create.topics: '..:1:1'"),
        # The least values are Kafka's, and those without which a node would stand still or turn in circles.
        ("num.partitions=0", r"num\.partitions=0 cannot work: it must be at least 1$"),
        ("odradek.cache.bytes=-1", "at least 0$"),
        ("broker.heartbeat.interval.ms=0", "at least 1$"),
        ("replica.fetch.max.bytes=0", "at least 1$"),
        ("controller.quorum.fetch.timeout.ms=0", "at least 1$"),
        ("metadata.log.max.record.bytes.between.snapshots=0", "at least 1$"),
        ("metadata.log.max.record.bytes.between.snapshots=-1", "at least 1$"),
        ("node.id=2147483648", "at most 2147483647$"),
        ("fetch.max.bytes=1023", "at least 1024$"),
        ("log.segment.bytes=100", r"log\.segment\.bytes: .*must be at least 1048576"),
        ("broker.session.timeout.ms=2000", "broker.heartbeat.interval.ms=2000, every broker would be fenced"),
        ("broker.heartbeat.interval.ms=9000", "^broker.session.timeout.ms=9000 cannot work"),
    ],
)
def test_a_wrong_setting_is_named_with_its_remedy(override: str, message: str) -> None:
    """The error says which setting, what is wrong with it, and what would be right."""
    with pytest.raises(SettingError, match=message):
        load(overrides=["node.id=1", override])


def test_a_voter_is_a_controller() -> None:
    """Its quorum would wait for it for ever."""
    voters = "controller.quorum.voters=1@a:1,2@b:1,3@c:1"
    with pytest.raises(SettingError, match="a voter is a controller, too; node"):
        load(overrides=["node.id=1", "process.roles=broker", voters])
    load(overrides=["node.id=4", "process.roles=broker", voters])


@pytest.mark.parametrize(
    "override", ["controller.listener.names=INSIDE", "listeners=GRPC://127.0.0.1:1,REPLICATION://127.0.0.1:2"]
)
def test_a_voter_has_a_listener_for_the_others(override: str) -> None:
    """As in Kafka: nobody could ask for its vote. One that is alone is asked by nobody."""
    with pytest.raises(SettingError, match=r"is not one of the listeners GRPC, REPLICATION.*add it to listeners"):
        load(overrides=["node.id=1", "controller.quorum.voters=1@a:1,2@b:1,3@c:1", override])
    load(overrides=["node.id=1", "controller.quorum.voters=1@a:1", override])


def test_every_number_has_a_range_and_its_default_lies_in_it() -> None:
    """A new number needs a range here or among the topics' settings."""
    numbers = {item.name for item in FIELDS if item.type == "int"}
    of_topics = {name for key, name in FIELD_BY_KEY.items() if key in BROKER_CONFIGS}
    assert numbers - of_topics == set(RANGES)
    check_ranges(BrokerSettings(node_id=1))


def test_settings_of_kafka_that_are_not_used_are_reported_and_not_refused() -> None:
    """Real files load."""
    loaded = load(overrides=["node.id=1", "num.io.threads=8", "listener.name.internal.ssl.key.password=x"])
    assert loaded.unused == ["listener.name.internal.ssl.key.password", "num.io.threads"]


def test_several_log_directories_are_refused_with_the_setting_to_give() -> None:
    """Kafka's images take `KAFKA_LOG_DIRS=/a,/b`."""
    with pytest.raises(
        SettingError, match=r"one log directory.* log\.dirs=/a \(in the environment KAFKA_LOG_DIRS=/a\)"
    ):
        load(environment={"KAFKA_NODE_ID": "1", "KAFKA_LOG_DIRS": "/a,/b"})


def test_a_node_needs_its_id() -> None:
    """Without node.id nothing starts, and the message says how to give one."""
    with pytest.raises(SettingError, match=r"-X node\.id=1"):
        load()


def test_the_environment_of_kafkas_image_is_understood() -> None:
    """Prefixes come off, underscores become dots; variables of other meanings are named and left alone."""
    found = from_environment(
        {
            "KAFKA_NODE_ID": "1",
            "KAFKA_CFG_NUM_PARTITIONS": "2",
            "KAFKA_NUM_IO_THREADS": "8",
            "KAFKA_ODRADEK_EVENTS_ENABLE": "false",
            "ODRADEK_FSYNC": "never",
            "ODRADEK_ODRADEK_ELR_ENABLE": "false",
            "KAFKA_CREATE_TOPICS": "orders:3:3",
            "CLUSTER_ID": "abc",
            "KAFKA_HEAP_OPTS": "-Xmx1g",
            "KAFKA_LOG4J_ROOT_LOGLEVEL": "INFO",
            "ODRADEK_BOOTSTRAP": "127.0.0.1:1",
            "ODRADEK_KAFKA_PORT": "9092",
            "PATH": "/bin",
            "NODE_ID": "9",
        }
    )
    assert found.values == {
        "node.id": "1",
        "num.partitions": "2",
        "num.io.threads": "8",
        "odradek.events.enable": "false",
        "odradek.fsync": "never",
        "odradek.elr.enable": "false",
        "odradek.create.topics": "orders:3:3",
        "cluster.id": "abc",
    }
    assert found.variables["odradek.fsync"] == "ODRADEK_FSYNC"
    assert found.ignored == ["KAFKA_HEAP_OPTS", "KAFKA_LOG4J_ROOT_LOGLEVEL"]


def test_every_setting_has_a_variable_under_each_prefix() -> None:
    """The rule to the letter, for each setting that there is, and the short form of those that are ours."""
    for key in FIELD_BY_KEY:
        variable = key.replace("_", "__").replace("-", "___").replace(".", "_").upper()
        names = [f"{prefix}_{variable}" for prefix in ("KAFKA", "KAFKA_CFG", "ODRADEK")]
        names += [variable] if key.startswith("odradek.") else []
        for name in names:
            assert from_environment({name: "x"}).values == {key: "x"}, name


def test_the_prefix_of_ours_wins_over_kafkas() -> None:
    """Two variables may name one setting: KAFKA_CFG_, KAFKA_, ODRADEK_, the later winning."""
    three = {f"{prefix}_NUM_PARTITIONS": prefix for prefix in ("ODRADEK", "KAFKA_CFG", "KAFKA")}
    for winner in ("ODRADEK", "KAFKA", "KAFKA_CFG"):
        assert from_environment(three).values == {"num.partitions": winner}
        del three[f"{winner}_NUM_PARTITIONS"]


def test_what_is_set_and_by_whom_is_told(tmp_path: Path) -> None:
    """A line for each source, one for what Kafka alone knows, and one warning for variables that are none."""
    file = tmp_path / "server.properties"
    file.write_text("node.id=1\nnum.io.threads=8\n")
    environment = {"ODRADEK_FSYNC": "never", "KAFKA_OPTS": "-ea", "ODRADEK_MIN_INSYNC_REPLCAS": "2"}
    loaded = load(file, environment=environment, overrides=["num.partitions=3"])
    assert loaded.set_by() == [
        f"settings from {file}: node.id=1",
        "settings from the environment: odradek.fsync=never",
        "settings from the command line: num.partitions=3",
    ]
    assert loaded.unheard() == [
        "settings of Kafka that odradek does not use: num.io.threads",
        "warning: variables that are no settings: KAFKA_OPTS, "
        "ODRADEK_MIN_INSYNC_REPLCAS (did you mean min.insync.replicas?)",
    ]


def test_a_wrong_value_in_the_environment_names_its_variable() -> None:
    """Whoever wrote it must find it."""
    with pytest.raises(SettingError, match=r"environment KAFKA_NUM_PARTITIONS: num\.partitions must be a whole number"):
        load(environment={"KAFKA_NODE_ID": "1", "KAFKA_NUM_PARTITIONS": "three"})


COMPOSE = {
    "CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qk",
    "KAFKA_NODE_ID": "1",
    "KAFKA_LISTENERS": "GRPC://0.0.0.0:50051,GRPC_HOST://0.0.0.0:50071,"
    "REPLICATION://172.31.61.11:50052,CONTROLLER://172.31.61.11:50061",
    "KAFKA_ADVERTISED_LISTENERS": "GRPC://odradek-1:50051,GRPC_HOST://127.0.0.1:29051",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "GRPC:GRPC,GRPC_HOST:GRPC,REPLICATION:GRPC,CONTROLLER:GRPC",
    "KAFKA_INTER_BROKER_LISTENER_NAME": "REPLICATION",
    "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
    "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@odradek-1:50061,2@odradek-2:50061,3@odradek-3:50061",
}


def test_a_container_with_two_networks_is_configured_by_its_environment() -> None:
    """Clients of each network are told its own address, and brokers theirs; the controllers' is nobody's business."""
    settings = load(environment=COMPOSE).settings
    listening = parse_listeners(settings.listeners)
    endpoints = {"GRPC": "odradek-1:50051", "GRPC_HOST": "127.0.0.1:29051", "REPLICATION": "172.31.61.11:50052"}
    assert advertised_endpoints(settings, listening) == endpoints
    assert list(beyond_loopback(settings)) == ["GRPC", "GRPC_HOST", "REPLICATION", "CONTROLLER"]
    (warning,) = warnings(settings)
    assert "GRPC_HOST://0.0.0.0:50071" in warning
    assert "without TLS or authentication" in warning


@pytest.mark.parametrize(
    ("protocol", "more", "lack"),
    [
        ("GRPC", [], "without TLS or authentication: whoever reaches it"),
        ("GRPC_SSL", [], "without authentication: whoever reaches it"),
        ("GRPC_SSL", ["authorizer.class.name=" + AUTHORIZER], "without authentication: the ACLs of User:ANONYMOUS"),
        ("GRPC_SSL", ["ssl.client.auth=required"], "without ACLs: whoever can authenticate"),
        ("GRPC_SASL_PLAINTEXT", [], "without TLS: whoever is on the way"),
        ("GRPC_SASL_SSL", [], "without ACLs: whoever can authenticate"),
        ("GRPC_SASL_SSL", ["authorizer.class.name=" + AUTHORIZER], ""),
    ],
)
def test_a_start_says_what_a_listener_that_others_reach_is_without(protocol: str, more: list[str], lack: str) -> None:
    """And nothing of one that has everything."""
    listeners = "GRPC://0.0.0.0:1,REPLICATION://127.0.0.1:2,CONTROLLER://127.0.0.1:3"
    given = ["node.id=1", f"listeners={listeners}", "advertised.listeners=GRPC://here:1", *more]
    given += [f"listener.security.protocol.map=GRPC:{protocol}", "ssl.keystore.location=k", "ssl.truststore.location=t"]
    said = warnings(load(overrides=given).settings)
    assert [lack in line for line in said] == ([True] if lack else [])


def test_metrics_beyond_the_loopback_are_warned_of() -> None:
    """Anyone who can reach the address may read them."""
    (warning,) = warnings(load(overrides=["node.id=1", "odradek.metrics.listener=HTTP://0.0.0.0:9404"]).settings)
    assert "HTTP://0.0.0.0:9404" in warning


def test_super_users_without_an_authorizer_are_warned_of() -> None:
    """Who names some expects that others may do less."""
    given = ["node.id=1", "super.users=User:admin"]
    (warning,) = warnings(load(overrides=given).settings)
    assert "super.users=User:admin means nothing while authorizer.class.name is not set" in warning
    assert warnings(load(overrides=[*given, f"authorizer.class.name={AUTHORIZER}"]).settings) == []


def test_the_listener_between_brokers_may_be_written_in_small_letters() -> None:
    """As every other name of a listener."""
    names = ["listeners=grpc://:1,inside://127.0.0.1:0,controller://127.0.0.1:0", "inter.broker.listener.name=inside"]
    names.append("advertised.listeners=grpc://here:1")
    settings = load(overrides=["node.id=1", *names]).settings
    check_listeners(settings)
    assert [kind_of(name, settings) for name in ("GRPC", "INSIDE", "CONTROLLER")] == [CLIENTS, BROKERS, CONTROLLERS]


def test_a_node_on_loopback_warns_of_nothing() -> None:
    """Nobody else can reach it."""
    assert (
        warnings(
            load(
                overrides=["node.id=1", "listeners=GRPC://[::1]:1,REPLICATION://[::1]:0,CONTROLLER://127.0.0.2:2"]
            ).settings
        )
        == []
    )


def test_a_node_of_its_own_finds_its_controller_on_every_interface() -> None:
    """Nobody can dial 0.0.0.0, but this machine finds its own listener on the loopback."""
    listeners = "listeners=GRPC://127.0.0.1:1,REPLICATION://127.0.0.1:0,CONTROLLER://:50061"
    settings = single_node_defaults(load(overrides=["node.id=7", listeners]).settings)
    assert settings.controller_quorum_voters == "7@127.0.0.1:50061"


def test_topics_are_named_as_images_of_kafka_do() -> None:
    """Name, partitions, replicas, settings; commas or lines between; what is left out is the cluster's default."""
    assert parse_topics("orders:3:3, payments:6:2:retention.ms=60000:segment.bytes=1048576\naudit  plain::2") == [
        StartupTopic("orders", 3, 3),
        StartupTopic("payments", 6, 2, {"retention.ms": "60000", "segment.bytes": "1048576"}),
        StartupTopic("audit"),
        StartupTopic("plain", -1, 2),
    ]
    assert parse_topics("orders:1:1:compact") == [StartupTopic("orders", 1, 1, {"cleanup.policy": "compact"})]
    assert parse_topics("") == []


def test_numbers_listeners_and_voters() -> None:
    """The small grammars, and what they refuse."""
    assert [parse_number(text, "a.ms") for text in ("-1", "30s", "5 min", "1H")] == [-1, 30_000, 300_000, 3_600_000]
    assert [parse_number(text, "a.bytes") for text in ("7", "64MiB", "1m", "2 k")] == [7, 64 << 20, 1 << 20, 2 << 10]
    assert parse_listeners("GRPC://:50051,CONTROLLER://[::1]:50061") == {
        "GRPC": "0.0.0.0:50051",
        "CONTROLLER": "[::1]:50061",
    }
    assert parse_voters("1@a:1, 2@b:2") == {1: "a:1", 2: "b:2"}
    with pytest.raises(ValueError, match="12x"):
        parse_number("12x", "a.ms")
    with pytest.raises(SettingError, match="named twice"):
        parse_listeners("GRPC://a:1,GRPC://b:2")


# --- Where a setting's value comes from, and the synonyms behind it, as DescribeConfigs tells them -------------------


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
    assert set(entries) == {*FIELD_BY_KEY, *BROKER_CONFIGS} - BROKER_RATES.keys()  # which are shown while they are set
    segment = entries["log.segment.bytes"]
    assert (segment.value, segment.source, segment.read_only) == ("2000", "broker", False)
    assert [synonym.value for synonym in segment.synonyms] == ["2000", "1000", str(1 << 30)]
    auto = entries["auto.create.topics.enable"]
    assert (auto.value, auto.source, auto.read_only, auto.type) == ("false", "node", True, "boolean")
    assert entries["node.id"].value == "3"
