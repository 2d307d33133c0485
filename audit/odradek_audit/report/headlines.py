"""What is said first: the verdict in a sentence, and a short plain line for each finding, with the place in front."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odradek_proto.topics import TopicPartition

from odradek_audit.exhibit import ACCUSED, Side
from odradek_audit.findings import Finding, Severity
from odradek_audit.missing import listed
from odradek_audit.report.losses import loss_sentences
from odradek_audit.report.markup import count, plain
from odradek_audit.report.model import Report
from odradek_audit.report.records_html import batch_words, wrong_offsets
from odradek_audit.report.runs import merge_runs, weight
from odradek_audit.words import plural

GRAVITY = (
    "acknowledged-lost",
    "delivered-lost",
    "log-matching",
    "epoch-fork",
    "crc-mismatch",
    "batch-unreadable",
    "torn-tail",
    "offset-gap",
    "offset-not-increasing",
    "epoch-not-monotonic",
    "duplicated",
    "phantom",
    "failed-present",
    "reordered",
    "identity-mismatch",
)
"""The gravest first: what is gone, then what is wrong, then what only misleads. Others follow by their severity."""

SHOWN_ABSENCES = 3
"""Replicas without some directory that the verdict names."""
SURVIVED, FINDINGS, INCONCLUSIVE = "SURVIVED", "FINDINGS", "INCONCLUSIVE"
LOST = "RECORDS LOST"
"""No rule is broken, and acknowledged records are gone all the same: nobody would call that survived."""
VERDICTS = {"fine": SURVIVED, "findings": FINDINGS, "inconclusive": INCONCLUSIVE}


def gravity(finding: Finding) -> tuple[bool, int, str, int, str]:
    """Sorts findings of one partition, the gravest first."""
    place = GRAVITY.index(finding.check) if finding.check in GRAVITY else len(GRAVITY)
    return (finding.severity is not Severity.CRITICAL, place, finding.check, finding.offset, finding.replica)


def verdict_word(report: Report) -> str:
    """The verdict in capitals."""
    return LOST if report.losses and report.verdict == "fine" else VERDICTS[report.verdict]


def verdict_sentence(report: Report) -> str:
    """What is gone, if anything is; then why the verdict is what it is, in one sentence or two."""
    return " ".join([*loss_sentences(report.losses, len(report.replicas)), _reason(report)])


def _reason(report: Report) -> str:
    if report.findings:
        partitions = {(finding.topic, finding.partition) for finding in report.findings}
        worst = merge_runs(sorted(report.findings, key=gravity))[0]
        found = f"{plural(len(report.findings), 'finding')} in {plural(len(partitions), 'partition')}."
        if report.losses and worst.check == "acknowledged-lost":
            return found  # what is lost has just been said
        return f"{headline(worst)} {found}" if len(report.findings) > 1 else headline(worst)
    compared = f"{plural(report.compared_records, 'record')} compared on {compared_on(report)}"
    if report.inconclusive:
        return f"Too little was compared to say that nothing is wrong ({compared}): {report.inconclusive[0]}."
    acknowledged = sum(partition.history.get("acknowledged", 0) for partition in report.partitions)
    owed = "records acknowledged with acks=all" if report.losses else "acknowledged records"
    kept = f", and all {count(acknowledged)} {owed} are there" if acknowledged else ""
    if report.absent:
        return f"{compared}: where there are copies they are equal{kept}. {absence(report)}."
    return f"{compared}: all are equal{kept}."


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
    told = [
        f"replica {plain(replica, 40)} has no directory of {listed(map(_short, lacks))}"
        for replica, lacks in report.absent.items()
    ]
    said = "; ".join(told[:SHOWN_ABSENCES]) + (
        f"; and {len(told) - SHOWN_ABSENCES} more" if len(told) > SHOWN_ABSENCES else ""
    )
    return said[:1].upper() + said[1:]


def _short(place: TopicPartition) -> str:
    return f"{plain(place.topic, 80)}-{place.partition}"


def place_of(finding: Finding) -> str:
    """The partition, for people; empty for what belongs to none."""
    return f"{plain(finding.topic, 80)}-{finding.partition}" if finding.partition >= 0 else ""


def headline(finding: Finding) -> str:
    """One short sentence that names replica, partition and offset."""
    make = _HEADLINES.get(finding.check)
    where = f" in {place_of(finding)}" if place_of(finding) else ""
    if make is None:
        return _in_its_own_words(finding)
    return make(finding, where)


def _in_its_own_words(finding: Finding) -> str:
    said = finding.sentence.removeprefix(f"{finding.topic}-{finding.partition}: ")
    if place_of(finding):
        return f"In {place_of(finding)}, {said}."
    return f"{said[:1].upper()}{said[1:]}."


def _offsets(finding: Finding) -> str:
    last = finding.end_offset - 1
    if last > finding.offset:
        return f"offsets {finding.offset} to {last}"
    return f"offset {finding.offset}"


def _log_matching(finding: Finding, where: str) -> str:
    others = _agreeing(finding)
    span = finding.end_offset - finding.offset
    more = (
        f" and {plural(span - 1, 'offset')} behind it" if span > 1 and not finding.evidence.get("agree_again") else ""
    )
    side = _silent(finding)
    if side is not None and side.batch is not None:
        trouble = side.batch.trouble.partition(":")[0]
        hold = "hold another one" if others.startswith("replicas") else "holds another one"
        batch = f"a {batch_words(side, where)} that {trouble}"
        behind = 0 if finding.evidence.get("agree_again") else finding.end_offset - 1 - side.batch.line.last_offset
        more = f", and at {plural(behind, 'offset')} behind it" if behind > 0 else ""
        return f"Replica {finding.replica} holds {batch}; {others} {hold} there{more}."
    return f"Replica {finding.replica} holds another record than {others} at offset {finding.offset}{where}{more}."


def _silent(finding: Finding) -> Side | None:
    """The accused replica, if it has a batch at the place and no record of it can be shown."""
    side = finding.exhibit.side(ACCUSED) if finding.exhibit is not None else None
    trouble = side is not None and side.batch is not None and side.batch.trouble and not side.batch.records
    return side if trouble else None


def _agreeing(finding: Finding) -> str:
    names: Sequence[str] = finding.exhibit.agreeing if finding.exhibit is not None else ()
    names = [name for name in names if name != finding.replica] or [finding.other_replica or "?"]
    return f"replica {names[0]}" if len(names) == 1 else f"replicas {', '.join(names[:-1])} and {names[-1]}"


def _crc(finding: Finding, where: str) -> str:
    said = f"Replica {finding.replica} holds a damaged batch at {_offsets(finding)}{where}: its checksum is wrong"
    wrong = wrong_offsets(finding.exhibit) if finding.exhibit is not None else []
    if not wrong:
        return f"{said}."
    records = f"record {wrong[0]} is" if len(wrong) == 1 else f"records {wrong[0]} to {wrong[-1]} are"
    return f"{said}, and {records} not what {_agreeing(finding)} {_hold(finding)}."


def _hold(finding: Finding) -> str:
    return "hold" if finding.exhibit is not None and len(finding.exhibit.agreeing) > 1 else "holds"


def _unreadable(finding: Finding, where: str) -> str:
    return f"Replica {finding.replica} holds bytes that are no batch at offset {finding.offset}{where}."


def _gap(finding: Finding, where: str) -> str:
    if "stored_offset" in finding.evidence:
        wrong = finding.evidence["stored_offset"]
        return f"Replica {finding.replica} says offset {wrong} where {finding.offset} should stand{where}."
    return f"Replica {finding.replica} has no records at {_offsets(finding)}{where}."


def _not_increasing(finding: Finding, where: str) -> str:
    if "stored_offset" in finding.evidence:
        return _gap(finding, where)
    again = "a second time" if "previous_last_offset" in finding.evidence else "in the wrong order"
    return f"Replica {finding.replica} holds {_offsets(finding)} {again}{where}."


def _lost(finding: Finding, where: str) -> str:
    told = "acknowledged with acks=all" if finding.check == "acknowledged-lost" else "given to a consumer"
    if finding.offset < 0:
        return f"A record {told} is nowhere in the log{where}."
    if finding.evidence.get("records", 0) > 1:
        what = f"{count(finding.evidence['records'])} records {told} are lost{where}"
        return f"{what}: no replica that was read has the partition."
    one = weight(finding) == 1
    what = "The record" if one else f"{count(weight(finding))} records"
    record = f"{what} {told} at {_offsets(finding)}{where} {'is' if one else 'are'} lost"
    held = finding.evidence.get("held_by", [])
    if held:
        names = f"replica {held[0]} has" if len(held) == 1 else f"replicas {', '.join(held)} have"
        it = "it" if one else "them"
        return f"{record}: only {names} {it}, and replica {finding.replica}'s log is the one that counts."
    return f"{record}: replica {finding.replica}, whose log counts, does not have {'it' if one else 'them'}."


def _duplicated(finding: Finding, where: str) -> str:
    first = finding.evidence.get("first_offset", -1)
    return f"The record at offset {first} stands again at offset {finding.offset}{where}."


def _file(finding: Finding, where: str) -> str:
    return f"Replica {finding.replica}{where}: the file {finding.file} cannot be read."


def _checkpoint(finding: Finding, where: str) -> str:
    if finding.evidence.get("no_directory"):
        counted = f"its {finding.file} counts {plural(finding.end_offset - finding.offset, 'record')}"
        others = ", as no other has" if finding.evidence.get("nowhere") else ""
        return f"Replica {finding.replica} has no directory of {place_of(finding)}{others}, and {counted}."
    claimed = f"names offset {finding.end_offset} in {finding.file}"
    return f"Replica {finding.replica}{where} {claimed}, where nothing above {finding.offset} can be."


_HEADLINES: dict[str, Callable[[Finding, str], str]] = {
    "log-matching": _log_matching,
    "epoch-fork": _log_matching,
    "crc-mismatch": _crc,
    "batch-unreadable": _unreadable,
    "offset-gap": _gap,
    "offset-not-increasing": _not_increasing,
    "acknowledged-lost": _lost,
    "delivered-lost": _lost,
    "duplicated": _duplicated,
    "file-corrupt": _file,
    "checkpoint-order": _checkpoint,
}
