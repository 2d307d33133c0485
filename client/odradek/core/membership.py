"""One member of a consumer group of KIP-848, as its own process sees it: when it speaks, and what it may read.

    idle --subscribe--> joining --answered--> joined --unsubscribe--> leaving --> idle
                           ^                    | fenced, unknown, or silent for max.poll.interval.ms
                           +----- told ---------+

Rules of this module. The coordinator says what the member shall have; the member goes there by steps, each carried out
by whoever holds the records: first it gives up what it shall not have any more, then it takes what is new. It names a
partition as its own until the step that gives it up is done, since another member gets it then (K-59). What a member
that was fenced had is lost: others may own it already, so nothing may be committed for it, and the member joins again
only when the application has been told. Times are ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import TypeAlias

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.v1 import groups_messages as wire
from odradek_proto.values import Value, replace

from odradek.shared.errors import OdradekError, broker_error

JOIN, LEAVE, LEAVE_FOR_NOW = 0, -1, -2  # as the epoch of a heartbeat
FENCED = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,  # it was deleted, or its records are gone
    }
)
HINTS: Mapping[ErrorCode, str] = {
    ErrorCode.UNRELEASED_INSTANCE_ID: "another process has this group_instance_id, or died with it less than "
    "group.consumer.session.timeout.ms ago",
    ErrorCode.FENCED_INSTANCE_ID: "another process has taken over this group_instance_id",
    ErrorCode.GROUP_ID_NOT_FOUND: "perhaps it has members of the classic protocol: `odradek group describe`",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "patterns are those of RE2",
}

Owned: TypeAlias = dict[TopicPartition, bytes]
"""With the ids of the topics: one that was made anew under an old name is another one."""


class PartitionsLost(Value, frozen=True):
    """Others may have these already."""

    partitions: tuple[TopicPartition, ...]


class PartitionsRevoked(Value, frozen=True):
    """These are still the member's own, until it is done with them."""

    partitions: tuple[TopicPartition, ...]


class PartitionsAssigned(Value, frozen=True):
    partitions: tuple[TopicPartition, ...]


Step: TypeAlias = PartitionsLost | PartitionsRevoked | PartitionsAssigned


class MembershipState(Enum):
    IDLE = "idle"
    JOINING = "joining"
    JOINED = "joined"
    LEAVING = "leaving"


class MemberSettings(Value, frozen=True):
    """What a member says of itself. `instance_id` and `assignor` may be empty."""

    group_id: str
    client_id: str = ""
    instance_id: str = ""
    assignor: str = ""
    max_poll_interval_ms: int = 300_000


