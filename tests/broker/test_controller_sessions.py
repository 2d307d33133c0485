"""Who is alive: the session table, stepped by hand (R-153, R-154, and early fencing)."""

from __future__ import annotations

import pytest
from odradek_broker.core.controller.registration import fence_broker
from odradek_broker.core.controller.sessions import (
    DialBroker,
    Fence,
    FenceReason,
    SessionEffect,
    SessionTable,
)
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import MetadataImage
from odradek_proto.values import replace

from tests.broker.controller_images import CLUSTER_ID, SETTINGS, image_of, incarnation, write


class Watch:
    """A session table with a clock, over a cluster whose brokers have open streams."""

    def __init__(self, brokers: tuple[int, ...], settings: ControllerSettings = SETTINGS, streams: bool = True) -> None:
        self.settings = settings
        self.image: MetadataImage = image_of(brokers)
        self.table = SessionTable(settings)
        self.table.take_over(self.image, 0)
        self.now_ms = 0
        if streams:
            for broker_id in brokers:
                self.open(broker_id)

    def open(self, broker_id: int, life: int = 0) -> None:
        self.table.stream_opened(broker_id, incarnation(broker_id, life), self.now_ms)

    def end(self, *brokers: int) -> list[SessionEffect]:
        for broker_id in brokers:
            self.table.stream_ended(broker_id, incarnation(broker_id), self.now_ms)
        return self.at(self.now_ms)

    def at(self, now_ms: int) -> list[SessionEffect]:
        """All that happens up to a moment, the deadlines of the table included; fencings are carried out."""
        effects: list[SessionEffect] = []
        while True:
            for effect in self.table.on_time(self.image, self.now_ms):
                effects.append(effect)
                if isinstance(effect, Fence):
                    self.fence(effect.broker_id)
            following = self.table.next_deadline_ms(self.image, self.now_ms)
            if following > now_ms or following == self.now_ms == now_ms:
                break
            self.now_ms = following
        self.now_ms = now_ms
        return effects

    def fence(self, broker_id: int) -> None:
        write(self.image, fence_broker(self.image, self.settings, broker_id).records)

    def dialled(self, broker_id: int, refused: bool) -> list[SessionEffect]:
        return self.table.dial_answered(self.image, DialBroker(broker_id, incarnation(broker_id)), refused, self.now_ms)

    def beat(self, broker_id: int) -> None:
        self.table.heartbeat(broker_id, 0, self.now_ms)


def dial(broker_id: int) -> DialBroker:
    return DialBroker(broker_id, incarnation(broker_id))


def test_the_broker_that_was_silent_longest_is_fenced_first_and_alone() -> None:
    """CO-19: one stale broker per step, oldest contact first."""
    watch = Watch((1, 2, 3))
    watch.now_ms = 500
    for broker_id, at_ms in ((2, 600), (3, 700), (1, 800)):
        watch.now_ms = at_ms
        watch.beat(broker_id)
    assert watch.table.on_time(watch.image, 900) == []
    for now_ms in range(1_000, 10_000, 1_000):
        assert watch.table.on_time(watch.image, now_ms) == []
    assert watch.table.on_time(watch.image, 9_600) == []
    assert watch.table.on_time(watch.image, 9_601) == [Fence(2, FenceReason.SESSION_TIMEOUT)]
    watch.fence(2)
    assert watch.table.on_time(watch.image, 9_801) == [Fence(3, FenceReason.SESSION_TIMEOUT)]
    watch.fence(3)
    assert watch.table.on_time(watch.image, 9_801) == [Fence(1, FenceReason.SESSION_TIMEOUT)]


def test_a_new_controller_starts_all_sessions_afresh() -> None:
    """R-154: contact is now, whatever the former controller had heard."""
    watch = Watch((1, 2))
    watch.at(8_000)
    watch.table.take_over(watch.image, 8_000)
    for broker_id in (1, 2):
        watch.open(broker_id)
    assert watch.at(17_000) == []
    assert watch.at(17_001)[0] == Fence(1, FenceReason.SESSION_TIMEOUT)


def test_a_second_stream_keeps_the_session_when_the_first_ends() -> None:
    """A reconnecting broker may overlap with itself."""
    watch = Watch((1, 2, 3))
    watch.open(2)
    assert watch.end(2) == []
    assert watch.at(5_000) == []
    assert watch.end(2) == [dial(2)]


