"""Partitions of which a replica has no directory: `checkpoint-order` where its own checkpoint counted records of them.

`replication-offset-checkpoint` names the partitions that a broker hosts. Whoever deletes a replica cleanly, because
its topic went or because it was reassigned, leaves the entry out when the file is written next, after seconds or at the
stop. So after a clean stop an entry without a directory is a loss; a broker that was killed, or runs, may have a stale
one: that is a note. A partition that nobody has any more is judged
by the same rule, and so are all of a topic: leave out what was removed by hand with `--topics`.

`identity-mismatch` of whole log directories (A8): do they belong to one cluster, and is each another broker's? A node
id or directory id that two directories name is a copy of one of them, or a `meta.properties` in the wrong place. Blamed
is the replica whose own name is not its node id, where replicas are named by node ids; else the later one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from odradek_proto.formats import (
    CLEANER_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    PARTITION_METADATA,
    REPLICATION_OFFSET_CHECKPOINT,
    MetaProperties,
)
from odradek_proto.topics import DELETED_PARTITION_SUFFIX, TopicPartition

from odradek_audit.catalogue import CHECKPOINT_ORDER, IDENTITY_MISMATCH
from odradek_audit.checks.checkpoints import odd_ones
from odradek_audit.findings import Finding, Note
from odradek_audit.inputs.facts import METADATA_TOPIC
from odradek_audit.inputs.layout import SET_ASIDE_SUFFIXES, BrokerDirectory, Layout
from odradek_audit.results import Replayed
from odradek_audit.words import plural, replicas_have

NO_DIRECTORY, NO_TOPIC, LINKED, COUNTED = "no-directory", "no-topic", "linked", "counted-without-directory"
NAMED = 5
"""Partitions that one note names."""


def check_missing(layout: Layout) -> tuple[list[Finding], list[Note]]:
    """Records that a replica has counted and of which it has no directory: findings after a clean stop, else notes."""
    findings: list[Finding] = []
    notes: list[Note] = []
    present = {TopicPartition(each.topic, each.partition) for each in layout.partitions}
    for partition in sorted(present | _vanished(layout, present)):
        nowhere = partition not in present
        given_up = layout.has_aside(partition, SET_ASIDE_SUFFIXES if nowhere else (DELETED_PARTITION_SUFFIX,))
        for directory in layout.directories.values():
            if not _has_counted(directory, partition):
                continue
            if directory.clean_shutdown and not given_up:
                findings.append(_finding(directory, partition, nowhere=nowhere))
            else:
                notes.append(_note(directory, partition, nowhere=nowhere, given_up=given_up))
    return findings, notes


def _vanished(layout: Layout, present: set[TopicPartition]) -> set[TopicPartition]:
    """Partitions without a directory anywhere that checkpoints name."""
    named = {partition for directory in layout.directories.values() for partition in directory.high_watermarks}
    return {partition for partition in named - present if layout.asked_for(partition.topic)}


def absent_partitions(layout: Layout) -> list[Note]:
    """A note for each replica that lacks directories of partitions which another one has."""
    places = [TopicPartition(each.topic, each.partition) for each in layout.partitions]
    notes = []
    for name, directory in layout.directories.items():
        absent = [place for place in places if place not in directory.partitions and place not in directory.linked]
        if absent:
            partitions = plural(len(absent), "partition")
            sentence = f"replica {name} has no directory of {partitions}, compared without it: {listed(absent)}"
            notes.append(Note(NO_DIRECTORY, "", -1, name, sentence))
    return notes


def linked_partitions(layout: Layout) -> list[Note]:
    """A note for each partition behind a symbolic link; where no replica was read, nothing of it was compared."""
    present = {TopicPartition(each.topic, each.partition) for each in layout.partitions}
    notes = []
    for name, directory in layout.directories.items():
        for place in sorted(each for each in directory.linked if layout.asked_for(each.topic)):
            link = "a symbolic link in place of the directory, which the audit does not follow"
            kind, result = (
                (LINKED, "compared without it") if place in present else ("not-compared", "nothing was compared")
            )
            notes.append(
                Note(kind, place.topic, place.partition, name, f"{place}: replica {name} has {link}: {result}")
            )
    return notes


def absent_topics(layout: Layout) -> list[Note]:
    """A note for each topic that was asked for and of which no replica has a partition."""
    present = {each.topic for each in layout.partitions}
    present.update(each.topic for directory in layout.directories.values() for each in directory.linked)
    said = "was asked for, and no replica that was read has a partition of it"
    absent = [topic for topic in layout.topics or () if topic not in present]
    return [Note(NO_TOPIC, topic, -1, "", f"topic {topic} {said}") for topic in absent]


def without_identity(layout: Layout) -> list[Note]:
    """A note for each directory without a `meta.properties`, where others have one: whose it is nobody knows."""
    named = any(directory.meta is not None for directory in layout.directories.values())
    said = f"has no {META_PROPERTIES}, as others have: nothing says whose directory it is, and of which cluster"
    return [
        Note("no-identity", "", -1, name, f"replica {name} {said}")
        for name, directory in layout.directories.items()
        if named and directory.meta is None and all(each.file != META_PROPERTIES for each in directory.problems)
    ]


def listed(places: Iterable[object]) -> str:
    """The first of some partitions, and how many more there are."""
    names = [str(place) for place in places]
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _has_counted(directory: BrokerDirectory, partition: TopicPartition) -> bool:
    """Whether a replica's checkpoint counts records, above its log start offset, of a partition that it has not."""
    if partition in directory.partitions or partition in directory.linked or directory.has_aside(partition):
        return False
    if partition.topic == METADATA_TOPIC:
        return False
    return directory.high_watermarks.get(partition, 0) > _log_start(directory, partition)


