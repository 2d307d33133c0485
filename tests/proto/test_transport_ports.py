"""The ports to the world as processes have them: host names and proxies, deadlines and pauses, chance, files."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import socket
import subprocess
import sys
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.transport.backoff import SEARCHING, backoff_ms
from odradek_proto.transport.chance import chance, decided_by, reached
from odradek_proto.transport.deadline import Deadline
from odradek_proto.transport.files import OsFiles
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
    ("errors resolving slow.invalid:50051: [field:hostname lookup error:address lookup failed for "
     "slow.invalid:50051: Timeout while contacting DNS servers]",
     "slow.invalid cannot be resolved: Timeout while contacting DNS servers"),
    ("DNS resolution failed for slow.invalid:50051: C-ares status is not ARES_SUCCESS qtype=A name=slow.invalid "
     "is_balancer=0: Could not contact DNS servers", "slow.invalid cannot be resolved: Could not contact DNS servers"),
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


# --- Deadlines and pauses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("armed", "fires"),
    [
        ([50], [50]),
        ([50, 80], [50]),  # a later one is not of interest: the callback looks what is due
        ([50, 20], [20]),
        ([50, None, 20, 30], [20]),
        ([], []),
    ],
)
def test_a_deadline_fires_once_at_the_earliest_time(armed: list[int | None], fires: list[int]) -> None:
    """However often it is armed, and not again until it is armed again."""
    loop = SimLoop()
    clock = SimClock(loop, loop.fork_rng("clock"))
    heard: list[int] = []

    async def story() -> None:
        begun = clock.now_ms()
        deadline = Deadline(clock, lambda: heard.append(clock.now_ms() - begun))
        for at_ms in armed:
            deadline.arm(None if at_ms is None else begun + at_ms)
        await clock.sleep(200)
        assert not deadline.is_armed
        deadline.arm(clock.now_ms() + 10)
        deadline.cancel()
        await clock.sleep(200)

    loop.run_until_complete(story())
    assert heard == fires


def test_pauses_grow_to_their_limit() -> None:
    """One curve doubles; the other keeps each pause below a third of the time that has passed."""
    rng = random.Random(1)
    doubling = [backoff_ms(failure, 100, 1_000, rng) for failure in range(1, 9)]
    assert 80 <= doubling[0] <= 120
    assert all(800 <= pause <= 1_200 for pause in doubling[4:])
    searching = [backoff_ms(failure, 20, 1_000, random.Random(failure), SEARCHING) for failure in range(1, 20)]
    assert all(pause <= 30 + 0.45 * sum(searching[:at]) for at, pause in enumerate(searching))


def test_without_chance_a_pause_is_exact() -> None:
    """As a core needs it that decides by the time alone."""
    assert [backoff_ms(failure, 20, 300) for failure in range(7)] == [20, 20, 40, 80, 160, 300, 300]


# --- Chance -----------------------------------------------------------------------------------------------------------


class Always:
    """Strikes everywhere, and remembers where."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.branches: list[str] = []

    def fires(self, point: str, probability: float) -> bool:
        self.asked.append((point, probability))
        return True

    def reached(self, branch: str) -> None:
        self.branches.append(branch)


def test_nothing_strikes_outside_of_a_simulated_run() -> None:
    """However likely a point is said to be."""
    reached("anything")
    assert not chance("anything", 1.0)


def test_a_simulated_run_decides_until_its_end() -> None:
    """Also when it ends by an error."""
    always = Always()

    def run() -> None:
        with decided_by(always):
            assert chance("point", 0.25)
            reached("branch")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run()
    assert not chance("point", 1.0)
    assert (always.asked, always.branches) == ([("point", 0.25)], ["branch"])


def test_two_runs_do_not_share_a_process() -> None:
    """The luck of one would be drawn by the other."""
    with decided_by(Always()), pytest.raises(AssertionError), decided_by(Always()):
        pass


def test_brokers_on_another_thread_are_not_struck() -> None:
    """They are real, and what they ask must not shift what the run draws."""
    always, answers = Always(), list[bool]()

    def ask() -> None:
        answers.append(chance("point", 1.0))
        reached("branch")

    with decided_by(always):
        other = Thread(target=ask)
        other.start()
        other.join()
    assert (answers, always.asked, always.branches) == ([False], [], [])


# --- Files of the system ----------------------------------------------------------------------------------------------


def test_a_pipe_is_not_opened_as_a_file(tmp_path: Path) -> None:
    """A pipe under a segment's name is refused at once with its path, and is never written to."""
    files = OsFiles(threads=1)
    pipe = tmp_path / "00000000000000000009.log"
    os.mkfifo(pipe)
    for create in (False, True):
        with pytest.raises(OSError, match="it is no regular file") as raised:
            files.open(str(pipe), create=create)
        assert raised.value.filename == str(pipe)
    files.close()


def test_what_was_closed_is_refused_by_every_call_in_the_same_way(tmp_path: Path) -> None:
    """Whoever flushes in a thread may come late: EBADF is known to him, another exception is a broken program's."""
    files = OsFiles(threads=1)
    file = files.open(str(tmp_path / "a"), create=True)
    file.close()
    for act in (
        file.fsync,
        file.size,
        lambda: file.pread(0, 1),
        lambda: file.pwritev([b"x"], 0),
        lambda: file.truncate(0),
    ):
        with pytest.raises(OSError) as raised:
            act()
        assert raised.value.errno == errno.EBADF
    files.close()
