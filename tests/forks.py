"""Tests in several processes after one collection: `pytest --forks 3`.

Importing and collecting all tests takes some ten seconds of processor time, and each worker of pytest-xdist does it for
itself. Here one process collects and forks the others, which hand back what came of each test. Rules.

- Tests of one `xdist_group` run in one process, in their order; so do those of one file that has fixtures of a module.
  Any other file is cut into portions. A process that is through with one takes the next: the first ones come first.
- Half of the processes begin with what waits for other processes, the others with what computes, so that cores are busy
  all the time; who finds nothing left of the one takes of the other.
- Nothing may run before the fork that a fork does not survive: no thread, no event loop, no channel of gRPC.
- A process that dies fails the test that it was at, and the rest of what it had taken is not run.
- Whoever ends early (-x, Ctrl-C) hangs up: a process ends at its next report, when its fixtures are torn down.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any, Final

import pytest

TOKEN_BYTES = 4
PORTIONS = 4  # of a file: the longest files take 20 s, and whoever takes the last one is waited for
PASSED: Final = "passed"


class Forks:
    """The plugin of the process that collects."""

    def __init__(self, count: int, waiting: tuple[str, ...] = ()) -> None:
        self._count = count
        self._waiting = waiting  # marks of tests that wait for processes

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed or session.config.option.collectonly:
            return None  # as without forks
        units = _units(session.items)
        waits = [any(item.get_closest_marker(name) for item in unit for name in self._waiting) for unit in units]
        queues = [_queue(number for number, each in enumerate(waits) if each is waiting) for waiting in (True, False)]
        sys.stdout.flush()
        running = dict(
            _forked(session, units, queues[:: -1 if place % 2 else 1], place)
            for place in range(min(self._count, len(units)))
        )
        try:
            _follow(session, running)
        finally:
            for queue in queues:
                while os.read(queue, 1 << 16):  # nothing further is begun
                    pass
                os.close(queue)
            for results, pid in running.items():
                results.close()
                os.waitpid(pid, 0)
        return True


def _units(items: list[pytest.Item]) -> list[list[pytest.Item]]:
    """What runs in one process each, in the order of their first tests."""
    together: dict[str, list[pytest.Item]] = {}
    for item in items:
        mark = item.get_closest_marker("xdist_group")
        together.setdefault(str(item.path) if mark is None else f"@{mark.args or mark.kwargs}", []).append(item)
    units: list[list[pytest.Item]] = []
    for name, unit in together.items():
        size = len(unit) if name.startswith("@") or any(map(_shares, unit)) else -(-len(unit) // PORTIONS)
        units += [unit[first : first + size] for first in range(0, len(unit), size)]
    return units


def _shares(item: pytest.Item) -> bool:
    """Whether it has a fixture of more than one test that not every test has."""
    fixtures: Any = item._fixtureinfo.name2fixturedefs  # type: ignore[attr-defined]
    return any(each.scope in ("module", "class", "package") for found in fixtures.values() for each in found)


def _queue(numbers: Iterable[int]) -> int:
    """A pipe, which hands out each number once."""
    taker, giver = os.pipe()
    os.set_blocking(giver, False)  # more than it holds is an error, and no wait for ever
    os.write(giver, b"".join(number.to_bytes(TOKEN_BYTES, "big") for number in numbers))
    os.close(giver)
    return taker


def _forked(
    session: pytest.Session, units: list[list[pytest.Item]], queues: list[int], place: int
) -> tuple[Connection, int]:
    ours, theirs = Pipe(duplex=False)
    pid = os.fork()
    if pid:
        theirs.close()
        return ours, pid
    status = 1
    try:
        ours.close()
        _run(session, units, queues, theirs, place)
        status = 0
    except BaseException:
        with contextlib.suppress(OSError):
            theirs.send(("broken", traceback.format_exc()))
    finally:
        atexit._run_exitfuncs()
        os._exit(status)  # not what stands above on the stack: that is the other process's


def _run(
    session: pytest.Session, units: list[list[pytest.Item]], queues: list[int], results: Connection, place: int
) -> None:
    config = session.config
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()  # its files were common to all forks
    capture.start_global_capturing()
    config.pluginmanager.unregister(name="terminalreporter")
    config.pluginmanager.register(_Reporter(config, results))
    temporary: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    temporary._basetemp = temporary.getbasetemp() / f"fork{place}"  # whose names nobody else counts
    temporary._basetemp.mkdir()
    try:
        for unit in _taken(units, queues):
            for item, following in zip(unit, [*unit[1:], session], strict=True):  # fixtures of the session go on
                results.send(("begun", item.nodeid))
                config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    finally:
        session._setupstate.teardown_exact(None)


def _taken(units: list[list[pytest.Item]], queues: list[int]) -> Iterator[list[pytest.Item]]:
    for queue in queues:
        while token := os.read(queue, TOKEN_BYTES):
            yield units[int.from_bytes(token, "big")]


class _Reporter:
    """In a fork: sends what is reported. Of a test that passed only what is told of it."""

    def __init__(self, config: pytest.Config, results: Connection) -> None:
        self._config = config
        self._results = results

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and not report.sections:
            self._results.send((PASSED, report.nodeid, report.when, report.duration))
        else:
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
            self._results.send(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: Any
    ) -> None:
        if when != "runtest":
            return  # which this process had from the other one
        said = warnings.WarningMessage(
            str(warning_message.message), warning_message.category, warning_message.filename, warning_message.lineno
        )
        self._results.send(("warning", said, when, nodeid, location))


def _follow(session: pytest.Session, running: dict[Connection, int]) -> None:
    """Report what comes back, until all forks have ended."""
    hook = session.config.hook
    locations = {item.nodeid: item.location for item in session.items}
    at: dict[Connection, str] = {}
    followed = list(running)
    while followed:
        for results in wait(followed):
            assert isinstance(results, Connection)
            try:
                message = results.recv()
            except EOFError:
                followed.remove(results)
                if results in at:
                    _report_death(session, at[results], running[results], "it ended without a word")
                continue
            kind = message[0]
            if kind == "begun":
                at[results] = message[1]
            elif kind == "warning":
                _, said, when, nodeid, location = message
                hook.pytest_warning_recorded.call_historic(
                    kwargs={"warning_message": said, "when": when, "nodeid": nodeid, "location": location}
                )
            elif kind == "broken":
                _report_death(session, at.pop(results, ""), running[results], message[1])
            else:
                if kind == PASSED:
                    _, nodeid, when, duration = message
                    report = pytest.TestReport(nodeid, locations[nodeid], {}, PASSED, None, when, duration=duration)
                else:
                    report = hook.pytest_report_from_serializable(config=session.config, data=message[1])
                hook.pytest_runtest_logreport(report=report)
                if report.when == "teardown":
                    at.pop(results, None)
                    hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
            if session.shouldfail or session.shouldstop:
                raise session.Failed(session.shouldfail or session.shouldstop)


def _report_death(session: pytest.Session, nodeid: str, pid: int, why: str) -> None:
    said = f"process {pid} of the tests ended in {nodeid or 'no test'}: {why}"
    report = pytest.TestReport(nodeid, (nodeid, None, nodeid), {}, "failed", said, "call")
    session.config.hook.pytest_runtest_logreport(report=report)
