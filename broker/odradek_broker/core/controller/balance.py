"""Leaderships return to the preferred replicas, on request and periodically (R-137, R-138)."""

from __future__ import annotations

from collections.abc import Container

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import Operation
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import admin_messages

from odradek_broker.core.context import RequiredPermission
from odradek_broker.core.controller.decision import ChangeRequest, Decision
from odradek_broker.core.controller.elections import ElectionKind, PartitionTarget, change_partition
from odradek_broker.core.controller.partitions import all_partitions, min_insync_replicas
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import NO_LEADER, MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord

MAX_ELECTIONS_PER_BATCH = 1_000  # Kafka's, for the periodic balance


def elect_leaders(
    image: MetadataImage,
    settings: ControllerSettings,
    request: admin_messages.ElectLeadersRequest,
    unfit: Container[int] = (),
) -> Decision[admin_messages.ElectLeadersResponse]:
    """Elections that somebody asked for; an unclean one ignores the topic's setting.

    Without partitions all are meant, and those that need no election are left out of the answer.
    """
    try:
        election = ElectionKind(request.election_type)
    except ValueError:
        election = ElectionKind.ONLINE
    if election is ElectionKind.ONLINE:
        return Decision((), admin_messages.ElectLeadersResponse(error_code=ErrorCode.INVALID_REQUEST))
    wanted = dict.fromkeys(TopicPartition(item.topic, item.partition) for item in request.partitions)
    if not request.partitions:
        wanted = dict.fromkeys(TopicPartition(topic.name, partition) for topic, partition, _ in all_partitions(image))
    records: list[MetadataRecord] = []
    results: list[admin_messages.ElectionResult] = []
    for topic_partition in wanted:
        record, error = _elect(image, settings, topic_partition, election, unfit)
        if record is not None:
            records.append(record)
        if request.partitions or error is not ErrorCode.ELECTION_NOT_NEEDED:
            results.append(_result(topic_partition, error))
    return Decision(records, admin_messages.ElectLeadersResponse(partitions=results))


def balance_leaders(image: MetadataImage, settings: ControllerSettings, unfit: Container[int] = ()) -> Decision[int]:
    """Preferred replicas that are in sync, active, reached by others (R-147) and not full (R-148) take over.

    The answer is how many; call again at the limit.
    """
    records: list[MetadataRecord] = []
    for topic, partition, current in all_partitions(image):
        preferred = current.replicas[0]
        if current.leader == preferred or preferred not in current.isr or not image.is_active(preferred):
            continue
        if preferred in unfit:
            continue
        target = PartitionTarget(
            acceptable=image.is_active,
            election=ElectionKind.PREFERRED,
            elr_enable=settings.elr_enable,
            min_insync_replicas=min_insync_replicas(image, settings, topic.name),
        )
        record = change_partition(topic.topic_id, partition, current, target)
        if record is not None:
            records.append(record)
        if len(records) == MAX_ELECTIONS_PER_BATCH:
            break
    return Decision(records, len(records))


def _elect(
    image: MetadataImage,
    settings: ControllerSettings,
    topic_partition: TopicPartition,
    election: ElectionKind,
    unfit: Container[int],
) -> tuple[MetadataRecord | None, ErrorCode]:
    topic, current = image.topics.get(topic_partition.topic), image.partition(topic_partition)
    if topic is None or current is None:
        return None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    preferred = election is ElectionKind.PREFERRED
    if current.leader == current.replicas[0] if preferred else current.leader != NO_LEADER:
        return None, ErrorCode.ELECTION_NOT_NEEDED
    if preferred and current.replicas[0] in unfit:  # the next heartbeat would take it away again
        return None, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    target = PartitionTarget(
        acceptable=image.is_active,
        election=election,
        elr_enable=settings.elr_enable,
        min_insync_replicas=min_insync_replicas(image, settings, topic.name),
    )
    record = change_partition(topic.topic_id, topic_partition.partition, current, target)
    if record is not None and record.leader is not None:
        return record, ErrorCode.NONE
    unavailable = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    return None, unavailable


def _result(topic_partition: TopicPartition, error: ErrorCode) -> admin_messages.ElectionResult:
    return admin_messages.ElectionResult(
        topic=topic_partition.topic,
        partition=topic_partition.partition,
        error_code=error,
        error_message="" if error is ErrorCode.NONE else error.message,
    )


REQUESTS = (
    ChangeRequest(
        "ElectLeaders",
        RequiredPermission(Operation.ALTER),
        decide=lambda call: elect_leaders(call.image, call.settings, call.request, call.unfit()),
    ),
)
