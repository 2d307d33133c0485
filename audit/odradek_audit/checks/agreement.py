"""Do the replicas of a partition agree: `log-matching` (I-1, I-3) and `epoch-fork` (I-2, S-8).

Every replica is compared with one of them, the reference replica: the one that has the newest leader epoch, then the
longest log. Both logs are walked by digests; a stretch where they differ is one finding, from the first record that
differs to where they agree again. Where the reference replica itself is the damaged one, another replica takes its
place (`references`), so that the others are not blamed for it.

What is owed below the bound is equality. The bound is the largest of the high watermark checkpoints, the highest
acknowledged offset + 1 and the highest delivered offset + 1, a lower bound of the real high watermark. Only the
range that both have is compared: from the larger log start (and behind Kafka's cleaner) to the smaller log end.

Two differences are violations wherever they stand: other bytes under the same offset and epoch, and a stretch behind
which the logs agree again, for nobody can have truncated it. One difference is none even below the bound: the tail of a
replica that has not yet heard of a newer epoch, all of it from epochs older than what stands there on the reference
replica, and above the replica's own high watermark. The next fetch cuts it off (KIP-101, KIP-595). With `settled`, when
the cluster had time to do so, it is a finding as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from odradek_audit.checks.classifying import DifferenceClassifier
from odradek_audit.checks.references import AgreeingReplicas, Reference, choose_reference, damage_at
from odradek_audit.checks.walking import (
    ComparisonCount,
    DifferingRows,
    ReplicaSide,
    common_range,
    differences,
    first_row,
)
from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import BatchTable, PartitionInputs, SegmentReader, log_end_offset


def check_agreement(
    partition: PartitionInputs,
    tables: Mapping[str, BatchTable],
    reference_replica: str,
    bound: int,
    reader: SegmentReader,
    sink: FindingSink,
    *,
    settled: bool = False,
) -> list[ComparisonCount]:
    """Compare every replica with the reference replica; returns what was compared."""
    sides = {
        name: ReplicaSide(inputs, tables[name], log_end_offset(inputs, tables[name]))
        for name, inputs in sorted(partition.replicas.items())
    }
    leader = sides[reference_replica]
    results = []
    places: list[_Place] = []
    for name, side in sides.items():
        if name == reference_replica:
            continue
        compared = common_range(partition, side, leader)
        results.append(compared)
        places.extend(
            _Place(side, stretch, compared, *_extent(side, leader, stretch, compared))
            for stretch in differences(side.table, leader.table, compared)
        )
    for group in _groups(places):
        reference = _reference(sides, leader, group, sink)
        classifier = DifferenceClassifier(sides[reference.replica], reference.reason, bound, reader, sink, settled)
        if reference.replica == reference_replica:
            for place in group.places:
                classifier.classify(place.side, place.stretch, place.compared)
        else:
            _compare_anew(partition, sides, group, classifier)
    return results


@dataclass(frozen=True)
class _Place:
    """A stretch where a replica differs from the reference replica, with the offsets [begin, end) that it spans."""

    side: ReplicaSide
    stretch: DifferingRows
    compared: ComparisonCount
    begin: int
    end: int


@dataclass
class _Group:
    """Stretches of several replicas that overlap: one place where somebody is wrong."""

    begin: int
    end: int
    places: list[_Place] = field(default_factory=list)


def _extent(
    side: ReplicaSide, leader: ReplicaSide, stretch: DifferingRows, compared: ComparisonCount
) -> tuple[int, int]:
    begin = min(side.table.base_offset[stretch.row], leader.table.base_offset[stretch.other_row])
    end = side.table.base_offset[stretch.end_row] if stretch.agree_again else compared.end
    return begin, max(end, begin + 1)


def _groups(places: Sequence[_Place]) -> list[_Group]:
    groups: list[_Group] = []
    for place in sorted(places, key=lambda place: (place.begin, place.end)):
        if not groups or place.begin >= groups[-1].end:
            groups.append(_Group(place.begin, place.end))
        groups[-1].end = max(groups[-1].end, place.end)
        groups[-1].places.append(place)
    return groups


def _reference(sides: Mapping[str, ReplicaSide], leader: ReplicaSide, group: _Group, sink: FindingSink) -> Reference:
    """Who is right in a group, among the replicas that have all of it. Equal bytes are equal digests of all batches."""
    reference_replica = leader.inputs.replica
    held: dict[tuple[tuple[int, ...], ...], list[str]] = {}
    epochs: dict[str, int] = {}
    for place in group.places:
        name = place.side.inputs.replica
        rows = range(place.stretch.row, place.stretch.end_row)
        held.setdefault(tuple(place.side.table.digest(row) for row in rows), []).append(name)
        epochs.setdefault(name, place.side.table.epoch[place.stretch.row])
    first = group.places[0]
    epochs[reference_replica] = leader.table.epoch[first.stretch.other_row]
    different = frozenset(epochs) - {reference_replica}
    same = [
        name
        for name, side in sides.items()
        if name not in different
        and (name == reference_replica or (side.inputs.log_start <= group.begin and first.end <= side.log_end))
    ]
    copies = [AgreeingReplicas(tuple(sorted(set(names))), epochs[names[0]]) for names in _once(held.values())]
    copies.append(AgreeingReplicas(tuple(same), epochs[reference_replica]))
    damage = {name: damage_at(sink, name, group.begin, group.end) for each in copies for name in each.replicas}
    again = all(place.stretch.agree_again for place in group.places)
    return choose_reference(reference_replica, copies, damage, agree_again=again)


def _once(held: Iterable[list[str]]) -> list[list[str]]:
    """Each replica in one of the lists only: one with several stretches in a group counts for its first."""
    seen: set[str] = set()
    result = []
    for names in held:
        fresh = [name for name in names if name not in seen]
        seen.update(fresh)
        if fresh:
            result.append(fresh)
    return result


def _compare_anew(
    partition: PartitionInputs, sides: Mapping[str, ReplicaSide], group: _Group, classifier: DifferenceClassifier
) -> None:
    """Compare every replica with a reference that is not the reference replica, as far as the group goes and one batch
    behind, where they may agree again."""
    reference = classifier.leader
    for name, side in sides.items():
        if name == reference.inputs.replica:
            continue
        common = common_range(partition, side, reference)
        stop = max(_next_end(side.table, group.end), _next_end(reference.table, group.end))
        compared = ComparisonCount(max(common.start, group.begin), min(common.end, stop))
        for stretch in differences(side.table, reference.table, compared):
            classifier.classify(side, stretch, compared)


def _next_end(table: BatchTable, offset: int) -> int:
    """One past the last offset of the batch that holds an offset or follows it; the log's end when there is none."""
    row = first_row(len(table), lambda row: table.last_offset[row] >= offset)
    return table.last_offset[row] + 1 if row < len(table) else offset
