"""The work of `odradek consume`: find where to begin and to end, read, print, and say which partition is waited for.

Rules of this module. A partition is read from the moment on at which its leader has said where to begin: one that
nobody leads holds up no other. What does not pass by itself within `PATIENCE_S` is told once, and its end as well.
"""

from __future__ import annotations

import asyncio
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

from odradek_proto.command_line import TIMED_OUT, USAGE, CommandFailed
from odradek_proto.words import noun

from odradek import Admin, BrokerError, Consumer, OdradekError, TopicPartition
from odradek.cli.records.format import Part, Record
from odradek.cli.records.measures import LOOK_EVERY_S, PATIENCE_S, REMEDY
from odradek.cli.records.produce import partitions_of
from odradek.cli.terminal.parsing import ReadSpan, Start
from odradek.cli.terminal.screen import Screen, first_of
from odradek.cli.terminal.stopping import told_to_stop
from odradek.core.fetch_state import EARLIEST, LATEST
from odradek.shared.results import OffsetAndTimestamp

MAX_NAMED = 5
PART_OF_THEM = f"{REMEDY}; -p reads some partitions alone"
NOTHING_CAME = "-o beginning reads what is there already, --timeout gives it more time"

Reader = Consumer[bytes | None, bytes | None]
Troubles = Mapping[TopicPartition, OdradekError]


class ConsumeRun:
    """One run of `odradek consume`. With `to_end`, or a span that has an end, it ends by itself."""

    def __init__(self, servers: str, span: ReadSpan, *, to_end: bool, show: Part, screen: Screen) -> None:
        self._servers = servers
        self._span = span
        self._to_end = to_end
        self._show = show
        self._news = WaitNotices(screen)
        self._ends: dict[TopicPartition, int] = {}  # up to where the partitions are read that are not done yet
        self._unplaced: dict[TopicPartition, OdradekError | None] = {}  # where no leader has said yet where, and why

    @property
    def _ends_by_itself(self) -> bool:
        return self._to_end or self._span.end is not None

    async def run(
        self, topics: list[str], numbers: list[int] | None, *, count: int | None, patience: float | None
    ) -> int:
        """Read and print; returns how many records. Raises `CommandFailed` (5) when none came within `patience`."""
        settings = {"bootstrap.servers": self._servers, "auto.offset.reset": "earliest"}
        async with Reader.from_config(settings) as consumer:
            self._unplaced |= dict.fromkeys(await partitions_meant(self._servers, consumer, topics, numbers))
            await self._place(consumer)
            placing = asyncio.create_task(self._place_the_rest(consumer))
            try:
                return await self._print(consumer, placing, count, patience)
            finally:
                placing.cancel()
                await asyncio.gather(placing, return_exceptions=True)

    # --- where to begin and to end ----------------------------------------------------------------------------------

    async def _place_the_rest(self, consumer: Reader) -> None:
        while self._unplaced:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._place(consumer)

    async def _place(self, consumer: Reader) -> None:
        """Ask once where partitions begin and end, and read those whose leaders answer."""
        asked = [*self._unplaced]
        places = [place for place in self._span if place is not None]
        times = dict.fromkeys([EARLIEST, LATEST, *(place.number for place in places if place.kind == "time")])
        answers = await asyncio.gather(*(consumer.offsets_or_errors(dict.fromkeys(asked, time)) for time in times))
        begins: dict[TopicPartition, int] = {}
        for tp in asked:
            found = [answer[tp] for answer in answers]
            error = next((each for each in found if isinstance(each, OdradekError)), None)
            if error is not None and not error.retriable:
                raise error
            offsets = {
                time: each.offset
                for time, each in zip(times, found, strict=True)
                if isinstance(each, OffsetAndTimestamp)
            }
            if error is None:
                begins[tp] = self._begin_of(tp, offsets)
                if self._ends_by_itself:
                    self._ends[tp] = self._end_of(offsets)
                del self._unplaced[tp]
            else:
                self._unplaced[tp] = error
        if begins:
            consumer.assign([*consumer.assignment(), *begins])
        for tp, begin in begins.items():
            consumer.seek(tp, begin)

    def _begin_of(self, tp: TopicPartition, offsets: Mapping[int, int]) -> int:
        begin, first, end = self._span.begin, offsets[EARLIEST], offsets[LATEST]
        if begin.kind == "offset" and not first <= begin.number <= end:
            raise CommandFailed(
                f"{tp} has offsets {first} to {end}, not {begin.number}",
                hint="-o beginning and -o -10 fit every log; `odradek topic offsets` shows where each begins and ends",
            )
        return place_of(begin, offsets)

    def _end_of(self, offsets: Mapping[int, int]) -> int:
        end = offsets[LATEST] if self._span.end is None else place_of(self._span.end, offsets)
        return min(end, offsets[LATEST]) if self._to_end else end

    # --- records ---------------------------------------------------------------------------------------------------

    async def _print(
        self, consumer: Reader, placing: asyncio.Task[None], count: int | None, patience: float | None
    ) -> int:
        """Poll until the ends are reached, `count` records are printed, or nothing came within `patience`."""
        seen, last = 0, time.monotonic()
        while count is None or seen < count:
            if self._ends_by_itself and await self._at_ends(consumer):
                break
            left = LOOK_EVERY_S if patience is None else min(LOOK_EVERY_S, last + patience - time.monotonic())
            records = await consumer.poll(max(left, 0))
            if placing.done():
                placing.result()
            troubles = self._troubles(consumer)
            if records:
                last = time.monotonic()
            elif patience is not None and time.monotonic() - last >= patience:
                raise _no_record(patience, troubles)
            self._news.look(troubles, time.monotonic())
            if self._ends_by_itself:
                records = [record for record in records if record.offset < self._ends.get(record.topic_partition, 0)]
            if count is not None:
                records = records[: count - seen]
            seen += len(records)
            self._write(records)
        return seen

    async def _at_ends(self, consumer: Reader) -> bool:
        """Whether every partition has been read up to its end."""
        for tp in [*self._ends]:
            with suppress(TimeoutError):  # it looks for its leader, to ask where to go on
                async with asyncio.timeout(LOOK_EVERY_S):
                    if await consumer.position(tp) >= self._ends[tp]:
                        del self._ends[tp]
        return not self._ends and not self._unplaced

    def _troubles(self, consumer: Reader) -> dict[TopicPartition, OdradekError]:
        """Why partitions cannot be read; where they have ends, only of those from which more is awaited."""
        placed = {
            tp: error for tp, error in consumer.held_up_by.items() if not self._ends_by_itself or tp in self._ends
        }
        return placed | {tp: error for tp, error in self._unplaced.items() if error is not None}

    def _write(self, records: list[Record]) -> None:
        out = sys.stdout.buffer
        out.write(b"".join([self._show(record) for record in records]))
        out.flush()


