"""The last word: both worlds' log directories on a real disk, read by the auditor, with what the clients were told.

The auditor knows nothing of lessons: it is the local engine of `odradek audit run`, on files that the product's
storage wrote.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from odradek_audit.engine.local import audit
from odradek_audit.findings import Finding
from odradek_audit.inputs.history import History, encode_event
from odradek_audit.report import EXIT_FINE, Report
from odradek_proto.words import noun

from odradek_chaos.lessons.lesson import Cause, Played
from odradek_chaos.lessons.replica import DIRECTORY, Replica
from odradek_chaos.lessons.world import World

HISTORY_FILE = "history.jsonl"


@dataclass(frozen=True)
class Audited:
    """What the auditor said about one world."""

    mode: str
    findings: tuple[Finding, ...]
    compared_records: int
    fine: bool  # nothing found, and enough compared to say so


@dataclass(frozen=True)
class Verdict:
    """How a lesson ended. `unmet` says what was expected and did not come; empty when all is as it should be.

    `cause` is None when the brokers did not write down what the lesson explains.
    """

    old: Audited
    new: Audited
    cause: Cause | None
    unmet: tuple[str, ...]

    def as_json(self, lesson: str) -> dict[str, Any]:
        return {
            "lesson": lesson,
            "verdict": [
                {
                    "mode": each.mode,
                    "fine": each.fine,
                    "compared_records": each.compared_records,
                    "findings": [asdict(finding) for finding in each.findings],
                }
                for each in (self.old, self.new)
            ],
            "cause": None if self.cause is None else asdict(self.cause),
            "unmet": list(self.unmet),
        }


def judge(played: Played, directory: Path | None = None) -> Verdict:
    """Stop both worlds' brokers cleanly and audit their directories, in `directory` or in a temporary one.

    A lesson can be judged once. In `directory` one directory for each world is left, with one for each broker and the
    history in it. Raises `OSError`.
    """
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="odradek-lesson-") as temporary:
            return judge(played, Path(temporary))
    old, new = (_audit(world, directory / world.mode.value) for world in (played.old, played.new))
    unmet = _unmet(played, old, new)
    try:
        cause = played.lesson.cause(played.old, played.new)
    except LookupError as error:
        return Verdict(old, new, None, (*unmet, str(error)))
    return Verdict(old, new, cause, tuple(unmet))


def _audit(world: World, directory: Path) -> Audited:
    replicas: dict[str, Path] = {}
    for number, replica in world.replicas.items():
        replica.close()
        replicas[str(number)] = directory / f"broker-{number}"
        _copy_out(replica, replicas[str(number)])
    lines = "".join(encode_event(event) + "\n" for event in world.history)
    (directory / HISTORY_FILE).write_text(lines)
    report = _report(replicas, directory / HISTORY_FILE)
    return Audited(world.mode.value, tuple(report.findings), report.compared_records, report.exit_code == EXIT_FINE)


def _report(replicas: Mapping[str, Path], history: Path) -> Report:
    return audit(replicas, history=History.read(history), settled=True)


def _copy_out(replica: Replica, target: Path) -> None:
    """The simulated disk's files, byte for byte."""
    for path, inode in replica.disk.walk(DIRECTORY):
        file = target / path.removeprefix(f"{DIRECTORY}/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(inode.data)


def _unmet(played: Played, old: Audited, new: Audited) -> list[str]:
    found = {(finding.check, finding.offset, finding.epoch) for finding in old.findings}
    unmet = [
        f"{old.mode}: no {each.check} at offset {each.offset}, epoch {each.epoch}"
        for each in played.lesson.expected
        if (each.check, each.offset, each.epoch) not in found
    ]
    if not new.fine:
        count, compared = len(new.findings), new.compared_records
        said = f"{count} {noun(count, 'finding')}, {compared} {noun(compared, 'record')} compared"
        unmet.append(f"{new.mode}: {said}")
    return unmet
