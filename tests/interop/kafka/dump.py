"""Kafka's own reader of log directories, `kafka.tools.DumpLogSegments`, and what it says about files.

Rules of this module. The tool ends with exit code 0 whatever it finds, and its complaints have many forms. So every
line must be one that it prints over sound files; any other line is a complaint. And what it says of each batch,
producer and index entry is kept as rows with its own field names, to be compared with ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.interop.kafka.java import programs_of

TOOL = "kafka.tools.DumpLogSegments"
READABLE = (".log", ".index", ".timeindex", ".snapshot", ".txnindex")
INDEXES = (".index", ".timeindex")

_DUMPING = re.compile(r"Dumping (\S+)")
_SOUND = (
    re.compile(r"Log starting offset: \d+"),
    re.compile(r"\S+ is empty\."),
    re.compile(r"\S+ passed sanity check\."),
)
_FIELD = re.compile(r"(\w+): (\[[^\]]*\]|\S+)")
_RECORD = re.compile(r"\| offset: \d+ .*")

Row = dict[str, str]


@dataclass
class Dump:
    """What the tool said: rows by file, how many records it walked, and the lines that no sound file causes."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    records: dict[str, int] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    def batches(self) -> int:
        return sum(len(rows) for name, rows in self.rows.items() if name.endswith(".log"))

    def count(self, suffix: str) -> int:
        return sum(name.endswith(suffix) for name in self.rows)


def dump(classpath: str, files: Iterable[Path], options: Sequence[str] = ("--deep-iteration",)) -> Dump:
    """Run the tool over files."""
    names = [str(path) for path in files]
    result = Dump()
    said = programs_of(classpath).run(TOOL, [*options, "--files", ",".join(names)])
    _read_output(said.output + said.errors, result)
    missing = set(names) - set(result.rows)
    result.complaints += [f"{name} was not dumped" for name in sorted(missing)]
    return result


def files_of(directory: Path, suffixes: Sequence[str] = READABLE) -> list[Path]:
    """The files below a directory that the tool can read."""
    return sorted(path for path in directory.rglob("[0-9]" * 20 + ".*") if path.suffix in suffixes)


def check_directories(classpath: str, directories: Iterable[Path]) -> Dump:
    """All files with deep iteration, then both checks of the indexes; returns the first dump with all complaints."""
    roots = list(directories)
    result = dump(classpath, [path for root in roots for path in files_of(root)])
    indexes = [path for root in roots for path in files_of(root, INDEXES)]
    for option in ("--index-sanity-check", "--verify-index-only"):
        result.complaints += dump(classpath, indexes, [option]).complaints
    return result


def _read_output(output: str, result: Dump) -> None:
    name = ""
    for line in output.splitlines():
        if (found := _DUMPING.fullmatch(line)) is not None:
            name = found[1]
            result.rows[name] = []
            result.records[name] = 0
        elif _RECORD.fullmatch(line):
            result.records[name] += 1
        elif (row := _row(line, name)) is not None:
            result.rows[name].append(row)
        elif line and not any(pattern.fullmatch(line) for pattern in _SOUND):
            result.complaints.append(f"{name}: {line}")


def _row(line: str, name: str) -> Row | None:
    """The fields of a line, None when it is no line of such a file or says itself that the batch is not valid."""
    row = dict(_FIELD.findall(line))
    if " ".join(f"{key}: {value}" for key, value in row.items()) != line.strip():
        return None
    first = {
        ".log": "baseOffset",
        ".index": "offset",
        ".timeindex": "timestamp",
        ".snapshot": "producerId",
        ".txnindex": "version",
    }
    if next(iter(row), "") != first.get(Path(name).suffix):
        return None
    return None if row.get("isvalid", "true") != "true" else row
