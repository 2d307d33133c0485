"""The parts of the page that are numbers: what was compared, what was not, every partition, notes, what was owed."""

from __future__ import annotations

from collections import Counter

from odradek_audit.inputs.facts import METADATA_TOPIC
from odradek_audit.report.guarantees import exceptions, rows_for
from odradek_audit.report.headlines import counting, of_history
from odradek_audit.report.losses import missing_events
from odradek_audit.report.markup import SafeMarkup, code, head, join, name, scrolling, shown, size, tag
from odradek_audit.report.model import LIVE, Report
from odradek_audit.report.timeline import bound_origin
from odradek_audit.report.words import HW, LEO
from odradek_audit.results import PartitionSummary, ReplicaSummary
from odradek_audit.words import capital, count, plural

SHOWN_NOTES = 40
SHOWN_REASONS = 10
SHOWN_MISSING = 20


def compared(report: Report) -> SafeMarkup:
    """Tiles with the numbers, and where each replica was read."""
    acknowledged = sum(partition.history.get("acknowledged", 0) for partition in report.partitions)
    tiles = [
        _tile(count(report.compared_records), "copies of records compared"),
        _tile(count(report.compared_batches), "copies of batches compared"),
        _tile(count(len(report.partitions)), "partition" if len(report.partitions) == 1 else "partitions"),
        _tile(count(len(report.replicas)), "replica" if len(report.replicas) == 1 else "replicas"),
        _tile(
            size(report.read_bytes),
            f"of logs read in {report.seconds:.1f}\u00a0s" if report.seconds >= 0.1 else "of logs",
        ),
    ]
    by_leader = sum(partition.history.get("acknowledged_by_leader", 0) for partition in report.partitions)
    if by_leader:
        tiles.append(_tile(count(by_leader), "records of acks=1 looked for"))
    if report.history_events is not None and (acknowledged or not by_leader):
        tiles.append(_tile(count(acknowledged), "records of acks=all looked for"))
    rows = [
        tag("tr", tag("th", name(replica), scope="row"), tag("td", code(path)))
        for replica, path in report.replicas.items()
    ]
    table = tag("table", head("replica", "directory"), tag("tbody", *rows))
    about = "These were read: copies, or brokers' own. A broker's own log directory is what its log.dirs names."
    directories = tag("details", tag("summary", "Directories that were read"), tag("p", about, class_="quiet"), table)
    said = f"{counting(report, '★ below')} Bytes are those of all replicas' logs, ★ included. {of_history(report)}"
    return join(tag("div", *tiles, class_="tiles"), tag("p", said.strip(), class_="quiet"), directories)


def _tile(number: str, title: str) -> SafeMarkup:
    return tag("div", tag("b", number), tag("span", title), class_="tile")


def not_compared(report: Report) -> SafeMarkup:
    """What this audit says nothing about, so that nobody reads more out of it than there is."""
    said: list[SafeMarkup] = [tag("b", shown(reason, 400), ".") for reason in report.inconclusive[:SHOWN_REASONS]]
    if report.history_events is None:
        said.append(
            SafeMarkup("No history of clients was given, so a record that all replicas lost alike was not looked for.")
        )
    if not report.deep:
        said.append(
            SafeMarkup(
                "Of records one batch in about 1,024 offsets was decoded; with --deep every one is, on one replica."
            )
        )
    missing = [
        (partition, _missing(report, partition)) for partition in report.partitions if _missing(report, partition)
    ]
    if missing:
        places = join(
            *(
                join(name(partition.topic), f"-{partition.partition} on replica ", ", ".join(names))
                for partition, names in missing[:SHOWN_MISSING]
            ),
            separator="; ",
        )
        more = f"; and {len(missing) - SHOWN_MISSING} more" if len(missing) > SHOWN_MISSING else ""
        said.append(join("No directory, so nothing to compare: ", places, more, "."))
    above = sum(partition.above_bound for partition in report.partitions)
    if above:
        why = (
            "some replica did not know yet that it is committed."
            if report.engine == LIVE
            else "what no checkpoint or client says to be replicated may differ, and was only searched for forks "
            "(other bytes in one epoch)."
        )
        said.append(shown(f"{plural(above, 'offset')} above the bounds: {why}"))
    alone = sum(partition.on_one_replica for partition in report.partitions)
    if alone:
        said.append(shown(f"{plural(alone, 'offset')} of the longest logs, which no other replica has (yet)."))
    unread = sum(replica.unread_bytes for partition in report.partitions for replica in partition.replicas)
    if unread:
        said.append(
            shown(
                f"{size(unread)} of damaged batches, or of none: not compared as they cannot be trusted, even "
                "where their records can be shown; each such place is a finding or a note below."
            )
        )
    counted = Counter[str]()
    for partition in report.partitions:
        counted.update(partition.suppressed)
    if counted:
        listed = ", ".join(f"{number:,} of {check}" for check, number in sorted(counted.items()))
        said.append(shown(f"Findings that were only counted, beyond the limit of each replica: {listed}."))
    said.extend(_events(report))
    if not report.configuration:
        said.append(
            join(
                "What was owed to acknowledged records: it hangs on the cluster's settings, which were not given (",
                code("--setting acks=all --setting min.insync.replicas=2 --setting odradek.fsync=never"),
                ").",
            )
        )
    return tag("ul", *(tag("li", each) for each in said), class_="not")


