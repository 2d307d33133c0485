"""Quorum nodes over real gRPC, real files and real time: they elect, commit, and replace a leader that stops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from odradek_broker.runtime.quorum.node import QuorumNode, QuorumSettings
from odradek_broker.testing.layout import HeldPort
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.files import OsFiles
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.grpc_options import GrpcOptions

FETCH_TIMEOUT_MS = 20_000  # a leader whose machine stands still for some seconds is not replaced: what it writes stays
PATIENCE_MS = 30_000


class Member:
    """One node, and what its listener was told."""

    def __init__(
        self, node_id: int, voters: dict[int, str], directory: Path, files: OsFiles, told: asyncio.Event
    ) -> None:
        self.told = told  # any node something
        self.records: list[bytes] = []
        self.leads = self.has_caught_up = False
        self.network = GrpcNetwork(GrpcOptions(connect_timeout_ms=PATIENCE_MS))
        self.node = QuorumNode(
            QuorumSettings(node_id, "a-cluster", voters, fetch_timeout_ms=FETCH_TIMEOUT_MS),
            clock=LoopClock(),
            network=self.network,
            files=files,
            log_directory=str(directory / str(node_id)),
            listener=self,
            on_event=self.on_event,
        )

    def freeze(self) -> Callable[[], Iterator[bytes]]:
        return lambda: iter(())

    def load(self, end_offset: int, epoch: int, records: Iterator[bytes]) -> object:
        raise AssertionError("nobody has taken a snapshot")

    def on_snapshot(self, end_offset: int, epoch: int, state: object) -> None: ...

    def on_commit(self, base_offset: int, epoch: int, records: Sequence[bytes]) -> None:
        self.records += records
        self.told.set()

    def on_control(self, end_offset: int, epoch: int) -> None: ...

    def on_leader(self, epoch: int) -> None:
        self.leads = True
        self.told.set()

    def on_resigned(self, epoch: int) -> None:
        self.leads = False

    def on_leader_changed(self, leader_id: int, epoch: int) -> None: ...

    def on_event(self, event: str, facts: Mapping[str, object]) -> None:
        """A voter that never was in this quorum before helps to elect only with all others, until then (R-217)."""
        self.has_caught_up |= event == "voter_caught_up"
        self.told.set()


async def until(members: Sequence[Member], condition: Callable[[], object]) -> None:
    """Look whenever a node was told something."""
    while not condition():
        members[0].told.clear()
        await members[0].told.wait()


async def commit_everywhere(members: Sequence[Member], record: bytes) -> Member:
    """By the one that leads, as soon as there is one."""
    await until(members, lambda: any(member.leads for member in members))
    leader = next(member for member in members if member.leads)
    leader.node.append([record])
    await until(members, lambda: all(record in member.records for member in members))
    return leader


async def test_three_nodes_elect_commit_and_replace_a_leader_that_stops(tmp_path: Path) -> None:
    """The leader that stops resigns; the others go on with what was committed."""
    async with asyncio.timeout(120), AsyncExitStack() as stack:
        files = OsFiles(8)
        stack.callback(files.close)
        ports = [HeldPort() for _ in range(3)]
        voters = {node_id: port.address for node_id, port in enumerate(ports, start=1)}
        told = asyncio.Event()
        members = [Member(node_id, voters, tmp_path, files, told) for node_id in voters]
        for port, member in zip(ports, members, strict=True):
            stack.callback(port.release)
            stack.push_async_callback(member.network.close)
            server = await member.network.serve(port.address, member.node.handlers())
            stack.push_async_callback(server.stop)
            stack.push_async_callback(member.node.stop)
            await member.node.start()
        first = await commit_everywhere(members, b"first")
        assert {voter.node_id for voter in first.node.describe().voters} == {1, 2, 3}
        others = [member for member in members if member is not first]
        await until(others, lambda: all(member.has_caught_up for member in others))
        await first.node.stop()
        second = await commit_everywhere(others, b"second")
        assert second.node.epoch > 1
        assert [member.records for member in others] == [[b"first", b"second"]] * 2
