"""Which partition of the offsets topic is a group's (K-40)."""

from __future__ import annotations

import pytest
from odradek_broker.core.groups.records import partition_for


@pytest.mark.parametrize(
    ("group", "of_50", "of_7"),
    [
        ("", 0, 0),
        ("a", 47, 6),
        ("orders-service", 17, 2),
        ("Straße", 26, 5),
        ("\U0001f600-group", 5, 6),  # two units of UTF-16
        ("polygenelubricants", 0, 0),  # whose hash is the smallest int, which has no absolute value
    ],
)
def test_the_partition_is_the_one_that_java_computes(group: str, of_50: int, of_7: int) -> None:
    """`(group.hashCode() & 0x7fffffff) % n`, as a JVM said it."""
    assert partition_for(group, 50) == of_50
    assert partition_for(group, 7) == of_7