def _events(report: Report) -> list[SafeMarkup]:
    """Whether the causes stand on what the brokers wrote down, and what of that is missing."""
    said = []
    if report.without_events:
        missing = missing_events(report)
        said.append(shown(f"{capital(missing)}: causes are suspected from what is left."))
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
    if all(partition.topic != METADATA_TOPIC for partition in report.partitions):
        said.append(SafeMarkup("No metadata log was read, so elections were not checked."))
    return said


def _missing(report: Report, partition: PartitionSummary) -> list[str]:
    present = {*partition.unread, *(replica.replica for replica in partition.replicas)}
    return [replica for replica in report.replicas if replica not in present]


def partition_numbers(report: Report, limit: int) -> SafeMarkup:
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
    cells = (
        tag("th", _explained(title), scope="col", class_=None if title in ("partition", "compared", "replica") else "n")
        for title in titles
    )
    heads = tag("thead", tag("tr", *cells))
    total = _total(report) if len(ordered) > 1 or len(report.replicas) > 1 else SafeMarkup("")
    table = tag("table", heads, *bodies, total, class_="wide")
    more = len(ordered) - limit
    left = (
        tag("p", f"… and {plural(more, 'partition')} more, in summary.json.", class_="quiet")
        if more > 0
        else SafeMarkup("")
    )
    about = tag(
        "p",
        "HW: high watermark of the checkpoint, LEO: log end offset, both exclusive, as is the end of what was "
        "compared. ★: the log that the others are compared with unless it is damaged itself (newest epoch, then "
        "longest; of equal ones the first, which is no better than they are). Batches, records and bytes are those of "
        "each replica's whole log.",
        class_="quiet",
    )
    return join(scrolling("Partitions", table), left, about)


def _explained(title: str) -> SafeMarkup:
    meaning = {"HW": HW, "LEO": LEO}.get(title)
    return tag("abbr", title, title=meaning) if meaning else shown(title)


def _total(report: Report) -> SafeMarkup:
    """The sums of the last columns over all replicas."""
    every = [replica for partition in report.partitions for replica in partition.replicas]
    sums = (sum(getattr(each, column) for each in every) for column in ("segments", "batches", "records", "bytes"))
    cells = [tag("th", "all copies together", scope="row", colspan=7), *(tag("td", count(n), class_="n") for n in sums)]
    return tag("tbody", tag("tr", *cells, class_="total"))


def _partition_rows(partition: PartitionSummary, findings: int) -> SafeMarkup:
    rows = []
    for number, replica in enumerate(partition.replicas):
        cells: list[SafeMarkup] = []
        if not number:
            span = len(partition.replicas)
            sign = tag("span", f" ✗ {findings:,}", class_="check", title="findings") if findings else SafeMarkup("")
            cells.append(
                tag("th", name(partition.topic), f"-{partition.partition}", sign, rowspan=span, scope="rowgroup")
            )
            extent = f"offsets {partition.compared_from:,} to {partition.compared_to:,}"
            if partition.compared_to > partition.bound:
                extent += ", above the bound only for forks"
            bound = tag("span", f"bound {partition.bound:,}: {bound_origin(partition)}", class_="origin")
            cells.append(tag("td", extent, bound, rowspan=span))
        cells.append(tag("td", name(replica.replica), " ★" if replica.replica == partition.reference_replica else ""))
        cells.extend(tag("td", value, class_="n") for value in _numbers(replica))
        rows.append(tag("tr", *cells))
    return tag("tbody", *rows)


def _numbers(replica: ReplicaSummary) -> list[str]:
    mark = "–" if replica.high_watermark is None else count(replica.high_watermark)
    numbers = (replica.segments, replica.batches, replica.records, replica.bytes)
    return [count(replica.log_start), mark, count(replica.log_end), str(replica.last_epoch), *map(count, numbers)]


def notes(report: Report) -> SafeMarkup:
    """What breaks no rule and should be known."""
    if not report.notes:
        return SafeMarkup("")
    kinds = Counter(note.kind for note in report.notes)
    lines = [tag("li", code(note.kind), " ", shown(note.sentence, 400)) for note in report.notes[:SHOWN_NOTES]]
    more = len(report.notes) - len(lines)
    title = ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items()))
    left = tag("p", f"… and {more:,} more, in summary.json.", class_="quiet") if more else SafeMarkup("")
    opened = any(note.kind == "losses-unknown" for note in report.notes)
    return join(
        tag("h2", "Notes"), tag("details", tag("summary", shown(title, 300)), tag("ul", *lines), left, open=opened)
    )


def guarantees(report: Report) -> SafeMarkup:
    """What acknowledged records were owed under the configuration; nothing where that is not known at all."""
    known = report.configuration
    if not known:
        return SafeMarkup("")
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
    titles = head(
        "acks",
        "min.insync.replicas",
        "odradek.fsync",
        "kills, freezes, cut networks",
        "power loss of one machine, the others in the ISR",
        "power loss of several, or of the last in the ISR",
    )
    settings = join(*(code(f"{key}={value}") for key, value in sorted(known.items())), separator=", ")
    said = join("The cluster ran with ", settings, ".")
    table = scrolling("Guarantees", tag("table", titles, tag("tbody", *rows), class_="wide"))
    return join(
        tag("h2", "What was owed to acknowledged records"),
        tag("p", said),
        table,
        *(tag("p", tag("b", each)) for each in exceptions(known)),
        tag(
            "p",
            "In every configuration: one leader in an epoch, equal replicas below the lowest high watermark, one "
            "content for each offset and epoch. The bounds above are the highest that any replica knew: what is "
            "below them was on every in-sync replica, so copies of it must not differ either.",
            class_="quiet",
        ),
    )
