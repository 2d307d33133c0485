"""The result of an audit: findings, notes, what was compared, and a verdict.

The verdict: findings (exit 3), inconclusive (exit 1: too little was compared to say anything), fine or lost (exit 0: no
rule is broken; acknowledged records are gone all the same).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from odradek_proto.formats import CLEANER_OFFSET_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT
from odradek_proto.topics import DELETED_PARTITION_SUFFIX, TopicPartition

from odradek_audit.catalogue import ACKNOWLEDGED_LOST, CHECKS, FILE_CORRUPT
from odradek_audit.checks.directories import (
    absent_partitions,
    absent_topics,
    check_directories,
    check_known,
    check_missing,
    check_registered,
    cleaners_said,
    linked_partitions,
    without_identity,
)
from odradek_audit.checks.groups import check_groups
from odradek_audit.checks.losses import all_acknowledged, summed
from odradek_audit.checks.metadata import check_elected, check_topic_ids
from odradek_audit.checks.unread import NOT_COMPARED, file_not_read
from odradek_audit.evidence.run import TimelineEntry, run_of, shown_of
from odradek_audit.evidence.story import Story
from odradek_audit.findings import Finding, Note, sorted_findings
from odradek_audit.inputs.events import BrokerEvents
from odradek_audit.inputs.facts import METADATA_TOPIC
from odradek_audit.inputs.history import History, PartitionHistory
from odradek_audit.inputs.layout import Layout
from odradek_audit.results import Loss, PartitionResult, PartitionSummary, Replayed
from odradek_audit.words import plural

FINDINGS_FILE = "findings.jsonl"
SUMMARY_FILE = "summary.json"
PARQUET_FILE = "findings.parquet"
HTML_FILE = "report.html"
RESULT_FILES = (FINDINGS_FILE, SUMMARY_FILE, PARQUET_FILE, HTML_FILE)
LIVE = "live"  # in place of an engine: the audit of a running cluster
EXIT_FINE, EXIT_INCONCLUSIVE, EXIT_FINDINGS = 0, 1, 3


@dataclass
class Report:
    """What one audit found."""

    engine: str
    replicas: dict[str, str]
    findings: list[Finding] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    partitions: list[PartitionSummary] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    """Acknowledged records that none of the replicas that were read has, whether they were owed or not."""
    inconclusive: list[str] = field(default_factory=list)
    """Why nothing can be concluded; empty when enough was compared."""
    seconds: float = 0.0
    deep: bool = False
    """Whether the records of every batch were decoded, on one replica of each partition."""
    history_events: int | None = None
    """Lines of the history that the logs were compared with; None: there was no history."""
    history_file: str = ""
    """Where that history is, as far as whoever started the audit said it."""
    events: dict[str, BrokerEvents] = field(default_factory=dict)
    """What brokers wrote down about themselves, by replica; none of Kafka's."""
    run: list[TimelineEntry] = field(default_factory=list)
    """What brokers wrote down of elections, ISRs, fencing and truncations, in the order of their times, with injected
    faults and the clients' longest silences."""
    configuration: dict[str, str] = field(default_factory=dict)
    """What the cluster ran with, as far as whoever started the audit said it."""
    made_at: str = ""
    """When the audit ended, for people."""

    @property
    def exit_code(self) -> int:
        if self.findings:
            return EXIT_FINDINGS
        return EXIT_INCONCLUSIVE if self.inconclusive else EXIT_FINE

    @property
    def verdict(self) -> str:
        word = {EXIT_FINE: "fine", EXIT_INCONCLUSIVE: "inconclusive", EXIT_FINDINGS: "findings"}[self.exit_code]
        return "lost" if word == "fine" and self.losses else word

    @property
    def compared_records(self) -> int:
        return sum(partition.compared_records for partition in self.partitions)

    @property
    def compared_batches(self) -> int:
        return sum(partition.compared_batches for partition in self.partitions)

    @property
    def absent(self) -> dict[str, list[TopicPartition]]:
        """By replica the partitions of which it has no directory, and another one has."""
        lacks: dict[str, list[TopicPartition]] = {}
        for each in self.partitions:
            present = {*each.unread, *(replica.replica for replica in each.replicas)}
            for name in self.replicas:
                if name not in present:
                    lacks.setdefault(name, []).append(TopicPartition(each.topic, each.partition))
        return lacks

    @property
    def without_events(self) -> list[str]:
        """The replicas whose broker's event file was not found."""
        return [name for name in self.replicas if name not in self.events or not self.events[name].found]

    @property
    def read_bytes(self) -> int:
        return sum(replica.bytes for partition in self.partitions for replica in partition.replicas)

    def summary(self) -> dict[str, Any]:
        """Everything but the findings themselves, ready for JSON."""
        return {
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "engine": self.engine,
            "replicas": self.replicas,
            "seconds": round(self.seconds, 3),
            "deep": self.deep,
            "losses": [asdict(loss) for loss in self.losses],
            "findings": len(self.findings),
            "findings_by_check": dict(sorted(Counter(finding.check for finding in self.findings).items())),
            "compared_batches": self.compared_batches,
            "compared_records": self.compared_records,
            "read_bytes": self.read_bytes,
            "inconclusive": self.inconclusive,
            "history_events": self.history_events,
            "history_file": self.history_file,
            "broker_events": {
                name: {"lines": each.lines, "missing": each.missing, "cut": each.cut}
                for name, each in sorted(self.events.items())
                if each.found
            },
            "run": [moment._asdict() for moment in shown_of(self.run)],
            "configuration": self.configuration,
            "made_at": self.made_at,
            "notes": [asdict(note) for note in self.notes],
            "partitions": [asdict(each) | {"above_bound": each.above_bound} for each in self.partitions],
        }


