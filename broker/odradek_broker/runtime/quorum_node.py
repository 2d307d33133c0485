"""One node of the metadata quorum: a voter, or an observer that only follows (A13; KIP-595, KIP-996, KIP-1166).

Rules of this module. The core in `core/quorum` decides; here its effects are carried out one after the other, disk
before words: while `quorum-state` is being written, everything behind it waits. A flush of the log is started and comes
back as an event, and all appends that came meanwhile share the next one. Nothing is swallowed: an exception that nobody
expected stops the node and comes out of `failed`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import Clock, Files, Handlers, Network, TimerHandle
from odradek_proto.v1 import admin_pb2
from odradek_proto.values import replace

from odradek_broker.core.partition.messages import Transition, WriteEpochs
from odradek_broker.core.quorum.core import QuorumCore
from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.messages import (
    NO_NODE,
    Answer,
    AppendFetched,
    AppendLeaderChange,
    AppendRecords,
    Dial,
    Effect,
    Fail,
    FlushLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    LeadershipBegan,
    LeadershipEnded,
    NotLeader,
    PersistState,
    QuorumState,
    Reply,
    ReplyRecords,
    Request,
    Send,
    TruncateLog,
    Unanswered,
)
from odradek_broker.runtime.counters import Counters, measured
from odradek_broker.runtime.quorum_log import METADATA_PARTITION, QuorumLog
from odradek_broker.runtime.quorum_peers import QuorumPeers, QuorumService, Token
from odradek_broker.runtime.quorum_settings import QuorumListener, QuorumSettings
from odradek_broker.runtime.quorum_state_file import read_quorum_state, write_quorum_state

__all__ = ["NotLeader", "QuorumFailed", "QuorumListener", "QuorumNode", "QuorumSettings"]

GOODBYE_TIMEOUT_MS = 500  # how long a leader that stops waits for the voters to hear of it

OnEvent = Callable[[str, Mapping[str, object]], None]


class QuorumFailed(Exception):
    """The node found what cannot be in a sound quorum, and has stopped instead of making it worse."""


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
        on_event: OnEvent | None = None,
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
        self._log: QuorumLog | None = None
        self._outbox: deque[Effect] = deque()
        self._draining = False
        self._persisting = False
        self._flushing = False
        self._flush_again = False
        self._delivered = 0  # everything below has been handed to `on_commit`
        self._announced_epoch: int | None = None  # of the leadership that the listener knows of
        self._commit_waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._calls: dict[asyncio.Task[None], None] = {}  # given up at stop
        self._disk_work: dict[asyncio.Task[None], None] = {}  # finished before the log is closed
        self._timer: TimerHandle | None = None
        self._timer_at_ms = 0
        self._goodbyes = asyncio.Event()
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

        Raises storage's errors and `UnreadableQuorumState`. Call it when the CONTROLLER listener listens, or before.
        """
        self.failed = asyncio.get_running_loop().create_future()
        files, directory, wall_ms = self._files, self._log_directory, self._clock.wall_ms()

        def open_all() -> tuple[QuorumLog, QuorumState]:
            log = QuorumLog.open(files, directory, wall_ms)
            return log, read_quorum_state(files, f"{directory}/{METADATA_PARTITION}")

        log, state = await self._files.offload(open_all)
        self._log = log
        self._counters.recovery_dropped_bytes += log.dropped_bytes
        self._delivered = log.state.log_start_offset
        self._core = QuorumCore(self._config, log.state, state, self._clock.rng)
        self._step(lambda core, now_ms: core.start(now_ms))

    async def stop(self, graceful: bool = True) -> None:
        """Leave, and close the log. A graceful leader first resigns and tells the voters who should follow (R-212)."""
        if graceful and self._core is not None and self.is_leader:
            self._step(lambda core, now_ms: core.resign(now_ms))
            self._goodbyes.clear()
            self._look_for_goodbyes()
            try:
                async with asyncio.timeout(GOODBYE_TIMEOUT_MS / 1000):
                    await self._goodbyes.wait()
            except TimeoutError:
                pass  # who has not heard it by now finds out by itself
        self._leave()
        for call in tuple(self._calls):
            call.cancel()
        if self._calls or self._disk_work:
            await asyncio.wait((*self._calls, *self._disk_work))
        log, self._log = self._log, None
        if log is not None:
            await self._files.offload(log.close)

    def _leave(self) -> None:
        """Decide nothing any more; whoever waits is told."""
        core, self._core = self._core, None
        self._outbox.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        epoch = -1 if core is None else core.state.epoch
        self._end_leadership(NotLeader(NO_NODE, epoch))
        self._service.close()
        self._goodbyes.set()

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done():
            self.failed.set_exception(error)
        self._leave()

    # --- what is known --------------------------------------------------------------------------------------------

    @property
    def leader_id(self) -> int:
        """The leader that this node knows, -1 for none."""
        return NO_NODE if self._core is None else self._core.leader_id

    @property
    def epoch(self) -> int:
        return 0 if self._core is None else self._core.state.epoch

    @property
    def state_name(self) -> str:
        """What this node is in the quorum, in Kafka's words: leader, follower, candidate, unattached, ..."""
        return "resigned" if self._core is None else type(self._core.role).__name__.lower()

    @property
    def is_leader(self) -> bool:
        """Whether this node was elected; `on_leader` comes as soon as a record of its own epoch is committed."""
        return self._core is not None and isinstance(self._core.role, Leader)

    @property
    def high_watermark(self) -> int:
        """Exclusive. In a new process it is 0 until the leader has said more."""
        return 0 if self._core is None else self._core.log.high_watermark

    @property
    def log_end_offset(self) -> int:
        return 0 if self._core is None else self._core.log.log_end_offset

    def describe(self) -> admin_pb2.DescribeQuorumResponse:
        """Voters and observers as the leader sees them; NOT_LEADER_OR_FOLLOWER with the known leader elsewhere."""
        core, now_ms = self._core, self._clock.now_ms()
        answer = admin_pb2.DescribeQuorumResponse(
            leader_id=self.leader_id, leader_epoch=self.epoch, high_watermark=self.high_watermark
        )
        if core is None or not isinstance(core.role, Leader):
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return answer
        answer.voters.add(node_id=self._settings.node_id, log_end_offset=core.log.log_end_offset)
        for replicas, positions in ((answer.voters, core.role.voters), (answer.observers, core.role.observers)):
            for node_id, position in sorted(positions.items()):
                fetched, caught_up = position.last_fetch_ms, position.last_caught_up_ms
                replicas.add(
                    node_id=node_id,
                    log_end_offset=position.end_offset,
                    last_fetch_ms=-1 if fetched is None else now_ms - fetched,
                    last_caught_up_ms=-1 if caught_up is None else now_ms - caught_up,
                )
        return answer

    # --- appending ------------------------------------------------------------------------------------------------

    def append(self, records: Sequence[bytes], *, epoch: int | None = None) -> int:
        """Append the records as one atomic batch; returns the offset of the first. Written at once, flushed soon.

        With `epoch`, only as the leader of that epoch: whoever decided on an older state must not write what follows
        from it. Raises `NotLeader`, and `ValueError` for no records.
        """
        core = self._core
        if core is None:
            raise NotLeader(NO_NODE, -1)
        base_offset, effects = core.append(records, self._clock.now_ms(), epoch)
        self._carry_out(effects)
        return base_offset

    async def wait_committed(self, offset: int) -> None:
        """Wait until the record at `offset` lies below the high watermark.

        For the leader that appended it. Raises `NotLeader` when the leadership ends before, or has ended already.
        """
        if not self.is_leader:
            raise NotLeader(self.leader_id, self.epoch)
        if self.high_watermark > offset:
            return
        committed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commit_waiters.append((offset, committed))
        await committed

    # --- steps and effects ----------------------------------------------------------------------------------------

    def _step(self, step: Callable[[QuorumCore, int], list[Effect]]) -> None:
        """Tell the core that something happened, and do what it says."""
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
            while self._outbox and not self._persisting and self._core is not None:
                self._perform(self._outbox.popleft())
        except Exception as error:
            self._fail(error)
        finally:
            self._draining = False
        self._look_for_goodbyes()
        self._arm()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case PersistState():
                self._persisting = True
                self._spawn(self._persist(effect.state), self._disk_work)
            case AppendLeaderChange() | AppendRecords() | AppendFetched() | TruncateLog() | WriteEpochs():
                assert self._log is not None
                assert not (self._flushing and isinstance(effect, TruncateLog)), "a log is not cut while it is flushed"
                self._log.carry_out(effect, self._settings.node_id, self._clock.wall_ms())
            case FlushLog():
                self._flush()
            case Send():
                self._spawn(self._call(effect), self._calls)
            case Dial():
                self._spawn(self._dial(effect.peer_id), self._calls)
            case Reply() | ReplyRecords():
                self._reply(effect)
            case HighWatermarkAdvanced():
                self._deliver(effect.new)
            case LeadershipBegan():
                self._announced_epoch = effect.epoch
                self._listener.on_leader(effect.epoch)
            case LeadershipEnded():
                self._end_leadership(NotLeader(self.leader_id, self.epoch))
            case LeaderChanged():
                self._listener.on_leader_changed(effect.leader_id, effect.epoch)
            case Transition():
                if self._on_event is not None:
                    self._on_event(effect.event, {"rule": effect.rule, **effect.facts})
            case Fail():
                raise QuorumFailed(f"{METADATA_PARTITION}, node {self._settings.node_id}: {effect.reason}")

    def _deliver(self, high_watermark: int) -> None:
        assert self._log is not None
        for batch in self._log.committed(self._delivered, high_watermark):
            self._delivered = batch.next_offset
            if batch.records:
                self._listener.on_commit(batch.base_offset, batch.epoch, batch.records)
        waiting, self._commit_waiters = self._commit_waiters, []
        for offset, committed in waiting:
            if offset >= high_watermark:
                self._commit_waiters.append((offset, committed))
            elif not committed.done():
                committed.set_result(None)

    def _end_leadership(self, error: NotLeader) -> None:
        waiting, self._commit_waiters = self._commit_waiters, []
        for _, committed in waiting:
            if not committed.done():
                committed.set_exception(error)
        epoch, self._announced_epoch = self._announced_epoch, None
        if epoch is not None:
            self._listener.on_resigned(epoch)

    def _reply(self, effect: Reply | ReplyRecords) -> None:
        token = effect.token
        assert isinstance(token, asyncio.Future)
        if token.done():
            return  # the caller has hung up
        answer: Answer = effect.answer
        if isinstance(effect, ReplyRecords):
            assert self._log is not None
            batches = self._log.read(effect.fetch_offset, effect.limit, effect.max_bytes)
            answer = replace(effect.answer, batches=batches)
        token.set_result(answer)

    # --- time -----------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """See that the core is stepped when its next deadline comes. A timer that fires too early does no harm."""
        deadline_ms = None if self._core is None else self._core.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_at_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        self._timer = self._clock.call_later(max(0, deadline_ms - self._clock.now_ms()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self._step(lambda core, now_ms: core.on_time(now_ms))

    def _look_for_goodbyes(self) -> None:
        if self._core is not None and not self._core.goodbyes_pending and not self._outbox:
            self._goodbyes.set()

    # --- disk -----------------------------------------------------------------------------------------------------

    async def _persist(self, state: QuorumState) -> None:
        files, directory = self._files, f"{self._log_directory}/{METADATA_PARTITION}"
        voters = self._config.voters
        await files.offload(lambda: write_quorum_state(files, directory, state, voters))
        self._persisting = False
        self._carry_out(())

    def _flush(self) -> None:
        if self._flushing:
            self._flush_again = True
            return
        self._flushing = True
        self._spawn(self._run_flush(), self._disk_work)

    async def _run_flush(self) -> None:
        assert self._log is not None
        counters = self._counters
        flush = measured(self._log.flush, counters.metadata_fsyncs, counters.timer)
        offset = await self._files.offload(flush)
        again, self._flush_again = self._flush_again, False
        self._flushing = False
        self._step(lambda core, now_ms: core.on_flushed(offset, now_ms))
        if again and not self._flushing and self._core is not None:
            self._flush()

    # --- network --------------------------------------------------------------------------------------------------

    def handlers(self) -> Handlers:
        """The service `odradek.v1.Quorum`, for the CONTROLLER listener; before `start` it says BROKER_NOT_AVAILABLE."""
        return self._service.handlers()

    def _submit(self, request: Request, token: Token) -> None:
        self._step(lambda core, now_ms: core.on_request(request, token, now_ms))

    def _forget(self, token: Token) -> None:
        if self._core is not None:
            self._core.forget(token)

    async def _call(self, send: Send) -> None:
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
