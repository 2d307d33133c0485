"""`odradek log`: read the files of a log directory, of odradek or of Apache Kafka."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sized
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.command_line import FAILED, FINDINGS, USAGE, CommandFailed, OutputFormat
from odradek_proto.transport.lock_holders import holder_of
from odradek_proto.words import plural

from odradek_broker.commands.log_listing import below, entries, naming_what_may_not_be_read

if TYPE_CHECKING:
    from odradek_broker.commands.log_checks import LogProblem, NotDecoded

app = typer.Typer(
    help="Read the files of a log directory, Apache Kafka's too.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


WHAT_TO_NAME = "name a broker's log.dirs, or a partition's directory such as data/broker-1/orders-0"


def named(path: str) -> Path:
    """What a command line names. Raises `CommandFailed` (2) for no name, which would be the current directory."""
    if not path:
        raise CommandFailed("PATH: the name is empty", hint="is a variable not set?", exit_code=USAGE)
    return Path(path)


Paths = Annotated[
    list[Path], typer.Argument(metavar="PATH...", parser=named, help="Files, partition directories, log directories.")
]
Output = Annotated[OutputFormat, typer.Option("--output", help="How to print the result.")]
Json = Annotated[bool, typer.Option("--json", help="Short for --output json.")]


@app.command("dump")
@naming_what_may_not_be_read
def dump(
    paths: Paths,
    records: Annotated[bool, typer.Option("--records", "--print-data-log", help="The records inside, too.")] = False,
    metadata: Annotated[
        bool,
        typer.Option(
            "--cluster-metadata", "--cluster-metadata-decoder", help="The records, as fields of the metadata log."
        ),
    ] = False,
    segments_only: Annotated[
        bool, typer.Option("--segments", help="Of directories, only the segments (.log).")
    ] = False,
    output: Output = OutputFormat.TABLE,
    as_json: Json = False,
) -> None:
    """Print what is in segments, indexes, snapshots and checkpoints, with kafka-dump-log's names.

    Every batch's CRC is checked. Exit code 3 when something is not valid, or a partition has no segment; 1 when
    something may not be read, or records are not shown because the package of their codec is not installed.
    """
    from odradek_broker.commands.log_checks import no_segment, without_segments
    from odradek_broker.commands.log_rows import is_known, rows_of, unknown_file

    chosen = OutputFormat.JSON if as_json else output
    sound = decoded = True
    collected: list[dict[str, Any]] = []
    for path in _files(paths, segments_only=segments_only):
        if not is_known(path):
            raise CommandFailed(unknown_file(path), exit_code=USAGE)
        if chosen is OutputFormat.TABLE:
            print(f"Dumping {path}")
        for row in rows_of(path, records=records, metadata=metadata):
            sound &= bool(row.get("isvalid", True))
            decoded &= bool(row.get("isdecoded", True))
            match chosen:
                case OutputFormat.TABLE:
                    print(_line(row))
                case OutputFormat.JSONL:
                    print(json.dumps({"file": str(path), **row}, ensure_ascii=False))
                case OutputFormat.JSON:
                    collected.append({"file": str(path), **row})
    if chosen is OutputFormat.JSON:
        print(json.dumps(collected, indent=2, ensure_ascii=False))
    for directory in {each: None for path in paths if path.is_dir() for each in without_segments(path)}:
        problem, sound = no_segment(directory), False
        print(f"{problem.file}: {problem.sentence}", file=sys.stderr)
    raise typer.Exit(FINDINGS if not sound else 0 if decoded else FAILED)


@app.command("verify")
@naming_what_may_not_be_read
def verify(paths: Paths, output: Output = OutputFormat.TABLE, as_json: Json = False) -> None:
    """Check segments: CRCs, offsets, leader epochs, and that every record can be read. Exit code 3 on a problem.

    A partition without any segment is one, too, and so are a segment that begins below the offset in its name, a name
    below the end of the segment before it, and offsets that a segment's name promises and that are not there, but for
    those that Kafka's cleaner or DeleteRecords removed. A segment (.log) that is named itself is checked
    alone, and nothing beside it; another file of a log stands for its directory. Exit code 1 when
    something may not be read: nothing is said then; and, when no problem was found, where batches were not decoded
    because the package of their codec is not installed. Where a running broker uses the directory, a line on standard
    error says so.
    """
    from odradek_broker.commands.log_checks import NotDecoded, verify_directory, verify_segment

    directories, files = _to_verify(paths)
    in_use = warn_of_brokers_at_work([*directories, *(file.parent for file in files)])
    problems: list[LogProblem] = []
    batches = records = 0
    not_decoded = NotDecoded()
    for result in (*map(verify_directory, directories), *map(verify_segment, files)):
        batches, records = batches + result.batches, records + result.records
        problems += result.problems
        not_decoded.add(result.not_decoded.batches, result.not_decoded.first)
    checked = [_partitions(directories)] * bool(directories) + [plural(len(files), "segment")] * bool(files)
    summary = f"{plural(records, 'record')} in {plural(batches, 'batch', 'batches')} of {' and '.join(checked)}"
    _tell(problems, summary, output, as_json, in_use=in_use, not_decoded=not_decoded)


@app.command("diff")
@naming_what_may_not_be_read
def diff(
    first: Annotated[
        Path, typer.Argument(metavar="A", parser=named, help="A partition's directory, or a log directory.")
    ],
    second: Annotated[Path, typer.Argument(metavar="B", parser=named, help="The same partition's on another broker.")],
    output: Output = OutputFormat.TABLE,
    as_json: Json = False,
) -> None:
    """Compare two replicas batch by batch and name the first place where they differ. Exit code 3 if there is one.

    Bytes that are no batch, missing offsets, wrong names of segments and a replica without segments count as one. Exit
    code 1 when there was nothing to compare, or something may not be read. That one of them ends earlier is no
    difference. For whole clusters, with a verdict: `odradek audit run`.
    """
    from odradek_broker.commands.log_checks import diff_directories

    if realpath(first) == realpath(second):  # a link to itself is its own place: it is no directory, and told so
        raise CommandFailed(f"{first} is named twice", hint="name the other replica's directory", exit_code=USAGE)
    pairs = _pairs(first, second)
    in_use = warn_of_brokers_at_work([each for pair in pairs for each in pair])
    problems: list[LogProblem] = []
    compared = 0
    for left, right in pairs:
        result = diff_directories(left, right)
        compared += result.batches
        problems += result.problems
        for note in result.notes:
            print(note, file=sys.stderr)
    summary = f"{plural(compared, 'batch', 'batches')} of {_partitions(pairs)} compared"
    _tell(problems, summary, output, as_json, in_use=in_use, inconclusive=not compared)


def _files(paths: list[Path], *, segments_only: bool) -> Iterator[Path]:
    """The files that are meant, those of directories sorted."""
    from odradek_broker.commands.log_checks import without_segments
    from odradek_broker.commands.log_rows import is_known

    for path in paths:
        if not path.exists():
            raise CommandFailed(f"there is nothing at {path}", hint=WHAT_TO_NAME, exit_code=USAGE)
        if not path.is_dir():
            if not path.is_file():
                raise CommandFailed(f"{path}: it is no regular file", hint=WHAT_TO_NAME, exit_code=USAGE)
            yield path
            continue
        found = [file for file in _below(path) if is_known(file) and not file.is_dir()]
        if not found and not without_segments(path):
            raise CommandFailed(f"{path} holds no file of a log directory", hint=WHAT_TO_NAME, exit_code=USAGE)
        yield from (file for file in found if not segments_only or file.suffix == ".log")


def _below(path: Path) -> Iterator[Path]:
    """What lies below a directory, sorted, also in partitions' directories behind symbolic links."""
    from odradek_proto.topics import parse_partition_directory

    for each in below(path):
        yield each
        if each.is_symlink() and each.is_dir() and parse_partition_directory(each.name) is not None:
            yield from entries(each)


