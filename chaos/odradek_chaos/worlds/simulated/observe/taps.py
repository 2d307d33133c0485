"""What requests and answers say, call by call: epochs, incarnations and the ends of logs.

A tap observes one unary call, or one stream for its lifetime. Of a request it keeps what its broker knew
when it was taken; the invariants are told of it with the answer, when it is certain whether it was accepted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.partition.follower import FollowerPartition
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.runtime.replicas.replica import Replica
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import split_frame
from odradek_proto.v1 import broker_pb2, controller_messages, quorum_pb2

from odradek_chaos.worlds.simulated.checks.exchanges import (
    AnsweredRequest,
    EndOffsetReceived,
    EndOffsetSent,
    PartitionAltered,
    VoteGranted,
)
from odradek_chaos.worlds.simulated.checks.state import METADATA
from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.observe.watcher import Watcher

LATEST = -1
NONE = -1  # no epoch
Role = LeaderPartition | FollowerPartition
EpochStarts = dict[tuple[str, int], int]


class WireTap(Protocol):
    """Is told what went to and fro, before anybody acts on it."""

    def asked(self, message: bytes) -> None: ...

    def answered(self, message: bytes) -> None: ...


class BrokerTaps:
    """At one incarnation of a broker. What it knows is read from it at the moment."""

    def __init__(self, cluster: SimCluster, watcher: Watcher, epoch_starts: EpochStarts, broker_id: int) -> None:
        self.broker_id = broker_id
        self.epoch_starts = epoch_starts
        self.watcher = watcher
        self._cluster = cluster

    def of(self, method: str) -> WireTap:
        return TAPPED_AT_BROKERS[method](self, method.rpartition("/")[2])

    @property
    def image(self) -> MetadataImage:
        return self._cluster.nodes[self.broker_id].feed.image

    @property
    def quorum_epoch(self) -> int:
        quorum = self._cluster.nodes[self.broker_id].quorum
        return NONE if quorum is None else quorum.epoch

    @property
    def hosted(self) -> dict[TopicPartition, Replica]:
        return self._cluster.hosted(self.broker_id)

    def role(self, key: tuple[str, int]) -> Role | None:
        hosted = self.hosted.get(TopicPartition(*key))
        return None if hosted is None else hosted.role

    def newest_epoch_of(self, broker_id: int) -> int:
        """The newest incarnation of another broker that this one knows."""
        registration = self.image.brokers.get(broker_id)
        return NONE if registration is None else registration.broker_epoch

    def told(self, key: tuple[str, int], role: Role | None, end: int, *, by_fetch: bool) -> None:
        """A leader tells a client the end of a log."""
        if isinstance(role, LeaderPartition):
            partition, epoch, start = f"{key[0]}-{key[1]}", role.leader_epoch, role.epoch_start_offset
            self.epoch_starts[partition, epoch] = start
            self.watcher.end_told(EndOffsetSent(self.broker_id, partition, epoch, end, start, by_fetch))


class FetchTap:
    """A fetch stream, of a follower or a consumer. A partition is answered once for each time that it is named.

    Whatever is answered, nothing is wrong with a request that came with the broker's own epoch and from the newest
    incarnation, since the broker's epoch only grows: only others are remembered.
    """

    def __init__(self, taps: BrokerTaps, request: str) -> None:
        self._taps = taps
        self._sender = self._sender_epoch = self._newest = NONE
        self._odd: dict[tuple[str, int], tuple[int, int]] = {}  # named partition to its leader epoch, the broker's

    def asked(self, message: bytes) -> None:
        header = broker_pb2.FetchHeader.FromString(split_frame(message)[0])
        self._sender, self._sender_epoch = header.replica_id, header.replica_epoch
        if self._sender >= 0:
            self._newest = self._taps.newest_epoch_of(self._sender)
        is_old = 0 <= self._sender_epoch < self._newest
        hosted = self._taps.hosted
        for item in header.partitions:
            key, asked = TopicPartition(item.topic, item.partition), item.current_leader_epoch
            replica = hosted.get(key)
            role = None if replica is None else replica.role
            known = NONE if role is None else role.leader_epoch
            if is_old or asked != known:
                self._odd[key] = (asked, known)
            elif self._odd:
                self._odd.pop(key, None)

    def answered(self, message: bytes) -> None:
        is_follower = self._sender >= 0
        if is_follower and not self._odd:
            return
        for item in broker_pb2.FetchAnswerHeader.FromString(split_frame(message)[0]).partitions:
            key = (item.topic, item.partition)
            odd = self._odd.pop(key, None)
            if odd is not None:
                self._tell(item, *odd)
            if is_follower or item.error_code or item.high_watermark < 0:
                continue
            role = self._taps.role(key)
            if role is not None and role.leader_epoch == item.request_leader_epoch:
                self._taps.told(key, role, item.high_watermark, by_fetch=True)

    def _tell(self, item: broker_pb2.FetchedPartition, asked: int, known: int) -> None:
        taps, role = self._taps, self._taps.role((item.topic, item.partition))
        then = NONE if role is None else role.leader_epoch
        partition, is_refused = f"{item.topic}-{item.partition}", bool(item.error_code)
        sender, epoch = self._sender, self._sender_epoch
        if item.diverging:
            sender = epoch = NONE  # such an answer acknowledges nothing
        taps.watcher.answered(
            AnsweredRequest(
                taps.broker_id, partition, "FetchStream", asked, known, then, is_refused, sender, epoch, self._newest
            )
        )


class OffsetsTap:
    """ListOffsets and OffsetsForLeaderEpoch, with the epoch that fences them."""

    def __init__(self, taps: BrokerTaps, request: str) -> None:
        self._taps = taps
        self._request = request
        self._is_listing = request == "ListOffsets"
        self._named: list[tuple[tuple[str, int], int, int]] = []  # key, leader epoch of the request, the broker's
        self._latest: set[tuple[str, int]] = set()  # asked for by a client

    def asked(self, message: bytes) -> None:
        kind: Any = broker_pb2.ListOffsetsRequest if self._is_listing else broker_pb2.OffsetsForLeaderEpochRequest
        request = kind.FromString(message)
        for item in request.partitions:
            key = (item.topic, item.partition)
            role = self._taps.role(key)
            known = NONE if role is None else role.leader_epoch
            self._named.append((key, item.current_leader_epoch, known))
            if self._is_listing and request.replica_id < 0 and item.timestamp_ms == LATEST:
                self._latest.add(key)

    def answered(self, message: bytes) -> None:
        kind: Any = broker_pb2.ListOffsetsResponse if self._is_listing else broker_pb2.OffsetsForLeaderEpochResponse
        for (key, asked, known), item in zip(self._named, kind.FromString(message).partitions, strict=True):
            role, partition = self._taps.role(key), f"{key[0]}-{key[1]}"
            then, is_refused = NONE if role is None else role.leader_epoch, bool(item.error_code)
            self._taps.watcher.answered(
                AnsweredRequest(self._taps.broker_id, partition, self._request, asked, known, then, is_refused)
            )
            if key in self._latest and not is_refused:
                self._taps.told(key, role, item.offset, by_fetch=False)


class QuorumTap:
    """Anything between nodes of the quorum. Votes and new leaders may be ahead of whoever is asked: it follows.

    A node may end while it answers, and knows no epoch then; the one that it was asked in counts.
    """

    def __init__(self, taps: BrokerTaps, request: str) -> None:
        self._taps = taps
        self._request = request
        self._asked = self._known = NONE

    def asked(self, message: bytes) -> None:
        kind, _, epoch = _OF_THE_QUORUM[self._request]
        self._asked, self._known = getattr(kind.FromString(message), epoch), self._taps.quorum_epoch

    def answered(self, message: bytes) -> None:
        _, kind, epoch = _OF_THE_QUORUM[self._request]
        answer, taps = kind.FromString(message), self._taps
        then = max(self._known, taps.quorum_epoch) if epoch == "current_leader_epoch" else self._asked
        is_refused = bool(answer.error_code)
        taps.watcher.answered(
            AnsweredRequest(taps.broker_id, METADATA, self._request, self._asked, self._known, then, is_refused)
        )


_OF_THE_QUORUM: dict[str, tuple[Any, Any, str]] = {  # request, answer, and where the request has its epoch
    "Vote": (quorum_pb2.VoteRequest, quorum_pb2.VoteResponse, "candidate_epoch"),
    "BeginQuorumEpoch": (quorum_pb2.BeginQuorumEpochRequest, quorum_pb2.QuorumEpochResponse, "leader_epoch"),
    "EndQuorumEpoch": (quorum_pb2.EndQuorumEpochRequest, quorum_pb2.QuorumEpochResponse, "leader_epoch"),
    "Fetch": (quorum_pb2.QuorumFetchRequest, quorum_pb2.QuorumFetchResponse, "current_leader_epoch"),
    "FetchSnapshot": (quorum_pb2.FetchSnapshotRequest, quorum_pb2.FetchSnapshotResponse, "current_leader_epoch"),
}


class VoteTap(QuorumTap):
    """The same, and a vote that is granted is given away with the answer."""

    def asked(self, message: bytes) -> None:
        super().asked(message)
        self._vote = quorum_pb2.VoteRequest.FromString(message)

    def answered(self, message: bytes) -> None:
        super().answered(message)
        vote, taps = self._vote, self._taps
        if quorum_pb2.VoteResponse.FromString(message).vote_granted and not vote.pre_vote:
            taps.watcher.vote_granted(VoteGranted(taps.broker_id, vote.candidate_epoch, vote.candidate_id))


class _Proposal(NamedTuple):
    """Of an ISR: for a partition, under a leader epoch, the one that the controller knew, and a partition epoch."""

    partition: str
    asked: int
    known: int
    partition_epoch: int


class ControllerTap:
    """What brokers want of the controller: changes of ISRs, producer ids, and to be seen as alive (a stream).

    The controller decides by metadata that may be ahead of what it has applied as a broker, and never behind.
    """

    def __init__(self, taps: BrokerTaps, request: str) -> None:
        self._taps = taps
        self._request = request
        self._waiting: deque[tuple[Any, int, dict[tuple[bytes, int], _Proposal]]] = deque()

    def asked(self, message: bytes) -> None:
        request = _OF_THE_CONTROLLER[self._request][0].FromString(message)
        items: dict[tuple[bytes, int], _Proposal] = {}
        if self._request == "AlterPartition":
            topics = {topic.topic_id: topic for topic in self._taps.image.topics.values()}
            for item in request.partitions:
                topic = topics.get(item.topic_id)
                found = None if topic is None else topic.partitions.get(item.partition)
                if topic is not None and found is not None:
                    name = f"{topic.name}-{item.partition}"
                    known = found.leader_epoch
                    items[item.topic_id, item.partition] = _Proposal(
                        name, item.leader_epoch, known, item.partition_epoch
                    )
        self._waiting.append((request, self._taps.newest_epoch_of(request.broker_id), items))

    def answered(self, message: bytes) -> None:
        answer, taps = _OF_THE_CONTROLLER[self._request][1].FromString(message), self._taps
        request, newest, items = self._waiting.popleft()
        sender, epoch, is_refused = request.broker_id, request.broker_epoch, bool(answer.error_code)
        told = taps.watcher.answered
        told(
            AnsweredRequest(
                taps.broker_id, METADATA, self._request, NONE, NONE, NONE, is_refused, sender, epoch, newest
            )
        )
        for item in answer.partitions if items else ():
            name, asked, known, epoch = items.get((item.topic_id, item.partition), _Proposal("", NONE, NONE, NONE))
            told(AnsweredRequest(taps.broker_id, name, self._request, asked, known, asked, bool(item.error_code)))
            if name and not item.error_code:
                taps.watcher.partition_altered(PartitionAltered(taps.broker_id, name, epoch, item.partition_epoch))


_OF_THE_CONTROLLER: dict[str, tuple[Any, Any]] = {
    "AlterPartition": (controller_messages.AlterPartitionRequest, controller_messages.AlterPartitionResponse),
    "AllocateProducerIds": (
        controller_messages.AllocateProducerIdsRequest,
        controller_messages.AllocateProducerIdsResponse,
    ),
    "Session": (controller_messages.Heartbeat, controller_messages.HeartbeatAnswer),
}

TAPPED_AT_BROKERS: dict[str, Callable[[BrokerTaps, str], WireTap]] = {
    "/odradek.v1.Broker/FetchStream": FetchTap,
    "/odradek.v1.Replication/FetchStream": FetchTap,
    **{
        f"/odradek.v1.{service}/{name}": OffsetsTap
        for service in ("Broker", "Replication")
        for name in ("ListOffsets", "OffsetsForLeaderEpoch")
    },
    **{f"/odradek.v1.Quorum/{name}": QuorumTap for name in _OF_THE_QUORUM},
    "/odradek.v1.Quorum/Vote": VoteTap,
    **{f"/odradek.v1.Controller/{name}": ControllerTap for name in _OF_THE_CONTROLLER},
}


# --- clients


class ClientTaps:
    """At one incarnation of a client: the largest ends of logs that have arrived there."""

    def __init__(self, watcher: Watcher, epoch_starts: EpochStarts, client: str) -> None:
        self.client = client
        self._watcher = watcher
        self._epoch_starts = epoch_starts
        self._ends: dict[tuple[str, int], int] = {}

    def of(self, method: str) -> WireTap | None:
        make = _TAPPED_AT_CLIENTS.get(method)
        return None if make is None else make(self)

    def floor(self, key: tuple[str, int]) -> int:
        return self._ends.get(key, 0)

    def heard(self, key: tuple[str, int], epoch: int, end: int, floor: int, *, by_fetch: bool) -> None:
        partition = f"{key[0]}-{key[1]}"
        start = self._epoch_starts.get((partition, epoch), 0)
        self._watcher.end_heard(EndOffsetReceived(self.client, partition, epoch, end, floor, start, by_fetch))
        if end > self._ends.get(key, 0):
            self._ends[key] = end


class ConsumerFetchTap:
    """A consumer's fetch stream: each answer carries a high watermark.

    A stream that was cut off may deliver the answer to a request of an older leader epoch after a newer one was sent.
    What the consumer knew when it asked is therefore kept for each epoch that it named.
    """

    def __init__(self, taps: ClientTaps) -> None:
        self._taps = taps
        self._floors: dict[tuple[str, int], dict[int, int]] = {}  # of each partition: leader epoch to the floor

    def asked(self, message: bytes) -> None:
        for item in broker_pb2.FetchHeader.FromString(split_frame(message)[0]).partitions:
            key = (item.topic, item.partition)
            self._floors.setdefault(key, {})[item.current_leader_epoch] = self._taps.floor(key)

    def answered(self, message: bytes) -> None:
        for item in broker_pb2.FetchAnswerHeader.FromString(split_frame(message)[0]).partitions:
            key = (item.topic, item.partition)
            if not item.error_code and item.high_watermark >= 0 and item.request_leader_epoch >= 0:
                floor = self._floors.get(key, {}).get(item.request_leader_epoch, 0)
                self._taps.heard(key, item.request_leader_epoch, item.high_watermark, floor, by_fetch=True)


class ListOffsetsTap:
    """A question for the ends of logs."""

    def __init__(self, taps: ClientTaps) -> None:
        self._taps = taps
        self._floors: dict[tuple[str, int], int] = {}

    def asked(self, message: bytes) -> None:
        for item in broker_pb2.ListOffsetsRequest.FromString(message).partitions:
            if item.timestamp_ms == LATEST and item.current_leader_epoch >= 0:
                key = (item.topic, item.partition)
                self._floors[key] = self._taps.floor(key)

    def answered(self, message: bytes) -> None:
        for item in broker_pb2.ListOffsetsResponse.FromString(message).partitions:
            floor = self._floors.get((item.topic, item.partition))
            if floor is not None and not item.error_code:
                key = (item.topic, item.partition)
                self._taps.heard(key, item.leader_epoch, item.offset, floor, by_fetch=False)


_TAPPED_AT_CLIENTS: dict[str, Callable[[ClientTaps], WireTap]] = {
    "/odradek.v1.Broker/FetchStream": ConsumerFetchTap,
    "/odradek.v1.Broker/ListOffsets": ListOffsetsTap,
}
