"""Settings and errors: names, did-you-mean, what every error answers."""

from __future__ import annotations

import re
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

import odradek
import pytest
from odradek import broker_errors
from odradek.shared.config import (
    AdminConfig,
    AdminSettings,
    ConsumerConfig,
    ConsumerSettings,
    ProducerConfig,
    ProducerSettings,
    build,
    dotted,
    from_dotted,
)
from odradek.shared.errors import BrokerError, ClientError, ConfigError, OdradekError, UnsupportedFeature, broker_error
from odradek_proto.errors import ErrorCode

KINDS: list[tuple[Any, Any]] = [
    (ProducerConfig, ProducerSettings),
    (ConsumerConfig, ConsumerSettings),
    (AdminConfig, AdminSettings),
]


@pytest.mark.parametrize(("kind", "hints"), KINDS)
def test_the_typed_keywords_are_the_settings(kind: Any, hints: Any) -> None:
    """What editors offer and what is accepted is the same."""
    assert {*get_type_hints(hints)} == {field.name for field in fields(kind)} - {"bootstrap_servers"}


@pytest.mark.parametrize(("kind", "hints"), KINDS)
def test_dotted_names_are_a_bijection(kind: Any, hints: Any) -> None:
    """Every setting has one dotted name, and back."""
    names = [field.name for field in fields(kind)]
    assert len({dotted(name) for name in names}) == len(names)
    servers, settings = from_dotted(kind, {"bootstrap.servers": "a:1", "client.id": "me", "request_timeout_ms": "7"})
    assert (servers, settings) == ("a:1", {"client_id": "me", "request_timeout_ms": "7"})
    assert build(kind, servers, settings).request_timeout_ms == 7


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"linger": 5}, "did you mean 'linger_ms'"),
        ({"acks": 3}, "acks: 3 is none of 0, 1, all"),
        ({"acks": "some"}, "acks: 'some' is none of 0, 1, all"),
        ({"acks": True}, "acks: True is none of 0, 1, all"),
        ({"batch_size": "many"}, "batch_size: 'many'"),
        ({"batch_size": 1.5}, "batch_size: 1.5"),
        ({"batch_size": True}, "batch_size: True"),
        ({"compression_type": "brotli"}, "compression_type: 'brotli'"),
        ({"enable_idempotence": "perhaps"}, "enable_idempotence"),
        ({"enable_idempotence": True, "acks": 1}, "needs acks=all"),
        ({"max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"delivery_timeout_ms": 0}, "delivery_timeout_ms: 0"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], words: str) -> None:
    """The message says which setting, which value, and what to do."""
    with pytest.raises(ConfigError, match=words):
        build(ProducerConfig, "localhost:1", settings)


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (ProducerConfig, "lingerms", "did you mean 'linger_ms'?"),
        (ProducerConfig, "linger.ms", "did you mean 'linger_ms'?"),
        (ProducerConfig, "in_flight", "did you mean 'max_in_flight_requests_per_connection'?"),
        (ProducerConfig, "idempotence", "did you mean 'enable_idempotence'?"),
        (ConsumerConfig, "min_bytes", "did you mean 'fetch_min_bytes'?"),
        (ConsumerConfig, "linger_ms", "'linger_ms' is a setting of producers"),
        (ProducerConfig, "auto.offset.reset", "'auto.offset.reset' is a setting of consumers"),
        (AdminConfig, "acks", "'acks' is a setting of producers"),
        (ConsumerConfig, "message.timeout.ms", "'delivery.timeout.ms' is a setting of producers"),
        (AdminConfig, "metadata_broker_list", "did you mean 'bootstrap_servers'?"),
        (AdminConfig, "allow_auto_create_topics", "is a setting of producers and consumers"),
        (ProducerConfig, "frobnicate", "`odradek docs client` lists all settings"),
    ],
)
def test_an_unknown_setting_always_has_a_hint(kind: Any, name: str, hint: str) -> None:
    """The nearest name, or whose setting it is, or where all of them are, in both forms of names alike."""
    with pytest.raises(ConfigError) as caught:
        build(kind, "localhost:1", {name: 1})
    assert hint in caught.value.hint
    with pytest.raises(ConfigError) as caught:
        from_dotted(kind, {"bootstrap.servers": "localhost:1", f"x{dotted(name)}": 1})
    assert caught.value.hint


KAFKAS = {
    "bootstrap.servers": "localhost:1",
    "security.protocol": "PLAINTEXT",
    "heartbeat.interval.ms": "true",
    "session.timeout.ms": "10000",
    "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
    "transactional.id": "",
}


@pytest.mark.parametrize(("kind", "hints"), KINDS)
def test_a_configuration_that_was_written_for_kafka_loads(
    kind: Any, hints: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """What odradek has no use for is left out with a warning, and nothing like it is suggested."""
    servers, settings = from_dotted(kind, KAFKAS)
    assert (servers, settings) == ("localhost:1", {"security_protocol": "PLAINTEXT"})
    assert [record.args[1] for record in caplog.records if isinstance(record.args, tuple)] == [
        "heartbeat.interval.ms",
        "session.timeout.ms",
        "key.serializer",
    ]
    assert build(kind, "localhost:1", {"security_protocol": "PLAINTEXT"}).bootstrap_servers == ("localhost:1",)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("ssl.engine.factory.class", "Mine", "odradek docs security"),
        ("transactional.id", "t", "transactions are not there yet"),
        ("partitioner.class", "Mine", "a partition of your own choice"),
        ("value.serializer", str, "value_serializer=..."),
        ("consumer_timeout_ms", 100, 'records(until="end")'),
        ("partitioner", "consistent_random", "a partition of your own choice"),
        ("error_cb", print, "errors are raised by the call that meets them"),
        ("on_delivery", print, "Delivery.add_done_callback()"),
        ("enable.auto.offset.store", False, "commit(offsets)"),
        ("ssl.certificate.location", "me.pem", "ssl_keystore_location"),
    ],
)
def test_what_cannot_be_left_out_is_refused(name: str, value: Any, words: str) -> None:
    """Encryption, transactions, another partitioner: whoever asks for them must not believe to have them."""
    with pytest.raises((UnsupportedFeature, ConfigError)) as caught:
        from_dotted(ProducerConfig, {"bootstrap.servers": "localhost:1", name: value})
    assert words in str(caught.value)
    assert name in str(caught.value)


