"""Reassignment of partitions under load: AlterPartitionReassignments and ListPartitionReassignments (KIP-455, R-145).

While a reassignment is in progress, the replica list is its target followed by the replicas to be removed. New replicas
fetch like any follower, and the change that adds the last of them to the ISR completes it
(`elections.Membership.completed`). Rules of this module:

- every partition is judged separately; a refusal changes nothing;
- the replicas that a partition had before are those of its list that are not adding. Cancelling goes back to them, and
  another target starts from them: replicas that only the previous reassignment was adding leave at once. Unlike Kafka,
  which then treats those as original replicas, to which a cancellation would go back;
- unlike Kafka, no such step may leave fewer in-sync replicas than min.insync.replicas requires, if there were enough:
  acknowledged records would be on fewer disks than guaranteed. An empty ISR requires that an unclean election is
  allowed, as in Kafka; unlike there, one that can be held at once.
"""

from __future__ import annotations

from collections import Counter

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import Operation
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import admin_messages
from odradek_proto.values import replace

from odradek_broker.core.context import RequiredPermission
from odradek_broker.core.controller.decision import (
    MAX_BATCH_BYTES,
    ChangeRequest,
    Decision,
    ReadRequest,
    RequestRefused,
    batch_bytes,
    check_batch_bytes,
)
from odradek_broker.core.controller.elections import ElectionKind, PartitionTarget, Reassignment, change_partition
from odradek_broker.core.controller.partitions import all_partitions, min_insync_replicas, unclean_election_allowed
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import MetadataImage, PartitionRegistration
from odradek_broker.core.metadata.records import MetadataRecord

Answer = admin_messages.AlterPartitionReassignmentsResponse
Result = admin_messages.ReassignmentResult
MAX_REASSIGNMENTS_PER_BATCH = 10_000  # like partitions that are created: a batch must not grow without a limit


def alter_partition_reassignments(
    image: MetadataImage, settings: ControllerSettings, request: admin_messages.AlterPartitionReassignmentsRequest
) -> Decision[Answer]:
    """Start, replace or cancel reassignments. Errors are for each partition: UNKNOWN_TOPIC_OR_PARTITION,
    INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, NO_REASSIGNMENT_IN_PROGRESS, POLICY_VIOLATION."""
    if len(request.partitions) > MAX_REASSIGNMENTS_PER_BATCH:
        reason = f"one request reassigns at most {MAX_REASSIGNMENTS_PER_BATCH} partitions"
        return Decision((), Answer(error_code=ErrorCode.INVALID_REQUEST, error_message=reason))
    named = Counter((item.topic, item.partition) for item in request.partitions)
    records: list[MetadataRecord] = []
    results: list[Result] = []
    room = MAX_BATCH_BYTES
    for item in request.partitions:
        result = Result(topic=item.topic, partition=item.partition)
        try:
            if named[item.topic, item.partition] > 1:
                raise RequestRefused(ErrorCode.INVALID_REQUEST, "the partition is named more than once")
            record = _reassign(image, settings, item, request.keep_replication_factor)
            size = batch_bytes(() if record is None else (record,))
            check_batch_bytes(size, room, "reassign fewer partitions at a time")
        except RequestRefused as refusal:
            results.append(replace(result, error_code=refusal.error, error_message=refusal.message))
            continue
        results.append(result)
        room -= size
        if record is not None:
            records.append(record)
    return Decision(records, Answer(partitions=results))


def list_partition_reassignments(
    image: MetadataImage, request: admin_messages.ListPartitionReassignmentsRequest
) -> admin_messages.ListPartitionReassignmentsResponse:
    """What is on its way, of the partitions that are named, or of all. One that is not there is not in the list."""
    wanted = {(item.topic, item.partition) for item in request.partitions}
    ongoing = [
        admin_messages.OngoingReassignment(
            topic=topic.name,
            partition=partition,
            replicas=current.replicas,
            adding_replicas=current.adding,
            removing_replicas=current.removing,
        )
        for topic, partition, current in all_partitions(image)
        if current.reassigning and (not wanted or (topic.name, partition) in wanted)
    ]
    return admin_messages.ListPartitionReassignmentsResponse(partitions=ongoing)


