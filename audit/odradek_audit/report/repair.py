"""How the copies of a partition are repaired: once per partition, for two findings may concern two of its replicas.

A follower copies from the leader whatever the leader holds. So the advice must not let a wrong copy lead while another
one is replaced. It asks of each replica whether it is right at the places of all findings of its partition. One that
is becomes the leader, is checked, and only then are the others replaced, one after another. If none is, no copy is
replaced before the records that each has right were read out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from odradek_audit.catalogue import CHECKS
from odradek_audit.excerpt import ACCUSED, REFERENCE
from odradek_audit.findings import ON_ALL, CheckKind, Finding
from odradek_audit.inputs.facts import METADATA_TOPIC
from odradek_audit.report.markup import COMMAND_LIMIT, SafeMarkup, command, join, name, shown, tag
from odradek_audit.results import PartitionSummary, ReplicaSummary
from odradek_audit.wording import FEW_BYTES, UNDECIDED
from odradek_audit.words import capital, noun, offsets, plain, plural

OF_A_COPY = (CheckKind.STRUCTURE, CheckKind.LOG, CheckKind.AGREEMENT, CheckKind.FILE, CheckKind.LOST)
SHOWN_PLACES = 12
SHOWN_COPIES = 40
_KAFKA = "With Apache Kafka's tools"
_SERVER = ("--bootstrap-server", "HOST:PORT")
_READ_OUT = ("odradek", "log", "dump", "--segments", "--records", "--json")


def concerns_a_copy(finding: Finding) -> bool:
    """Whether the replica of a finding has a copy that may have to be replaced."""
    return (
        finding.partition >= 0 and CHECKS[finding.check].kind in OF_A_COPY and not finding.evidence.get("no_directory")
    )


def kept(replica: str, *inside: str) -> str:
    """Where the copy of a replica's log directory goes, outside of it: a broker takes what lies in it for
    partitions. `mkdir` fails where there is one already."""
    return "/".join([f"/var/tmp/odradek-kept-{replica.replace('/', '-')}", *inside])


def keep_copies(directories: Mapping[str, str], accused: Sequence[str]) -> SafeMarkup:
    """One command for each directory that was read, those with a finding first."""
    ordered = sorted(directories, key=lambda each: (each not in accused, each))
    lines = [
        tag(
            "li",
            command("mkdir", kept(each)),
            " && ",
            command("cp", "-a", f"{directories[each].rstrip('/')}/.", kept(each)),
        )
        for each in ordered[:SHOWN_COPIES]
    ]
    if more := len(ordered) - len(lines):
        lines.append(tag("li", f"and {plural(more, 'other directory', 'other directories')} in the same way."))
    said = (
        "Pause the producers, stop the brokers, and keep a copy of every log directory, whole: a broker that starts on "
        "the damage may change it. These are the directories that were read. If they are copies already, keep those, "
        "and run the commands on the brokers' machines with each broker's own log directory (log.dirs) in their place."
    )
    return join(tag("h2", "First of all: keep copies", id="keep"), tag("p", said), tag("ol", *lines, class_="steps"))


def repair(findings: Sequence[Finding], summary: PartitionSummary | None) -> SafeMarkup:
    """What to do about a partition; `findings` are all of its own. Empty where no copy is concerned."""
    about = sorted(filter(concerns_a_copy, findings), key=lambda each: (each.offset, each.file))
    if not about or summary is None:
        return SafeMarkup("")
    partition = f"{summary.topic}-{summary.partition}"
    places = [finding for finding in about if not _on_none(finding)]
    parts: list[object] = [tag("h4", "What to do about ", name(partition)), *_lost_alike(about)]
    accused = sorted({replica for finding in places for replica in finding.replicas})
    right = _right_everywhere(places, summary)
    if summary.topic == METADATA_TOPIC:
        said = (
            "This is the metadata log, and beside it lies the voter's own vote. Treat it like a lost disk: one voter "
            "at a time, and only while the others have a leader and a majority without it."
        )
        parts.append(tag("p", said))
    elif places and right:
        best = right[0]
        parts += [tag("p", tag("b", _who_is_right(right, places))), _replaced(summary, best, accused, places)]
    elif places:
        parts += [
            tag("p", tag("b", "No replica is right at all places: replace none yet.")),
            _read_out(summary, places),
        ]
    return tag("section", *parts, class_="repair", aria_label=f"What to do about {plain(partition, 160)}")


# --- Who is right -----------------------------------------------------------------------------------------------------


def _on_none(finding: Finding) -> bool:
    """Whether no replica has what is missing or damaged there, so that no copy mends another."""
    if CHECKS[finding.check].kind is CheckKind.LOST:
        return not finding.evidence.get("held_by")
    return ON_ALL in finding.evidence


def _right_at(finding: Finding, places: Sequence[Finding], summary: PartitionSummary) -> list[ReplicaSummary]:
    """The replicas that are right at the place of a finding: accused there by no finding, and their log covers it."""
    if UNDECIDED in finding.reference:
        return []
    if held := finding.evidence.get("held_by"):
        return [each for each in summary.replicas if each.replica in held]
    wrong = {replica for other in places if _overlap(finding, other) for replica in other.replicas}
    return [each for each in summary.replicas if each.replica not in wrong and _covers(each, finding)]


def _right_everywhere(places: Sequence[Finding], summary: PartitionSummary) -> list[str]:
    """The replicas that are right at all places and may lead, the newest epoch and the longest log first."""
    right = list(summary.replicas)
    for finding in places:
        leads = CHECKS[finding.check].kind is not CheckKind.LOST  # its holder is not of the log that counts
        here = {each.replica for each in _right_at(finding, places, summary)} if leads else set()
        right = [each for each in right if each.replica in here]
    right.sort(key=lambda each: (-each.last_epoch, -each.log_end, each.replica))
    return [each.replica for each in right]


def _overlap(one: Finding, other: Finding) -> bool:
    if one.offset < 0 or other.offset < 0:
        return one is other
    return one.offset < other.end and other.offset < one.end


def _covers(replica: ReplicaSummary, finding: Finding) -> bool:
    return finding.offset < 0 or (
        replica.log_start <= finding.offset and replica.log_end >= max(finding.end_offset, finding.offset)
    )


# --- What is done -----------------------------------------------------------------------------------------------------


def _lost_alike(about: Sequence[Finding]) -> Iterator[SafeMarkup]:
    where = [_where(finding) for finding in about if _on_none(finding)]
    if where:
        said = f"No replica that was read is right at {_listed(where)}: no copy mends another there. Look "
        last = "in backups and in what had read them; what is not there the clients send again, with the keys."
        yield tag("p", shown(said), last)


def _who_is_right(right: Sequence[str], places: Sequence[Finding]) -> str:
    names = f"replica {plain(right[0], 40)} is" if len(right) == 1 else f"replicas {', '.join(right)} are"
    number = len({_where(each) for each in places})
    only = "Only " if len(right) == 1 else ""
    at = "at the place of the finding" if number == 1 else f"at {'both' if number == 2 else f'all {number}'} places"
    said = f"{only}{names} right {at}: {_listed([_where(each, whose=True) for each in places])}."
    return capital(said)


def _where(finding: Finding, *, whose: bool = False) -> str:
    """The place of a finding, in a few words, and whose copy is wrong there."""
    where = offsets(finding.offset, finding.end_offset)
    if finding.offset < 0:
        where = plain(finding.file, 80) or "its files"
    return f"{where} (not {', '.join(plain(each, 40) for each in finding.replicas)})" if whose else where


def _listed(places: Sequence[str]) -> str:
    told = list(dict.fromkeys(places))
    more = len(told) - SHOWN_PLACES
    return ", ".join(told[:SHOWN_PLACES]) + (f", and {plural(more, 'more place')}" if more > 0 else "")


def _replaced(summary: PartitionSummary, leader: str, accused: Sequence[str], places: Sequence[Finding]) -> SafeMarkup:
    """How the wrong copies are replaced on a running cluster, while the right one leads."""
    topic, partition = summary.topic, f"{summary.topic}-{summary.partition}"
    order = [leader, *(each.replica for each in summary.replicas if each.replica != leader)]
    broker, ids = name(leader), ",".join(order)
    describe = command("odradek", "topic", "describe", topic)
    steps = [
        join("See who leads ", name(partition), " and who is in its ISR: ", describe, ". If broker ", broker,
              " is not in the ISR, wait until it is: before that it must not lead, and no copy may be replaced."),
        join("Unclean elections off: ",
              command("odradek", "topic", "alter", topic, "--config", "unclean.leader.election.enable=false")),
        join("Make broker ", broker, " the preferred leader (", tag("code", "--to"), " has all replicas that the "
              "first command shows, ", broker, " first): ",
              command("odradek", "topic", "reassign", "--topic", partition, "--to", ids, "--wait")),
        join("Elect it: ", command("odradek", "topic", "elect", partition)),
        join("Check that broker ", broker, " leads, and that all are in the ISR: ", describe, ". Go on only then: a "
              "broker whose copy is replaced takes what the leader has, right or wrong."),
        *_only_copies(summary, leader, accused, places),
        *(join("Replace the copy of broker ", name(each), ": stop it, move ", tag("code", shown(partition, 300)),
                " out of its log directory, to where it is kept until an audit is clean, start it. Wait until ",
                describe, " shows it in the ISR, and broker ", broker, " as the leader still",
                "; only then the next one." if each != accused[-1] else ".")
          for each in accused),
        SafeMarkup("Audit again."),
    ]  # fmt: skip
    kafka = (
        command("kafka-topics.sh", *_SERVER, "--describe", "--topic", topic),
        command("kafka-configs.sh", *_SERVER, "--alter", "--entity-type", "topics", "--entity-name", topic,
                "--add-config", "unclean.leader.election.enable=false"),
        join("in plan.json ", _plan(summary, order)),
        command("kafka-reassign-partitions.sh", *_SERVER, "--reassignment-json-file", "plan.json", "--execute"),
        command("kafka-leader-election.sh", *_SERVER, "--election-type", "preferred", "--topic", topic,
                "--partition", str(summary.partition)),
    )  # fmt: skip
    tools = tag("details", tag("summary", _KAFKA), tag("ul", *(tag("li", each) for each in kafka), class_="steps"))
    return join(tag("ol", *(tag("li", step) for step in steps), class_="steps"), tools)


def _plan(summary: PartitionSummary, order: Sequence[str]) -> SafeMarkup:
    """Kafka's reassignment that has a partition's replicas in an order."""
    ids = [int(each) if each.isdecimal() else each for each in order]
    plan = {"version": 1, "partitions": [{"topic": summary.topic, "partition": summary.partition, "replicas": ids}]}
    return tag("code", shown(json.dumps(plan), COMMAND_LIMIT), class_="command")


def _only_copies(
    summary: PartitionSummary, leader: str, accused: Sequence[str], places: Sequence[Finding]
) -> Iterator[SafeMarkup]:
    """What a replica that is to be replaced has and the leader has not: where two leaders wrote, and a longer log."""
    ends = {each.replica: each.log_end for each in summary.replicas}
    for replica in accused:
        forks = [each for each in places if replica in each.replicas and is_fork(each) and each.offset >= 0]
        where = [_where(each) for each in forks]
        if ends.get(replica, 0) > ends[leader]:
            where.append(offsets(ends[leader], ends[replica]))
        if where:
            yield join(
                shown(
                    f"Replica {plain(replica, 40)} has at {_listed(where)} what replica {plain(leader, 40)} does "
                    "not: it may be the only copy of acknowledged records. Read them out of the kept copy, and "
                    "write those again, with their keys, that the others do not have: "
                ),
                command(*_READ_OUT, kept(replica, f"{summary.topic}-{summary.partition}")),
            )


def is_fork(finding: Finding) -> bool:
    """Whether two brokers' records met there, and not only one copy was changed after it was written."""
    return CHECKS[finding.check].kind is CheckKind.AGREEMENT and not looks_changed(finding)


