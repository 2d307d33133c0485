"""Kafka's small files: the bytes that Kafka writes, there and back, and damage."""

import struct
from collections.abc import Callable
from contextlib import suppress

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from odradek_proto.formats import (
    AbortedTransaction,
    CorruptFile,
    MetaProperties,
    ProducerSnapshotEntry,
    decode_clean_shutdown,
    decode_leader_epochs,
    decode_meta_properties,
    decode_offset_checkpoint,
    decode_offset_index,
    decode_partition_metadata,
    decode_producer_snapshot,
    decode_time_index,
    decode_transaction_index,
    encode_clean_shutdown,
    encode_leader_epochs,
    encode_meta_properties,
    encode_offset_checkpoint,
    encode_offset_index,
    encode_partition_metadata,
    encode_producer_snapshot,
    encode_time_index,
    encode_transaction_index,
    parse_segment_file_name,
    segment_file_name,
)
from odradek_proto.topics import TopicPartition, topic_id_from_text

INT16 = st.integers(-(2**15), 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
PARTITIONS = st.builds(TopicPartition, st.text("ab.-_9", min_size=3, max_size=9), st.integers(0, 2**31 - 1))
SNAPSHOT_ENTRIES = st.lists(
    st.builds(ProducerSnapshotEntry, INT64, INT16, INT32, INT64, INT32, INT64, INT32, INT64), max_size=8
)
TOPIC_ID = "GOOxVCtyTXmrkBSUDFvDPA"


def test_an_offset_checkpoint_has_kafkas_bytes() -> None:
    """Version, count, one partition a line, sorted, each line with its end."""
    offsets = {TopicPartition("orders", 10): 5, TopicPartition("orders", 2): 41, TopicPartition("audit", 0): 0}
    data = b"0\n3\naudit 0 0\norders 2 41\norders 10 5\n"
    assert encode_offset_checkpoint(offsets) == data
    assert decode_offset_checkpoint(data) == offsets


@given(st.dictionaries(PARTITIONS, INT64, max_size=8))
def test_offset_checkpoints_come_back(offsets: dict[TopicPartition, int]) -> None:
    """Any partitions with any offsets."""
    assert decode_offset_checkpoint(encode_offset_checkpoint(offsets)) == offsets


def test_a_leader_epoch_file_has_kafkas_bytes() -> None:
    """Version, count, epoch and start offset a line."""
    data = b"0\n2\n0 0\n3 17\n"
    assert encode_leader_epochs([(0, 0), (3, 17)]) == data
    assert decode_leader_epochs(data) == [(0, 0), (3, 17)]
    assert decode_leader_epochs(data)[1].start_offset == 17


@pytest.mark.parametrize("decode", [decode_offset_checkpoint, decode_leader_epochs])
def test_an_empty_checkpoint_has_no_entries(decode: Callable[[bytes], object]) -> None:
    """A file of no bytes is what Kafka creates first, and reads as empty."""
    assert not decode(b"")
    assert not decode(b"0\n0\n")


def test_partition_metadata_has_kafkas_bytes() -> None:
    """Two lines, and none after the second."""
    data = b"version: 0\ntopic_id: GOOxVCtyTXmrkBSUDFvDPA"
    assert encode_partition_metadata(topic_id_from_text(TOPIC_ID)) == data
    assert decode_partition_metadata(data) == topic_id_from_text(TOPIC_ID)
    assert decode_partition_metadata(data + b"\n") == topic_id_from_text(TOPIC_ID)


KAFKA_META_PROPERTIES = b"""#
#Sat Mar 01 10:00:00 UTC 2025
cluster.id=4L6g3nShT-eMCtK--X86sw
directory.id=NbJ5lDxAZyx-Mn1Fdvbsqg
node.id=1
version=1
"""


def test_meta_properties_of_kafka_are_read_and_ours_say_the_same() -> None:
    """What `kafka-storage format` writes; ours differs in the time of the comment only."""
    properties = decode_meta_properties(KAFKA_META_PROPERTIES)
    assert properties == MetaProperties(1, "4L6g3nShT-eMCtK--X86sw", "NbJ5lDxAZyx-Mn1Fdvbsqg")
    assert encode_meta_properties(properties) == KAFKA_META_PROPERTIES.replace(b"#Sat Mar 01 10:00:00 UTC 2025\n", b"")


@given(st.integers(0, 2**31 - 1), st.text("aZ9-_=:#!\\", min_size=1, max_size=12), st.sampled_from([None, TOPIC_ID]))
def test_meta_properties_come_back(node_id: int, cluster_id: str, directory_id: str | None) -> None:
    """Characters that mean something to Java's Properties are escaped and come back."""
    properties = MetaProperties(node_id, cluster_id, directory_id)
    assert decode_meta_properties(encode_meta_properties(properties)) == properties


def test_meta_properties_of_version_0_are_read() -> None:
    """Brokers of the time of ZooKeeper wrote broker.id."""
    assert decode_meta_properties(b"version=0\nbroker.id=7\ncluster.id=abc\n") == MetaProperties(7, "abc", None)


def test_the_clean_shutdown_file_has_kafkas_bytes() -> None:
    """JSON without blanks. An empty file, as older brokers leave it, says nothing of the epoch."""
    assert encode_clean_shutdown(57) == b'{"version":0,"brokerEpoch":57}'
    assert decode_clean_shutdown(encode_clean_shutdown(57)) == 57
    assert decode_clean_shutdown(b"") == -1
    assert decode_clean_shutdown(b'{"version":0}') == -1


def test_offset_index_entries_are_eight_bytes() -> None:
    """Relative offset and position; the zeros with which Kafka fills the file up are no entries."""
    data = encode_offset_index([(17, 4200), (40, 8321)])
    assert data.hex() == "00000011000010680000002800002081"
    assert decode_offset_index(data) == decode_offset_index(data + bytes(800)) == [(17, 4200), (40, 8321)]
    assert decode_offset_index(b"") == decode_offset_index(bytes(80)) == []


def test_time_index_entries_are_twelve_bytes() -> None:
    """Timestamp and relative offset; the first entry may be at offset 0, and two entries may share an offset."""
    data = encode_time_index([(1_700_000_000_000, 0), (1_700_000_000_001, 0)])
    assert data.hex() == "0000018bcfe56800000000000000018bcfe5680100000000"
    assert decode_time_index(data + bytes(120)) == [(1_700_000_000_000, 0), (1_700_000_000_001, 0)]


DAMAGED: dict[Callable[[bytes], object], tuple[bytes, ...]] = {
    # A wrong version, count, shape or number, and a partition that stands there twice.
    decode_offset_checkpoint: (
        b"1\n0\n",
        b"0\n",
        b"0\nx\n",
        b"0\n-1\n",
        b"0\n2\norders 0 1\n",
        b"0\n0\norders 0 1\n",
        b"0\n1\norders 0\n",
        b"0\n1\norders 0 1 2\n",
        b"0\n1\norders zero 1\n",
        b"0\n1\norders -1 1\n",
        b"0\n1\norders 2147483648 1\n",
        b"0\n1\norders 0 9223372036854775808\n",
        b"0\n1\nor/ders 0 1\n",
        b"0\n1\n\xc3\xa4 0 1\n",
        b"0\n2\norders 0 1\norders 0 2\n",
        b"0\n1\n" + b"9" * 5000,
    ),
    # Lines that are not two numbers, and a file of zeros.
    decode_leader_epochs: (
        b"0\n1\n1\n",
        b"0\n1\n1 2 3\n",
        b"0\n1\nx 2\n",
        b"0\n1\n2147483648 0\n",
        b"\x00" * 9,
    ),
    # Another version, no id, a broken one, and the one that means none.
    decode_partition_metadata: (
        b"",
        b"version: 1\ntopic_id: " + TOPIC_ID.encode(),
        b"version: 0\n",
        b"version: 0\ntopic_id: AAAA",
        b"\x00" * 20,
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
        b"\xff",
    ),
    # A missing or wrong field.
    decode_meta_properties: (
        b"",
        b"version=1\nnode.id=1\n",
        b"version=1\ncluster.id=a\n",
        b"version=2\nnode.id=1\ncluster.id=a\n",
        b"\xff",
        b"version=1\nnode.id=x\ncluster.id=a\n",
        b"version=1\nnode.id=1\ncluster.id=a\ndirectory.id=b\n",
    ),
    # No JSON, no object, no number of 64 bits.
    decode_clean_shutdown: (
        b"{",
        b"[]",
        b'{"brokerEpoch":"1"}',
        b'{"brokerEpoch":true}',
        b'{"brokerEpoch":9223372036854775808}',
        b'{"brokerEpoch":-2}',
        b"\xff\xfe\xfd",
        b"[" * 9999,
    ),
    # A broken size, entries that do not rise, and entries behind the zeros.
    decode_offset_index: (
        b"\x00" * 7,
        encode_offset_index([(5, 100), (5, 200)]),
        encode_offset_index([(5, 100), (4, 200)]),
        encode_offset_index([(5, 100), (6, 100)]),
        encode_offset_index([(-2, 100)]),
        encode_offset_index([(5, 100), (0, 0), (6, 200)]),
    ),
    # A broken size, timestamps that do not rise or are none, offsets that fall, and entries behind the zeros.
    decode_time_index: (
        b"\x00" * 13,
        encode_time_index([(5, 100), (5, 200)]),
        encode_time_index([(5, 100), (4, 200)]),
        encode_time_index([(5, 100), (6, 99)]),
        encode_time_index([(5, -1)]),
        encode_time_index([(-1, 100)]),
        encode_time_index([(-1_700_000_000_000, 100), (5, 200)]),
        encode_time_index([(5, 100), (0, 0), (6, 200)]),
    ),
}


@pytest.mark.parametrize(("decode", "data"), [(decode, data) for decode, rows in DAMAGED.items() for data in rows])
def test_damaged_files_are_refused(decode: Callable[[bytes], object], data: bytes) -> None:
    """Each wrong file by the reader of its kind."""
    with pytest.raises(CorruptFile):
        decode(data)


def test_transaction_index_entries_are_thirty_four_bytes() -> None:
    """A version and four offsets and ids each."""
    entries = [AbortedTransaction(9, 3, 12, 12), AbortedTransaction(8, 5, 20, 13)]
    data = encode_transaction_index(entries)
    assert len(data) == 68
    assert data[:34] == struct.pack(">hqqqq", 0, 9, 3, 12, 12)
    assert decode_transaction_index(data) == entries
    for damaged in (data[:-1], b"\x00\x01" + data[2:], data[34:] + data[:34]):
        with pytest.raises(CorruptFile):
            decode_transaction_index(damaged)


@given(SNAPSHOT_ENTRIES)
def test_producer_snapshots_come_back(entries: list[ProducerSnapshotEntry]) -> None:
    """Forty-six bytes an entry behind ten of version, CRC and count."""
    data = encode_producer_snapshot(entries)
    assert len(data) == 10 + 46 * len(entries)
    assert decode_producer_snapshot(data) == entries


def test_a_producer_snapshot_has_kafkas_bytes() -> None:
    """Version 1, the CRC of what follows it, the count, and the fields in the order of Kafka's schema."""
    body = struct.pack(">iqhiqiqiq", 1, 4711, 3, 99, 1000, 4, 1_700_000_000_000, -1, -1)
    data = struct.pack(">hI", 1, crc32c(body)) + body
    entry = ProducerSnapshotEntry(
        producer_id=4711,
        producer_epoch=3,
        last_sequence=99,
        last_offset=1000,
        offset_delta=4,
        timestamp=1_700_000_000_000,
        coordinator_epoch=-1,
        current_txn_first_offset=-1,
    )
    assert encode_producer_snapshot([entry]) == data
    assert decode_producer_snapshot(data) == [entry]


def test_a_damaged_producer_snapshot_is_refused() -> None:
    """Cut anywhere, flipped anywhere, or with a count that lies under a right CRC."""
    data = encode_producer_snapshot([ProducerSnapshotEntry(1, 0, 5, 9, 2, 77, -1, -1)] * 2)
    for kept in range(len(data)):
        with pytest.raises(CorruptFile):
            decode_producer_snapshot(data[:kept])
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptFile):
            decode_producer_snapshot(bytes(flipped))
    for count in (-1, 1, 3, 2**31 - 1):
        body = struct.pack(">i", count) + data[10:]
        with pytest.raises(CorruptFile, match=f"{count} producers"):
            decode_producer_snapshot(struct.pack(">hI", 1, crc32c(body)) + body)


