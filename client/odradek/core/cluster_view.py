"""What a client knows of the cluster: brokers, topics, leaders.

Rules of this module. A leader epoch never goes back: metadata with a smaller one than known is old news from a broker
that lags, and is ignored (R-267), unless the topic id changed, for then the topic is another one. A hint that came
with NOT_LEADER_OR_FOLLOWER (KIP-951) counts at once, but only when its epoch is newer.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from odradek.core.answers import MetadataResponse, TopicMetadata
from odradek.shared.errors import OdradekError, UnknownTopic, broker_error, no_such_partition

NO_LEADER = -1
DEFAULT_LISTENER = "GRPC"


@dataclass(frozen=True, slots=True)
class LeaderAndEpoch:
    """Who leads a partition (-1: nobody), and since which leader epoch."""

    leader_id: int
    epoch: int


UNKNOWN_LEADER = LeaderAndEpoch(NO_LEADER, -1)


@dataclass(slots=True)
class TopicView:
    """One topic. `error` is NONE, or why the broker could not describe it."""

    topic_id: bytes
    leaders: dict[int, LeaderAndEpoch]
    error: ErrorCode = ErrorCode.NONE


class ClusterView:
    """The latest knowledge of the cluster, from any broker's answers."""

    def __init__(self, bootstrap_servers: tuple[str, ...]) -> None:
        self.cluster_id = ""
        self.controller_id = -1
        self.listener = DEFAULT_LISTENER
        self.brokers: dict[int, str] = {}
        self.fenced: dict[int, None] = {}  # those of them that the controller does not hear
        self.topics: dict[str, TopicView] = {}
        self._bootstrap_servers = bootstrap_servers

    def leader_of(self, partition: TopicPartition) -> LeaderAndEpoch:
        topic = self.topics.get(partition.topic)
        return UNKNOWN_LEADER if topic is None else topic.leaders.get(partition.partition, UNKNOWN_LEADER)

    def address_of(self, broker_id: int) -> str | None:
        return self.brokers.get(broker_id)

    def addresses_of(self, *, fenced: bool) -> list[str]:
        """The addresses of the brokers that are fenced, or of those that are not, in order of their ids."""
        return [address for broker_id, address in sorted(self.brokers.items()) if (broker_id in self.fenced) is fenced]

    def partitions_of(self, topic: str) -> list[int] | None:
        """The topic's partition numbers in order; None when the topic is not known."""
        known = self.topics.get(topic)
        return None if known is None or known.error is not ErrorCode.NONE else sorted(known.leaders)

    def trouble_of(self, topic: str) -> OdradekError | None:
        """What the brokers said last in place of a topic's partitions; a topic that does not exist may be made yet."""
        known = self.topics.get(topic)
        if known is None or known.error is ErrorCode.NONE:
            return None
        if known.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return broker_error(known.error, where=topic)
        return _not_yet(UnknownTopic(f"there is no topic {topic!r}", topic=topic))

    def why_leaderless(self, partition: TopicPartition) -> OdradekError:
        """Why a partition without a leader has none."""
        if (error := self.trouble_of(partition.topic)) is not None:
            return error
        numbers = self.partitions_of(partition.topic)
        if numbers is not None and partition.partition not in numbers:
            return _not_yet(no_such_partition(*partition, len(numbers)))
        return broker_error(ErrorCode.LEADER_NOT_AVAILABLE, where=str(partition))

    def update(self, answer: MetadataResponse, answered_by: str) -> None:
        """Take over a broker's answer; `answered_by` is the address under which that broker was asked."""
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.controller_id = answer.controller_id
        if answer.brokers:
            self._choose_listener(answer, answered_by)
            brokers = {broker.broker_id: broker.endpoints.get(self.listener, "") for broker in answer.brokers}
            self.brokers = {broker_id: address for broker_id, address in brokers.items() if address}
            self.fenced = {broker.broker_id: None for broker in answer.brokers if broker.fenced}
        for topic in answer.topics:
            self._update_topic(topic)

    def _choose_listener(self, answer: MetadataResponse, answered_by: str) -> None:
        """Brokers are reached by the listener through which the client came in."""
        if answer.listener:
            self.listener = answer.listener
            return
        if answered_by not in self._bootstrap_servers:
            return
        for broker in answer.brokers:
            for listener, address in broker.endpoints.items():
                if address == answered_by:
                    self.listener = listener
                    return

    def _update_topic(self, found: TopicMetadata) -> None:
        error = ErrorCode.from_number(found.error_code)
        known = self.topics.get(found.topic)
        if error is not ErrorCode.NONE:
            if known is None or not error.retriable or error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                leaders = {} if known is None else known.leaders
                self.topics[found.topic] = TopicView(found.topic_id, leaders, error)
            return
        same = known is not None and (known.topic_id == found.topic_id or not known.topic_id)
        old = known.leaders if known is not None and same else {}
        leaders = {}
        for partition in found.partitions:
            new = LeaderAndEpoch(partition.leader_id, partition.leader_epoch)
            before = old.get(partition.partition)
            leaders[partition.partition] = before if before is not None and before.epoch > new.epoch else new
        self.topics[found.topic] = TopicView(found.topic_id, leaders)

    def hint_leader(self, partition: TopicPartition, leader_id: int, epoch: int) -> bool:
        """A broker that does not lead says who does. Returns whether that was news that can be used."""
        topic = self.topics.get(partition.topic)
        if topic is None or leader_id not in self.brokers or partition.partition not in topic.leaders:
            return False
        if epoch <= topic.leaders[partition.partition].epoch:
            return False
        topic.leaders[partition.partition] = LeaderAndEpoch(leader_id, epoch)
        return True


def _not_yet(error: UnknownTopic) -> UnknownTopic:
    """For those who wait for what may be made later, or is so new that not every broker knows it."""
    error.retriable = True
    return error
