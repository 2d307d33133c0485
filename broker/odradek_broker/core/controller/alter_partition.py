"""AlterPartition: a leader proposes an ISR, the controller checks and writes it (R-54 to R-57; KIP-497, KIP-903)."""

from __future__ import annotations

from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import controller_messages

from odradek_broker.core.controller.decision import Decision
from odradek_broker.core.controller.elections import PartitionTarget, change_partition
from odradek_broker.core.controller.partitions import min_insync_replicas
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import MetadataImage, PartitionRegistration
from odradek_broker.core.metadata.records import MetadataRecord

Answer = controller_messages.AlterPartitionResponse
Item = controller_messages.AlterPartitionItem
Altered = controller_messages.AlteredPartition


def alter_partition(
    image: MetadataImage, settings: ControllerSettings, request: controller_messages.AlterPartitionRequest
) -> Decision[Answer]:
    """All proposals of one broker, each judged by itself. Unchanged is no error and writes no record (R-55)."""
    registration = image.brokers.get(request.broker_id)
    if registration is None or registration.broker_epoch != request.broker_epoch:
        return Decision((), Answer(error_code=ErrorCode.STALE_BROKER_EPOCH))
    records: list[MetadataRecord] = []
    answers: list[Altered] = []
    seen: set[tuple[bytes, int]] = set()
    for item in request.partitions:
        key = (item.topic_id, item.partition)
        if key in seen:
            answers.append(_refusal(item, ErrorCode.INVALID_REQUEST))
            continue
        seen.add(key)
        record, answer = _alter(image, settings, request.broker_id, item)
        answers.append(answer)
        if record is not None:
            records.append(record)
    return Decision(records, Answer(partitions=answers))


def _alter(
    image: MetadataImage, settings: ControllerSettings, sender: int, item: Item
) -> tuple[MetadataRecord | None, Altered]:
    topic = image.topic_by_id(item.topic_id)
    if topic is None:
        return None, _refusal(item, ErrorCode.UNKNOWN_TOPIC_ID)
    current = topic.partitions.get(item.partition)
    if current is None:
        return None, _refusal(item, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    error = validate(image, current, sender, item)
    if error is not ErrorCode.NONE:
        return None, _refusal(item, error)
    target = PartitionTarget(
        acceptable=image.is_active,
        isr=_in_replica_order(current, item),
        recovering=item.recovering,
        elr_enable=settings.elr_enable,
        min_insync_replicas=min_insync_replicas(image, settings, topic.name),
    )
    record = change_partition(topic.topic_id, item.partition, current, target)
    if record is None:
        return None, _answer(item, current, current.partition_epoch)
    if record.leader is not None:  # the record is written, and another replica leads
        return record, _refusal(item, ErrorCode.NEW_LEADER_ELECTED)
    changed = PartitionRegistration(
        replicas=current.replicas,
        isr=tuple(record.isr) if record.isr_changed else current.isr,
        leader=current.leader,
        leader_epoch=current.leader_epoch + record.bump_leader_epoch,
        partition_epoch=current.partition_epoch + 1,
        recovering=item.recovering,
    )
    return record, _answer(item, changed, changed.partition_epoch)


def validate(image: MetadataImage, current: PartitionRegistration, sender: int, item: Item) -> ErrorCode:
    """The checks of R-54 for a partition that exists, in their order."""
    if item.leader_epoch > current.leader_epoch or item.partition_epoch > current.partition_epoch:
        return ErrorCode.NOT_CONTROLLER  # the sender has seen what this node has not: somebody else decides by now
    if item.leader_epoch < current.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != current.leader:
        return ErrorCode.INVALID_REQUEST
    if item.partition_epoch < current.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [member.broker_id for member in item.new_isr]
    if not members or len(set(members)) < len(members) or not set(members) <= set(current.replicas):
        return ErrorCode.INVALID_REQUEST
    if sender not in members:
        return ErrorCode.INVALID_REQUEST
    if item.recovering and (len(members) > 1 or not current.recovering):
        return ErrorCode.INVALID_REQUEST
    if not all(_eligible(image, member) for member in item.new_isr):
        return ErrorCode.INELIGIBLE_REPLICA
    return ErrorCode.NONE


def _eligible(image: MetadataImage, member: controller_messages.IsrMember) -> bool:
    registration = image.brokers.get(member.broker_id)
    if registration is None or not registration.active:
        return False
    return member.broker_epoch in (-1, registration.broker_epoch)


def _in_replica_order(current: PartitionRegistration, item: Item) -> tuple[int, ...]:
    """The proposed members; if they are those that are in already, in the order in which they stand."""
    members = tuple(member.broker_id for member in item.new_isr)
    return current.isr if set(members) == set(current.isr) else members


def _answer(item: Item, registration: PartitionRegistration, partition_epoch: int) -> Altered:
    return Altered(
        topic_id=item.topic_id,
        partition=item.partition,
        error_code=ErrorCode.NONE,
        leader_id=registration.leader,
        leader_epoch=registration.leader_epoch,
        partition_epoch=partition_epoch,
        isr=registration.isr,
        recovering=registration.recovering,
    )


def _refusal(item: Item, error: ErrorCode) -> Altered:
    return Altered(topic_id=item.topic_id, partition=item.partition, error_code=error, leader_id=-1)