def place_of(place: Start, offsets: Mapping[int, int]) -> int:
    """The offset of a place in a log, of which `offsets` has what the leader said: of its ends, and of the time."""
    begin, end = offsets[EARLIEST], offsets[LATEST]
    match place.kind:
        case "beginning":
            return begin
        case "end":
            return end
        case "offset":
            return place.number
        case "last":
            return max(begin, end - place.number)
        case _:
            at_time = offsets[place.number]
            return at_time if at_time >= 0 else end


async def partitions_meant(
    servers: str, consumer: Reader, topics: list[str], numbers: list[int] | None
) -> list[TopicPartition]:
    """Those of these topics, all or with these numbers. Raises `CommandFailed` for what is not there."""
    meant = []
    for topic in await topics_meant(servers, topics):
        known = await partitions_of(servers, topic, consumer.partitions_for)
        for number in numbers or ():
            if number not in known:
                raise CommandFailed(
                    f"{topic} has no partition {number}; it has {len(known)}, from 0 on",
                    hint=f"`odradek topic describe {topic}` shows its partitions",
                )
        meant += [TopicPartition(topic, number) for number in numbers or known]
    return meant


async def check_meant(servers: str, topics: list[str], numbers: list[int] | None) -> None:
    """Raises `CommandFailed` when something of it is not there."""
    async with Reader(servers) as consumer:
        await partitions_meant(servers, consumer, topics, numbers)


async def topics_meant(servers: str, words: list[str]) -> list[str]:
    """Topics by name, and those that an expression with `^` at its beginning matches now. Raises `CommandFailed`."""
    expressions = {word: re.compile(word) for word in words if word.startswith("^")}
    if not expressions:
        return list(dict.fromkeys(words))
    async with Admin(servers) as admin:
        known = await admin.list_topics()
    meant = {word: [word] if word not in expressions else [*filter(expressions[word].search, known)] for word in words}
    for word, found in meant.items():
        if not found:
            raise CommandFailed(f"no topic matches {word!r}", hint="`odradek topic list` shows what is there")
    return list(dict.fromkeys(topic for found in meant.values() for topic in found))


class WaitNotices:
    """What is said of partitions that are waited for."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._since: dict[TopicPartition, float] = {}
        self._told: dict[TopicPartition, None] = {}

    def look(self, troubles: Troubles, now: float) -> None:
        """Say what has been so for a while, and what no longer is; `now` is in seconds."""
        self._since = {tp: self._since.get(tp, now) for tp in troubles}
        again = [tp for tp in self._told if tp not in troubles]
        for tp in again:
            del self._told[tp]
        if again:
            self._screen.say(f"{first_of(sorted(again))}: read again")
        late = {
            tp: error for tp, error in troubles.items() if tp not in self._told and now - self._since[tp] >= PATIENCE_S
        }
        if late:
            self._told.update(dict.fromkeys(late))
            self._screen.say(f"held up: {_reasons(late)}; waiting")
            self._screen.say(f"  try: {_remedy(late)}")


def _no_record(patience: float, troubles: Troubles) -> CommandFailed:
    message = f"no record for {patience:g} {noun(patience, 'second')}"
    if not troubles:
        return CommandFailed(message, hint=NOTHING_CAME, exit_code=TIMED_OUT)
    return CommandFailed(f"{message}; held up: {_reasons(troubles)}", hint=_remedy(troubles), exit_code=TIMED_OUT)


def _reasons(troubles: Troubles) -> str:
    """Each partition with its error, the first few of them."""
    texts = [
        error.message if isinstance(error, BrokerError) else f"{tp}: {error.message}"
        for tp, error in sorted(troubles.items())
    ]
    unnamed = len(texts) - MAX_NAMED
    more = f"; and {unnamed} more {noun(unnamed, 'partition')}" if unnamed > 0 else ""
    return "; ".join(text.rstrip(".") for text in texts[:MAX_NAMED]) + more


def _remedy(troubles: Troubles) -> str:
    hints = dict.fromkeys(error.hint for _, error in sorted(troubles.items()) if error.hint)
    return "; ".join([*hints, PART_OF_THEM])


class GroupReader:
    """`odradek consume -G`: reads as a member of a group. What was printed is committed, and nothing else.

    `span` says where to begin what the group has not committed yet. Raises `CommandFailed` for any other place.
    """

    def __init__(self, servers: str, group: str, span: ReadSpan, partitions: list[int] | None, show: Part) -> None:
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
            pattern = "|".join(f"({each}).*" for each in expressions)  # of whole names; the command's are of beginnings
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
                    raise _no_record(patience, {})
