"""What probably caused a finding, and how the page says it in a line: the words that `catalogue` gives to its checks.

A finding is a fact; its cause is a suspicion, from the log directories alone. Where the bytes of a sound replica are
at hand, it says how many of them differ, for one flipped bit tells another story than a thousand other bytes. Where two
things may have happened, the likelier one comes first and the sentence says why.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_audit.excerpt import ACCUSED, REFERENCE, Excerpt, ExcerptSide, batch_words, wrong_offsets
from odradek_audit.findings import ON_ALL, Finding
from odradek_audit.words import capital, count, noun, offsets, plural, replicas_have

FEW_BYTES = 16
"""Up to so many other bytes are a change of one batch; two brokers' batches have other times, counts and values."""
UNDECIDED = "no majority says which copy is right"
"""In a finding's `reference`, where nothing tells."""
LOST_ITS_END = (
    "the log lost its end after the checkpoint was written: a power loss without a flush, or a file that was cut"
)
EXCHANGED = "two batches changed places in the file"


# --- Causes -----------------------------------------------------------------------------------------------------------


def cause_of_crc(finding: Finding) -> str:
    flipped = _flipped(finding.excerpt)
    return f"bits changed on the disk or on the way to it{flipped}; the broker that wrote it had a right CRC"


def cause_of_difference(finding: Finding) -> str:
    evidence = finding.evidence
    if evidence.get("same_epoch"):
        return cause_of_fork(finding)
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


def cause_of_fork(finding: Finding) -> str:
    """Other bytes in one leader epoch: a changed copy, or two leaders. The bytes say which is likelier."""
    excerpt = finding.excerpt
    copy = "one of the copies" if UNDECIDED in finding.reference else "this copy"
    changed = f"{copy} was changed after it was written, and its CRC made right"
    leaders = f"two brokers led in epoch {finding.epoch}"
    mine, theirs = finding.batch(ACCUSED), finding.batch(REFERENCE)
    if excerpt is None or mine is None or theirs is None:
        return f"{changed}; or {leaders}. The bytes that would say which is likelier are not at hand"
    same_origin = mine.origin == theirs.origin
    if excerpt.differing_in_records <= FEW_BYTES or (same_origin and mine.producer_id >= 0):
        why = "their batches would differ in times, producers and more than a few bytes"
        return f"{changed}{_flipped(excerpt)}. Much less likely: {leaders}; {why}"
    if same_origin:
        return f"{changed}{_flipped(excerpt)}; or {leaders}. Count and time are the same, and no producer is named"
    bytes_differ = plural(excerpt.differing_bytes, "byte differs", "bytes differ")
    why = f"{bytes_differ}, and offsets, producer, count or time of the batch"
    return f"{leaders}, and each appended a batch of its own ({why}). Less likely: {changed}"


def cause_of_checkpoint(finding: Finding) -> str:
    if finding.evidence.get("no_directory"):
        return (
            "the partition's directory was removed, or not copied with the others, after the broker had stopped. Less "
            "likely: the replica was reassigned away and its broker killed before it had written the file anew"
        )
    return LOST_ITS_END


def _follows(finding: Finding, check: str, offset: int) -> bool:
    """Whether another finding, at an offset, stands among its consequences."""
    return any((each["check"], each["offset"]) == (check, offset) for each in finding.evidence.get("consequences", ()))


def cause_of_gap(finding: Finding) -> str:
    if _follows(finding, "offset-not-increasing", finding.evidence.get("stored_offset", -1)):
        return EXCHANGED
    if "stored_offset" in finding.evidence:
        return "the base offset in the header was changed; the CRC does not cover it, and the records are all there"
    if "log_end" in finding.evidence:
        return "the end of the log was removed and its last, empty file was not; or that file came from another log"
    lacked = finding.excerpt.lacked if finding.excerpt is not None else None
    what = (
        f"{plural(lacked.batches, 'batch', 'batches')} ({plural(lacked.size, 'byte')})" if lacked else "a batch or more"
    )
    was = "was" if lacked and lacked.batches == 1 else "were"
    removed = f"{what} {was} removed from the file, or never written to it, and the log was appended to all the same"
    if ON_ALL in finding.evidence:
        return f"{removed}; all replicas lack the same, as where a leader's log did when they copied it"
    return removed


def cause_of_epoch(finding: Finding) -> str:
    deposed = "records of a deposed leader were appended behind a newer epoch's"
    changed = "the header was changed: the CRC does not cover the epoch"
    around = finding.evidence.get("epochs_around", [])
    if any((finding.epoch ^ epoch).bit_count() == 1 for epoch in around if epoch >= 0):
        return (
            f"one bit of the epoch in the batch's header was changed; the CRC does not cover it ({_from_to(finding)})"
        )
    if finding.evidence.get("batches", 1) == 1 and len(around) == 2:
        return f"{changed} ({_from_to(finding)}). Less likely: {deposed}"
    return f"{deposed}, or {changed}"


