"""A partition's leader epochs as a picture: one lane for each replica, from its log start to its log end offset.

The bands of a lane are the epochs that the replica's own batches name, so that a fork is seen as bands that do not
lie below each other. The axis is offsets, in order and not to scale: offsets where something happens (an epoch
begins, a log ends, a finding) get room, or nothing could be seen of what happens at the end of a million records.
Drawn twice, for wide and for narrow screens; the style sheet shows one of them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from odradek_audit.findings import Finding
from odradek_audit.report.markup import SafeMarkup, tag
from odradek_audit.results import PartitionSummary, ReplicaSummary
from odradek_audit.words import plain

BAR = 22
SHOWN_BANDS = 40
SHOWN_MARKS = 30
SHOWN_LANES = 12
_LETTER = 6.4  # width of a letter at 11 px, about
_HUES = 6


@dataclass(frozen=True)
class _Room:
    """How large a picture is; the names of the lanes stand beside them, or above."""

    width: int
    left: int
    right: int
    top: int
    lane: int
    names_above: bool


WIDE = _Room(1000, 118, 24, 40, 58, False)
NARROW = _Room(370, 12, 16, 60, 86, True)


@dataclass(frozen=True)
class _Scale:
    """Offsets to x: half of the room is shared by distance, half equally among the offsets that matter."""

    stops: tuple[int, ...]
    room: _Room
    bound: int

    def x(self, offset: int) -> float:
        stops = self.stops
        if len(stops) < 2:
            return float(self.room.left)
        offset = max(stops[0], min(offset, stops[-1]))
        place = min(bisect_right(stops, offset) - 1, len(stops) - 2)
        within = (offset - stops[place]) / (stops[place + 1] - stops[place])
        by_rank = (place + within) / (len(stops) - 1)
        by_distance = (offset - stops[0]) / (stops[-1] - stops[0])
        inner = self.room.width - self.room.left - self.room.right
        return round(self.room.left + inner * (0.55 * by_rank + 0.45 * by_distance), 1)


def timeline(
    partition: PartitionSummary, findings: Sequence[tuple[Finding, str]], *, legend: bool = True
) -> SafeMarkup:
    """The picture; `findings` come with the anchors of their cards. Empty when there is nothing to draw.

    `legend` false leaves out what the signs mean: it need not stand below each picture of a page.
    """
    replicas = partition.replicas[:SHOWN_LANES]
    if not any(replica.log_end > replica.log_start for replica in replicas):
        return SafeMarkup("")
    marks = [(finding, anchor) for finding, anchor in findings if finding.offset >= 0][:SHOWN_MARKS]
    pictures = [_picture(partition, replicas, marks, room) for room in (WIDE, NARROW)]
    bound = f"Bound {partition.bound:,}: {bound_origin(partition)}; below it replicas must hold the same. "
    return tag("figure", *pictures, tag("figcaption", bound, _LEGEND if legend else ""))


def bound_origin(partition: PartitionSummary) -> str:
    """Where the bound comes from, in a clause: the history, or the replicas whose checkpoint gives it. A mark above its
    log's end counts only up to that end."""
    if not partition.bound:
        return "no checkpoint and no client says that anything is replicated"
    marks = [
        replica.replica
        for replica in partition.replicas
        if min(replica.high_watermark or 0, replica.log_end) == partition.bound
    ]
    if not marks:
        return "one past the last record that a client of the history was told of"
    names = ", ".join(plain(name, 40) for name in marks)
    others = len(marks) < len(partition.replicas)
    word = "the largest high watermark" if others else "the high watermark"
    return f"{word}, in the checkpoint of replica{'s' if len(marks) > 1 else ''} {names}"


def _picture(
    partition: PartitionSummary, replicas: Sequence[ReplicaSummary], marks: Sequence[tuple[Finding, str]], room: _Room
) -> SafeMarkup:
    scale = _scale(partition, replicas, marks, room)
    height = room.top + room.lane * len(replicas) + 30
    parts = [_bound(partition, scale, height)]
    for number, replica in enumerate(replicas):
        top = room.top + room.lane * number
        mine = [(finding, anchor) for finding, anchor in marks if replica.replica in finding.replicas]
        parts.append(_lane(partition, replica, scale, top, [scale.x(finding.offset) for finding, _ in mine]))
        parts.extend(_mark(finding, replica.replica, anchor, scale, top) for finding, anchor in reversed(mine))
    parts.append(_axis(scale, height))
    title = f"Leader epochs of {plain(partition.topic, 80)}-{partition.partition}, a lane for each replica"
    picture = tag(
        "svg",
        tag("title", title),
        *parts,
        view_box=f"0 0 {room.width} {height}",
        role="img",
        aria_label=title,
        class_="timeline",
    )
    kind = "narrow-only" if room.names_above else "wide-only"
    return tag("div", picture, class_=f"scroll {kind}", tabindex="0", role="region", aria_label=title)


_LEGEND = (
    "Bands: leader epochs, as each replica's own batches name them. ▼ HW: high watermark of the checkpoint. LEO: log "
    "end offset. ★: the log that the others are compared with. ✗: a finding. Dashed: the bound. "
    "Offsets in order, not to scale."
)


def _scale(
    partition: PartitionSummary, replicas: Sequence[ReplicaSummary], marks: Sequence[tuple[Finding, str]], room: _Room
) -> _Scale:
    stops = {partition.bound}
    for replica in replicas:
        stops.update((replica.log_start, replica.log_end))
        stops.update(start for _, start in replica.epochs[-SHOWN_BANDS:])
        if replica.high_watermark is not None:
            stops.add(replica.high_watermark)
    stops.update(finding.offset for finding, _ in marks)
    return _Scale(tuple(sorted(stops)), room, partition.bound)


