"""Quorum nodes over real gRPC, real files and real time: they elect, commit, and replace a leader that stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from odradek_broker.runtime.quorum.node import QuorumNode, QuorumSettings
from odradek_broker.testing.layout import HeldPort
from odradek_proto.errors import ErrorCode
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.files import OsFiles
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.grpc_options import GrpcOptions
from odradek_proto.transport.ports import Server
from odradek_proto.v1 import quorum_pb2 as pb

FETCH_TIMEOUT_MS = 20_000  # a leader whose machine stands still for some seconds is not replaced: what it writes stays
PATIENCE_MS = 30_000


class Listener:
    """Keeps what it was told, and lets others wait for it."""

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.snapshots: list[int] = []  # end offsets of those that replaced the records
        self.leads = False
        self.events: list[str] = []
        self.told = asyncio.Event()

    def freeze(self) -> Callable[[], Iterator[bytes]]:
        records = tuple(self.records)
        return lambda: iter(records)

    def load(self, end_offset: int, epoch: int, records: Iterator[bytes]) -> list[bytes]:
        return list(records)

    def on_snapshot(self, end_offset: int, epoch: int, state: object) -> None:
        assert isinstance(state, list)
        self.records, self.snapshots = state, [*self.snapshots, end_offset]
        self.told.set()

    def on_commit(self, base_offset: int, epoch: int, records: Sequence[bytes]) -> None:
        self.records += records
        self.told.set()

    def on_control(self, end_offset: int, epoch: int) -> None:
        pass

    def on_leader(self, epoch: int) -> None:
        self.leads = True
        self.told.set()

    def on_resigned(self, epoch: int) -> None:
        self.leads = False
        self.told.set()

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        self.told.set()

    def on_event(self, event: str, facts: Mapping[str, object]) -> None:
        self.events.append(event)
        self.told.set()

    def caught_up(self) -> bool:
        """Its votes count: a voter that never was in this quorum before helps to elect only with all others (R-217)."""
        return "voter_caught_up" in self.events

    def has(self, record: bytes) -> bool:
        return record in self.records

    async def lead(self) -> None:
        await self.until(lambda: self.leads)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.told.clear()
            await self.told.wait()


class Member:
    """One node with its listener and its server."""

    def __init__(
        self, node_id: int, voters: dict[int, str], directory: Path, network: GrpcNetwork, files: OsFiles
    ) -> None:
        self.listener = Listener()
        self.network = network
        self.server: Server | None = None
        self.node = QuorumNode(
            QuorumSettings(node_id, "a-cluster", voters, fetch_timeout_ms=FETCH_TIMEOUT_MS),
            clock=LoopClock(),
            network=network,
            files=files,
            log_directory=str(directory),
            listener=self.listener,
            on_event=self.listener.on_event,
        )

    async def start(self, address: str) -> None:
        self.server = await self.network.serve(address, self.node.handlers())
        await self.node.start()

    async def stop(self) -> None:
        await self.node.stop()
        if self.server is not None:
            await self.server.stop()


async def leader_among(members: Sequence[Member]) -> Member:
    """The member that leads, as soon as there is one."""
    waits = [asyncio.create_task(member.listener.lead()) for member in members]
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    return next(member for member in members if member.listener.leads)


async def commit_everywhere(leader: Member, members: Sequence[Member], record: bytes) -> None:
    leader.node.append([record])
    for member in members:
        await member.listener.until(partial(member.listener.has, record))


async def elect_commit_replace(directory: Path) -> None:
    files = OsFiles(8)
    async with asyncio.timeout(120), AsyncExitStack() as stack:
        ports = [HeldPort() for _ in range(3)]
        for port in ports:
            stack.callback(port.release)
        voters = {node_id: port.address for node_id, port in enumerate(ports, start=1)}
        members = []
        for node_id, address in voters.items():
            network = GrpcNetwork()
            stack.push_async_callback(network.close)
            (directory / str(node_id)).mkdir()
            member = Member(node_id, voters, directory / str(node_id), network, files)
            members.append(member)
            stack.push_async_callback(member.stop)
            await member.start(address)
        leader = await leader_among(members)
        await commit_everywhere(leader, members, b"first")
        assert {voter.node_id for voter in leader.node.describe().voters} == {1, 2, 3}
        others = [member for member in members if member is not leader]
        for member in others:
            await member.listener.until(member.listener.caught_up)
        await leader.stop()
        second = await leader_among(others)
        assert second.node.epoch > 1
        await commit_everywhere(second, others, b"second")
        assert [member.listener.records for member in others] == [[b"first", b"second"]] * 2
    files.close()


def test_three_nodes_elect_commit_and_replace_a_leader_that_stops(tmp_path: Path) -> None:
    """The leader that stops resigns; the others go on with what was committed."""
    asyncio.run(elect_commit_replace(tmp_path))


async def ask_a_stranger(directory: Path) -> tuple[ErrorCode, ErrorCode, ErrorCode]:
    files = OsFiles()
    port = HeldPort()
    address = port.address
    network = GrpcNetwork(GrpcOptions(connect_timeout_ms=PATIENCE_MS))
    member = Member(1, {1: address}, directory, network, files)
    server = await network.serve(address, member.node.handlers())
    request = pb.QuorumFetchRequest(cluster_id="another", replica_id=7).SerializeToString()

    async def ask(data: bytes) -> ErrorCode:
        answer = await network.call(address, "/odradek.v1.Quorum/Fetch", data, PATIENCE_MS)
        found = pb.QuorumFetchResponse.FromString(answer)
        return ErrorCode.from_number(found.error_code)

    try:
        before_start = await ask(request)
        await member.node.start()
        return before_start, await ask(request), await ask(b"\xff\xff\xff")
    finally:
        await member.node.stop()
        await server.stop()
        await network.close()
        port.release()
        files.close()


def test_what_a_node_cannot_serve_is_refused_by_name(tmp_path: Path) -> None:
    """A node that has not started, a stranger from another cluster, bytes that are no request."""
    assert asyncio.run(ask_a_stranger(tmp_path)) == (
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REQUEST,
    )
