"""Produce: batches to the request layer, its answers back, in one answer when the last one is there (K-9, K-23).

A partition's records are exactly one batch of format 2. Each partition fails by itself. With acks=0 there is no
answer, and an error closes the connection, so that the client looks for the leader anew.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from odradek_proto.errors import ErrorCode
from odradek_proto.headers import ATTRIBUTES, CODEC_MASK
from odradek_proto.records import HEADER_SIZE, Codec
from odradek_proto.topics import TopicPartition

from odradek_broker.kafka.messages.endpoints import Endpoints, NodeEndpoint, Topic
from odradek_broker.kafka.messages.produce_codec import (
    LEADERS_FROM,
    DecodedProduce,
    ProducedPartition,
    ProducePartitionAnswer,
    read_request,
    write_answer,
)
from odradek_broker.kafka.messages.request import Done, HangUp, KafkaRequest
from odradek_broker.requests.produce import ProduceAnswer, ProduceRequests
from odradek_broker.requests.unpacked import MOST_NAMED

FIRST_WITH_FORMAT_2 = 3  # older versions are advertised, since librdkafka wants them to be, and close the connection
_LENGTH_EPOCH_MAGIC = struct.Struct(">iib")  # behind the base offset of a batch
FIRST_WITH_ZSTD = 7  # KIP-110
_LOG_OVERHEAD = 12  # base offset and length, which the length does not count


class ProduceApi:
    """`topic_name` finds a topic by its id; `endpoints` says where brokers are."""

    def __init__(
        self, requests: ProduceRequests, *, topic_name: Callable[[bytes], str | None], endpoints: Endpoints
    ) -> None:
        self._requests = requests
        self._topic_name = topic_name
        self._endpoints = endpoints

    def start(self, request: KafkaRequest, done: Done) -> None:
        """Append everything at once; `done` is called when all partitions have their answers."""
        if request.version < FIRST_WITH_FORMAT_2:
            raise HangUp(f"Produce of version {request.version} carries a record format that is no longer served")
        produced = request.decoded(read_request)
        answers = _Answers(request, produced, done, self._endpoints)  # it must not refer to either: they hold the frame
        for topic_number, topic in enumerate(produced.topics):
            name = topic.name or self._topic_name(topic.topic_id)
            for number, partition in enumerate(topic.partitions):
                refusal = ErrorCode.UNKNOWN_TOPIC_ID if name is None else _refusal_of(partition, request.version)
                answer = answers.taker(topic_number, number)
                if refusal is not None or name is None or partition.records is None:
                    code = refusal or ErrorCode.UNKNOWN_TOPIC_ID
                    answer(ProduceAnswer(code, f"{name}-{partition.index}: {code.message}"))
                    continue
                self._requests.append(
                    request.context,
                    TopicPartition(name, partition.index),
                    topic.topic_id,
                    partition.records,
                    produced.acks,
                    produced.timeout_ms,
                    answer,
                )
        answers.all_asked()


def _refusal_of(partition: ProducedPartition, version: int) -> ErrorCode | None:
    """Why these bytes are not one batch of format 2, or in a codec that this version of Produce does not have. All else
    is looked at where batches are appended."""
    records = partition.records
    if records is None or len(records) < HEADER_SIZE:
        return ErrorCode.INVALID_RECORD
    length, _epoch, magic = _LENGTH_EPOCH_MAGIC.unpack_from(records, 8)
    if magic != 2 or length + _LOG_OVERHEAD < len(records):
        return ErrorCode.INVALID_RECORD
    zstd_is_too_new = version < FIRST_WITH_ZSTD and records[ATTRIBUTES] & CODEC_MASK == Codec.ZSTD
    return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE if zstd_is_too_new else None


def _why(told: ProduceAnswer) -> str:
    return f"Produce with acks=0 failed: {told.error.name}: {told.message}"


class _Answers:
    """What the partitions of one request are told, until the last one has been."""

    def __init__(self, request: KafkaRequest, produced: DecodedProduce, done: Done, endpoints: Endpoints) -> None:
        self._version = request.version
        self._listener = request.context.listener
        self._acks = produced.acks
        self._throttle_ms = request.throttle_ms
        self._topics = [
            (topic.name, topic.topic_id, [partition.index for partition in topic.partitions])
            for topic in produced.topics
        ]
        self._done = done
        self._hang_up = request.hang_up
        self._all_asked = False
        self._endpoints = endpoints
        self._told: dict[tuple[int, int], ProduceAnswer] = {}
        self._most_named = MOST_NAMED  # of all batches together: an answer has no other bound
        self._left = sum([len(indexes) for _, _, indexes in self._topics])

    def taker(self, topic_number: int, number: int) -> Callable[[ProduceAnswer], None]:
        def take(told: ProduceAnswer) -> None:
            self._told[topic_number, number] = told
            self._left -= 1
            if self._acks == 0:  # only what failed is told, now or after it has waited in line
                if self._all_asked:
                    self._hang_up(_why(told))
            elif not self._left:
                self._answer()

        return take

    def all_asked(self) -> None:
        self._all_asked = True
        if self._acks == 0:
            for told in self._told.values():
                raise HangUp(_why(told))
            self._done(None)
        elif not any(indexes for _, _, indexes in self._topics):
            self._answer()

    def _answer(self) -> None:
        version = self._version
        topics = [
            Topic(name, topic_id, [self._partition(number, *each) for each in enumerate(indexes)])
            for number, (name, topic_id, indexes) in enumerate(self._topics)
        ]
        nodes: list[NodeEndpoint] = []
        if version >= LEADERS_FROM:
            leaders = {told.leader_id: None for told in self._told.values() if told.leader_id >= 0}
            if leaders:
                nodes = self._endpoints(self._listener, leaders)
        self._done(write_answer(version, topics, nodes, throttle_ms=self._throttle_ms).buffers())

    def _partition(self, topic_number: int, number: int, index: int) -> ProducePartitionAnswer:
        told = self._told[topic_number, number]
        invalid = told.invalid_records[: self._most_named]
        self._most_named -= len(invalid)
        return ProducePartitionAnswer(
            index,
            told.error,
            told.base_offset,
            told.log_start_offset,
            told.log_append_time_ms,
            told.message or None,
            told.leader_id,
            told.leader_epoch,
            invalid,
            told.record_message,
        )