def _log_start(directory: BrokerDirectory, partition: TopicPartition) -> int:
    return max(directory.log_starts.get(partition, 0), 0)


def _said(directory: BrokerDirectory, partition: TopicPartition, *, nowhere: bool) -> str:
    others = ", nor has any other replica that was read" if nowhere else ""
    return (
        f"{partition}: replica {directory.replica} has no directory of the partition{others}, and its "
        f"{REPLICATION_OFFSET_CHECKPOINT} says the high watermark {directory.high_watermarks[partition]}"
    )


def _finding(directory: BrokerDirectory, partition: TopicPartition, *, nowhere: bool) -> Finding:
    evidence: dict[str, object] = {"no_directory": True, "claimed": directory.high_watermarks[partition]}
    if nowhere:
        evidence["nowhere"] = True
    if partition in directory.recovery_points:
        evidence["recovery_point"] = directory.recovery_points[partition]
    return Finding(
        CHECKPOINT_ORDER.name,
        CHECKPOINT_ORDER.severity,
        topic=partition.topic,
        partition=partition.partition,
        replica=directory.replica,
        sentence=f"{_said(directory, partition, nowhere=nowhere)}: it stopped cleanly and has counted records that it "
        "does not have",
        offset=_log_start(directory, partition),
        end_offset=directory.high_watermarks[partition],
        file=REPLICATION_OFFSET_CHECKPOINT,
        evidence=evidence,
    )


def _note(directory: BrokerDirectory, partition: TopicPartition, *, nowhere: bool, given_up: bool) -> Note:
    why = "it did not stop cleanly, so the entry may be stale"
    if given_up:
        why = "another broker has set its own aside" if nowhere else "another broker is deleting its own"
    lost = "if it is a replica of the partition, the records are lost there"
    if nowhere:
        elsewhere = "the partition lies on brokers that were not read"
        lost = f"unless the topic was deleted just before, or {elsewhere}, the records are lost"
    return Note(
        COUNTED,
        partition.topic,
        partition.partition,
        directory.replica,
        f"{_said(directory, partition, nowhere=nowhere)}; {why}: {lost}",
        _log_start(directory, partition),
        directory.high_watermarks[partition],
    )


# --- Against the metadata log -----------------------------------------------------------------------------------------


def check_known(layout: Layout, replayed: Replayed) -> tuple[list[Finding], list[Note]]:
    """Directories of partitions that the metadata log does not give to their brokers, which remove them when they
    start; and partitions of which no replica has one.

    A finding, one for each topic, where the cluster has never had the partition, its broker stopped cleanly and holds
    the metadata log itself: it has seen all that was decided. Topics that were removed, replicas that were moved, and
    all that may have been decided before the log's beginning or behind the copy's end are notes. Other ids of a topic
    that there is are told by `check_topic_ids`.
    """
    if replayed.whole is None:
        return [], []
    strays: dict[tuple[str, str, bool], list[tuple[str, TopicPartition]]] = {}
    for each in layout.partitions:
        for name, inputs in each.replicas.items() if each.topic != METADATA_TOPIC else ():
            directory, place = layout.directories[name], TopicPartition(each.topic, each.partition)
            why, never = _unknown(directory, place, inputs.topic_id, replayed)
            sure = never and replayed.whole and directory.clean_shutdown and _has_metadata(directory)
            if why:
                strays.setdefault((each.topic, why, sure), []).append((name, place))
    findings: list[Finding] = []
    notes = _nowhere(layout, replayed)
    for (_, why, sure), found in sorted(strays.items()):
        names = tuple(dict.fromkeys(name for name, _ in found))
        places = sorted({place for _, place in found})
        said = f"{listed(places)}: {replicas_have(names)} a directory, and {why}: a broker that starts removes it"
        if sure:
            findings.append(
                Finding(
                    IDENTITY_MISMATCH.name,
                    IDENTITY_MISMATCH.severity,
                    *places[0],
                    names[0],
                    said,
                    file=PARTITION_METADATA,
                    replicas=names,
                )
            )
        else:
            notes.append(Note("metadata", *places[0], names[0], said))
    return findings, notes