def _reassign(
    image: MetadataImage, settings: ControllerSettings, item: admin_messages.ReassignedPartition, keep_factor: bool
) -> MetadataRecord | None:
    topic = image.topics.get(item.topic)
    current = image.partition(TopicPartition(item.topic, item.partition))
    if topic is None or current is None:
        raise RequestRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    unclean_allowed = unclean_election_allowed(image, settings, topic.name)
    target = PartitionTarget(
        acceptable=image.is_active,
        election=ElectionKind.UNCLEAN if unclean_allowed else ElectionKind.ONLINE,
        elr_enable=settings.elr_enable,
        min_insync_replicas=min_insync_replicas(image, settings, topic.name),
    )
    if item.replicas:
        wanted = _checked(image, tuple(item.replicas), current, keep_factor)
        replicas, reassignment = _towards(wanted, original_replicas(current))
    elif current.reassigning:
        replicas, reassignment = original_replicas(current), Reassignment()
    else:
        raise RequestRefused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned")
    target = replace(target, replicas=replicas, reassignment=reassignment)
    target = _with_isr(current, target, unclean_allowed)
    return change_partition(topic.topic_id, item.partition, current, target)


def original_replicas(current: PartitionRegistration) -> tuple[int, ...]:
    """Who the replicas were before the reassignment that is on its way."""
    return tuple(replica for replica in current.replicas if replica not in current.adding)


def target_replicas(current: PartitionRegistration) -> tuple[int, ...]:
    """Who the replicas will be after it."""
    return tuple(replica for replica in current.replicas if replica not in current.removing)


def _checked(
    image: MetadataImage, wanted: tuple[int, ...], current: PartitionRegistration, keep_factor: bool
) -> tuple[int, ...]:
    """A target that can be. Fenced brokers may be in it, as in Kafka: they may come back."""
    if len(set(wanted)) < len(wanted):
        raise RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{list(wanted)} names a broker twice")
    unknown = sorted(broker_id for broker_id in wanted if broker_id not in image.brokers)
    if unknown:
        reason = f"no broker {', '.join(map(str, unknown))} is registered"
        raise RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    factor = len(target_replicas(current))
    if keep_factor and len(wanted) != factor:
        raise RequestRefused(ErrorCode.INVALID_REPLICATION_FACTOR, f"{factor} replicas would become {len(wanted)}")
    return wanted


def _towards(wanted: tuple[int, ...], original: tuple[int, ...]) -> tuple[tuple[int, ...], Reassignment]:
    """The replica list on the way from one set to another."""
    adding = tuple(sorted(set(wanted) - set(original)))
    removing = tuple(sorted(set(original) - set(wanted)))
    return (*wanted, *removing), Reassignment(adding, removing)


def _with_isr(current: PartitionRegistration, target: PartitionTarget, unclean_allowed: bool) -> PartitionTarget:
    """The target with the ISR that is left when replicas that were being added leave at once."""
    replicas = target.replicas
    assert replicas
    isr = tuple(replica for replica in current.isr if replica in replicas)
    needed = min(target.min_insync_replicas, len(replicas))
    enough = len(isr) >= needed or len(current.isr) < needed
    if isr and (isr == current.isr or enough or unclean_allowed):
        return replace(target, isr=isr)
    waited_for = {*current.eligible, *current.last_known_eligible}  # without an ISR; who is eligible may cease to be
    leads_at_once = any(replica in replicas and target.acceptable(replica) for replica in current.eligible)
    if not isr and (leads_at_once or (not current.isr and waited_for <= set(replicas))):
        return replace(target, isr=isr)
    leaving = sorted({*current.isr, *(() if isr else waited_for)} - set(replicas))
    chosen = next((replica for replica in replicas if target.acceptable(replica)), None)
    if not unclean_allowed or chosen is None:  # a dead one would lead without an election when it comes back
        why = f"min.insync.replicas asks for {needed}" if isr else "only an unclean election could give it a leader now"
        if unclean_allowed:
            why = "none of the others is active: no unclean election could give it a leader now"
        reason = f"without {', '.join(map(str, leaving))} the in-sync replicas would be {list(isr)}, and {why}"
        raise RequestRefused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, reason)
    return replace(target, isr=(chosen,), recovering=True, unclean=True)


REQUESTS = (
    ChangeRequest(
        "AlterPartitionReassignments",
        RequiredPermission(Operation.ALTER),
        decide=lambda call: alter_partition_reassignments(call.image, call.settings, call.request),
    ),
    ReadRequest(
        "ListPartitionReassignments",
        RequiredPermission(Operation.DESCRIBE),
        answer=lambda call: list_partition_reassignments(call.image, call.request),
    ),
)
