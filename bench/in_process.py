"""What a cluster inside the process costs a test that wants one.

    python -m bench.in_process [--quick] [--json]

- *first acknowledgement*: from `Cluster()` until a client in the same process has created a topic with three replicas
  and been told that its first acks=all record is written; three brokers, empty directories, modules loaded.
- *end*: from the end of the `with` block until nothing of the cluster is left.
- *killed leader*: from `kill(leader)` until an acks=all record that was sent right after it is acknowledged.
- *one in flight*: acks=all records, one after the other, from a synchronous producer; the median.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

from odradek.sync import Producer
from odradek_broker.testing import Cluster

from bench.report import Figure
from bench.run import main

FIRST_ACK_FLOOR_MS = 2_000
END_FLOOR_MS = 1_000
TOPIC = "bench-in-process"


def figures(quick: bool) -> list[Figure]:
    """All of them, each with its floor."""
    one_life()  # modules are loaded by now
    lives = [one_life() for _ in range(5 if quick else 50)]
    first, ends = sorted(life[0] for life in lives), sorted(life[1] for life in lives)
    kills, records = with_failures(2 if quick else 10, 100 if quick else 1_000)
    return [
        Figure("in-process", "first acks=all record, median", statistics.median(first), "ms", FIRST_ACK_FLOOR_MS),
        Figure("in-process", f"first acks=all record, slowest of {len(lives)}", first[-1], "ms", FIRST_ACK_FLOOR_MS),
        Figure("in-process", "end, median", statistics.median(ends), "ms", END_FLOOR_MS),
        Figure("in-process", f"end, slowest of {len(lives)}", ends[-1], "ms", END_FLOOR_MS),
        Figure("in-process", "acks=all after a killed leader, median", statistics.median(kills), "ms"),
        Figure("in-process", f"acks=all after a killed leader, slowest of {len(kills)}", max(kills), "ms"),
        Figure("in-process", "acks=all, one in flight, p50", statistics.median(records), "ms"),
    ]


def one_life() -> tuple[float, float]:
    """Milliseconds until the first record is acknowledged, and for the end."""
    cluster = Cluster()

    def begin() -> None:
        cluster.open()
        cluster.create_topic(TOPIC)
        with Producer(cluster.bootstrap) as producer:
            producer.send(TOPIC, "first")

    return milliseconds(begin), milliseconds(cluster.close)


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


if __name__ == "__main__":
    main(figures)
