"""Records that were acknowledged, as a history tells it, and logs that hold some of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from odradek_audit.inputs.history import ACK, SEND, Event, encode_event

from tests.audit.sample import SampleLog

VALUES = [b"a", b"b", b"c", b"d", b"e"]


def told(acks: str | int, topic: str = "t", values: Sequence[bytes] = VALUES) -> list[Event]:
    """Records of one partition, all of them acknowledged."""
    return [
        event
        for offset, value in enumerate(values)
        for event in (Event(SEND, topic, 0, value, acks=acks), Event(ACK, topic, 0, value, offset, acks, client="w"))
    ]


def write_history(path: Path, events: Iterable[Event]) -> Path:
    path.write_text("".join(encode_event(event) + "\n" for event in events))
    return path


def log_of(*values: bytes, epoch: int = 0) -> SampleLog:
    log = SampleLog()
    for value in values:
        log.append([value], epoch=epoch, producer_id=5)
    return log
