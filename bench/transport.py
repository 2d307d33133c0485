"""What one message costs through the network port over gRPC.

An echo peer runs in a process of its own; one message is outstanding (c=1). Printed per way and size: median and 99th
percentile of the round trip, and CPU microseconds per round trip of the asking and of the answering process, threads
of gRPC included. Run `python -m bench --only transport [--quick] [--json]`.
"""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import CallContext, Handlers, Stream

from bench.report import Figure

Row = dict[str, Any]

SIZES = (100, 16 * 1024, 256 * 1024)
WARM_UP = 200


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


async def serve() -> None:
    async def unary(request: bytes, _: CallContext) -> bytes:
        return request

    async def stream(stream: Stream, _: CallContext) -> None:
        while True:
            await stream.send(await stream.recv())

    async def cpu(_: bytes, __: CallContext) -> bytes:
        return repr(cpu_seconds()).encode()

    network = GrpcNetwork()
    server = await network.serve(
        "127.0.0.1:0", Handlers({"/bench.Echo/Unary": unary, "/bench.Echo/Cpu": cpu}, {"/bench.Echo/Stream": stream})
    )
    print(server.address, flush=True)
    await asyncio.Event().wait()


async def measure(
    network: GrpcNetwork, peer: str, echo: Callable[[], Awaitable[object]], seconds: float
) -> dict[str, float]:
    for _ in range(WARM_UP):
        await echo()
    peer_before = float(await network.call(peer, "/bench.Echo/Cpu", b"", 5000))
    before, started, times = cpu_seconds(), time.perf_counter(), []
    while (now := time.perf_counter()) - started < seconds:
        await echo()
        times.append(time.perf_counter() - now)
    used = cpu_seconds() - before
    peer_used = float(await network.call(peer, "/bench.Echo/Cpu", b"", 5000)) - peer_before
    times.sort()
    return {
        "p50_us": times[len(times) // 2] * 1e6,
        "p99_us": times[len(times) * 99 // 100] * 1e6,
        "cpu_client_us": used / len(times) * 1e6,
        "cpu_server_us": peer_used / len(times) * 1e6,
    }


async def compare(peer: str, seconds: float) -> list[Row]:
    network = GrpcNetwork()
    rows = []
    for size in SIZES:
        payload = bytes(size)
        stream = await network.open(peer, "/bench.Echo/Stream")

        async def over_stream(stream: Stream = stream, payload: bytes = payload) -> None:
            await stream.send(payload)
            await stream.recv()

        async def over_unary(payload: bytes = payload) -> None:
            await network.call(peer, "/bench.Echo/Unary", payload, 5000)

        for way, echo in (("stream", over_stream), ("unary", over_unary)):
            rows.append({"way": way, "bytes": size, **await measure(network, peer, echo, seconds)})
        stream.close()
    await network.close()
    return rows


def against_a_peer(seconds: float) -> list[Row]:
    """Start the echo peer, measure, stop it."""
    command = [sys.executable, "-c", "import uvloop; from bench.transport import serve; uvloop.run(serve())"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as peer:
        assert peer.stdout is not None
        try:
            return uvloop.run(compare(peer.stdout.readline().strip(), seconds))
        finally:
            peer.kill()


def figures(quick: bool) -> list[Figure]:
    """CPU of both ends together for one message there and one back, and how long it takes."""
    found = []
    for row in against_a_peer(0.5 if quick else 2.0):
        name = f"{row['way']}, {row['bytes']:,} bytes, there and back"
        found.append(Figure("transport", name, row["cpu_client_us"] + row["cpu_server_us"], "us CPU"))
        found.append(Figure("transport", f"{name}, p50", row["p50_us"], "us"))
        found.append(Figure("transport", f"{name}, p99", row["p99_us"], "us"))
    return found
