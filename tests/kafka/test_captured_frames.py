"""Frames that real clients and Apache Kafka 4.1.1 sent: all are read, and written again to the same bytes."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from odradek_broker.kafka.messages import fetch_codec, produce_codec
from odradek_broker.kafka.messages.codec import definition, reader_of, writer_of
from odradek_broker.kafka.messages.primitives import MessageReader, MessageWriter
from odradek_broker.kafka.messages.schemas import DEFINITIONS
from odradek_broker.testing import Cluster

from tests.kafka import oracle
from tests.kafka.fuzz import SETTINGS, run_seed
from tests.kafka.raw import API_VERSIONS, FETCH, PRODUCE, Raw, header
from tests.seeds import seeds

FRAMES = [
    json.loads(line)
    for line in (Path(__file__).parent.parent / "golden/kafka-wire/frames.jsonl").read_text().splitlines()
]
CONSUMERS = {PRODUCE: produce_codec.read_request, FETCH: fetch_codec.read_request}


def body_of(captured: dict[str, object]) -> tuple[int, str, int, memoryview]:
    key, what, version = captured["key"], captured["what"], captured["version"]
    assert isinstance(key, int)
    assert isinstance(what, str)
    assert isinstance(version, int)
    frame = bytes.fromhex(str(captured["frame"]))
    return key, what, version, memoryview(frame)[oracle.header_size(key, what, version, frame) :]


def name(captured: dict[str, object]) -> str:
    return f"{captured['key']}-v{captured['version']}-{captured['what']}-{captured['scenario']}"


DEFINED = [
    each for each in FRAMES if each["key"] in DEFINITIONS and each["version"] in definition(each["key"]).versions
]


@pytest.mark.parametrize("captured", DEFINED, ids=name)
def test_a_captured_message_is_read_and_written_again(captured: dict[str, object]) -> None:
    """Byte for byte, in both directions."""
    key, what, version, body = body_of(captured)
    message = reader_of(key, what, version)(MessageReader(body))
    writer = MessageWriter()
    writer_of(key, what, version)(writer, message)
    assert bytes(writer.out) == body, definition(key).name


@pytest.mark.parametrize(
    "captured", [each for each in FRAMES if each["key"] in CONSUMERS and each["what"] == "request"], ids=name
)
def test_captured_produces_and_fetches_are_read(captured: dict[str, object]) -> None:
    """To their last byte."""
    key, _what, version, body = body_of(captured)
    reader = MessageReader(body)
    CONSUMERS[key](reader, version)
    assert reader.position == len(body)


@pytest.mark.odradek(brokers=1, settings=SETTINGS)
@pytest.mark.parametrize("seed", seeds(12, every_day=0, slow=5, first=1))
def test_mutated_frames_end_in_an_answer_or_a_closed_connection(odradek_cluster: Cluster, seed: int) -> None:
    """No crash, no hang, no error that nobody expected, memory and log bounded; sound requests have sound answers."""
    run_seed(odradek_cluster, seed, rounds=2)


PAGE = Path(__file__).parents[2] / "docs/kafka-clients.md"
ROW = re.compile(r"^\| (\d+) \| \w+ \| (\d+)-(\d+) \|", re.MULTILINE)


def test_the_page_has_the_apis_that_a_broker_tells(odradek_cluster: Cluster) -> None:
    """Key, first and last version of each."""
    with Raw(odradek_cluster.kafka_bootstrap.partition(",")[0]) as raw:
        answer = raw.ask(header(API_VERSIONS, 0, 1)) or b""
    numbers = [int.from_bytes(answer[at : at + 2]) for at in range(10, len(answer), 2)]
    told = [tuple(numbers[at : at + 3]) for at in range(0, len(numbers), 3)]
    assert [tuple(map(int, row)) for row in ROW.findall(PAGE.read_text())] == told
