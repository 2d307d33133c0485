"""Names that Kafka's other clients have: each is answered with what it is called here."""

from __future__ import annotations

import ctypes
import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import confluent_kafka
import confluent_kafka.admin
import odradek
import odradek.sync
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from odradek import ConfigError, RecordMetadata, UnsupportedFeature
from odradek.shared.config import AdminConfig, ConsumerConfig, ProducerConfig, build
from odradek.shared.kafka import CLASSES, DELIVERY_METHODS, METHODS, NO_TRANSACTIONS
from odradek_proto.records import encode_batch

CLIENTS = [
    (module, kind, name) for module in (odradek, odradek.sync) for kind, names in METHODS.items() for name in names
]


@pytest.mark.parametrize(("module", "kind", "name"), CLIENTS)
def test_a_method_of_another_client_is_answered(module: Any, kind: str, name: str) -> None:
    """With the method's name here, on both faces; every name that is given exists."""
    client = getattr(module, kind)("localhost:1")
    assert not hasattr(type(client), name), f"{kind} has {name} by now"
    with pytest.raises(AttributeError) as caught:
        getattr(client, name)
    answer = METHODS[kind][name]
    assert answer in str(caught.value)
    called, _, _ = answer.partition("(")
    if called.isidentifier():
        assert hasattr(type(client), called), answer


OF_NO_USE_HERE = {  # what they say of themselves, of log directories, and of features
    "api_versions", "alter_replica_log_dirs", "bootstrap", "bootstrap_connected", "describe_features",
    "describe_log_dirs", "describe_producers", "find_hanging_transactions", "get_broker_version_data",
    "last_poll_timestamp", "max_usable_produce_magic", "poll", "update_features",
}  # fmt: skip


@pytest.mark.parametrize("name", ["config.providers", "interceptors", "share.acknowledgement.mode", "queuing.strategy"])
def test_settings_of_java_and_of_librdkafka_that_no_client_here_lists_are_answered(name: str) -> None:
    """Left out, or refused in words of their own."""
    assert is_answered(ProducerConfig, name.replace(".", "_"), "x")
    assert is_answered(ConsumerConfig, name.replace(".", "_"), "x")


OTHERS: dict[str, tuple[Any, ...]] = {
    "Producer": (AIOKafkaProducer, KafkaProducer, confluent_kafka.SerializingProducer),
    "Consumer": (AIOKafkaConsumer, KafkaConsumer, confluent_kafka.DeserializingConsumer),
    "Admin": (AIOKafkaAdminClient, KafkaAdminClient, confluent_kafka.admin.AdminClient),
}
CONFIGS = {"Producer": ProducerConfig, "Consumer": ConsumerConfig, "Admin": AdminConfig}


@pytest.mark.parametrize(("kind", "client"), [(kind, each) for kind, clients in OTHERS.items() for each in clients])
def test_every_method_of_another_client_is_answered(kind: str, client: Any) -> None:
    """Or is there, under the same name."""
    known = {*dir(getattr(odradek, kind)), *METHODS[kind], *OF_NO_USE_HERE}
    assert [name for name in dir(client) if name[0].islower() and name not in known] == []


@pytest.mark.parametrize("name", sorted({*CLASSES, "Record"}))
def test_a_class_of_another_client_is_answered(name: str) -> None:
    """Where it is imported, which is where people meet it."""
    with pytest.raises(ImportError, match=f"its name here is {CLASSES[name]}"):
        importlib.import_module("odradek").__getattr__(name)
    assert hasattr(odradek, CLASSES[name])


@pytest.mark.parametrize("module", [odradek, odradek.sync])
def test_a_method_of_another_future_is_answered(module: Any) -> None:
    """What `enqueue` returns is no Future of kafka-python's."""
    delivery = module.Delivery.__new__(module.Delivery)
    for name, answer in DELIVERY_METHODS.items():
        with pytest.raises(AttributeError) as caught:
            getattr(delivery, name)
        assert answer in str(caught.value)
        assert hasattr(module.Delivery, answer.partition("(")[0])


def parameters_of(client: Any) -> dict[str, Any]:
    """Names of settings and their defaults."""
    if (defaults := getattr(client, "DEFAULT_CONFIG", None)) is None:
        found = inspect.signature(client.__init__).parameters.values()
        defaults = {each.name: each.default for each in found if each.default is not inspect.Parameter.empty}
    assert len(defaults) > 10
    ours_by_the_name = ("bootstrap_servers", "acks", "retries", "max_in_flight_requests_per_connection")
    return {name: value for name, value in defaults.items() if name not in ours_by_the_name}


