"""A writer in the simulated world that speaks Kafka's protocol: several Produce requests of a partition on the wire.

It is as simple as a client of Kafka can be: not idempotent, so that nothing is repeated that may have been written. A
burst of records goes out, one request for each, before the first answer is read; answers must come in that order (K-8).
What was refused altogether is offered again; what had no answer is unknown, and stays so.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Sequence

from odradek_broker.kafka.messages.primitives import MessageReader
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.ports import NetworkError
from odradek_proto.values import Value

from odradek_chaos.harness.workload import Acks, Ledger
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.net.kafka_client import KafkaClientConnection

KAFKA_WRITER = "p1"  # the name of its machine, with which its clients' names and its values begin
PRODUCE, METADATA = 0, 3
PRODUCE_VERSION, METADATA_VERSION = 3, 5
BURST = 5  # max.in.flight.requests.per.connection of Java's producer
ANSWER_MS, RETRY_MS = 2_000, 50
_REFUSED = frozenset(  # nothing was written
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
_UNKNOWN = frozenset(  # as in Kafka, the first two also end the wait for replicas: then the record may be kept
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class WriteOutcome(Value, frozen=True):
    """Of one record. Without an error `offset` is where it was written."""

    error: ErrorCode
    offset: int = -1

    @property
    def is_refusal(self) -> bool:
        return self.error in _REFUSED


class KafkaWriter:
    """One process, with a connection for each partition."""

    def __init__(
        self,
        ports: NodePorts,
        ledger: Ledger,
        name: str,
        brokers: Sequence[str],
        *,
        acks: Acks,
        pause_ms: Callable[[], float],
        on_send: Callable[[TopicPartition], None],
    ) -> None:
        self.name = name
        self._ports = ports
        self._ledger = ledger
        self._brokers = brokers
        self._acks: Acks = acks
        self._pause_ms = pause_ms
        self._on_send = on_send
        self._connections: dict[TopicPartition, KafkaClientConnection] = {}
        self._numbers: dict[TopicPartition, int] = {}
        self._stopping = False

    def stop(self) -> None:
        self._stopping = True

    async def run(self, tps: Sequence[TopicPartition]) -> None:
        """Until `stop`; then everything has its outcome."""
        await asyncio.gather(*(self._write(tp) for tp in tps))

    async def _write(self, tp: TopicPartition) -> None:
        rng, clock = self._ports.clock.rng, self._ports.clock
        while not self._stopping:
            values = [self._next(tp) for _ in range(rng.randint(1, BURST))]
            outcomes = await self._offer(tp, values)
            while all(each.is_refusal for each in outcomes) and not self._stopping:
                await clock.sleep(RETRY_MS)
                outcomes = await self._offer(tp, values)
            for value, outcome in zip(values, outcomes, strict=True):
                if outcome.error is ErrorCode.NONE:
                    self._ledger.ack(*tp, value, self.name, self._acks, outcome.offset)
                else:
                    self._ledger.error(*tp, value, self.name, definite=outcome.is_refusal)
            await clock.sleep(self._pause_ms())

    def _next(self, tp: TopicPartition) -> bytes:
        number = self._numbers.get(tp, 0)
        self._numbers[tp] = number + 1
        value = f"{self.name}/{tp.partition}/{number}".encode()
        self._on_send(tp)
        self._ledger.send(*tp, value, self.name, self._acks)
        return value

    async def _offer(self, tp: TopicPartition, values: Sequence[bytes]) -> list[WriteOutcome]:
        """One outcome for each, in their order."""
        outcomes: list[WriteOutcome] = []
        unknown = ErrorCode.LEADER_NOT_AVAILABLE  # as long as nothing was sent
        try:
            async with asyncio.timeout(ANSWER_MS / 1000):
                connection = self._connections.get(tp)
                if connection is None:
                    connection = self._connections[tp] = await self._open_leader(tp)
                unknown = ErrorCode.REQUEST_TIMED_OUT
                asked = [await connection.send(PRODUCE, PRODUCE_VERSION, self._request(tp, each)) for each in values]
                for number in asked:
                    outcomes.append(_read(await connection.receive(number)))
        except (NetworkError, TimeoutError):
            self._disconnect(tp)
        outcomes += [WriteOutcome(unknown)] * (len(values) - len(outcomes))
        if any(each.error is not ErrorCode.NONE for each in outcomes):
            self._disconnect(tp)
        return outcomes

    def _request(self, tp: TopicPartition, value: bytes) -> bytes:
        """Without a transactional id, of one topic and one partition."""
        records = encode_batch([(self._ports.clock.wall_ms(), None, value, ())])
        topic = tp.topic.encode()
        head = struct.pack(">hhii", -1, -1 if self._acks == "all" else 1, ANSWER_MS, 1)
        return (
            head + struct.pack(">h", len(topic)) + topic + struct.pack(">iii", 1, tp.partition, len(records)) + records
        )

    def _disconnect(self, tp: TopicPartition) -> None:
        connection = self._connections.pop(tp, None)
        if connection is not None:
            connection.close()

    async def _open_leader(self, tp: TopicPartition) -> KafkaClientConnection:
        """A connection to whoever leads. Raises what the network raises, and TimeoutError while nobody does."""
        asked = await self._open(self._ports.clock.rng.choice(self._brokers))
        try:
            answer = await asked.ask(
                METADATA, METADATA_VERSION, {"topics": [{"name": tp.topic}], "allow_auto_topic_creation": False}
            )
        finally:
            asked.close()
        addresses = {each["node_id"]: f"{each['host']}:{each['port']}" for each in answer["brokers"]}
        for row in answer["topics"][0]["partitions"]:
            if row["partition_index"] == tp.partition and row["leader_id"] in addresses:
                return await self._open(addresses[row["leader_id"]])
        raise TimeoutError(f"nobody leads {tp}")

    async def _open(self, address: str) -> KafkaClientConnection:
        return await KafkaClientConnection.open(self._ports.network, address, self._ports.node, ANSWER_MS)


def _read(body: memoryview) -> WriteOutcome:
    """The answer for one topic and one partition."""
    reader = MessageReader(body)
    topics, _name, partitions, _index = reader.int32(), reader.string(flexible=False), reader.int32(), reader.int32()
    assert (topics, partitions) == (1, 1), bytes(body)
    outcome = WriteOutcome(ErrorCode(reader.int16()), reader.int64())
    assert outcome.error in (ErrorCode.NONE, *_REFUSED, *_UNKNOWN), f"a Produce is told {outcome.error.name}"
    return outcome
