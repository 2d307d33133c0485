"""What is said first: the verdict in a sentence, and a short plain line for each finding, with the place in front."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from odradek_audit.catalogue import CHECKS, gravity
from odradek_audit.checks.directories import listed
from odradek_audit.findings import MERGED, Finding
from odradek_audit.report.last_copies import last_copies
from odradek_audit.report.losses import loss_sentences, lost_records, perhaps_gone
from odradek_audit.report.model import Report
from odradek_audit.results import Loss, LossCause
from odradek_audit.wording import is_lack
from odradek_audit.words import capital, count, noun, plain, plural, replicas_have

SHOWN_ABSENCES = 3
"""Replicas without some directory that the verdict names."""
VERDICTS = {"fine": "SURVIVED", "lost": "RECORDS LOST", "findings": "FINDINGS", "inconclusive": "INCONCLUSIVE"}


def verdict_word(report: Report) -> str:
    """The verdict in capitals."""
    return VERDICTS[report.verdict]


def verdict_sentences(report: Report) -> list[str]:
    """What one replica alone still has, for that can be lost yet; what is gone, if anything is, a line each; then why
    the verdict is what it is, in one sentence or two."""
    return [*last_copies(report), *loss_sentences(report), *perhaps_gone(report), _reason(report)]


def _reason(report: Report) -> str:
    if report.findings:
        partitions = {(finding.topic, finding.partition) for finding in report.findings}
        worst = merge_runs(sorted(report.findings, key=gravity))[0]
        found = f"{plural(len(report.findings), 'finding')} in {plural(len(partitions), 'partition')}."
        found += _not_counted(report.losses)
        if report.losses and worst.check == "acknowledged-lost":
            return found  # what is lost has just been said
        return f"{headline(worst)} {found}" if len(report.findings) > 1 else headline(worst)
    compared = (
        f"{plural(report.compared_records, 'copy of a record', 'copies of records')} compared on {compared_on(report)}"
    )
    if report.inconclusive:
        return f"Too little was compared to say that nothing is wrong ({compared}): {report.inconclusive[0]}."
    acknowledged = sum(partition.history.get("acknowledged", 0) for partition in report.partitions)
    owed = "records acknowledged with acks=all" if report.losses else "acknowledged records"
    kept = f", and all {count(acknowledged)} {owed} are there" if acknowledged else ""
    if report.absent:
        return f"{compared}: where there are copies they are equal{kept}. {absence(report)}.{left_out(report)}"
    return f"{compared}: all are equal{kept}.{left_out(report)}"


def _not_counted(losses: Sequence[Loss]) -> str:
    """Which lost records of acks=1 are behind no finding, in a sentence behind a space; empty where all are."""
    by_leader = [loss for loss in losses if loss.acks != "all"]
    gaps = [loss for loss in by_leader if loss.cause is LossCause.GAP]
    left = lost_records(by_leader) - lost_records(gaps)
    if not left:
        return ""
    places = listed(sorted({f"{plain(loss.topic, 80)}-{loss.partition}" for loss in gaps}))
    counted = f"; the {count(lost_records(gaps))} of {places} {noun(lost_records(gaps), 'is', 'are')}" if gaps else ""
    are = noun(left, "is", "are")
    return f" {count(left)} of the lost records, acknowledged with acks=1, {are} not counted as findings{counted}."


def left_out(report: Report) -> str:
    """What was not compared, in a sentence behind a space; empty where everything was."""
    above = sum(each.above_bound for each in report.partitions)
    alone = sum(each.on_one_replica for each in report.partitions)
    cleaned = sum(note.kind == "compacted-without-keys" for note in report.notes)
    parts = [
        f"{plural(above, 'offset')} above the bounds" if above else "",
        f"{plural(alone, 'offset')} that one replica alone has" if alone else "",
        f"{plural(cleaned, 'compacted partition')} with the history" if cleaned else "",
    ]
    said = ", ".join(part for part in parts if part)
    return f" Not compared: {said}." if said else ""


def counting(report: Report, marked: str) -> str:
    """What the numbers count, so that they can be added up. `marked` is the sign of the log that the others are
    compared with."""
    records = sum(replica.records for partition in report.partitions for replica in partition.replicas)
    batches = sum(replica.batches for partition in report.partitions for replica in partition.replicas)
    own = max(0, records - report.compared_records)
    return (
        f"All replicas together hold {plural(records, 'copy of a record', 'copies of records')} in "
        f"{plural(batches, 'copy of a batch', 'copies of batches')}. Compared are those that were laid beside the log "
        f"marked {marked}. The other {count(own)} copies of records are that log's own, or have none in it to compare."
    )


def of_history(report: Report) -> str:
    """How many of the records that clients were told of were looked for, and found; empty without a history."""
    numbers = Counter[str]()
    for partition in report.partitions:
        numbers.update(partition.history)
    asked, missing, cleaned = numbers["acknowledged"], numbers["missing"], numbers["cleaned_away"]
    parts = [
        f"{count(asked - missing - cleaned)} found",
        f"{count(missing)} missing" if missing else "",
        f"{count(cleaned)} removed by compaction" if cleaned else "",
    ]
    said = []
    if numbers["told"]:
        found = ", ".join(part for part in parts if part)
        told = plural(numbers["told"], "record")
        said.append(f"Of {told} acknowledged with acks=all, {plural(asked, 'was', 'were')} looked for: {found}.")
    if left := numbers["told"] - asked:
        said.append(f"{plural(left, 'was', 'were')} not: below a log start offset, or where bytes cannot be read.")
    if by_leader := numbers["acknowledged_by_leader"]:
        gone = sum(loss.records for loss in report.losses if loss.acks != "all")
        said.append(f"Of {plural(by_leader, 'record')} acknowledged with acks=1, {plural(gone, 'is', 'are')} gone.")
    return " ".join(said)


def compared_on(report: Report) -> str:
    """On how many replicas partitions were compared: all, fewer, or not on as many each."""
    given = len(report.replicas)
    had = sorted(len(partition.replicas) for partition in report.partitions)
    if not report.absent and not any(each.unread for each in report.partitions):
        return plural(given, "replica")
    few, many = had[0], had[-1]
    return f"{few} of {plural(given, 'replica')}" if few == many else f"{few} to {many} of {plural(given, 'replica')}"


def absence(report: Report) -> str:
    """Which replica has no directory of what, beginning with a capital letter, without a full stop; empty: none."""
    told = []
    for replica, lacks in report.absent.items():
        places = listed(f"{plain(each.topic, 80)}-{each.partition}" for each in lacks)
        told.append(f"replica {plain(replica, 40)} has no directory of {places}")
    said = "; ".join(told[:SHOWN_ABSENCES]) + (
        f"; and {len(told) - SHOWN_ABSENCES} more" if len(told) > SHOWN_ABSENCES else ""
    )
    return capital(said)


def merge_runs(findings: Iterable[Finding]) -> list[Finding]:
    """Runs of one check, replica and partition whose offsets follow on each other, as one finding each: four records
    lost in a row are one loss to a reader. Only the page does so; the files have every finding by itself."""
    merged: list[Finding] = []
    for finding in findings:
        last = merged[-1] if merged else None
        if last is not None and _follows(last, finding):
            evidence = last.evidence | {MERGED: last.weight + 1}
            merged[-1] = replace(last, end_offset=finding.end_offset, evidence=evidence)
        else:
            merged.append(finding)
    return merged


def _follows(last: Finding, finding: Finding) -> bool:
    same = ("check", "topic", "partition", "replicas", "other_replica")
    return (
        CHECKS[finding.check].told_in_runs
        and finding.offset == last.end_offset >= 0
        and all(getattr(last, name) == getattr(finding, name) for name in same)
        and last.evidence.get("held_by") == finding.evidence.get("held_by")
    )


def headline(finding: Finding) -> str:
    """One short sentence that names replica, partition and offset."""
    make = CHECKS[finding.check].headline
    if make is None:
        return _in_its_own_words(finding)
    alike = len(finding.replicas) > 1 and not is_lack(finding)
    others = f" R{replicas_have(finding.replicas[1:])[1:]} the same." if alike else ""
    return make(finding, f" in {finding.place}" if finding.place else "") + others


def _in_its_own_words(finding: Finding) -> str:
    said = finding.sentence.removeprefix(f"{finding.topic}-{finding.partition}: ")
    if finding.place:
        return f"In {finding.place}, {said}."
    return f"{capital(said)}."
