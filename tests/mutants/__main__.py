"""`python -m tests.mutants`: break the protocol on purpose, and see who notices.

Each mutant lives alone in a copy of the sources. Protocol mutants (patches/) meet seeds of the simulated world first,
since a seed is what finds such mistakes in practice, and the fast tests when no seed objects. Generated mutants meet
the fast tests first. The table says what caught each one, after how many seeds, and whether its lines were reached.

Before all of them the unchanged sources go through the same: whatever objects to them would object to every mutant.
"""

from __future__ import annotations

import argparse
import json
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutants.generated import generate
from tests.mutants.nursery import Trial, judge_all
from tests.mutants.reach import Reach, read, trace
from tests.mutants.tree import Patch, Tree, environment, patches
from tests.mutants.verdict import Journal, Verdict

TESTS = ("tests/scripts", "tests/broker")
PATIENCE_S = 600  # for one mutant; whoever takes longer stands still, and that is noticed, too
TESTS_CPU_S = 240  # beside the limit of its seeds; all fast tests take some 45 s of CPU time


@dataclass(frozen=True, slots=True)
class Unchanged:
    """No mutant: the sources as they are, with every kind of run that any mutant asks for."""

    options: tuple[str, ...]
    name: str = "unchanged sources"


Mutant = Patch | Unchanged


def judge(tree: Tree, mutant: Mutant, reach: Reach, arguments: argparse.Namespace) -> Verdict:
    """Put a mutant into the tree, run it, take it out again.

    The tests that come by what a patch changes are first; since it may be seen from elsewhere, all others follow.
    """
    order = ["seeds", "tests"]
    if isinstance(mutant, Patch):
        tests = reach.tests_of(mutant.path, tree.apply(mutant))
        tests += reach.others(tests)
        area, breaks, runs = mutant.area, mutant.breaks, list(mutant.options)
    else:
        area, breaks, runs, tests = "none", "nothing", list(mutant.options), []
    wanted = {
        "order": [stage for stage in order if stage in arguments.stages], "runs": runs, "seeds": arguments.seeds,
        "limit_s": arguments.limit, "tests": tests, "cpu_s": int(arguments.limit) + TESTS_CPU_S,
    }  # fmt: skip
    started = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.mutants.child"], input=json.dumps(wanted), cwd=tree.directory,
            env=environment(tree), capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Verdict(mutant.name, area, breaks, "stands still", "time", 0, True, time.monotonic() - started)
    finally:
        tree.restore()
    if done.returncode == -signal.SIGXCPU:
        return Verdict(mutant.name, area, breaks, "never ends", "time", 0, True, time.monotonic() - started)
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return Verdict(mutant.name, area, breaks, last[:120], "start", 0, True, time.monotonic() - started)
    return Verdict(
        mutant.name, area, breaks, found["check"], found["by"], found["seeds"], found["reached"], found["seconds"]
    )


