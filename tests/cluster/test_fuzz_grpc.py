"""Bytes that nobody should send, on every call of every gRPC listener of real brokers.

Each message begins as a sound one of the table of `forged.py`, with all ids right, and is then damaged by seed: bits,
lengths, pieces of others, numbers at the edges of their types. What must hold: every call is answered within its time
and never as a failure of the broker, no process ends, no traceback is logged, log and memory stay bounded, and
acknowledged records are read afterwards.

    python -m tests.cluster.test_fuzz_grpc --minutes 60 [--seed 1]        `make torture` does it for an hour
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest
from odradek import Consumer, Producer
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import CallRejected, DeadlineExceeded, NetworkError

from tests.cluster.forged import LISTENERS, STREAMS, TABLE, Facts, Forged
from tests.cluster.test_stranger import VALUES, facts_of, write

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PATIENCE_MS = 90_000  # of a machine on which a broker gets no turn for a while
ANSWER_S = 0.2  # on a stream, where silence is an answer, too
EDGES = (0, 1, 127, 128, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
DAMAGED = ("UNKNOWN", "INTERNAL")  # what gRPC says of a handler that raised
LOG_BYTES_PER_MESSAGE = 40
RSS_BYTES = 64 * 1024 * 1024  # that a broker may grow by


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def damage(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """One to four changes."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(made) + 1)
        match rng.randrange(6):
            case 0 if made:
                made[at % len(made)] ^= 1 << rng.randrange(8)
            case 1:
                made[at : at + rng.randrange(8)] = b""
            case 2:
                made[at:at] = rng.randbytes(rng.randrange(1, 16))
            case 3:
                made[at:at] = varint(rng.randrange(1, 16) << 3) + varint(rng.choice(EDGES))
            case 4:
                made[at:] = other[rng.randrange(len(other) + 1) :]
            case _:
                made[at:at] = made[: rng.randrange(len(made) + 1)]
    return bytes(made[:65_536])


class Fuzz:
    """`done` counts outcomes; the first that must not be is an `AssertionError` with its seed."""

    def __init__(self, cluster: LocalCluster, seed: int) -> None:
        self.cluster = cluster
        self.done = Counter[str]()
        self._seed = seed
        self._rng = random.Random(seed)
        self._facts: Facts = facts_of(cluster)
        self._sound = [self._bytes(forged) for forged in TABLE]

    def _bytes(self, forged: Forged) -> bytes:
        message = forged.message(self._facts)
        return message if isinstance(message, bytes) else bytes(message.SerializeToString())

    async def some(self, count: int) -> None:
        network = GrpcNetwork()
        try:
            for _ in range(count):
                number = self._rng.randrange(len(TABLE))
                node = self.cluster.nodes[self._rng.choice(sorted(self.cluster.nodes))]
                forged, other = TABLE[number], self._rng.choice(self._sound)
                address = getattr(node, LISTENERS.get(forged.method.partition("/")[0], "grpc"))
                await self._one(network, address, forged, damage(self._rng, self._sound[number], other))
        finally:
            await network.close()

    async def _one(self, network: GrpcNetwork, address: str, forged: Forged, data: bytes) -> None:
        path, outcome = f"/odradek.v1.{forged.method}", "answered"
        try:
            if not forged.method.endswith(STREAMS):
                await network.call(address, path, data, PATIENCE_MS)
            else:
                stream = await network.open(address, path, PATIENCE_MS)
                try:
                    await stream.send(data)
                    async with asyncio.timeout(ANSWER_S):
                        await stream.recv()
                finally:
                    stream.close()
        except TimeoutError:
            outcome = "silent"
        except DeadlineExceeded:
            outcome = "late"
        except CallRejected as error:
            outcome = error.status
        except NetworkError as error:
            outcome = type(error).__name__
        self.done[outcome] += 1
        assert outcome not in (*DAMAGED, "late"), (self._seed, sum(self.done.values()), path, outcome, data.hex())

    def check(self, before: dict[int, int]) -> None:
        """Of the processes and their logs, at any time; `before` is what memory was."""
        sent = sum(self.done.values())
        for node_id in self.cluster.nodes:
            assert self.cluster.running(node_id), (self._seed, node_id, self.cluster.last_lines(node_id))
            logged = self.cluster.log_file(node_id).read_text()
            assert "Traceback" not in logged, (self._seed, node_id, logged[-4_000:])
            assert len(logged) < 200_000 + sent * LOG_BYTES_PER_MESSAGE, (self._seed, node_id, len(logged))
            assert resident(self.cluster, node_id) < before[node_id] + RSS_BYTES, (self._seed, node_id)


def resident(cluster: LocalCluster, node_id: int) -> int:
    """Bytes of memory of a broker's process."""
    for line in Path(f"/proc/{cluster.nodes[node_id].pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


async def still_works(cluster: LocalCluster) -> None:
    """Every acknowledged record is read, and one more is written: whoever was deposed has been followed."""
    async with asyncio.timeout(120):
        async with Producer(cluster.bootstrap, bootstrap_timeout_ms=60_000) as producer:
            await producer.send("orders", b"afterwards")
        async with Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
            read = [record.value async for record in consumer.records(until="end")]
        assert read[: len(VALUES)] == VALUES


def fuzz(directory: Path, seed: int, *, messages: int = 0, minutes: float = 0.0) -> Counter[str]:
    cluster = LocalCluster.create(directory / "cluster")
    cluster.ends_with_parent = True
    try:
        cluster.start_all()
        asyncio.run(write(cluster))
        before = {node_id: resident(cluster, node_id) for node_id in cluster.nodes}
        made, end = Fuzz(cluster, seed), time.monotonic() + minutes * 60
        while sum(made.done.values()) < messages or time.monotonic() < end:
            asyncio.run(made.some(min(messages or 1_000, 1_000)))
            made.check(before)
        asyncio.run(still_works(cluster))
        made.check(before)
        return made.done
    finally:
        cluster.kill_all()


@pytest.mark.parametrize("seed", [1])
def test_damaged_messages_harm_nobody(tmp_path: Path, seed: int) -> None:
    """Some hundred of each listener's calls by fixed seeds; an hour of them is in docs/torture.md."""
    done = fuzz(tmp_path, seed, messages=1_500)
    assert done["answered"] > 100, done
    assert done["INVALID_ARGUMENT"] > 50, done


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="odradek-fuzz-") as directory:
        done = fuzz(Path(directory), options.seed, minutes=options.minutes)
    print(f"{sum(done.values())} messages: {dict(done.most_common())}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
