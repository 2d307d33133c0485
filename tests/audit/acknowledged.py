"""Five records that were acknowledged, and logs that hold some of them."""

from __future__ import annotations

from odradek_audit.inputs.history import ACK, SEND, Event

from tests.audit.sample import SampleLog

VALUES = [b"a", b"b", b"c", b"d", b"e"]


def told(acks: str | int, topic: str = "t") -> list[Event]:
    """Five records of one partition, all of them acknowledged."""
    return [
        event
        for offset, value in enumerate(VALUES)
        for event in (Event(SEND, topic, 0, value, acks=acks), Event(ACK, topic, 0, value, offset, acks, client="w"))
    ]


def log_of(*values: bytes, epoch: int = 0) -> SampleLog:
    log = SampleLog()
    for value in values:
        log.append([value], epoch=epoch, producer_id=5)
    return log
