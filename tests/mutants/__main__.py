"""`python -m tests.mutants`: break the protocol on purpose, and see who notices.

Protocol mutants (patches/) meet seeds of the simulated world first, since a seed is what finds such mistakes in
practice, and the fast tests when no seed objects. Generated mutants meet the fast tests first. The table says what
caught each one, after how many seeds, and whether its lines were reached.

Whatever objects to the unchanged sources would object to every mutant: so all fast tests have to pass before, and each
seed that objects to a mutant is given the unchanged sources, too.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.mutants.fork_server import MutantTask, Verdict, judge_all
from tests.mutants.generated import CORE, Generated, generate
from tests.mutants.reach import Reach, read, trace
from tests.mutants.tree import Patch, applied, patches

TESTS = (
    "tests/scripts", "tests/broker", "tests/groups", "tests/kafka/test_connection.py", "tests/kafka/test_framing.py",
)  # fmt: skip
PATIENCE_S = 900  # for one mutant; whoever takes longer stands still, and that is noticed, too


def trial_of_patch(patch: Patch, reach: Reach, arguments: argparse.Namespace) -> MutantTask:
    """Seeds first. The tests that come by what a patch changes are the first ones, and since it may be seen from
    elsewhere, all others follow.
    """
    module, lines = applied(patch)
    tests = reach.tests_of(patch.path, lines)
    tests += reach.others(tests)
    stages = tuple(stage for stage in ("seeds", "tests") if stage in arguments.stages)
    return MutantTask(
        patch.name, patch.area, patch.breaks, patch.path, module, stages, {test: reach.seconds[test] for test in tests},
        patch.options, range(1, arguments.seeds + 1), arguments.limit, PATIENCE_S,
    )  # fmt: skip


def trial_of_generated(mutant: Generated, reach: Reach, arguments: argparse.Namespace) -> MutantTask:
    """The tests that come by its statement: no other can see it. Then seeds."""
    tests = {test: reach.seconds[test] for test in reach.tests_of(mutant.path, mutant.lines)}
    stages = tuple(stage for stage in ("tests", "seeds") if stage in arguments.stages)
    return MutantTask(
        mutant.name, "generated", mutant.change, mutant.path, mutant.module, stages, tests, ("",),
        range(1, arguments.seeds + 1), arguments.limit, PATIENCE_S,
    )  # fmt: skip


def run_all(trials: Sequence[MutantTask], arguments: argparse.Namespace) -> list[Verdict]:
    """Judge all, `--jobs` at a time, and print verdicts as they come."""
    verdicts: list[Verdict] = []

    def say(trial: MutantTask, verdict: Verdict) -> None:
        verdicts.append(verdict)
        print(verdict.line(), flush=True)

    judge_all(trials, TESTS, arguments.jobs, say)
    return verdicts


def reach_of_tests(arguments: argparse.Namespace) -> Reach:
    """What the fast tests come by, all of which have to pass."""
    if "tests" not in arguments.stages:
        return Reach({}, {})
    if arguments.reach and arguments.reach.exists():
        return read(arguments.reach)
    with tempfile.TemporaryDirectory(prefix="odradek-mutants-") as name:
        return trace(TESTS, arguments.reach or Path(name) / "reach.json")


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0: every protocol mutant reached and caught, or enough of the generated ones; 3: not; 1: the unchanged
    sources do not pass.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Break the protocol, see who notices.")
    parser.add_argument("names", nargs="*", help="protocol mutants to try; default: all")
    parser.add_argument(
        "--generated", type=int, default=0, metavar="N", help="try N generated mutants of the core instead"
    )
    parser.add_argument("--draw", type=int, default=1, help="seed of the draw of generated mutants")
    parser.add_argument(
        "--places", nargs="+", default=CORE, metavar="DIRECTORY", help="draw from the files of these; default: the core"
    )
    parser.add_argument("--seeds", type=int, default=60, help="simulated seeds for each mutant, at most")
    parser.add_argument("--limit", type=float, default=60, metavar="SECONDS", help="for the seeds of one mutant")
    parser.add_argument(
        "--stages", nargs="+", choices=("seeds", "tests"), default=["seeds", "tests"], help="who may object"
    )
    parser.add_argument("--enough", type=float, default=0.8, help="share of generated mutants that must be caught")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all verdicts here")
    parser.add_argument(
        "--reach", type=Path, metavar="FILE", help="what the tests come by: read from here, or made and kept here"
    )
    arguments = parser.parse_args(words)
    known = {patch.name: patch for patch in patches()}
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"no mutant is called {unknown[0]!r}; there are {', '.join(known)}")
    chosen = [known[name] for name in arguments.names or known]
    try:
        reach = reach_of_tests(arguments)
    except ValueError as error:
        print(f"the unchanged sources do not pass: {error}")
        return 1
    if arguments.generated:
        mutants = generate(arguments.generated, arguments.draw, arguments.places)
        verdicts = run_all([trial_of_generated(mutant, reach, arguments) for mutant in mutants], arguments)
    else:
        verdicts = run_all([trial_of_patch(patch, reach, arguments) for patch in chosen], arguments)
    caught = sum(verdict.caught for verdict in verdicts)
    unreached = [verdict.name for verdict in verdicts if not verdict.reached]
    print(f"{caught} of {len(verdicts)} caught, {len(unreached)} not reached")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1) + "\n")
    if arguments.generated:
        return 0 if caught >= arguments.enough * len(verdicts) else 3
    return 0 if caught == len(verdicts) and not unreached else 3


if __name__ == "__main__":
    sys.exit(main())
