"""How the broker's commands fail: an exception with the exit code and the hint that `odradek` prints."""

from __future__ import annotations

FINE, FAILED, USAGE, FINDINGS = 0, 1, 2, 3


class CommandFailed(Exception):
    """A command cannot do what it was asked to. `hint` says what to try."""

    def __init__(self, message: str, *, hint: str = "", exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.exit_code = exit_code
