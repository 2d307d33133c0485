"""A bar that says how far an audit is, for people who look: on a terminal, and not beside JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from odradek_audit.engine import local


class ProgressBar:
    """Bytes done of all, speed, time that is left; `say` replaces the words before the bar."""

    def __init__(self, progress: Progress, line: TaskID) -> None:
        self._progress = progress
        self._line = line

    def show(self, progress: local.AuditProgress) -> None:
        """How far it is."""
        what = f"reading {progress.partition}".rstrip()
        self._progress.update(self._line, completed=progress.done_bytes, total=progress.total_bytes, description=what)

    def say(self, text: str) -> None:
        """What goes on while nothing is read."""
        self._progress.update(self._line, description=text)


@contextlib.contextmanager
def progress_bar(console: Console, *, shown: bool) -> Iterator[ProgressBar]:
    """A bar as long as the block lasts; gone without a trace after it, silent unless `console` is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not (shown and console.is_terminal)) as progress:
        yield ProgressBar(progress, progress.add_task("looking at the directories", total=None))
