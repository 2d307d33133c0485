"""Many seeds, in several processes: what they gave together, and which kinds of faults were reached.

A campaign is a sum of independent runs, so its result does not depend on the number of processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import active_children, get_context, parent_process
from os import _exit
from signal import SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK, SIGHUP, SIGINT, SIGTERM, pthread_sigmask
from threading import Thread
from time import monotonic, process_time

from odradek_proto.words import noun

from odradek_chaos.worlds.simulated.faults.catalogue import SAFE_NEMESES
from odradek_chaos.worlds.simulated.plan.buggify import BRANCHES, POINTS
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.result import SeedResult
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_chaos.worlds.simulated.world.unavailability import in_words

QUEUED_PER_JOB = 2
REPORTS_KEPT = 20
ONE = {"faults": "fault", "chance points": "chance point", "rare branches": "rare branch"}


@dataclass(frozen=True, slots=True)
class SeedSummary:
    """What remains of one seed: small, and fit to be sent between processes. Times are milliseconds."""

    seed: int
    trace_hash: str
    virtual_ms: int
    cpu_s: float
    events: int
    faults: dict[str, int]
    points: dict[str, int]
    branches: dict[str, int]
    acknowledged: int
    compared: int
    recovered_ms: int
    unavailable_ms: dict[str, int]
    costs: tuple[str, ...]  # names of the checks that found what is not owed, or that do not count
    checks: tuple[str, ...]  # names of the checks that found something
    report: str  # the failure as a text; empty when there is none


@dataclass(slots=True)
class Campaign:
    """The sum."""

    options: Options
    seeds: int = 0
    virtual_ms: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    events: int = 0
    acknowledged: int = 0
    compared: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)  # chance points of the product
    branches: Counter[str] = field(default_factory=Counter)  # rare branches of the product
    costs: Counter[str] = field(default_factory=Counter)  # seeds with what is not owed, or does not count
    checks: Counter[str] = field(default_factory=Counter)
    worst_recovery_ms: int = 0
    unavailable_ms: dict[str, list[int]] = field(default_factory=dict)  # by kind of fault, the longest of each seed
    failed_seeds: list[int] = field(default_factory=list)
    _reports: dict[int, str] = field(default_factory=dict)  # of the first seeds with findings

    def add(self, summary: SeedSummary) -> None:
        self.seeds += 1
        self.virtual_ms += summary.virtual_ms
        self.cpu_s += summary.cpu_s
        self.events += summary.events
        self.acknowledged += summary.acknowledged
        self.compared += summary.compared
        self.faults.update(summary.faults)
        self.points.update(summary.points)
        self.branches.update(summary.branches)
        self.costs.update(summary.costs)
        self.checks.update(summary.checks)
        self.worst_recovery_ms = max(self.worst_recovery_ms, summary.recovered_ms)
        for kind, silence_ms in summary.unavailable_ms.items():
            self.unavailable_ms.setdefault(kind, []).append(silence_ms)
        if summary.checks:
            self.failed_seeds.append(summary.seed)
            self._reports[summary.seed] = summary.report
            if len(self._reports) > REPORTS_KEPT:
                del self._reports[max(self._reports)]

    @property
    def reports(self) -> list[str]:
        """Failures as texts, of the first seeds that have some, whichever was done first."""
        return [report for _, report in sorted(self._reports.items())]

    @property
    def speed(self) -> float:
        """Virtual seconds per second of one core."""
        return self.virtual_ms / 1000 / self.cpu_s if self.cpu_s else 0.0

    def unreached(self) -> list[str]:
        """Kinds of faults, chance points and rare branches that the options allow and that were never reached."""
        faults = [name for name in (self.options.nemeses or SAFE_NEMESES) if not self.faults[name]]
        points = [] if self.options.chance == "none" else [name for name in POINTS if not self.points[name]]
        out_of_reach = {
            "core-phase": self.options.core == "never",
            "snapshot-installed": self.options.metadata_snapshots == "never",
        }
        branches = [name for name in BRANCHES if not self.branches[name] and not out_of_reach.get(name)]
        return [*faults, *points, *branches]

    def reach(self) -> dict[str, dict[str, int]]:
        """How often each was reached: what ought to be, and what was besides."""
        kinds = dict.fromkeys(self.options.nemeses or SAFE_NEMESES, 0)
        return {
            "faults": {**kinds, **dict(sorted(self.faults.items()))},
            "chance points": {name: self.points[name] for name in POINTS},
            "rare branches": {name: self.branches[name] for name in BRANCHES},
        }

    def lines(self) -> Iterator[str]:
        seconds = round(self.virtual_ms / 1000)
        yield (
            f"{_seeds(self.seeds)}, {seconds} {noun(seconds, 'virtual second')}, "
            f"{self.events} {noun(self.events, 'event')}"
        )
        for title, counted in self.reach().items():
            named = ", ".join(f"{count} {name}" for name, count in counted.items() if count)
            count = sum(counted.values())
            yield f"{count} {noun(count, ONE[title], title)}: {named}".removesuffix(": ")
        if missed := self.unreached():
            yield f"not reached by these seeds: {', '.join(missed)}"
        records = noun(self.acknowledged, "record")
        yield f"{self.acknowledged} {records} acknowledged, {self.compared} compared between replicas"
        yield f"longest recovery after the faults: {self.worst_recovery_ms} ms"
        if self.unavailable_ms:
            yield f"longest ms without an acknowledgement, p50/p99/max of the seeds: {in_words(self.unavailable_ms)}"
        yield f"{self.wall_s:.1f} s, {self.cpu_s:.1f} s of CPU, {self.speed:.1f} times real time per core"
        if self.costs:
            seeds = ", ".join(f"{_seeds(count)} with {name}" for name, count in sorted(self.costs.items()))
            yield f"{'not counted' if self.options.checks else 'not owed'}: {seeds}"
        if self.failed_seeds:
            found = ", ".join(f"{count} {name}" for name, count in sorted(self.checks.items()))
            failed = ", ".join(map(str, self.failed_seeds))
            yield f"{_seeds(len(self.failed_seeds))} with findings ({found}): {failed}"
        else:
            yield "no finding"


def _seeds(count: int) -> str:
    return f"{count} {noun(count, 'seed')}"


def run_one(seed: int, options: Options) -> SeedSummary:
    """Run one seed and keep what a campaign needs."""
    started = process_time()
    result = run_seed(seed, options)
    return summarize(result, process_time() - started)


def summarize(result: SeedResult, cpu_s: float) -> SeedSummary:
    return SeedSummary(
        seed=result.seed,
        trace_hash=result.trace_hash,
        virtual_ms=result.virtual_ms,
        cpu_s=cpu_s,
        events=result.events,
        faults=result.faults,
        points=result.points,
        branches=result.branches,
        costs=tuple(sorted(result.costs)),
        acknowledged=result.acknowledged,
        compared=result.compared,
        recovered_ms=result.recovered_ms,
        unavailable_ms=result.unavailable_ms,
        checks=tuple(sorted({finding.check for finding in result.findings})),
        report=result.report() if result.findings else "",
    )


def run_campaign(
    seeds: Iterable[int],
    options: Options | None = None,
    *,
    jobs: int = 0,
    seconds: float | None = None,
    on_seed: Callable[[SeedSummary], None] = lambda summary: None,
    on_interrupt: Callable[[Campaign], None] = lambda campaign: None,
) -> Campaign:
    """Run seeds until they or the seconds are used up; `on_seed` is called as each is done, in no certain order.

    `jobs` processes run them, with 0 this one: then an interrupt comes out of the middle of a run. `on_interrupt` is
    shown the sum of the seeds that were done, and `KeyboardInterrupt` goes on to the caller.
    """
    campaign = Campaign(options or Options())
    started = monotonic()
    end = None if seconds is None else started + seconds
    try:
        with closing(_results(iter(seeds), campaign.options, jobs, end)) as results:
            for summary in results:
                campaign.add(summary)
                on_seed(summary)
    except KeyboardInterrupt:
        on_interrupt(_ended(campaign, started))
        raise
    return _ended(campaign, started)


def _ended(campaign: Campaign, started: float) -> Campaign:
    campaign.wall_s = monotonic() - started
    campaign.failed_seeds.sort()
    return campaign


def _results(
    seeds: Iterator[int], options: Options, jobs: int, end: float | None
) -> Generator[SeedSummary, None, None]:
    if jobs == 0:
        for seed in seeds:
            yield run_one(seed, options)
            if end is not None and monotonic() >= end:
                return
        return
    with _workers(jobs) as pool:
        running: set[Future[SeedSummary]] = set()
        while True:
            if end is None or monotonic() < end:
                with _uninterrupted():
                    for seed in islice(seeds, QUEUED_PER_JOB * jobs - len(running)):
                        running.add(pool.submit(run_one, seed, options))
            if not running:
                return
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                yield future.result()


@contextmanager
def _workers(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that finish what they were given, or end at once when we are interrupted or killed."""
    others = set(active_children())
    with _uninterrupted():  # it starts a process that keeps count of the pool's semaphores
        made = ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_begin_worker)
    with made as pool:
        try:
            yield pool
        except BaseException:
            with _uninterrupted():  # also by whoever says it twice, as a terminal that closes does
                for worker in set(active_children()) - others:
                    worker.kill()
                pool.shutdown(cancel_futures=True)
            raise


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Whatever ends a campaign waits until the end, and a process that is started inside never hears of it: a terminal
    tells all of a campaign, and to end the workers is for the one that started them."""
    before = pthread_sigmask(SIG_BLOCK, [SIGINT, SIGTERM, SIGHUP])
    try:
        yield
    finally:
        pthread_sigmask(SIG_SETMASK, before)


def _begin_worker() -> None:
    """A worker hears nothing but the SIGTERM by which the pool ends it, and ends with whoever started it."""
    Thread(target=_end_with_parent, daemon=True).start()
    pthread_sigmask(SIG_UNBLOCK, [SIGTERM])


def _end_with_parent() -> None:
    """A parent that was killed has told nobody anything, and its workers would wait for work for ever."""
    parent = parent_process()
    assert parent is not None, "only a worker has one"
    parent.join()
    _exit(1)