class ConsumerMembership:
    """Made once for a consumer: it may leave and join again. `new_id` makes member ids."""

    def __init__(self, settings: MemberSettings, new_id: Callable[[], str]) -> None:
        self.settings = settings
        self._new_id = new_id
        self.member_id = new_id()
        self.state = MembershipState.IDLE
        self.epoch = JOIN
        self.owned: Owned = {}
        self.error: OdradekError | None = None  # ends the membership until the next subscribe
        self._subscription: wire.Subscription | None = None
        self._target: Owned | None = None  # None: no answer had an assignment yet
        self._giving_up: Owned = {}
        self._lost: tuple[TopicPartition, ...] = ()
        self._step: Step | None = None
        self._asked: wire.ConsumerGroupHeartbeatRequest | None = None  # and was not answered yet
        self._may_be_member = False  # a heartbeat failed since it last began: the coordinator may have got it
        self._said: wire.ConsumerGroupHeartbeatRequest | None = (
            None  # what the coordinator knows; None: perhaps nothing
        )
        self._due_ms = 0
        self._busy_since_ms: int | None = None  # the application has records, and has not asked for more
        self._is_silent = False  # it did not ask for so long that the member has left

    # --- What the application wants -----------------------------------------------------------------------------------

    @property
    def is_subscribed(self) -> bool:
        return self._subscription is not None

    @property
    def is_settled(self) -> bool:
        """Whether it has what the coordinator said last, if it said anything."""
        return self._target is not None and self._step is None and self._find_step() is None

    def subscribe(self, topics: Iterable[str], pattern: str, now_ms: int) -> None:
        self._subscription = wire.Subscription(tuple(sorted(set(topics))), pattern)
        self.error = None
        self._due_ms = now_ms
        if self.state is MembershipState.IDLE:
            self._begin(now_ms)

    def unsubscribe(self, now_ms: int) -> None:
        """It leaves as soon as it has given up what it has."""
        self._subscription = None
        self._due_ms = now_ms
        if self.state is MembershipState.JOINED:
            self.state, self._target = MembershipState.LEAVING, {}
        elif self.state is MembershipState.JOINING:
            self.state = (
                MembershipState.LEAVING if self._asked is not None or self._may_be_member else MembershipState.IDLE
            )

    def on_ask(self) -> bool:
        """The application wants records: it is done with those that it has. Returns whether it was silent for long."""
        was_silent = self._is_silent
        self._busy_since_ms, self._is_silent = None, False
        return was_silent

    def on_records(self, now_ms: int) -> None:
        """The application has got records."""
        self._busy_since_ms = now_ms

    # --- Steps ------------------------------------------------------------------------------------------------------

    @property
    def has_step(self) -> bool:
        return self._step is None and self._find_step() is not None

    def next_step(self) -> Step | None:
        """What to do now; nothing while the step before is not done."""
        if self._step is not None:
            return None
        self._step = step = self._find_step()
        if isinstance(step, PartitionsRevoked):
            self._giving_up = {each: self.owned.pop(each) for each in step.partitions}
        elif isinstance(step, PartitionsAssigned):
            target = self._target or {}
            self.owned |= {each: target[each] for each in step.partitions}
        return step

    def done(self, step: Step, now_ms: int) -> bool:
        """False: the step was overtaken by the loss of everything."""
        if self._step is not step:
            return False
        self._step = None
        if isinstance(step, PartitionsLost):
            self._lost = ()
        elif isinstance(step, PartitionsRevoked):
            self._giving_up = {}
        self._due_ms = now_ms
        return True

    def _find_step(self) -> Step | None:
        if self._lost:
            return PartitionsLost(self._lost)
        if self._target is None:
            return None
        gone = [each for each, topic_id in self.owned.items() if self._target.get(each) != topic_id]
        if gone:
            return PartitionsRevoked(tuple(gone))
        new = [each for each in self._target if each not in self.owned]
        return PartitionsAssigned(tuple(new)) if new else None

    def _lose(self, now_ms: int) -> None:
        """Nothing is its own any more. What is just being given up is told by that step."""
        self._lost += tuple(self.owned)
        self.owned, self._giving_up, self._step = {}, {}, None
        self._begin(now_ms)

    def _begin(self, now_ms: int) -> None:
        self.state = (
            MembershipState.IDLE if self._subscription is None or self.error is not None else MembershipState.JOINING
        )
        self.epoch, self._said, self._target, self._due_ms = JOIN, None, None, now_ms
        self._may_be_member = False

    # --- Heartbeats -------------------------------------------------------------------------------------------------

    def due_ms(self) -> int | None:
        """When to look what there is to be said; None: not before something else happens."""
        if self._asked is not None or self.state is MembershipState.IDLE:
            return None
        if self.state is MembershipState.JOINING:
            return None if self._lost or self._is_silent else self._due_ms
        if self.state is MembershipState.LEAVING:
            return None if self.owned or self._giving_up else self._due_ms
        silent_ms = self._silent_ms()
        return self._due_ms if silent_ms is None else min(self._due_ms, silent_ms)

    def _silent_ms(self) -> int | None:
        """When the application will have been silent for too long."""
        return None if self._busy_since_ms is None else self._busy_since_ms + self.settings.max_poll_interval_ms

    def heartbeat(self, now_ms: int) -> wire.ConsumerGroupHeartbeatRequest | None:
        """What to say to the coordinator now, if anything; its outcome has to be reported before the next one."""
        due_ms = self.due_ms()
        if due_ms is None or due_ms > now_ms:
            return None
        silent_ms = self._silent_ms()
        if self.state is MembershipState.JOINED and silent_ms is not None and silent_ms <= now_ms:
            self._asked = self._leave()
            self._is_silent = True
            self._lose(now_ms)
        elif self.state is MembershipState.LEAVING:
            self._asked = self._leave()
        else:
            self._asked = self._unsaid(self._all())
        return self._asked

    def _leave(self) -> wire.ConsumerGroupHeartbeatRequest:
        """A static member comes back, and finds what it had."""
        settings = self.settings
        return wire.ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self.member_id,
            member_epoch=LEAVE_FOR_NOW if settings.instance_id else LEAVE,
            group_instance_id=settings.instance_id or None,
            client_id=settings.client_id,
        )

    def _all(self) -> wire.ConsumerGroupHeartbeatRequest:
        settings = self.settings
        by_topic: dict[bytes, list[int]] = {}
        for (_, partition), topic_id in sorted((self.owned | self._giving_up).items()):
            by_topic.setdefault(topic_id, []).append(partition)
        owned = [wire.TopicPartitions(topic_id, "", tuple(numbers)) for topic_id, numbers in by_topic.items()]
        return wire.ConsumerGroupHeartbeatRequest(
            group_id=settings.group_id,
            member_id=self.member_id,
            member_epoch=self.epoch,
            group_instance_id=settings.instance_id or None,
            rebalance_timeout_ms=settings.max_poll_interval_ms,
            subscription=self._subscription,
            server_assignor=settings.assignor or None,
            owned=wire.Assignment(tuple(owned)),
            client_id=settings.client_id,
        )

    def _unsaid(self, full: wire.ConsumerGroupHeartbeatRequest) -> wire.ConsumerGroupHeartbeatRequest:
        said = self._said
        if said is None:
            return full
        return replace(
            full,
            rebalance_timeout_ms=None,
            subscription=None if said.subscription == full.subscription else full.subscription,
            server_assignor=None,
            owned=None if said.owned == full.owned else full.owned,
        )

    def _has_news(self) -> bool:
        unsaid = self._unsaid(self._all())
        return unsaid.subscription is not None or unsaid.owned is not None

    def on_failed(self, retry_ms: int) -> None:
        """It is not known whether the coordinator got it: at `retry_ms` everything is said again."""
        asked, self._asked, self._said = self._asked, None, None
        self._due_ms = retry_ms
        self._may_be_member = True
        if self.state is MembershipState.LEAVING and asked is not None and asked.member_epoch < JOIN:
            self._begin(retry_ms)  # its session ends by itself

    def fail(self, error: OdradekError, now_ms: int) -> None:
        """Nothing that waiting would mend."""
        self._asked, self.error = None, error
        self._lose(now_ms)

    def on_answer(self, answer: wire.ConsumerGroupHeartbeatResponse, now_ms: int) -> None:
        asked, self._asked = self._asked, None
        assert asked is not None, answer
        if asked.member_epoch < JOIN:
            if self.state is MembershipState.LEAVING:
                self._begin(now_ms)
            return
        if answer.error_code:
            self._on_refused(ErrorCode.from_number(answer.error_code), answer.error_message, now_ms)
            return
        joined = self.state is MembershipState.JOINING
        self.epoch = answer.member_epoch
        said = asked if self._said is None else self._said
        self._said = replace(
            said,
            subscription=said.subscription if asked.subscription is None else asked.subscription,
            owned=said.owned if asked.owned is None else asked.owned,
        )
        if self.state is MembershipState.LEAVING:  # unsubscribed while the answer was on its way
            return
        self.state = MembershipState.JOINED
        self._due_ms = now_ms if self._has_news() else now_ms + answer.heartbeat_interval_ms
        if answer.assignment is not None:
            self._target = {
                TopicPartition(each.topic, number): each.topic_id
                for each in answer.assignment.topics
                for number in each.partitions
                if each.topic  # else it was deleted, and the group will hear of it
            }
        elif joined:
            self._target = {}

    def _on_refused(self, code: ErrorCode, message: str, now_ms: int) -> None:
        if code in FENCED and (code is not ErrorCode.GROUP_ID_NOT_FOUND or self.state is not MembershipState.JOINING):
            if self.state is MembershipState.JOINING and not self.settings.instance_id:
                self.member_id = self._new_id()  # the coordinator knows this one from an earlier life
            self._lose(now_ms)
            return
        error = broker_error(code, message, where=f"group {self.settings.group_id!r}")
        error.hint = HINTS.get(code, error.hint)
        self.fail(error, now_ms)
