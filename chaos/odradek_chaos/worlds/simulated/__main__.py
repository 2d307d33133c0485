"""`python -m odradek_chaos.worlds.simulated SEED`: run one seed, print what it expands to and what it gave."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import fields

from odradek_proto.words import noun

from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.result import SeedResult
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_chaos.worlds.simulated.world.board import fitted


def summary(result: SeedResult) -> str:
    faults = ", ".join(f"{count} {name}" for name, count in result.faults.items())
    return (
        f"seed {result.seed}: {result.virtual_ms / 1000:.1f} virtual seconds, "
        f"{result.events} {noun(result.events, 'event')}, {faults}; "
        f"{result.acknowledged} {noun(result.acknowledged, 'record')} acknowledged, "
        f"{result.failed} unknown, {result.read} read back, {result.compared} compared on the disks; "
        f"well again after {result.recovered_ms} ms; trace {result.trace_hash}; "
        f"{len(result.findings)} {noun(len(result.findings), 'finding')}"
    )


def comparable(result: SeedResult) -> dict[str, object]:
    """What has to be the same in every process."""
    return {
        "seed": result.seed,
        "trace_hash": result.trace_hash,
        "events": result.events,
        "virtual_ms": result.virtual_ms,
        "findings": [finding.check for finding in result.findings],
    }


def parse(arguments: list[str]) -> tuple[argparse.Namespace, Options]:
    parser = argparse.ArgumentParser(prog="python -m odradek_chaos.worlds.simulated", description=__doc__)
    parser.add_argument("seed", type=int)
    parser.add_argument("--trace", action="store_true", help="print every event of the brokers and every fault")
    parser.add_argument("--json", action="store_true", help="print only what a program compares, as JSON")
    parser.add_argument("--to-the-end", action="store_true", help="go on after a finding")
    for item in fields(Options):
        name = "--" + item.name.replace("_", "-")
        if isinstance(item.default, bool):
            parser.add_argument(name, action="store_true")
        elif isinstance(item.default, tuple):
            parser.add_argument(name, type=lambda text: tuple(text.split(",")), default=item.default)
        else:
            parser.add_argument(name, type=type(item.default), default=item.default)
    given = parser.parse_args(arguments)
    return given, Options(**{item.name: getattr(given, item.name) for item in fields(Options)})


def main(arguments: list[str]) -> int:
    given, options = parse(arguments)
    result = run_seed(given.seed, options, to_the_end=given.to_the_end)
    code = 3 if result.findings else 0
    if given.json:
        print(json.dumps(comparable(result)))
        return code
    if given.trace:
        print("\n".join(moment.line() for moment in result.timeline.in_order()))
    print(fitted(result.report(), sys.stdout))
    print(summary(result))
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
