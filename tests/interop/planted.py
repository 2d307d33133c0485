"""Says whether an audit found the damage that was planted in a copy of Kafka's directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odradek_audit.findings import Finding
from odradek_audit.planting import Planted
from odradek_proto.records import iter_batches


def batch_of(directory: Path, offset: int) -> int:
    """The base offset of the batch that holds an offset; the offset itself when no batch does."""
    headers = [header for path in directory.glob("*.log") for _, header in iter_batches(path.read_bytes())]
    return next((each.base_offset for each in headers if each.base_offset <= offset <= each.last_offset), offset)


def assert_found(planted: Planted, replica: str, sound: Path, findings: Sequence[Finding]) -> None:
    """A finding names check, replica, offset and leader epoch; none names another replica.

    A changed record in a compressed batch cannot be told from its neighbours, so there the batch is named; `sound` is
    the same partition without the damage.
    """
    found = [(each.check, each.replica, each.offset, each.epoch) for each in findings]
    offsets = {planted.offset, batch_of(sound, planted.offset)}
    assert any((planted.check, replica, offset, planted.epoch) in found for offset in offsets), (planted, found)
    assert {each.replica for each in findings} == {replica}, found
