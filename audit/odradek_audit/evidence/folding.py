"""One damage, one finding: takes out findings that only follow from another one of the same replica.

A batch with a changed epoch differs from the other replicas' batch, a lost segment leaves a hole in a producer's
sequence, index entries that point into it, and an epoch that begins too late. Each is true, and tells nothing that the
cause does not tell. What is taken out stands in the cause's evidence as `consequences`.

What is wrong with many entries of one index, or of one leader epoch file, is told once, with their number. What is
wrong in the same way with several replicas is told once, with their names.

Rules of this module. A cause is a finding about one replica's own log, or a header that only one replica has (the same
CRC, another epoch), and only where its offsets (or its file, for indexes) cover what would be taken out: a difference
from another replica that goes on beyond the damaged batches stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from odradek_audit.catalogue import CHECKPOINT_ORDER, CHECKS, IDENTITY_MISMATCH, LOG_MATCHING
from odradek_audit.findings import ON_ALL, CheckKind, Finding
from odradek_audit.wording import is_lack
from odradek_audit.words import noun, plural, replicas_have

CONSEQUENCES, CONSEQUENCES_KEPT = "consequences", 10
CAUSES = (LOG_MATCHING.name, IDENTITY_MISMATCH.name, CHECKPOINT_ORDER.name)
"""Checks that are none of a replica's own log, and from whose findings others follow."""


def fold(findings: Sequence[Finding], replicas: int) -> list[Finding]:
    """The findings of one partition, of which so many replicas were read, without consequences, in the order given."""
    kept = list(findings)
    for explains in (
        _goes_on,
        _of_identity,
        _of_own_log,
        _of_lost_end,
        _of_agreement,
        _of_header,
        _of_changed_batch,
        _of_displaced_batch,
    ):
        kept = _without(kept, explains)
    return _once_for_all(_once_a_file(kept), replicas)


def _once_for_all(findings: list[Finding], replicas: int) -> list[Finding]:
    """A damage that replicas share, since they copied it: one finding where all but the replica's name is the same.
    What sets a replica against another one is told of each."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        alone = CHECKS[finding.check].kind not in (CheckKind.STRUCTURE, CheckKind.LOG, CheckKind.FILE)
        groups.setdefault(finding.to_json() if alone else _but_for_replica(finding), []).append(finding)
    return [_of_all(group, replicas) for group in groups.values()]


def _once_a_file(findings: list[Finding]) -> list[Finding]:
    """An index whose log was changed is wrong in every entry: the first finding of a file, and how many follow it."""
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        if CHECKS[finding.check].once_a_file:
            groups.setdefault((finding.check, finding.replica, finding.file), []).append(finding)
    first = {key: min(group, key=lambda each: (each.position, each.offset)) for key, group in groups.items()}
    kept = []
    for finding in findings:
        key = (finding.check, finding.replica, finding.file)
        if key not in first:
            kept.append(finding)
        elif finding is first[key]:
            kept.append(_with_more(finding, len(groups[key]) - 1))
    return kept


def _but_for_replica(finding: Finding) -> str:
    """Everything that a finding says, but for whose it is."""
    told = {key: value for key, value in finding.evidence.items() if key != CONSEQUENCES}
    sentence = finding.sentence.replace(f"replica {finding.replica}", "replica")
    return replace(finding, replica="", replicas=(), sentence=sentence, evidence=told, reference="").to_json()


def _of_all(group: Sequence[Finding], replicas: int) -> Finding:
    first, others = group[0], [each.replica for each in group[1:]]
    if not others:
        return first
    told = [each for finding in group for each in finding.evidence.get(CONSEQUENCES, ())]
    same = f"{noun(len(others), 'replica')} {', '.join(others)} {noun(len(others), 'lacks', 'lack')} them, too"
    if not is_lack(first):
        same = f"{replicas_have(others)} the same"
    return replace(
        first,
        replicas=(first.replica, *others),
        sentence=f"{first.sentence}; {same}",
        evidence=first.evidence
        | ({CONSEQUENCES: told} if told else {})
        | ({ON_ALL: len(group)} if len(group) == replicas else {}),
    )


def _with_more(finding: Finding, more: int) -> Finding:
    if not more:
        return finding
    entries = plural(more, "more entry", "more entries")
    return replace(
        finding,
        sentence=f"{finding.sentence}; and {entries} of this file",
        evidence={**finding.evidence, "more_entries": more},
    )


def _without(findings: list[Finding], explains: Callable[[Finding, Finding], bool]) -> list[Finding]:
    causes = [
        (place, finding)
        for place, finding in enumerate(findings)
        if CHECKS[finding.check].in_the_log or finding.check in CAUSES
    ]
    taken: dict[int, list[Finding]] = {}
    kept = []
    for place, finding in enumerate(findings):
        found = next((at for at, cause in causes if at != place and explains(cause, finding)), None)
        if found is None:
            kept.append((place, finding))
        else:
            taken.setdefault(found, []).append(finding)
    return [_with_consequences(finding, taken.get(place, ())) for place, finding in kept]


def _with_consequences(cause: Finding, consequences: Sequence[Finding]) -> Finding:
    if not consequences:
        return cause
    told = [*cause.evidence.get(CONSEQUENCES, ())]
    told += [{"check": each.check, "replica": each.replica, "offset": each.offset} for each in consequences]
    references = [each.reference for each in consequences if each.reference and each.replica == cause.replica]
    return replace(
        cause,
        reference=cause.reference or next(iter(references), ""),
        evidence={**cause.evidence, CONSEQUENCES: told[:CONSEQUENCES_KEPT]},
    )


def _touches(cause: Finding, begin: int, end: int) -> bool:
    """Whether a cause's offsets lie in [begin, end], the ends included: a hole ends where the next batch begins."""
    return cause.offset <= end and cause.end >= begin


