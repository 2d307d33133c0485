"""`odradek consume -G`: read as a member of a group. What was printed is committed, and nothing else."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Literal

from odradek_proto.command_line import TIMED_OUT, USAGE, CommandFailed

from odradek import Consumer
from odradek.cli.records.format import Part
from odradek.cli.terminal.parsing import Span
from odradek.cli.terminal.stopping import told_to_stop

LOOK_EVERY_S = 0.5
Reader = Consumer[bytes | None, bytes | None]


class Member:
    """`span` says where to begin what the group has not committed yet. Raises `CommandFailed` for any other place."""

    def __init__(self, servers: str, group: str, span: Span, partitions: list[int] | None, show: Part) -> None:
        if partitions or span.end is not None or span.begin.kind not in ("beginning", "end"):
            raise CommandFailed(
                "-G: the group says what is read, and from where on",
                hint="-o beginning or -o end for where nothing was committed; `odradek group reset-offsets` moves it",
                exit_code=USAGE,
            )
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest" if span.begin.kind == "beginning" else "latest",
        }
        self._show = show

    async def run(self, topics: list[str], *, to_end: bool, count: int | None, patience: float | None) -> bool:
        """Print until there was enough. Raises `CommandFailed` (5) when no record came within `patience` seconds.

        Ctrl-C, SIGTERM and SIGHUP end it as enough does, after a commit and not before it has left: then true.
        """
        reading = asyncio.ensure_future(self._read(topics, to_end=to_end, count=count, patience=patience))
        with told_to_stop(reading.cancel):
            try:
                await reading
            except asyncio.CancelledError:
                if not reading.cancelled():
                    raise
        return reading.cancelled()

    async def _read(self, topics: list[str], *, to_end: bool, count: int | None, patience: float | None) -> None:
        async with Reader.from_config(self._settings) as consumer:
            expressions = [topic for topic in topics if topic.startswith("^")]
            named = [topic for topic in topics if not topic.startswith("^")]
            pattern = "|".join(
                f"({each}).*" for each in expressions
            )  # of whole names, where the command's are of beginnings
            consumer.subscribe(named, pattern=pattern or None)
            seen, last = 0, time.monotonic()
            at_once = None if count is None else 1
            until: Literal["end"] | None = "end" if to_end else None
            async for batch in consumer.batches(max_records=at_once, max_wait=LOOK_EVERY_S, until=until):
                sys.stdout.buffer.write(b"".join([self._show(record) for record in batch]))
                sys.stdout.buffer.flush()
                seen += len(batch)
                if batch:
                    last = time.monotonic()
                if count is not None and seen >= count:
                    break
                if patience is not None and time.monotonic() - last >= patience:
                    raise CommandFailed(f"no record within {patience:g} s", exit_code=TIMED_OUT)
