"""Commands that started brokers, told to end again while they tidy up: no broker and no temporary data stays.

The second Ctrl-C comes out of the tidying itself, so that it always comes at the worst moment.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.cli.interrupting import listening
from odradek_chaos.demo.story import Demo

from tests.cli.conftest import Run

pytestmark = pytest.mark.usefixtures("ctrl_c_interrupts")


@pytest.fixture
def ctrl_c_interrupts() -> Any:
    """As in a terminal, wherever these tests run: also behind `nohup`, which ignores a closed terminal."""
    before = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> list[LocalCluster]:
    """Those whose brokers were started; Ctrl-C comes before each kill and before each end that is waited for."""
    started: list[LocalCluster] = []
    start_all, kill, wait_gone = LocalCluster.start_all, LocalCluster.kill, LocalCluster._wait_gone

    def noted(self: LocalCluster) -> None:
        started.append(self)
        start_all(self)

    def kill_told_again(self: LocalCluster, node_id: int) -> None:
        signal.raise_signal(signal.SIGINT)
        kill(self, node_id)

    def wait_told_again(self: LocalCluster, node_id: int, timeout_s: float) -> bool:
        signal.raise_signal(signal.SIGINT)
        return wait_gone(self, node_id, timeout_s)

    monkeypatch.setattr(LocalCluster, "start_all", noted)
    monkeypatch.setattr(LocalCluster, "kill", kill_told_again)
    monkeypatch.setattr(LocalCluster, "_wait_gone", wait_told_again)
    return started


def nothing_stays(clusters: list[LocalCluster], places: Path) -> bool:
    (cluster,) = clusters
    running = [node_id for node_id in cluster.nodes if cluster.running(node_id)]
    for node_id in running:
        cluster.signal(node_id, signal.SIGKILL)
    return not running and not [*places.iterdir()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_demo_that_is_told_again_leaves_nothing(
    odradek: Run, monkeypatch: pytest.MonkeyPatch, clusters: list[LocalCluster], places: Path, number: signal.Signals
) -> None:
    """Neither a broker that runs nor a directory, however often it is told."""

    async def begin(self: Demo) -> None:
        self.cluster.start_all()
        signal.raise_signal(number)
        await asyncio.Event().wait()

    monkeypatch.setattr(Demo, "run", begin)
    outcome = odradek("demo", "--seed", "1")
    assert (outcome.code, outcome.out) == (130, "")
    assert nothing_stays(clusters, places)


def test_a_demo_that_is_told_again_waits_for_no_broker(
    odradek: Run, monkeypatch: pytest.MonkeyPatch, clusters: list[LocalCluster], places: Path
) -> None:
    """The second Ctrl-C kills them while the story still waits for something that only their end ends."""

    async def begin(self: Demo) -> None:
        self.cluster.start_all()
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            signal.raise_signal(signal.SIGINT)
            for child in self.cluster._children.values():
                assert child.wait(600) == -signal.SIGKILL

    monkeypatch.setattr(Demo, "run", begin)
    odradek("demo", "--seed", "1", code=130)
    assert nothing_stays(clusters, places)


def test_a_demo_that_is_told_to_end_before_it_begins_starts_nothing(
    odradek: Run, monkeypatch: pytest.MonkeyPatch, clusters: list[LocalCluster], places: Path
) -> None:
    """While its cluster is laid out; the directory goes."""
    create = LocalCluster.create

    def told(*words: Any, **named: Any) -> LocalCluster:
        signal.raise_signal(signal.SIGINT)
        return create(*words, **named)

    monkeypatch.setattr(LocalCluster, "create", told)
    odradek("demo", "--seed", "1", code=130)
    assert clusters == []
    assert [*places.iterdir()] == []


def test_a_cluster_that_is_told_again_leaves_nothing(
    odradek: Run, monkeypatch: pytest.MonkeyPatch, clusters: list[LocalCluster], places: Path
) -> None:
    """The second Ctrl-C ends the waiting for brokers that stop cleanly, and those after it nothing."""

    async def told(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr("odradek_chaos.harness.waiting.wait_until_ready", told)
    odradek("cluster", "up", code=130)
    assert nothing_stays(clusters, places)


def test_what_was_done_when_nobody_listens_any_more_is_an_interruption() -> None:
    """Who is told to end while it tidies up does that to the end, and says so then."""
    done = []

    async def work() -> None:
        done.append("work")

    def told_while_it_tidies_up() -> None:
        with listening() as told:
            told.run(work())
            signal.raise_signal(signal.SIGTERM)
            done.append("tidied")

    with pytest.raises(KeyboardInterrupt):
        told_while_it_tidies_up()
    assert done == ["work", "tidied"]
    with listening() as told:
        told.run(work())
    assert done == ["work", "tidied", "work"]
