"""Is a run decided by its seed alone? Each seed runs twice, in two fresh processes, and the trace hashes must be equal.

What may differ between two processes does: the hash seed (and with it the order of every set and of what is hashed by
address), where things lie in memory, what the machine does besides. The hash seeds follow from the seed, so that a
pair that is run again is the same pair. With load, as many processes as asked for are busy during the second run; they
end with it, and with whoever started them.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from time import monotonic
from typing import Any, NamedTuple

from odradek_proto.words import noun

from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.run import run_seed

HASH_SEEDS = (0, 1, 4242)  # PYTHONHASHSEED; 0 means no randomization
TELLS = f"import sys; from {__name__} import tell; tell(int(sys.argv[1]), sys.argv[2])"
BUSY = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    sum(range(100_000))"


class RunOutcome(NamedTuple):
    """What one process said of its run. `virtual_ms` is the length of the run in virtual time."""

    hash_seed: int
    trace_hash: str = ""
    events: int = 0
    virtual_ms: int = 0
    findings: tuple[str, ...] = ()
    error: str = ""  # last words of a process that said nothing of its run


class Pair(NamedTuple):
    """One seed, run twice."""

    seed: int
    first: RunOutcome
    second: RunOutcome

    @property
    def is_equal(self) -> bool:
        """All that the two said of their runs; one that said nothing is equal to nothing."""
        return bool(self.first.trace_hash) and self.first[1:] == self.second[1:]


@dataclass(slots=True)
class Pairs:
    """The sum."""

    options: Options
    load: int  # busy processes beside each second run
    pairs: int = 0
    virtual_ms: int = 0
    wall_s: float = 0.0
    different: list[Pair] = field(default_factory=list)
    with_findings: int = 0  # pairs: what they compare ends at the first finding

    def add(self, pair: Pair) -> None:
        self.pairs += 1
        self.virtual_ms += pair.first.virtual_ms + pair.second.virtual_ms
        self.with_findings += bool(pair.first.findings)
        if not pair.is_equal:
            self.different.append(pair)

    def line(self) -> str:
        load = f", {self.load} busy processes beside each second run" if self.load else ""
        found = f"; {self.with_findings} with findings" if self.with_findings else ""
        seconds = round(self.virtual_ms / 1000)
        return (
            f"{self.pairs - len(self.different)} of {self.pairs} pairs have equal trace hashes "
            f"(PYTHONHASHSEED {', '.join(map(str, HASH_SEEDS))}{load}); "
            f"{seconds} {noun(seconds, 'virtual second')} in {self.wall_s:.0f} s{found}"
        )


def hash_seeds(seed: int) -> tuple[int, int]:
    """Two of the three, each combination in its turn."""
    return HASH_SEEDS[seed % len(HASH_SEEDS)], HASH_SEEDS[(seed + 1) % len(HASH_SEEDS)]


async def run_pairs(
    seeds: Iterable[int],
    options: Options,
    *,
    jobs: int = 1,
    load: int = 0,
    seconds: float | None = None,
    on_pair: Callable[[Pair], None] = lambda pair: None,
    on_interrupt: Callable[[Pairs], None] = lambda found: None,
) -> Pairs:
    """Run pairs until the seeds or the seconds are used up, `jobs` pairs at the same time.

    `on_pair` is called as each is done, in no certain order. A pair that has begun is finished. Whoever cancels this
    ends all its processes; then `on_interrupt` is shown the sum of the pairs that were done.
    """
    found, started, waiting = Pairs(options, load), monotonic(), iter(seeds)

    async def work() -> None:
        for seed in waiting:
            pair = await _run_pair(seed, options, load)
            found.add(pair)
            on_pair(pair)
            if seconds is not None and monotonic() - started >= seconds:
                return

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(jobs):
                tasks.create_task(work())
    except (asyncio.CancelledError, KeyboardInterrupt):
        on_interrupt(_ended(found, started))
        raise
    return _ended(found, started)


def _ended(found: Pairs, started: float) -> Pairs:
    found.wall_s = monotonic() - started
    found.different.sort()
    return found


async def _run_pair(seed: int, options: Options, load: int) -> Pair:
    first, second = hash_seeds(seed)
    alone = await _run(seed, options, first)
    async with busy(load):
        return Pair(seed, alone, await _run(seed, options, second))


async def _run(seed: int, options: Options, hash_seed: int) -> RunOutcome:
    program = ("-c", TELLS, str(seed), json.dumps(asdict(options)))
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
    async with _process(*program, env=environment, stdout=asyncio.subprocess.PIPE) as process:
        said, complaint = await process.communicate()
    try:
        told = json.loads(said)
        return RunOutcome(hash_seed, told["trace_hash"], told["events"], told["virtual_ms"], tuple(told["findings"]))
    except (ValueError, KeyError, TypeError):
        last = (complaint.decode(errors="replace").strip() or "no word").splitlines()[-1]
        return RunOutcome(hash_seed, error=f"ended with {process.returncode}: {last}")


def tell(seed: int, options: str) -> None:
    """In a process of its own: run a seed under options in JSON, and print what has to be the same in every process."""
    said: dict[str, Any] = json.loads(options)
    given: dict[str, Any] = {name: tuple(each) if isinstance(each, list) else each for name, each in said.items()}
    result = run_seed(seed, Options(**given))
    told = {"trace_hash": result.trace_hash, "events": result.events, "virtual_ms": result.virtual_ms}
    print(json.dumps({**told, "findings": [finding.check for finding in result.findings]}))


@asynccontextmanager
async def busy(count: int) -> AsyncIterator[None]:
    """So many processes compete for the cores inside."""
    if count == 0:
        yield
        return
    async with _process("-I", "-S", "-c", BUSY, str(os.getpid())), busy(count - 1):
        yield


@asynccontextmanager
async def _process(
    *arguments: str, env: dict[str, str] | None = None, stdout: int = asyncio.subprocess.DEVNULL
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A Python that ends when the block does, and that a terminal's Ctrl-C does not reach: to end it is for us."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, env=env, stdout=stdout, stderr=asyncio.subprocess.PIPE, process_group=0
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
