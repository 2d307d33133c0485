"""Options of the whole test run, and what keeps it short."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import shutil
import tempfile
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants
from odradek_broker.local import cluster as local_cluster
from odradek_broker.local import processes
from odradek_broker.local.ports import KAFKA_PORT_VARIABLE
from odradek_broker.local.processes import HOST, is_free

from tests.forks import Forks
from tests.playing import play
from tests.seeds import unless_torture

# The same examples in every run, and none that fails because the machine stopped while it was drawn or tried.
settings.register_profile(
    "odradek",
    deadline=None,
    derandomize=True,
    max_examples=unless_torture(40, 200),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("odradek")
# Hypothesis tries constants from the sources of loaded modules, too: examples would depend on what else a worker has
# run, and each worker looks for them for more than a second.
vars(providers)["_get_local_constants"] = cache(Constants)

WAITING = ("cluster", "spark")  # marks of tests that wait for processes
TEST_PORTS, PORTS_OF_A_WORKER = range(2_000, 9_000), 200  # nobody else chooses among them
MEMORY = Path("/dev/shm")  # where Linux has files in memory
ROOM_IN_MEMORY = 2 << 30  # bytes; the everyday run has some 100 MB at a time


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--rewrite` accepts what the transcripts say now; read the difference before you commit it."""
    parser.addoption("--rewrite", action="store_true", help="accept the new output of transcripts")
    parser.addoption("--forks", type=int, default=0, help="run tests in so many processes, after one collection")


def pytest_configure(config: pytest.Config) -> None:
    """The everyday run has its files in memory, where there is room: a third of its system time is a disk's.

    No test loses anything by it. Here processes are killed, and what they wrote stays; where machines lose their power,
    the disk is simulated. Whoever sets TMPDIR wants the files there, and what the slow tests write may be too much.
    """
    if config.option.forks:
        config.pluginmanager.register(Forks(config.option.forks, WAITING))
    if config.option.markexpr == "not slow" and "TMPDIR" not in os.environ:
        with contextlib.suppress(OSError):  # there is no such place
            runs_programs = not os.statvfs(MEMORY).f_flag & os.ST_NOEXEC  # Docker forbids it, and tests write some
            if runs_programs and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > ROOM_IN_MEMORY:
                os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without Python's garbage collector, and never let it walk through what was collected.

    Modules and tests are hundreds of thousands of objects, hardly one is garbage, and all live as long as the session.
    Afterwards it comes seldom: what tests leave is mostly freed at once, and a tenth of their processor time was its.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 25, 25)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What waits for processes comes first, and of all others what takes long: groups, which one process runs, and
    simulated worlds. Workers take tests in this order, and so end with short ones together."""

    def waits(item: pytest.Item) -> bool:
        return any(item.get_closest_marker(name) for name in WAITING)

    def is_long(item: pytest.Item) -> bool:
        return item.get_closest_marker("xdist_group") is not None or "simulation" in item.path.parts

    items.sort(key=lambda item: (not waits(item), not is_long(item)))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in an event loop of its own."""
    return play(pyfuncitem, asyncio.run)


@pytest.fixture(scope="session", autouse=True)
def ports_of_its_own() -> Generator[None, None, None]:
    """Clusters of processes get ports that nobody else takes before their start, or while a broker is down: neither the
    system, nor another worker of this run or of one beside it, nor a command that a test runs."""
    with contextlib.ExitStack() as stack:
        ports = cache(lambda: itertools.cycle(stack.enter_context(claimed_ports())))  # for the first who wants some
        patch = stack.enter_context(pytest.MonkeyPatch.context())

        def free_ports(count: int) -> list[int]:
            once = itertools.islice(ports(), PORTS_OF_A_WORKER)
            found = list(itertools.islice((port for port in once if is_free(f"{HOST}:{port}")), count))
            assert len(found) == count, f"fewer than {count} of {PORTS_OF_A_WORKER} ports are free"
            return found

        for module in (local_cluster, processes):
            patch.setattr(module, "free_ports", free_ports)
        patch.setenv(KAFKA_PORT_VARIABLE, "0")
        yield


@contextlib.contextmanager
def claimed_ports() -> Generator[range, None, None]:
    """The first ports of `TEST_PORTS` that no other worker has; a lock that ends with its process."""
    for first in TEST_PORTS[::PORTS_OF_A_WORKER]:
        lock = processes.lock_of_ports(f"from-{first}")
        if lock is not None:
            with lock:
                yield range(first, first + PORTS_OF_A_WORKER)
            return
    raise OSError(f"{len(TEST_PORTS) // PORTS_OF_A_WORKER} workers of tests run already: no ports are left")
