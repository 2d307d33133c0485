"""Plants every kind of damage and its near miss in copies of Kafka's directories; says if an audit found it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from odradek_audit.findings import Finding
from odradek_proto.formats import (
    CLEAN_SHUTDOWN,
    LOG_START_OFFSET_CHECKPOINT,
    META_PROPERTIES,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    decode_offset_checkpoint,
    encode_offset_checkpoint,
)
from odradek_proto.records import iter_batches
from odradek_proto.topics import TopicPartition

from tests.audit.corruption import EVERYWHERE, KINDS, NEAR_MISSES, NothingToDamage, Planted, plant
from tests.audit.corruption.kinds import NearMiss
from tests.audit.corruption.places import log_end_of

CHECKPOINTS = (REPLICATION_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
WHOLE_DIRECTORY = (  # these concern a log directory, not one of its partitions
    "change-cluster-id",
    "copy-identity",
    "garble-identity",
    "garble-high-watermarks",
    "garble-recovery-points",
)
NEAR = "near-"
REFERENCE = "1"  # the replica that the others are compared with


@dataclass
class Plantings:
    """Replicas in which each kind has a topic of its own, and each near miss one whose name begins with `near-`."""

    replicas: dict[str, Path]
    planted: dict[str, tuple[str, Planted, int]] = field(default_factory=dict)
    """By kind: the replica, what was planted, and the base offset of the batch that holds the offset."""
    near: dict[str, list[TopicPartition]] = field(default_factory=dict)
    """By kind: the partitions in which its near miss was planted."""

    def wrong(self, findings: Sequence[Finding]) -> dict[str, list[str]]:
        """By topic (empty: of a whole directory) what was found and should not have been, or was not found."""
        seen: dict[str, list[Finding]] = {}
        for finding in findings:
            seen.setdefault(finding.topic, []).append(finding)
        wrong = {}
        for kind, (replica, planted, base) in self.planted.items():
            topic = "" if kind in WHOLE_DIRECTORY else kind
            if not is_found(planted, replica, base, seen.pop(topic, [])):
                wrong[kind] = [f"planted {planted} on {replica}"]
        for topic, others in seen.items():
            wrong[topic] = [finding.sentence for finding in others]
        return wrong


def is_found(planted: Planted, replica: str, base: int, findings: Sequence[Finding]) -> bool:
    """Whether there is one class of findings, and it names check, replica, offset and leader epoch.

    A changed record in a compressed batch cannot be told from its neighbours, so there the batch is named.
    """
    classes = {(finding.check, finding.replica) for finding in findings}
    named = {(finding.offset, finding.epoch) for finding in findings}
    return classes == {(planted.check, replica)} and bool(
        named & {(planted.offset, planted.epoch), (base, planted.epoch)}
    )


def batch_of(directory: Path, offset: int) -> int:
    """The base offset of the batch that holds an offset; the offset itself when no batch does."""
    headers = [header for path in directory.glob("*.log") for _, header in iter_batches(path.read_bytes())]
    return next((each.base_offset for each in headers if each.base_offset <= offset <= each.last_offset), offset)


def plant_all(
    sources: Mapping[str, Path],
    partitions: Sequence[TopicPartition],
    root: Path,
    seed: int,
    *,
    near_everywhere: bool = True,
) -> Plantings:
    """Copies with everything planted at once, each kind in its own topic, on the first replica (but replica 1, which
    the others are compared with) and of the first partition where it can be planted; near misses of each partition, or
    of the first one, too.

    Replicas that were killed before they had the end of the log are left as they are: what is planted would be judged
    with what they lack.
    """
    made = Plantings({name: root / name for name in sources})
    stage = _Stage(sources, made.replicas, root / "stage")
    for kind in KINDS:
        if kind not in WHOLE_DIRECTORY:
            made.planted[kind] = _plant_kind(kind, partitions, stage, seed)
            made.near[kind] = _plant_near(kind, partitions, stage, near_everywhere)
    stage.write_checkpoints()
    return made


def plant_directory(kind: str, sources: Mapping[str, Path], partition: TopicPartition, root: Path) -> Plantings:
    """The same for a kind that concerns a whole log directory; the near miss is in replica 3."""
    made = Plantings({name: root / name for name in sources})
    for name, path in made.replicas.items():
        shutil.copytree(sources[name], path)
    made.planted[kind] = ("2", plant(kind, made.replicas["2"], partition, random.Random(kind)), -1)
    NEAR_MISSES[kind](made.replicas["3"] / str(partition))
    return made


class _Stage:
    """Where one topic at a time is damaged, with checkpoints that have nothing else in them."""

    def __init__(self, sources: Mapping[str, Path], replicas: Mapping[str, Path], root: Path) -> None:
        self.sources = sources
        self.replicas = replicas
        self.stages = {name: root / name for name in sources}
        self._offsets: dict[Path, dict[TopicPartition, int]] = {}
        for name, path in sources.items():
            for directory in (replicas[name], self.stages[name]):
                directory.mkdir(parents=True)
                for file in (META_PROPERTIES, CLEAN_SHUTDOWN):
                    if (path / file).exists():
                        shutil.copyfile(path / file, directory / file)

    def level(self, partition: TopicPartition) -> list[str]:
        """The replicas that have the partition's log to its end."""
        ends = {name: _end_of_source(path / str(partition)) for name, path in self.sources.items()}
        return sorted(name for name, end in ends.items() if end == max(ends.values()))

    def copy(self, partition: TopicPartition, target: TopicPartition) -> None:
        """Have this one alone on the stage, by another name."""
        for name, stage in self.stages.items():
            for directory in stage.glob("*/"):
                shutil.rmtree(directory)
            (stage / str(target)).mkdir()
            for file, content in _content(self.sources[name] / str(partition)).items():
                (stage / str(target) / file).write_bytes(content)
            for path in stage.glob("*checkpoint"):
                path.unlink()
            for file in CHECKPOINTS:
                offset = _offsets_of_source(self.sources[name] / file).get(partition)
                offsets = {} if offset is None else {target: offset}
                (stage / file).write_bytes(encode_offset_checkpoint(offsets))

    def keep(self) -> None:
        """What is on the stage belongs to the replicas from now on."""
        for name, stage in self.stages.items():
            for directory in stage.glob("*/"):
                directory.rename(self.replicas[name] / directory.name)
            for path in stage.glob("*checkpoint"):
                offsets = self._offsets.setdefault(self.replicas[name] / path.name, {})
                offsets |= decode_offset_checkpoint(path.read_bytes())

    def write_checkpoints(self) -> None:
        for path, offsets in self._offsets.items():
            path.write_bytes(encode_offset_checkpoint(offsets))