def _from_to(finding: Finding) -> str:
    epochs = " or ".join(f"{epoch}" for epoch in dict.fromkeys(finding.evidence["epochs_around"]))
    return f"epoch {epochs} became {finding.epoch}"


def cause_of_repetition(finding: Finding) -> str:
    if "foreign" in finding.evidence:
        return "files changed their names or their places, as by a copy or a restore that was mixed up"
    if "stored_offset" in finding.evidence:
        return "the base offset in the header was changed; the CRC does not cover it, and the records are all there"
    if "log_end" in finding.evidence:
        return "a file was made by hand, or copied from another log without its bytes"
    if "previous_last_offset" not in finding.evidence:
        return EXCHANGED
    if _follows(finding, "offset-gap", finding.offset):
        return "batches changed their places in the file"
    return "a batch was appended twice, or appended behind an end that had not been cut"


def cause_of_leader_epoch(finding: Finding) -> str:
    if "decided_for" in finding.evidence:
        return (
            "the controller did not raise the leader epoch: two leaders wrote in one; or the metadata log was changed"
        )
    return "the epoch in the batches' headers was changed, which no CRC covers; or somebody led whom nobody had elected"


def cause_of_loss(finding: Finding) -> str:
    held = finding.evidence.get("held_by", [])
    excerpt = finding.excerpt
    if _same_epoch_elsewhere(excerpt):
        return f"replica {finding.replica}'s copy of the batch was changed after it was written{_flipped(excerpt)}"
    if held:
        return (
            "the record was acknowledged, and cut off or overwritten at a change of leader; "
            f"{replicas_have(held, 'still ')} it"
        )
    ends = excerpt is not None and all(side.absent.startswith("the log ends") for side in excerpt.sides)
    if ends:
        return "every replica's log ends before it: nobody had flushed it when the power failed, or all truncated it"
    return (
        "the record was acknowledged before every in-sync replica had it, or replaced by another at a change of leader"
    )


def _same_epoch_elsewhere(excerpt: Excerpt | None) -> bool:
    """Whether another replica holds other bytes of the same leader epoch there, so that no election explains it."""
    if excerpt is None or excerpt.differing_bytes <= 0:
        return False
    epochs = [side.batch.line.epoch for side in excerpt.sides[:2] if side.batch is not None]
    return len(epochs) == 2 and epochs[0] == epochs[1]


def _flipped(excerpt: Excerpt | None) -> str:
    """How many bytes differ from the reference, and the bit when it is one, whatever a new CRC in the header is."""
    if excerpt is None or excerpt.differing_bytes <= 0:
        return ""
    in_header = excerpt.differing_bytes - excerpt.differing_in_records
    if (excerpt.differing_in_records or in_header) > 1:
        return f" ({excerpt.differing_bytes:,} bytes of the batch differ)"
    beside = f", and {plural(in_header, 'byte')} of the header" if excerpt.differing_in_records and in_header else ""
    place = excerpt.first_difference
    values = []
    for side in excerpt.sides[:2]:
        for window in side.batch.windows if side.batch is not None else ():
            if window.start <= place < window.end:
                values.append(window.content[place - window.start])
    if len(values) != 2:
        return f" (one byte of the batch differs{beside})"
    bits = (values[0] ^ values[1]).bit_count()
    what = f"{'one bit' if bits == 1 else f'{bits} bits'} of the batch's byte {place}"
    return f" ({what}: {values[1]:#04x} became {values[0]:#04x}{beside})"


# --- Headlines --------------------------------------------------------------------------------------------------------


def _offsets(finding: Finding) -> str:
    return offsets(finding.offset, finding.end_offset)


def headline_of_difference(finding: Finding, where: str) -> str:
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
    excerpt = finding.excerpt
    if excerpt is not None and excerpt.differing_bytes and not excerpt.differing_in_records:
        header = f"another batch header than {others} at offset {finding.offset}{where}, around equal records"
        return f"Replica {finding.replica} holds {header}{more}."
    return f"Replica {finding.replica} holds another record than {others} at offset {finding.offset}{where}{more}."


def _silent(finding: Finding) -> ExcerptSide | None:
    """The accused replica, if it has a batch at the place and no record of it can be shown."""
    side = finding.side(ACCUSED)
    trouble = side is not None and side.batch is not None and side.batch.trouble and not side.batch.records
    return side if trouble else None


def _agreeing(finding: Finding) -> str:
    names: Sequence[str] = finding.excerpt.agreeing if finding.excerpt is not None else ()
    return name_replicas([name for name in names if name != finding.replica] or [finding.other_replica or "?"])


def name_replicas(names: Sequence[str]) -> str:
    """`replica 1`, `replicas 1, 2 and 3`."""
    return f"replica {names[0]}" if len(names) == 1 else f"replicas {', '.join(names[:-1])} and {names[-1]}"


