"""Files beside the log that a replica lacks and the others have: an offset index, a producer snapshot.

A broker writes both before it says that it stopped cleanly, and makes them anew from the log where they are missing: so
it is a note, and only of a broker that stopped cleanly. A transaction index that is missing is judged by the markers in
the log (`transactions`).
"""

from __future__ import annotations

from odradek_audit.findings import FindingSink
from odradek_audit.inputs.facts import PartitionInputs

MISSING_FILE = "missing-file"


def check_companions(partition: PartitionInputs, sink: FindingSink) -> None:
    """A note for each replica that lacks what every other one has."""
    for name in sorted(partition.replicas):
        inputs = partition.replicas[name]
        others = [other for key, other in partition.replicas.items() if key != name and other.segments]
        if not inputs.clean_shutdown or not others:
            continue
        bare = [segment for segment in inputs.segments if segment.size and not segment.has_index]
        if bare and all(segment.has_index for other in others for segment in other.segments if segment.size):
            file = f"{bare[0].stem}.index"
            more = f", as {len(bare) - 1} more do" if len(bare) > 1 else ""
            _note(sink, name, f"the segment {bare[0].stem}.log has no {file}{more}", bare[0].base_offset)
        if inputs.segments and not inputs.snapshots and all(other.snapshots for other in others):
            _note(sink, name, "there is no producer snapshot", inputs.segments[-1].base_offset)


def _note(sink: FindingSink, name: str, what: str, offset: int) -> None:
    said = f"replica {name} stopped cleanly, and {what}: the other replicas have it, and a start makes it anew"
    sink.note(MISSING_FILE, name, said, offset=offset)
