"""What the record codec costs: CPU time of header, CRC, checks, encode and decode, by batch and by record.

    python -m bench --only codec [--quick] [--json]

Each figure is the best of several rounds in CPU time of this process, so other programs disturb it little; a batch's
work is repeated until a round takes long enough to be measured. Keys have 12 bytes; "100 B" and "1 KiB" are the sizes
of the values, which are JSON. Records have no headers.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass

from odradek_proto.records import (
    PREFIX_SIZE,
    Codec,
    RecordToWrite,
    check_batch,
    decode_records,
    encode_batch,
    read_header,
    stamped_prefix,
    verify_crc,
)

from bench.report import Figure

ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Row:
    """CPU nanoseconds of an operation."""

    ns_per_batch: float
    ns_per_record: float


def cpu_ns(work: Callable[[], object], seconds: float) -> float:
    """CPU nanoseconds of one call: the best of several rounds that take `seconds` together."""
    calls = 1
    while True:
        began = time.process_time_ns()
        for _ in range(calls):
            work()
        spent = time.process_time_ns() - began
        if spent > seconds * 1e9 / ROUNDS / 4:
            break
        calls *= 4
    best = spent / calls
    for _ in range(ROUNDS - 1):
        began = time.process_time_ns()
        for _ in range(calls):
            work()
        best = min(best, (time.process_time_ns() - began) / calls)
    return best


def json_value(size: int, number: int) -> bytes:
    """A value that compresses as real ones do: JSON with numbers in it."""
    parts: list[str] = []
    while sum(map(len, parts)) < size:
        parts.append(json.dumps({"order": number * 7919 + len(parts), "state": "paid", "amount": number * 31 % 997}))
    return "".join(parts)[:size].encode()


def records_of(count: int, size: int) -> list[RecordToWrite]:
    """`count` records with a key of 12 bytes and a value of `size`, a millisecond apart every ten."""
    return [(1_700_000_000_000 + n // 10, b"key-%08d" % n, json_value(size, n), ()) for n in range(count)]


def measure(records: list[RecordToWrite], seconds: float, codec: Codec = Codec.NONE) -> dict[str, Row]:
    """All operations on one batch, by name."""
    batch = encode_batch(records, codec=codec)
    header = read_header(batch)
    rest = memoryview(batch)[PREFIX_SIZE:]
    operations: dict[str, Callable[[], object]] = {
        "encode": lambda: encode_batch(records, codec=codec),
        "decode": lambda: decode_records(batch, header),
    }
    if codec is Codec.NONE:
        operations = {
            "read_header": lambda: read_header(batch),
            "verify_crc": lambda: verify_crc(batch, header),
            "check_batch": lambda: check_batch(batch),
            "stamp": lambda: (stamped_prefix(7, header.length, 3), rest),
            **operations,
        }
    spent = {name: cpu_ns(work, seconds) for name, work in operations.items()}
    return {name: Row(each, each / len(records)) for name, each in spent.items()}


def figures(quick: bool) -> list[Figure]:
    """What a leader does with a batch of about 16 KiB, and what a client does with each record."""
    seconds = 0.03 if quick else 0.2
    small = measure(records_of(150, 100), seconds)
    found = [
        Figure("codec", f"{name} of 150 x 100 B", small[name].ns_per_batch / 1e3, "us CPU")
        for name in ("read_header", "verify_crc", "check_batch", "stamp")
    ]
    for what, records in (("100 B", records_of(150, 100)), ("1 KiB", records_of(16, 1024))):
        for codec in Codec if what == "1 KiB" else (Codec.NONE,):
            rows = measure(records, seconds, codec)
            under = f", {codec.name.lower()}" if codec is not Codec.NONE else ""
            for name in ("encode", "decode"):
                found.append(Figure("codec", f"{name} a record of {what}{under}", rows[name].ns_per_record, "ns CPU"))
    return found
