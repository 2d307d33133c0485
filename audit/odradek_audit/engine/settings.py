"""What the metadata log says of topics' settings, for the checks of their logs.

Settings change, and what a log holds may be of any of them. So a topic's are told only where the log has its beginning,
and then all that they have ever been; those of a topic of which only a snapshot tells are not known. They come from the
replica with the newest log, and from nowhere if that one is damaged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from odradek_proto.compression import CodecUnavailable
from odradek_proto.records import CorruptBatch
from odradek_proto.topics import topic_id_to_text

from odradek_audit.engine.conclusion import reference_replica_of
from odradek_audit.inputs.disk import FileSystem
from odradek_audit.inputs.facts import METADATA_TOPIC, UNKNOWN, PartitionInputs, TopicSettings
from odradek_audit.inputs.layout import Layout, reader_of
from odradek_audit.inputs.metadata_records import (
    TOPIC_SETTING,
    ConfigChange,
    CorruptMetadataRecord,
    MetadataChange,
    TopicNamed,
    TopicRemoved,
    decode_change,
)
from odradek_audit.inputs.records import iter_decoded
from odradek_audit.inputs.scan import scan_replica, scan_runs

POLICY, TIMESTAMP_TYPE = "cleanup.policy", "message.timestamp.type"
BROKERS_NAMES = {f"log.{name}": name for name in (POLICY, TIMESTAMP_TYPE)}


def with_settings(disk: FileSystem, layout: Layout) -> Layout:
    """The same layout with the settings of its topics; a cleaner's checkpoint of a topic that was never compacted
    excuses nothing."""
    found = next((each for each in layout.partitions if each.topic == METADATA_TOPIC), None)
    known = _read(disk, found) if found is not None else {}
    partitions = (_told(each, known[each.topic]) if each.topic in known else each for each in layout.partitions)
    return replace(layout, partitions=tuple(partitions)) if known else layout


def _told(partition: PartitionInputs, settings: TopicSettings) -> PartitionInputs:
    if {each.topic_id for each in partition.replicas.values()} != {settings.topic_id}:
        return partition  # it was removed, and made anew under its name
    replicas = partition.replicas
    if settings.is_never_compacted:
        replicas = {name: replace(each, cleaned_to=0) for name, each in replicas.items()}
    return replace(partition, settings=settings, replicas=replicas)


def _read(disk: FileSystem, metadata: PartitionInputs) -> dict[str, TopicSettings]:
    """By topic. Nothing where the log cannot be read to its end."""
    lives = _Lives()
    try:
        tables = {name: scan_replica(disk, inputs, scan_runs) for name, inputs in metadata.replicas.items()}
        name = reference_replica_of(metadata, tables, frozenset())
        table, inputs = tables[name], metadata.replicas[name]
        lives.whole = inputs.log_start == 0
        gapless = all(base == last + 1 for base, last in zip(table.base_offset[1:], table.last_offset, strict=False))
        if table.problems or not gapless:
            return {}
        for batch in iter_decoded(table, name, reader_of(disk, metadata)):
            if batch.problem:
                return {}
            if table.base_offset[batch.row] >= inputs.log_start:
                lives.apply(decode_change(record.value or b"") for record in batch.records)
    except (OSError, CorruptBatch, CodecUnavailable, CorruptMetadataRecord):
        return {}  # it is told by the checks of the metadata log
    return lives.settings()


class _Lives:
    """The settings of topics from their beginning on, as far as a log has come."""

    def __init__(self) -> None:
        self.whole = False
        """Whether the log begins with the cluster: otherwise nobody knows what brokers were told before."""
        self.ids: dict[str, bytes] = {}
        self.own: dict[str, dict[str, str]] = {}
        self.defaults: dict[str, dict[str, str]] = {}
        """Of brokers, by the topics' name of the setting and by broker."""
        self.ever: dict[str, dict[str, set[str | None]]] = {}

    def apply(self, changes: Iterable[MetadataChange | None]) -> None:
        """One batch: it is atomic, so only what is behind it counts."""
        touched: set[str] = set()
        for change in changes:
            match change:
                case TopicNamed(topic_id, name):
                    self.ids[name] = topic_id
                    self.own.pop(name, None)
                    self.ever[name] = {POLICY: set(), TIMESTAMP_TYPE: set()}
                    touched.add(name)
                case TopicRemoved(topic_id):
                    for name in [name for name, each in self.ids.items() if each == topic_id]:
                        del self.ids[name], self.ever[name]
                case ConfigChange(kind, resource, setting, value) if kind == TOPIC_SETTING:
                    _put(self.own.setdefault(resource, {}), setting, value)
                    touched.add(resource)
                case ConfigChange(_, resource, setting, value) if setting in BROKERS_NAMES:
                    _put(self.defaults.setdefault(BROKERS_NAMES[setting], {}), resource, value)
                    touched.update(self.ids)
        for topic in touched & self.ids.keys():
            for setting, values in self.ever[topic].items():
                values |= self._effective(topic, setting)

    def _effective(self, topic: str, setting: str) -> set[str | None]:
        own = self.own.get(topic, {}).get(setting)
        if own is not None:
            return {own}
        return {None, *self.defaults.get(setting, {}).values(), *([] if self.whole else [UNKNOWN])}

    def settings(self) -> dict[str, TopicSettings]:
        return {
            topic: TopicSettings(
                topic_id_to_text(self.ids[topic]), frozenset(ever[POLICY]), frozenset(ever[TIMESTAMP_TYPE])
            )
            for topic, ever in self.ever.items()
        }


def _put(values: dict[str, str], name: str, value: str | None) -> None:
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
