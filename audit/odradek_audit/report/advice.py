"""What to do about a finding: steps in their order, the first of which changes nothing.

A copy is kept before anything else, for a damaged directory is evidence; then come the commands that show the place;
then what mends it. What mends depends on the kind of finding and on what the bytes say of its cause: a disk is looked
at where bytes changed, elections where two histories met. No step removes the only copy of anything: where two leaders
wrote, what each side alone has is read out first.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from odradek_audit.catalogue import CHECKS
from odradek_audit.excerpt import ACCUSED, REFERENCE, Excerpt
from odradek_audit.findings import ON_ALL, Finding, Kind
from odradek_audit.inputs.facts import METADATA_TOPIC
from odradek_audit.report.markup import Safe, join, name, shown, tag
from odradek_audit.wording import FEW_BYTES, UNDECIDED, is_lack
from odradek_audit.words import plain

BY_HARDWARE = ("crc-mismatch", "batch-unreadable", "torn-tail", "epoch-not-monotonic")
"""Checks whose findings a disk or a memory can make: the epoch and the base offset lie outside of the CRC."""
COMMAND_LIMIT = 600
SHOWN_COPIES = 5


def advice(finding: Finding, directories: Mapping[str, str]) -> Safe:
    """The steps for one finding. `directories` are the log directories that were read, by replica."""
    steps = [*_keep(finding, directories), *_look(finding, directories), *_mend(finding, directories)]
    return tag("ol", *(tag("li", step) for step in steps), class_="steps")


def _place(finding: Finding, replica: str, directories: Mapping[str, str]) -> str:
    """The partition's directory on a replica, or its log directory; empty when it is not known."""
    base = directories.get(replica, "").rstrip("/")
    if finding.evidence.get("no_directory"):
        return base
    return f"{base}/{finding.topic}-{finding.partition}" if base and finding.partition >= 0 else base


def _command(*words: str) -> Safe:
    return tag("code", shown(shlex.join(words), COMMAND_LIMIT), class_="command")


def _keep(finding: Finding, directories: Mapping[str, str]) -> list[Safe]:
    """Copies go outside of the log directory: a broker takes what lies in it for partitions."""
    several = CHECKS[finding.check].kind in (Kind.AGREEMENT, Kind.LOST)
    names = sorted(directories, key=lambda each: (each != finding.replica, each))
    several = several or len(finding.replicas) > 1
    wanted = names if several or finding.replica not in directories else [finding.replica]
    place = _place(finding, wanted[0], directories) if wanted else ""
    if not place:
        return [Safe("Keep a copy of the directories as they are, before anything changes them.")]
    whose = "every replica's directory" if len(wanted) > 1 else "the directory"
    said = f"Keep a copy of {whose} somewhere else, before a broker starts on it"
    if len(wanted) > 1:
        said += f"; of replica {plain(wanted[0], 40)} first"
    copies = [
        _command("cp", "-a", place, f"kept-{name.replace('/', '-')}-{place.rpartition('/')[2]}")
        for name in wanted[:SHOWN_COPIES]
        if (place := _place(finding, name, directories))
    ]
    return [join([f"{said}: ", join(copies, " ")])]


def _look(finding: Finding, directories: Mapping[str, str]) -> list[Safe]:
    """Commands that show the place."""
    steps = []
    place = _place(finding, finding.replica, directories)
    other = _place(finding, finding.other_replica or _reference(finding.excerpt), directories)
    if place and finding.file.endswith(".log"):
        words = ("odradek", "log", "dump", "--records", f"{place}/{finding.file}")
        which = "the batch behind them" if is_lack(finding) else "the batch"
        at = f" ({which} begins at position {finding.position})" if finding.position >= 0 else ""
        what = "the batches around what is missing" if is_lack(finding) else "the batch and those around it"
        steps.append(join([f"See {what}", at, ": ", _command(*words)]))
    elif place and finding.file:
        base = directories[finding.replica].rstrip("/")
        file = place if finding.partition >= 0 and finding.check != "checkpoint-order" else base
        steps.append(join(["See the file: ", _command("odradek", "log", "dump", f"{file}/{finding.file}")]))
    if place and other and place != other and finding.partition >= 0:
        steps.append(
            join(["Compare with the reference, batch by batch: ", _command("odradek", "log", "diff", other, place)])
        )
    return steps


def _reference(excerpt: Excerpt | None) -> str:
    side = excerpt.side(REFERENCE) if excerpt is not None else None
    return side.replica if side is not None else ""


