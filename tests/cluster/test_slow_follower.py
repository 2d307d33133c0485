"""`odradek chaos slow`: a follower that fetches late leaves the ISR while its session lives, and comes back."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from odradek import NewTopic
from odradek.cli.main import main
from odradek.sync import Admin
from odradek_broker.local.cluster import ClusterError, LocalCluster
from odradek_broker.process import slow
from odradek_broker.runtime.replicas.fetch_delay import FetchDelay
from odradek_chaos.harness.waiting import wait_until_ready
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

from tests.waiting import until

PATIENCE_S = 120
NO_SESSION_ENDS = {  # so that it is the lag that a leader judges by
    "replica.lag.time.max.ms": "2000",
    "broker.session.timeout.ms": "300000",
    "controller.quorum.fetch.timeout.ms": "300000",
}
Run = Callable[..., Any]


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    """Three brokers, and `orders` with a replica on each of them, led by broker 1."""
    monkeypatch.setenv("ODRADEK_HOME", str(tmp_path / "home"))
    made = LocalCluster.create(tmp_path / "cluster", brokers=3, settings=NO_SESSION_ENDS)
    try:
        made.start_all()
        asyncio.run(wait_until_ready(made, timeout_s=PATIENCE_S))
        with Admin(made.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", assignments={0: [1, 2, 3]})])
        yield made
    finally:
        made.kill_all()


@pytest.mark.slow
@pytest.mark.cluster
def test_a_slow_follower_leaves_the_isr_and_comes_back(
    cluster: LocalCluster, capfd: pytest.CaptureFixture[str]
) -> None:
    """Its broker stays unfenced all the while; `heal` lets it fetch at once, however long it was to wait."""
    where = ("--data", str(cluster.directory))

    def isr() -> tuple[list[int], list[int]]:
        """The ISR, and the brokers that are fenced, after one more record."""
        assert main(["produce", "orders", "--count", "1", "-q", "-b", cluster.bootstrap]) == 0
        with Admin(cluster.bootstrap) as admin:
            fenced = [broker.broker_id for broker in admin.describe_cluster().brokers if broker.fenced]
            return sorted(admin.describe_topics(["orders"])[0].partitions[0].isr), fenced

    until(isr, lambda seen: seen == ([1, 2, 3], []))
    assert main(["chaos", "slow", "--broker", "3", "--delay", "3000", "--for", "3600", *where]) == 0
    told = capfd.readouterr().err
    assert "slowed down broker 3" in told
    assert "each of its fetches from a leader is 3000 s late, for 3600 s" in told
    assert [cluster.slowed(number) for number in (1, 2, 3)] == [False, False, True]
    until(isr, lambda seen: seen == ([1, 2], []))

    cluster.pause(3)
    until(lambda: cluster.paused(3), bool)
    with pytest.raises(ClusterError, match="broker 3 is frozen"):
        cluster.slow(3, 1, 1)
    cluster.resume(3)
    assert isr() == ([1, 2], [])

    capfd.readouterr()
    assert main(["chaos", "heal", "--json", *where]) == 0
    assert [row["broker"] for row in json.loads(capfd.readouterr().out)] == [3]
    until(isr, lambda seen: seen == ([1, 2, 3], []))
    assert main(["chaos", "heal", "--broker", "3", *where]) == 0
    assert "broker 3 was not cut off and was not slow" in capfd.readouterr().err


def test_a_delay_ends_by_itself_or_by_the_next_order() -> None:
    """Whoever waits then waits no longer; a delay holds each fetch up for so long and no longer."""
    loop = SimLoop()
    clock = SimClock(loop, random.Random(0))
    delay = FetchDelay(clock)
    left: list[int] = []

    async def fetch() -> None:
        await delay.wait()
        left.append(clock.now_ms())

    async def story() -> None:
        delay.set(100, 250)
        await fetch()
        await fetch()
        await fetch()  # the time is over before its delay is
        assert (left, delay.delay_ms) == ([100, 200, 250], 0)
        delay.set(10_000, 60_000)
        waiting = [asyncio.ensure_future(fetch()) for _ in range(2)]
        await clock.sleep(1)
        delay.set(10_000, 30_000)  # the same once more
        await clock.sleep(1)
        assert len(left) == 3
        delay.set(0, 0)
        await asyncio.gather(*waiting)
        assert left[3:] == [252, 252]

    loop.run_until_complete(story())


@pytest.mark.parametrize(
    "text", ["", "[]", '{"delay_ms": 5}', '{"delay_ms": 3600001, "until_ms": 0}', '{"delay_ms": 5, "until_ms": 1e99}',
             '{"delay_ms": -1, "until_ms": 0}', '{"delay_ms": 5, "until_ms": 99999999999999}'],
)  # fmt: skip
def test_an_order_that_cannot_be_is_not_obeyed(tmp_path: Path, text: str) -> None:
    """Neither is one whose time is over, or that was taken back."""
    slow.write(tmp_path, 5, 60_000)
    order = slow.read(tmp_path)
    assert (order.delay_ms, 0 < order.left_ms <= 60_000) == (5, True)
    slow.write(tmp_path, 5, 0)
    assert slow.read(tmp_path) == slow.NOTHING
    (tmp_path / slow.FILE).write_text(text)
    with pytest.raises(ValueError, match=r"expected|Expecting|at most"):
        slow.read(tmp_path)
    slow.remove(tmp_path)
    assert slow.read(tmp_path) == slow.NOTHING
