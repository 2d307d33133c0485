"""What probably happened: a sentence of suspicion for each finding, from the log directories alone.

The finding itself is a fact; this is not. Where the bytes of a sound replica are at hand, the sentence says how many
of them differ, for one flipped bit tells another story than a thousand other bytes. Where two things may have happened,
the likelier one comes first and the sentence says why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from odradek_audit.checks.references import UNDECIDED
from odradek_audit.exhibit import ACCUSED, REFERENCE, Exhibit
from odradek_audit.findings import Finding
from odradek_audit.words import plural

FEW_BYTES = 16
"""Up to so many other bytes are a change of one batch; two brokers' batches have other times, counts and values."""

_PLAIN = {
    "batch-unreadable": "the file was overwritten here, or a write never reached the disk as a whole",
    "torn-tail": "the file was cut by something else than a crash of the broker, or the disk lost what it had "
    "confirmed as flushed",
    "epoch-not-monotonic": "records of a deposed leader were appended behind a newer epoch's, or the header was "
    "changed: the CRC does not cover the epoch",
    "record-count-mismatch": "the header was changed and its CRC made right: no broker accepts such a batch",
    "producer-snapshot-mismatch": "the snapshot was changed, or not made anew when the log was cut",
    "transaction-mismatch": "the marker or the index was changed, or the index was not cut together with its log",
    "sequence-gap": "a batch of this producer is missing here or was appended twice; the producer's state was lost",
    "epoch-cache-mismatch": "the file was not written before the epoch's first batch, or not cut with the log",
    "checkpoint-order": "the log lost its end after the checkpoint was written: a power loss without a flush, or "
    "a file that was cut",
    "index-unsound": "the index was not cut or rebuilt together with its log, or it was changed",
    "file-corrupt": "the file was overwritten, or a write was torn",
    "identity-mismatch": "the directory belongs to another cluster or to an earlier topic of the same name",
    "phantom": "the record was written by somebody whose history is not here, or its value was changed",
    "failed-present": "the broker had appended the record before it refused it",
    "duplicated": "a retry was appended a second time: the producer's state was lost at a change of leader",
    "reordered": "a later batch overtook an earlier one that was sent again",
}


def with_cause(finding: Finding) -> Finding:
    """The finding with its suspected cause."""
    make = _MADE.get(finding.check)
    return replace(finding, cause=make(finding) if make is not None else _PLAIN.get(finding.check, ""))


def _crc_mismatch(finding: Finding) -> str:
    flipped = _flipped(finding.exhibit)
    return f"bits changed on the disk or on the way to it{flipped}; the broker that wrote it had a right CRC"


def _log_matching(finding: Finding) -> str:
    evidence = finding.evidence
    if evidence.get("same_epoch"):
        return _one_epoch(finding)
    mine, other = finding.epoch, evidence.get("other_epoch", -1)
    if evidence.get("agree_again"):
        return (
            f"after the change of leader from epoch {min(mine, other)} to {max(mine, other)} the log was not cut where "
            "the new leader's began, and both went on behind it (KIP-101: truncation to the high watermark)"
        )
    if mine < other:
        return (
            f"the replica counted records of epoch {mine} as replicated which the leader of epoch {other} never had: "
            "an election from outside of the ISR, or a leader that had lost its end"
        )
    return f"the replica holds epoch {mine} where the reference has epoch {other}: a truncation was missed"


def _epoch_fork(finding: Finding) -> str:
    return _one_epoch(finding)


def _one_epoch(finding: Finding) -> str:
    """Other bytes in one leader epoch: a changed copy, or two leaders. The bytes say which is likelier."""
    exhibit = finding.exhibit
    copy = "one of the copies" if UNDECIDED in finding.reference else "this copy"
    changed = f"{copy} was changed after it was written, and its CRC made right"
    leaders = f"two brokers led in epoch {finding.epoch}"
    found = [exhibit.side(role) for role in (ACCUSED, REFERENCE)] if exhibit is not None else []
    batches = [side.batch for side in found if side is not None and side.batch is not None]
    if exhibit is None or len(batches) != 2:
        return f"{changed}; or {leaders}. The bytes that would say which is likelier are not at hand"
    same_origin = batches[0].origin == batches[1].origin
    if exhibit.differing_in_records <= FEW_BYTES or (same_origin and batches[0].producer_id >= 0):
        why = "their batches would differ in times, producers and more than a few bytes"
        return f"{changed}{_flipped(exhibit)}. Much less likely: {leaders}; {why}"
    if same_origin:
        return f"{changed}{_flipped(exhibit)}; or {leaders}. Count and time are the same, and no producer is named"
    bytes_differ = plural(exhibit.differing_bytes, "byte differs", "bytes differ")
    why = f"{bytes_differ}, and offsets, producer, count or time of the batch"
    return f"{leaders}, and each appended a batch of its own ({why}). Less likely: {changed}"


