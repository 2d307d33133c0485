"""A consumer's part in its group: heartbeats, what is committed, and the steps from one assignment to the next.

Rules of this module. What is decided is decided by `odradek.core.membership`. A step begins only while the application
asks for records, for then it is done with those that it had; while a step lasts nothing is handed out. So what is
committed without being asked for is what the application has done with: a record that it still has in its hands is not
(unlike Kafka's consumer, whose poll() may be followed by a crash that skips what it returned).
"""

from __future__ import annotations

import asyncio
import logging
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from inspect import isawaitable

from odradek_proto.errors import ErrorCode
from odradek_proto.records import Record
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.deadline import Deadline
from odradek_proto.v1 import groups_messages as wire
from odradek_proto.values import Value

from odradek.cluster.cluster import ClusterClient
from odradek.cluster.coordinator import Coordinator, in_portions
from odradek.cluster.tasks import Failed, start_task, was_cancelled
from odradek.consuming.engine import FetchEngine
from odradek.core.fetch_state import FetchState
from odradek.core.membership import (
    FENCED,
    ConsumerMembership,
    MemberSettings,
    MembershipState,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
    Step,
)
from odradek.core.outages import PATIENCE_MS
from odradek.shared.config import ConsumerConfig
from odradek.shared.errors import CommitFailed, OdradekError, broker_error
from odradek.shared.results import OffsetAndMetadata

logger = logging.getLogger("odradek")

MEMBER_ID_BYTES = 16
CLOSE_MS = 5_000  # for the last commit; a coordinator that is gone for longer keeps nobody from leaving
OVER = (*FENCED, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.ILLEGAL_GENERATION)

Callback = Callable[[list[TopicPartition]], Awaitable[None] | None]
Commits = Mapping[TopicPartition, OffsetAndMetadata]
Committed = dict[TopicPartition, OffsetAndMetadata | OdradekError | None]


class Callbacks(Value, frozen=True):
    """What the application wants to be told; without `on_lost` it hears of losses by `on_revoked`."""

    on_assigned: Callback | None = None
    on_revoked: Callback | None = None
    on_lost: Callback | None = None


