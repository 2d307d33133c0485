"""What became of mutants, and a journal of it: a line of JSON each, so that a long run can be cut short and go on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant."""

    name: str
    area: str
    breaks: str
    check: str
    by: str  # seeds, tests, time, error, or nothing
    seeds: int
    reached: bool
    seconds: float

    @property
    def caught(self) -> bool:
        return self.by != ""

    def line(self) -> str:
        after = f"{self.seeds} seeds" if self.by == "seeds" else self.by
        reached, check = "reached" if self.reached else "not reached", self.check or "SURVIVED"
        return f"{self.name:44} {self.area:16} {after:10} {reached:12} {self.seconds:6.1f} s  {check}"


class Journal:
    """Verdicts by a digest of what was judged: the mutant's whole text. Other files are not asked about: begin a new
    journal when the sources have changed.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[str, Verdict] = {}
        if path is not None and path.exists():
            for line in path.read_text(encoding="utf-8").splitlines():
                facts = json.loads(line)
                digest = facts.pop("digest")
                self._known[digest] = Verdict(**facts)

    @staticmethod
    def digest(judged: object) -> str:
        """Of all that decides a verdict."""
        return hashlib.sha256(repr(judged).encode()).hexdigest()[:16]

    def known(self, digest: str) -> Verdict | None:
        return self._known.get(digest)

    def note(self, digest: str, verdict: Verdict) -> None:
        """Keep a verdict, on the disk as well, at once."""
        self._known[digest] = verdict
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"digest": digest, **asdict(verdict)}) + "\n")
