"""Heartbeats: the table of R-153, and the sessions that they keep."""

from __future__ import annotations

from typing import Any

import pytest
from odradek_broker.core.controller.heartbeats import BrokerState, HeartbeatFacts, next_state, process_heartbeat
from odradek_broker.core.controller.sessions import SessionTable
from odradek_broker.core.metadata.image import NO_LEADER, MetadataImage
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import controller_messages
from odradek_proto.values import replace

from tests.broker.controller_images import SETTINGS, add_topic, image_of, incarnation, partition_of, write

F, U, C, S = BrokerState.FENCED, BrokerState.UNFENCED, BrokerState.CONTROLLED_SHUTDOWN, BrokerState.SHUTDOWN_NOW


@pytest.mark.parametrize(
    ("state", "facts", "expected"),
    [
        (F, HeartbeatFacts(), F),
        (F, HeartbeatFacts(caught_up=True), U),
        (F, HeartbeatFacts(caught_up=True, want_fence=True), F),
        (F, HeartbeatFacts(caught_up=True, want_shut_down=True), S),
        (F, HeartbeatFacts(want_shut_down=True, has_leaderships=True), S),
        (U, HeartbeatFacts(), U),
        (U, HeartbeatFacts(caught_up=True, has_leaderships=True), U),
        (U, HeartbeatFacts(want_fence=True), F),
        (U, HeartbeatFacts(want_fence=True, want_shut_down=True, has_leaderships=True), S),
        (U, HeartbeatFacts(want_shut_down=True), S),
        (U, HeartbeatFacts(want_shut_down=True, has_leaderships=True), C),
        (C, HeartbeatFacts(want_shut_down=True, has_leaderships=True, others_caught_up=True), C),
        (C, HeartbeatFacts(want_shut_down=True), C),
        (C, HeartbeatFacts(want_shut_down=True, others_caught_up=True), S),
        (C, HeartbeatFacts(others_caught_up=True), S),
    ],
)
def test_the_next_state_of_a_broker(state: BrokerState, facts: HeartbeatFacts, expected: BrokerState) -> None:
    """CO-18: the whole table."""
    assert next_state(state, facts) is expected


def beat(broker_id: int = 1, **fields: Any) -> controller_messages.Heartbeat:
    values: dict[str, Any] = {
        "broker_id": broker_id,
        "broker_epoch": 100 + broker_id,
        "incarnation_id": incarnation(broker_id),
        "current_metadata_offset": 200,
    }
    return controller_messages.Heartbeat(**values | fields)


def sessions_of(image: MetadataImage) -> SessionTable:
    sessions = SessionTable(SETTINGS)
    sessions.take_over(image, 0)
    return sessions


def test_a_late_heartbeat_keeps_the_session_and_moves_nothing() -> None:
    """CO-08, R-154: it waited here, which is not the broker's fault; but what it asks for may be out of date."""
    image = image_of([1, 2], fenced=[1])
    sessions = sessions_of(image)
    decision = process_heartbeat(image, SETTINGS, sessions, beat(), 9_500, late=True)
    assert decision.records == []
    session = sessions.session(1)
    assert session is not None
    assert session.last_contact_ms == 9_500
    assert len(process_heartbeat(image, SETTINGS, sessions, beat(), 9_501).records) == 1


@pytest.mark.parametrize(("offset", "unfenced"), [(0, False), (101, False), (102, True), (200, True)])
def test_a_broker_is_unfenced_once_it_has_read_its_own_registration(offset: int, unfenced: bool) -> None:
    """R-150: broker 1 was registered at offset 101; the heartbeat's offset is one past the last record read."""
    image = image_of([1, 2], fenced=[1])
    decision = process_heartbeat(image, SETTINGS, sessions_of(image), beat(current_metadata_offset=offset), 1)
    write(image, decision.records)
    assert image.brokers[1].fenced is not unfenced
    assert decision.answer.is_fenced is not unfenced
    assert image.brokers[1].broker_epoch == 101


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"broker_id": 7}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        ({"broker_epoch": 100}, ErrorCode.STALE_BROKER_EPOCH),
        ({"broker_epoch": 102}, ErrorCode.STALE_BROKER_EPOCH),
        ({"incarnation_id": b"another process!"}, ErrorCode.STALE_BROKER_EPOCH),
    ],
)
def test_a_heartbeat_of_another_life_is_refused(fields: dict[str, Any], error: ErrorCode) -> None:
    """R-111: and it does not keep the session of the current one alive."""
    image = image_of([1, 2])
    sessions = sessions_of(image)
    decision = process_heartbeat(image, SETTINGS, sessions, beat(**fields), 5_000)
    assert (decision.answer.error_code, len(decision.records)) == (error, 0)
    assert decision.answer.is_fenced
    session = sessions.session(1)
    assert session is not None
    assert session.last_contact_ms == 0