def _mend(finding: Finding, directories: Mapping[str, str]) -> list[Safe]:
    kind = CHECKS[finding.check].kind
    if len(finding.replicas) > 1:
        return _shared(finding)
    if kind in (Kind.STRUCTURE, Kind.LOG) or (kind is Kind.AGREEMENT and _looks_changed(finding)):
        return [_changed(finding), *_replaced(finding)]
    if kind is Kind.AGREEMENT:
        return [_elections(finding), *_only_copy(finding, directories), *_replaced(finding)]
    if kind is Kind.LOST:
        return _lost(finding)
    if kind is Kind.TOLD:
        return [
            Safe(
                "Make sure that the history is whole: every client that wrote to the topic must be in it. Then look "
                "into that client's log at the time of the record. No replica needs to be replaced for this."
            )
        ]
    if kind is Kind.METADATA:
        return [
            join(
                [
                    "Read the decisions around the offset (",
                    _command("odradek", "log", "dump", "--cluster-metadata", f"…/{METADATA_TOPIC}-0"),
                    "), and compare the partition that it names with a history of what clients were told: no replica "
                    "needs to be replaced for this.",
                ]
            )
        ]
    if kind is Kind.GROUP:
        return [
            Safe(
                "Find out whether the topic lost records (other findings, elections), and whether it was made anew "
                "under its name. Then set the group's offset to one that the log has, while its consumers are stopped."
            )
        ]
    if kind is Kind.IDENTITY:
        return [
            Safe(
                "Look at what was given under which name, and at what is mounted where. Do not start a broker on a "
                "directory that is not its own."
            )
        ]
    if finding.partition < 0:
        return [
            Safe("Take the file from a backup of this broker, or give the broker an empty disk and let it copy all.")
        ]
    if finding.evidence.get("no_directory"):
        return [_restored(finding)]
    said = "The records are not concerned; what a broker believes when it starts is. "
    return [Safe(said + "The safe way is to give the broker a new copy."), *_replaced(finding)]


def _looks_changed(finding: Finding) -> bool:
    """Whether the bytes say that a copy was changed, and not that two brokers led."""
    excerpt = finding.excerpt
    if excerpt is None or not finding.evidence.get("same_epoch", finding.check == "epoch-fork"):
        return False
    batches = [side.batch for side in (excerpt.side(ACCUSED), excerpt.side(REFERENCE)) if side is not None]
    known = [batch for batch in batches if batch is not None]
    if len(known) != 2:
        return False
    return known[0].origin == known[1].origin or excerpt.differing_in_records <= FEW_BYTES


def _shared(finding: Finding) -> list[Safe]:
    """What several replicas have alike came to them from a leader: a copy of one mends none."""
    what = "lack the records" if is_lack(finding) else "have the damage"
    if ON_ALL in finding.evidence:
        again = (
            f"All {finding.evidence[ON_ALL]} replicas {what}, as where a leader wrote its log so and the others copied "
            "it: no copy mends another. What is left are the clients: send the records again from their source, with "
            "their keys."
        )
        return [shown(again)]
    bad = ", ".join(finding.replicas)
    sides = finding.excerpt.sides if finding.excerpt is not None else ()
    whole = [side.replica for side in sides if side.replica not in finding.replicas and side.batch is not None]
    good = f"replica {plain(whole[0], 40)}, which has the records," if whole else "a replica without it"
    return [
        shown(
            f"Replicas {bad} {what} alike. See that {good} leads the partition, with unclean elections off, before you "
            "replace any copy: what the leader lacks, the others lose."
        ),
        *_replaced(finding),
    ]


def _changed(finding: Finding) -> Safe:
    """Who can have changed bytes: a disk or a memory, unless the CRC was made right for them, or bytes taken out."""
    beside_log = not finding.file.endswith(".log") and not is_lack(finding)
    outside_crc = finding.check in BY_HARDWARE or "stored_offset" in finding.evidence
    if beside_log or outside_crc or not _is_right(finding):
        return _disk(finding)
    return join(
        [
            "No disk and no memory does this: what is there has the CRC of its bytes. A program did it. Look for what "
            "writes into the log directory of replica ",
            name(finding.replica),
            " besides its broker: a restore, a copy that was mixed up, a repair script, a second broker, somebody with "
            "an editor; and which version of the broker ran.",
        ]
    )


def _is_right(finding: Finding) -> bool:
    """Whether the batch at the place of the finding has the CRC that its header names; also where none is shown."""
    side = finding.excerpt.side(ACCUSED) if finding.excerpt is not None else None
    return side is None or side.batch is None or side.batch.computed_crc in (-1, side.batch.line.crc)


def _disk(finding: Finding) -> Safe:
    return join(
        [
            "Look at the disk and the memory of replica ",
            name(finding.replica),
            "'s machine: the kernel's log (",
            _command("dmesg", "-T"),
            "), the drive's own report (",
            _command("smartctl", "-a", "DEVICE"),
            "), RAID and ECC counters. Do not copy back to a disk that goes on failing.",
        ]
    )


