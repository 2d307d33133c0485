"""The order of an audit, for both engines: try to prove every partition sound, then look closely at the others.

First pass: every part of every segment is read once and condensed (`proof`), on whatever processes there are; the
driver puts the proofs of each partition together (`verdict`). Second pass: partitions that are in doubt are read again
into tables of their batches, and `check_partition` looks at those. So memory hangs on the damage and not on the size.
With a history, partitions that it names go to the second pass at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from odradek_audit.engine.parts import in_groups, part_tasks
from odradek_audit.engine.proof import PartProof, PartTask
from odradek_audit.engine.spans import Unproven
from odradek_audit.engine.spooled import Key, Told
from odradek_audit.engine.verdict import may_be_proven, prove_partition
from odradek_audit.inputs.disk import FileSystem
from odradek_audit.inputs.facts import PartitionInputs
from odradek_audit.results import PartitionResult


@dataclass
class PassProgress:
    """Which partitions are proven and which are in doubt, as far as an audit has come."""

    disk: FileSystem
    partitions: Mapping[Key, PartitionInputs]
    histories: Mapping[Key, Told | None]
    settled: bool = False
    deep: bool = False
    proofs: dict[Key, list[tuple[PartTask, PartProof]]] = field(default_factory=dict)

    @property
    def tried(self) -> list[PartitionInputs]:
        """Partitions for the first pass."""
        return [
            partition
            for key, partition in self.partitions.items()
            if self.histories.get(key) is None and may_be_proven(partition)
        ]

    def tasks(self, split_bytes: int) -> list[list[PartTask]]:
        """The first pass in groups of parts that are worth a task each."""
        return list(in_groups(part_tasks(self.disk, self.tried, split_bytes, deep=self.deep), split_bytes))

    def add(self, proofs: Iterable[tuple[PartTask, PartProof]]) -> None:
        """Results of the first pass, in any order."""
        for task, proof in proofs:
            self.proofs.setdefault((task.topic, task.partition), []).append((task, proof))

    def conclude(self) -> tuple[dict[Key, PartitionResult], dict[Key, PartitionInputs]]:
        """After the first pass: results of what is proven, and the partitions for the second pass."""
        proven: dict[Key, PartitionResult] = {}
        unproven = dict(self.partitions)
        for partition in self.tried:
            key = (partition.topic, partition.partition)
            by_replica: dict[str, list[tuple[PartTask, PartProof]]] = {}
            parts = self.proofs.pop(key, [])
            for task, proof in sorted(parts, key=lambda each: (each[0].part.base_offset, each[0].part.start)):
                by_replica.setdefault(task.replica, []).append((task, proof))
            try:
                proven[key] = prove_partition(self.disk, partition, by_replica, settled=self.settled)
            except Unproven:
                continue
            del unproven[key]
        return proven, unproven
