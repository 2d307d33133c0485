"""Records of KIP-848 groups, against bytes that Apache Kafka 4.1.1's own classes wrote: the
generated ones of kafka-group-coordinator, by MessageUtil.toVersionPrefixedByteBuffer."""

from __future__ import annotations

import pytest
from odradek_broker.core.groups.consumer_records import (
    CURRENT,
    GROUP,
    MEMBER,
    PARTITIONS,
    REGEX,
    TARGET,
    TARGET_EPOCH,
    ConsumerGroupRecord,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    MemberState,
    RecordValue,
    ResolvedRegex,
    SubscribedTopics,
    TargetAssignment,
    TargetEpoch,
    TopicPartitionCount,
    decode,
    encode,
)

T, U = bytes(range(1, 17)), bytes(range(0x11, 0x21))
ID_T, ID_U = T.hex(), U.hex()
OF_GROUP, OF_MEMBER = "000167", "000167" + "00036d2d31"

ROWS: dict[str, tuple[int, str, RecordValue, str, str]] = {
    "group": (GROUP, "", GroupEpoch(7, -2), "0003" + OF_GROUP, "000000000007010008fffffffffffffffe"),
    "group without hash": (GROUP, "", GroupEpoch(1), "0003" + OF_GROUP, "00000000000100"),
    "partitions": (
        PARTITIONS,
        "",
        SubscribedTopics((TopicPartitionCount(T, "orders", 3, ((2, ("a", "b")),)),)),
        "0004" + OF_GROUP,
        f"000002{ID_T}076f72646572730000000302000000020302610262000000",
    ),
    "member": (
        MEMBER,
        "m-1",
        MemberMetadata("i", "r", "client", "/127.0.0.1", ("orders", "über"), "o.*", 300_000, "range"),
        "0005" + OF_MEMBER,
        "00000269027207636c69656e740b2f3132372e302e302e3103076f726465727306c3bc626572046f2e2a000493e00672616e676500",
    ),
    "plain member": (MEMBER, "m-1", MemberMetadata(), "0005" + OF_MEMBER, "0000000001010100ffffffff0000"),
    "classic member": (
        MEMBER,
        "m-1",
        MemberMetadata(classic=bytes.fromhex("010000afc8020672616e67650301020000")),
        "0005" + OF_MEMBER,
        "0000000001010100ffffffff00010011010000afc8020672616e67650301020000",
    ),
    "target epoch": (TARGET_EPOCH, "", TargetEpoch(9), "0006" + OF_GROUP, "00000000000900"),
    "target": (
        TARGET,
        "m-1",
        TargetAssignment({T: (0, 200), U: (1,)}),
        "0007" + OF_MEMBER,
        f"000003{ID_T}0300000000000000c800{ID_U}02000000010000",
    ),
    "current": (
        CURRENT,
        "m-1",
        CurrentAssignment(5, 4, MemberState.UNREVOKED_PARTITIONS, {T: (0, 1)}, {U: (2,)}),
        "0008" + OF_MEMBER,
        f"000000000005000000040102{ID_T}0300000000000000010002{ID_U}02000000020000",
    ),
    "regex": (
        REGEX,
        "o.*",
        ResolvedRegex(("orders",), 12, 1_700_000_000_000),
        "0010000167" + "00036f2e2a",
        "000002076f7264657273000000000000000c0000018bcfe5680000",
    ),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_records_are_kafkas_byte_for_byte(row: tuple[int, str, RecordValue, str, str]) -> None:
    kind, name, value, key_hex, value_hex = row
    record = ConsumerGroupRecord(kind, "g", name, value)
    key, data = bytes.fromhex(key_hex), bytes.fromhex(value_hex)

    assert encode(record) == (key, data)
    assert decode(key, data) == record
    assert decode(key, None) == ConsumerGroupRecord(kind, "g", name)


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_a_cut_or_changed_record_is_a_value_error_or_another_record(
    row: tuple[int, str, RecordValue, str, str],
) -> None:
    *_, key_hex, value_hex = row
    key, data = bytes.fromhex(key_hex), bytes.fromhex(value_hex)
    for size in range(len(key)):
        with pytest.raises(ValueError):
            decode(key[:size], data)
    for size in range(len(data)):
        with pytest.raises(ValueError):
            decode(key, data[:size])
    for position in range(len(data)):
        for value in (0x00, 0x7F, 0xFF):
            changed = data[:position] + bytes([value]) + data[position + 1 :]
            try:
                decode(key, changed)
            except ValueError:
                continue
