"""The last word: the worlds' log directories on a real disk, read by the auditor, with what the clients were told.

The auditor knows nothing of lessons: it is the local engine of `odradek audit run`, on files that the product's
storage wrote.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from odradek_audit.engine.local import audit
from odradek_audit.findings import Finding
from odradek_audit.inputs.history import History, encode_event
from odradek_audit.report import EXIT_FINE
from odradek_proto.words import noun

from odradek_chaos.lessons.lesson import LessonRun, LessonWorld, Setting
from odradek_chaos.lessons.views import WorldView

HISTORY_FILE = "history.jsonl"


@dataclass(frozen=True)
class AuditedWorld:
    """How one world ended: what the auditor said, and which acknowledged records its leader lacks."""

    world: str
    findings: tuple[Finding, ...]
    compared_records: int
    fine: bool  # nothing found, and enough compared to say so
    lost: tuple[str, ...]


@dataclass(frozen=True)
class LessonVerdict:
    """How a lesson ended. `unmet` says what was expected and did not come; empty when all is as it should be.

    `cause` is what the brokers' evidence says, under headings; empty when they did not write it down.
    """

    worlds: tuple[AuditedWorld, ...]
    unmet: tuple[str, ...]
    cause: Mapping[str, str] = field(default_factory=dict)

    def as_json(self, lesson: str) -> dict[str, Any]:
        return {
            "lesson": lesson,
            "verdict": [
                {
                    "world": each.world,
                    "fine": each.fine,
                    "compared_records": each.compared_records,
                    "lost": list(each.lost),
                    "findings": [asdict(finding) for finding in each.findings],
                }
                for each in self.worlds
            ],
            "cause": dict(self.cause),
            "unmet": list(self.unmet),
        }


def judge(played: LessonRun, directory: Path | None = None) -> LessonVerdict:
    """Stop all brokers cleanly and audit their directories, in `directory` or in a temporary one.

    A lesson can be judged once. In `directory` one directory for each world is left, with one for each broker and the
    history in it. Raises `OSError`.
    """
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="odradek-lesson-") as temporary:
            return judge(played, Path(temporary))
    audited = tuple(
        _audit(world, seen, directory / place_of(world.setting), played.lesson.shows.acks_1)
        for world, seen in zip(played.worlds, played.frames[-1].worlds, strict=True)
    )
    unmet = [each for world, found in zip(played.worlds, audited, strict=True) for each in _unmet(world.setting, found)]
    try:
        return LessonVerdict(audited, tuple(unmet), played.lesson.cause(played))
    except LookupError as error:
        return LessonVerdict(audited, (*unmet, str(error)))


def place_of(setting: Setting) -> str:
    """The name of a world's directory."""
    return "".join(each if each.isalnum() or each in "=.-" else "-" for each in setting.name.lower())


def _audit(world: LessonWorld, seen: WorldView, directory: Path, counts_acks_1: bool) -> AuditedWorld:
    replicas: dict[str, Path] = {}
    for number, node in world.stage.nodes.items():
        if node.running:
            node.disk.close()
        replicas[str(number)] = directory / f"broker-{number}"
        node.disk.copy_to(replicas[str(number)])
    lines = "".join(encode_event(event) + "\n" for event in world.stage.history)
    (directory / HISTORY_FILE).write_text(lines)
    report = audit(replicas, history=History.read(directory / HISTORY_FILE), settled=True)
    lost = tuple(each.value for each in seen.acknowledged if each.gone and (each.acks_all or counts_acks_1))
    fine = report.exit_code == EXIT_FINE
    return AuditedWorld(world.setting.name, tuple(report.findings), report.compared_records, fine, lost)


def _unmet(setting: Setting, audited: AuditedWorld) -> Iterator[str]:
    found = {(finding.check, finding.offset, finding.epoch) for finding in audited.findings}
    for each in setting.expected:
        if (each.check, each.offset, each.epoch) not in found:
            yield f"{setting.name}: no {each.check} at offset {each.offset}, epoch {each.epoch}"
    if not setting.expected and not audited.fine:
        count, compared = len(audited.findings), audited.compared_records
        yield f"{setting.name}: {count} {noun(count, 'finding')}, {compared} copies of records compared"
    if audited.lost != setting.lost:
        yield f"{setting.name}: lost are {' '.join(audited.lost) or 'none'}, not {' '.join(setting.lost) or 'none'}"
