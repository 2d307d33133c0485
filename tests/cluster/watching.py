"""`odradek cluster status --watch --json` for minutes, while records are written and leaders are killed.

    python -m tests.cluster.watching --minutes 10

Each sample must be a moment that can be: no follower of a leader has a log end offset or a high watermark beyond it.
Exit code 3 when one is not, when one kept whoever watches waiting for more than a second beside the command's pause, or
when they stop.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek import Admin, NewTopic, OdradekError, Producer
from odradek.cli.clusters.commands import WATCH_PAUSE_S
from odradek_broker.local.cluster import LocalCluster
from odradek_chaos.harness.waiting import wait_until_ready
from odradek_proto.command_line import FINDINGS, FINE
from odradek_proto.transport.clock import LoopClock

TOPIC, PARTITIONS = "watched", 6
RATE = 300  # records a second
UP_MS, DOWN_MS = 6_000, 4_000  # so long all live, and one is dead
LONGEST_WAIT_S = 1.0
PATIENCE_S = 120


@dataclass
class Watched:
    """What was seen. Waits are seconds between two samples, without the pause that the command makes."""

    samples: int = 0
    with_an_error: int = 0
    with_a_broker_down: int = 0
    replicas: int = 0
    beyond_without_following: int = 0  # not of the leader's epoch yet: they may have what they will cut off
    impossible: list[str] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    kills: int = 0
    unfinished: str = ""  # why it ended before everything was seen, behind a semicolon

    def take(self, sample: dict[str, Any]) -> None:
        self.samples += 1
        if "error" in sample:
            self.with_an_error += 1
            return
        self.with_a_broker_down += any(broker["process"] != "up" for broker in sample["brokers"])
        for partition in sample["partitions"]:
            for replica, beyond in _beyond_their_leader(partition):
                self.replicas += 1
                if beyond and replica["follows"]:
                    self.impossible.append(f"sample {self.samples}: {json.dumps(partition)}")
                self.beyond_without_following += beyond and not replica["follows"]

    def summary(self) -> str:
        waits = sorted(self.waits_s) or [math.nan]
        late = sum(wait > LONGEST_WAIT_S for wait in waits)
        return (
            f"{self.samples} samples ({self.with_a_broker_down} with a broker that does not answer, "
            f"{self.with_an_error} without any), {self.kills} kills, {self.replicas} followers looked at: "
            f"{len(self.impossible)} impossible; {self.beyond_without_following} not of their leader's epoch yet and "
            f"beyond it; waits: median {waits[len(waits) // 2]:.2f} s, longest {waits[-1]:.2f} s, {late} above "
            f"{LONGEST_WAIT_S:g} s{self.unfinished}"
        )


def _beyond_their_leader(partition: dict[str, Any]) -> Iterator[tuple[dict[str, Any], bool]]:
    """Each follower that a sample has, and whether one of its offsets is beyond the leader's."""
    replicas = {replica["broker"]: replica for replica in partition["replicas"]}
    leader = replicas.pop(partition["leader"], None)
    if leader is None or leader["role"] != "leader":
        return
    for replica in replicas.values():
        if replica["role"] != "offline":
            yield replica, any(replica[name] > leader[name] for name in ("log_end_offset", "high_watermark"))


async def watch(cluster: LocalCluster, seconds: float, seed: int) -> Watched:
    """Write, kill and watch for so long, and until a dead broker and some followers were seen; `unfinished` says why
    that did not come about."""
    watched = Watched()
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])
    command = [sys.executable, "-m", "odradek.cli.main", "cluster", "status", TOPIC, "--watch", "--json"]
    process = await asyncio.create_subprocess_exec(
        *command, "-b", cluster.bootstrap, stdout=asyncio.subprocess.PIPE, env=os.environ, limit=1 << 24
    )
    tasks = [asyncio.create_task(_write(cluster)), asyncio.create_task(_kill(cluster, watched, random.Random(seed)))]
    try:
        async with asyncio.timeout(seconds + PATIENCE_S):
            assert process.stdout is not None
            began, last = time.monotonic(), 0.0
            async for line in process.stdout:
                now = time.monotonic()
                if last:
                    watched.waits_s.append(max(now - last - WATCH_PAUSE_S, 0))
                last = now
                watched.take(json.loads(line))
                if now - began >= seconds and min(watched.with_a_broker_down, watched.replicas) > 0:
                    break
            else:
                watched.unfinished = "; the command ended by itself"
    except TimeoutError:
        watched.unfinished = f"; not all that was to be seen came within {PATIENCE_S} s more than the time given"
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        process.kill()
        await process.wait()
    return watched


async def _write(cluster: LocalCluster) -> None:
    clock = LoopClock(random.Random())
    async with Producer(cluster.bootstrap) as producer:
        number = 0
        while True:
            with contextlib.suppress(OdradekError):
                await producer.enqueue(TOPIC, b"%d" % number, partition=number % PARTITIONS)
            number += 1
            await clock.sleep(1000 / RATE)


async def _kill(cluster: LocalCluster, watched: Watched, chance: random.Random) -> None:
    """A broker after the other, each leads some of the partitions; it is started again."""
    clock = LoopClock(chance)
    while True:
        await clock.sleep(UP_MS)
        broker = chance.choice([*cluster.nodes])
        await asyncio.to_thread(cluster.kill, broker)
        watched.kills += 1
        await clock.sleep(DOWN_MS)
        await asyncio.to_thread(cluster.start, broker)


def watch_a_cluster(directory: Path, seconds: float, seed: int) -> Watched:
    """The same on three brokers that are made for it, in a directory that is empty or not there."""
    cluster = LocalCluster.create(directory, brokers=3)
    try:
        cluster.start_all()
        asyncio.run(wait_until_ready(cluster, timeout_s=PATIENCE_S))
        return asyncio.run(watch(cluster, seconds, seed))
    finally:
        cluster.kill_all()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 16))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-") as directory:
        watched = watch_a_cluster(Path(directory) / "cluster", given.minutes * 60, given.seed)
    print(f"seed {given.seed}: {watched.summary()}")
    for each in watched.impossible[:10]:
        print(each)
    late = max(watched.waits_s, default=0) > LONGEST_WAIT_S
    return FINDINGS if watched.impossible or watched.unfinished or late else FINE


if __name__ == "__main__":
    sys.exit(main())