def _partition_directories(paths: list[Path]) -> list[Path]:
    """Those with segments, and those that should have some."""
    from odradek_broker.commands.log_checks import without_segments

    with_segments = {file.parent for file in _files(paths, segments_only=True) if file.suffix == ".log"}
    directories = sorted(with_segments.union(*(without_segments(path) for path in paths if path.is_dir())))
    if not directories:
        raise _no_segment_in(paths)
    return directories


def _no_segment_in(paths: list[Path]) -> CommandFailed:
    places = ", ".join(map(str, paths))
    return CommandFailed(f"there is no segment in {places}", hint=WHAT_TO_NAME, exit_code=USAGE)


def _to_verify(paths: list[Path]) -> tuple[list[Path], list[Path]]:
    """Partitions' directories, and segments that are named outside of them."""
    from odradek_broker.commands.log_rows import is_known

    places: list[Path] = []
    segments: set[Path] = set()
    for path in paths:
        if path.is_dir():
            places.append(path)
            continue
        (file,) = _files([path], segments_only=True)
        if file.suffix == ".log":
            segments.add(file)
        elif is_known(file):
            places.append(file.parent)
        else:
            raise _no_segment_in([file])
    directories = _partition_directories(places) if places else []
    return directories, sorted(file for file in segments if file.parent not in directories)


