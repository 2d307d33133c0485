"""Creating, deleting and extending topics (R-144, and Kafka's errors for invalid requests)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import Operation, ResourceType
from odradek_proto.topics import INTERNAL_TOPICS, TOPIC_ID_SIZE, topic_id_to_text, validate_topic_name
from odradek_proto.v1 import admin_messages
from odradek_proto.v1.metadata_messages import PartitionRecord, RemoveTopicRecord, TopicRecord
from odradek_proto.words import noun

from odradek_broker.core.context import RequiredPermission
from odradek_broker.core.controller.decision import (
    MAX_BATCH_BYTES,
    ChangeRequest,
    Decision,
    RequestRefused,
    batch_bytes,
    check_batch_bytes,
    config_record,
)
from odradek_broker.core.controller.placement import place_replicas
from odradek_broker.core.controller.reassignment import target_replicas
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import MetadataImage, TopicImage
from odradek_broker.core.metadata.records import MetadataRecord
from odradek_broker.core.metadata.topic_configs import validate_lags, validate_topic_config

METADATA_TOPIC = "__cluster_metadata"
MAX_PARTITIONS_PER_BATCH = 10_000  # Kafka's: a batch of the metadata log must not grow without a limit
MAX_REPLICATION_FACTOR = 32_767
COUNT_DEFAULT = -1

Assignments = list[tuple[int, ...]]


def create_topics(
    image: MetadataImage,
    settings: ControllerSettings,
    request: admin_messages.CreateTopicsRequest,
    rng: random.Random,
) -> Decision[admin_messages.CreateTopicsResponse]:
    """All topics that can be, in one batch; each of the others with its own error.

    A topic has one result, also one that is named more than once: librdkafka cannot read two.
    """
    records: list[MetadataRecord] = []
    answers: list[admin_messages.CreatedTopic] = []
    asked = Counter(topic.name for topic in request.topics)
    taken = {_collision_key(name): name for name in image.topics}
    room, room_bytes = MAX_PARTITIONS_PER_BATCH, MAX_BATCH_BYTES
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if asked[topic.name] > 1:
                raise RequestRefused(ErrorCode.INVALID_REQUEST, f"topic {topic.name} is named more than once")
            _check_name(image, taken, topic.name)
            placed = _assignments(image, settings, topic, room, rng)
            topic_id = _new_topic_id(image, rng)
            created = _create(image, settings, topic, placed, topic_id)
            size = batch_bytes(created)
            check_batch_bytes(size, room_bytes, "create fewer topics at a time")
        except RequestRefused as refusal:
            answers.append(refused_topic(topic.name, refusal))
            continue
        room, room_bytes = room - len(placed), room_bytes - size
        taken[_collision_key(topic.name)] = topic.name
        answers.append(
            admin_messages.CreatedTopic(
                name=topic.name,
                topic_id=b"" if request.validate_only else topic_id,
                partitions=len(placed),
                replication_factor=len(placed[0]),
            )
        )
        records += created
    return Decision(() if request.validate_only else records, admin_messages.CreateTopicsResponse(topics=answers))


def delete_topics(
    image: MetadataImage, request: admin_messages.DeleteTopicsRequest, *, enabled: bool = True
) -> Decision[admin_messages.DeleteTopicsResponse]:
    """All that exist. Unless `enabled` (delete.topic.enable) every one is refused, as in Kafka."""
    if not enabled:
        refused = [
            admin_messages.TopicResult(
                name=name,
                error_code=ErrorCode.TOPIC_DELETION_DISABLED,
                error_message="delete.topic.enable=false on the active controller",
            )
            for name in dict.fromkeys(request.topics)
        ]
        return Decision((), admin_messages.DeleteTopicsResponse(topics=refused))
    records: list[MetadataRecord] = []
    answers: list[admin_messages.TopicResult] = []
    for name in dict.fromkeys(request.topics):
        topic = image.topics.get(name)
        if topic is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(
                admin_messages.TopicResult(name=name, error_code=error, error_message=f"there is no topic {name!r}")
            )
            continue
        records.append(RemoveTopicRecord(topic_id=topic.topic_id))
        answers.append(admin_messages.TopicResult(name=name))
    return Decision(records, admin_messages.DeleteTopicsResponse(topics=answers))


def create_partitions(
    image: MetadataImage, request: admin_messages.CreatePartitionsRequest, rng: random.Random
) -> Decision[admin_messages.CreatePartitionsResponse]:
    """Grow a topic to `count` partitions, with the replication factor that it has; the caller may place them."""
    try:
        records = _grow(image, request, rng)
    except RequestRefused as refusal:
        answer = admin_messages.CreatePartitionsResponse(error_code=refusal.error, error_message=refusal.message)
        return Decision((), answer)
    return Decision(() if request.validate_only else records, admin_messages.CreatePartitionsResponse())


def refused_topic(name: str, refusal: RequestRefused) -> admin_messages.CreatedTopic:
    return admin_messages.CreatedTopic(name=name, error_code=refusal.error, error_message=refusal.message)


def _check_name(image: MetadataImage, taken: dict[str, str], name: str) -> None:
    try:
        validate_topic_name(name)
    except ValueError as error:
        raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    if name == METADATA_TOPIC:
        raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is the quorum's own log, not a topic")
    if name in image.topics:
        raise RequestRefused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
    other = taken.get(_collision_key(name))
    if other is not None:
        reason = f"topic {name!r} collides with {other!r}: '.' and '_' are the same in the names of metrics"
        raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)


def _collision_key(name: str) -> str:
    return name.replace(".", "_")


def _assignments(
    image: MetadataImage, settings: ControllerSettings, topic: admin_messages.NewTopic, room: int, rng: random.Random
) -> Assignments:
    if topic.assignments:
        placed = _given_assignments(image, topic)
    else:
        partitions = settings.num_partitions if topic.partitions == COUNT_DEFAULT else topic.partitions
        factor = topic.replication_factor
        factor = settings.default_replication_factor if factor == COUNT_DEFAULT else factor
        if partitions < 1:
            raise RequestRefused(ErrorCode.INVALID_PARTITIONS, f"a topic has at least 1 partition, not {partitions}")
        _check_room(partitions, room)
        placed = _place(image, partitions, factor, rng)
    _check_room(len(placed), room)
    return placed


def _check_room(partitions: int, room: int) -> None:
    if partitions > room:
        reason = f"one request creates at most {MAX_PARTITIONS_PER_BATCH} partitions"
        raise RequestRefused(ErrorCode.INVALID_PARTITIONS, reason)


def _given_assignments(image: MetadataImage, topic: admin_messages.NewTopic) -> Assignments:
    """Partitions numbered from 0 without a gap, all with the same number of known brokers, none twice."""
    if topic.partitions != COUNT_DEFAULT or topic.replication_factor != COUNT_DEFAULT:
        raise RequestRefused(
            ErrorCode.INVALID_REQUEST, "with an assignment, partitions and replication factor must be -1"
        )
    return _checked(image, topic.assignments, 0, len(topic.assignments[0].broker_ids))


def _checked(
    image: MetadataImage, assignments: Sequence[admin_messages.ReplicaAssignment], first: int, factor: int
) -> Assignments:
    """Where a caller puts partitions, those from `first` on."""
    given = {assignment.partition: tuple(assignment.broker_ids) for assignment in assignments}
    if len(given) < len(assignments) or sorted(given) != list(range(first, first + len(given))):
        reason = f"partitions must be numbered from {first} without gap or repetition"
        raise RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    placed = [given[partition] for partition in sorted(given)]
    for partition, replicas in enumerate(placed, first):
        if not replicas or len(set(replicas)) < len(replicas) or len(replicas) != factor:
            reason = (
                f"partition {partition}: {list(replicas)} is empty, repeats a broker or is not as long as the others"
            )
            raise RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        unknown = sorted(broker for broker in replicas if broker not in image.brokers)
        if unknown:
            reason = f"partition {partition}: no broker {unknown} is registered"
            raise RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    return placed


def _place(image: MetadataImage, partitions: int, factor: int, rng: random.Random) -> Assignments:
    active = sorted(broker_id for broker_id in image.brokers if image.is_active(broker_id))
    others = sorted(broker_id for broker_id in image.brokers if broker_id not in active)
    if not 1 <= factor <= MAX_REPLICATION_FACTOR:
        raise RequestRefused(ErrorCode.INVALID_REPLICATION_FACTOR, f"a replication factor of {factor} cannot be")
    if factor > len(image.brokers):
        reason = f"replication factor {factor} needs as many brokers, {len(image.brokers)} are registered"
        raise RequestRefused(ErrorCode.INVALID_REPLICATION_FACTOR, reason)
    if not active:
        raise RequestRefused(ErrorCode.INVALID_REPLICATION_FACTOR, "all brokers are fenced or shutting down")
    racks = {broker_id: registration.rack for broker_id, registration in image.brokers.items()}
    return place_replicas(partitions, factor, active, others, rng, racks)


def _create(
    image: MetadataImage,
    settings: ControllerSettings,
    topic: admin_messages.NewTopic,
    placed: Assignments,
    topic_id: bytes,
) -> list[MetadataRecord]:
    configs = sorted(topic.configs.items())
    try:
        for name, value in configs:
            validate_topic_config(name, value)
        validate_lags(image, topic.configs, settings.node_defaults)
    except ValueError as error:
        raise RequestRefused(ErrorCode.INVALID_CONFIG, str(error)) from None
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [config_record("topic", topic.name, name, value) for name, value in configs]
    return records + _partition_records(image, topic_id, 0, placed)


def _partition_records(
    image: MetadataImage, topic_id: bytes, first: int, placed: Sequence[tuple[int, ...]]
) -> list[MetadataRecord]:
    """A new partition's ISR holds its active replicas, and the first of them leads (R-144)."""
    records: list[MetadataRecord] = []
    for partition, replicas in enumerate(placed, first):
        isr = [replica for replica in replicas if image.is_active(replica)]
        if not isr:
            reason = f"partition {partition}: all replicas {list(replicas)} are fenced or shutting down"
            raise RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
        records.append(
            PartitionRecord(topic_id=topic_id, partition=partition, replicas=replicas, isr=isr, leader=isr[0])
        )
    return records


