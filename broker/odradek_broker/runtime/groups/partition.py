"""One partition of `__consumer_offsets` that this broker leads: it carries out the shard's decisions.

Effects are carried out in order and without an await. A write is one batch with acks=all; the responses that depend on
it are released by the shard when it is committed. An uncertain commit - an error, a timeout - is never guessed about:
the shard is dropped and loaded again (K-43).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Sequence

from odradek_proto.encoding import encode_batch, estimated_record_size
from odradek_proto.errors import ErrorCode
from odradek_proto.headers import HEADER_SIZE
from odradek_proto.transport.deadline import Deadline
from odradek_proto.transport.ports import Clock, Files
from odradek_proto.values import Value

from odradek_broker.config.log_levels import SERVER
from odradek_broker.core.groups.messages import (
    Answer,
    CoordinatorRecord,
    Effect,
    ErrorAnswer,
    GroupReply,
    GroupSettings,
    Heartbeat,
    MetadataView,
    Request,
    WriteRecords,
)
from odradek_broker.core.groups.shard import GroupCoordinatorShard
from odradek_broker.runtime.groups.loading import CannotLoad, load
from odradek_broker.runtime.replicas.purgatory import ProduceAnswer
from odradek_broker.runtime.replicas.replica import ACKS_ALL, Replica

logger = logging.getLogger(SERVER)

REFUSED_RETRY_MS = 500  # how soon timers are looked at again while the partition takes no writes
_REFUSALS = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
}
"""What a caller is told of a write that failed, as Kafka says it; anything else is UNKNOWN_SERVER_ERROR."""

Token = asyncio.Future[Answer]


class ShardServices(Value, frozen=True):
    """What every shard of a broker needs."""

    settings: GroupSettings
    commit_timeout_ms: int  # offsets.commit.timeout.ms: of every write
    metadata: MetadataView
    clock: Clock
    files: Files
    spawn: Callable[[Coroutine[object, object, None]], asyncio.Task[None]]
    rebalances: Counter[str]  # counted by kind of group, as long as the broker lives


class CoordinatorPartition:
    """From the beginning of a leadership to its end; `close` ends it."""

    def __init__(self, replica: Replica, services: ShardServices) -> None:
        self._replica = replica
        self._services = services
        self._clock = services.clock
        self._shard: GroupCoordinatorShard | None = None  # None: it loads
        self._loading: asyncio.Task[None] | None = None
        self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # of who asks meanwhile
        self._effects: deque[Effect] = deque()
        self._carrying_out = False
        self._unwritten: deque[int] = deque()  # writes that are not committed yet, by id
        self._deadline = Deadline(self._clock, self._on_time)
        self._load()

    @property
    def shard(self) -> GroupCoordinatorShard | None:
        """To be looked at; None while it loads."""
        return self._shard

    @property
    def leader_epoch(self) -> int | None:
        """In which this broker leads now; None when it does not."""
        leader = self._replica.leader
        return None if leader is None else leader.leader_epoch

    @property
    def log_end_offset(self) -> int:
        return self._replica.state.log_end_offset

    @property
    def has_uncommitted(self) -> bool:
        """Whether something was written that is not committed yet."""
        return bool(self._unwritten)

    # --- Loading ----------------------------------------------------------------------------------------------------

    def _load(self) -> None:
        self._refusal = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        self._loading = self._services.spawn(self._load_shard())

    async def _load_shard(self) -> None:
        tp, services = self._replica.topic_partition, self._services
        shard = GroupCoordinatorShard(services.settings, services.metadata, self._new_id)
        started_ms = self._clock.now_ms()
        try:
            await load(self._replica, services.files, shard)
        except CannotLoad as error:
            logger.error("%s: the groups of this partition cannot be loaded: %s", tp, error)
            self._refusal = ErrorCode.NOT_COORDINATOR
            return
        self._shard, self._loading = shard, None
        records = self._replica.state.log_end_offset - self._replica.state.log_start_offset
        if records:
            logger.info("%s: groups loaded, %d ms for %d offsets", tp, self._clock.now_ms() - started_ms, records)
        self._step(shard.on_loaded(self._clock.now_ms()))

    def _new_id(self) -> str:
        """A random UUID, as text."""
        text = self._clock.rng.randbytes(16).hex()
        return "-".join(
            (text[:8], text[8:12], f"4{text[13:16]}", f"{8 + int(text[16], 16) % 4:x}{text[17:20]}", text[20:])
        )

    def close(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """The leadership ends, or what was written is unknown: whoever waits is told."""
        shard, self._shard = self._shard, None
        self._refusal = error
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        self._deadline.cancel()
        replies = [
            effect for effect in self._effects if isinstance(effect, GroupReply)
        ]  # decided, whatever becomes of writes
        self._effects.clear()
        self._unwritten.clear()
        for reply in replies + ([] if shard is None else shard.unload(error)):
            _answer(reply)

    def _reload(self, error: ErrorCode, why: str) -> None:
        tp = self._replica.topic_partition
        told = _REFUSALS.get(error, ErrorCode.UNKNOWN_SERVER_ERROR)
        logger.warning("%s: a write of the group coordinator failed, its groups are loaded again: %s", tp, why)
        self.close(told)
        self._load()

    # --- Requests ---------------------------------------------------------------------------------------------------

    async def call(self, request: Request, *, writes: bool) -> Answer:
        """The shard's answer, or ErrorAnswer when there is no shard now, or it `writes` and cannot."""
        shard = self._shard
        if shard is None:
            loads = self._refusal is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            # As in Kafka: whoever heartbeats now goes on reading, and its session begins anew when this is loaded.
            return ErrorAnswer(ErrorCode.NONE if loads and isinstance(request, Heartbeat) else self._refusal)
        if writes and not self.takes_writes():
            return ErrorAnswer(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        token: Token = asyncio.get_running_loop().create_future()
        self._step(shard.handle(request, token, self._clock.now_ms(), self._clock.wall_ms()))
        try:
            return await token
        except asyncio.CancelledError:
            if self._shard is shard:
                shard.cancel(token)
            raise

    def takes_writes(self) -> bool:
        """Whether a write would be refused is known beforehand: then the shard need not be loaded again for it."""
        leader = self._replica.leader
        return leader is not None and leader.refusal_of_acks(ACKS_ALL) is None

    def on_topics_changed(self, deleted: Collection[str]) -> None:
        if self._shard is not None:
            self._step(self._shard.on_topics_changed(deleted, self._clock.now_ms(), self._clock.wall_ms()))

    # --- Effects ----------------------------------------------------------------------------------------------------

    def _step(self, effects: Iterable[Effect]) -> None:
        """Carry out what the shard ordered. What a write brings about at once comes behind it."""
        self._effects.extend(effects)
        if self._carrying_out:
            return
        self._carrying_out = True
        try:
            while self._effects:
                effect = self._effects.popleft()
                if isinstance(effect, GroupReply):
                    _answer(effect)
                else:
                    self._write(effect)
        finally:
            self._carrying_out = False
        if self._shard is not None:
            self._services.rebalances.update(self._shard.take_rebalances())
        self._arm()

    def _write(self, order: WriteRecords) -> None:
        shard = self._shard
        batches = list(self._batches(order.records))
        self._unwritten.append(order.write_id)
        for number, batch in enumerate(batches, 1):
            last = number == len(batches)

            def answer(told: ProduceAnswer, last: bool = last) -> None:
                if self._shard is not shard or shard is None:
                    return  # it was thrown away meanwhile
                if told.error is not ErrorCode.NONE:
                    self._reload(told.error, f"{told.error.name} {told.message}")
                elif last:
                    self._written(shard, order.write_id)

            self._replica.produce(memoryview(batch), ACKS_ALL, self._services.commit_timeout_ms, answer)
            if self._shard is not shard:
                return

    def _written(self, shard: GroupCoordinatorShard, write_id: int) -> None:
        """Batches are committed in their order: so are all before this one."""
        while self._unwritten and self._unwritten[0] <= write_id:
            self._step(shard.on_written(self._unwritten.popleft(), self._clock.now_ms()))

    def _batches(self, records: Sequence[CoordinatorRecord]) -> Iterator[bytes]:
        """One batch, or as few as max.message.bytes allows: the offsets of one commit may be many."""
        leader = self._replica.leader
        largest = leader.settings.max_message_bytes if leader is not None else 0
        wall_ms = self._clock.wall_ms()
        run: list[tuple[int, bytes | None, bytes | None, tuple[()]]] = []
        size = HEADER_SIZE
        for key, value in records:
            more = estimated_record_size(key, value)
            if run and size + more > largest:
                yield encode_batch(run)
                run, size = [], HEADER_SIZE
            run.append((wall_ms, key, value, ()))
            size += more
        yield encode_batch(run)

    # --- Time -------------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._shard is not None:
            self._deadline.arm(self._shard.next_deadline_ms())

    def _on_time(self) -> None:
        shard = self._shard
        if shard is None:
            return
        now_ms = self._clock.now_ms()
        if not self.takes_writes():  # whoever did not heartbeat meanwhile had no coordinator to send it to
            self._deadline.arm(now_ms + REFUSED_RETRY_MS)
            return
        self._step(shard.on_time(now_ms, self._clock.wall_ms()))


def _answer(reply: GroupReply) -> None:
    token = reply.token
    assert isinstance(token, asyncio.Future), token
    if not token.done():
        token.set_result(reply.answer)