def headline_of_crc(finding: Finding, where: str) -> str:
    said = f"Replica {finding.replica} holds a damaged batch at {_offsets(finding)}{where}: its checksum is wrong"
    wrong = wrong_offsets(finding.excerpt) if finding.excerpt is not None else []
    if not wrong:
        return f"{said}."
    records = f"record {wrong[0]} is" if len(wrong) == 1 else f"records {wrong[0]} to {wrong[-1]} are"
    return f"{said}, and {records} not what {_agreeing(finding)} {_hold(finding)}."


def _hold(finding: Finding) -> str:
    return "hold" if finding.excerpt is not None and len(finding.excerpt.agreeing) > 1 else "holds"


def headline_of_unreadable(finding: Finding, where: str) -> str:
    return f"Replica {finding.replica} holds bytes that are no batch at offset {finding.offset}{where}."


def headline_of_gap(finding: Finding, where: str) -> str:
    if "stored_offset" in finding.evidence:
        wrong = finding.evidence["stored_offset"]
        return f"Replica {finding.replica} says offset {wrong} where {finding.offset} should stand{where}."
    them = noun(finding.end_offset - finding.offset, "it", "them")
    if finding.evidence.get(ON_ALL):
        return (
            f"All {finding.evidence[ON_ALL]} replicas lack {_offsets(finding)}{where}: none that was read has {them}."
        )
    lacks = f"{name_replicas(finding.replicas)} {noun(len(finding.replicas), 'lacks', 'lack')}"
    sides = finding.excerpt.sides if finding.excerpt is not None else ()
    have = [side.replica for side in sides if side.batch is not None and side.batch.line.holds(finding.offset)]
    rest = f"; {name_replicas(have)} {noun(len(have), 'has', 'have')} {them}" if have else ""
    return f"{capital(lacks)} {_offsets(finding)}{where}{rest}."


def is_lack(finding: Finding) -> bool:
    """Whether records are not there, in place of something that is wrong with them."""
    return finding.check == "offset-gap" and "stored_offset" not in finding.evidence


def headline_of_epoch(finding: Finding, where: str) -> str:
    where = f"at {_offsets(finding)}{where}"
    return f"Replica {finding.replica} names leader epoch {finding.epoch} {where}, where it cannot be."


def headline_of_repetition(finding: Finding, where: str) -> str:
    if "foreign" in finding.evidence:
        first, end = finding.evidence["foreign"]
        return f"Replica {finding.replica} holds offsets {first} to {end - 1} in another segment's file{where}."
    if "stored_offset" in finding.evidence:
        return headline_of_gap(finding, where)
    if "log_end" in finding.evidence:
        return f"Replica {finding.replica} has an empty file inside of its log at {_offsets(finding)}{where}."
    twice = "previous_last_offset" in finding.evidence and not _follows(finding, "offset-gap", finding.offset)
    again = "a second time" if twice else "in the wrong order"
    return f"Replica {finding.replica} holds {_offsets(finding)} {again}{where}."


def headline_of_loss(finding: Finding, where: str) -> str:
    told = "acknowledged with acks=all" if finding.check == "acknowledged-lost" else "given to a consumer"
    if finding.offset < 0:
        return f"A record {told} is nowhere in the log{where}."
    if finding.evidence.get("records", 0) > 1:
        what = f"{count(finding.evidence['records'])} records {told} are lost{where}"
        return f"{what}: no replica that was read has the partition."
    one = finding.weight == 1
    what = "The record" if one else f"{count(finding.weight)} records"
    record = f"{what} {told} at {_offsets(finding)}{where} {'is' if one else 'are'} lost"
    held = finding.evidence.get("held_by", [])
    if held:
        it = "it" if one else "them"
        return f"{record}: only {replicas_have(held)} {it}, and replica {finding.replica}'s log is the one that counts."
    return f"{record}: replica {finding.replica}, whose log counts, does not have {'it' if one else 'them'}."


def headline_of_duplicate(finding: Finding, where: str) -> str:
    first = finding.evidence.get("first_offset", -1)
    return f"The record at offset {first} stands again at offset {finding.offset}{where}."


def headline_of_file(finding: Finding, where: str) -> str:
    return f"Replica {finding.replica}{where}: the file {finding.file} cannot be read."


def headline_of_checkpoint(finding: Finding, where: str) -> str:
    if finding.evidence.get("no_directory"):
        counted = f"its {finding.file} counts {plural(finding.end_offset - finding.offset, 'record')}"
        others = ", as no other has" if finding.evidence.get("nowhere") else ""
        return f"Replica {finding.replica} has no directory of {finding.place}{others}, and {counted}."
    claimed = f"names offset {finding.end_offset} in {finding.file}"
    return f"Replica {finding.replica}{where} {claimed}, where nothing above {finding.offset} can be."
