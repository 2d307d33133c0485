"""One node of the metadata quorum: a voter, or an observer that only follows (A13; KIP-595, KIP-996, KIP-1166).

Rules of this module. The core in `core/quorum` decides; here its effects are carried out one after the other, disk
before messages: while `quorum-state` is being written, or a snapshot installed, all later effects wait. A flush of the
log is started and returns as an event. Nothing is swallowed: an unexpected exception stops the node and is raised by
`failed`. A disk without room is expected: the node takes no part, as if it had been killed, and restarts from the data
on disk when there is room again. Disk operations are in `disk.py`, the listener's side in `commits.py`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Final

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.chance import chance
from odradek_proto.transport.deadline import Deadline
from odradek_proto.transport.ports import Clock, Files, Handlers, Network, TimerHandle
from odradek_proto.v1 import admin_messages
from odradek_proto.values import replace

from odradek_broker.core.partition.messages import Transition, WriteEpochs
from odradek_broker.core.quorum.core import QuorumCore, QuorumStatus
from odradek_broker.core.quorum.leader import FetchProgress, Leader
from odradek_broker.core.quorum.messages import (
    NO_NODE,
    Answer,
    AnswerFetches,
    AppendFetched,
    AppendLeaderChange,
    AppendRecords,
    Dial,
    Effect,
    Fail,
    FlushLog,
    LeaderChanged,
    LeadershipBegan,
    LeadershipEnded,
    NotLeader,
    PersistState,
    QuorumHighWatermarkAdvanced,
    QuorumReply,
    QuorumState,
    ReplyRecords,
    Request,
    SendRequest,
    SnapshotId,
    TruncateLog,
    Unanswered,
)
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.quorum.commits import QuorumCommits
from odradek_broker.runtime.quorum.disk import QuorumDisk
from odradek_broker.runtime.quorum.opening import OpenedQuorumLog, open_quorum_log
from odradek_broker.runtime.quorum.peers import QuorumPeers, QuorumService, Token, answer_caller
from odradek_broker.runtime.quorum.settings import QuorumListener, QuorumSettings
from odradek_broker.runtime.quorum.snapshots import SnapshotWork
from odradek_broker.runtime.quorum.state_file import read_quorum_state, write_quorum_state
from odradek_broker.storage.directory import METADATA_PARTITION
from odradek_broker.storage.errors import ROOM_BYTES, is_no_room

__all__ = ["NotLeader", "QuorumFailed", "QuorumListener", "QuorumNode", "QuorumSettings", "QuorumStatus"]

END_EPOCH_TIMEOUT_MS = 500  # how long a leader that stops waits for the voters to hear of it
ROOM_CHECK_MS = 1_000  # how often a node without room on its disk looks for it

OnEvent = Callable[[str, Mapping[str, object]], None]

NOWHERE: Final = QuorumStatus(0, 0, 0, False, 0)


class QuorumFailed(Exception):
    """The node found a state that is impossible in a correct quorum, and has stopped to avoid further harm."""


class QuorumNode:
    """A voter or observer of the quorum, its log and its durable state, from `start` to `stop`.

    `failed`, made by `start`, ends with the error that stopped the node, if one does; it never has a result.
    """

    failed: asyncio.Future[None]

    def __init__(
        self,
        settings: QuorumSettings,
        *,
        clock: Clock,
        network: Network,
        files: Files,
        log_directory: str,
        listener: QuorumListener,
        on_event: OnEvent = lambda event, facts: None,
        counters: Counters | None = None,
    ) -> None:
        """`on_event` is told every transition, (event, facts with the rule among them), before it is acted on."""
        self._settings = settings
        self._config = settings.core()
        self._clock = clock
        self._files = files
        self._log_directory = log_directory
        self._listener = listener
        self._on_event = on_event
        self._counters = counters or Counters()
        self._core: QuorumCore | None = None
        self._disk: QuorumDisk | None = None
        self._snapshots: SnapshotWork | None = None
        self._commits = QuorumCommits(listener)
        self._outbox: deque[Effect] = deque()
        self._draining = False
        self._blocked = False  # the disk does something that the next effect has to wait for
        self._calls: dict[asyncio.Task[None], None] = {}  # given up at stop
        self._disk_work: dict[asyncio.Task[None], None] = {}  # finished before the log is closed
        self._deadline = Deadline(clock, self._on_time)
        self._no_room = False  # takes no part until there is
        self._room_timer: TimerHandle | None = None
        self._stopping = False
        self._end_epochs = asyncio.Event()  # a leader that stops has told the voters, as far as they can be told
        self._end_epochs.set()
        self._peers = QuorumPeers(settings, network)
        self._service = QuorumService(
            settings,
            is_ready=lambda: self._core is not None,
            submit=self._submit,
            forget=self._forget,
            known=lambda: (self.leader_id, self.epoch),
        )

    # --- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the log `__cluster_metadata-0` and its `quorum-state` in the log directory, and take part until `stop`.

        Raises storage's errors, `MetadataIncomplete`, `UnreadableQuorumState` and `OtherVoters`. Call it when the
        CONTROLLER listener listens, or before.
        """
        self.failed = asyncio.get_running_loop().create_future()
        await self._open()

    async def _open(self) -> None:
        """Begin with the state on disk. The listener keeps its state: all of it was committed."""
        files, directory, wall_ms = self._files, self._log_directory, self._clock.wall_ms()

        def load(snapshot: SnapshotId, records: Iterator[bytes]) -> object:
            return self._listener.load(snapshot.end_offset, snapshot.epoch, records)

        def open_all() -> tuple[OpenedQuorumLog, QuorumState]:
            opened = open_quorum_log(files, directory, load, wall_ms, self._settings.log())
            state = read_quorum_state(files, f"{directory}/{METADATA_PARTITION}", self._config.voters)
            if opened.lost:
                state = replace(state, catching_up=True)
                write_quorum_state(files, f"{directory}/{METADATA_PARTITION}", state, self._config.voters)
            opened.take_over()
            return opened, state

        opened, state = await self._files.offload(open_all)
        self._disk = QuorumDisk(
            files,
            directory,
            opened,
            load=load,
            voters=self._config.voters,
            spawn=lambda work: self._spawn(work, self._disk_work),
            on_flushed=self._flushed,
            counters=self._counters,
        )
        self._snapshots = SnapshotWork(
            self._disk,
            self._commits,
            self._clock,
            step=self._step,
            spawn=lambda work: self._spawn(work, self._disk_work),
            block_on=self._block_on,
        )
        self._note_damage(opened)
        if self._stopping:
            return
        if opened.kept and opened.kept[-1].id.end_offset > self._commits.applied.end_offset:
            newest = opened.kept[-1]
            self._commits.start_at(newest.id, opened.state, newest.timestamp)
        self._blocked = False
        self._core = QuorumCore(self._config, opened.log.state, state, self._clock.rng, opened.kept)
        self._step(lambda core, now_ms: core.start(now_ms))

    def _note_damage(self, opened: OpenedQuorumLog) -> None:
        """Say what could not be read, and was cut off or set aside."""
        recovery = opened.log.recovery
        self._counters.recovery_dropped_bytes += recovery.cut_bytes
        if recovery.cut_offset is not None:
            cut = {"leo": recovery.cut_offset, "bytes": recovery.cut_bytes, "reason": recovery.reason}
            self._event("log_cut_in_recovery", "R-234", cut)
        if opened.lost:
            facts = {"leo": opened.log.state.log_end_offset, "promised": opened.promised}
            self._event("metadata_log_lacks_records", "R-217", facts)
        for snapshot, reason in opened.damaged:
            self._event("snapshot_set_aside", "R-200", {"end_offset": snapshot.end_offset, "reason": reason})

    async def stop(self, graceful: bool = True) -> None:
        """Leave, and close the log. A graceful leader first resigns and names its successors to the voters (R-212).

        Otherwise nothing is written any more.
        """
        if graceful and self._core is not None and self.is_leader:
            self._step(lambda core, now_ms: core.resign(now_ms))
            self._end_epochs.clear()
            self._look_for_end_epochs()
            try:
                async with asyncio.timeout(END_EPOCH_TIMEOUT_MS / 1000):
                    await self._end_epochs.wait()
            except TimeoutError:
                pass  # who has not heard it by now finds out by itself
        self._stopping = True
        self._leave()
        if self._room_timer is not None:
            self._room_timer.cancel()
        if self._calls or self._disk_work:
            await asyncio.wait((*self._calls, *self._disk_work))
        if self._disk is not None:
            await self._close(sound=graceful and not self.failed.done() and not self._no_room)

    async def _close(self, *, sound: bool) -> None:
        disk, self._disk = self._disk, None
        if disk is not None:
            await disk.close(sound=sound)

    def _leave(self) -> None:
        """Decide nothing any more; waiting requests are answered."""
        self._core = None
        self._outbox.clear()
        for call in tuple(self._calls):
            call.cancel()
        self._deadline.cancel()
        if self._disk is not None:
            self._disk.leaving = True
        self._commits.ended()
        self._service.close()
        self._end_epochs.set()

    def _fail(self, error: BaseException) -> None:
        if is_no_room(error):
            self._wait_for_room(error)
            return
        if not self.failed.done():
            self.failed.set_exception(error)
        self._leave()

    # --- without room on the disk ---------------------------------------------------------------------------------

    def _wait_for_room(self, error: BaseException) -> None:
        """Send and promise nothing that is not on disk: the remaining effects are dropped, as by a kill (R-86)."""
        if not self._no_room:
            self._no_room = True
            self._event("disk_full", "R-86", {"reason": str(error)})
        if self._core is not None:
            epoch = self.epoch
            self._leave()
            self._listener.on_leader_changed(NO_NODE, epoch)
        self._look_for_room_later()

    def _look_for_room_later(self) -> None:
        if self._room_timer is None and not self._stopping and not self.failed.done():
            self._room_timer = self._clock.call_later(ROOM_CHECK_MS, self._look_for_room)

    def _look_for_room(self) -> None:
        self._room_timer = None
        self._spawn(self._take_part_again(), self._disk_work)

    async def _take_part_again(self) -> None:
        """Once there is room and all that went on before has ended."""
        before = [task for task in (*self._calls, *self._disk_work) if task is not asyncio.current_task()]
        if before:
            await asyncio.wait(before)
        if await self._files.offload(lambda: self._files.free_bytes(self._log_directory)) < ROOM_BYTES:
            self._look_for_room_later()
            return
        await self._close(sound=False)
        if self._stopping or self.failed.done():
            return
        await self._open()
        if self._core is not None:
            self._no_room = False
            self._event("disk_has_room", "R-86", {"reason": "there is room again"})

    # --- what is known --------------------------------------------------------------------------------------------

    @property
    def leader_id(self) -> int:
        """The leader that this node knows, -1 for none."""
        return NO_NODE if self._core is None else self._core.leader_id

    @property
    def no_room(self) -> bool:
        """Whether this node takes no part, since its disk has no room for the required state."""
        return self._no_room

    def silent_voters(self) -> dict[int, str]:
        """The voters that did not respond to this node's last request, and their addresses."""
        return self._peers.silent()

    @property
    def epoch(self) -> int:
        return 0 if self._core is None else self._core.state.epoch

    @property
    def state_name(self) -> str:
        """This node's state in the quorum, in Kafka's terms: leader, follower, candidate, unattached, ..."""
        return "resigned" if self._core is None else type(self._core.role).__name__.lower()

    @property
    def is_leader(self) -> bool:
        """Whether this node was elected; `on_leader` comes as soon as a record of its own epoch is committed."""
        return self._core is not None and isinstance(self._core.role, Leader)

    @property
    def high_watermark(self) -> int:
        """Exclusive. In a new process it is 0 until the leader has sent more."""
        return 0 if self._core is None else self._core.log.high_watermark

    @property
    def log_end_offset(self) -> int:
        return 0 if self._core is None else self._core.log.log_end_offset

    @property
    def quorum_status(self) -> QuorumStatus:
        """All of it in one call, for frequent callers."""
        return NOWHERE if self._core is None else self._core.quorum_status()

    @property
    def flushed_offset(self) -> int:
        """Up to where this node's own log is on its disk: so far its word counts."""
        return 0 if self._core is None else self._core.log.flushed_offset

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest on this node's disk."""
        return None if self._core is None else self._core.latest_snapshot

    @property
    def log_start_offset(self) -> int:
        return 0 if self._core is None else self._core.log.log_start_offset

    def describe(self) -> admin_messages.DescribeQuorumResponse:
        """Voters and observers as the leader sees them; NOT_LEADER_OR_FOLLOWER with the known leader elsewhere."""
        return describe_quorum(self._core, self._settings.node_id, self._clock.now_ms())

    # --- appending ------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[bytes], *, epoch: int | None = None) -> int:
        """Append the records as one atomic batch; returns the offset of the first. Written at once, flushed soon.

        With `epoch`, only as the leader of that epoch: a decision based on an older state must not be written. Raises
        `NotLeader`, and `ValueError` for no records.
        """
        core = self._core
        if core is None:
            raise NotLeader(NO_NODE, -1)
        base_offset, effects = core.append(records, self._clock.now_ms(), epoch)
        self._carry_out(effects)
        return base_offset

    # --- steps and effects ----------------------------------------------------------------------------------------

    def _step(self, step: Callable[[QuorumCore, int], list[Effect]]) -> None:
        """Pass an event to the core, and carry out its effects."""
        core = self._core
        if core is None:
            return
        try:
            effects = step(core, self._clock.now_ms())
        except Exception as error:
            self._fail(error)
            return
        self._carry_out(effects)

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        """Carry out effects in order, after those that still wait. Safe to call from inside an effect."""
        self._outbox.extend(effects)
        if self._draining:
            return
        self._draining = True
        try:
            while self._outbox and not self._blocked and self._core is not None:
                self._perform(self._outbox.popleft())
        except Exception as error:
            self._fail(error)
        finally:
            self._draining = False
        self._look_for_end_epochs()
        self._deadline.arm(None if self._core is None else self._core.next_deadline_ms())

    def _perform(self, effect: Effect) -> None:
        disk = self._disk
        assert disk is not None
        match effect:
            case PersistState():
                self._block_on(disk.persist(effect.state))
            case AppendLeaderChange() | AppendRecords() | AppendFetched() | TruncateLog() | WriteEpochs():
                assert not (disk.flushing and isinstance(effect, TruncateLog)), "a log is not cut while it is flushed"
                disk.log.carry_out(effect, self._settings.node_id, self._clock.wall_ms())
            case FlushLog():
                disk.flush()
            case SendRequest():
                self._spawn(self._call(effect), self._calls)
            case Dial():
                self._spawn(self._dial(effect.peer_id), self._calls)
            case QuorumReply() | ReplyRecords():
                self._reply(effect, disk)
            case AnswerFetches():
                asyncio.get_running_loop().call_soon(self._step, QuorumCore.answer_fetches)
            case QuorumHighWatermarkAdvanced():
                size = self._commits.deliver(disk.log, effect.new)
                self._step(lambda core, now_ms: core.on_applied(size, now_ms))
            case LeadershipBegan():
                self._commits.began(effect.epoch)
            case LeadershipEnded():
                self._commits.ended()
            case LeaderChanged():
                self._listener.on_leader_changed(effect.leader_id, effect.epoch)
            case Transition():
                self._event(effect.event, effect.rule, effect.facts)
            case Fail():
                raise QuorumFailed(f"{METADATA_PARTITION}, node {self._settings.node_id}: {effect.reason}")
            case _:
                assert self._snapshots is not None
                self._snapshots.perform(effect)

    def _event(self, event: str, rule: str, facts: Mapping[str, object]) -> None:
        self._on_event(event, {"rule": rule, **facts})

    def _reply(self, effect: QuorumReply | ReplyRecords, disk: QuorumDisk) -> None:
        answer: Answer = effect.answer
        if isinstance(effect, ReplyRecords):
            batches = disk.log.read(effect.fetch_offset, effect.limit, effect.max_bytes)
            answer = replace(effect.answer, batches=batches)
        answer_caller(effect.token, answer)

    # --- time -----------------------------------------------------------------------------------------------------

    def _on_time(self) -> None:
        if self.is_leader and chance("quorum-leader-resigns", 0.01):
            self._step(lambda core, now_ms: core.resign(now_ms))
        self._step(lambda core, now_ms: core.on_time(now_ms))

    def _look_for_end_epochs(self) -> None:
        if self._end_epochs.is_set():
            return
        if self._core is not None and not self._core.end_epochs_pending and not self._outbox:
            self._end_epochs.set()

    # --- disk -----------------------------------------------------------------------------------------------------

    def _block_on(self, work: Coroutine[object, object, None]) -> None:
        """Do something on the disk; the effects behind it wait."""
        self._blocked = True
        self._spawn(self._unblock_after(work), self._disk_work)

    async def _unblock_after(self, work: Coroutine[object, object, None]) -> None:
        await work
        self._blocked = False
        self._carry_out(())

    def _flushed(self, offset: int) -> None:
        self._step(lambda core, now_ms: core.on_flushed(offset, now_ms))

    # --- network --------------------------------------------------------------------------------------------------

    def handlers(self) -> Handlers:
        """The service `odradek.v1.Quorum`, for the CONTROLLER listener; BROKER_NOT_AVAILABLE before `start`."""
        return self._service.handlers()

    def _submit(self, request: Request, token: Token) -> None:
        self._step(lambda core, now_ms: core.on_request(request, token, now_ms))

    def _forget(self, token: Token) -> None:
        if self._core is not None:
            self._core.forget(token)

    async def _call(self, send: SendRequest) -> None:
        found = await self._peers.ask(send)
        if isinstance(found, Unanswered):
            self._step(lambda core, now_ms: core.on_unanswered(send, found, now_ms))
        else:
            self._step(lambda core, now_ms: core.on_answer(send, found, now_ms))

    async def _dial(self, peer_id: int) -> None:
        gone = await self._peers.is_gone(peer_id)
        self._step(lambda core, now_ms: core.on_dialled(peer_id, gone, now_ms))

    def _spawn(self, work: Coroutine[object, object, None], place: dict[asyncio.Task[None], None]) -> None:
        """Run something beside; `place` keeps it alive until it is done."""
        task = asyncio.get_running_loop().create_task(work)
        place[task] = None
        task.add_done_callback(lambda task: self._done(task, place))

    def _done(self, task: asyncio.Task[None], place: dict[asyncio.Task[None], None]) -> None:
        del place[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)


