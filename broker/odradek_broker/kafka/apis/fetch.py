"""Fetch: one answer for all partitions of a request, when there is enough or the wait is over (K-25 to K-28).

Within a session only what is news is told (`fetch_sessions.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from odradek_broker.core.partition.messages import FetchDecision
from odradek_broker.kafka.apis.fetch_sessions import NO_SESSION, FetchSessions
from odradek_broker.kafka.messages import fetch_codec as codec
from odradek_broker.kafka.messages.endpoints import Endpoints, Topic
from odradek_broker.kafka.messages.request import Body, KafkaRequest
from odradek_broker.requests.fetch import FetchedPartition, FetchRequest, FetchRequests
from odradek_broker.requests.fetch_answers import PendingFetch
from odradek_broker.requests.quotas import NO_QUOTAS, Throttle

logger = logging.getLogger(__name__)

READ_COMMITTED = 1
FOLLOWERS_FROM = 11  # with a rack a consumer says that it knows of followers (KIP-392); Kafka goes by the version


class FetchApi:
    """`topic_name` finds a topic by its id; `endpoints` says where brokers are."""

    def __init__(
        self,
        requests: FetchRequests,
        *,
        topic_name: Callable[[bytes], str | None],
        endpoints: Endpoints,
        throttle: Throttle = NO_QUOTAS,
    ) -> None:
        self._throttle = throttle
        self._requests = requests
        self._topic_name = topic_name
        self._endpoints = endpoints
        self._sessions = FetchSessions(requests.clock)

    async def answer(self, request: KafkaRequest) -> Body:
        asked = request.decoded(codec.read_request)
        if asked.replica_id >= 0:
            logger.warning("%s: a Fetch of replica %d: followers fetch by gRPC", request.context.peer, asked.replica_id)
            return self._refused(request, asked, ErrorCode.INVALID_REQUEST)
        session = self._sessions.begin(asked, ids=request.version >= codec.IDS_FROM)
        if isinstance(session, ErrorCode):
            return self._refused(request, asked, session)
        wanted = asked.topics if session is None else session.topics()
        named = [(topic, topic.name or self._topic_name(topic.topic_id)) for topic in wanted]
        partitions = [
            PendingFetch(
                TopicPartition(name, each.index),
                each.fetch_offset,
                each.current_leader_epoch,
                each.last_fetched_epoch,
                -1,
                max(0, each.max_bytes),
                topic_id=topic.topic_id,
            )
            for topic, name in named
            if name is not None
            for each in topic.partitions
        ]
        all_known = all(name is not None for _, name in named)
        fetched = await self._requests.fetch(
            request.context,
            FetchRequest(
                partitions,
                asked.max_wait_ms if all_known else 0,
                asked.min_bytes,
                asked.max_bytes,
                asked.isolation_level == READ_COMMITTED,
                request.version >= FOLLOWERS_FROM,
                request.reserve,
            ),
        )
        size = sum([len(buffer) for each in fetched for buffer in each.buffers])
        request.throttle_ms = max(request.throttle_ms, self._throttle.fetched(request.context, size))
        answers = iter(fetched)
        topics = [
            Topic(
                topic.name,
                topic.topic_id,
                [
                    codec.FetchPartitionAnswer(each.index, ErrorCode.UNKNOWN_TOPIC_ID)
                    if name is None
                    else _told(next(answers))
                    for each in topic.partitions
                ],
            )
            for topic, name in named
        ]
        if session is not None:
            topics = session.news(topics)
        leaders = {each.leader_id: None for each in fetched if each.leader_id >= 0}
        nodes = self._endpoints(request.context.listener, leaders) if leaders else []
        session_id = NO_SESSION if session is None else session.session_id
        return codec.write_answer(
            request.version, topics, nodes, session_id=session_id, throttle_ms=request.throttle_ms
        ).buffers()

    def _refused(self, request: KafkaRequest, asked: codec.DecodedFetch, error: ErrorCode) -> Body:
        """The same for the whole request; old versions have a place for it in the partitions alone."""
        topics = [
            Topic(
                topic.name, topic.topic_id, [codec.FetchPartitionAnswer(each.index, error) for each in topic.partitions]
            )
            for topic in (asked.topics if request.version < codec.SESSIONS_FROM else ())
        ]
        return codec.write_answer(request.version, topics, error=error, throttle_ms=request.throttle_ms).buffers()


def _told(fetched: FetchedPartition) -> codec.FetchPartitionAnswer:
    decision: FetchDecision = fetched.decision
    partition = fetched.topic_partition.partition
    if decision.error:  # no offsets beside an error, as Kafka: those of a replica that does not lead may be old
        return codec.FetchPartitionAnswer(
            partition, decision.error, leader_id=fetched.leader_id, leader_epoch=fetched.leader_epoch
        )
    return codec.FetchPartitionAnswer(
        partition,
        decision.error,
        decision.high_watermark,
        decision.last_stable_offset,
        decision.log_start_offset,
        fetched.buffers,
        None if decision.diverging is None else (decision.diverging[0], decision.diverging[1]),
        fetched.leader_id,
        fetched.leader_epoch,
    )