def _goes_on(cause: Finding, finding: Finding) -> bool:
    """Bytes that are no batch, right behind a batch with a wrong CRC: the damage goes on, or the length is wrong. And
    records that cannot be decoded, since their batch says another number of them."""
    if (cause.check, finding.check) == ("record-count-mismatch", "batch-unreadable"):
        return (cause.replica, cause.file, cause.position) == (finding.replica, finding.file, finding.position)
    if cause.replica != finding.replica or (cause.check, finding.check) not in (
        ("crc-mismatch", "batch-unreadable"),
        ("crc-mismatch", "torn-tail"),
    ):
        return False
    end = cause.position + int(cause.evidence.get("size", 0))
    return cause.file == finding.file and cause.position < finding.position <= end


def _of_own_log(cause: Finding, finding: Finding) -> bool:
    """What the replica's other files, and its producers, seem to do wrong when a part of its log is damaged."""
    if cause.replica != finding.replica or not CHECKS[cause.check].in_the_log:
        return False
    if finding.check == "producer-snapshot-mismatch":
        return _breaks_producers(cause, finding)
    if CHECKS[cause.check].kind is not CheckKind.STRUCTURE:
        return False
    if finding.check == "epoch-cache-mismatch":
        recorded = int(finding.evidence.get("recorded_start", -1))
        begin = finding.offset if recorded < 0 else min(recorded, finding.offset)
        return _touches(cause, begin, max(recorded, finding.offset))
    if finding.check == "index-unsound":
        return finding.file.partition(".")[0] == cause.file.partition(".")[0] or _touches(
            cause, finding.offset, finding.offset
        )
    if finding.check == "checkpoint-order":
        return _touches(cause, finding.offset, finding.offset)
    return _breaks_producers(cause, finding)


def _breaks_producers(cause: Finding, finding: Finding) -> bool:
    """What follows for producers and transactions when batches are missing or changed."""
    if finding.check == "producer-snapshot-mismatch":
        return cause.offset < int(finding.evidence["snapshot_offset"])
    if finding.check in ("sequence-gap", "producer-epoch-not-monotonic"):
        begin = min(int(finding.evidence.get("previous_offset", finding.offset)), finding.offset)
        return _touches(cause, begin, finding.end)
    return finding.check == "transaction-mismatch" and cause.offset <= finding.offset


def _of_lost_end(cause: Finding, finding: Finding) -> bool:
    """Index entries of an end that the log has lost, and that a checkpoint has counted."""
    lost = cause.check == CHECKPOINT_ORDER.name and cause.replica == finding.replica
    return lost and finding.check in ("index-unsound", "transaction-mismatch") and finding.offset >= cause.offset


def _of_agreement(cause: Finding, finding: Finding) -> bool:
    """A difference between two replicas where one of them has a damaged batch, and nothing else differs."""
    if CHECKS[finding.check].kind is not CheckKind.AGREEMENT or not CHECKS[cause.check].in_the_log:
        return False
    if cause.replica not in (finding.replica, finding.other_replica):
        return False
    here = (cause.replica, cause.file, cause.position) == (finding.replica, finding.file, finding.position)
    if here and finding.end_offset <= finding.evidence.get("batch_offsets", [-1, -1])[1] + 1:
        return True  # a batch that says another offset differs there, too
    return cause.offset <= finding.offset and finding.end_offset <= cause.end


def _of_identity(cause: Finding, finding: Finding) -> bool:
    """Other records in a directory that says itself that it is another topic's."""
    if cause.check != IDENTITY_MISMATCH.name or CHECKS[finding.check].kind is not CheckKind.AGREEMENT:
        return False
    return cause.replica in (finding.replica, finding.other_replica)


def _of_changed_batch(cause: Finding, finding: Finding) -> bool:
    """What the replica's other files, and its producers, say against a batch that only this replica holds so."""
    differs = cause.check == LOG_MATCHING.name or any(
        each["check"] == LOG_MATCHING.name for each in cause.evidence.get(CONSEQUENCES, ())
    )
    if not differs or cause.replica != finding.replica:
        return False
    if finding.check == "index-unsound":
        stem, _, kind = finding.file.partition(".")
        moved = len(set(cause.evidence.get("sizes", ()))) > 1  # what is behind a batch of another size lies elsewhere
        later = (kind == "timeindex" or moved) and cause.file.startswith(stem) and cause.offset <= finding.offset
        return later or _touches(cause, finding.offset, finding.offset)  # a time entry speaks of all records before it
    return _breaks_producers(cause, finding)


def _of_header(cause: Finding, finding: Finding) -> bool:
    """An epoch that the replica's own leader epoch file does not have there, in a header that differs from another
    replica's in nothing else."""
    if cause.check != LOG_MATCHING.name or finding.check != "epoch-cache-mismatch" or cause.replica != finding.replica:
        return False
    told = cause.evidence
    same = told.get("crc") == told.get("other_crc") and told.get("batch_offsets") == told.get("other_batch_offsets")
    recorded = finding.evidence.get("recorded_start", -1)
    begins = [finding.offset, finding.offset if recorded < 0 else recorded]
    return same and all(cause.offset <= begin <= cause.end for begin in begins)


def _of_displaced_batch(cause: Finding, finding: Finding) -> bool:
    """The hole that a batch left which stands in another place of the file, and two batches that say each other's
    offset."""
    if cause.replica != finding.replica or "offset-not-increasing" not in (cause.check, finding.check):
        return False
    if finding.check == "offset-gap" and (cause.offset, cause.end) == (finding.offset, finding.end):
        return True
    said, other = (each.evidence.get("stored_offset") for each in (cause, finding))
    return cause.offset < finding.offset and (said, other) == (finding.offset, cause.offset)
