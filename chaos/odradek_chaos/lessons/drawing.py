"""Draws pages: plain text with styles, for any width from 80 columns on.

Rules of this module. Nothing is said by colour alone: what differs has a sign, what is lost a word. A page for 80
columns has at most 24 lines. Whoever prints decides about colours; here is only what would be coloured.

A replica is drawn like this, the marks at the border in front of the offset that they name:

    broker 1   LEADER     epoch 0  ISR 1,2
    offset  0    1
    record │m1  │m2  │
    epoch  │0   │0   │
                ▲HW  ▲LEO
    knows            ▲2

The last line is the leader's alone, where a lesson shows it: the log end offset that it knows of each follower.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from rich.text import Text

from odradek_chaos.lessons.lesson import DrawingOptions, Frame, Lesson
from odradek_chaos.lessons.narration import EventKind, NarratedEvent
from odradek_chaos.lessons.views import DOWN, LEADER, AcknowledgedView, LogRecordView, ReplicaView, WorldView

NARROWEST, WIDEST = 80, 120
LOWEST = 24  # lines
BETWEEN = " │ "
LABEL = len("record ")
NARROWEST_CELL, WIDEST_CELL = 5, 8
ROOMY_LINES = 32  # a terminal of so many lines gets empty lines between the blocks

BORDER = "dim"
HEADING = "bold cyan"
BAD = "bold red"
STYLES = {
    EventKind.WIRE: "",
    EventKind.LOST: "bold yellow",
    EventKind.ACKNOWLEDGED: "green",
    EventKind.CUT: "bold yellow",
    EventKind.REFUSED: BAD,
    EventKind.FACT: "",
}
SIGNS = {
    EventKind.WIRE: "",
    EventKind.LOST: "",
    EventKind.ACKNOWLEDGED: "✓ ",
    EventKind.CUT: "! ",
    EventKind.REFUSED: "✗ ",
    EventKind.FACT: "· ",
}


@dataclass(frozen=True)
class Space:
    """The room for a page, in columns and lines. `steady`: the blocks of all steps are to stand at the same place."""

    columns: int = NARROWEST
    lines: int = LOWEST
    steady: bool = False

    @property
    def holds_a_page(self) -> bool:
        return self.columns >= NARROWEST and self.lines >= LOWEST

    @property
    def width(self) -> int:
        return max(NARROWEST, min(self.columns, WIDEST)) - 1

    @property
    def side(self) -> int:
        return (self.width - len(BETWEEN)) // 2

    @property
    def roomy(self) -> bool:
        return self.lines >= ROOMY_LINES


def frame_page(lesson: Lesson, frames: Sequence[Frame], number: int, space: Space, keys: str = "") -> list[Text]:
    """Step `number` (from 0): what happens, both worlds side by side, and why it matters."""
    frame = frames[number]
    gap = [Text()] if space.roomy else []
    actions = [paragraph(each.step.action, space.width) for each in frames]
    sides = [_sides(lesson, each, space, gap) for each in frames]
    reasons = [paragraph(each.step.why, space.width, "bold") for each in frames]
    place = f"{frame.number}/{len(frames)}"
    lines = [title_line(lesson, place, frame.step.title, keys, space), *gap]
    lines += [*_padded(actions, number, space), *gap, *_padded(sides, number, space)]
    return [*lines, *gap, rule(space), *reasons[number]]


def _sides(lesson: Lesson, frame: Frame, space: Space, gap: Sequence[Text]) -> list[Text]:
    """Two worlds beside each other; one alone has its brokers at the left and what happens at the right."""
    cell, width = cell_width(space), space.side
    blocks = [world_block(world, lesson.shows, width, cell, gap) for world in frame.worlds]
    told = [happening_block(world.happenings, width) for world in frame.worlds]
    if len(blocks) == 1:
        return beside(blocks[0], [*_clock(frame.worlds[0], lesson.shows), *gap, *told[0]], width)
    heads = [[Text(each.world, HEADING), *_clock(each, lesson.shows), *gap] for each in frame.worlds]
    left, right = (head + block + list(gap) + lines for head, block, lines in zip(heads, blocks, told, strict=True))
    return beside(left, right, width)


def _clock(world: WorldView, shows: DrawingOptions) -> list[Text]:
    return [Text(f"the clock: {world.now_ms:,} ms", "dim")] if shows.waiting else []


def _padded(blocks: Sequence[list[Text]], number: int, space: Space) -> list[Text]:
    """One of the blocks; on a screen as high as the highest of them, so that nothing jumps from step to step."""
    block = blocks[number]
    missing = max(map(len, blocks)) - len(block) if space.steady else 0
    return block + [Text()] * missing


def title_line(lesson: Lesson, place: str, title: str, keys: str, space: Space) -> Text:
    """Where we are, and at the right what the keys do."""
    text = Text.assemble((lesson.name, HEADING), (f" · {place} · " if place else " · ", "dim"), (title, "bold"))
    text.append(" " * max(2, space.width - text.cell_len - len(keys)))
    text.append(keys, "dim")
    text.rstrip()
    return text


def rule(space: Space) -> Text:
    return Text("─" * space.width, BORDER)


def paragraph(words: str, width: int, style: str = "", indent: str = "") -> list[Text]:
    """Lines of words; the name of a lesson or a setting is one word."""
    lines = textwrap.wrap(words, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    return [Text(line, style) for line in lines]


def beside(left: Sequence[Text], right: Sequence[Text], width: int) -> list[Text]:
    """Two blocks as one, with a line between them."""
    lines = []
    for one, other in zip_longest(left, right, fillvalue=Text()):
        padded = one.copy()
        padded.append(" " * (width - one.cell_len))
        line = padded.append(BETWEEN, BORDER).append_text(other)
        line.rstrip()
        lines.append(line)
    return lines


# --- One world -----------------------------------------------------------------------------------------------------


def cell_width(space: Space) -> int:
    """Columns of a record and its left border: six records and the last border fit into a side."""
    return max(NARROWEST_CELL, min((space.side - LABEL - 1) // 6, WIDEST_CELL))


def world_block(world: WorldView, shows: DrawingOptions, width: int, cell: int, gap: Sequence[Text]) -> list[Text]:
    """One world: its replicas, what was promised, and who waits."""
    lines: list[Text] = []
    for replica in world.replicas:
        lines += [*replica_block(replica, shows, width, cell), *gap]
    lines += _promised(world.acknowledged, shows, width)
    if shows.waiting:
        lines += [*gap, Text("in the purgatory of the leader:" if world.waiting else "nobody waits", "dim")]
        lines += [line for each in world.waiting for line in paragraph(each, width, "bold", "  ")]
    return lines


def happening_block(happenings: Sequence[NarratedEvent], width: int) -> list[Text]:
    """What happened in this step, each wrapped below its own beginning."""
    lines = []
    for each in happenings:
        wrapped = textwrap.wrap(f"{SIGNS[each.kind]}{each.text}", width, subsequent_indent="    ")
        lines += [Text(line, STYLES[each.kind]) for line in wrapped]
    return lines


def replica_block(replica: ReplicaView, shows: DrawingOptions, width: int, cell: int) -> list[Text]:
    """One replica: who it is, its records, its marks."""
    down = replica.role == DOWN
    offsets, records, epochs = (Text.assemble((label, "dim")) for label in ("offset ", "record ", "epoch  "))
    for record in replica.records:
        bad = record.differs or record.again
        committed = record.offset < replica.high_watermark
        style = BAD if bad else "bold" if committed and not down else ""
        offsets.append(f" {record.offset}{'!' if record.again else ''}".ljust(cell), BAD if record.again else "")
        records.append("│", BORDER).append(_value(record).ljust(cell - 1), style)
        epochs.append("│", BORDER).append(str(record.leader_epoch).ljust(cell - 1), BAD if bad else "")
    if replica.records:
        records.append("│", BORDER)
        epochs.append("│", BORDER)
    offsets.rstrip()
    lines = [_who(replica), offsets, records, epochs, _marks(replica, cell, width)]
    if shows.remote and replica.role == LEADER:
        lines.append(_known(replica, cell))
    return [*lines, _disk(replica)] if shows.disk else lines


def _value(record: LogRecordView) -> str:
    return f"{record.value}≠" if record.differs else record.value


def _who(replica: ReplicaView) -> Text:
    style = {LEADER: "bold green", DOWN: BAD}.get(replica.role, "bold")
    word = replica.role if replica.role not in (LEADER, DOWN) else replica.role.upper()
    text = Text.assemble((f"broker {replica.broker}  ", "bold"), (f"{word:<8}  ", style))
    if replica.role == DOWN:
        return text.append("its disk holds:", "dim")
    text.append(f"epoch {replica.leader_epoch}")
    if replica.isr:
        text.append(f"  ISR {','.join(map(str, replica.isr))}")
    return text


def _marks(replica: ReplicaView, cell: int, width: int) -> Text:
    """High watermark and log end offset, each under the border in front of the offset that it names."""
    below = sum(1 for record in replica.records if record.offset < replica.high_watermark)
    high, end = LABEL + cell * below, LABEL + cell * len(replica.records)
    marks = [(high, "HW")] if high != end else [(end, "HW=LEO")]
    if high != end:
        marks.append((end, "LEO"))
    line = ""
    for column, name in marks:
        said = f"▲{name}"
        if column + len(said) > width:
            said, column = f"{name}▲", column - len(name)
        line = line.ljust(column) + said
    return Text(line, "cyan")


def _known(replica: ReplicaView, cell: int) -> Text:
    """Each follower's log end offset as the leader knows it, below the border in front of it; behind them the rest."""
    line = "knows"
    for offset in sorted({end for _, end in replica.remote if end >= 0}):
        who = ",".join(str(broker) for broker, end in replica.remote if end == offset)
        below = sum(1 for record in replica.records if record.offset < offset)
        line = line.ljust(LABEL + cell * below) + f"▲{who}"
    unknown = ",".join(str(broker) for broker, end in replica.remote if end < 0)
    return Text(f"{line}  nothing of {unknown}" if unknown else line, "magenta")


def _disk(replica: ReplicaView) -> Text:
    """What a power loss would leave."""
    if replica.role == DOWN:
        return Text(f"on disk: all of it, HW file {replica.high_watermark_file}")
    return Text(f"on disk: below {replica.flushed}, HW file {replica.high_watermark_file}")


def _promised(acknowledged: Iterable[AcknowledgedView], shows: DrawingOptions, width: int) -> list[Text]:
    """The records that acks=all promised to keep, and, where a lesson is about them, those of acks=1."""
    lines = [Text.assemble(("acknowledged", "dim"))]
    for each in acknowledged:
        if each.acks_all or shows.acks_1:
            word = f"{each.value}(LOST)" if each.gone else each.value
            if lines[-1].cell_len + 1 + len(word) > width:
                lines.append(Text(" " * len("acknowledged")))
            lines[-1].append(" ").append(word, BAD if each.gone else "green")
    return lines