def _grow(
    image: MetadataImage, request: admin_messages.CreatePartitionsRequest, rng: random.Random
) -> list[MetadataRecord]:
    topic: TopicImage | None = image.topics.get(request.topic)
    if topic is None:
        raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {request.topic!r}")
    existing = len(topic.partitions)
    if topic.name in INTERNAL_TOPICS:
        reason = f"{topic.name} keeps its {existing} partitions: what it holds is found by their number"
        raise RequestRefused(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
    if request.count <= existing:
        reason = (
            f"topic {topic.name!r} has {existing} {noun(existing, 'partition')}; their number can only grow, "
            f"not become {request.count}"
        )
        raise RequestRefused(ErrorCode.INVALID_PARTITIONS, reason)
    _check_room(request.count - existing, MAX_PARTITIONS_PER_BATCH)
    factor = len(target_replicas(topic.partitions[0]))
    if request.assignments and len(request.assignments) != request.count - existing:
        reason = f"{request.count - existing} partitions are new, {len(request.assignments)} are placed"
        raise RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    if request.assignments:
        placed = _checked(image, request.assignments, existing, factor)
    else:
        placed = _place(image, request.count - existing, factor, rng)
    records = _partition_records(image, topic.topic_id, existing, placed)
    check_batch_bytes(batch_bytes(records), MAX_BATCH_BYTES, "add fewer partitions at a time")
    return records


def _new_topic_id(image: MetadataImage, rng: random.Random) -> bytes:
    """A random UUID, version 4. As in Kafka none begins with a dash when written as text: command lines would choke."""
    while True:
        bits = bytearray(rng.randbytes(TOPIC_ID_SIZE))
        bits[6] = bits[6] & 0x0F | 0x40  # version 4
        bits[8] = bits[8] & 0x3F | 0x80  # the variant of RFC 4122
        topic_id = bytes(bits)
        if topic_id not in image.topic_names and not topic_id_to_text(topic_id).startswith("-"):
            return topic_id


REQUESTS = (
    ChangeRequest(
        "CreateTopics",
        RequiredPermission(Operation.CREATE, ResourceType.TOPIC),  # or CREATE on the cluster
        decide=lambda call: create_topics(call.image, call.settings, call.request, call.rng),
    ),
    ChangeRequest(
        "DeleteTopics",
        RequiredPermission(Operation.DELETE, ResourceType.TOPIC),
        decide=lambda call: delete_topics(call.image, call.request, enabled=call.settings.delete_topic_enable),
    ),
    ChangeRequest(
        "CreatePartitions",
        RequiredPermission(Operation.ALTER, ResourceType.TOPIC),
        decide=lambda call: create_partitions(call.image, call.request, call.rng),
    ),
)