class GroupMember:
    """Of one consumer. `assign` changes what it reads."""

    def __init__(
        self, config: ConsumerConfig, cluster: ClusterClient, assign: Callable[[list[TopicPartition]], None]
    ) -> None:
        self._config = config
        self._cluster = cluster
        self._clock = cluster.clock
        self._assign = assign
        self._coordinator = Coordinator(cluster, config.group_id)
        settings = MemberSettings(
            group_id=config.group_id,
            client_id=config.client_id,
            instance_id=config.group_instance_id,
            assignor=config.group_remote_assignor,
            max_poll_interval_ms=config.max_poll_interval_ms,
        )
        self._membership = ConsumerMembership(settings, self._new_id)
        self._callbacks = Callbacks()
        self._in_hand: dict[TopicPartition, int] = {}  # the first offset that the application may still work on
        self._committed: dict[TopicPartition, int] = {}
        self._error: Exception | None = None  # raised by a callback
        self._settling: asyncio.Task[None] | None = None
        self._has_step = False
        self._wakeup = asyncio.Event()
        self._idle = asyncio.Event()  # it is not in the group
        self._deadline = Deadline(cluster.clock, self._wakeup.set)
        self._beating: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None

    def _new_id(self) -> str:
        """A UUID as Kafka writes it: 22 characters."""
        bits = self._clock.rng.getrandbits(8 * MEMBER_ID_BYTES)
        return urlsafe_b64encode(bits.to_bytes(MEMBER_ID_BYTES, "big")).decode().rstrip("=")

    # --- Life -------------------------------------------------------------------------------------------------------

    def start(self, engine: FetchEngine, failed: Failed) -> None:
        self._engine = engine
        self._failed = failed
        self._beating = start_task(self._beat(), failed)
        if self._config.enable_auto_commit:
            self._committing = start_task(self._commit_now_and_then(), failed)

    async def end(self, *, cleanly: bool) -> None:
        """Commit, give everything up, leave. `cleanly`: the application has done with all that it got."""
        if cleanly:
            self._in_hand.clear()
        has_left = False
        try:
            has_left = await self._leave()
        finally:
            if not has_left:
                logger.warning(
                    "group %r: left without telling its coordinator; what it read waits until its session ends",
                    self._config.group_id,
                )
            tasks = [task for task in (self._beating, self._committing, self._settling) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            self._deadline.cancel()
        if self._error is not None:
            raise self._error

    async def _leave(self) -> bool:
        """Whether the coordinator knows of it."""
        await self._cluster.begin_anew_if_cancelled()
        await was_cancelled(self._settling)
        if await was_cancelled(self._beating):
            self._beating = start_task(self._beat(), self._failed)
        if self._config.enable_auto_commit and not self._membership.is_subscribed:
            await self._try_to_commit(self._settled(), CLOSE_MS)
        self.unsubscribe()
        if self._settling is not None:
            await asyncio.wait((self._settling,))
        try:
            async with asyncio.timeout(CLOSE_MS / 1000):
                return await self._idle.wait()
        except TimeoutError:
            return False

    # --- What is read -------------------------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        return self._membership.is_subscribed

    @property
    def is_settling(self) -> bool:
        """Nothing is handed out now."""
        return self._has_step or self._settling is not None

    def has_assignment(self) -> bool:
        """Whether it reads what the coordinator said."""
        self.on_ask()
        return not self.is_subscribed or (self._membership.is_settled and not self.is_settling)

    def subscribe(self, topics: Collection[str], pattern: str, callbacks: Callbacks) -> None:
        self._callbacks = callbacks
        self._cluster.follow(topics)
        self._engine.watch_topics(topics)
        self._membership.subscribe(topics, pattern, self._clock.now_ms())
        self._look()

    def unsubscribe(self) -> None:
        self._engine.watch_topics(())
        self._membership.unsubscribe(self._clock.now_ms())
        self._look()
        self._settle()

    def on_ask(self) -> None:
        """The application wants records. Raises what a callback raised, or what ended the membership."""
        self._in_hand.clear()
        if self._membership.on_ask():
            self._wakeup.set()
        if self._has_step:
            self._settle()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._membership.error is not None and not self.is_settling:
            raise self._membership.error

    def on_records(self, state: FetchState, rows: list[Record]) -> None:
        """The application gets these."""
        self._in_hand.setdefault(state.name, rows[0][0])
        self._membership.on_records(self._clock.now_ms())
        self._deadline.arm(self._membership.due_ms())

    def on_seek(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._in_hand.pop(TopicPartition(*partition), None)

    def _look(self) -> None:
        """Something happened to the membership."""
        self._has_step = self._membership.has_step
        self._wakeup.set()
        if self._membership.state is MembershipState.IDLE:
            self._idle.set()
        else:
            self._idle.clear()
        if self._has_step or self._membership.error is not None:
            self._engine.look_again()

    def _settle(self) -> None:
        if self._settling is None and self._membership.has_step:
            self._settling = start_task(self._carry_out(), self._failed)

    async def _carry_out(self) -> None:
        try:
            while (step := self._membership.next_step()) is not None:
                try:
                    await self._do(step)
                except Exception as error:  # of a callback: the application hears of it, and the group goes on
                    self._error = self._error or error
                finally:
                    self._membership.done(step, self._clock.now_ms())
        finally:
            self._settling = None
            self._look()
            self._engine.look_again()

    async def _do(self, step: Step) -> None:
        callbacks, partitions = self._callbacks, [*step.partitions]
        logger.info(
            "group %r: %s %s", self._config.group_id, type(step).__name__.lower(), ", ".join(map(str, partitions))
        )
        read = [state.name for state in self._engine.states()]
        left = [each for each in read if each not in partitions]
        match step:
            case PartitionsAssigned():
                for each in partitions:
                    self._committed.pop(each, None)
                self._assign([*left, *partitions])
                await _tell(callbacks.on_assigned, partitions)
            case PartitionsRevoked():
                try:
                    if self._config.enable_auto_commit:
                        settled = {each: found for each, found in self._settled().items() if each in partitions}
                        await self._try_to_commit(settled, CLOSE_MS)
                    await _tell(callbacks.on_revoked, partitions)
                finally:
                    self._assign(left)
            case PartitionsLost():
                self._assign(left)
                await _tell(callbacks.on_lost or callbacks.on_revoked, partitions)

    # --- Heartbeats -------------------------------------------------------------------------------------------------

    async def _beat(self) -> None:
        membership, failures = self._membership, 0
        since_ms: int | None = None  # since when nobody answers
        told = False
        while True:
            self._wakeup.clear()
            request = membership.heartbeat(self._clock.now_ms())
            if request is None:
                self._deadline.arm(membership.due_ms())
                await self._wakeup.wait()
                continue
            try:
                answer = await self._coordinator.call(
                    "ConsumerGroupHeartbeat", request, wire.ConsumerGroupHeartbeatResponse
                )
            except OdradekError as error:
                if not error.retriable:
                    membership.fail(error, self._clock.now_ms())
                else:
                    failures += 1
                    since_ms = self._clock.now_ms() if since_ms is None else since_ms
                    if not told and self._clock.now_ms() - since_ms >= PATIENCE_MS:
                        told = True
                        logger.warning("group %r: no coordinator answers: %s", self._config.group_id, error.message)
                    membership.on_failed(self._clock.now_ms() + self._cluster.search_pause(failures))
                    logger.debug("group %r: heartbeat: %s", self._config.group_id, error.message)
            except asyncio.CancelledError:
                membership.on_failed(self._clock.now_ms())
                raise
            else:
                if told:
                    logger.info("group %r: its coordinator answers again", self._config.group_id)
                failures, since_ms, told = 0, None, False
                membership.on_answer(answer, self._clock.now_ms())
            self._look()

    # --- Offsets ----------------------------------------------------------------------------------------------------

    def _settled(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Where the application has done with everything before, if that is not committed yet."""
        found = {name: OffsetAndMetadata(offset) for name, offset in self._in_hand.items()}
        found = {**self.positions(), **found}
        return {name: each for name, each in found.items() if self._committed.get(name) != each.offset}

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Behind everything that was handed out."""
        return {
            state.name: OffsetAndMetadata(state.position.offset, "", state.position.epoch)
            for state in self._engine.states()
            if state.position.offset >= 0
        }

    async def _commit_now_and_then(self) -> None:
        while True:
            await self._clock.sleep(self._config.auto_commit_interval_ms)
            if self._settling is None:
                await self._try_to_commit(self._settled(), self._config.auto_commit_interval_ms)

    async def _try_to_commit(self, commits: Commits, timeout_ms: int) -> None:
        try:
            await self.commit(commits, timeout_ms)
        except OdradekError as error:
            logger.warning("group %r: could not commit: %s", self._config.group_id, error)

    async def commit(self, commits: Commits, timeout_ms: int) -> None:
        """Raises `CommitFailed` when the partitions are not this member's any more, or not yet."""
        for some in in_portions([*commits.items()]):
            await self._cluster.patiently("commit", timeout_ms, partial(self._commit, dict(some)))

    async def _commit(self, commits: Commits) -> None:
        member_id, epoch = self._who()
        request = wire.OffsetCommitRequest(
            self._config.group_id,
            epoch,
            member_id,
            self._config.group_instance_id or None if member_id else None,
            tuple(
                wire.PartitionOffset(name.topic, name.partition, each.offset, each.leader_epoch, each.metadata)
                for name, each in commits.items()
            ),
        )
        answer = await self._coordinator.call("OffsetCommit", request, wire.OffsetCommitResponse)
        self._raise_for(answer.error_code)
        failed: OdradekError | None = None
        for outcome in answer.partitions:
            name = TopicPartition(outcome.topic, outcome.partition)
            if outcome.error_code:
                failed = broker_error(outcome.error_code, where=str(name))
            else:
                self._committed[name] = commits[name].offset
        if failed is not None:
            raise failed

    def _who(self) -> tuple[str, int]:
        """As whom offsets are committed: a consumer that assigns itself is no member. Raises `CommitFailed`."""
        membership = self._membership
        if membership.epoch > 0:
            return membership.member_id, membership.epoch
        if membership.is_subscribed:
            raise CommitFailed(self._config.group_id, "this consumer is no member of it at the moment")
        return "", -1

    def _raise_for(self, error_code: int) -> None:
        """The error of a whole request of a member."""
        code = ErrorCode.from_number(error_code)
        if code in OVER:
            raise CommitFailed(self._config.group_id, f"this consumer is no member of it any more: {code.name}")
        if error_code:
            error = broker_error(code, where=f"group {self._config.group_id!r}")
            # The next heartbeat brings another epoch.
            error.retriable = error.retriable or code is ErrorCode.STALE_MEMBER_EPOCH
            raise error

    async def fetch_offsets(self, partitions: Iterable[TopicPartition]) -> Committed:
        """Ask once what is committed; None where nothing is. Raises what is of all of them."""
        found: Committed = {}
        for some in in_portions([*partitions]):
            found |= await self._fetch(some)
        return found

    async def _fetch(self, partitions: Sequence[TopicPartition]) -> Committed:
        member_id, epoch = ("", -1) if self._membership.epoch <= 0 else self._who()
        named = tuple(wire.NamedPartition(each.topic, each.partition) for each in partitions)
        request = wire.OffsetFetchRequest(self._config.group_id, False, named, member_id, epoch)
        answer = await self._coordinator.call("OffsetFetch", request, wire.OffsetFetchResponse)
        if answer.error_code:
            error = broker_error(answer.error_code, where=f"group {self._config.group_id!r}")
            # A member that is stale or fenced hears of it by its heartbeat, and asks again or loses the partition.
            error.retriable = error.retriable or error.code in (*OVER, ErrorCode.STALE_MEMBER_EPOCH)
            raise error
        found: Committed = {}
        for each in answer.offsets:
            name = TopicPartition(each.topic, each.partition)
            found[name] = None
            if each.error_code:
                found[name] = broker_error(each.error_code, where=str(name))
            elif each.offset >= 0:
                found[name] = OffsetAndMetadata(each.offset, each.metadata, each.leader_epoch)
        return found

    async def committed(self, partition: TopicPartition) -> int | None:
        async def ask() -> int | None:
            found = (await self.fetch_offsets((partition,))).get(partition)
            if isinstance(found, OdradekError):
                raise found
            return None if found is None else found.offset

        return await self._cluster.patiently("committed", self._config.default_api_timeout_ms, ask)


async def _tell(callback: Callback | None, partitions: list[TopicPartition]) -> None:
    if callback is not None:
        outcome = callback(partitions)
        if isawaitable(outcome):
            await outcome
