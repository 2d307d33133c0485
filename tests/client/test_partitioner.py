"""Which partition a record goes to: the same as from any other Kafka client."""

from __future__ import annotations

import random

from aiokafka.partitioner import murmur2 as their_murmur2
from hypothesis import given
from hypothesis import strategies as st
from odradek.core.partitioner import StickyChoice, murmur2, partition_for_key


@given(st.binary(max_size=40))
def test_murmur2_is_kafkas(key: bytes) -> None:
    """Compared with an independent implementation."""
    assert murmur2(key) == their_murmur2(key) & 0xFFFFFFFF


@given(st.binary(max_size=40), st.integers(1, 100))
def test_a_key_always_goes_to_one_of_the_partitions(key: bytes, count: int) -> None:
    """And always to the same one."""
    assert 0 <= partition_for_key(key, count) < count
    assert partition_for_key(key, count) == partition_for_key(key, count)


def test_records_without_a_key_stay_until_a_batch_is_full() -> None:
    """Then another partition is taken, and one without a leader never."""
    choice = StickyChoice(100, random.Random(5))
    taken = [choice.take(25, [0, 1, 2]) for _ in range(12)]
    assert [len(set(taken[at : at + 4])) for at in (0, 4, 8)] == [1, 1, 1]
    assert taken[0] != taken[4] != taken[8]
    assert {choice.take(200, [1]) for _ in range(5)} == {1}