def finish(engine: str, layout: Layout, results: Iterable[PartitionResult], history: History | None) -> Report:
    """Put the results of all partitions together and judge whether enough was compared. Both engines end here."""
    report = Report(engine, {name: directory.path for name, directory in layout.directories.items()})
    report.history_events = history.count if history is not None else None
    everything = list(results)
    for result in sorted(everything, key=lambda result: (result.summary.topic, result.summary.partition)):
        report.findings.extend(result.findings)
        report.notes.extend(result.notes)
        losses = [loss for loss in result.summary.losses if _can_tell(layout, loss.topic, loss.partition)]
        report.partitions.append(replace(result.summary, losses=losses))
        report.losses.extend(losses)
    missing, counted = check_missing(layout)
    absent = [*absent_topics(layout), *linked_partitions(layout), *absent_partitions(layout)]
    absent += without_identity(layout)
    report.notes = [*absent, *_unread_files(layout), *counted, *report.notes]
    brokers = frozenset(broker for result in everything for broker in result.replayed.brokers)
    epochs, unsure, wrong = check_elected(layout.partitions, everything)
    topic_ids, other_ids = check_topic_ids(layout.partitions, everything)
    replayed = next((each.replayed for each in everything if each.summary.topic == METADATA_TOPIC), Replayed())
    strays, unknown = check_known(layout, replayed)
    report.notes += [*unsure, *other_ids, *unknown, *cleaners_said(layout)]
    told = [finding for finding in report.findings if finding not in wrong]
    report.findings = sorted_findings(
        [
            *told,
            *_directory_findings(layout),
            *check_registered(layout, brokers),
            *missing,
            *check_groups(everything),
            *epochs,
            *topic_ids,
            *strays,
        ]
    )
    if history is not None and not layout.unread:  # which may have them
        gone = _lost_partitions(layout, history)
        report.findings.extend(_lost_partition(events) for events in gone if _owed(events))
        report.losses.extend(loss for events in gone for loss in _losses(layout, events))
    report.events = {name: each.events for name, each in layout.directories.items() if each.events is not None}
    report.findings = [
        finding if finding.cause else CHECKS[finding.check].explained(finding) for finding in report.findings
    ]
    story = Story(report.events, report.replicas)
    report.run = run_of(report.events, report.losses, history.silences if history is not None else ())
    report.findings = story.explain(report.findings)
    report.losses = story.of_losses(report.losses, report.findings, report.partitions)
    report.inconclusive = _reasons(report, layout, history)
    return report


