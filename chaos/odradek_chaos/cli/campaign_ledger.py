"""The ledger of campaigns: one line of JSON each, and what all of them say together of the present core.

A campaign tells something of the code that it ran, and of no other: the lines are added up by a digest of the sources
of the core (the broker and the protocol's package). When the core has changed, the count begins anew.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from math import isfinite
from os import SEEK_END
from pathlib import Path
from typing import TYPE_CHECKING

import odradek_broker
import odradek_proto
from msgspec import ValidationError, convert
from odradek_proto.values import Value

from odradek_chaos.worlds.simulated.plan.kinds import ALL_NEMESES, SAFE_NEMESES

if TYPE_CHECKING:
    from odradek_chaos.worlds.simulated.campaign.campaign import Campaign

LEDGER = Path("docs/campaigns.jsonl")
COMMANDS = "commands"
DIGEST_LENGTH = 12
LONGEST_LINE = 1 << 20  # bytes, hundreds of times more than any has
UNKNOWN = "unknown"
NEMESES = re.compile(r"--nemeses (\S+)")
SEEDS = re.compile(r"[0-9]{1,18}(\.\.[0-9]{1,18})?")

WORDS = ("time", "commit", "core", "command", "findings", "not_reached", "python")  # of a campaign, which are printed


class Entry(Value, frozen=True):
    """One campaign. `findings` is by check: seeds that found it."""

    time: str  # UTC, ISO 8601
    commit: str
    dirty: bool  # whether the checkout held what the commit does not
    core: str
    command: str  # options that are not the usual ones, as `python -m odradek_chaos.worlds.simulated` takes them
    seeds: str  # `A..B`, both ends included, or one number; some of the last ones did not run if `runs` are fewer
    runs: int
    virtual_hours: float
    faults: int
    records: int
    wall_seconds: float
    cpu_seconds: float
    findings: dict[str, int]
    not_reached: list[str]
    python: str = UNKNOWN  # the interpreter's version

    def line(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__struct_fields__}, ensure_ascii=False)


class Sum(Value, frozen=True):
    """All campaigns on one core with the same options."""

    core: str
    is_present: bool  # whether this is the core that is installed here
    command: str  # options that are not the usual ones
    campaigns: int
    first: str
    last: str
    runs: int
    seeds: int  # different ones: a seed that ran twice tells nothing new
    virtual_hours: float
    faults: int
    records: int
    wall_seconds: float
    findings: dict[str, int]
    not_reached: list[str]  # by none of the campaigns


def core_digest() -> str:
    """Of the sources of the broker and of the protocol's package, by name and content; not of the broker's commands,
    which no simulated cluster runs."""
    digest = hashlib.sha256()
    for package in (odradek_broker, odradek_proto):
        root = Path(package.__path__[0])
        for path in sorted(root.rglob("*.py")):
            if COMMANDS in path.relative_to(root).parts:
                continue
            content = path.read_bytes()
            digest.update(f"{root.name}/{path.relative_to(root).as_posix()} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:DIGEST_LENGTH]


def commit_here() -> tuple[str, bool]:
    """The commit of the checkout that this code stands in, and whether it was changed since; `unknown` outside."""
    folder = Path(__file__).parent
    try:
        commit = _git(folder, "rev-parse", "--short=12", "HEAD")
        return commit, bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.CalledProcessError):
        return UNKNOWN, True


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def entry_of(campaign: Campaign, seeds: str, core: str, commit: tuple[str, bool], now: datetime | None = None) -> Entry:
    """What the ledger keeps of a campaign; `core` and `commit` are those from before it began."""
    return Entry(
        time=(now or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ"),
        commit=commit[0],
        dirty=commit[1],
        core=core,
        command=campaign.options.arguments(),
        seeds=seeds,
        runs=campaign.seeds,
        virtual_hours=round(campaign.virtual_ms / 3_600_000, 4),
        faults=sum(campaign.faults.values()),
        records=campaign.acknowledged,
        wall_seconds=round(campaign.wall_s, 1),
        cpu_seconds=round(campaign.cpu_s, 1),
        findings=dict(sorted(campaign.checks.items())),
        not_reached=campaign.unreached(),
        python=platform.python_version(),
    )


def append(file: Path, entry: Entry) -> None:
    """One more line, also behind one that ends without a newline. Raises `OSError`."""
    begin = "\n" if _is_torn(file) else ""
    with file.open("a", encoding="utf-8") as out:
        out.write(f"{begin}{entry.line()}\n")


def _is_torn(file: Path) -> bool:
    """Whether what is there ends without a newline. A pipe has no end that could be looked at."""
    if not file.is_file() or not file.stat().st_size:
        return False
    with file.open("rb") as there:
        there.seek(-1, SEEK_END)
        return there.read(1) != b"\n"


def check_end(file: Path) -> None:
    """Look whether a campaign may be appended: to nothing, or behind another one. Raises `ValueError`, `OSError`."""
    if not file.is_file():
        return
    with file.open("rb") as there:
        there.seek(max(0, file.stat().st_size - LONGEST_LINE))
        lines = there.read().splitlines()
    if lines:
        _entry_in(lines[-1])


def read(file: Path) -> Iterator[Entry]:
    """Every campaign of a ledger. Raises `ValueError` with the line that is none, `OSError`."""
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            yield _entry_in(line)
        except ValueError as error:
            raise ValueError(f"{file}:{number} is no campaign: {error}") from error


def _entry_in(line: bytes) -> Entry:
    """Raises `ValueError` in words about the line."""
    try:
        raw = json.loads(line.decode("utf-8"), parse_constant=_no_number, parse_float=_finite)
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start + 1} is no UTF-8") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON at character {error.pos + 1}") from error
    except RecursionError as error:
        raise ValueError("no JSON that is read: too deep") from error
    if not isinstance(raw, dict):
        raise ValueError("it is JSON, but no object with a campaign's fields")
    required = Entry.__struct_fields__[: len(Entry.__struct_fields__) - len(Entry.__struct_defaults__)]
    if missing := [name for name in required if name not in raw]:
        raise ValueError(f"it has no {', '.join(missing)}")
    if unknown := sorted(raw.keys() - set(Entry.__struct_fields__)):
        raise ValueError(f"unknown: {', '.join(unknown)}")
    try:
        entry = convert(raw, Entry)
    except ValidationError as error:
        wanted, _, place = str(error).partition(" - at `$.")
        raise ValueError(f"{place.rstrip('`')}: {wanted[:1].lower()}{wanted[1:]}") from error
    if not SEEDS.fullmatch(entry.seeds):
        raise ValueError(f"seeds: {entry.seeds!r} is no range of seeds, as 1..100 is")
    for name in WORDS:
        said = getattr(entry, name)
        for word in (said,) if isinstance(said, str) else said:
            if not word.isprintable():
                raise ValueError(f"{name}: {word!r} cannot be printed")
    return entry


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _finite(word: str) -> float:
    value = float(word)
    return value if isfinite(value) else _no_number(word)


def sums(entries: Iterable[Entry], present: str) -> list[Sum]:
    """By core and options, in the order in which each was first met."""
    alike: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        alike.setdefault((entry.core, entry.command), []).append(entry)
    return [_sum(found, core == present) for (core, _), found in alike.items()]


def _sum(entries: list[Entry], is_present: bool) -> Sum:
    findings: Counter[str] = Counter()
    for entry in entries:
        findings.update(entry.findings)
    return Sum(
        core=entries[0].core,
        is_present=is_present,
        command=entries[0].command,
        campaigns=len(entries),
        first=min(entry.time for entry in entries),
        last=max(entry.time for entry in entries),
        runs=sum(entry.runs for entry in entries),
        seeds=_different_seeds(entries),
        virtual_hours=round(sum(entry.virtual_hours for entry in entries), 2),
        faults=sum(entry.faults for entry in entries),
        records=sum(entry.records for entry in entries),
        wall_seconds=round(sum(entry.wall_seconds for entry in entries), 1),
        findings=dict(sorted(findings.items())),
        not_reached=[name for name in entries[0].not_reached if all(name in each.not_reached for each in entries)],
    )


def never_struck(found: Iterable[Sum]) -> list[str]:
    """Kinds of faults that no campaign on the present core could draw: a seed takes them only when they are named."""
    drawn = {kind for each in found if each.is_present for kind in _kinds(each.command)}
    return [kind for kind in ALL_NEMESES if kind not in drawn]


def _kinds(command: str) -> Sequence[str]:
    named = NEMESES.search(command)
    return named[1].split(",") if named else SAFE_NEMESES


def _different_seeds(entries: list[Entry]) -> int:
    """How many seeds ran at least once. Seeds are begun in their order, so those of a campaign are its first ones."""
    first_seeds = [int(entry.seeds.partition("..")[0]) for entry in entries]
    count = end = 0
    for first, runs in sorted(zip(first_seeds, (entry.runs for entry in entries), strict=True)):
        count += max(0, first + runs - max(first, end))
        end = max(end, first + runs)
    return count
