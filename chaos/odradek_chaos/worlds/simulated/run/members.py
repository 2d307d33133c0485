"""Members of a consumer group in the simulated world: they join, sync, commit what they own, stall, and die.

They speak Kafka's classic protocol over its listener, as clients do that commit after each record: an owner reads the
committed offset of each of its partitions and commits the next one. Whoever does not know what became of a commit is a
new member from then on, so that a commit that comes late is of a generation that is over. The first one is a static
member. Now and then one commits as who it was in the generation before, as a process that was stalled there would, and
now and then one has joined and does not sync, while its heartbeats go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from odradek_broker.config.settings import BrokerSettings
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import NetworkError
from odradek_proto.values import Value, replace

from odradek_chaos.worlds.simulated.checks.groups import GroupHistory
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.net.kafka_client import KafkaClientConnection

GROUP = "g"
SESSION_MS, REBALANCE_MS, HEARTBEAT_MS, RETRY_MS = 1_500, 1_500, 100, 50
UNCLEANED_MS = 3_600_000  # longer than a run
ANSWER_MS = 2_000
ANSWER_OF_GROUP_MS = ANSWER_MS + SESSION_MS + REBALANCE_MS  # to a call that waits for other members
STABLE_MS = 4 * ANSWER_OF_GROUP_MS
LEAVES, STALLS, LATE_COMMITS = 0.02, 0.02, 0.1  # how often a member does so, instead of a heartbeat
HOLDS_BACK = 0.1  # how often one that has joined does not sync
STATIC = "g1"
OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
PROTOCOL_TYPE, PROTOCOL = "members", "modulo"
VERSIONS = {OFFSET_COMMIT: 9, OFFSET_FETCH: 8, FIND_COORDINATOR: 3, JOIN: 9, HEARTBEAT: 4, LEAVE: 5, SYNC: 5}

_ELSEWHERE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,  # the broker does not know the topic yet
)


def settings_for_members(settings: BrokerSettings) -> BrokerSettings:
    """Short times, so that a run of seconds has many generations; few partitions of the offsets topic.

    It is not cleaned within a run: each replica would clean it at another time, and checks compare all of it (K-89).
    """
    return replace(
        settings,
        offsets_topic_num_partitions=2,
        group_initial_rebalance_delay_ms=300,
        group_min_session_timeout_ms=SESSION_MS,
        group_consumer_session_timeout_ms=SESSION_MS,
        group_consumer_heartbeat_interval_ms=HEARTBEAT_MS,
        log_cleaner_min_compaction_lag_ms=UNCLEANED_MS,
    )


class CoordinatorError(Exception):
    """A coordinator's error."""

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class Identity(Value, frozen=True):
    """What a member knows of itself; an empty id: nothing."""

    member_id: str = ""
    generation_id: int = -1