def _directory_findings(layout: Layout) -> list[Finding]:
    """Files at the top of a log directory that cannot be read, and whose directory it is; they belong to no
    partition."""
    unreadable = [
        Finding(
            FILE_CORRUPT.name,
            FILE_CORRUPT.severity,
            topic="",
            partition=-1,
            replica=name,
            sentence=f"replica {name} has a file {problem.file} that cannot be read: {problem.reason}",
            file=problem.file,
        )
        for name, directory in sorted(layout.directories.items())
        for problem in directory.problems
        if not problem.refused
    ]
    return unreadable + check_directories({name: entry.meta for name, entry in layout.directories.items()})


def _unread_files(layout: Layout) -> list[Note]:
    """A note for each file at the top of a log directory that may not be read."""
    return [
        Note(NOT_COMPARED, "", -1, name, file_not_read(name, problem.file, problem.reason))
        for name, directory in sorted(layout.directories.items())
        for problem in directory.problems
        if problem.refused
    ]


def _lost_partitions(layout: Layout, history: History) -> list[PartitionHistory]:
    """What is known of partitions that the history names and of which no replica was found at all, nor one that is
    being deleted, nor a link to one."""
    present = {(partition.topic, partition.partition) for partition in layout.partitions}
    return [
        history.partitions[key]
        for key in sorted(history.partitions)
        if key not in present
        and layout.asked_for(key[0])
        and not layout.has_aside(TopicPartition(*key), (DELETED_PARTITION_SUFFIX,))
        and not layout.has_link(TopicPartition(*key))
    ]


def _can_tell(layout: Layout, topic: str, partition: int) -> bool:
    """Whether anything can be said about what nobody has: two replicas were read and none was not, each says what
    was deleted on purpose, and no directory that a broker gave up may hold the records."""
    if layout.unreadable or len(layout.directories) < 2:
        return False
    unsaid = (LOG_START_OFFSET_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT)
    if any(problem.file in unsaid for each in layout.directories.values() for problem in each.problems):
        return False
    place = TopicPartition(topic, partition)
    return not (layout.has_aside(place) or layout.has_link(place))


def _owed(events: PartitionHistory) -> int:
    """How many records were acknowledged with acks=all."""
    return len(events.acknowledged) + len(events.acknowledged_anywhere)


def _lost_partition(events: PartitionHistory) -> Finding:
    count = _owed(events)
    return Finding(
        ACKNOWLEDGED_LOST.name,
        ACKNOWLEDGED_LOST.severity,
        topic=events.topic,
        partition=events.partition,
        replica="",
        sentence=f"{events.topic}-{events.partition}: {plural(count, 'record was', 'records were')} "
        "acknowledged with acks=all, and no replica that was read has the partition",
        offset=min((offset for offset, *_ in events.acknowledged), default=-1),
        end_offset=events.acknowledged_end,
        evidence={"records": count},
    )


def _losses(layout: Layout, events: PartitionHistory) -> list[Loss]:
    """All that was acknowledged in a partition that nobody has, above the log start offsets that are left of it."""
    place = TopicPartition(events.topic, events.partition)
    if not _can_tell(layout, *place):
        return []
    starts = [directory.log_starts.get(place, 0) for directory in layout.directories.values()]
    removed_to = max(starts)
    gone = (told for told in all_acknowledged(events) if told.offset >= removed_to or not removed_to)
    return summed(events, gone)


def _reasons(report: Report, layout: Layout, history: History | None) -> list[str]:
    reasons = list(layout.unreadable.values())
    if len(layout.directories) < 2:
        reasons.append(f"{len(layout.directories)} replica's directory could be read: nothing to compare it with")
    if not report.partitions:
        reasons.append("no partition was found")
    elif not report.compared_records and len(layout.directories) >= 2:
        reasons.append("no record was compared: no partition has records on two of the replicas")
    if history is not None and not history.count:
        reasons.append("the history is empty")
    alone = [note for note in report.notes if note.kind == "one-replica" and note.topic != METADATA_TOPIC]
    if alone and len(layout.directories) >= 2 and len(alone) == len(report.partitions):
        reasons.append("every partition was found on one replica only")
    undone = [note.sentence for note in report.notes if note.kind in ("not-compared", "not-decoded")]
    if undone:
        reasons.append(f"{plural(len(undone), 'time')} something was not compared; the first: {undone[0]}")
    return reasons
