"""Host names: several addresses, addresses that change, and proxies that are not meant for brokers."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from odradek_proto.transport.grpc_network import GrpcNetwork, plain
from odradek_proto.transport.grpc_options import GrpcOptions
from odradek_proto.transport.ports import CallContext, DialResult, Handlers

ECHO = "/odradek.test.Peer/Echo"
PATIENCE_MS = 30_000  # of what succeeds, however slow this machine is
MOVING = """
import asyncio, sys
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import Handlers, NetworkError

def point(address):
    with open("/etc/hosts", "w") as hosts:
        hosts.write(f"127.0.0.1 localhost\\n{address} peer-1\\n")

async def unary(request, call):
    return request

async def main():
    handlers, client = Handlers({"/odradek.test.Peer/Echo": unary}), GrpcNetwork()
    server = await GrpcNetwork().serve("127.0.0.2:0", handlers)
    port = server.address.rpartition(":")[2]
    point("127.0.0.2")
    for address in ("127.0.0.3", "127.0.0.4", None):
        for attempt in range(20):  # a broker tries again, too; each new connection looks the name up
            try:
                await client.call(f"peer-1:{port}", "/odradek.test.Peer/Echo", b"x", 2_000)
                break
            except NetworkError:
                continue
        else:
            sys.exit(f"not found before the move to {address}")
        if address is not None:
            await server.stop()
            server = await GrpcNetwork().serve(f"{address}:{port}", handlers)
            point(address)
    await client.close()
    await server.stop()

asyncio.run(main())
"""


async def echo(request: bytes, context: CallContext) -> bytes:
    return request


def test_a_peer_that_moved_is_found_under_its_name(tmp_path: Path) -> None:
    """As a container that was made anew: its name stays, its address does not. With a hosts file of the test's own."""
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n")
    program = f"mount --bind {hosts} /etc/hosts && exec {sys.executable} -c '{MOVING}'"
    try:
        allowed = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        allowed = False
    if not allowed:
        pytest.skip("needs the right to make a mount namespace")
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", program], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_name_is_refused_only_when_all_its_addresses_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """`localhost` is two addresses for many machines, and a broker listens on one of them."""

    def both(host: str, port: int, *_: object, **__: object) -> list[tuple[Any, ...]]:
        kind = socket.AF_INET, socket.SOCK_STREAM, 6, ""
        return [(*kind, ("127.0.0.9", port)), (*kind, ("127.0.0.1", port))]

    async def story() -> list[DialResult]:
        network = GrpcNetwork()
        server = await network.serve("127.0.0.1:0", Handlers({ECHO: echo}))
        monkeypatch.setattr(socket, "getaddrinfo", both)
        peer = f"somewhere:{server.address.rpartition(':')[2]}"
        listening = await network.dial(peer, PATIENCE_MS)
        await server.stop()
        return [listening, await network.dial(peer, PATIENCE_MS)]

    assert asyncio.run(story()) == [DialResult.LISTENING, DialResult.REFUSED]


@pytest.mark.parametrize("peer", ["broker..example:9092", f"{'b' * 64}:9092", "broker:http", "broker"])
def test_a_dial_to_what_can_be_no_address_proves_nothing(peer: str) -> None:
    """The controller dials what brokers advertise, and a misspelt name must not be the end of it."""

    async def story() -> DialResult:
        return await GrpcNetwork().dial(peer, PATIENCE_MS)

    assert asyncio.run(story()) is DialResult.SILENT


REFUSED = "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:9: Failed to connect to remote host: "


@pytest.mark.parametrize(("details", "said"), [
    ("errors resolving nobody.invalid:50051: [field:hostname lookup error:address lookup failed for "
     "nobody.invalid:50051: Domain name not found]", "unknown host nobody.invalid"),
    ("DNS resolution failed for nobody.invalid:50051: C-ares status is not ARES_SUCCESS qtype=A name=nobody.invalid "
     "is_balancer=0: Domain name not found", "unknown host nobody.invalid"),
    (REFUSED + "Connection refused", "Failed to connect to remote host: Connection refused"),
    ("Stream removed (ping timeout)", "it has the connection and says nothing any more"),
    ("what nobody knows", "what nobody knows"),
])  # fmt: skip
def test_why_a_connection_failed_is_said_in_plain_words(details: str, said: str) -> None:
    """gRPC's words, by version and resolver. No resolver is asked: it may know every name, or none in time."""
    assert plain(details) == said


@pytest.mark.parametrize("variable", ["http_proxy", "https_proxy", "grpc_proxy"])
def test_proxies_for_the_web_are_not_used(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC would send calls through them; they know nothing of brokers."""
    monkeypatch.setenv(variable, "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "")

    async def story() -> bytes:
        network = GrpcNetwork(GrpcOptions(connect_timeout_ms=PATIENCE_MS))
        server = await network.serve("127.0.0.1:0", Handlers({ECHO: echo}))
        answer = await network.call(server.address.replace("127.0.0.1", "localhost"), ECHO, b"x", PATIENCE_MS)
        await network.close()
        await server.stop()
        return answer

    assert asyncio.run(story()) == b"x"
