"""The demo on one screen: what is being done, who leads, where every replica's log ends, what happened."""

from __future__ import annotations

import time
from collections import deque

from odradek.cli.clusters.status import PartitionStatus
from odradek.cli.clusters.view import replica_cell
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from odradek_chaos.demo.state import STEPS, DemoState

MOST_HAPPENINGS = 13
FRAME = 2  # lines and columns that the panel takes, and as many columns of padding
RATE_WINDOW_S = 1.0
SPINNER = "|/-\\"


class DemoView:
    """Draws a state. Call it for each frame; it remembers what it needs for the rate."""

    def __init__(self, state: DemoState) -> None:
        self._state = state
        self._counts: deque[tuple[float, int]] = deque()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """What happened last is never cut: what happened before gives way."""
        state = self._state
        parts: list[RenderableType] = [self._steps(), self._doing(), self._numbers(), self._brokers(), Text()]
        lines = FRAME + len(parts)
        if state.status is not None and state.status.partitions:
            parts += [self._partitions(), Text()]
            lines += len(state.status.partitions) + 2
        room = max(1, (options.height or console.height) - lines)
        parts += self._happenings(min(MOST_HAPPENINGS, room), options.max_width - 2 * FRAME, console)
        title = "odradek: three brokers, one kill -9, one audit"
        yield Panel(Group(*parts), title=title, title_align="left", padding=(0, 1))

    def _steps(self) -> Text:
        now = STEPS.index(self._state.step)
        text = _line()
        for number, step in enumerate(STEPS):
            style = "green" if number < now else "bold" if number == now else "dim"
            text.append(f"{'>' if number == now else ' '}{step}  ", style)
        return text

    def _doing(self) -> Text:
        spin = SPINNER[int(self._state.elapsed_s * 8) % len(SPINNER)]
        return _line().append(f"{spin} {self._state.doing}", "cyan")

    def _numbers(self) -> Text:
        state, ledger = self._state, self._state.ledger
        if ledger is None:
            return _line()
        silence = state.failover_ms if state.failover_ms is not None else state.silence_ms
        return _line().append_text(Text.assemble(
            ("acknowledged ", "dim"), (f"{ledger.acknowledged:,}", "bold"), f" {self._rate():,.0f}/s",
            ("  in flight ", "dim"), f"{ledger.unacknowledged:>2}",
            ("  failed ", "dim"), f"{ledger.failed}",
            ("  silence ", "dim"), (f"{silence} ms", "bold yellow" if silence > 300 else "bold"),
            ("  time ", "dim"), f"{state.elapsed_s:.0f} s",
        ))  # fmt: skip

    def _rate(self) -> float:
        ledger = self._state.ledger
        assert ledger is not None
        now = time.monotonic()
        self._counts.append((now, ledger.acknowledged))
        while self._counts[0][0] < now - RATE_WINDOW_S:
            self._counts.popleft()
        since, count = self._counts[0]
        return (ledger.acknowledged - count) / (now - since) if now > since else 0.0

    def _brokers(self) -> Text:
        state, status = self._state, self._state.status
        fenced = {broker.broker_id for broker in status.brokers if broker.fenced} if status is not None else set()
        text = _line()
        for broker_id in range(1, state.brokers + 1):
            if state.stopped:
                word, style = "stopped", "dim"
            elif broker_id in state.dead:
                word, style = ("dead", "bold red") if state.step == "kill" else ("coming back", "yellow")
            elif status is None:
                word, style = "starting", "dim"
            else:
                word, style = ("fenced", "yellow") if broker_id in fenced else ("up", "green")
            role = (
                " (controller)"
                if status is not None and status.controller_id == broker_id and not state.stopped
                else ""
            )
            text.append(f"broker {broker_id} ").append(word, style).append(f"{role}  ")
        if status is not None and status.quorum is not None:
            text.append(f"quorum epoch {status.quorum.leader_epoch}", "dim")
        return text

    def _partitions(self) -> Table:
        status = self._state.status
        assert status is not None
        table = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 1, 0, 0))
        for heading in ("partition", "leader", "epoch", "in sync"):
            table.add_column(heading, no_wrap=True)
        for broker in status.brokers:
            table.add_column(f"{broker.broker_id}: LEO/HW", no_wrap=True, overflow="ellipsis")
        for partition in status.partitions:
            in_sync = Text(",".join(map(str, sorted(partition.isr))), "yellow" if partition.under_replicated else "")
            leader = Text("none", "bold red") if partition.leaderless else Text(str(partition.leader_id), "bold green")
            cells = [self._replica(partition, broker.broker_id) for broker in status.brokers]
            table.add_row(partition.name, leader, str(partition.leader_epoch), in_sync, *cells)
        return table

    def _replica(self, partition: PartitionStatus, broker_id: int) -> Text:
        if broker_id in self._state.dead and broker_id not in partition.replicas:
            return Text("gone", "red")
        style = "bold green" if broker_id == partition.leader_id else "" if broker_id in partition.isr else "yellow"
        return Text(replica_cell(partition, broker_id), style)

    def _happenings(self, rows: int, width: int, console: Console) -> list[Text]:
        """The newest one whole, on as many rows as it takes; of each one before it what fits into a row."""
        lines: list[Text] = []
        for happening in reversed(self._state.happenings):
            line = _line().append(f"{happening.at_s:6.1f} s  ", "dim")
            line.append(happening.text, "bold red" if happening.bad else "")
            if lines:
                rows -= 1
            else:
                line.no_wrap, line.overflow = False, "fold"
                rows -= len(line.wrap(console, width))
            if lines and rows < 0:
                break
            lines.insert(0, line)
        return lines


def _line() -> Text:
    """A text that never takes two lines."""
    return Text(no_wrap=True, overflow="ellipsis")
