"""Registrations of brokers, and fencing (R-150 to R-155, R-134, R-136).

Unlike Kafka, a new incarnation is accepted as soon as the session stream of the one before has ended, and the old one
leaves every ISR and every leadership in the same atomic batch (R-152): whoever kills a broker and starts it again
waits for nothing.
"""

from __future__ import annotations

from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import controller_pb2, metadata_pb2

from odradek_broker.core.controller.decision import Decision, broker_state_record
from odradek_broker.core.controller.partitions import elect_leaderless, remove_broker
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord

Answer = controller_pb2.RegisterBrokerResponse
INCARNATION_SIZE = 16
MAX_ENDPOINTS = 16


def register_broker(
    image: MetadataImage,
    settings: ControllerSettings,
    request: controller_pb2.RegisterBrokerRequest,
    *,
    session_valid: bool,
) -> Decision[Answer]:
    """Register an incarnation, or amend the registration of the same one (R-151).

    `session_valid`: the session of the registered incarnation stands. A new broker epoch is the offset of the first
    record; the answer leaves it at -1 for the runtime to fill in from the image.
    """
    refusal = _check(image, settings, request)
    if refusal is not None:
        return Decision((), refusal)
    known = image.brokers.get(request.broker_id)
    if known is None:
        return Decision([_record(request, fenced=True)], Answer(broker_epoch=-1))
    if known.incarnation_id == request.incarnation_id:
        return _amend(known, request)
    if settings.fast_restart_keeps_isr and not known.fenced:
        return Decision([_record(request, fenced=False)], Answer(broker_epoch=-1))  # L-12, the controller before KRaft
    if session_valid:
        return Decision((), _refuse(ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"broker {known.broker_id} is in session"))
    lost = _has_another_disk(known, request)
    unclean = (known.broker_id,) if lost or request.previous_broker_epoch != known.broker_epoch else ()
    moves = remove_broker(image, settings, known.broker_id, unclean_shutdown=unclean, lost=lost)
    return Decision([_record(request, fenced=True), *moves], Answer(broker_epoch=-1))


def fence_broker(image: MetadataImage, settings: ControllerSettings, broker_id: int) -> Decision[None]:
    """Out of every ISR and leadership, then fenced (R-134). Nothing for a broker that is unknown or fenced."""
    registration = image.brokers.get(broker_id)
    if registration is None or registration.fenced:
        return Decision((), None)
    return Decision(fencing_records(image, settings, registration), None)


def fencing_records(
    image: MetadataImage, settings: ControllerSettings, registration: BrokerRegistration
) -> list[MetadataRecord]:
    moves = remove_broker(image, settings, registration.broker_id)
    return [*moves, broker_state_record(registration, fenced=True)]


def unfencing_records(
    image: MetadataImage, settings: ControllerSettings, registration: BrokerRegistration
) -> list[MetadataRecord]:
    """Unfenced, and elected where nobody leads (R-136). The broker epoch stays (R-155)."""
    state = broker_state_record(registration, fenced=False)
    return [state, *elect_leaderless(image, settings, unfenced=registration.broker_id)]


def _check(
    image: MetadataImage, settings: ControllerSettings, request: controller_pb2.RegisterBrokerRequest
) -> Answer | None:
    cluster_id = image.cluster_id or settings.cluster_id
    if request.cluster_id != cluster_id:
        return _refuse(
            ErrorCode.INCONSISTENT_CLUSTER_ID, f"this is cluster {cluster_id}, the broker's is {request.cluster_id}"
        )
    if request.broker_id < 0:
        return _refuse(ErrorCode.INVALID_REGISTRATION, f"a broker id of {request.broker_id} is negative")
    if len(request.incarnation_id) != INCARNATION_SIZE:
        return _refuse(ErrorCode.INVALID_REGISTRATION, f"an incarnation id has {INCARNATION_SIZE} bytes")
    if not 1 <= len(request.endpoints) <= MAX_ENDPOINTS:
        return _refuse(ErrorCode.INVALID_REGISTRATION, f"a broker has 1 to {MAX_ENDPOINTS} endpoints")
    return None


def _has_another_disk(known: BrokerRegistration, request: controller_pb2.RegisterBrokerRequest) -> bool:
    """Whether the broker comes back with another log directory. Whatever is in there, it is not what it led with.

    Unlike Kafka, which lets such a broker lead as if nothing had happened where it led last: the others cut what they
    have.
    """
    before, now = known.log_directory_id, request.log_directory_id
    return bool(before and now) and before != now


def _amend(known: BrokerRegistration, request: controller_pb2.RegisterBrokerRequest) -> Decision[Answer]:
    """Epoch and fencing stay. A request that was sent twice changes nothing and writes nothing."""
    answer = Answer(broker_epoch=known.broker_epoch)
    same = (dict(request.endpoints), request.rack, request.log_directory_id)
    if same == (known.endpoints, known.rack, known.log_directory_id):
        return Decision((), answer)
    records = [_record(request, fenced=known.fenced, broker_epoch=known.broker_epoch)]
    if known.in_controlled_shutdown:
        records.append(broker_state_record(known, fenced=known.fenced, in_controlled_shutdown=True))
    return Decision(records, answer)


def _record(
    request: controller_pb2.RegisterBrokerRequest, *, fenced: bool, broker_epoch: int | None = None
) -> MetadataRecord:
    record = metadata_pb2.RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        endpoints=dict(request.endpoints),
        rack=request.rack,
        log_directory_id=request.log_directory_id,
        fenced=fenced,
    )
    if broker_epoch is not None:
        record.broker_epoch = broker_epoch
    return MetadataRecord(register_broker=record)


def _refuse(error: ErrorCode, message: str) -> Answer:
    return Answer(error_code=error, error_message=message, broker_epoch=-1)