def is_answered(kind: Any, name: str, value: Any) -> bool:
    """Whether a setting is taken, left out, or refused in words of its own."""
    try:
        build(kind, "localhost:1", {name: value})
    except UnsupportedFeature as error:
        return error.hint == f"leave {name} out"
    except ConfigError:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "client"), [(CONFIGS[kind], each) for kind, clients in OTHERS.items() for each in clients[:2]]
)
def test_every_parameter_of_another_client_is_answered(kind: Any, client: Any) -> None:
    """With the value that it has there by default, and with None."""
    for name, value in parameters_of(client).items():
        assert is_answered(kind, name, value), name
        assert is_answered(kind, name, None), name


def settings_of_librdkafka(page: Path) -> list[str]:
    """As the library lists them itself, its callbacks included."""
    [library] = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka-*")
    rdkafka, libc = ctypes.CDLL(str(library)), ctypes.CDLL(None)
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(str(page).encode(), b"w"))
    rdkafka.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    return re.findall(r"^([a-z0-9._]+) +\| +[PC*]", page.read_text(), re.MULTILINE)


def test_every_setting_of_librdkafka_is_answered(tmp_path: Path) -> None:
    """With a value that no setting of ours may have: it is known, and belongs to this client or another one."""
    names = settings_of_librdkafka(tmp_path / "settings.md")
    assert len(names) > 150
    assert {"socket_cb", "rebalance_cb", "default_topic_conf", "opaque"} <= {*names, "default_topic_conf"}
    unknown = [
        (client.__name__, name)
        for client in (odradek.Producer, odradek.Consumer, odradek.Admin)
        for name in names
        if not is_known(client, name)
    ]
    assert unknown == []


def is_known(client: Any, name: str) -> bool:
    try:
        client.from_config({"bootstrap.servers": "localhost:1", name: "\N{SNOWMAN}"})
    except UnsupportedFeature:
        return True
    except ConfigError as error:
        return "unknown" not in error.message or "is a setting of" in error.hint
    return True


def test_other_names_are_plainly_unknown() -> None:
    """And private ones, which `copy` and `pickle` look for, are, too."""
    producer: Any = odradek.Producer("localhost:1")
    with pytest.raises(AttributeError, match=r"'Producer' object has no attribute 'frobnicate'$"):
        producer.frobnicate()
    assert not hasattr(producer, "__deepcopy__")
    with pytest.raises(AttributeError, match=NO_TRANSACTIONS):
        producer.begin_transaction()


async def test_a_poll_that_seems_to_count_milliseconds_is_doubted(
    peers: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in a process: `poll(1000)` of kafka-python's waits for a second."""
    monkeypatch.setattr(odradek.Consumer, "_has_doubted", False)
    [log] = peers.topic("orders")
    log.append(encode_batch([(1_000, None, b"v", ())] * 4))
    settings = {"max_poll_records": 1, "auto_offset_reset": "earliest"}
    async with peers.client(odradek.Consumer, "orders", **settings) as consumer:
        for not_doubted in (1000.0, 99):
            assert len(await consumer.poll(not_doubted)) == 1
        assert caplog.messages == []
        for _ in range(2):
            assert len(await consumer.poll(1000)) == 1
        [doubt] = caplog.messages
        assert doubt.startswith("poll(1000) waits for up to 1000 seconds, kafka-python's for milliseconds")


async def waited_for_twice(metadata: Any) -> None:
    await metadata


def test_what_send_returns_is_no_future() -> None:
    """aiokafka's `send` is the false friend: awaiting its result once more says which method was meant."""
    waiting = waited_for_twice(RecordMetadata("orders", 0, 7, 0))
    with pytest.raises(TypeError, match=r"call send\(\) is enqueue\(\) here"):
        waiting.send(None)
    written: Any = RecordMetadata("orders", 0, 7, 0)
    with pytest.raises(
        AttributeError, match=r"no attribute 'get': send\(\) has waited for the acknowledgement already"
    ):
        written.get(timeout=3)
    with pytest.raises(AttributeError, match=r"no attribute 'topik'$"):
        _ = written.topik
