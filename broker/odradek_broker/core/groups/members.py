"""A member of a classic group, and what members decide together: the protocol, and the topics of consumers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from odradek_broker.core.groups.fields import FieldReader
from odradek_broker.core.groups.messages import DescribedMember, JoinGroup, MemberProtocol
from odradek_broker.core.groups.records import StoredGroup, StoredMember

LEAST_SIZE = 256  # bytes of a member in memory, at least


class ClassicGroupMember:
    """What it said when it joined, what it is assigned, and the calls of it that wait."""

    def __init__(self, member_id: str, request: JoinGroup) -> None:
        self.member_id = member_id
        self.instance_id = request.group_instance_id
        self.client_id = request.client_id
        self.client_host = request.client_host
        self.rebalance_timeout_ms = request.rebalance_timeout_ms
        self.session_timeout_ms = request.session_timeout_ms
        self.protocols = request.protocols
        self.size = size_of(request)
        self.assignment = b""
        self.join: object | None = None  # the token of its JoinGroup that waits
        self.sync: object | None = None
        self.is_new = True  # it has not been told yet that it is a member, so it sends no heartbeats

    @classmethod
    def of(cls, stored: StoredMember, group: StoredGroup) -> ClassicGroupMember:
        joined = JoinGroup(
            "",
            stored.member_id,
            stored.group_instance_id,
            group.protocol_type,
            (MemberProtocol(group.protocol_name or "", stored.subscription),),
            stored.session_timeout_ms,
            stored.rebalance_timeout_ms,
            stored.client_id,
            stored.client_host,
        )
        member = cls(stored.member_id, joined)
        member.assignment = stored.assignment
        member.is_new = False
        return member

    def stored(self, protocol_name: str | None, assignment: bytes) -> StoredMember:
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol_name),
            assignment,
        )

    def described(self, protocol_name: str | None) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol_name),
            self.assignment,
        )

    def metadata(self, protocol_name: str | None) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol_name), b"")

    @property
    def names(self) -> dict[str, None]:
        """Of its protocols, the most wanted first."""
        return dict.fromkeys(protocol.name for protocol in self.protocols)


def size_of(request: JoinGroup) -> int:
    """The bytes of a member, or of an id that is given out: what it brings, and what it costs at least."""
    names = len(request.group_instance_id or "") + 2 * len(request.client_id)
    return LEAST_SIZE + names + sum(len(each.name) + len(each.metadata) for each in request.protocols)


def common_protocols(members: Collection[ClassicGroupMember]) -> dict[str, None]:
    counts = Counter(name for member in members for name in member.names)
    return dict.fromkeys(name for name, count in counts.items() if count == len(members))


def elect_protocol(members: Collection[ClassicGroupMember]) -> str:
    """Each member votes for the one it wants most, among those that all of them know."""
    common = common_protocols(members)
    votes = Counter(next(name for name in member.names if name in common) for member in members)
    return max(votes, key=lambda name: votes[name])


def subscriptions_of(members: Collection[ClassicGroupMember], protocol_name: str | None) -> frozenset[str] | None:
    """The topics of consumers; None where they are not known."""
    try:
        topics = [subscribed_topics(each.metadata(protocol_name)) for each in members]
    except ValueError:
        return None
    return frozenset().union(*topics) if protocol_name is not None or not members else None


def subscribed_topics(subscription: bytes) -> tuple[str, ...]:
    """Of a member whose protocol type is `consumer`: every version begins with the topics. Raises ValueError."""
    reader = FieldReader(subscription)
    reader.int16()
    return reader.array(reader.string)
