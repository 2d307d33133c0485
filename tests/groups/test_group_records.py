"""Records of classic groups and offsets, held to bytes that Kafka 4.1.1's own generated classes wrote."""

from __future__ import annotations

import pytest
from odradek_broker.core.groups.records import (
    CommittedOffset,
    GroupRecord,
    OffsetRecord,
    StoredGroup,
    StoredMember,
    decode,
    encode,
)
from odradek_proto.topics import TopicPartition
from odradek_proto.values import replace

OFFSET_KEY = bytes.fromhex("000100076772c3bc70706500066f726465727300000007")
OLD_OFFSET_KEY = b"\0\0" + OFFSET_KEY[2:]
GROUP_KEY = bytes.fromhex("0002000167")

OFFSET = CommittedOffset(1_234_567_890_123, -1, "mé", 1_700_000_000_000)
WITH_EPOCH = replace(OFFSET, leader_epoch=5)
WITH_ID = replace(WITH_EPOCH, topic_id=(1).to_bytes(8, "big") + (2).to_bytes(8, "big"))
EXPIRING = replace(OFFSET, expire_timestamp_ms=1_700_000_099_000)

MEMBER = StoredMember("a-1", "i-1", "a", "/10.0.0.1", 60_000, 10_000, b"\0\1", b"\x09")
DYNAMIC = replace(MEMBER, group_instance_id=None)
OLDEST = replace(DYNAMIC, rebalance_timeout_ms=10_000)  # what was not written is the session timeout
GROUP = StoredGroup("consumer", 3, "range", "a-1", 1_700_000_000_000, (MEMBER,))

OFFSETS = {
    "00000000011f71fb04cb00036dc3a90000018bcfe56800": OFFSET,
    "00010000011f71fb04cb00036dc3a90000018bcfe568000000018bcfe6eab8": EXPIRING,
    "00020000011f71fb04cb00036dc3a90000018bcfe56800": OFFSET,
    "00030000011f71fb04cb0000000500036dc3a90000018bcfe56800": WITH_EPOCH,
    "00040000011f71fb04cb00000005046dc3a90000018bcfe5680000": WITH_EPOCH,
    "00040000011f71fb04cb00000005046dc3a90000018bcfe5680001001000000000000000010000000000000002": WITH_ID,
}
GROUPS = {
    "00000008636f6e73756d657200000003000572616e67650003612d31000000010003612d3100016100092f31302e302e302e3100002710"
    "0000000200010000000109": replace(GROUP, state_timestamp_ms=-1, members=(OLDEST,)),
    "00010008636f6e73756d657200000003000572616e67650003612d31000000010003612d3100016100092f31302e302e302e310000ea60"
    "000027100000000200010000000109": replace(GROUP, state_timestamp_ms=-1, members=(DYNAMIC,)),
    "00020008636f6e73756d657200000003000572616e67650003612d310000018bcfe56800000000010003612d3100016100092f31302e30"
    "2e302e310000ea60000027100000000200010000000109": replace(GROUP, members=(DYNAMIC,)),
    "00030008636f6e73756d657200000003000572616e67650003612d310000018bcfe56800000000010003612d310003692d310001610009"
    "2f31302e302e302e310000ea60000027100000000200010000000109": GROUP,
    "000409636f6e73756d6572000000030672616e676504612d310000018bcfe568000204612d3104692d3102610a2f31302e302e302e3100"
    "00ea600000271003000102090000": GROUP,
    "0003000000000000ffffffff000000000000000500000000": StoredGroup(state_timestamp_ms=5),
}
WRITTEN_OFFSETS = (1, 4, 5)  # rows with the versions that Kafka 4.1.1 writes: 4, and 1 of an offset that expires
WRITTEN_GROUPS = (3, 5)


@pytest.mark.parametrize("key", [OFFSET_KEY, OLD_OFFSET_KEY])
@pytest.mark.parametrize(("value", "offset"), OFFSETS.items())
def test_reads_every_version_of_an_offset(key: bytes, value: str, offset: CommittedOffset) -> None:
    """All that Kafka ever wrote may stand in an offsets topic."""
    expected = OffsetRecord("grüppe", TopicPartition("orders", 7), offset)
    assert decode(key, bytes.fromhex(value)) == expected


@pytest.mark.parametrize(("value", "group"), GROUPS.items())
def test_reads_every_version_of_a_group(value: str, group: StoredGroup) -> None:
    """As for offsets."""
    assert decode(GROUP_KEY, bytes.fromhex(value)) == GroupRecord("g", group)


def test_writes_what_kafka_writes() -> None:
    """Byte for byte, in Kafka's versions; without a value: a tombstone."""
    tp = TopicPartition("orders", 7)
    for row in WRITTEN_OFFSETS:
        value, offset = list(OFFSETS.items())[row]
        assert encode(OffsetRecord("grüppe", tp, offset)) == (OFFSET_KEY, bytes.fromhex(value))
    for row in WRITTEN_GROUPS:
        value, group = list(GROUPS.items())[row]
        assert encode(GroupRecord("g", group)) == (GROUP_KEY, bytes.fromhex(value))
    assert encode(OffsetRecord("grüppe", tp, None)) == (OFFSET_KEY, None)
    assert encode(GroupRecord("g", None)) == (GROUP_KEY, None)


def test_refuses_what_cannot_be_read() -> None:
    """Every beginning of a record, and a version that nobody knows, raise ValueError and nothing else."""
    for key, values in ((OFFSET_KEY, OFFSETS), (GROUP_KEY, GROUPS)):
        for value in map(bytes.fromhex, values):
            for end in range(len(value)):
                with pytest.raises(ValueError):
                    decode(key, value[:end])
        with pytest.raises(ValueError, match="version 5"):
            decode(key, b"\0\5" + value[2:])
        for end in range(len(key)):
            with pytest.raises(ValueError):
                decode(key[:end], value)
