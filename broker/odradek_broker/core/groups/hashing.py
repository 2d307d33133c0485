"""Which partition of `__consumer_offsets` a group belongs to (K-40)."""

from __future__ import annotations


def partition_for(key: str, partitions: int) -> int:
    """Java's `String.hashCode` without its sign, modulo the number of partitions."""
    code = 0
    units = key.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(units), 2):
        code = (31 * code + int.from_bytes(units[position : position + 2])) & 0xFFFFFFFF
    return (code & 0x7FFFFFFF) % partitions
