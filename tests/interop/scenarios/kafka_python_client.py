"""kafka-python 3: all that it can ask a cluster, and what it is told."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import KafkaError

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
    eventually,
    name_of,
    until,
)

GROUPS: dict[str, dict[str, Any]] = {"classic": {}, "static": {"group_instance_id": "{member}"}}


def word_of(error: object) -> int | str:
    number = getattr(error, "errno", None)
    if isinstance(number, int) and number >= 0:
        return number
    return error.__name__ if isinstance(error, type) else type(error).__name__


def named(error: object) -> str:
    word = word_of(error)
    return word if isinstance(word, str) else name_of(word)


class KafkaPython:
    """One run; `prefix` begins the names of all topics and groups."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._admin: Any = KafkaAdminClient(bootstrap_servers=bootstrap)
        self.telling = Telling(word_of)

    def topic(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def produce(
        self, topic: str, values: Iterable[bytes], *, partitions: int = 1, key: bytes | None = b"k", **settings: Any
    ) -> list[str]:
        producer = KafkaProducer(bootstrap_servers=self._bootstrap, max_block_ms=5_000, **settings)
        told = []
        now_ms = round(time.time() * 1000)
        try:
            for number, value in enumerate(values):
                place = {"partition": number % partitions, "timestamp_ms": now_ms + number}
                try:
                    producer.send(topic, value, key, **place).get(PATIENCE_S)
                    told.append("")
                except KafkaError as error:
                    told.append(named(error))
        finally:
            producer.close()
        return told

    def data(self) -> None:
        one, values, tell = self.topic(ONE), [b"%d" % number for number in range(RECORDS)], self.telling.of
        plain = {"enable_idempotence": False}
        ways: dict[str, dict[str, Any]] = {f"produce, acks={acks}": {"acks": acks, **plain} for acks in (0, 1, "all")}
        ways["produce, idempotent"] = {}
        ways |= {f"produce, {codec}": {"compression_type": codec} for codec in CODECS if codec != "snappy"}
        for way, settings in ways.items():
            tell(way, partial(self.produce, one, values, **settings))
        tell("consume by assignment", lambda: self.assigned(RECORDS * len(ways)))
        tell("produce a record that is too large", lambda: self.produce(self.topic(SMALL), [bytes(9000)]))
        tell("produce without a key to a compacted topic",
             lambda: self.produce(self.topic(COMPACTED), [b"x"], key=None))  # fmt: skip
        tell("produce to an unknown topic", lambda: self.produce(self.topic("none"), [b"x"]))
        tell("consume out of range", lambda: self.refused_read(TopicPartition(one, 0), 10_000))

    def consumer(self, *topics: str, **settings: Any) -> KafkaConsumer:
        own = {"bootstrap_servers": self._bootstrap, "auto_offset_reset": "earliest", "enable_auto_commit": False}
        return KafkaConsumer(*topics, **{**own, **settings})

    def assigned(self, wanted: int) -> Any:
        partition, consumer = TopicPartition(self.topic(ONE), 0), self.consumer()
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        for _ in until(lambda: consumer.position(partition) >= wanted):
            consumer.poll(timeout_ms=500)
        read = consumer.position(partition)
        by_time = consumer.offsets_for_times({partition: 1})[partition].offset
        ends = [
            each[partition] for each in (consumer.beginning_offsets([partition]), consumer.end_offsets([partition]))
        ]
        consumer.close()
        return [read, *ends, by_time]

    def refused_read(self, partition: TopicPartition, offset: int) -> None:
        consumer = self.consumer(auto_offset_reset="none")
        try:
            consumer.assign([partition])
            consumer.seek(partition, offset)
            for _ in until(lambda: False):
                consumer.poll(timeout_ms=500)
        finally:
            consumer.close()

    def group(self, kind: str, settings: dict[str, Any]) -> Any:
        """Two members share the topic, commit and close; a third is given what nobody has read."""
        topic = f"{self.topic(FOUR)}-{kind}"
        self._admin.create_topics({topic: {"num_partitions": PARTITIONS, "replication_factor": 3}})
        self.produce(topic, [b"%d" % number for number in range(RECORDS)], partitions=PARTITIONS)

        def member(which: str) -> KafkaConsumer:
            own = {key: value.format(member=which) for key, value in settings.items()}
            return self.consumer(topic, group_id=f"{self._prefix}-{kind}", heartbeat_interval_ms=500, **own)

        def read(members: Sequence[KafkaConsumer], done: Callable[[set[bytes]], bool]) -> int:
            found: set[bytes] = set()
            for _ in until(partial(done, found)):
                for each in members:
                    for records in each.poll(timeout_ms=200).values():
                        found |= {record.value for record in records}
            return len(found)

        both = [member("a"), member("b")]
        first = read(both, lambda found: len(found) == RECORDS and _shared(both))
        for each in both:
            each.commit()
        committed = [both[0].committed(TopicPartition(topic, number)) for number in range(PARTITIONS)]
        for each in both:
            each.close()
        self.produce(topic, [b"more %d" % number for number in range(MORE)], partitions=PARTITIONS)
        third = member("a")
        then = read([third], lambda found: len(found) == MORE)
        third.close()
        return {"read": first, "committed": committed, "then": then}

    def administration(self) -> None:
        admin, tell = self._admin, self.telling.of
        topic, other, group, unknown = (self.topic(name) for name in ("admin", "other", "classic", "nobody"))
        one, shared = TopicPartition(self.topic(ONE), 0), TopicPartition(f"{self.topic(FOUR)}-classic", 0)
        none = TopicPartition(other, 0)

        def created(name: str, count: int, replicas: int, **configs: str) -> None:
            wanted = {"num_partitions": count, "replication_factor": replicas}
            admin.create_topics(
                {name: {**wanted, "configs": {key.replace("_", "."): each for key, each in configs.items()}}}
            )

        def altered(name: str, config: str, value: object) -> None:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, name, {config: value})])

        def configs(name: str) -> Any:
            wanted = dict.fromkeys(("retention.ms", "cleanup.policy", "min.insync.replicas"))
            found = admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, name, wanted)], config_filter="all"
            )
            ((_, resources),) = found.items()
            return {key: value["value"] for key, value in sorted(resources[name].items())}

        def described(name: str) -> Any:
            found = admin.describe_groups([name])[name]
            return [str(found.get(key)) for key in ("error_code", "group_state", "protocol_type", "protocol_data")]

        def offsets(name: str) -> Any:
            found = admin.list_group_offsets({name: None})[name]
            return sorted([each.partition, committed.offset] for each, committed in found.items())

        def elected(partition: int) -> None:
            admin.elect_leaders(0, {self.topic(FOUR): [partition]})

        def listed(spec: OffsetSpec) -> Any:
            return admin.list_partition_offsets({one: spec})[one].offset

        def groups() -> Any:
            own = [each for each in admin.list_groups() if each["group_id"].startswith(f"{self._prefix}-")]
            return sorted([each["group_id"].removeprefix(self._prefix), each["protocol_type"]] for each in own)

        def errors(found: dict[Any, Any]) -> list[str]:
            return [named(error) for error in found.values()]

        tell("describe the cluster", lambda: sorted(each["broker_id"] for each in admin.describe_cluster()["brokers"]))
        tell("create a topic", lambda: created(topic, 2, 3, retention_ms="100000"))
        tell("create a topic again", lambda: created(topic, 2, 3))
        tell("create with a name that cannot be", lambda: created("no good", 1, 1))
        tell("create with too many replicas", lambda: created(other, 1, 4))
        tell("create without partitions", lambda: created(other, 0, 1))
        tell("create with an unknown config", lambda: created(other, 1, 1, no_such="1"))
        tell("describe topics", lambda: [len(each["partitions"]) for each in admin.describe_topics([topic])])
        tell("add partitions", lambda: len(str(admin.create_partitions({topic: 4}))) > 0)
        tell("take partitions away", lambda: admin.create_partitions({topic: 1}))
        tell("describe configs", lambda: configs(topic))
        tell("set a config", lambda: altered(topic, "retention.ms", "200000"))
        tell("append to a config", lambda: altered(topic, "cleanup.policy", ("APPEND", "compact")))
        tell("set an unknown config", lambda: altered(topic, "no.such", "1"))
        tell("configs after all this", lambda: eventually(
            lambda: configs(topic), lambda found: found["retention.ms"] == "200000"))  # fmt: skip
        for what, spec in {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST}.items():
            tell(f"list offsets, {what}", partial(listed, spec))
        tell(
            "list offsets of an unknown topic",
            lambda: admin.list_partition_offsets({none: OffsetSpec.LATEST}, timeout_ms=3000),
        )
        tell("delete records", lambda: [each["low_watermark"] for each in admin.delete_records({one: 5}).values()])
        tell("delete records beyond the end", lambda: admin.delete_records({one: 1_000_000}))
        tell("elect", lambda: elected(0))
        tell("elect for an unknown partition", lambda: elected(99))
        tell("reassign to an unknown broker", lambda: errors(admin.alter_partition_reassignments({one: [1, 9]})))
        tell("cancel a reassignment that is not", lambda: errors(admin.alter_partition_reassignments({one: None})))
        tell("list reassignments", lambda: len(admin.list_partition_reassignments([one])))
        tell("log directories", lambda: len(admin.describe_log_dirs()))
        tell("describe credentials of an unknown user",
             lambda: admin.describe_user_scram_credentials(["nobody"])["nobody"]["error"] is None)  # fmt: skip
        tell("list groups", groups)
        tell("describe a group", lambda: described(group))
        tell("describe an unknown group", lambda: described(unknown))
        tell("offsets of a group", lambda: offsets(group))
        tell("offsets of an unknown group", lambda: offsets(unknown))
        committed = {shared: OffsetAndMetadata(3, "", -1)}
        tell("alter offsets of a group", lambda: errors(admin.alter_group_offsets(group, committed)))
        tell("delete offsets", lambda: errors(admin.delete_group_offsets(group, [shared])))
        tell("delete a group", lambda: list(dict(admin.delete_groups([group])).values()))
        tell("delete an unknown group", lambda: list(dict(admin.delete_groups([unknown])).values()))
        tell("delete a topic", lambda: len(str(admin.delete_topics([topic]))) > 0)
        tell("delete an unknown topic", lambda: admin.delete_topics([other]))

    def whole(self) -> None:
        self.data()
        for kind, settings in GROUPS.items():
            self.telling.of(f"group, {kind}", partial(self.group, kind, settings))
        self.administration()

    def below_min_isr(self) -> None:
        """With a broker too few for `min.insync.replicas`; acks=1 still writes."""
        for acks in ("all", 1):
            settings: dict[str, Any] = {"acks": acks, "retries": 0, "enable_idempotence": False}
            self.telling.of(
                f"produce below min.insync.replicas, acks={acks}",
                partial(self.produce, self.topic(STRICT), [b"x"], **settings),
            )


def _shared(members: Sequence[KafkaConsumer]) -> bool:
    """Each of two members has its half, and has read it."""
    owned = [[member.position(each) for each in member.assignment()] for member in members]
    return owned == [[RECORDS // PARTITIONS] * 2] * 2


def run(bootstrap: str, prefix: str, phase: str) -> dict[str, Any]:
    client = KafkaPython(bootstrap, prefix)
    (client.below_min_isr if phase == "below" else client.whole)()
    return client.telling.results