def test_controlled_shutdown_waits_until_the_others_have_read_of_it() -> None:
    """R-130, R-142: leaderships move at once; the broker may stop when every active broker has read so.

    What they had read when it asked is not enough.
    """
    image = image_of([1, 2, 3])
    topic = add_topic(image, "orders", partition_of([1, 2, 3]), partition_of([2, 1, 3]))
    sessions = sessions_of(image)
    for other in (1, 2, 3):
        process_heartbeat(image, SETTINGS, sessions, beat(other, current_metadata_offset=image.offset), 1)

    def ask() -> controller_messages.HeartbeatAnswer:
        decision = process_heartbeat(image, SETTINGS, sessions, beat(want_shut_down=True), 1)
        write(image, decision.records)
        return decision.answer

    assert not ask().should_shut_down
    assert image.brokers[1].in_controlled_shutdown
    assert [(p.leader, p.isr) for p in topic.partitions.values()] == [(2, (2, 3)), (2, (2, 3))]
    shutdown_offset = image.offset
    assert not ask().should_shut_down
    process_heartbeat(image, SETTINGS, sessions, beat(2, current_metadata_offset=shutdown_offset), 1)
    assert not ask().should_shut_down
    process_heartbeat(image, SETTINGS, sessions, beat(3, current_metadata_offset=shutdown_offset), 1)
    assert ask().should_shut_down
    assert image.brokers[1].fenced


def test_controlled_shutdown_leaves_the_last_member_in_the_isr() -> None:
    """R-142, R-135: nobody leads then, and the last member's copy is the one to wait for."""
    image = image_of([1, 2])
    topic = add_topic(image, "orders", partition_of([1, 2], [1]))
    decision = process_heartbeat(image, SETTINGS, sessions_of(image), beat(want_shut_down=True), 1)
    write(image, decision.records)
    assert (topic.partitions[0].leader, topic.partitions[0].isr) == (NO_LEADER, (1,))


def test_the_last_active_broker_may_stop_when_it_leads_nothing() -> None:
    """R-142, R-153: nobody else has to read of it. What it once asked for holds, whatever it says later."""
    image = image_of([1, 2], fenced=[2])
    topic = add_topic(image, "orders", partition_of([1, 2], [1]))
    sessions = sessions_of(image)
    for wanted in (True, False):
        decision = process_heartbeat(image, SETTINGS, sessions, beat(want_shut_down=wanted), 1)
        write(image, decision.records)
        assert decision.answer.should_shut_down is not wanted
    assert (image.brokers[1].fenced, topic.partitions[0].leader) == (True, NO_LEADER)


def test_what_a_broker_has_read_it_has_not_unread() -> None:
    """R-142: a heartbeat that was overtaken on another stream holds up nobody's shutdown."""
    image = image_of([1, 2])
    sessions = sessions_of(image)
    for offset in (150, 120):
        process_heartbeat(image, SETTINGS, sessions, beat(1, current_metadata_offset=offset), 1)
    process_heartbeat(image, SETTINGS, sessions, beat(2, current_metadata_offset=190), 1)
    assert sessions.lowest_active_offset(image) == 150


@pytest.mark.parametrize(
    ("offset", "error"),
    [(-1, ErrorCode.INVALID_REQUEST), (201, ErrorCode.NOT_CONTROLLER), (2**63 - 1, ErrorCode.NOT_CONTROLLER)],
)
def test_a_heartbeat_from_beyond_the_metadata_moves_nothing(offset: int, error: ErrorCode) -> None:
    """Others could leave before anybody had read of it: the largest offset that a broker has named counts (R-142). A
    broker that has read more than this node has written knows another controller.
    """
    image = image_of([1])
    sessions = sessions_of(image)
    decision = process_heartbeat(image, SETTINGS, sessions, beat(current_metadata_offset=offset), 1)
    assert decision.answer.error_code == error
    assert decision.records == ()
    session = sessions.session(1)
    assert session is not None
    assert session.metadata_offset == -1


@pytest.mark.parametrize(("elr_enable", "leader"), [(False, 1), (True, 2)])
def test_who_is_eligible_from_before_leads_only_where_that_still_counts(elr_enable: bool, leader: int) -> None:
    """R-147 takes no leader away without giving another: eligible replicas may be left from a setting of before."""
    settings = replace(SETTINGS, elr_enable=elr_enable)
    image = image_of([1, 2, 3])
    add_topic(image, "orders", partition_of([1, 2, 3], [1], eligible=[2]))
    image.topic_configs["orders"] = {"min.insync.replicas": "2"}
    sessions = sessions_of(image)
    for witness in (2, 3):
        write(image, process_heartbeat(image, settings, sessions, beat(witness, unreachable=[1]), 0).records)
    assert image.topics["orders"].partitions[0].leader == leader


def test_a_heartbeat_of_another_process_says_nothing_of_the_disk() -> None:
    """R-148 goes by those that R-154 takes: right epoch and incarnation, and not late."""
    image = image_of([1, 2])
    add_topic(image, "orders", partition_of([1, 2]))
    sessions = sessions_of(image)
    full = beat(disk_full=True)
    for refused in (replace(full, broker_epoch=100), replace(full, incarnation_id=incarnation(1, 1))):
        assert process_heartbeat(image, SETTINGS, sessions, refused, 0).records == ()
    assert process_heartbeat(image, SETTINGS, sessions, full, 0, late=True).records == []
    assert not sessions.is_full(1)
    assert len(process_heartbeat(image, SETTINGS, sessions, full, 0).records) == 1
    assert sessions.is_full(1)
    sessions.registered(replace(image.brokers[1], incarnation_id=incarnation(1, 1)), 0)
    assert not sessions.is_full(1), "the next process has said nothing yet"
