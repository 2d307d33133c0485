"""The offsets that groups commit: OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from odradek_broker.core.groups.messages import (
    NO_EPOCH,
    FetchedOffset,
    OffsetCommit,
    OffsetCommitAnswer,
    OffsetDelete,
    OffsetDeleteAnswer,
    OffsetFetch,
    OffsetFetchAnswer,
    OffsetToCommit,
)
from odradek_broker.kafka.apis.admin import by_topic
from odradek_broker.kafka.messages.request import Body, KafkaRequest
from odradek_broker.requests.groups import GroupRequests

MANY_GROUPS_FROM = 8  # of OffsetFetch (KIP-709)
GROUP_ERROR_FROM = 2  # of OffsetFetch: before that each partition has the error of all

EPOCHS_FROM = 9  # of OffsetCommit (KIP-848): before that a client knows nothing of these errors
OLD_COMMIT_ERRORS = {
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.UNSUPPORTED_VERSION,
}

Row = dict[str, Any]


class GroupOffsetsApi:
    def __init__(self, groups: GroupRequests) -> None:
        self._groups = groups

    async def commit(self, request: KafkaRequest) -> Body:
        asked = request.read()
        offsets = tuple(
            OffsetToCommit(
                TopicPartition(topic["name"], each["partition_index"]),
                each["committed_offset"],
                each.get("committed_leader_epoch", NO_EPOCH),
                each["committed_metadata"],
            )
            for topic in asked["topics"]
            for each in topic["partitions"]
        )
        wanted = OffsetCommit(
            group_id=asked["group_id"],
            generation_id_or_member_epoch=asked["generation_id_or_member_epoch"],
            member_id=asked["member_id"],
            group_instance_id=asked.get("group_instance_id"),
            offsets=offsets,
            retention_time_ms=asked.get("retention_time_ms", -1),
        )
        told = await self._groups.call(request.context, wanted, OffsetCommitAnswer)
        renamed = OLD_COMMIT_ERRORS if request.version < EPOCHS_FROM else {}
        outcomes = [(tp, renamed.get(error, error)) for tp, error in told.partitions]
        return request.answered({"topics": _outcomes(asked["topics"], renamed.get(told.error, told.error), outcomes)})

    async def fetch(self, request: KafkaRequest) -> Body:
        asked, version = request.read(), request.version
        if version < MANY_GROUPS_FROM:
            told = await self._fetch(request, asked)
            if told.error and version < GROUP_ERROR_FROM:
                failed = [FetchedOffset(tp, error=told.error) for tp in _named(asked["topics"])]
                return request.answered({"topics": _fetched(failed)})
            return request.answered({"topics": _fetched(told.offsets), "error_code": told.error})
        answers = await asyncio.gather(*[self._fetch(request, group) for group in asked["groups"]])
        groups = [
            {"group_id": group["group_id"], "topics": _fetched(told.offsets), "error_code": told.error}
            for group, told in zip(asked["groups"], answers, strict=True)
        ]
        return request.answered({"groups": groups})

    async def _fetch(self, request: KafkaRequest, group: Mapping[str, Any]) -> OffsetFetchAnswer:
        wanted = OffsetFetch(
            group["group_id"],
            None if group["topics"] is None else tuple(_named(group["topics"])),
            group.get("member_id"),
            group.get("member_epoch", NO_EPOCH),
        )
        return await self._groups.call(request.context, wanted, OffsetFetchAnswer)

    async def delete(self, request: KafkaRequest) -> Body:
        asked = request.read()
        named = tuple(
            TopicPartition(topic["name"], each["partition_index"])
            for topic in asked["topics"]
            for each in topic["partitions"]
        )
        told = await self._groups.call(request.context, OffsetDelete(asked["group_id"], named), OffsetDeleteAnswer)
        topics = [] if told.error else _outcomes(asked["topics"], ErrorCode.NONE, told.partitions)
        return request.answered({"error_code": told.error, "topics": topics})


def _named(topics: Iterable[Mapping[str, Any]]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic["name"], index) for topic in topics for index in topic["partition_indexes"])


def _outcomes(
    topics: Iterable[Mapping[str, Any]], otherwise: ErrorCode, told: Sequence[tuple[TopicPartition, ErrorCode]]
) -> list[Row]:
    """A row for each partition of a request, as it named them."""
    errors: Callable[[TopicPartition, ErrorCode], ErrorCode] = dict(told).get
    return [
        {
            "name": topic["name"],
            "partitions": [
                {"partition_index": index, "error_code": errors(TopicPartition(topic["name"], index), otherwise)}
                for index in (each["partition_index"] for each in topic["partitions"])
            ],
        }
        for topic in topics
    ]


def _fetched(offsets: Iterable[FetchedOffset]) -> list[Row]:
    return by_topic((each.topic_partition.topic, _offset_row(each)) for each in offsets)


def _offset_row(fetched: FetchedOffset) -> Row:
    if fetched.error:
        fetched = FetchedOffset(fetched.topic_partition, error=fetched.error)
    return {
        "partition_index": fetched.topic_partition.partition,
        "committed_offset": fetched.offset,
        "committed_leader_epoch": fetched.leader_epoch,
        "metadata": fetched.metadata,
        "error_code": fetched.error,
    }
