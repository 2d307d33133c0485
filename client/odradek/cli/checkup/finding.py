"""What a check has found: a sentence, and what to do about it.

Other packages add checks of their own by an entry point of the group `odradek.checks`: a function that takes
`CheckContext` and returns dictionaries with the keys of `CheckupFinding`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, TypedDict

GROUP: Final = "odradek.checks"


class Level(StrEnum):
    """A problem makes the command end with exit code 3; a note is good to know."""

    PROBLEM = "problem"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class CheckupFinding:
    """`check` is the kebab-case name of what was looked at, `about` the address, broker, topic or file."""

    level: Level
    check: str
    about: str
    says: str
    remedy: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_facts(cls, facts: Mapping[str, str]) -> CheckupFinding:
        """Of a dictionary that another package's check returned."""
        return cls(Level(facts["level"]), facts["check"], facts["about"], facts["says"], facts.get("remedy", ""))


class CheckContext(TypedDict):
    """What other packages' checks are told."""

    directory: str | None  # of the cluster on this machine that is meant
    config: str | None  # a broker's settings file
    environment: Mapping[str, str]


def problem(check: str, about: str, says: str, remedy: str = "") -> CheckupFinding:
    return CheckupFinding(Level.PROBLEM, check, about, says, remedy)


def note(check: str, about: str, says: str, remedy: str = "") -> CheckupFinding:
    return CheckupFinding(Level.NOTE, check, about, says, remedy)


def problems(findings: Sequence[CheckupFinding]) -> int:
    return sum(finding.level is Level.PROBLEM for finding in findings)
