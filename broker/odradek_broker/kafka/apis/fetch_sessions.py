"""Fetch sessions of Kafka's clients (KIP-227): who names its partitions once, and then only what has changed.

A session belongs to the broker, not to a connection. The client counts its requests by an epoch: one that is not the
next is refused, so that a lost answer is noticed. An answer holds only the partitions of which there is news: records,
an error, another high watermark or log start offset. Whoever is not given a session gets id 0, and names everything
each time.
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import Clock

from odradek_broker.kafka.messages import fetch_codec as codec
from odradek_broker.kafka.messages.endpoints import Topic

NO_SESSION = 0
FINAL_EPOCH, INITIAL_EPOCH = -1, 0  # of a request that wants no session, or a new one
LAST_EPOCH = (1 << 31) - 1  # 1 comes next
SLOTS = 1_000  # max.incremental.fetch.session.cache.slots, Kafka's default
EVICTED_AFTER_MS = 120_000  # of a session that was not used, when there is no slot left
MOST_PARTITIONS = 200_000  # of all sessions together: a client that names more names them each time

Key = tuple[str | bytes, int]  # name or id of the topic, and partition


class ClientFetchSession:
    """What one client wants, and what it was told last."""

    def __init__(self, session_id: int, *, ids: bool) -> None:
        self.session_id = session_id
        self.ids = ids  # whether topics are named by their ids
        self.epoch = INITIAL_EPOCH
        self.used_ms = 0
        self._wanted: dict[Key, tuple[Topic[codec.WantedPartition], codec.WantedPartition]] = {}
        self._told: dict[Key, tuple[int, int]] = {}  # high watermark, log start offset

    def __len__(self) -> int:
        return len(self._wanted)

    def name(self, topics: Sequence[Topic[codec.WantedPartition]], forgotten: Sequence[Topic[int]] = ()) -> None:
        """Add or change what is wanted; forget the rest."""
        for gone in forgotten:
            for index in gone.partitions:
                self._wanted.pop((gone.name or gone.topic_id, index), None)
                self._told.pop((gone.name or gone.topic_id, index), None)
        for topic in topics:
            for partition in topic.partitions:
                self._wanted[topic.name or topic.topic_id, partition.index] = topic, partition

    def topics(self) -> list[Topic[codec.WantedPartition]]:
        """Everything that is wanted, whoever had records last at the end."""
        found: list[tuple[Topic[codec.WantedPartition], list[codec.WantedPartition]]] = []
        for topic, partition in self._wanted.values():
            if not found or (found[-1][0].name, found[-1][0].topic_id) != (topic.name, topic.topic_id):
                found.append((topic, []))
            found[-1][1].append(partition)
        return [Topic(topic.name, topic.topic_id, partitions) for topic, partitions in found]

    def news(self, answers: Sequence[Topic[codec.FetchPartitionAnswer]]) -> list[Topic[codec.FetchPartitionAnswer]]:
        """The partitions that have something to tell, and those that are answered for the first time."""
        found = []
        for topic in answers:
            partitions = [each for each in topic.partitions if self._is_news(topic.name or topic.topic_id, each)]
            if partitions:
                found.append(Topic(topic.name, topic.topic_id, partitions))
        return found

    def _is_news(self, topic: str | bytes, answer: codec.FetchPartitionAnswer) -> bool:
        key, now = (topic, answer.index), (answer.high_watermark, answer.log_start_offset)
        before, self._told[key] = self._told.get(key), now
        if answer.records and key in self._wanted:  # others come first the next time: each gets its turn
            self._wanted[key] = self._wanted.pop(key)
        if answer.error:
            del self._told[key]  # the end of an error is news
        return bool(answer.records) or bool(answer.error) or answer.diverging is not None or before != now


class FetchSessions:
    """The sessions of one broker, the one that was used last at the end."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sessions: dict[int, ClientFetchSession] = {}
        self._partitions = 0  # of all of them

    def begin(self, asked: codec.DecodedFetch, *, ids: bool) -> ClientFetchSession | ErrorCode | None:
        """The session of a request, new or known; None: it has none; or why it cannot go on."""
        if asked.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._drop(asked.session_id)
            return self._open(asked, ids=ids) if asked.session_epoch == INITIAL_EPOCH else None
        session = self._sessions.get(asked.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.ids != ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        if asked.session_epoch != (1 if session.epoch == LAST_EPOCH else session.epoch + 1):
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        before = len(session)
        session.name(asked.topics, asked.forgotten)
        self._partitions += len(session) - before
        if self._partitions > MOST_PARTITIONS:
            self._drop(session.session_id)
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        self._used(session, asked.session_epoch)
        return session

    def _open(self, asked: codec.DecodedFetch, *, ids: bool) -> ClientFetchSession | None:
        size = sum([len(topic.partitions) for topic in asked.topics])
        if not size or self._partitions + size > MOST_PARTITIONS or not self._has_slot(size):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._clock.rng.randrange(1, 1 << 31)
        session = ClientFetchSession(session_id, ids=ids)
        session.name(asked.topics)
        self._partitions += len(session)
        self._used(session, INITIAL_EPOCH)
        return session

    def _has_slot(self, size: int) -> bool:
        """Whether there is one; if need be, of a session that is unused or smaller."""
        if len(self._sessions) < SLOTS:
            return True
        oldest = next(iter(self._sessions.values()))
        if self._clock.now_ms() - oldest.used_ms < EVICTED_AFTER_MS:
            smallest = min(self._sessions.values(), key=len)
            if len(smallest) >= size:
                return False
            oldest = smallest
        self._drop(oldest.session_id)
        return True

    def _used(self, session: ClientFetchSession, epoch: int) -> None:
        session.epoch, session.used_ms = epoch, self._clock.now_ms()
        self._sessions.pop(session.session_id, None)
        self._sessions[session.session_id] = session

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session)
