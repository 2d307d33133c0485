"""Registrations of brokers, and fencing (R-150 to R-155, R-134, R-136).

Unlike Kafka, a new incarnation is accepted as soon as the session stream of the previous one has ended, and the old one
leaves every ISR and every leadership in the same atomic batch (R-152): a broker that is killed and restarted does not
have to wait.

A registration is kept until an administrator removes it and is sent to every client, so each of its fields is validated
before it is written, and their number is limited: no credentials are needed to register.
"""

from __future__ import annotations

import re

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import Operation
from odradek_proto.v1 import admin_messages, controller_messages
from odradek_proto.v1.metadata_messages import RegisterBrokerRecord, UnregisterBrokerRecord
from odradek_proto.words import noun

from odradek_broker.core.context import RequiredPermission
from odradek_broker.core.controller.decision import ChangeRequest, Decision, broker_state_record
from odradek_broker.core.controller.partitions import all_partitions, elect_leaderless, remove_broker
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord

Answer = controller_messages.RegisterBrokerResponse
Unregistered = admin_messages.UnregisterBrokerResponse
INCARNATION_SIZE = 16
NO_BROKER_EPOCH = -1
MAX_ENDPOINTS = 16
MAX_BROKERS = 1_000  # as many as may have a session stream; far more than a cluster has
DIRECTORY_ID_SIZES = (0, 16)  # none, or a UUID
LONGEST_RACK = 1_000
_LISTENER = re.compile(r"[A-Z][A-Z0-9_]{0,99}")
_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%\w]{2,60}\]|[^\s:/@\[\]\x00-\x1f]{1,255}):(\d{1,5})")
_LARGEST_PORT = 65_535


def register_broker(
    image: MetadataImage,
    settings: ControllerSettings,
    request: controller_messages.RegisterBrokerRequest,
    *,
    session_valid: bool,
) -> Decision[Answer]:
    """Register an incarnation; one that asks twice gets the same answer (R-151).

    Unlike Kafka, an incarnation changes nothing of its registration: a process keeps its addresses, rack and disk, and
    whoever has read its incarnation in the metadata could send its clients elsewhere, for as long as it runs.
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
        return _repeated(known, request)
    if settings.fast_restart_keeps_isr and not known.fenced:
        return Decision([_record(request, fenced=False)], Answer(broker_epoch=-1))  # L-12, the controller before KRaft
    if session_valid:
        return Decision((), _refuse(ErrorCode.DUPLICATE_BROKER_REGISTRATION, f"broker {known.broker_id} is in session"))
    lost = _has_another_disk(known, request)
    unclean = (known.broker_id,) if lost or request.previous_broker_epoch != known.broker_epoch else ()
    moves = remove_broker(image, settings, known.broker_id, unclean_shutdown=unclean, lost=lost)
    return Decision([_record(request, fenced=True), *moves], Answer(broker_epoch=-1))


def unregister_broker(image: MetadataImage, broker_id: int) -> Decision[Unregistered]:
    """Forget a broker that is gone for good: it is fenced and has no replicas.

    Unlike Kafka, which forgets any: a broker in session would register anew at once, and of one with replicas it would
    be forgotten with which disk and how cleanly it went (R-152).
    """

    def refuse(error: ErrorCode, message: str) -> Decision[Unregistered]:
        return Decision((), Unregistered(error_code=error, error_message=message))

    known = image.brokers.get(broker_id)
    if known is None:
        return refuse(ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
    if not known.fenced:
        return refuse(ErrorCode.INVALID_REQUEST, f"broker {broker_id} is in session: stop it first")
    replicas = sum(broker_id in partition.replicas for _, _, partition in all_partitions(image))
    if replicas:
        message = f"broker {broker_id} is a replica of {replicas} {noun(replicas, 'partition')}: reassign them first"
        return refuse(ErrorCode.INVALID_REQUEST, message)
    record = UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=known.broker_epoch)
    return Decision([record], Unregistered())


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
    image: MetadataImage, settings: ControllerSettings, request: controller_messages.RegisterBrokerRequest
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
    if not all(_is_endpoint(name, address) for name, address in request.endpoints.items()):
        return _refuse(ErrorCode.INVALID_REGISTRATION, "an endpoint is a listener's name and host:port")
    if len(request.rack) > LONGEST_RACK or len(request.log_directory_id) not in DIRECTORY_ID_SIZES:
        return _refuse(
            ErrorCode.INVALID_REGISTRATION, f"a rack has at most {LONGEST_RACK} characters, a directory id 16 bytes"
        )
    if not NO_BROKER_EPOCH <= request.previous_broker_epoch < max(image.offset, 1):
        return _refuse(
            ErrorCode.INVALID_REGISTRATION,
            f"a broker epoch of {request.previous_broker_epoch} was never given: the metadata end at {image.offset}",
        )
    if request.broker_id not in image.brokers and len(image.brokers) >= MAX_BROKERS:
        return _refuse(ErrorCode.INVALID_REGISTRATION, f"{MAX_BROKERS} brokers are registered, no more may be")
    return None


def _is_endpoint(name: str, address: str) -> bool:
    match = _ADDRESS.fullmatch(address)
    return _LISTENER.fullmatch(name) is not None and match is not None and 0 < int(match[2]) <= _LARGEST_PORT


def _has_another_disk(known: BrokerRegistration, request: controller_messages.RegisterBrokerRequest) -> bool:
    """Whether the broker comes back with another log directory. Whatever is in there, it is not what it led with.

    Unlike Kafka, which lets such a broker lead as if nothing had happened where it led last: the others cut what they
    have.
    """
    before, now = known.log_directory_id, request.log_directory_id
    return bool(before and now) and before != now


def _repeated(known: BrokerRegistration, request: controller_messages.RegisterBrokerRequest) -> Decision[Answer]:
    """A request that was sent twice changes nothing and writes nothing."""
    same = (dict(request.endpoints), request.rack, request.log_directory_id)
    if same == (known.endpoints, known.rack, known.log_directory_id):
        return Decision((), Answer(broker_epoch=known.broker_epoch))
    message = f"this process of broker {known.broker_id} is registered, with other addresses, rack or log directory"
    return Decision((), _refuse(ErrorCode.DUPLICATE_BROKER_REGISTRATION, message))


def _record(request: controller_messages.RegisterBrokerRequest, *, fenced: bool) -> MetadataRecord:
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        endpoints=dict(request.endpoints),
        rack=request.rack,
        log_directory_id=request.log_directory_id,
        fenced=fenced,
    )


def _refuse(error: ErrorCode, message: str) -> Answer:
    return Answer(error_code=error, error_message=message, broker_epoch=-1)


REQUESTS = (
    ChangeRequest(
        "UnregisterBroker",
        RequiredPermission(Operation.ALTER),
        decide=lambda call: unregister_broker(call.image, call.request.broker_id),
    ),
)
