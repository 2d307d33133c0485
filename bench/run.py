"""The command line that all measurements share: `--quick`, `--json`, one table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable

from msgspec.structs import asdict

from bench.report import Figure, machine, table


def main(figures: Callable[..., list[Figure]], parts: Iterable[str] = ()) -> None:
    """Measure, then print. The exit code says nothing of floors: a busy machine is no error.

    `figures` is told whether to be quick, and, if it has parts, which of them are wanted.
    """
    parser = argparse.ArgumentParser(description=figures.__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter, and less exact")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    if parts:
        parser.add_argument("--only", nargs="+", choices=parts, default=parts, metavar="PART", help=", ".join(parts))
    options = parser.parse_args()
    show(figures(options.quick, *([options.only] if parts else [])), as_json=options.json)


def show(figures: list[Figure], *, as_json: bool) -> None:
    facts = machine()
    if as_json:
        rows = [{**asdict(figure), "met": figure.met} for figure in figures]
        print(json.dumps({"machine": facts, "figures": rows}, indent=2))
        return
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    print(table(figures))
