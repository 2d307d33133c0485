"""Requests of producers, consumers and administrators on the stage, and their responses.

Every answer is the broker's own. `history` has what an audit compares with the logs.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar, cast

from odradek_audit.inputs.history import ACK, DELIVER, SEND, Event
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import FollowerFetch
from odradek_broker.requests.fetch import FetchRequest, FetchRequests
from odradek_broker.requests.fetch_answers import PendingFetch
from odradek_broker.requests.offsets import LATEST
from odradek_broker.requests.records import DeleteRecords, RecordRequests
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.replicas.purgatory import AnswerCallback, ProduceAnswer
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.records import check_batch
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import Files

from odradek_chaos.stage.disk import batches_in
from odradek_chaos.stage.exchange import CALLER, Exchange, end_of_epoch, list_offset
from odradek_chaos.stage.metadata import ORDERS
from odradek_chaos.stage.node import StageNode
from odradek_chaos.stage.said import (
    PRODUCER,
    BatchAnswered,
    Comment,
    ConsumerRead,
    DuplicateBatch,
    MessageFate,
    MessageSent,
)
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

T = TypeVar("T")
CONSUMER = "consumer"
ACKS_ALL = -1


class Clients(Exchange):
    """The commands of clients. Time is that of a loop, in which answers come when they are due."""

    def __init__(self) -> None:
        super().__init__()
        self._loop = SimLoop()
        self._clock = SimClock(self._loop, random.Random(0))
        self._asked: list[asyncio.Task[None]] = []  # answered later
        self.history: list[Event] = []

    def do_produce(
        self,
        number: str,
        *values: str,
        acks: str = "all",
        timeout: str = "30000",
        producer: str = "-1",
        epoch: str = "-1",
        sequence: str = "-1",
        lose: str = "",
    ) -> None:
        node = self.nodes[int(number)]
        following = int(sequence)
        for value in values:
            records = tuple(value.split("+"))
            batch = encode_batch(
                [(self._clock.wall_ms(), None, each.encode(), ()) for each in records],
                producer_id=int(producer),
                producer_epoch=int(epoch),
                base_sequence=following,
            )
            following += len(records) if int(producer) >= 0 else 0
            wanted = ACKS_ALL if acks == "all" else int(acks)
            self._note_repetition(node, value, batch, wanted)
            client = _client(wanted, records[0])
            self.history += [Event(SEND, ORDERS.topic, 0, each.encode(), client=client) for each in records]
            node.here.produce(memoryview(batch), wanted, int(timeout), self._answered(node.number, value, wanted, lose))
            self._answer_woken()

    def _note_repetition(self, node: StageNode, value: str, batch: bytes, acks: int) -> None:
        """A repeated batch is not written and waits as the first one did (R-16): there is nothing to see but this."""
        if isinstance(node.role, LeaderPartition):
            header = check_batch(memoryview(batch))
            decision = node.leader.prepare_append(header, acks, self._clock.now_ms(), self._clock.wall_ms())
            if decision.duplicate:
                self._say(DuplicateBatch(value, decision.base_offset))

    def _answered(self, number: int, value: str, acks: int, lose: str) -> AnswerCallback:
        def say(answer: ProduceAnswer) -> None:
            if lose:
                self._say(
                    MessageSent(
                        (f"b{number}"),
                        PRODUCER,
                        f"{value} {answer.error.name}",
                        MessageFate.LOST,
                        words=f"{value} acknowledged,",
                    )
                )
                return
            detail = f": {answer.message}" if answer.message else ""
            if answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
                who = f"leader=b{answer.leader_id}" if answer.leader_id >= 0 else "leader=none"
                detail = f" {who} epoch={answer.leader_epoch}"
            elif answer.error is ErrorCode.NONE:
                for offset, each in enumerate(value.split("+"), answer.base_offset):
                    said = "all" if acks == ACKS_ALL else acks
                    client = _client(acks, value.split("+")[0])
                    self.history.append(Event(ACK, ORDERS.topic, 0, each.encode(), offset, said, client))
            self._say(BatchAnswered(value, answer.error, answer.base_offset, acks, detail))

        return say

    def do_read(self, number: str, *, epoch: str = "-1", min: str = "1", wait: str = "0", **named: str) -> None:
        """A consumer's fetch from an offset (`from=2`). Its answer may come later (R-121)."""
        fetch = PendingFetch(ORDERS, int(named["from"]), int(epoch), -1, -1, 1 << 20)
        request = FetchRequest([fetch], int(wait), int(min), 1 << 20)
        self._asked.append(self._loop.create_task(self._read(self.nodes[int(number)], request, fetch.fetch_offset)))

    async def _read(self, node: StageNode, request: FetchRequest, offset: int) -> None:
        requests = FetchRequests(
            clock=self._clock,
            files=cast("Files", _AtOnce()),
            lookup=lambda tp, topic_id: node.here,
            purgatory=node.purgatory,
            counters=node.counters,
            max_bytes=1 << 20,
        )
        begun_ms = self._clock.now_ms()
        (fetched,) = await requests.fetch(CALLER, request)
        waited_ms = self._clock.now_ms() - begun_ms
        batches = batches_in(fetched.buffers)
        found = [record for each in batches for record in each.records()]
        for at, value in found:
            self.history.append(Event(DELIVER, ORDERS.topic, 0, value.encode(), at, client=CONSUMER))
        waited = waited_ms if request.max_wait_ms else None
        error, values = fetched.decision.error, [value for _, value in found]
        self._say(ConsumerRead(offset, error, [str(each) for each in batches], values, waited))

    def do_latest(self, number: str) -> None:
        error, offset = list_offset(self.nodes[int(number)], -1, LATEST, -1)
        self._say(Comment(f"latest: {offset if error == ErrorCode.NONE else error.name}"))

    def do_delete(self, number: str, offset: str, *, timeout: str = "30000") -> None:
        """DeleteRecords: everything below the offset goes. Its answer may come later (R-125)."""
        self._asked = [each for each in self._asked if not each.done()]
        self._asked.append(self._loop.create_task(self._delete(self.nodes[int(number)], int(offset), int(timeout))))

    async def _delete(self, node: StageNode, offset: int, timeout_ms: int) -> None:
        requests = RecordRequests(replicas=cast("ReplicaManager", _Replicas(node)), broker_id=node.number)
        (deleted,) = await requests.delete_records(CALLER, [DeleteRecords(ORDERS, offset)], timeout_ms)
        said = "done" if deleted.error is ErrorCode.NONE else deleted.error.name
        self._say(Comment(f"delete below {offset}: {said}"))

    def do_probe(self, number: str, *, epoch: str = "-1", replica: str = "") -> None:
        """Fetch of a replica and of a consumer, ListOffsets and OffsetsForLeaderEpoch, one line each (R-111).

        The replica stands at the end of the log and says nothing of its epochs. Its position is not recorded.
        """
        node, believed = self.nodes[int(number)], int(epoch)
        other = int(replica) if replica else next(each.number for each in self.nodes.values() if each is not node)
        fetch = FollowerFetch(other, -1, node.open_log.log_end_offset, believed, -1, 0)
        answers = {
            f"fetch of b{other}": node.here.reread_for_follower(fetch).error,
            "fetch of a consumer": node.here.fetch_as_consumer(0, believed, -1, False).error,
            "ListOffsets": list_offset(node, believed, LATEST, other)[0],
            "OffsetsForLeaderEpoch": end_of_epoch(node, believed, 0, other)[0],
        }
        for request, error in answers.items():
            self._say(Comment(f"b{number} answers {request}: {error.name}"))


def _client(acks: int, value: str) -> str:
    """Who sends it: one producer, and for acks=1 each time another one, whose records may be lost."""
    return PRODUCER if acks == ACKS_ALL else f"{PRODUCER}-of-{value}"


class _AtOnce:
    """As files: reads away from the loop complete at once."""

    async def offload(self, work: Callable[[], T]) -> T:
        return work()


class _Replicas:
    """The part of `ReplicaManager` that `RecordRequests` uses: the one replica."""

    def __init__(self, node: StageNode) -> None:
        self._node = node

    def lookup(self, tp: TopicPartition, topic_id: bytes = b"") -> object:
        return self._node.here