LIBRDKAFKAS = {
    "metadata.broker.list": "localhost:1",
    "request.required.acks": "-1",
    "message.timeout.ms": 10_000,
    "queue.buffering.max.ms": 5,
    "compression.codec": "gzip",
    "max.in.flight": 1,
    "partitioner": "murmur2_random",
    "enable.ssl.certificate.verification": "true",
    "message.send.max.retries": 7,
}


def test_a_configuration_that_was_written_for_librdkafka_loads() -> None:
    """By its aliases; one beside the name that it stands for is one too many."""
    servers, settings = from_dotted(ProducerConfig, LIBRDKAFKAS)
    config = build(ProducerConfig, servers, settings)
    assert (config.acks, config.delivery_timeout_ms, config.linger_ms, config.retries) == (-1, 10_000, 5, 7)
    assert (config.compression_type, config.max_in_flight_requests_per_connection) == ("gzip", 1)
    assert build(ProducerConfig, "localhost:1", {"max_batch_size": 7}).batch_size == 7  # aiokafka's
    with pytest.raises(ConfigError, match=r"acks is given twice"):
        from_dotted(ProducerConfig, LIBRDKAFKAS | {"acks": "all"})
    with pytest.raises(ConfigError, match=r"request_required_acks is given twice"):
        build(ProducerConfig, "localhost:1", {"acks": "all", "request_required_acks": 1})


def test_a_mapping_belongs_into_from_config() -> None:
    """As confluent-kafka's clients take it."""
    servers: Any = {"bootstrap.servers": "localhost:1"}
    with pytest.raises(ConfigError, match=r"from_config\(\) takes one"):
        odradek.Producer(servers)


@pytest.mark.parametrize("servers", ["", "localhost", "localhost:http", ":9092", []])
def test_bootstrap_servers_are_checked(servers: Any) -> None:
    """An address is host:port."""
    with pytest.raises(ConfigError, match="bootstrap_servers"):
        build(AdminConfig, servers, {})


def test_acks_turn_the_default_idempotence_off() -> None:
    """As in Kafka: acks=1 alone is no contradiction."""
    config = build(ProducerConfig, "a:1, b:2", {"acks": "1"})
    assert (config.acks, config.enable_idempotence, config.bootstrap_servers) == (1, False, ("a:1", "b:2"))
    assert build(ProducerConfig, "a:1", {"acks": "all"}).enable_idempotence


def test_what_is_of_a_group_needs_one() -> None:
    """A pattern, callbacks and an instance id would be left out in silence without it."""
    with pytest.raises(ConfigError, match="group_instance_id needs group_id"):
        odradek.Consumer("localhost:1", "orders", group_instance_id="i")
    with pytest.raises(ConfigError, match="set group_id"):
        odradek.Consumer("localhost:1").subscribe(pattern="o.*")


def test_every_code_has_a_class() -> None:
    """With Kafka's name, and its `retriable`."""
    for code in ErrorCode:
        if code is ErrorCode.NONE:
            continue
        error = broker_error(code, where="orders-0")
        name = "".join(word.capitalize() for word in code.name.split("_"))
        assert type(error) is getattr(broker_errors, name)
        assert (error.code, error.retriable, error.fatal) == (code, code.retriable, False)
        assert str(error).startswith(f"orders-0: {code.name}: ")
    assert broker_error(9_999).code is ErrorCode.UNKNOWN_SERVER_ERROR


def test_every_error_answers_the_three_questions() -> None:
    """retriable, fatal, hint; and belongs to one of the two families."""
    values = [getattr(odradek, name) for name in odradek.__all__]
    exported = [value for value in values if isinstance(value, type) and issubclass(value, Exception)]
    assert len(exported) > 15
    for kind in exported:
        assert issubclass(kind, OdradekError)
        assert kind is OdradekError or issubclass(kind, BrokerError | ClientError)
        assert isinstance(kind.retriable, bool)
        assert isinstance(kind.fatal, bool)
    assert OdradekError("it broke", hint="mend it").hint == "mend it"
    assert issubclass(odradek.DeliveryTimeout, TimeoutError)


def test_the_page_about_the_client_lists_every_setting_with_its_default() -> None:
    """And no other."""
    page = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z.]+)` \| (.*?) \|$", page, flags=re.MULTILINE))
    columns = (ProducerConfig, ConsumerConfig, AdminConfig)
    wanted: dict[str, list[str]] = {}
    for column, kind in enumerate(columns):
        for field in fields(kind):
            if field.name == "bootstrap_servers":
                continue
            default = "all" if field.name == "acks" else "" if field.default is MISSING else str(field.default)
            shown = '""' if default == "" else default.lower() if isinstance(field.default, bool) else default
            wanted.setdefault(dotted(field.name), ["", "", ""])[column] = f"`{shown}`"
    assert {name: [cell.strip() for cell in row.split("|")[:3]] for name, row in rows.items()} == wanted
