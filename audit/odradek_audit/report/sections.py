"""The parts of the page that are numbers: what was compared, what was not, every partition, notes, what was owed."""

from __future__ import annotations

from collections import Counter

from odradek_audit.checks.facts import PartitionSummary, ReplicaSummary
from odradek_audit.report.guarantees import exceptions, rows_for
from odradek_audit.report.markup import Safe, code, count, join, name, plural, shown, size, tag
from odradek_audit.report.model import Report

SHOWN_NOTES = 40
SHOWN_REASONS = 10
SHOWN_MISSING = 20


def compared(report: Report) -> Safe:
    """Tiles with the numbers, and where each replica was read."""
    acknowledged = sum(partition.history.get("acknowledged", 0) for partition in report.partitions)
    tiles = [
        _tile(count(report.compared_records), "records compared"),
        _tile(count(report.compared_batches), "batches compared"),
        _tile(count(len(report.partitions)), "partition" if len(report.partitions) == 1 else "partitions"),
        _tile(count(len(report.replicas)), "replica" if len(report.replicas) == 1 else "replicas"),
        _tile(size(report.read_bytes), f"read in {report.seconds:.1f} s" if report.seconds >= 0.1 else "read"),
    ]
    if report.history_events is not None:
        tiles.append(_tile(count(acknowledged), "acks=all records checked"))
    rows = [
        tag("tr", tag("th", name(replica), scope="row"), tag("td", code(path)))
        for replica, path in report.replicas.items()
    ]
    table = tag("table", _head("replica", "directory"), tag("tbody", *rows))
    return join(
        [tag("div", *tiles, class_="tiles"), tag("details", tag("summary", "Directories that were read"), table)]
    )


def _tile(number: str, title: str) -> Safe:
    return tag("div", tag("b", number), tag("span", title), class_="tile")


def _head(*titles: str) -> Safe:
    return tag("thead", tag("tr", *(tag("th", title, scope="col") for title in titles)))


def not_compared(report: Report) -> Safe:
    """What this audit says nothing about, so that nobody reads more out of it than there is."""
    said: list[Safe] = [tag("b", shown(reason, 400), ".") for reason in report.inconclusive[:SHOWN_REASONS]]
    if report.history_events is None:
        said.append(
            Safe("No history of clients was given, so a record that all replicas lost alike was not looked for.")
        )
    missing = [
        (partition, _missing(report, partition)) for partition in report.partitions if _missing(report, partition)
    ]
    if missing:
        places = join(
            (
                join([name(partition.topic), f"-{partition.partition} on replica ", ", ".join(names)])
                for partition, names in missing[:SHOWN_MISSING]
            ),
            "; ",
        )
        more = f"; and {len(missing) - SHOWN_MISSING} more" if len(missing) > SHOWN_MISSING else ""
        said.append(join(["No directory, so nothing to compare: ", places, more, "."]))
    above = sum(_above(partition) for partition in report.partitions)
    if above:
        said.append(
            shown(
                f"{plural(above, 'offset')} above the bounds: what no checkpoint or client says to be replicated "
                "may differ, and was only searched for forks."
            )
        )
    alone = sum(_alone(partition) for partition in report.partitions)
    if alone:
        said.append(shown(f"{plural(alone, 'offset')} of the longest logs, which no other replica has (yet)."))
    unread = sum(replica.unread_bytes for partition in report.partitions for replica in partition.replicas)
    if unread:
        said.append(shown(f"{size(unread)} that are no readable batch; each such place is a finding or a note below."))
    counted = Counter[str]()
    for partition in report.partitions:
        counted.update(partition.suppressed)
    if counted:
        listed = ", ".join(f"{number:,} of {check}" for check, number in sorted(counted.items()))
        said.append(shown(f"Findings that were only counted, beyond the limit of each replica: {listed}."))
    said.extend(_events(report))
    return tag("ul", *(tag("li", each) for each in said), class_="not")


def _events(report: Report) -> list[Safe]:
    """Whether the causes stand on what the brokers wrote down, and what of that is missing."""
    silent = [name for name in report.replicas if name not in report.events]
    said = []
    if silent:
        names = "No replica has" if len(silent) == len(report.replicas) else f"Replica {', '.join(silent)} has not"
        said.append(shown(f"{names} a file of the broker's events: causes are suspected from the logs alone."))
    for replica, events in sorted(report.events.items()):
        if events.missing:
            said.append(
                tag(
                    "b",
                    f"Events missing: broker {replica} could not write {events.missing:,} of its events, so causes "
                    "may be incomplete.",
                )
            )
        if events.cut:
            said.append(shown(f"Of broker {replica}'s events only the last {events.lines:,} were read."))
    said.append(Safe("Elections were not checked against the metadata log."))
    return said


def _missing(report: Report, partition: PartitionSummary) -> list[str]:
    present = {replica.replica for replica in partition.replicas}
    return [replica for replica in report.replicas if replica not in present]