@given(st.binary(max_size=120))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    """No reader of a small file gives anything but values or CorruptFile."""
    for decode in (*DAMAGED, decode_transaction_index, decode_producer_snapshot):
        with suppress(CorruptFile):
            decode(data)


@pytest.mark.parametrize(
    ("name", "parsed"),
    [
        ("00000000000000000041.log", (41, ".log")),
        ("09223372036854775807.timeindex", (2**63 - 1, ".timeindex")),
        ("00000000000000000000.log.deleted", (0, ".log.deleted")),
        ("09223372036854775808.log", None),
        ("41.log", None),
        ("00000000000000000041", None),
        ("00000000000000000041.LOG", None),
        ("٠0000000000000000041.log", None),
        ("leader-epoch-checkpoint", None),
    ],
)
def test_names_of_segment_files(name: str, parsed: tuple[int, str] | None) -> None:
    """Twenty digits and a suffix; what parses is made again from its parts."""
    assert parse_segment_file_name(name) == parsed
    if parsed is not None:
        assert segment_file_name(*parsed) == name


def test_segment_file_names_take_offsets_only() -> None:
    """The suffix comes with or without its dot, and no negative number makes a name."""
    assert segment_file_name(41, "index") == segment_file_name(41, ".index") == "00000000000000000041.index"
    assert segment_file_name(0) == "00000000000000000000.log"
    for offset in (-1, 2**63):
        with pytest.raises(ValueError, match="no offset"):
            segment_file_name(offset)
