"""confluent-kafka (librdkafka): all that it can ask a cluster, and what it is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import confluent_kafka.admin
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    ElectionType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)

from tests.interop.scenarios.batches import first_batch
from tests.interop.scenarios.telling import (
    CODECS,
    COMPACTED,
    FOUR,
    FUTURE_MS,
    MORE,
    OLD_MS,
    ONE,
    PARTITIONS,
    PATIENCE_S,
    RECORDS,
    SMALL,
    STRICT,
    TIMED,
    Refused,
    Telling,
    eventually,
    until,
)

GROUPS: dict[str, dict[str, str]] = {
    "classic": {},
    "cooperative": {"partition.assignment.strategy": "cooperative-sticky"},
    "static": {"group.instance.id": "{member}", "session.timeout.ms": "6000"},
    "consumer": {"group.protocol": "consumer"},
}


def word_of(error: Exception) -> int | str:
    if isinstance(error, Refused):
        return error.word
    if isinstance(error, KafkaException):
        told = error.args[0]
        return int(told.code()) if told.code() > 0 else str(told.name())
    return f"{type(error).__name__}: {error}"


def check(error: KafkaError | None) -> None:
    if error is not None:
        raise KafkaException(error)


kadmin: Any = confluent_kafka.admin  # which does not export its types


class Confluent:
    """One run; `prefix` begins the names of all topics and groups."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._base: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "log_level": 0,
            "topic.metadata.propagation.max.ms": 2000,
        }
        self._prefix = prefix
        self._admin: Any = kadmin.AdminClient(self._base)
        self.telling = Telling(word_of)

    def topic(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    # --- Data ---------------------------------------------------------------------------------------------------------

    def produce(
        self, topic: str, values: Iterable[bytes], *, partitions: int = 1, key: bytes | None = b"k", **settings: Any
    ) -> list[str]:
        """The outcomes, sorted: "" for an acknowledged record, or its error."""
        producer = Producer({**self._base, **settings})
        told: list[str] = []
        now_ms = round(time.time() * 1000)

        def delivered(error: KafkaError | None, _message: Message) -> None:
            told.append("" if error is None else Refused(word_of(KafkaException(error))).word)

        for number, value in enumerate(values):
            place: dict[str, Any] = {"partition": number % partitions, "timestamp": now_ms + number}
            producer.produce(topic, value, key=key, on_delivery=delivered, **place)
        producer.flush(PATIENCE_S)
        return sorted(told)

    def data(self) -> None:
        values = [b"%d" % number for number in range(RECORDS)]
        ways: dict[str, dict[str, Any]] = {f"produce, acks={acks}": {"acks": acks} for acks in (0, 1, "all")}
        ways["produce, idempotent"] = {"enable.idempotence": True}
        ways |= {f"produce, {codec}": {"compression.type": codec} for codec in CODECS}
        for way, settings in ways.items():
            self.telling.of(way, partial(self.produce, self.topic(ONE), values, **settings))
        self.telling.of("consume by assignment", lambda: self.assigned(RECORDS * len(ways)))
        self.telling.of("produce a record that is too large", lambda: self.produce(self.topic(SMALL), [bytes(9000)]))
        self.telling.of(
            "produce without a key to a compacted topic", lambda: self.produce(self.topic(COMPACTED), [b"x"], key=None)
        )
        self.telling.of("produce to an unknown topic", lambda: self.produce(self.topic("none"), [b"x"]))
        self.telling.of("consume out of range", lambda: self.refused_read(TopicPartition(self.topic(ONE), 0, 10_000)))
        unknown = TopicPartition(self.topic("none"), 0, 0)
        self.telling.of("consume an unknown topic", lambda: self.refused_read(unknown))

    def times(self) -> None:
        """Of a topic with LogAppendTime; of one with CreateTime only what is refused."""
        tell, timed = self.telling.of, self.topic(TIMED)
        future = partial(self.sent_at, self.topic(ONE), [FUTURE_MS])
        tell("produce a record of the far future", future)
        told = self.sent_at(timed, [OLD_MS, FUTURE_MS, OLD_MS])
        answered_ms = told[0][1]
        tell("log append times", lambda: [[kind, at_ms == answered_ms > OLD_MS] for kind, at_ms in told])
        tell("records with log append times", lambda: [each == told[0] for each in self.times_of(timed, len(told))])
        tell("offsets by log append time", lambda: [self.by_time(timed, ms) for ms in (OLD_MS + 1, answered_ms + 1)])
        header = first_batch(self.leader_of(timed), timed)
        tell("a batch with log append time", lambda: {
            "attributes": header.attributes, "base timestamp": header.base_timestamp,
            "max timestamp as answered": header.max_timestamp == answered_ms,
        })  # fmt: skip

    def codecs(self) -> None:
        """Of topics with a `compression.type`: what their leaders make of a batch in another codec."""
        for codec in (*CODECS, "uncompressed"):
            topic = f"{self.topic(ONE)}-{codec}"
            self.created(kadmin.NewTopic(topic, 1, 3, config={"compression.type": codec}))
            self.telling.of(f"a batch for a topic with {codec}", partial(self.compressed_anew, topic, codec))
        for value in ("none", "GZIP"):
            topic = kadmin.NewTopic(f"{self.topic(ONE)}-x", 1, 3, config={"compression.type": value})
            self.telling.of(f"create a topic with {value}", partial(self.created, topic))

    def compressed_anew(self, topic: str, codec: str) -> dict[str, Any]:
        sent = "zstd" if codec == "gzip" else "gzip"
        settings: dict[str, Any] = {"compression.type": sent, "linger.ms": 1000, "enable.idempotence": True}
        outcomes = self.produce(topic, [b"%d" % number * 100 for number in range(RECORDS)], **settings)
        header = first_batch(self.leader_of(topic), topic)
        told = {"attributes": header.attributes, "records": header.record_count, "first sequence": header.base_sequence}
        return {"outcomes": outcomes, **told}

    def sent_at(self, topic: str, times_ms: Iterable[int]) -> list[tuple[int, int]]:
        """Records of one batch with these times: the kind and the value of those that they got. Raises their error."""
        producer = Producer({**self._base, "linger.ms": 1000})
        told: list[tuple[int, int]] = []
        errors: list[KafkaError] = []

        def delivered(error: KafkaError | None, message: Message) -> None:
            told.append(message.timestamp()) if error is None else errors.append(error)

        for at_ms in times_ms:
            producer.produce(topic, b"x", partition=0, timestamp=at_ms, on_delivery=delivered)
        producer.flush(PATIENCE_S)
        check(errors[0] if errors else None)
        return told

    def times_of(self, topic: str, wanted: int) -> list[tuple[int, int]]:
        consumer = self.consumer("unused")
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        found: list[tuple[int, int]] = []
        while len(found) < wanted:
            found += [message.timestamp() for message in consumer.consume(wanted - len(found), PATIENCE_S)]
        consumer.close()
        return found

    def by_time(self, topic: str, at_ms: int) -> int:
        consumer = self.consumer("unused")
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, at_ms)], timeout=PATIENCE_S)
        consumer.close()
        return int(found.offset)

    def leader_of(self, topic: str) -> str:
        found = self._admin.list_topics(topic, timeout=PATIENCE_S)
        leader = found.brokers[found.topics[topic].partitions[0].leader]
        return f"{leader.host}:{leader.port}"

    def consumer(self, group: str, **settings: Any) -> Consumer:
        own = {"group.id": f"{self._prefix}-{group}", "auto.offset.reset": "earliest", "enable.auto.commit": False}
        return Consumer({**self._base, **own, **settings})

    def assigned(self, wanted: int) -> dict[str, Any]:
        consumer = self.consumer("unused")
        partition = TopicPartition(self.topic(ONE), 0, OFFSET_BEGINNING)
        consumer.assign([partition])
        found = 0
        while found < wanted:
            messages = consumer.consume(wanted, PATIENCE_S)
            assert messages, found
            for message in messages:
                check(message.error())
            found += len(messages)
        ends = list(consumer.get_watermark_offsets(partition, timeout=PATIENCE_S))
        (by_time,) = consumer.offsets_for_times([TopicPartition(self.topic(ONE), 0, 1)], timeout=PATIENCE_S)
        consumer.close()
        return {"records": found, "first and end": ends, "by time": by_time.offset}

    def refused_read(self, partition: TopicPartition) -> None:
        consumer = self.consumer("unused", **{"auto.offset.reset": "error"})
        try:
            consumer.assign([partition])
            message = consumer.poll(PATIENCE_S)
            assert message is not None
            check(message.error())
        finally:
            consumer.close()

    # --- Groups -------------------------------------------------------------------------------------------------------

    def groups(self) -> None:
        for kind, settings in GROUPS.items():
            self.telling.of(f"group, {kind}", partial(self.group, kind, settings))

    def group(self, kind: str, settings: Mapping[str, str]) -> dict[str, Any]:
        """Two members share the topic, commit and close; a third is given what nobody has read."""
        topic = f"{self.topic(FOUR)}-{kind}"
        self.created(kadmin.NewTopic(topic, PARTITIONS, 3))
        self.produce(topic, [b"%d" % number for number in range(RECORDS)], partitions=PARTITIONS)

        def member(name: str) -> Consumer:
            own = {key: value.format(member=name) for key, value in settings.items()}
            consumer = self.consumer(kind, **own)
            consumer.subscribe([topic])
            return consumer

        both = [member("a"), member("b")]
        first = self.read(both, lambda found: len(found) == RECORDS and shared(both))
        for consumer in both:
            consumer.commit(asynchronous=False)
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        committed = [each.offset for each in both[0].committed(partitions, timeout=PATIENCE_S)]
        for consumer in both:
            consumer.close()
        self.produce(topic, [b"%d" % number for number in range(RECORDS, RECORDS + MORE)], partitions=PARTITIONS)
        third = member("a")
        then = self.read([third], lambda found: len(found) == MORE)
        third.close()
        return {"read": len(first), "committed": committed, "then": sorted(then)}

    def read(self, consumers: list[Consumer], done: Callable[[set[int]], bool]) -> set[int]:
        found: set[int] = set()
        for _ in until(partial(done, found)):
            for consumer in consumers:
                message = consumer.poll(0.05)
                if message is not None:
                    check(message.error())
                    found.add(int(message.value() or b""))
        return found

    # --- Administration -----------------------------------------------------------------------------------------------

    def created(self, *topics: kadmin.NewTopic, **options: Any) -> None:
        for future in self._admin.create_topics(list(topics), **options).values():
            future.result(PATIENCE_S)

    def create(self) -> None:
        topic, tell = self.topic("admin"), self.telling.of
        tell("create a topic", lambda: self.created(kadmin.NewTopic(topic, 2, 3, config={"retention.ms": "100000"})))
        tell("create a topic again", lambda: self.created(kadmin.NewTopic(topic, 2, 3)))
        other = self.topic("other")
        tell("create, only validated", lambda: self.created(kadmin.NewTopic(other, 2, 3), validate_only=True))
        refused = {
            "with a name that cannot be": kadmin.NewTopic("no good", 1, 1),
            "with the name of a dot": kadmin.NewTopic(".", 1, 1),
            "with too many replicas": kadmin.NewTopic(other, 1, 4),
            "without replicas": kadmin.NewTopic(other, 1, 0),
            "without partitions": kadmin.NewTopic(other, 0, 1),
            "with an unknown config": kadmin.NewTopic(other, 1, 1, config={"no.such": "1"}),
            "with a value that is no number": kadmin.NewTopic(other, 1, 1, config={"retention.ms": "soon"}),
            "with a value out of range": kadmin.NewTopic(other, 1, 1, config={"min.insync.replicas": "0"}),
            "on a broker twice": kadmin.NewTopic(other, 1, replica_assignment=[[1, 1]]),
            "on an unknown broker": kadmin.NewTopic(other, 1, replica_assignment=[[1, 9]]),
        }
        for what, wanted in refused.items():
            tell(f"create {what}", partial(self.created, wanted))
        tell("describe topics", lambda: self.described(topic))
        tell("describe an unknown topic", lambda: self.described(other))
        for what, partitions in {"add partitions": 4, "add no partitions": 4, "take partitions away": 1}.items():
            tell(what, partial(self.all_of,
                self._admin.create_partitions([kadmin.NewPartitions(topic, partitions)])))  # fmt: skip
        tell("add partitions to an unknown topic", lambda: self.all_of(
            self._admin.create_partitions([kadmin.NewPartitions(other, 2)])))  # fmt: skip

    def all_of(self, futures: Mapping[Any, Any]) -> list[Any]:
        return [future.result(PATIENCE_S) for future in futures.values()]

    def described(self, topic: str) -> Any:
        (found,) = self.all_of(self._admin.describe_topics(TopicCollection([topic])))
        return [[sorted(node.id for node in each.replicas), len(each.isr)] for each in found.partitions]

    def configs(self) -> None:
        topic, tell, admin = self.topic("admin"), self.telling.of, self._admin

        def described(kind: str, name: str, *wanted: str) -> Any:
            (found,) = self.all_of(admin.describe_configs([kadmin.ConfigResource(kind, name)], request_timeout=5))
            return {each: [found[each].value, found[each].source, found[each].is_default] for each in wanted}

        def altered(kind: str, name: str, config: str, value: str, how: kadmin.AlterConfigOpType) -> Any:
            entry = kadmin.ConfigEntry(config, value, incremental_operation=how)
            return self.all_of(
                admin.incremental_alter_configs([kadmin.ConfigResource(kind, name, incremental_configs=[entry])])
            )

        def replaced(resource: Any) -> Any:
            return self.all_of(admin.alter_configs([resource]))

        wanted = ("retention.ms", "cleanup.policy", "min.insync.replicas", "max.message.bytes")
        tell("describe configs", lambda: described("topic", topic, *wanted))
        tell("describe configs of an unknown topic", lambda: described("topic", self.topic("none")))
        tell("describe configs of a broker", lambda: described("broker", "1", "node.id", "num.partitions"))
        tell("describe configs of an unknown broker", lambda: described("broker", "9", "node.id"))
        operations = kadmin.AlterConfigOpType
        for what, kind, name, config, value, how in (
            ("set a config", "topic", topic, "retention.ms", "200000", operations.SET),
            ("append to a config", "topic", topic, "cleanup.policy", "compact", operations.APPEND),
            ("subtract from a config", "topic", topic, "cleanup.policy", "compact", operations.SUBTRACT),
            ("append to a number", "topic", topic, "retention.ms", "1", operations.APPEND),
            ("set an unknown config", "topic", topic, "no.such", "1", operations.SET),
            ("set a config to no number", "topic", topic, "retention.ms", "soon", operations.SET),
            ("set a config of an unknown topic", "topic", self.topic("none"), "retention.ms", "1", operations.SET),
            ("set a config that only a restart changes", "broker", "1", "node.id", "7", operations.SET),
            ("delete a config", "topic", topic, "retention.ms", "", operations.DELETE),
        ):
            tell(what, partial(altered, kind, name, config, value, how))  # fmt: skip
        tell("configs after all this", lambda: eventually(
            lambda: described("topic", topic, *wanted), lambda found: found["retention.ms"][2]))  # fmt: skip
        for what, name in {"alter configs": "retention.ms", "alter an unknown config": "no.such"}.items():
            resource = kadmin.ConfigResource("topic", topic, set_config={name: "300000"})
            tell(f"{what} as before KIP-339", partial(replaced, resource))

    def offsets(self) -> None:
        tell, admin, one = self.telling.of, self._admin, self.topic(FOUR)
        self.produce(one, [b"%d" % number for number in range(RECORDS)], partitions=PARTITIONS)

        def listed(spec: kadmin.OffsetSpec, topic: str, partition: int = 0) -> Any:
            return [each.offset for each in self.all_of(admin.list_offsets({TopicPartition(topic, partition): spec}))]

        for what, spec in {
            "earliest": kadmin.OffsetSpec.earliest(),
            "latest": kadmin.OffsetSpec.latest(),
            "newest": kadmin.OffsetSpec.max_timestamp(),
            "by time": kadmin.OffsetSpec.for_timestamp(1),
            "after the end of time": kadmin.OffsetSpec.for_timestamp(2**62),
        }.items():
            tell(f"list offsets, {what}", partial(listed, spec, one))
        tell("list offsets of an unknown topic", lambda: listed(kadmin.OffsetSpec.latest(), self.topic("none")))
        tell("list offsets of an unknown partition", lambda: listed(kadmin.OffsetSpec.latest(), one, 9))

        def cut(topic: str, offset: int, partition: int = 0) -> Any:
            wanted = [TopicPartition(topic, partition, offset)]
            return [each.low_watermark for each in self.all_of(admin.delete_records(wanted))]

        tell("delete records", lambda: cut(one, 3))
        tell("delete records that are gone", lambda: cut(one, 2))
        tell("delete records beyond the end", lambda: cut(one, 1_000_000))
        tell("delete records of an unknown topic", lambda: cut(self.topic("none"), 1))
        tell("delete records of an internal topic", lambda: cut("__consumer_offsets", 0))
        tell("consume what was deleted", lambda: self.refused_read(TopicPartition(one, 0, 1)))

        def elected(topic: str, partition: int, kind: ElectionType) -> Any:
            found = admin.elect_leaders(kind, [TopicPartition(topic, partition)]).result(PATIENCE_S)
            return [None if error is None else error.name() for error in found.values()]

        for what, kind in {"preferred": ElectionType.PREFERRED, "unclean": ElectionType.UNCLEAN}.items():
            tell(f"elect, {what}", partial(elected, one, 1, kind))
            tell(f"elect for an unknown partition, {what}", partial(elected, one, 99, kind))

    def cluster(self) -> None:
        tell, admin = self.telling.of, self._admin
        anything = kadmin.AclBindingFilter(
            kadmin.ResourceType.ANY,
            None,
            kadmin.ResourcePatternType.ANY,
            None,
            None,
            kadmin.AclOperation.ANY,
            kadmin.AclPermissionType.ANY,
        )

        def metadata() -> Any:
            found = admin.list_topics(timeout=PATIENCE_S)
            return {"brokers": sorted(found.brokers), "partitions": len(found.topics[self.topic(FOUR)].partitions)}

        def described() -> Any:
            found = admin.describe_cluster().result(PATIENCE_S)
            return {"brokers": sorted(node.id for node in found.nodes), "controller": found.controller is not None}

        tell("metadata", metadata)
        tell("describe the cluster", described)
        tell("describe ACLs without an authorizer", lambda: admin.describe_acls(anything).result(PATIENCE_S))
        tell("describe credentials of an unknown user",
             lambda: self.all_of(admin.describe_user_scram_credentials(["nobody"])))  # fmt: skip

    def group_administration(self) -> None:
        tell, admin = self.telling.of, self._admin
        group, kind = f"{self._prefix}-classic", "classic"
        topic = f"{self.topic(FOUR)}-{kind}"

        def listed() -> Any:
            found = admin.list_consumer_groups().result(PATIENCE_S).valid
            own = {each.group_id.removeprefix(self._prefix): each for each in found}
            own = {name: each for name, each in own.items() if name != each.group_id}
            passing = "STABLE or EMPTY"  # of static members that went: their sessions may be over, or not yet
            return [
                [name, passing if name == "-static" else each.state.name, each.type.name]
                for name, each in sorted(own.items())
            ]

        def described(name: str) -> Any:
            (found,) = self.all_of(admin.describe_consumer_groups([name]))
            return [found.state.name, found.type.name, found.partition_assignor, len(found.members)]

        def offsets(name: str) -> Any:
            (found,) = self.all_of(admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)]))
            return sorted(
                [each.topic.removeprefix(self._prefix), each.partition, each.offset] for each in found.topic_partitions
            )

        def altered(name: str, wanted: TopicPartition) -> Any:
            request = [ConsumerGroupTopicPartitions(name, [wanted])]
            (found,) = self.all_of(admin.alter_consumer_group_offsets(request))
            return [each.error and each.error.name() for each in found.topic_partitions]

        def deleted(name: str) -> Any:
            return self.all_of(admin.delete_consumer_groups([name]))

        first, unknown = TopicPartition(topic, 0, 3), f"{self._prefix}-nobody"
        member = self.consumer(kind)
        member.subscribe([topic])
        for _ in until(lambda: len(member.assignment()) == PARTITIONS):
            member.poll(0.1)
        tell("produce to an internal topic", lambda: self.produce("__consumer_offsets", [b"x"]))
        tell("list groups", listed)
        tell("describe a group", lambda: described(group))
        tell("describe a group of KIP-848", lambda: described(f"{self._prefix}-consumer"))
        tell("describe an unknown group", lambda: described(unknown))
        tell("offsets of a group", lambda: offsets(group))
        tell("offsets of an unknown group", lambda: offsets(unknown))
        tell("alter offsets of a group with members", lambda: altered(group, first))
        tell("delete a group with members", lambda: deleted(group))
        member.close()
        tell("alter offsets of a group", lambda: altered(group, first))
        tell("alter offsets of an unknown partition", lambda: altered(group, TopicPartition(topic, 99, 3)))
        tell("offsets of a group after that", lambda: offsets(group))
        tell("delete a group", lambda: deleted(group))
        tell("delete an unknown group", lambda: deleted(unknown))

    def below_min_isr(self) -> None:
        """With a broker too few for `min.insync.replicas`; acks=1 still writes."""
        topic = self.topic(STRICT)
        for acks in ("all", 1):
            way = f"produce below min.insync.replicas, acks={acks}"
            self.telling.of(way, partial(self.produce, topic, [b"x"], acks=acks, retries=0))

    def parts(self, phase: str) -> list[Callable[[], None]]:
        """All scenarios of a phase, by their subject."""
        if phase == "below":
            return [self.below_min_isr]
        return [
            self.cluster, self.data, self.times, self.codecs, self.groups, self.group_administration, self.create,
            self.configs, self.offsets, self.delete,
        ]  # fmt: skip

    def delete(self) -> None:
        for what, name in {"delete a topic": "admin", "delete an unknown topic": "none"}.items():
            self.telling.of(what, partial(self.all_of, self._admin.delete_topics([self.topic(name)])))


def shared(members: Iterable[Consumer]) -> bool:
    """Each of two members has its half, and has read it."""
    owned = [member.position(member.assignment()) for member in members]
    return [len(each) for each in owned] == [2, 2] and all(
        partition.offset == RECORDS // PARTITIONS for each in owned for partition in each
    )


def run(bootstrap: str, prefix: str, phase: str) -> dict[str, Any]:
    client = Confluent(bootstrap, prefix)
    for part in client.parts(phase):
        part()
    return client.telling.results
