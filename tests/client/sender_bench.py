"""A sender, and what a test tells it and sees of it."""

from __future__ import annotations

import random
from typing import Any

from odradek.core.batches import ProducerBatch, SendQueue
from odradek.core.cluster_view import ClusterView
from odradek.core.sender import BatchCompleted, Effect, Sender
from odradek.shared.config import ProducerConfig, build
from odradek.shared.errors import BrokerUnreachable
from odradek_proto.errors import ErrorCode
from odradek_proto.records import read_header
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import broker_pb2 as pb

TP = TopicPartition("orders", 0)
PLENTY = 1 << 30


class Bench:
    """A sender with one partition, whose leader may know the producer, and the few steps that the rim would take."""

    def __init__(self, *, leader: int = 1, seed: int = 3, known: bool = True, **config: Any) -> None:
        self.config = build(ProducerConfig, "broker:1", {"batch_size": 200, **config})
        self.sender = Sender(self.config, random.Random(seed))
        self.view = ClusterView(("broker:1",))
        self.now = 1_000
        self.leader_epoch = 0
        self.sender.sequences.on_producer_id(77, 0)
        self.finished: list[ProducerBatch] = []
        self.other: list[Effect] = []
        self.lead(leader)
        self.queue: SendQueue = self.sender.queues.of(TP, self.view)
        self.queue.known, self.queue.producer_id, self.queue.producer_epoch = known, 77, 0

    def lead(self, leader: int) -> None:
        answer = pb.MetadataResponse()
        for broker in (1, 2, 3):
            answer.brokers.add(broker_id=broker, endpoints={"GRPC": f"broker{broker}:1"})
        topic = answer.topics.add(topic="orders", topic_id=b"i" * 16)
        topic.partitions.add(partition=0, leader_id=leader, leader_epoch=self.leader_epoch)
        self.leader_epoch += 1
        self.view.update(answer, "broker:1")
        self.take(self.sender.on_leaders(self.view, self.now))

    def take(self, effects: list[Effect]) -> None:
        self.finished += [effect.batch for effect in effects if isinstance(effect, BatchCompleted)]
        self.other += [effect for effect in effects if not isinstance(effect, BatchCompleted)]

    def put(self, *values: str, full: bool = True) -> ProducerBatch:
        """Records as one batch, which is full unless said otherwise."""
        batch = None
        for value in values:
            record = (self.now, None, value.encode(), ())
            batch = self.queue.add(record, 20, self.config.batch_size) or self.sender.open(
                self.queue, record, 20, self.now
            )
            self.sender.buffered_bytes += 20
        assert batch is not None
        if full:
            batch.close()
        return batch

    def drain(self, broker: int = 1, room: int = PLENTY, credit: int = PLENTY) -> list[ProducerBatch]:
        batches, effects = self.sender.drain(broker, self.now, room, credit)
        self.take(effects)
        return batches

    def drain_after(self, ms: int) -> list[ProducerBatch]:
        self.wait(ms)
        return self.drain()

    def sent(self, *values: str) -> list[ProducerBatch]:
        """A full batch for each record, on the wire."""
        batches = [self.put(value) for value in values]
        self.drain()
        return batches

    def break_stream(self) -> None:
        """Its answers are lost."""
        self.take(self.sender.on_stream_broken(1, self.now, BrokerUnreachable("gone")))

    def answer(self, batch: ProducerBatch, code: ErrorCode = ErrorCode.NONE, **fields: Any) -> None:
        answer = pb.ProduceAnswer(error_code=code, **{"base_offset": 5, "log_append_time_ms": -1, **fields})
        self.take(self.sender.on_answer(batch, answer, self.now, self.view))

    def wait(self, ms: int) -> None:
        self.now += ms
        self.take(self.sender.on_time(self.now))


def sequences(batches: list[ProducerBatch]) -> list[int]:
    return [read_header(batch.encoded).base_sequence for batch in batches]