# --- The quorum as one of its nodes sees it, in the form of `DescribeQuorum` -----------------------------------------


def describe_quorum(core: QuorumCore | None, node_id: int, now_ms: int) -> admin_messages.DescribeQuorumResponse:
    """Voters and observers as the leader sees them; NOT_LEADER_OR_FOLLOWER with the known leader elsewhere.

    `core` is None when the node does not run.
    """
    if core is None:
        return admin_messages.DescribeQuorumResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id=NO_NODE)
    role = core.role
    leads = isinstance(role, Leader)
    answer = admin_messages.DescribeQuorumResponse(
        error_code=ErrorCode.NONE if leads else ErrorCode.NOT_LEADER_OR_FOLLOWER,
        leader_id=core.leader_id,
        leader_epoch=core.state.epoch,
        high_watermark=core.log.high_watermark,
    )
    if not isinstance(role, Leader):
        return answer
    itself = admin_messages.QuorumReplica(node_id=node_id, log_end_offset=core.log.log_end_offset)
    return replace(
        answer,
        log_start_offset=core.log.log_start_offset,
        snapshot_end_offset=None if core.latest_snapshot is None else core.latest_snapshot.end_offset,
        voters=[itself, *_replicas(role.voters, now_ms)],
        observers=_replicas(role.observers, now_ms),
    )


def _replicas(positions: Mapping[int, FetchProgress], now_ms: int) -> list[admin_messages.QuorumReplica]:
    return [
        admin_messages.QuorumReplica(
            node_id=replica_id,
            log_end_offset=position.end_offset,
            last_fetch_ms=-1 if position.last_fetch_ms is None else now_ms - position.last_fetch_ms,
            last_caught_up_ms=-1 if position.last_caught_up_ms is None else now_ms - position.last_caught_up_ms,
        )
        for replica_id, position in sorted(positions.items())
    ]