class MemberProcess:
    """One process. Another process on the same machine is another member."""

    def __init__(
        self,
        ports: NodePorts,
        history: GroupHistory,
        tps: Sequence[TopicPartition],
        brokers: Sequence[str],
        is_restless: Callable[[], bool],
    ) -> None:
        self._ports = ports
        self._history = history
        self._topic = tps[0].topic
        self._partitions = len(tps)
        self._brokers = brokers
        self._is_restless = is_restless  # whether members leave and stall
        self._coordinator = ""
        self._connection: KafkaClientConnection | None = None
        self._instance_id = ports.node if ports.node == STATIC else None
        self._identity = Identity()
        self._before = Identity()  # who it was in the generation before this one
        self._in_force = Identity()  # who it was when it last had an assignment
        self._refused: dict[str, Any] = {}
        self.owned: tuple[int, ...] | None = None  # None: it is not in a generation
        self.generation_id = -1

    async def run(self) -> None:
        while True:
            try:
                await self._take_part()
            except (NetworkError, TimeoutError, ValueError):
                self._disconnect()
            except CoordinatorError as told:
                self._on_error(told.error)
            self.owned = None
            await self._ports.clock.sleep(RETRY_MS)

    def _on_error(self, error: ErrorCode) -> None:
        match error:
            case ErrorCode.REBALANCE_IN_PROGRESS:
                pass  # it joins again
            case ErrorCode.UNKNOWN_MEMBER_ID | ErrorCode.ILLEGAL_GENERATION | ErrorCode.FENCED_INSTANCE_ID:
                self._identity = Identity()
            case _ if error in _ELSEWHERE:
                self._disconnect()
            case _:
                raise AssertionError(f"{self._ports.node} is told {error.name}")

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None
        self._coordinator = ""

    # --- One generation ---------------------------------------------------------------------------------------------

    async def _take_part(self) -> None:
        joined = await self._join()
        if self._is_restless() and self._ports.clock.rng.random() < HOLDS_BACK:
            await self._hold_back()
        owned = await self._sync(joined)
        offsets = await self._fetch(owned)
        self.owned, self.generation_id = owned, self._identity.generation_id
        while True:
            for partition in owned:
                offsets[partition] += 1
                await self._commit(partition, offsets[partition])
            drawn = self._ports.clock.rng.random() if self._is_restless() else 1.0
            if drawn < LEAVES:
                await self._leave()
                return
            if drawn < LEAVES + STALLS:
                await self._ports.clock.sleep(self._ports.clock.rng.uniform(0.5, 1.5) * SESSION_MS)
            elif drawn < LEAVES + STALLS + LATE_COMMITS and owned and self._before.member_id:
                await self._commit_late(owned[0], offsets[owned[0]])
            await self._ask(HEARTBEAT, self._named({}))
            await self._ports.clock.sleep(HEARTBEAT_MS)

    async def _hold_back(self) -> None:
        """Heartbeats alone, for longer than a group waits for anybody (K-49)."""
        for _ in range(2 * REBALANCE_MS // HEARTBEAT_MS):
            await self._ask(HEARTBEAT, self._named({}))
            await self._ports.clock.sleep(HEARTBEAT_MS)

    async def _leave(self) -> None:
        """A static member says nothing: the next process of its instance takes its place."""
        known, self._identity = self._identity, Identity()
        self.owned = None
        if self._instance_id is None:
            await self._ask(LEAVE, {"group_id": GROUP, "members": [{"member_id": known.member_id}]})

    async def _join(self) -> dict[str, Any]:
        request = {
            "group_id": GROUP,
            "session_timeout_ms": SESSION_MS,
            "rebalance_timeout_ms": REBALANCE_MS,
            "member_id": self._identity.member_id,
            "group_instance_id": self._instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": [{"name": PROTOCOL, "metadata": b""}],
        }
        try:
            answer = await self._ask(JOIN, request)
        except CoordinatorError as told:
            if told.error is not ErrorCode.MEMBER_ID_REQUIRED:
                raise
            self._identity = Identity(self._refused["member_id"])
            answer = await self._ask(JOIN, request | {"member_id": self._identity.member_id})
        self._identity = Identity(answer["member_id"], answer["generation_id"])
        return answer

    async def _sync(self, joined: dict[str, Any]) -> tuple[int, ...]:
        members = sorted(each["member_id"] for each in joined["members"])
        assignments = [
            {"member_id": member_id, "assignment": bytes(range(number, self._partitions, len(members)))}
            for number, member_id in enumerate(members)
        ]
        newest = self._history.generation_id
        protocol = {"protocol_type": PROTOCOL_TYPE, "protocol_name": PROTOCOL}
        answer = await self._ask(SYNC, self._named({**protocol, "assignments": assignments}))
        owned = tuple(bytes(answer["assignment"]))
        who = self._instance_id or self._identity.member_id  # the next process of an instance has its partitions
        self._history.on_synced(who, self._identity.generation_id, owned, newest)
        if self._in_force != self._identity:
            self._before, self._in_force = self._in_force, self._identity
        return owned

    # --- Offsets ----------------------------------------------------------------------------------------------------

    async def _fetch(self, owned: tuple[int, ...]) -> dict[int, int]:
        least = dict(self._history.offsets)
        topics = [{"name": self._topic, "partition_indexes": list(owned)}]
        answer = await self._ask(OFFSET_FETCH, {"groups": [{"group_id": GROUP, "topics": topics if owned else []}]})
        (group,) = answer["groups"]
        _check(group["error_code"])
        found = {
            row["partition_index"]: row["committed_offset"] for topic in group["topics"] for row in topic["partitions"]
        }
        for partition, offset in found.items():
            self._history.on_fetched(self._identity.member_id, partition, offset, least.get(partition, -1))
        return found

    async def _commit(self, partition: int, offset: int) -> None:
        known = self._identity
        self._identity = Identity()  # until it is known what became of it
        error = await self._ask_to_commit(known, partition, offset)
        if error in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            self._identity = known
        _check(error)
        self._history.on_committed(partition, offset)

    async def _commit_late(self, partition: int, offset: int) -> None:
        error = await self._ask_to_commit(self._before, partition, offset)
        self._history.on_late_commit(self._before.member_id, error)
        if error in _ELSEWHERE:
            raise CoordinatorError(error)

    async def _ask_to_commit(self, identity: Identity, partition: int, offset: int) -> ErrorCode:
        row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": ""}
        request = {
            "group_id": GROUP,
            "generation_id_or_member_epoch": identity.generation_id,
            "member_id": identity.member_id,
            "group_instance_id": self._instance_id,
            "topics": [{"name": self._topic, "partitions": [row]}],
        }
        answer = await self._ask(OFFSET_COMMIT, request)
        return ErrorCode(answer["topics"][0]["partitions"][0]["error_code"])

    # --- Asking -----------------------------------------------------------------------------------------------------

    def _named(self, more: dict[str, Any]) -> dict[str, Any]:
        identity = self._identity
        named = {"group_id": GROUP, "generation_id": identity.generation_id, "member_id": identity.member_id}
        return {**named, "group_instance_id": self._instance_id, **more}

    async def _ask(self, key: int, request: dict[str, Any]) -> dict[str, Any]:
        """The coordinator's answer. Raises `CoordinatorError` if all of it is refused; that answer is `_refused`."""
        limit_ms = ANSWER_OF_GROUP_MS if key in (JOIN, SYNC) else ANSWER_MS
        async with asyncio.timeout(limit_ms / 1000):
            if self._connection is None:
                await self._find()
                self._connection = await self._open(self._coordinator)
            self._refused = answer = await self._connection.ask(key, VERSIONS[key], request)
        _check(answer.get("error_code", 0))
        return answer

    async def _find(self) -> None:
        address = self._ports.clock.rng.choice(self._brokers)
        connection = await self._open(address)
        try:
            answer = await connection.ask(FIND_COORDINATOR, VERSIONS[FIND_COORDINATOR], {"key": GROUP, "key_type": 0})
        finally:
            connection.close()
        _check(answer["error_code"])
        self._coordinator = f"{answer['host']}:{answer['port']}"

    async def _open(self, address: str) -> KafkaClientConnection:
        return await KafkaClientConnection.open(self._ports.network, address, self._ports.node, ANSWER_MS)


def _check(error_code: int) -> None:
    if error_code:
        raise CoordinatorError(ErrorCode(error_code))
