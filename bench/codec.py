"""What the record codec costs: CPU time of header, CRC, checks, encode and decode, by batch and by record.

    python -m bench.codec [--json] [--seconds 0.1] [--codecs]

Each figure is the best of several rounds in CPU time of this process, so other programs disturb it little; a batch's
work is repeated until a round takes long enough to be measured. Keys have 12 bytes; "100 B" and "1 KiB" are the sizes
of the values. Records have no headers, batches no compression, unless `--codecs` asks for the batch of 16 x 1 KiB of
JSON under each codec as well.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

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

SHAPES = ((1, 100), (150, 100), (1000, 100), (16, 1024), (500, 1024))
ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result: times are CPU nanoseconds."""

    operation: str
    batch: str
    batch_bytes: int
    ns_per_batch: float
    ns_per_record: float
    mb_per_second: float | None  # only where the work grows with the bytes


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


def measure(records: list[RecordToWrite], label: str, codec: Codec, seconds: float) -> list[Row]:
    """All operations on one batch."""
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
    rows = []
    for name, work in operations.items():
        spent = cpu_ns(work, seconds)
        size = len(batch) if codec is Codec.NONE else len(encode_batch(records))
        operation = name if codec is Codec.NONE else f"{name} {codec.name.lower()}"
        rate = None if name in ("read_header", "stamp") else size / spent * 1e3
        rows.append(Row(operation, label, len(batch), spent, spent / len(records), rate))
    return rows


def figures(quick: bool) -> list[Figure]:
    """What a leader does with a batch of about 16 KiB, and what a client does with each record."""
    seconds = 0.03 if quick else 0.2
    small = {row.operation: row for row in measure(records_of(150, 100), "150 x 100 B", Codec.NONE, seconds)}
    large = {row.operation: row for row in measure(records_of(16, 1024), "16 x 1 KiB", Codec.NONE, seconds)}
    return [
        Figure("codec", "header, CRC and checks of 150 x 100 B", small["check_batch"].ns_per_batch / 1e3, "us CPU"),
        Figure("codec", "encode a record of 100 B", small["encode"].ns_per_record, "ns CPU"),
        Figure("codec", "decode a record of 100 B", small["decode"].ns_per_record, "ns CPU"),
        Figure("codec", "encode a record of 1 KiB", large["encode"].ns_per_record, "ns CPU"),
        Figure("codec", "decode a record of 1 KiB", large["decode"].ns_per_record, "ns CPU"),
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description="CPU time of the record codec")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--seconds", type=float, default=0.1, help="CPU time to spend on each figure")
    parser.add_argument("--codecs", action="store_true", help="measure each compression codec as well")
    options = parser.parse_args()
    rows: list[Row] = []
    for count, size in SHAPES:
        label = f"{count} x {'1 KiB' if size == 1024 else f'{size} B'}"
        rows += measure(records_of(count, size), label, Codec.NONE, options.seconds)
    if options.codecs:
        for codec in Codec:
            if codec is not Codec.NONE:
                rows += measure(records_of(16, 1024), "16 x 1 KiB", codec, options.seconds)
    if options.json:
        machine = {"python": platform.python_version(), "machine": platform.machine(), "cores": os.cpu_count()}
        print(json.dumps({"benchmark": "codec", **machine, "rows": [asdict(row) for row in rows]}, indent=2))
        return
    print(f"{'operation':<14} {'batch':<12} {'bytes':>8} {'us/batch':>10} {'ns/record':>10} {'MB/s':>8}")
    for row in rows:
        print(
            f"{row.operation:<14} {row.batch:<12} {row.batch_bytes:>8} {row.ns_per_batch / 1e3:>10.2f}"
            f" {row.ns_per_record:>10.1f} {'-' if row.mb_per_second is None else format(row.mb_per_second, '.0f'):>8}"
        )


if __name__ == "__main__":
    main()