def run_all(mutants: Sequence[Mutant], reach: Reach, arguments: argparse.Namespace) -> list[Verdict]:
    """Judge all mutants, `--jobs` at a time, each worker with a copy of the sources of its own, and print verdicts as
    they come. What the journal knows is not judged again.
    """
    journal = Journal(arguments.journal)
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    verdicts: list[Verdict] = []

    def work() -> None:
        with tempfile.TemporaryDirectory(prefix="odradek-mutants-") as name:
            tree = Tree(Path(name))
            while True:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                digest = Journal.digest(mutant, arguments.stages)
                verdict = journal.known(digest)
                if verdict is None:
                    verdict = judge(tree, mutant, reach, arguments)
                    journal.note(digest, verdict)
                verdicts.append(verdict)
                print(verdict.line(), flush=True)

    workers = [threading.Thread(target=work) for _ in range(arguments.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return verdicts


def run_generated(reach: Reach, arguments: argparse.Namespace) -> list[Verdict]:
    """Judge generated mutants by the tests that come by their statements, and by seeds if none of those objects."""
    journal = Journal(arguments.journal)
    verdicts: list[Verdict] = []
    trials: list[Trial] = []

    def say(trial: Trial, verdict: Verdict) -> None:
        journal.note(Journal.digest(trial.mutant, arguments.stages), verdict)
        verdicts.append(verdict)
        print(verdict.line(), flush=True)

    for mutant in generate(arguments.generated, arguments.draw):
        known = journal.known(Journal.digest(mutant, arguments.stages))
        if known is not None:
            verdicts.append(known)
            print(known.line(), flush=True)
            continue
        tests = reach.tests_of(mutant.path, mutant.lines) if "tests" in arguments.stages else []
        seeds = arguments.seeds if "seeds" in arguments.stages else 0
        trials.append(Trial(mutant, {test: reach.seconds[test] for test in tests}, seeds, arguments.limit, PATIENCE_S))
    if trials:
        judge_all(trials, TESTS, arguments.jobs, say)
    return verdicts


def reach_of_tests(arguments: argparse.Namespace) -> Reach:
    """What the fast tests come by, all of which have to pass."""
    if "tests" not in arguments.stages:
        return Reach({}, {})
    if arguments.reach and arguments.reach.exists():
        return read(arguments.reach)
    with tempfile.TemporaryDirectory(prefix="odradek-mutants-") as name:
        return trace(Tree(Path(name)), TESTS, arguments.reach or Path(name) / "reach.json")


def main(words: Sequence[str] | None = None) -> int:
    """Exit code 0: every protocol mutant caught and enough of the generated ones; 3: not; 1: the unchanged sources do
    not pass.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Break the protocol, see who notices.")
    parser.add_argument("names", nargs="*", help="protocol mutants to try; default: all")
    parser.add_argument(
        "--generated", type=int, default=0, metavar="N", help="try N generated mutants of the core instead"
    )
    parser.add_argument("--draw", type=int, default=1, help="seed of the draw of generated mutants")
    parser.add_argument("--seeds", type=int, default=60, help="simulated seeds for each mutant, at most")
    parser.add_argument("--limit", type=float, default=240, metavar="SECONDS", help="for the seeds of one mutant")
    parser.add_argument(
        "--stages", nargs="+", choices=("seeds", "tests"), default=["seeds", "tests"], help="who may object"
    )
    parser.add_argument("--enough", type=float, default=0.8, help="share of generated mutants that must be caught")
    parser.add_argument("-j", "--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all verdicts here")
    parser.add_argument(
        "--journal", type=Path, metavar="FILE", help="note each verdict here, and go on from what stands here"
    )
    parser.add_argument(
        "--reach", type=Path, metavar="FILE", help="what the tests come by: read from here, or made and kept here"
    )
    arguments = parser.parse_args(words)
    known = {patch.name: patch for patch in patches()}
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"no mutant is called {unknown[0]!r}; there are {', '.join(known)}")
    mutants = [known[name] for name in arguments.names or known]
    kinds = [""] if arguments.generated else [option for patch in known.values() for option in patch.options]
    (sound,) = run_all([Unchanged(tuple(dict.fromkeys(kinds)))], Reach({}, {}), arguments)
    try:
        reach = reach_of_tests(arguments)
    except ValueError as error:
        print(f"the unchanged sources do not pass: {error}")
        return 1
    if sound.caught:
        print(f"the unchanged sources do not pass: {sound.check} ({sound.by})")
        return 1
    verdicts = run_generated(reach, arguments) if arguments.generated else run_all(mutants, reach, arguments)
    caught = sum(verdict.caught for verdict in verdicts)
    unreached = [verdict.name for verdict in verdicts if not verdict.reached]
    print(f"{caught} of {len(verdicts)} caught, {len(unreached)} not reached")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1) + "\n")
    needed = len(verdicts) * (arguments.enough if arguments.generated else 1)
    return 0 if caught >= needed else 3


if __name__ == "__main__":
    sys.exit(main())