def test_without_early_fencing_nobody_is_dialled() -> None:
    """Only the session timeout is left, also under L-12, where a broker is to keep its place."""
    for settings in (
        ControllerSettings(node_id=0, cluster_id=CLUSTER_ID, early_fencing=False),
        ControllerSettings(node_id=0, cluster_id=CLUSTER_ID, fast_restart_keeps_isr=True),
    ):
        watch = Watch((1, 2, 3), settings)
        watch.end(2)
        watch.at(100)
        watch.beat(1)
        watch.beat(3)
        assert watch.at(9_000) == []
        assert watch.at(9_001)[0] == Fence(2, FenceReason.SESSION_TIMEOUT)


def test_what_is_read_before_the_first_look_at_the_clock_is_from_after_the_pause() -> None:
    """An ended stream and a heartbeat, both found on waking: their times run from now, not from a pause later."""
    watch = Watch((1, 2, 3))
    watch.at(950)
    watch.now_ms = 21_000
    watch.beat(1)
    assert watch.end(2) == [dial(2)]
    assert watch.at(21_299) == []
    assert watch.at(21_300) == [Fence(2, FenceReason.STREAM_GONE)]
    watch.at(29_000)
    watch.beat(3)
    assert watch.at(30_000) == []
    assert watch.at(30_001) == [Fence(1, FenceReason.SESSION_TIMEOUT)]


def test_a_broker_that_registers_while_the_controller_slept_gets_one_session_timeout() -> None:
    """Its time runs from when its registration was handled: the pause was over by then (R-152, R-154)."""
    watch = Watch((1, 2, 3))
    watch.at(1_000)
    watch.now_ms = 21_000
    watch.table.registered(replace(watch.image.brokers[1], incarnation_id=incarnation(1, 1)), watch.now_ms)
    for moment in (25_000, 29_000):
        watch.at(moment)
        watch.beat(2)
        watch.beat(3)
    assert watch.at(30_000) == []
    assert watch.at(30_001) == [Fence(1, FenceReason.SESSION_TIMEOUT)]


def test_a_session_is_not_over_because_the_controller_slept() -> None:
    """R-151: the first that it reads on waking is another process that wants the broker's id."""
    watch = Watch((1, 2))
    watch.at(1_000)
    assert watch.table.has_valid_session(2, 21_000)


def test_a_controller_that_is_always_late_still_fences_the_silent() -> None:
    """Each look is half a second late: nobody's session lasts for ever because of it."""
    watch = Watch((1, 2, 3))
    fenced: list[SessionEffect] = []
    while not fenced and watch.now_ms < 60_000:
        watch.now_ms = watch.table.next_deadline_ms(watch.image, watch.now_ms) + 500
        watch.beat(1)
        watch.beat(3)
        fenced = watch.table.on_time(watch.image, watch.now_ms)
    assert fenced == [Fence(2, FenceReason.SESSION_TIMEOUT)]
    assert watch.now_ms < 20_000


def test_a_fenced_broker_is_not_watched() -> None:
    """Its stream may come and go."""
    watch = Watch((1, 2, 3))
    watch.fence(2)
    assert watch.end(2) == []
    watch.beat(1)
    watch.beat(3)
    assert watch.at(8_999) == []


def test_a_session_is_valid_while_its_stream_stands_and_speaks() -> None:
    """R-151: an ended stream, or one that was silent for the session timeout, is no session."""
    watch = Watch((1, 2))
    watch.at(9_000)
    assert watch.table.has_valid_session(1, 9_000)
    assert not watch.table.has_valid_session(1, 9_001)
    assert not watch.table.has_valid_session(7, 0)
    watch.end(1)
    assert not watch.table.has_valid_session(1, 0)


@pytest.mark.parametrize("sign", ["registration", "stream"])
def test_a_registration_and_a_stream_are_signs_of_life(sign: str) -> None:
    """R-151, R-154: like a heartbeat, also when the incarnation is known already."""
    watch = Watch((1, 2))
    watch.at(5_000)
    watch.beat(2)
    if sign == "registration":
        watch.table.registered(watch.image.brokers[1], watch.now_ms)
    else:
        watch.open(1)
    assert watch.at(14_000) == []
    assert Fence(1, FenceReason.SESSION_TIMEOUT) in watch.at(14_001)
