"""Pairs of runs in two processes: equal ones pass, and whatever is not decided by the seed is noticed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from pathlib import Path

import pytest
from odradek_chaos.cli.commands import app
from odradek_chaos.worlds.simulated.campaign.determinism import HASH_SEEDS, Pairs, busy, hash_seeds, run_pairs
from odradek_chaos.worlds.simulated.plan.options import Options
from typer.testing import CliRunner

from tests.seeds import unless_torture
from tests.signals import started

runner = CliRunner()
SHORT = Options(faults_ms=100)
PAIRS = unless_torture(3, 20)  # every two of the hash seeds meet

ORDER_OF_HASHES = """
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

asked = SimLoop.fork_rng
SimLoop.fork_rng = lambda self, name: asked(self, f"{name} {hash(name)}")
"""
DIES = """
import os

os.write(2, b"disk on fire\\n")
os._exit(7)
"""
DIES_AS_A_RUN = f"import sys\nif any('import tell' in word for word in sys.orig_argv):\n    exec({DIES!r})\n"


def every_python_first_runs(program: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that are started from here on run it before anything else: the world is not told of tests."""
    (directory / "sitecustomize.py").write_text(program)
    monkeypatch.setenv("PYTHONPATH", f"{directory}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")


def children() -> set[str]:
    """The processes that this one has started. What they run is not asked: one that begins has no command line yet."""
    found: set[str] = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # this thread has ended just now
            found.update((thread / "children").read_text().split())
    return found


@pytest.mark.slow
def test_what_hangs_on_the_order_of_hashes_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Chance that is seeded by a hash: exit code 1, both hashes, and commands that show it; without that, 0."""
    arguments = ["pairs", "--seeds", "1", "--faults", "0.1"]
    sound = runner.invoke(app, [*arguments, "--json"])
    assert sound.exit_code == 0, sound.output
    said = json.loads(sound.stdout)
    assert (said["pairs"], said["equal"], said["different"]) == (1, 1, [])
    assert said["interrupted"] is False
    every_python_first_runs(ORDER_OF_HASHES, tmp_path, monkeypatch)
    broken = runner.invoke(app, arguments)
    assert broken.exit_code == 1, broken.output
    assert "0 of 1 pairs have equal trace hashes" in broken.stdout
    assert "again: odradek chaos pairs --seeds 1 --faults 0.1\n" in broken.stdout
    assert "PYTHONHASHSEED=4242 odradek chaos trace 1 --faults 0.1" in broken.stdout
    assert "seeds that differ: 1\n" in broken.stdout


def test_a_process_that_says_nothing_of_its_run_is_a_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs that both die are not equal; its last words are passed on."""
    every_python_first_runs(DIES, tmp_path, monkeypatch)
    found = asyncio.run(run_pairs([3, 1], SHORT, jobs=2))
    assert [pair.seed for pair in found.different] == [1, 3]
    assert {pair.second.error for pair in found.different} == {"ended with 7: disk on fire"}


def test_no_pair_begins_when_the_time_is_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one always runs, and what was left out is said."""
    every_python_first_runs(DIES, tmp_path, monkeypatch)
    found = asyncio.run(run_pairs(range(1_000), SHORT, seconds=0))
    assert found.pairs == 1
    said = runner.invoke(app, ["pairs", "--seeds", "1..1000000", "--minutes", "0.01", "-q", "--output", "table"])
    assert "pairs were not begun in time" in said.stdout


def test_every_two_of_the_hash_seeds_meet() -> None:
    """And a seed that is run again meets the same two."""
    assert {frozenset(hash_seeds(seed)) for seed in range(3)} == {frozenset(HASH_SEEDS) - {one} for one in HASH_SEEDS}
    assert hash_seeds(5) == hash_seeds(5 + len(HASH_SEEDS))


async def test_busy_processes_end_with_the_run_also_when_it_is_cancelled() -> None:
    """Whoever interrupts a campaign gets the machine back."""

    before = children()
    under_way: asyncio.Future[set[str]] = asyncio.get_running_loop().create_future()

    async def work() -> None:
        async with busy(2):
            under_way.set_result(children())
            await asyncio.Event().wait()

    task = asyncio.create_task(work())
    assert len(await under_way - before) == 2
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() <= before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGINT, ""), (signal.SIGTERM, "--json"), (signal.SIGHUP, "--json")]
)
def test_interrupted_pairs_say_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, words: str
) -> None:
    """How many pairs, and which of them differ: code 130, no traceback, and no process is left."""
    every_python_first_runs(DIES_AS_A_RUN, tmp_path, monkeypatch)
    with started(f"chaos pairs --seeds 1..1000000 --faults 0.1 --load 1 {words}") as process:
        assert process.stderr is not None
        begun = [process.stderr.readline() for _ in range(2)]
        process.send_signal(number)
        out, err = process.communicate(timeout=180)  # ends when nobody holds its output any more
    assert process.returncode == 130, err
    assert begun == ["seed 1 differs\n", "seed 2 differs\n"]
    assert "Traceback" not in err
    ended = re.search(r"interrupted after (\d+) of 1000000 pairs\n$", err)
    assert ended is not None, err
    seeds = [*range(1, int(ended[1]) + 1)]
    if words:
        said = json.loads(out)
        assert (said["pairs"], said["interrupted"]) == (len(seeds), True)
        assert [pair["seed"] for pair in said["different"]] == seeds
    else:
        assert f"0 of {len(seeds)} pairs have equal trace hashes" in out
        assert out.endswith(f"seeds that differ: {', '.join(map(str, seeds))}\n")
        assert "not begun in time" not in out


@pytest.mark.slow
def test_pairs_are_equal() -> None:
    """Three hash seeds; `make torture` has more pairs, with all kinds of faults, of which the second runs on a busy
    machine, as docs/simulation.md shows some."""
    seeds, load = range(3_000, 3_000 + PAIRS), unless_torture(0, 2)
    found: Pairs = asyncio.run(run_pairs(seeds, Options(faults_ms=1_500), load=load))
    assert found.pairs == PAIRS
    assert not found.different, found.different
    assert found.virtual_ms > PAIRS * 2 * 1_500, "runs that end at once prove little"