def _ends(partition: PartitionSummary) -> list[int]:
    return sorted((replica.log_end for replica in partition.replicas), reverse=True)


def _above(partition: PartitionSummary) -> int:
    return max(0, max(_ends(partition), default=0) - partition.bound)


def _alone(partition: PartitionSummary) -> int:
    ends = _ends(partition)
    return ends[0] - ends[1] if len(ends) > 1 else 0


def partition_numbers(report: Report, limit: int) -> Safe:
    """A row for each replica of each partition; those with findings first."""
    found = Counter((finding.topic, finding.partition) for finding in report.findings)
    ordered = sorted(
        report.partitions, key=lambda each: (not found[each.topic, each.partition], each.topic, each.partition)
    )
    bodies = [_partition_rows(partition, found[partition.topic, partition.partition]) for partition in ordered[:limit]]
    titles = (
        "partition",
        "compared",
        "replica",
        "log start",
        "HW",
        "LEO",
        "epoch",
        "segments",
        "batches",
        "records",
        "bytes",
    )
    heads = tag("thead", tag("tr", *(tag("th", title, scope="col", class_=_align(title)) for title in titles)))
    table = tag("table", heads, *bodies, class_="wide")
    more = len(ordered) - limit
    left = (
        tag("p", f"… and {plural(more, 'partition')} more, in summary.json.", class_="quiet") if more > 0 else Safe("")
    )
    about = tag(
        "p",
        "HW: high watermark of the checkpoint, LEO: log end offset, both exclusive. ★: the log that the others are "
        "compared with unless it is damaged itself (newest epoch, then longest).",
        class_="quiet",
    )
    return join([tag("div", table, class_="scroll", tabindex="0", role="region", aria_label="Partitions"), left, about])


def _align(title: str) -> str | None:
    return None if title in ("partition", "compared", "replica") else "n"


def _partition_rows(partition: PartitionSummary, findings: int) -> Safe:
    rows = []
    for number, replica in enumerate(partition.replicas):
        cells: list[Safe] = []
        if not number:
            span = len(partition.replicas)
            sign = tag("span", f" ✗ {findings:,}", class_="check", title="findings") if findings else Safe("")
            cells.append(
                tag("th", name(partition.topic), f"-{partition.partition}", sign, rowspan=span, scope="rowgroup")
            )
            extent = f"{partition.compared_from:,} to {partition.compared_to:,}, bound {partition.bound:,}"
            cells.append(tag("td", extent, rowspan=span))
        cells.append(tag("td", name(replica.replica), " ★" if replica.replica == partition.authority else ""))
        cells.extend(tag("td", value, class_="n") for value in _numbers(replica))
        rows.append(tag("tr", *cells))
    return tag("tbody", *rows)


def _numbers(replica: ReplicaSummary) -> list[str]:
    mark = "–" if replica.high_watermark is None else count(replica.high_watermark)
    numbers = (replica.segments, replica.batches, replica.records, replica.bytes)
    return [count(replica.log_start), mark, count(replica.log_end), str(replica.last_epoch), *map(count, numbers)]


def notes(report: Report) -> Safe:
    """What breaks no rule and should be known."""
    if not report.notes:
        return Safe("")
    kinds = Counter(note.kind for note in report.notes)
    lines = [tag("li", code(note.kind), " ", shown(note.sentence, 400)) for note in report.notes[:SHOWN_NOTES]]
    more = len(report.notes) - len(lines)
    title = ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items()))
    left = tag("p", f"… and {more:,} more, in summary.json.", class_="quiet") if more else Safe("")
    return join([tag("h2", "Notes"), tag("details", tag("summary", shown(title, 300)), tag("ul", *lines), left)])


def guarantees(report: Report) -> Safe:
    """What acknowledged records were owed under the configuration, as far as it is known."""
    known = report.configuration
    rows = [
        tag(
            "tr",
            *(
                tag("td", value)
                for value in (row.acks, row.min_isr, row.fsync, row.kills, row.one_power_loss, row.several)
            ),
        )
        for row in rows_for(known)
    ]
    head = _head(
        "acks",
        "min.insync.replicas",
        "odradek.fsync",
        "kills, freezes, cut networks",
        "power loss of one machine, the others in the ISR",
        "power loss of several, or of the last in the ISR",
    )
    said = (
        join(
            ["The cluster ran with ", join((code(f"{key}={value}") for key, value in sorted(known.items())), ", "), "."]
        )
        if known
        else Safe("The configuration was not given (--setting NAME=VALUE), so all rows stand.")
    )
    table = tag(
        "div",
        tag("table", head, tag("tbody", *rows), class_="wide"),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label="Guarantees",
    )
    return join(
        [
            tag("h2", "What was owed to acknowledged records"),
            tag("p", said),
            table,
            *(tag("p", tag("b", each)) for each in exceptions(known)),
            tag(
                "p",
                "In every configuration: one leader in an epoch, equal replicas below the lowest high watermark, one "
                "content for each offset and epoch.",
                class_="quiet",
            ),
        ]
    )