def _bands(replica: ReplicaSummary) -> list[tuple[int, int, int]]:
    """(epoch, first offset, one past its last); epoch -1 stands for older ones that are not drawn one by one."""
    shown = replica.epochs[-SHOWN_BANDS:]
    bands = []
    first = shown[0][1] if shown else replica.log_end
    if first > replica.log_start:
        bands.append((-1, replica.log_start, first))
    ends = [*(start for _, start in shown[1:]), replica.log_end]
    bands.extend((epoch, start, end) for (epoch, start), end in zip(shown, ends, strict=False))
    return bands


def _lane(
    partition: PartitionSummary, replica: ReplicaSummary, scale: _Scale, top: int, taken: Sequence[float]
) -> SafeMarkup:
    parts = _lane_name(replica, replica.replica == partition.reference_replica, scale.room, top)
    for epoch, start, end in _bands(replica):
        left, right = scale.x(start), scale.x(end)
        width = round(max(right - left, 1.5), 1)
        hue = f"band e{epoch % _HUES}" if epoch >= 0 else "band old"
        parts.append(tag("rect", x=left, y=top, width=width, height=BAR, class_=hue))
        label = f"epoch {epoch}" if width > _LETTER * 9 else str(epoch)
        if epoch >= 0 and width > _LETTER * (len(str(epoch)) + 0.6):
            begin = left + (14 if any(abs(left - x) < 12 for x in taken) else 4)
            parts.append(tag("text", label, x=round(begin, 1), y=top + 15, class_="epoch"))
    end_x = scale.x(replica.log_end)
    parts.append(tag("line", x1=end_x, y1=top - 3, x2=end_x, y2=top + BAR + 3, class_="leo"))
    if replica.high_watermark is None:
        parts.append(_below(scale, f"LEO {replica.log_end}", end_x, top + BAR + 13))
        return tag("g", *parts)
    at = scale.x(replica.high_watermark)
    parts.append(tag("path", d=f"M{at - 5} {top - 9}h10l-5 9z", class_="hw"))
    if replica.high_watermark == replica.log_end:
        parts.append(_below(scale, f"HW = LEO {replica.log_end}", end_x, top + BAR + 13))
        return tag("g", *parts)
    parts.append(_below(scale, f"LEO {replica.log_end}", end_x, top + BAR + 13))
    away = abs(at - end_x) > _LETTER * 14
    parts.append(_below(scale, f"HW {replica.high_watermark}", at, top + BAR + (13 if away else 25)))
    return tag("g", *parts)


def _lane_name(replica: ReplicaSummary, newest: bool, room: _Room, top: int) -> list[SafeMarkup]:
    x, y = (room.left, top - 16) if room.names_above else (8, top + 13)
    star = {"x": x + 110, "y": y} if room.names_above else {"x": x, "y": y + 14}
    said = [tag("text", f"replica {plain(replica.replica, 9)}", x=x, y=y, class_="lane")]
    return [*said, tag("text", "★", **star, class_="small")] if newest else said


def _below(scale: _Scale, text: str, x: float, y: int) -> SafeMarkup:
    """A label below a lane, inside of the picture and beside the dashed line of the bound, not across it."""
    width, bound = len(text) * _LETTER, scale.x(scale.bound)
    left = min(max(x - width / 2, scale.room.left), scale.room.width - 4 - width)
    if left - 4 < bound < left + width + 4:
        left = bound - 6 - width if bound - 6 - width >= scale.room.left else bound + 6
    anchor, at = ("end", left + width) if left + width / 2 < x else ("start", left)
    return tag("text", text, x=round(at, 1), y=y, class_="small", text_anchor=anchor)


def _mark(finding: Finding, replica: str, anchor: str, scale: _Scale, top: int) -> SafeMarkup:
    """A cross in a circle; a link to the finding's card, so that it can be reached by keyboard."""
    x, y = scale.x(finding.offset), top + BAR / 2
    cross = tag("path", d=f"M{x - 4} {y - 4}l8 8m0 -8l-8 8", class_="cross")
    label = f"{finding.check} on replica {plain(replica, 20)} at offset {finding.offset}"
    return tag("a", tag("title", label), tag("circle", cx=x, cy=y, r=8, class_="mark"), cross, href=f"#{anchor}")


def _bound(partition: PartitionSummary, scale: _Scale, height: int) -> SafeMarkup:
    x = scale.x(partition.bound)
    line = tag("line", x1=x, y1=18, x2=x, y2=height - 22, class_="bound")
    room = scale.room
    anchor = "end" if x > room.width - 120 else "start" if x < room.left + 60 else "middle"
    return tag("g", line, tag("text", f"bound {partition.bound}", x=x, y=13, class_="small", text_anchor=anchor))


def _axis(scale: _Scale, height: int) -> SafeMarkup:
    """The offsets that matter, as many as fit."""
    parts = []
    room, last = scale.room, -1000.0
    for offset in scale.stops:
        x = scale.x(offset)
        text = f"{offset:,}"
        width = len(text) * _LETTER
        if x - last < width / 2 + 14:
            continue
        last = x + width / 2
        parts.append(tag("line", x1=x, y1=height - 22, x2=x, y2=height - 17, class_="tick"))
        anchor = "end" if x + width / 2 > room.width else "start" if x < width / 2 else "middle"
        parts.append(tag("text", text, x=x, y=height - 5, class_="small", text_anchor=anchor))
    axis = tag("line", x1=room.left, y1=height - 22, x2=room.width - room.right, y2=height - 22, class_="tick")
    name = tag("text", "offset", x=8, y=height - 5, class_="small") if not room.names_above else SafeMarkup("")
    return tag("g", name, axis, *parts)
