"""The state of a broker after a heartbeat (R-153, R-142)."""

from __future__ import annotations

from enum import Enum

from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import controller_messages
from odradek_proto.values import Value

from odradek_broker.core.controller.damaged import is_behind_its_copies, judge_replicas
from odradek_broker.core.controller.decision import Decision, broker_state_record
from odradek_broker.core.controller.partitions import has_leaderships, remove_broker
from odradek_broker.core.controller.registration import fencing_records, unfencing_records
from odradek_broker.core.controller.sessions import SessionTable
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.controller.unfit_leaders import replace_unfit
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord

Answer = controller_messages.HeartbeatAnswer
NOBODY = -1  # that this node knows to be the controller instead


class BrokerState(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


class HeartbeatFacts(Value, frozen=True):
    """What the next state depends on, besides the state."""

    want_fence: bool = False
    want_shut_down: bool = False
    caught_up: bool = False  # has read its own registration record
    has_leaderships: bool = False
    others_caught_up: bool = False  # every active broker has read the metadata up to this broker's shutdown offset


def next_state(state: BrokerState, facts: HeartbeatFacts) -> BrokerState:
    """The table of R-153."""
    match state:
        case BrokerState.FENCED:
            if facts.want_shut_down:
                return BrokerState.SHUTDOWN_NOW
            return BrokerState.UNFENCED if not facts.want_fence and facts.caught_up else BrokerState.FENCED
        case BrokerState.UNFENCED:
            if facts.want_fence:
                return BrokerState.SHUTDOWN_NOW if facts.want_shut_down else BrokerState.FENCED
            if not facts.want_shut_down:
                return BrokerState.UNFENCED
            return BrokerState.CONTROLLED_SHUTDOWN if facts.has_leaderships else BrokerState.SHUTDOWN_NOW
        case BrokerState.CONTROLLED_SHUTDOWN:
            done = facts.others_caught_up and not facts.has_leaderships
            return BrokerState.SHUTDOWN_NOW if done else BrokerState.CONTROLLED_SHUTDOWN
        case BrokerState.SHUTDOWN_NOW:
            raise AssertionError("a broker that was told to stop is fenced")


def current_state(registration: BrokerRegistration) -> BrokerState:
    if registration.fenced:
        return BrokerState.FENCED
    return BrokerState.CONTROLLED_SHUTDOWN if registration.in_controlled_shutdown else BrokerState.UNFENCED


def process_heartbeat(
    image: MetadataImage,
    settings: ControllerSettings,
    sessions: SessionTable,
    heartbeat: controller_messages.Heartbeat,
    now_ms: int,
    *,
    late: bool = False,
) -> Decision[Answer]:
    """Refresh the session, and move the broker to its next state.

    A `late` heartbeat, one that waited here for longer than a session lasts, refreshes and moves nothing (R-154).
    """
    registration = image.brokers.get(heartbeat.broker_id)
    if registration is None:
        return Decision((), Answer(error_code=ErrorCode.BROKER_ID_NOT_REGISTERED, is_fenced=True))
    if (registration.broker_epoch, registration.incarnation_id) != (heartbeat.broker_epoch, heartbeat.incarnation_id):
        return Decision((), Answer(error_code=ErrorCode.STALE_BROKER_EPOCH, is_fenced=True))
    if heartbeat.current_metadata_offset < 0:
        return Decision((), Answer(error_code=ErrorCode.INVALID_REQUEST, is_fenced=True))
    if heartbeat.current_metadata_offset > image.offset:  # it has read what this node has not written, or it lies
        return Decision((), Answer(error_code=ErrorCode.NOT_CONTROLLER, is_fenced=True, controller_id=NOBODY))
    sessions.heartbeat(heartbeat.broker_id, heartbeat.current_metadata_offset, now_ms)
    state = current_state(registration)
    caught_up = heartbeat.current_metadata_offset > registration.broker_epoch
    if not late:
        sessions.take_reports(heartbeat.broker_id, heartbeat)
        judged = judge_replicas(image, settings, sessions, heartbeat.broker_id)
        judged = judged or replace_unfit(image, settings, sessions, heartbeat)
        if judged:  # what becomes of the broker is decided at its next heartbeat, by what these records leave
            return Decision(judged, Answer(is_caught_up=caught_up, is_fenced=registration.fenced))
        caught_up = caught_up and not is_behind_its_copies(image, sessions, heartbeat.broker_id)
    following = state if late else _following(image, sessions, heartbeat, registration, state, caught_up)
    answer = Answer(
        is_caught_up=caught_up,
        is_fenced=following in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        should_shut_down=following is BrokerState.SHUTDOWN_NOW,
    )
    return Decision(_records(image, settings, registration, state, following), answer)


def _following(
    image: MetadataImage,
    sessions: SessionTable,
    heartbeat: controller_messages.Heartbeat,
    registration: BrokerRegistration,
    state: BrokerState,
    caught_up: bool,
) -> BrokerState:
    leaving = heartbeat.want_shut_down or state is BrokerState.CONTROLLED_SHUTDOWN
    facts = HeartbeatFacts(
        want_fence=heartbeat.want_fence,
        want_shut_down=heartbeat.want_shut_down,
        caught_up=caught_up,
        has_leaderships=leaving and has_leaderships(image, registration.broker_id),
        others_caught_up=leaving and _others_caught_up(image, sessions, registration.broker_id, state),
    )
    return next_state(state, facts)


def _others_caught_up(image: MetadataImage, sessions: SessionTable, broker_id: int, state: BrokerState) -> bool:
    session = sessions.session(broker_id)
    if state is not BrokerState.CONTROLLED_SHUTDOWN or session is None:
        return False
    if session.shutdown_offset is None:  # the first heartbeat since, or since this controller took over
        session.shutdown_offset = image.offset
    lowest = sessions.lowest_active_offset(image)
    return lowest is None or lowest >= session.shutdown_offset


def _records(
    image: MetadataImage,
    settings: ControllerSettings,
    registration: BrokerRegistration,
    state: BrokerState,
    following: BrokerState,
) -> list[MetadataRecord]:
    if following is state:
        return []
    match following:
        case BrokerState.UNFENCED:
            return unfencing_records(image, settings, registration)
        case BrokerState.CONTROLLED_SHUTDOWN:
            leaving = broker_state_record(registration, fenced=False, in_controlled_shutdown=True)
            return [leaving, *remove_broker(image, settings, registration.broker_id)]
        case BrokerState.FENCED | BrokerState.SHUTDOWN_NOW:
            return [] if registration.fenced else fencing_records(image, settings, registration)