def _only_copy(finding: Finding, directories: Mapping[str, str]) -> list[Safe]:
    """Where two leaders wrote, each side may hold acknowledged records that the other never had: they are read out
    before a copy goes."""
    if finding.offset < 0:
        return []
    last = max(finding.end_offset - 1, finding.offset)
    where = f"offset {finding.offset}" if last == finding.offset else f"offsets {finding.offset} to {last}"
    other = f"replica {plain(finding.other_replica, 40)}" if finding.other_replica else "another"
    kept = _place(finding, finding.replica, directories)
    steps = [
        shown(
            f"Replica {plain(finding.replica, 40)} has at {where} what {other} does not: it may be the only "
            "copy of acknowledged records. Read them out of the copy, and write those again, with their keys, "
            "that the others do not have; only then replace it"
        )
    ]
    if kept and finding.file.endswith(".log"):
        file = f"{kept}/{finding.file}"
        steps.append(join([": ", _command("odradek", "log", "dump", "--records", "--json", file)]))
    return [join([*steps, "."])]


def _elections(finding: Finding) -> Safe:
    return join(
        [
            f"Look at the elections around {f'leader epoch {finding.epoch}' if finding.epoch >= 0 else 'that time'}",
            ": whether unclean ones are allowed (",
            tag("code", "unclean.leader.election.enable"),
            "), whether ",
            tag("code", "odradek.truncation.mode"),
            " is ",
            tag("code", "high-watermark"),
            ", and what the controllers wrote: ",
            _command("odradek", "log", "dump", "--cluster-metadata", f"…/{METADATA_TOPIC}-0"),
        ]
    )


def _replaced(finding: Finding) -> list[Safe]:
    """How a damaged copy is replaced on a running cluster."""
    if UNDECIDED in finding.reference:
        return [
            Safe(
                "Nothing here says which copy is right. Compare the records with those who wrote them before you "
                "replace either."
            )
        ]
    if finding.topic == METADATA_TOPIC:
        return [
            Safe(
                "This is the metadata log, and beside it lies the voter's own vote. Treat it like a lost disk: one "
                "voter at a time, and only while the others have a leader and a majority without it."
            )
        ]
    partition, others = f"{finding.topic}-{finding.partition}", finding.replicas[1:]
    return [
        join(
            [
                "Replace the copy on a running cluster, when all other replicas are in the ISR (",
                _command("odradek", "topic", "describe", finding.topic),
                "): stop broker ",
                name(finding.replica),
                shown(f" (then {', '.join(others)}, one at a time)" if others else ""),
                ", move ",
                tag("code", shown(partition, 300)),
                " out of its log directory, start it. It copies the partition from the leader and joins the ISR "
                "again. Never while it is the last one in the ISR. Then audit again.",
            ]
        )
    ]


def _restored(finding: Finding) -> Safe:
    """How a replica whose directory is gone gets its records again."""
    if finding.evidence.get("nowhere"):
        return Safe(
            "No replica that was read has the partition. Keep the brokers stopped, and put back the directory from a "
            "backup, or from a broker that was not read: started now, they may begin the partition anew, empty."
        )
    return join(
        [
            "Look whether broker ",
            name(finding.replica),
            " is a replica of the partition at all (",
            _command("odradek", "topic", "describe", finding.topic),
            "). If it is, start it only while another replica leads: it copies the partition from the leader. Alone "
            "it could lead with an empty log, and the others would drop what they have.",
        ]
    )


def _lost(finding: Finding) -> list[Safe]:
    held = [str(each) for each in finding.evidence.get("held_by", [])]
    steps = []
    if held:
        steps.append(
            join(
                [
                    "The records are still on ",
                    "replica " if len(held) == 1 else "replicas ",
                    ", ".join(held),
                    ": keep that broker stopped until they are saved, for it cuts them off when it follows the leader.",
                ]
            )
        )
    else:
        steps.append(Safe("No copy that was read has them: what is left is what the clients themselves kept."))
    steps.append(Safe("Write them again with their keys. They get new offsets, behind what is there."))
    if _same_place_differs(finding.excerpt):
        steps.append(_changed(finding))
    else:
        steps.append(_elections(finding))
    return steps


def _same_place_differs(excerpt: Excerpt | None) -> bool:
    accused, other = (excerpt.side(role) if excerpt is not None else None for role in (ACCUSED, REFERENCE))
    mine, theirs = (side.batch if side is not None else None for side in (accused, other))
    return mine is not None and theirs is not None and mine.line.epoch == theirs.line.epoch and mine.line != theirs.line
