"""What a cluster inside the process costs a test that wants one.

    python -m bench --only in_process [--quick] [--json]

- *first acknowledgement*: from the moment at which the first test of a process asks for `kafka_bootstrap` until an
  unchanged aiokafka has been told that its first acks=all record is written; three brokers, three replicas, the topic
  made by the client's first question. The plugin has loaded the broker's modules, and the test aiokafka.
- *further cluster*: the same for each one that follows in the process, and of it what the cluster itself takes.
- *end*: until nothing of a cluster is left.
- *CPU* of these, of the whole process, the client included: it says more than the clock where others use the machine.
- *memory*: RSS of that process, with three brokers, pytest's plugin and aiokafka.
- *tests with a cluster each*: pytest, from its start to its end, in a process of its own.
- *killed leader*: from `kill(leader)` until an acks=all record that was sent right after it is acknowledged.
- *one in flight*: acks=all records, one after the other, from a synchronous producer over gRPC; the median.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from aiokafka import AIOKafkaProducer
from odradek.sync import Producer
from odradek_broker.testing import Cluster

from bench.processes import resident_mib
from bench.report import Figure

FIRST_ACK_FLOOR_MS = 100
FURTHER_FLOOR_MS = OPEN_CPU_FLOOR_MS = 15
WHOLE_CPU_FLOOR_MS = 30
MEMORY_FLOOR_MIB = 120
TESTS, TESTS_FLOOR_S = 1_000, 30
TOPIC = "bench-in-process"
TEST = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_fresh(odradek_cluster, kafka_bootstrap, number):
    assert odradek_cluster.running == [1, 2, 3]
"""


def figures(quick: bool) -> list[Figure]:
    """All of them, each with its floor."""
    lives = [lives_in_a_process(10 if quick else 50) for _ in range(3 if quick else 7)]
    first = [life["first"][0] for life in lives]
    opened, further, ends, open_cpu, whole_cpu = (
        sorted(each for life in lives for each in life[what][1:])
        for what in ("open", "first", "end", "open CPU", "whole CPU")
    )
    kills, records = with_failures(2 if quick else 10, 100 if quick else 1_000)
    count = TESTS // 10 if quick else TESTS
    pytest_s, pytest_cpu_s = tests(count)
    return [
        Figure("in-process", "first acks=all record of a process", statistics.median(first), "ms", FIRST_ACK_FLOOR_MS),
        Figure("in-process", "further cluster, until it is ready", statistics.median(opened), "ms"),
        Figure(
            "in-process", "further cluster, first acks=all record", statistics.median(further), "ms", FURTHER_FLOOR_MS
        ),
        Figure("in-process", "the fastest of these", further[0], "ms"),
        Figure("in-process", f"the slowest of {len(further)}", further[-1], "ms"),
        Figure("in-process", "end, median", statistics.median(ends), "ms"),
        Figure("in-process", "CPU until it is ready", statistics.median(open_cpu), "ms", OPEN_CPU_FLOOR_MS),
        Figure("in-process", "CPU of it, a record, its end", statistics.median(whole_cpu), "ms", WHOLE_CPU_FLOOR_MS),
        Figure("in-process", "memory", max(life["memory"][0] for life in lives), "MiB RSS", MEMORY_FLOOR_MIB),
        Figure("in-process", f"{count:,} tests with a cluster each", pytest_s, "s", TESTS_FLOOR_S * count / TESTS),
        Figure("in-process", "CPU of these", pytest_cpu_s, "s", TESTS_FLOOR_S * count / TESTS),
        Figure("in-process", "acks=all after a killed leader, median", statistics.median(kills), "ms"),
        Figure("in-process", f"acks=all after a killed leader, slowest of {len(kills)}", max(kills), "ms"),
        Figure("in-process", "acks=all, one in flight, p50", statistics.median(records), "ms"),
    ]


def lives_in_a_process(count: int) -> dict[str, list[float]]:
    """Milliseconds of so many clusters, one after the other, in a fresh process, and its memory."""
    command = [sys.executable, "-c", f"from bench.in_process import lives; lives({count})"]
    found: dict[str, list[float]] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    return found


def lives(count: int) -> None:
    """The other side of `lives_in_a_process`."""
    found: dict[str, list[float]] = {what: [] for what in ("open", "first", "end", "memory", "open CPU", "whole CPU")}
    for _ in range(count):
        begun = time.process_time()
        cluster = Cluster()
        found["open"].append(milliseconds(cluster.open))
        found["open CPU"].append((time.process_time() - begun) * 1000)
        bootstrap = cluster.kafka_bootstrap
        found["first"].append(found["open"][-1] + milliseconds(partial(asyncio.run, write(bootstrap))))
        if not found["memory"]:
            found["memory"].append(resident_mib(os.getpid()))
        found["end"].append(milliseconds(cluster.close))
        found["whole CPU"].append((time.process_time() - begun) * 1000)
    print(json.dumps(found))


async def write(bootstrap: str) -> None:
    """A record, by a client that knows nothing of odradek."""
    async with AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all") as producer:
        await producer.send_and_wait(TOPIC, b"first")


def tests(count: int) -> tuple[float, float]:
    """Seconds of pytest, and of its CPU."""
    with tempfile.TemporaryDirectory(prefix="odradek-bench-") as directory:
        file = Path(directory) / "test_fresh.py"
        file.write_text(TEST.format(count=count))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", directory, str(file)]
        begun, cpu = time.perf_counter(), children_cpu_s()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True, cwd=directory)
        return time.perf_counter() - begun, children_cpu_s() - cpu


def children_cpu_s() -> float:
    """Of the processes that have ended by now."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def with_failures(kills: int, records: int) -> tuple[list[float], list[float]]:
    """Milliseconds of writes right after kills, and of undisturbed ones."""
    with Cluster() as cluster:
        cluster.create_topic(TOPIC)
        with Producer(cluster.bootstrap) as producer:
            undisturbed = [milliseconds(lambda: producer.send(TOPIC, "x" * 100)) for _ in range(records)]
            disturbed = []
            for _ in range(kills):
                leader = cluster.leader_of(TOPIC)

                def kill_and_write(leader: int = leader) -> None:
                    cluster.kill(leader)
                    producer.send(TOPIC, "after the kill")

                disturbed.append(milliseconds(kill_and_write))
                cluster.heal()
                cluster.wait_until_in_sync(TOPIC)
    return disturbed, undisturbed


def milliseconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return (time.perf_counter() - start) * 1000
