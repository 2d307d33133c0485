"""What the commands of all packages share: exit codes, how one fails, the formats of its output."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

FINE: Final = 0
FAILED: Final = 1  # or inconclusive
USAGE: Final = 2
FINDINGS: Final = 3
UNREACHABLE: Final = 4
TIMED_OUT: Final = 5
INTERRUPTED: Final = 130


class CommandFailed(Exception):
    """A command cannot do what it was asked to. `hint` says what to try."""

    def __init__(self, message: str, *, hint: str = "", exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code


class OutputFormat(StrEnum):
    """How data is printed on standard output."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