def _plant_kind(kind: str, partitions: Sequence[TopicPartition], stage: _Stage, seed: int) -> tuple[str, Planted, int]:
    reasons = []
    target = TopicPartition(kind, 0)
    for partition in partitions:
        for replica in stage.level(partition):
            if replica == REFERENCE:
                continue
            stage.copy(partition, target)
            try:
                planted = plant(kind, stage.stages[replica], target, random.Random(f"{kind}-{seed}"))
            except NothingToDamage as error:
                reasons.append(str(error))
                continue
            stage.keep()
            return replica, planted, batch_of(stage.sources[REFERENCE] / str(partition), planted.offset)
    raise AssertionError(f"{kind} could not be planted: {reasons}")


def _plant_near(
    kind: str, partitions: Sequence[TopicPartition], stage: _Stage, everywhere: bool
) -> list[TopicPartition]:
    reasons: list[str] = []
    planted: list[TopicPartition] = []
    for partition in partitions:
        if planted and not everywhere:
            break
        target = TopicPartition(f"{NEAR}{kind}-{partition.topic}-{partition.partition}", 0)
        stage.copy(partition, target)
        if _plant_near_miss(NEAR_MISSES[kind], stage.level(partition), stage.stages, target, reasons):
            stage.keep()
            planted.append(partition)
    assert planted, f"the near miss of {kind} could not be planted: {reasons}"
    return planted


def _plant_near_miss(
    near: NearMiss,
    level: Sequence[str],
    replicas: Mapping[str, Path],
    target: TopicPartition,
    reasons: list[str],
) -> bool:
    """On the first replica where it can be planted, or on all. A near miss that cannot be planted changes nothing."""
    if near in EVERYWHERE and len(level) < len(replicas):
        reasons.append(f"{target}: the replicas do not end alike")
        return False
    for group in (level,) if near in EVERYWHERE else [(name,) for name in level if name != REFERENCE]:
        try:
            for name in group:
                near(replicas[name] / str(target))
        except NothingToDamage as error:
            reasons.append(str(error))
            continue
        return True
    return False


@cache  # nobody changes a source
def _end_of_source(directory: Path) -> tuple[int, int]:
    return log_end_of(directory)


@cache  # one partition is copied for each kind of damage
def _content(directory: Path) -> Mapping[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@cache
def _offsets_of_source(path: Path) -> Mapping[TopicPartition, int]:
    return decode_offset_checkpoint(path.read_bytes()) if path.exists() else {}