def _unknown(directory: BrokerDirectory, place: TopicPartition, topic_id: str, replayed: Replayed) -> tuple[str, bool]:
    """Why the metadata log does not give a partition to a broker, and whether the cluster has never had it; nothing
    where it does."""
    current = replayed.topics.get(place.topic)
    if topic_id in replayed.removed:
        return "the metadata log says that the topic was removed", False
    if current is None:
        return "the metadata log has no such topic", True
    if topic_id not in ("", current):
        return "", False
    known = replayed.elected.get(TopicPartition(current, place.partition))
    if known is None:
        return "the metadata log has no such partition of the topic", True
    if directory.meta is not None and directory.meta.node_id not in known.replicas:
        return f"the metadata log names the replicas {list(known.replicas)}", False
    return "", False


def _has_metadata(directory: BrokerDirectory) -> bool:
    return any(each.topic == METADATA_TOPIC for each in directory.partitions)


def _nowhere(layout: Layout, replayed: Replayed) -> list[Note]:
    """A note of partitions all of whose replicas were given, and of which none has a directory; not where there are
    controllers alone."""
    nodes = {each.meta.node_id for each in layout.directories.values() if each.meta is not None}
    had = {place for each in layout.directories.values() for place in (*each.partitions, *each.linked)}
    names = {topic_id: name for name, topic_id in replayed.topics.items()}
    gone = [
        place
        for (topic_id, number), known in replayed.elected.items()
        if (place := TopicPartition(names[topic_id], number)) not in had and nodes.issuperset(known.replicas)
    ]
    said = f"no replica has a directory of {plural(len(gone), 'partition')} that the metadata log knows: "
    alone = all(place.topic == METADATA_TOPIC for place in had)
    return [Note(NO_DIRECTORY, "", -1, "", said + listed(sorted(gone)))] if gone and not alone else []


def cleaners_said(layout: Layout) -> list[Note]:
    """Where a cleaner's checkpoint names topics that the metadata log does not call compacted."""
    notes = []
    for each in layout.partitions:
        cleaned = {
            name: directory.cleaned[TopicPartition(each.topic, each.partition)]
            for name, directory in layout.directories.items()
            if name in each.replicas and directory.cleaned.get(TopicPartition(each.topic, each.partition), 0) > 0
        }
        if not cleaned or each.settings is None or not (each.settings.is_never_compacted or each.settings.is_unsaid):
            continue
        name = min(cleaned)
        never = "was never compacted, as the metadata log says: it excuses no gap there"
        unsaid = "is compacted only if the brokers' own log.cleanup.policy says so: otherwise gaps below it are losses"
        said = (
            f"{each.name}: {CLEANER_OFFSET_CHECKPOINT} of replica {name} says that a cleaner has been up to offset "
            f"{cleaned[name]}, and the topic {never if each.settings.is_never_compacted else unsaid}"
        )
        notes.append(Note("metadata", each.topic, each.partition, name, said, end_offset=cleaned[name]))
    return notes


# --- Identity ---------------------------------------------------------------------------------------------------------


def check_directories(metas: Mapping[str, MetaProperties | None]) -> list[Finding]:
    """Findings over the `meta.properties` of all replicas, by replica name; they belong to no partition."""
    known = {name: meta for name, meta in sorted(metas.items()) if meta is not None}
    found = [
        _identity_finding(replica, f"has the cluster id {value}, others have {usual}")
        for replica, value, usual in odd_ones({name: meta.cluster_id for name, meta in known.items()})
    ]
    directories: dict[str, str] = {}
    nodes: dict[int, str] = {}
    for name in sorted(known, key=lambda name: (name != str(known[name].node_id), name)):
        meta = known[name]
        first = nodes.setdefault(meta.node_id, name)
        twin = directories.setdefault(meta.directory_id, name) if meta.directory_id else name
        if twin != name:
            found.append(_identity_finding(name, f"has the directory id {meta.directory_id}, as replica {twin} has"))
        elif first != name:
            found.append(_identity_finding(name, f"has the node id {meta.node_id}, as replica {first} has"))
    return found


def check_registered(layout: Layout, brokers: frozenset[int]) -> list[Finding]:
    """Directories of nodes that never registered, of those `brokers` that did, as the metadata log says; it says
    nothing where there are none. A controller alone does not register."""
    return [
        _identity_finding(name, f"has the node id {directory.meta.node_id}, which has never registered")
        for name, directory in sorted(layout.directories.items())
        if brokers
        and directory.meta is not None
        and directory.meta.node_id not in brokers
        and any(each.topic != METADATA_TOPIC for each in directory.partitions)
    ]


def _identity_finding(replica: str, what: str) -> Finding:
    return Finding(
        IDENTITY_MISMATCH.name,
        IDENTITY_MISMATCH.severity,
        topic="",
        partition=-1,
        replica=replica,
        sentence=f"replica {replica} {what} ({META_PROPERTIES})",
        file=META_PROPERTIES,
    )