def _checkpoint_order(finding: Finding) -> str:
    if finding.evidence.get("no_directory"):
        return (
            "the partition's directory was removed, or not copied with the others, after the broker had stopped. Less "
            "likely: the replica was reassigned away and its broker killed before it had written the file anew"
        )
    return _PLAIN["checkpoint-order"]


def _offset_gap(finding: Finding) -> str:
    if "stored_offset" in finding.evidence:
        return "the base offset in the header was changed; the CRC does not cover it, and the records are all there"
    return "a batch was removed from the file, or never written to it, and the log was appended to all the same"


def _offset_not_increasing(finding: Finding) -> str:
    if "stored_offset" in finding.evidence:
        return "the base offset in the header was changed; the CRC does not cover it, and the records are all there"
    if "previous_last_offset" not in finding.evidence:
        return "two batches changed places in the file"
    return "a batch was appended twice, or appended behind an end that had not been cut"


def _lost(finding: Finding) -> str:
    held = finding.evidence.get("held_by", [])
    exhibit = finding.exhibit
    if _same_epoch_elsewhere(exhibit):
        return f"replica {finding.replica}'s copy of the batch was changed after it was written{_flipped(exhibit)}"
    if held:
        return (
            f"the record was acknowledged, and cut off or overwritten at a change of leader; replica {', '.join(held)} "
            "still has it"
        )
    ends = exhibit is not None and all(side.absent.startswith("the log ends") for side in exhibit.sides)
    if ends:
        return "every replica's log ends before it: nobody had flushed it when the power failed, or all cut it off"
    return (
        "the record was acknowledged before every in-sync replica had it, or replaced by another at a change of leader"
    )


def _same_epoch_elsewhere(exhibit: Exhibit | None) -> bool:
    """Whether another replica holds other bytes of the same leader epoch there, so that no election explains it."""
    if exhibit is None or exhibit.differing_bytes <= 0:
        return False
    epochs = [side.batch.line.epoch for side in exhibit.sides[:2] if side.batch is not None]
    return len(epochs) == 2 and epochs[0] == epochs[1]


def _flipped(exhibit: Exhibit | None) -> str:
    """How many bytes differ from the reference, and the bit when it is one, whatever a new CRC in the header is."""
    if exhibit is None or exhibit.differing_bytes <= 0:
        return ""
    in_header = exhibit.differing_bytes - exhibit.differing_in_records
    if (exhibit.differing_in_records or in_header) > 1:
        return f" ({exhibit.differing_bytes:,} bytes of the batch differ)"
    beside = f", and {plural(in_header, 'byte')} of the header" if exhibit.differing_in_records and in_header else ""
    place = exhibit.first_difference
    values = []
    for side in exhibit.sides[:2]:
        for window in side.batch.windows if side.batch is not None else ():
            if window.start <= place < window.end:
                values.append(window.content[place - window.start])
    if len(values) != 2:
        return f" (one byte of the batch differs{beside})"
    bits = (values[0] ^ values[1]).bit_count()
    what = f"{'one bit' if bits == 1 else f'{bits} bits'} of the batch's byte {place}"
    return f" ({what}: {values[1]:#04x} became {values[0]:#04x}{beside})"


_MADE: dict[str, Callable[[Finding], str]] = {
    "crc-mismatch": _crc_mismatch,
    "log-matching": _log_matching,
    "epoch-fork": _epoch_fork,
    "checkpoint-order": _checkpoint_order,
    "offset-gap": _offset_gap,
    "offset-not-increasing": _offset_not_increasing,
    "acknowledged-lost": _lost,
    "delivered-lost": _lost,
}
