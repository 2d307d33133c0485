"""Snapshots of a node of the quorum, one effect at a time (KIP-630).

Rules of this module. Nothing here blocks the event loop for long: a state is frozen at once and written in a thread, a
snapshot from the leader is flushed, read and turned into a state in a thread, and only the changes are published on the
loop. Work on the loop is short: a received chunk goes into the page cache, and unneeded files are removed, in the order
of the effects.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import Clock
from odradek_proto.values import replace

from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.messages import (
    CheckSnapshot,
    Effect,
    InstallSnapshot,
    ReceiveChunk,
    ReplyChunk,
    SnapshotId,
    StartLogAt,
    TakeSnapshot,
)
from odradek_broker.runtime.quorum.commits import QuorumCommits
from odradek_broker.runtime.quorum.disk import QuorumDisk
from odradek_broker.runtime.quorum.peers import answer_caller

SnapshotEffect = TakeSnapshot | StartLogAt | ReplyChunk | ReceiveChunk | CheckSnapshot | InstallSnapshot
Work = Coroutine[object, object, None]


class SnapshotWork:
    """Between the core, the disk and the listener. `step` tells the core something, `spawn` runs what may take its
    time, and `block_on` what the next effect has to wait for.
    """

    def __init__(
        self,
        disk: QuorumDisk,
        commits: QuorumCommits,
        clock: Clock,
        *,
        step: Callable[[Callable[[QuorumCore, int], list[Effect]]], None],
        spawn: Callable[[Work], None],
        block_on: Callable[[Work], None],
    ) -> None:
        self._disk = disk
        self._commits = commits
        self._clock = clock
        self._step = step
        self._spawn = spawn
        self._block_on = block_on

    def perform(self, effect: SnapshotEffect) -> None:
        match effect:
            case TakeSnapshot():
                self._spawn(self._take())
            case StartLogAt():
                self._disk.start_log_at(effect.snapshot, self._clock.wall_ms())
            case ReplyChunk():
                self._spawn(self._reply(effect))
            case ReceiveChunk():
                self._disk.receive(effect.snapshot, effect.position, effect.data)
            case CheckSnapshot():
                self._spawn(self._check(effect.snapshot))
            case InstallSnapshot():
                self._block_on(self._install(effect.snapshot))

    def _take(self) -> Work:
        """What is frozen is the state of this moment."""
        snapshot, timestamp, values = self._commits.applied, self._commits.timestamp, self._commits.freeze()

        async def take() -> None:
            taken = await self._disk.take(snapshot, values(), timestamp)
            wall_ms, segments = self._clock.wall_ms(), self._disk.log.closed_segments()
            self._step(lambda core, now_ms: core.on_snapshot_taken(taken, segments, now_ms, wall_ms))

        return take()

    async def _reply(self, effect: ReplyChunk) -> None:
        answer = effect.answer
        data = await self._disk.read_snapshot(answer.snapshot, answer.position, effect.max_bytes)
        if data is None:
            answer = replace(answer, error=ErrorCode.SNAPSHOT_NOT_FOUND)
        answer_caller(effect.token, replace(answer, data=data or b""))

    async def _check(self, snapshot: SnapshotId) -> None:
        found = await self._disk.check(snapshot)
        if found is None:
            return
        self._step(lambda core, now_ms: core.on_snapshot_checked(snapshot, found, now_ms))

    async def _install(self, snapshot: SnapshotId) -> None:
        found, state = await self._disk.install(snapshot)
        if not self._disk.leaving:
            self._commits.start_at(found.id, state, found.timestamp)
