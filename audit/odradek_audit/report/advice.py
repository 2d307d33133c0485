"""Where to look after a finding, and what to do about one that is none of a partition's copies.

First come the commands that show the place, then what to look at for its cause: a disk where bytes changed, elections
where two histories met. How copies are replaced is said once for the partition: `repair`.
"""

from __future__ import annotations

from collections.abc import Mapping

from odradek_audit.catalogue import CHECKS
from odradek_audit.excerpt import ACCUSED, REFERENCE
from odradek_audit.findings import CheckKind, Finding
from odradek_audit.inputs.facts import METADATA_TOPIC
from odradek_audit.report.markup import SafeMarkup, command, join, name, shown, tag
from odradek_audit.report.repair import is_fork
from odradek_audit.wording import is_lack

BY_HARDWARE = ("crc-mismatch", "batch-unreadable", "torn-tail", "epoch-not-monotonic")
"""Checks whose findings a disk or a memory can make: the epoch and the base offset lie outside of the CRC."""
_SAID = {
    CheckKind.TOLD: "Make sure that the history is whole: every client that wrote to the topic must be in it. Then "
    "look into that client's log at the time of the record. No replica needs to be replaced for this.",
    CheckKind.GROUP: "Find out whether the topic lost records (other findings, elections), and whether it was made "
    "anew under its name. Then set the group's offset to one that the log has, while its consumers are stopped.",
    CheckKind.IDENTITY: "Look at what was given under which name, and at what is mounted where. Do not start a broker "
    "on a directory that is not its own.",
}


def advice(finding: Finding, directories: Mapping[str, str]) -> SafeMarkup:
    """The steps for one finding. `directories` are the log directories that were read, by replica."""
    steps = [*_look(finding, directories), *_mend(finding)]
    return tag("ol", *(tag("li", step) for step in steps), class_="steps")


def _place(finding: Finding, replica: str, directories: Mapping[str, str]) -> str:
    """The partition's directory on a replica, or its log directory; empty when it is not known."""
    base = directories.get(replica, "").rstrip("/")
    if finding.evidence.get("no_directory"):
        return base
    return f"{base}/{finding.topic}-{finding.partition}" if base and finding.partition >= 0 else base


def _look(finding: Finding, directories: Mapping[str, str]) -> list[SafeMarkup]:
    """Commands that show the place."""
    steps = []
    place = _place(finding, finding.replica, directories)
    reference = finding.side(REFERENCE)
    named = finding.other_replica or (reference.replica if reference is not None else "")
    other = _place(finding, named, directories)
    if place and finding.file.endswith(".log"):
        words = ("odradek", "log", "dump", "--records", f"{place}/{finding.file}")
        which = "the batch behind them" if is_lack(finding) else "the batch"
        at = f" ({which} begins at position {finding.position})" if finding.position >= 0 else ""
        what = "the batches around what is missing" if is_lack(finding) else "the batch and those around it"
        steps.append(join(f"See {what}", at, ": ", command(*words)))
    elif place and finding.file:
        base = directories[finding.replica].rstrip("/")
        file = place if finding.partition >= 0 and finding.check != "checkpoint-order" else base
        steps.append(join("See the file: ", command("odradek", "log", "dump", f"{file}/{finding.file}")))
    if place and other and place != other and finding.partition >= 0:
        steps.append(
            join("Compare with the reference, batch by batch: ", command("odradek", "log", "diff", other, place))
        )
    return steps


def _mend(finding: Finding) -> list[SafeMarkup]:
    kind = CHECKS[finding.check].kind
    if len(finding.replicas) > 1:
        return [_shared(finding)]
    if kind is CheckKind.AGREEMENT and is_fork(finding):
        return [_elections(finding)]
    if kind in (CheckKind.STRUCTURE, CheckKind.LOG, CheckKind.AGREEMENT):
        return [_changed(finding)]
    if kind is CheckKind.LOST:
        return _lost(finding)
    if kind is CheckKind.METADATA:
        return [
            join(
                "Read the decisions around the offset (",
                command("odradek", "log", "dump", "--cluster-metadata", f"…/{METADATA_TOPIC}-0"),
                "), and compare the partition that it names with a history of what clients were told: no replica "
                "needs to be replaced for this.",
            )
        ]
    if kind in _SAID:
        return [SafeMarkup(_SAID[kind])]
    if finding.partition < 0:
        return [
            SafeMarkup(
                "Take the file from a backup of this broker, or give the broker an empty disk and let it copy all."
            )
        ]
    if finding.evidence.get("no_directory"):
        return [_restored(finding)]
    said = "The records are not concerned; what a broker assumes when it starts is. "
    return [SafeMarkup(said + "The safe way is to give the broker a new copy.")]


