"""Our codec of Kafka's messages against kio, which is generated from Kafka's own definitions, at every version."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from odradek_broker.kafka.messages.codec import Field, definition, reader_of, writer_of
from odradek_broker.kafka.messages.primitives import MALFORMED, Malformed, MessageReader, MessageWriter
from odradek_broker.kafka.messages.schemas import DEFINITIONS

from tests.kafka import oracle
from tests.seeds import unless_torture

pytestmark = pytest.mark.xdist_group("codec")  # in one process, so that each schema is read once
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TIMES = {
    "session_lifetime_ms",
    "timeout_ms",
    "throttle_time_ms",
    "transaction_timeout_ms",
    "transaction_start_time_ms",
    "retention_time_ms",
    "session_timeout_ms",
    "rebalance_timeout_ms",
    "heartbeat_interval_ms",
}  # kio holds those in bounds of its own
CODES = {"error_code", "topic_config_error_code"}  # kio knows them by name
ROUNDS = unless_torture(2, 5)


def messages() -> Iterator[tuple[int, int, str]]:
    for key in DEFINITIONS:
        versions = definition(key).versions
        for version in range(versions.first, versions.last + 1):
            yield key, version, "request"
            yield key, version, "response"


def primitive(rng: random.Random, field: Field, kind: str) -> Any:
    if field.name in CODES:
        return rng.randrange(-1, 100)
    if field.name in TIMES:
        return rng.randrange(1 << 30)
    if kind == "string":
        return "".join(rng.choice("abcü€") for _ in range(rng.choice((0, 1, 7, 150))))
    if kind == "bytes":
        return rng.randbytes(rng.choice((0, 1, 150)))
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "float64":
        return rng.random()
    if kind == "uuid":
        return rng.randbytes(16)
    if kind == "uint16":
        return rng.randrange(1 << 16)
    bits = BITS[kind]
    return rng.randrange(-(1 << (bits - 1)), 1 << (bits - 1))


def count(rng: random.Random, field: Field) -> int:
    return rng.randrange(3) if field.inside else rng.choice((0, 1, 3, 140))


def message_of(key: int, what: str, version: int, rng: random.Random) -> dict[str, Any]:
    """With random values."""
    return oracle.structure(definition(key).messages[what], version, rng, primitive, count)


def written(key: int, what: str, version: int, message: dict[str, Any]) -> bytes:
    writer = MessageWriter()
    writer_of(key, what, version)(writer, message)
    return bytes(writer.out)


@pytest.mark.parametrize("key", sorted(DEFINITIONS), ids=lambda key: definition(key).name)
def test_every_message_is_the_one_that_kio_knows(key: int) -> None:
    """Random values: kio reads what we wrote and writes the same bytes, and we read the same values again."""
    rng = random.Random(key)
    for _key, version, what in (each for each in messages() if each[0] == key):
        for _ in range(ROUNDS):
            message = message_of(key, what, version, rng)
            body = written(key, what, version, message)
            assert oracle.write(key, what, version, oracle.read(key, what, version, body)) == body, (version, what)
            assert reader_of(key, what, version)(MessageReader(memoryview(body))) == message


@pytest.mark.parametrize("key", sorted(DEFINITIONS), ids=lambda key: definition(key).name)
def test_the_flexible_versions_are_kios(key: int) -> None:
    """Which header a request has hangs on it (K-10)."""
    api = definition(key)
    for version in range(api.versions.first, api.versions.last + 1):
        assert (version >= api.flexible_from) == oracle.is_flexible(key, version), version


@pytest.mark.parametrize("key", sorted(DEFINITIONS), ids=lambda key: definition(key).name)
def test_a_message_that_is_cut_short_is_malformed(key: int) -> None:
    """Whatever byte is the last one."""
    rng = random.Random(key)
    for _key, version, what in (each for each in messages() if each[0] == key):
        body = memoryview(written(key, what, version, message_of(key, what, version, rng)))
        for end in sorted({rng.randrange(len(body)) for _ in range(20 if body else 0)}):
            with pytest.raises(MALFORMED):
                reader_of(key, what, version)(MessageReader(body[:end]))


def test_what_is_not_named_has_its_default() -> None:
    """A Metadata answer of version 13 with nothing but a topic."""
    body = written(3, "response", 13, {"topics": [{"name": "orders"}]})
    found = reader_of(3, "response", 13)(MessageReader(memoryview(body)))
    assert found["controller_id"] == -1
    assert found["cluster_id"] is None
    assert found["topics"][0]["topic_authorized_operations"] == -2147483648


def test_an_array_cannot_claim_more_than_there_is() -> None:
    """Memory grows with the bytes that have arrived."""
    with pytest.raises(Malformed, match="an array of 2147483647 elements"):
        reader_of(3, "request", 1)(MessageReader(memoryview(b"\x7f\xff\xff\xff" + bytes(100))))


def test_the_elements_of_a_request_are_bounded() -> None:
    """Small elements become many times their size in memory."""
    body = (200_000).to_bytes(4) + bytes(400_000)
    with pytest.raises(Malformed, match="an array of 200000 elements"):
        reader_of(3, "request", 1)(MessageReader(memoryview(body)))


def test_unknown_tags_are_skipped_and_trailing_bytes_ignored() -> None:
    """A client may be newer than we are (K-11), and librdkafka 2.16 appends bytes that belong to nothing (K-12)."""
    body = (
        b"\x02" + bytes(16) + b"\x03ab" + b"\x01\x05\x02xy" + b"\x01\x00" + b"\x02\x07\x00\x09\x01z" + b"\x01\x00\x00"
    )
    found = reader_of(3, "request", 13)(MessageReader(memoryview(body)))
    assert found["topics"] == [{"topic_id": bytes(16), "name": "ab"}]
    assert found["allow_auto_topic_creation"] is True