def _pairs(first: Path, second: Path) -> list[tuple[Path, Path]]:
    """Two partition directories, or those with the same names in two log directories."""
    left, right = _by_name(first), _by_name(second)
    if len(left) == len(right) == 1:
        return [(next(iter(left.values())), next(iter(right.values())))]
    shared = sorted(set(left) & set(right))
    if not shared:
        raise CommandFailed(f"{first} and {second} have no partition in common")
    return [(left[name], right[name]) for name in shared]


def _by_name(path: Path) -> dict[str, Path]:
    """The partition directories of one broker. Raises `CommandFailed` where a partition is there more than once."""
    found = _partition_directories([path])
    named = {each.name: each for each in found}
    if len(named) < len(found):
        brokers = sorted({str(each.parent) for each in found})
        raise CommandFailed(
            f"{path} holds several copies of a partition, of several brokers: {', '.join(brokers)}",
            hint="name one broker's directory on each side; `odradek audit run --data` compares whole clusters",
            exit_code=USAGE,
        )
    return named


def _tell(
    problems: list[LogProblem],
    summary: str,
    output: OutputFormat,
    as_json: bool,
    *,
    in_use: list[str],
    inconclusive: bool = False,
    not_decoded: NotDecoded | None = None,
) -> None:
    """Print what was found, and end. `in_use` are the log directories that a broker was using meanwhile;
    `not_decoded` is None for a command that decodes no records."""
    rows = [problem._asdict() for problem in problems]
    undone = not_decoded.summary if not_decoded is not None and not_decoded.batches else ""
    if not_decoded is not None and undone:
        print(f"odradek: inconclusive: {not_decoded.sentence}", file=sys.stderr)
    if inconclusive and not problems:
        print("odradek: nothing could be compared, so this says nothing about the replicas", file=sys.stderr)
    if as_json or output is OutputFormat.JSON:
        decoded = {} if not_decoded is None else {"not_decoded": not_decoded.as_json()}
        print(json.dumps({"problems": rows, "summary": summary, "in_use": in_use, **decoded}, indent=2))
    elif output is OutputFormat.JSONL:
        for row in rows:
            print(json.dumps(row))
    else:
        for problem in problems:
            print(f"{problem.file}: {problem.sentence}")
        found = plural(len(problems), "problem") if problems else "inconclusive" if undone else "no problems"
        print(f"{summary}: {found}" + (f", {undone}" if undone else ""))
    raise typer.Exit(FINDINGS if problems else FAILED if inconclusive or undone else 0)


def _partitions(each: Sized) -> str:
    return plural(len(each), "partition")


def _line(row: dict[str, Any]) -> str:
    """`name: value name: value`, as kafka-dump-log prints it; records are set in with a bar."""
    text = " ".join(f"{name}: {_cell(value)}" for name, value in row.items())
    return f"| {text}" if "valueSize" in row else text


def _cell(value: object) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


# --- Brokers that use what is read -----------------------------------------


MOST_NAMED = 3


def warn_of_brokers_at_work(partitions: Iterable[Path]) -> list[str]:
    """Say on standard error which brokers are using these partitions' log directories; returns the directories."""
    holders = {place: holder_of(place) for place in sorted({each.resolve().parent for each in partitions})}
    used = {str(place): process for place, process in holders.items() if process is not None}
    if used:
        named = [f"process {process} uses {place}" for place, process in used.items()]
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        print(
            f"odradek: brokers are running on what is read ({', '.join(named[:MOST_NAMED])}{more}): the ends of the "
            "logs may be moving; stop the brokers first, or look at copies that were made while they were stopped",
            file=sys.stderr,
        )
    return [*used]
