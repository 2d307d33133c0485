"""All measurements in one table, with the floors beside the figures.

    python -m bench [--quick] [--json] [--only NAME ...]

Each measurement runs in a process of its own, one after the other. The floors are those of docs/performance.md; the
exit code says nothing of them, since a busy machine is no error: the load is printed beside the machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from importlib import import_module

from msgspec.structs import asdict

from bench.report import Figure, show

BENCHES = (
    "append",
    "read",
    "codec",
    "transport",
    "kafka",
    "client",
    "replicated",
    "recovery",
    "compaction",
    "start",
    "scale",
    "metrics",
    "groups",
    "secured",
    "audit",
    "audit_kinds",
    "events",
    "simulated",
)
BY_NAME = ("in_process",)
"""Only where they are asked for: whole runs of pytest, by which no other figure changes."""


def measure(name: str, *, quick: bool) -> list[Figure]:
    """Run one of them in a fresh process. Raises `CalledProcessError`."""
    command = [sys.executable, "-m", "bench", "--one", name, *(["--quick"] if quick else [])]
    result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [Figure(**row) for row in json.loads(result.stdout)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description="All measurements of odradek in one table.")
    parser.add_argument("--quick", action="store_true", help="less than a minute, and less exact")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    known = (*BENCHES, *BY_NAME)
    parser.add_argument("--only", nargs="+", choices=known, default=BENCHES, metavar="NAME", help=", ".join(known))
    parser.add_argument("--one", choices=known, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps([asdict(figure) for figure in import_module(f"bench.{options.one}").figures(options.quick)]))
        return 0
    figures: list[Figure] = []
    for name in options.only:
        print(f"bench: {name}", file=sys.stderr, flush=True)
        try:
            figures += measure(name, quick=options.quick)
        except subprocess.CalledProcessError as error:
            print(f"bench: {name} failed with exit code {error.returncode}", file=sys.stderr)
            return 1
    show(figures, as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
