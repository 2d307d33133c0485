"""`python -m tests.mutants`: break the protocol on purpose, and see who notices.

Each mutant lives alone in a copy of the sources. Protocol mutants (patches/) meet seeds of the simulated world first,
since a seed is what finds such mistakes in practice, and the fast tests when no seed objects. Generated mutants meet
the fast tests first. The table says what caught each one, after how many seeds, and whether its lines were reached.

Before all of them the unchanged sources go through the same: whatever objects to them would object to every mutant.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.mutants.generated import Generated, generate
from tests.mutants.tree import Patch, Tree, patches

TESTS = ("tests/scripts", "tests/broker")
PATIENCE_S = 900  # for one mutant; whoever takes longer stands still, and that is noticed, too


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant."""

    name: str
    area: str
    breaks: str
    check: str
    by: str  # seeds, tests, or nothing
    seeds: int
    reached: bool
    seconds: float

    @property
    def caught(self) -> bool:
        return self.by != ""

    def line(self) -> str:
        what = self.check if self.caught else ("SURVIVED" if self.reached else "SURVIVED, not reached")
        after = f"{self.seeds} seeds" if self.by == "seeds" else self.by
        return f"{self.name:44} {self.area:16} {after:10} {self.seconds:6.1f} s  {what}"


@dataclass(frozen=True, slots=True)
class Unchanged:
    """No mutant: the sources as they are, with every kind of run that any mutant asks for."""

    options: tuple[str, ...]
    name: str = "unchanged sources"


Mutant = Patch | Generated | Unchanged


def judge(tree: Tree, mutant: Mutant, arguments: argparse.Namespace) -> Verdict:
    """Put a mutant into the tree, run it, take it out again."""
    order = ["seeds", "tests"]
    if isinstance(mutant, Patch):
        tree.apply(mutant)
        area, breaks, runs = mutant.area, mutant.breaks, list(mutant.options)
    elif isinstance(mutant, Generated):
        tree.write(mutant.path, mutant.text)
        area, breaks, runs, order = "generated", mutant.change, [""], ["tests", "seeds"]
    else:
        area, breaks, runs = "none", "nothing", list(mutant.options)
    wanted = {
        "order": [stage for stage in order if stage in arguments.stages], "runs": runs,
        "seeds": arguments.seeds, "limit_s": arguments.limit, "tests": list(TESTS),
    }  # fmt: skip
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(tree.python_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }
    started = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tests.mutants.child", json.dumps(wanted)],
            cwd=tree.directory, env=environment, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Verdict(mutant.name, area, breaks, "stands still", "time", 0, True, time.monotonic() - started)
    finally:
        tree.restore()
    try:
        found = json.loads(done.stdout.strip().splitlines()[-1])
    except (ValueError, IndexError):
        last = (done.stderr.strip().splitlines() or ["no word"])[-1]
        return Verdict(mutant.name, area, breaks, last[:120], "start", 0, True, time.monotonic() - started)
    return Verdict(
        mutant.name, area, breaks, found["check"], found["by"], found["seeds"], found["reached"], found["seconds"]
    )


def run_all(mutants: Sequence[Mutant], arguments: argparse.Namespace, say: Callable[[Verdict], None]) -> list[Verdict]:
    """Judge all mutants, `--jobs` at a time, each worker with a copy of the sources of its own."""
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
                verdict = judge(tree, mutant, arguments)
                verdicts.append(verdict)
                say(verdict)

    workers = [threading.Thread(target=work) for _ in range(arguments.jobs)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return verdicts


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
    arguments = parser.parse_args(words)
    known = {patch.name: patch for patch in patches()}
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"no mutant is called {unknown[0]!r}; there are {', '.join(known)}")
    mutants: list[Mutant] = (
        list(generate(arguments.generated, arguments.draw))
        if arguments.generated
        else [known[name] for name in arguments.names or known]
    )
    kinds = dict.fromkeys(option for patch in known.values() for option in patch.options)
    (sound,) = run_all([Unchanged(tuple(kinds))], arguments, lambda verdict: None)
    if sound.caught:
        print(f"the unchanged sources do not pass: {sound.check} ({sound.by})")
        return 1
    verdicts = run_all(mutants, arguments, lambda verdict: print(verdict.line(), flush=True))
    caught = sum(verdict.caught for verdict in verdicts)
    unreached = [verdict.name for verdict in verdicts if not verdict.reached]
    print(f"{caught} of {len(verdicts)} caught, {len(unreached)} not reached")
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(verdict) for verdict in verdicts], indent=1) + "\n")
    needed = len(verdicts) * (arguments.enough if arguments.generated else 1)
    return 0 if caught >= needed else 3


if __name__ == "__main__":
    sys.exit(main())
