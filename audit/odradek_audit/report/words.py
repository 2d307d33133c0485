"""The words of the page, for a reader who has never seen one: only those that this page uses."""

from __future__ import annotations

from odradek_audit.catalogue import CHECKS
from odradek_audit.report.markup import SafeMarkup, join, tag
from odradek_audit.report.model import Report

HW = "high watermark: the offset below which every in-sync replica has everything; exclusive"
LEO = "log end offset: the offset that the next record will get; exclusive"
ISR = "in-sync replicas: those that the high watermark waits for"

_ALWAYS = (
    ("replica", "one broker's copy of a partition. Its name is its directory's, mostly the broker's id."),
    ("offset", "a record's number in its partition."),
    ("batch", "records that were sent, and are stored and checked, together, under one CRC."),
    ("leader epoch", "the number of a leadership; each election gives a larger one. Every batch names its own."),
    ("HW, high watermark", "everything below this offset is on every in-sync replica. A broker writes its own down now "
     "and then (the checkpoint), so the number in a directory is at or below the real one."),
    ("LEO, log end offset", "the offset that the next record will get: one past the last."),
    ("ISR", "the replicas in sync with the leader; one of them is elected, unless unclean elections are allowed."),
    ("bound", "replicas must hold the same below this offset: the largest high watermark of any checkpoint, or one "
     "past the last record that a client was told of, if that is larger."),
    ("★", "the log that the others are compared with, unless it is damaged: of the newest leader epoch, then the "
     "longest; of equal ones the first, which is no better than they are."),
    ("reference", "the copy that is taken for right at one place: one without damage there. Where such copies "
     "differ, the finding says why it was chosen."),
    ("CRC", "a checksum in the batch's header over what follows it. The reader computes it again from the bytes."),
)  # fmt: skip
_ENGINE = (
    "engine",
    "what did the reading: local is plain Python on one machine, spark a Spark cluster. Both find the same.",
)
_SETTINGS = (
    ("acks", "what a producer waits for: 0 nothing, 1 the leader, all every in-sync replica."),
    ("min.insync.replicas", "how many replicas must be in sync for acks=all to be taken at all."),
    ("odradek.fsync", "when a broker flushes records to the disk: never by itself, or before-ack, before it confirms."),
)


def words(report: Report) -> SafeMarkup:
    """A list of terms: those of every page, the checks with a finding, and settings where they are shown."""
    entries = [*_ALWAYS]
    found = dict.fromkeys(finding.check for finding in report.findings)
    entries += [(check, f"a check: {CHECKS[check].title}.") for check in found]
    entries += _SETTINGS if report.configuration else ()
    entries.append(_ENGINE)
    listed = (join(tag("dt", term), tag("dd", meaning)) for term, meaning in entries)
    return join(tag("h2", "Words on this page", id="words"), tag("dl", *listed, class_="words"))
