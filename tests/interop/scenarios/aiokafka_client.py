"""aiokafka: all that it can ask a cluster, and what it is told. An old client: nothing flexible, ApiVersions 0."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.admin.records_to_delete import RecordsToDelete
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from tests.interop.scenarios.telling import (
    CODECS,
    COMPACTED,
    FOUR,
    MORE,
    ONE,
    PARTITIONS,
    PATIENCE_S,
    RECORDS,
    SMALL,
    STRICT,
    Telling,
    name_of,
)

Act = Callable[[], Awaitable[Any]]
GROUPS: dict[str, dict[str, Any]] = {
    "classic": {"partition_assignment_strategy": (RangePartitionAssignor,)},
    "round robin": {"partition_assignment_strategy": (RoundRobinPartitionAssignor,)},
    "static": {"partition_assignment_strategy": (RangePartitionAssignor,), "group_instance_id": "{member}"},
}


def word_of(error: Exception) -> int | str:
    number = getattr(error, "errno", None)
    return number if isinstance(error, KafkaError) and isinstance(number, int) and number > 0 else type(error).__name__


class Aiokafka:
    """One run; `prefix` begins the names of all topics and groups."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self.telling = Telling(word_of)

    def topic(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    async def tell(self, scenario: str, act: Act) -> None:
        try:
            told = await asyncio.wait_for(act(), PATIENCE_S)
        except Exception as error:
            failure = error
            self.telling.of(scenario, lambda: _raise(failure))
        else:
            self.telling.of(scenario, lambda: told)

    async def produce(
        self, topic: str, values: Iterable[bytes], *, partitions: int = 1, key: bytes | None = b"k", **settings: Any
    ) -> list[str]:
        told = []
        now_ms = round(time.time() * 1000)
        async with AIOKafkaProducer(bootstrap_servers=self._bootstrap, **settings) as producer:
            for number, value in enumerate(values):
                place = {"partition": number % partitions, "timestamp_ms": now_ms + number}
                try:
                    await (await producer.send(topic, value, key, **place))
                    told.append("")
                except KafkaError as error:
                    word = word_of(error)
                    told.append(word if isinstance(word, str) else name_of(word))
        return told

    async def data(self) -> None:
        one, values = self.topic(ONE), [b"%d" % number for number in range(RECORDS)]
        ways: dict[str, dict[str, Any]] = {f"produce, acks={acks}": {"acks": acks} for acks in (0, 1, "all")}
        ways["produce, idempotent"] = {"enable_idempotence": True}
        ways |= {f"produce, {codec}": {"compression_type": codec} for codec in CODECS}
        for way, settings in ways.items():
            await self.tell(way, partial(self.produce, one, values, **settings))
        await self.tell("consume by assignment", lambda: self.assigned(RECORDS * len(ways)))
        await self.tell("produce a record that is too large", lambda: self.produce(self.topic(SMALL), [bytes(9000)]))
        await self.tell(
            "produce without a key to a compacted topic",
            lambda: self.produce(self.topic(COMPACTED), [b"x"], key=None, request_timeout_ms=3000),
        )
        await self.tell("produce to an unknown topic",
                        lambda: self.produce(self.topic("none"), [b"x"], request_timeout_ms=3000))  # fmt: skip
        await self.tell("consume out of range", lambda: self.refused_read(TopicPartition(one, 0), 10_000))

    def consumer(self, *topics: str, **settings: Any) -> AIOKafkaConsumer:
        own = {"bootstrap_servers": self._bootstrap, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        return AIOKafkaConsumer(*topics, **{**own, **settings})

    async def assigned(self, wanted: int) -> Any:
        partition = TopicPartition(self.topic(ONE), 0)
        async with self.consumer() as consumer:
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            found = 0
            while found < wanted:
                found += sum(map(len, (await consumer.getmany(timeout_ms=500)).values()))
            by_time = (await consumer.offsets_for_times({partition: 1}))[partition]
            ends = await consumer.beginning_offsets([partition]), await consumer.end_offsets([partition])
            return [found, *(each[partition] for each in ends), by_time.offset]

    async def refused_read(self, partition: TopicPartition, offset: int) -> None:
        async with self.consumer(auto_offset_reset="none") as consumer:
            consumer.assign([partition])
            consumer.seek(partition, offset)
            await consumer.getone()

    async def group(self, kind: str, settings: dict[str, Any]) -> Any:
        """Two members share the topic, commit and close; a third is given what nobody has read."""
        topic, name = f"{self.topic(FOUR)}-{kind.replace(' ', '-')}", f"{self._prefix}-{kind.replace(' ', '-')}"
        async with self.admin() as admin:
            await admin.create_topics([NewTopic(topic, PARTITIONS, 3)])
        await self.produce(topic, [b"%d" % number for number in range(RECORDS)], partitions=PARTITIONS)

        async def member(which: str) -> AIOKafkaConsumer:
            own = {
                key: value.format(member=which) if isinstance(value, str) else value for key, value in settings.items()
            }
            consumer = self.consumer(topic, group_id=name, **own)
            await consumer.start()
            return consumer

        both = await asyncio.gather(member("a"), member("b"))
        found: set[bytes | None] = set()
        while not (len(found) == RECORDS and await _shared(both)):
            for each in both:
                for records in (await each.getmany(timeout_ms=50)).values():
                    found |= {record.value for record in records}
        for each in both:
            await each.commit()
        committed = [await both[0].committed(TopicPartition(topic, number)) for number in range(PARTITIONS)]
        for each in both:
            await each.stop()
        await self.produce(topic, [b"more %d" % number for number in range(MORE)], partitions=PARTITIONS)
        then: set[bytes | None] = set()
        third = await member("a")
        while len(then) < MORE:
            for records in (await third.getmany(timeout_ms=200)).values():
                then |= {record.value for record in records}
        await third.stop()
        return {"read": len(found), "committed": committed, "then": len(then)}

    @contextlib.asynccontextmanager
    async def admin(self) -> Any:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    async def administration(self) -> None:
        topic, other, group = self.topic("admin"), self.topic("other"), f"{self._prefix}-classic"
        async with self.admin() as admin:

            async def created(*topics: NewTopic) -> Any:
                return [name_of(each[1]) for each in (await admin.create_topics(list(topics))).topic_errors]

            async def grown(name: str, count: int) -> Any:
                answer = await admin.create_partitions({name: NewPartitions(count)})
                return [name_of(each[1]) for each in answer.topic_errors]

            async def deleted(name: str) -> Any:
                return [name_of(each[1]) for each in (await admin.delete_topics([name])).topic_error_codes]

            async def configs(name: str) -> Any:
                """Kafka's brokers learn of a change after its caller: asked until one has that of before."""
                found = await configs_now(name)
                while name == topic and ["retention.ms", "200000"] not in found[1]:  # `tell` has the limit
                    found = await configs_now(name)
                return found

            async def configs_now(name: str) -> Any:
                (answer,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
                ((error, _message, _kind, _name, entries),) = answer.resources
                wanted = ("retention.ms", "min.insync.replicas", "cleanup.policy")
                return [name_of(error), sorted([each[0], each[1]] for each in entries if each[0] in wanted)]

            async def altered(config: str) -> Any:
                wanted = ConfigResource(ConfigResourceType.TOPIC, topic, {config: "200000"})
                (answer,) = await admin.alter_configs([wanted])
                return [name_of(each[0]) for each in answer.resources]

            async def described(name: str) -> Any:
                (answer,) = await admin.describe_consumer_groups([name])
                return [[name_of(each[0]), each[2], each[3], each[4]] for each in answer.groups]

            async def groups() -> Any:
                own = [each for each in await admin.list_consumer_groups() if each[0].startswith(f"{self._prefix}-")]
                return sorted([each[0].removeprefix(self._prefix), each[1]] for each in own)

            async def offsets(name: str) -> Any:
                found = await admin.list_consumer_group_offsets(name)
                return sorted([each.partition, committed.offset] for each, committed in found.items())

            async def cut(name: str, offset: int) -> Any:
                wanted = {TopicPartition(name, 0): RecordsToDelete(before_offset=offset)}
                return list((await admin.delete_records(wanted, timeout_ms=3000)).values())

            async def metadata(name: str) -> Any:
                (found,) = await admin.describe_topics([name])
                return [name_of(found["error_code"]), len(found["partitions"])]

            async def brokers() -> Any:
                return sorted(each["node_id"] for each in (await admin.describe_cluster())["brokers"])

            scenarios: dict[str, Act] = {
                "describe the cluster": brokers,
                "create a topic": lambda: created(NewTopic(topic, 2, 3)),
                "create a topic again": lambda: created(NewTopic(topic, 2, 3)),
                "create with a name that cannot be": lambda: created(NewTopic("no good", 1, 1)),
                "create with too many replicas": lambda: created(NewTopic(other, 1, 4)),
                "create with an unknown config": lambda: created(NewTopic(other, 1, 1, topic_configs={"no.such": "1"})),
                "describe topics": lambda: metadata(topic),
                "describe an unknown topic": lambda: metadata(other),
                "add partitions": lambda: grown(topic, 4),
                "take partitions away": lambda: grown(topic, 1),
                "alter configs as before KIP-339": lambda: altered("retention.ms"),
                "alter an unknown config as before KIP-339": lambda: altered("no.such"),
                "describe configs": lambda: configs(topic),
                "describe configs of an unknown topic": lambda: configs(other),
                "list groups": groups,
                "describe a group": lambda: described(group),
                "describe an unknown group": lambda: described(f"{self._prefix}-nobody"),
                "offsets of a group": lambda: offsets(group),
                "offsets of an unknown group": lambda: offsets(f"{self._prefix}-nobody"),
                "delete records": lambda: cut(self.topic(ONE), 5),
                "delete records beyond the end": lambda: cut(self.topic(ONE), 1_000_000),
                "delete a topic": lambda: deleted(topic),
                "delete an unknown topic": lambda: deleted(other),
            }
            for scenario, act in scenarios.items():
                await self.tell(scenario, act)

    async def whole(self) -> None:
        await self.data()
        for kind, settings in GROUPS.items():
            await self.tell(f"group, {kind}", partial(self.group, kind, settings))
        await self.administration()

    async def below_min_isr(self) -> None:
        """With a broker too few for `min.insync.replicas`; acks=1 still writes."""
        for acks in ("all", 1):
            await self.tell(
                f"produce below min.insync.replicas, acks={acks}",
                partial(self.produce, self.topic(STRICT), [b"x"], acks=acks, request_timeout_ms=3000),
            )


async def _shared(members: Sequence[AIOKafkaConsumer]) -> bool:
    """Each of two members has its half, and has read it."""
    owned = [[await member.position(each) for each in member.assignment()] for member in members]
    return owned == [[RECORDS // PARTITIONS] * 2] * 2


def _raise(error: Exception) -> None:
    raise error


def run(bootstrap: str, prefix: str, phase: str) -> dict[str, Any]:
    client = Aiokafka(bootstrap, prefix)
    asyncio.run(client.below_min_isr() if phase == "below" else client.whole())
    return client.telling.results