def looks_changed(finding: Finding) -> bool:
    """Whether the bytes say that a copy was changed, and not that two brokers led."""
    excerpt = finding.excerpt
    if excerpt is None or not finding.evidence.get("same_epoch", finding.check == "epoch-fork"):
        return False
    mine, theirs = finding.batch(ACCUSED), finding.batch(REFERENCE)
    if mine is None or theirs is None:
        return False
    return mine.origin == theirs.origin or excerpt.differing_in_records <= FEW_BYTES


def _read_out(summary: PartitionSummary, places: Sequence[Finding]) -> SafeMarkup:
    """Which replica is right where, and that nothing is replaced before that was read out."""
    rows = []
    for finding in places[:SHOWN_PLACES]:
        right = [plain(each.replica, 40) for each in _right_at(finding, places, summary)]
        said = (
            f"right on {noun(len(right), 'replica')} {', '.join(right)}" if right else "no replica is known to be right"
        )
        if UNDECIDED in finding.reference:
            said = "nothing says which copy is right; compare the records with those who wrote them"
        rows.append(tag("li", shown(f"{_where(finding, whose=True)}: {said}")))
    if more := len(places) - len(rows):
        rows.append(tag("li", f"and {plural(more, 'more place')}"))
    copies = [
        command(*_READ_OUT, kept(each.replica, f"{summary.topic}-{summary.partition}")) for each in summary.replicas
    ]
    steps = [
        join("Keep the brokers stopped, if you can: what a leader lacks the others may cut off. Who is right where: ",
              tag("ul", *rows)),
        join("Read the records of these places out of the kept copies, and save them: ",
              tag("ul", *(tag("li", each) for each in copies))),
        SafeMarkup("Then decide which replica leads. The others become what it is: write again, with their keys, what "
             "it lacks. Only when all of that is written may a copy be replaced, one at a time, while a replica that "
             "you checked leads; then audit again."),
    ]  # fmt: skip
    return tag("ol", *(tag("li", step) for step in steps), class_="steps")