def _shared(finding: Finding) -> SafeMarkup:
    what = "lack the records" if is_lack(finding) else "have the damage"
    return shown(
        f"Replicas {', '.join(finding.replicas)} {what} alike, as where a leader wrote its log so and the others "
        "copied it. Look for which of them led then, and for what writes into its log directory besides its broker."
    )


def _changed(finding: Finding) -> SafeMarkup:
    """Who can have changed bytes: a disk or a memory, unless the CRC was made right for them, or bytes taken out."""
    beside_log = not finding.file.endswith(".log") and not is_lack(finding)
    outside_crc = finding.check in BY_HARDWARE or "stored_offset" in finding.evidence
    if beside_log or outside_crc or not _is_right(finding):
        return _disk(finding)
    return join(
        "A disk error does not leave a right CRC, and what is there has one. Something wrote it: a program, or "
        "memory that failed before the CRC was computed. Look for what writes into the log directory of replica ",
        name(finding.replica),
        " besides its broker: a restore, a copy that was mixed up, a repair script, a second broker, somebody with "
        "an editor; and which version of the broker ran.",
    )


def _is_right(finding: Finding) -> bool:
    """Whether the batch at the place of the finding has the CRC that its header names; also where none is shown."""
    batch = finding.batch(ACCUSED)
    return batch is None or batch.computed_crc in (-1, batch.line.crc)


def _disk(finding: Finding) -> SafeMarkup:
    return join(
        "Look at the disk and the memory of replica ",
        name(finding.replica),
        "'s machine: the kernel's log (",
        command("dmesg", "-T"),
        "), the drive's own report (",
        command("smartctl", "-a", "DEVICE"),
        "), RAID and ECC counters. Do not copy back to a disk that goes on failing.",
    )


def _elections(finding: Finding) -> SafeMarkup:
    return join(
        f"Look at the elections around {f'leader epoch {finding.epoch}' if finding.epoch >= 0 else 'that time'}",
        ": whether unclean ones are allowed (",
        tag("code", "unclean.leader.election.enable"),
        "), whether ",
        tag("code", "odradek.truncation.mode"),
        " is ",
        tag("code", "high-watermark"),
        ", and what the controllers wrote: ",
        command("odradek", "log", "dump", "--cluster-metadata", f"…/{METADATA_TOPIC}-0"),
    )


def _restored(finding: Finding) -> SafeMarkup:
    """How a replica whose directory is gone gets its records again."""
    if finding.evidence.get("nowhere"):
        return SafeMarkup(
            "No replica that was read has the partition. Keep the brokers stopped, and put back the directory from a "
            "backup, or from a broker that was not read: started now, they may begin the partition anew, empty."
        )
    return join(
        "Look whether broker ",
        name(finding.replica),
        " is a replica of the partition at all (",
        command("odradek", "topic", "describe", finding.topic),
        "). If it is, start it only while another replica leads: it copies the partition from the leader. Alone "
        "it could lead with an empty log, and the others would drop what they have.",
    )


def _lost(finding: Finding) -> list[SafeMarkup]:
    held = [str(each) for each in finding.evidence.get("held_by", [])]
    steps = []
    if held:
        steps.append(
            join(
                "The records are still on ",
                "replica " if len(held) == 1 else "replicas ",
                ", ".join(held),
                ": keep that broker stopped until they are saved, for it cuts them off when it follows the leader.",
            )
        )
    else:
        steps.append(SafeMarkup("No copy that was read has them: what is left is what the clients themselves kept."))
    steps.append(SafeMarkup("Write them again with their keys. They get new offsets, behind what is there."))
    steps.append(_changed(finding) if _same_place_differs(finding) else _elections(finding))
    return steps


def _same_place_differs(finding: Finding) -> bool:
    mine, theirs = finding.batch(ACCUSED), finding.batch(REFERENCE)
    return mine is not None and theirs is not None and mine.line.epoch == theirs.line.epoch and mine.line != theirs.line
