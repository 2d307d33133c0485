"""Topics' names and ids, partitions and their directories, and the numbers of variable length."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek_proto.topics import (
    TopicPartition,
    parse_partition_directory,
    partition_directory,
    topic_id_from_text,
    topic_id_to_text,
    validate_topic_name,
)
from odradek_proto.varint import (
    TABLE_SIZE,
    VARINTS,
    decode_unsigned_varint,
    decode_varint,
    encode_unsigned_varint,
    encode_varint,
)

LEGAL = st.text("abcXYZ019._-", min_size=1, max_size=249).filter(lambda name: name not in (".", ".."))


@pytest.mark.parametrize("name", ["orders", "...", "-", "a" * 249, "_x.Y-0"])
def test_legal_topic_names_pass(name: str) -> None:
    """Letters, digits, dot, underscore and dash, up to 249 of them."""
    validate_topic_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a" * 250, "a b", "a/b", "ä", "a\n", "a\x00", "٣", "a:b"])
def test_illegal_topic_names_are_refused(name: str) -> None:
    """What Kafka refuses is refused, a line feed at the end and digits of other scripts included."""
    with pytest.raises(ValueError, match="topic's name"):
        validate_topic_name(name)


@given(LEGAL, st.integers(0, 2**31 - 1))
def test_directories_name_their_partition(topic: str, number: int) -> None:
    """A directory's name gives back topic and number, whatever dashes the topic has."""
    partition = TopicPartition(topic, number)
    assert parse_partition_directory(partition_directory(partition)) == partition


@pytest.mark.parametrize(
    "name",
    [
        "orders",
        "orders-",
        "-1",
        "orders-01",
        "orders--",
        "orders-1x",
        "orders-2147483648",
        "..-1",
        "a b-1",
        "orders-٣",
        "orders-0.5f3a-delete",
        "orders-0.5f3a-future",
        "orders-0.5f3a-stray",
        "lost+found",
        "orders-1\n",
    ],
)
def test_other_directories_are_no_partitions(name: str) -> None:
    """Deleted, future and stray partitions, and whatever else lies about, are not taken for a partition."""
    assert parse_partition_directory(name) is None


def test_partitions_sort_and_read_well() -> None:
    """By topic, then by number; as text they are topic and number with a dash."""
    partitions = [TopicPartition("b", 1), TopicPartition("a", 10), TopicPartition("a", 9)]
    assert [str(partition) for partition in sorted(partitions)] == ["a-9", "a-10", "b-1"]
    assert f"{partitions[0]}" == "b-1"


@given(st.uuids())
def test_topic_ids_come_back(topic_id: uuid.UUID) -> None:
    """Sixteen bytes are twenty-two characters that a URL may hold."""
    text = topic_id_to_text(topic_id.bytes)
    assert len(text) == 22
    assert topic_id_from_text(text) == topic_id.bytes


def test_a_topic_id_is_written_as_kafka_writes_it() -> None:
    """The id of the metadata topic, 1 in the last bits, is the one that Kafka's tools print."""
    assert topic_id_to_text(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert topic_id_to_text(b"\xff" * 16) == "_____________________w"


@pytest.mark.parametrize(
    "text",
    ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAAQ==", "AAAAAAAAAAAAAAAAAAAAAR", "AAAAAAAAAAAAAAAAAAAA+Q", "ä" * 22, "A" * 23],
)
def test_other_texts_are_no_topic_ids(text: str) -> None:
    """One spelling per id: no padding, no other alphabet, no stray bits at the end."""
    with pytest.raises(ValueError, match="topic id"):
        topic_id_from_text(text)


def test_topic_ids_have_sixteen_bytes() -> None:
    """Anything shorter or longer is refused."""
    with pytest.raises(ValueError, match="16 bytes"):
        topic_id_to_text(b"short")


@given(st.integers(-(2**63), 2**63 - 1))
def test_numbers_come_back(number: int) -> None:
    """Every 64-bit number survives, in ten bytes at most."""
    data = encode_varint(number)
    assert decode_varint(b"x" + data + b"y", 1, 10) == (number, 1 + len(data))


@given(st.integers(0, 2**32 - 1))
def test_unsigned_numbers_come_back(number: int) -> None:
    """Every 32-bit number survives, in five bytes at most."""
    data = encode_unsigned_varint(number)
    assert decode_unsigned_varint(data, 0) == (number, len(data))


@pytest.mark.parametrize(
    ("number", "data"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_known_numbers(number: int, data: str) -> None:
    """Zigzag, lowest seven bits first: examples by hand."""
    assert encode_varint(number).hex() == data
    assert decode_varint(bytes.fromhex(data), 0) == (number, len(data) // 2)


def test_the_table_holds_what_the_function_says() -> None:
    """Each entry of the table is the encoding of its index."""
    assert [encode_varint(number) for number in range(TABLE_SIZE)] == VARINTS


@pytest.mark.parametrize(
    ("data", "most", "error"),
    [
        ("", 5, IndexError),
        ("80", 5, IndexError),
        ("8080808080", 5, ValueError),
        ("ffffffff1f", 5, ValueError),
        ("ff" * 9 + "03", 10, ValueError),
        ("80" * 10, 10, ValueError),
    ],
)
def test_numbers_that_are_cut_or_too_large_are_refused(data: str, most: int, error: type[Exception]) -> None:
    """IndexError where bytes are missing, ValueError where there are too many."""
    with pytest.raises(error):
        decode_varint(bytes.fromhex(data), 0, most)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**80])
def test_numbers_beyond_64_bits_are_not_written(number: int) -> None:
    """What no reader could read is not written."""
    with pytest.raises(ValueError, match="64 bits"):
        encode_varint(number)
