"""Messages of a stranger: what nodes say to each other, with the right cluster id, and ids, epochs and offsets that are
right, a little wrong, or as large as they get.

A stranger without credentials can say exactly what a peer would say. What only credentials can tell apart is left out
here (docs/limits.md): a fetch that acknowledges in a replica's name, an ISR with the right epochs, in the right leader
epoch where a copy ends or that one without a leader is damaged, as its broker reports it, and a registration in the
name of a broker that is down. Whatever is left may disturb for a moment, and must change nothing for good.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from odradek_broker.core.metadata.image import MetadataImage
from odradek_proto.messages import Request
from odradek_proto.v1 import controller_messages, quorum_pb2

QUORUM, CONTROLLER = "/odradek.v1.Quorum/", "/odradek.v1.Controller/"
SESSION = CONTROLLER + "Session"  # a stream; all others are calls
INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
INTS = (-(2**31), -1, 0, 1, 2**30, INT_MAX - 1, INT_MAX)
LONGS = (-(2**63), *INTS, 2**31, 2**62, LONG_MAX)
GHOST = 99  # a broker that there is not


@dataclass(frozen=True, slots=True)
class ClusterKnowledge:
    """What anybody can find out about a cluster who may ask it."""

    cluster_id: str
    nodes: Sequence[int]
    epoch: int  # of the quorum
    end_offset: int  # of the metadata log
    image: MetadataImage


@dataclass(frozen=True, slots=True)
class ForgedRequest:
    """One request, or the first message on a stream, for the CONTROLLER listener of a node."""

    node: int
    method: str
    request: bytes


class Forger:
    """Makes them, as chance wills."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def message(self, known: ClusterKnowledge) -> ForgedRequest:
        kinds: tuple[Callable[[ClusterKnowledge], tuple[str, Request]], ...] = (
            self._vote,
            self._begin,
            self._end,
            self._fetch,
            self._fetch_snapshot,
            self._register,
            self._alter_partition,
            self._allocate,
            self._forward,
            self._session,
        )
        method, message = self._rng.choice(kinds)(known)
        request = message.SerializeToString()
        if self._rng.random() < 0.1:  # no message at all, or a part of one
            request = self._rng.choice((self._rng.randbytes(40), request[: len(request) // 2]))
        return ForgedRequest(self._rng.choice(known.nodes), method, request)

    # --- numbers

    def _int(self, right: int) -> int:
        found = self._rng.choice((right, right, right - 1, right + 1, right + 2, right + 1_000, *INTS))
        return min(max(found, -INT_MAX - 1), INT_MAX)

    def _long(self, right: int) -> int:
        found = self._rng.choice((right, right, right - 1, right + 1, right + 1_000, *LONGS))
        return min(max(found, -LONG_MAX - 1), LONG_MAX)

    def _often(self, right: int) -> int:
        return right if self._rng.random() < 0.8 else self._long(right)

    def _node(self, known: ClusterKnowledge) -> int:
        return self._rng.choice((*known.nodes, *known.nodes, GHOST, -1, INT_MAX))

    # --- the quorum

    def _vote(self, known: ClusterKnowledge) -> tuple[str, Request]:
        return QUORUM + "Vote", quorum_pb2.VoteRequest(
            cluster_id=known.cluster_id,
            candidate_epoch=self._int(known.epoch),
            candidate_id=self._node(known),
            last_epoch=self._int(known.epoch),
            last_epoch_end_offset=self._long(known.end_offset),
            pre_vote=self._rng.random() < 0.3,
        )

    def _begin(self, known: ClusterKnowledge) -> tuple[str, Request]:
        return QUORUM + "BeginQuorumEpoch", quorum_pb2.BeginQuorumEpochRequest(
            cluster_id=known.cluster_id, leader_id=self._node(known), leader_epoch=self._int(known.epoch)
        )

    def _end(self, known: ClusterKnowledge) -> tuple[str, Request]:
        return QUORUM + "EndQuorumEpoch", quorum_pb2.EndQuorumEpochRequest(
            cluster_id=known.cluster_id,
            leader_id=self._node(known),
            leader_epoch=self._int(known.epoch),
            preferred_successors=[self._node(known) for _ in range(self._rng.choice((0, 2, 3, 1_000)))],
        )

    def _fetch(self, known: ClusterKnowledge) -> tuple[str, Request]:
        """As an observer; or as a voter that acknowledges nothing: it may have lost its disk, or names an epoch or an
        offset that there is not."""
        epoch, offset = self._int(known.epoch), self._long(known.end_offset)
        replica, catching_up = self._node(known), self._rng.random() < 0.2
        if replica in known.nodes and offset >= 0 and not catching_up:
            epoch = self._rng.choice((-1, INT_MAX, 0))
        return QUORUM + "Fetch", quorum_pb2.QuorumFetchRequest(
            cluster_id=known.cluster_id,
            replica_id=replica,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            last_fetched_epoch=self._int(epoch),
            max_wait_ms=self._int(500),
            max_bytes=self._int(1_000),
            high_watermark=self._long(known.end_offset),
            catching_up=catching_up,
            voted_for_leader=not (catching_up and replica in known.nodes) and self._rng.random() < 0.2,
        )

    def _fetch_snapshot(self, known: ClusterKnowledge) -> tuple[str, Request]:
        """As a voter only if it counts for nothing yet."""
        catching_up = self._rng.random() < 0.5
        return QUORUM + "FetchSnapshot", quorum_pb2.FetchSnapshotRequest(
            cluster_id=known.cluster_id,
            replica_id=self._node(known) if catching_up else self._rng.choice((GHOST, -1, INT_MAX)),
            catching_up=catching_up,
            current_leader_epoch=self._int(known.epoch),
            snapshot=quorum_pb2.SnapshotId(end_offset=self._long(known.end_offset), epoch=self._int(known.epoch)),
            position=self._long(0),
            max_bytes=self._int(100),
        )

    # --- the controller

    def _register(self, known: ClusterKnowledge) -> tuple[str, Request]:
        address = self._rng.choice(("stranger:9092", "stranger", "\x1b[31m:1", "", "a" * 5_000 + ":1"))
        return CONTROLLER + "RegisterBroker", controller_messages.RegisterBrokerRequest(
            broker_id=self._rng.choice((GHOST, -1, INT_MAX)),
            cluster_id=known.cluster_id,
            incarnation_id=self._rng.randbytes(self._rng.choice((0, 16, 16, 1_000))),
            endpoints={"GRPC": address},
            previous_broker_epoch=self._long(known.end_offset),
        )

    def _alter_partition(self, known: ClusterKnowledge) -> tuple[str, Request]:
        """Never with both epochs right."""
        topics = [(topic, number) for topic in known.image.topics.values() for number in sorted(topic.partitions)]
        broker = self._node(known)
        registration = known.image.brokers.get(broker)
        broker_epoch = self._long(-1 if registration is None else registration.broker_epoch)
        items = []
        for topic, number in self._rng.sample(topics, min(2, len(topics))):
            partition = topic.partitions[number]
            epochs = self._int(partition.leader_epoch), self._int(partition.partition_epoch)
            if epochs == (partition.leader_epoch, partition.partition_epoch):
                epochs = (INT_MAX, epochs[1])
            items.append(
                controller_messages.AlterPartitionItem(
                    topic_id=topic.topic_id,
                    partition=number,
                    leader_epoch=epochs[0],
                    partition_epoch=epochs[1],
                    new_isr=[
                        controller_messages.IsrMember(broker_id=member, broker_epoch=self._long(0))
                        for member in self._rng.choices((*partition.replicas, GHOST, -1, INT_MAX), k=2)
                    ],
                )
            )
        return CONTROLLER + "AlterPartition", controller_messages.AlterPartitionRequest(
            broker_id=broker, broker_epoch=broker_epoch, partitions=items
        )

    def _allocate(self, known: ClusterKnowledge) -> tuple[str, Request]:
        broker = self._node(known)
        registration = known.image.brokers.get(broker)
        epoch = self._long(-1 if registration is None else registration.broker_epoch)
        return CONTROLLER + "AllocateProducerIds", controller_messages.AllocateProducerIdsRequest(
            broker_id=broker, broker_epoch=epoch
        )

    def _session(self, known: ClusterKnowledge) -> tuple[str, Request]:
        """A heartbeat in a broker's name. It has the right leader epoch only of damaged copies that have a leader."""
        broker, copies = self._node(known), []
        registration = known.image.brokers.get(broker)
        for topic in known.image.topics.values():
            for number in sorted(topic.partitions):
                current, damaged = topic.partitions[number], self._rng.random() < 0.5
                epoch = self._int(current.leader_epoch)
                if epoch == current.leader_epoch and not (damaged and current.leader >= 0):
                    epoch = INT_MAX
                copies.append(
                    controller_messages.ReplicaReport(
                        topic_id=topic.topic_id,
                        partition=number,
                        leader_epoch=epoch,
                        last_epoch=self._int(current.leader_epoch),
                        log_end_offset=self._long(0),
                        damaged=damaged,
                    )
                )
        return SESSION, controller_messages.Heartbeat(
            broker_id=broker,
            broker_epoch=self._often(-1 if registration is None else registration.broker_epoch),
            incarnation_id=b"" if registration is None or self._rng.random() < 0.2 else registration.incarnation_id,
            current_metadata_offset=self._often(known.image.offset),
            want_fence=self._rng.random() < 0.3,
            want_shut_down=self._rng.random() < 0.3,
            replicas=self._rng.sample(copies, self._rng.randint(0, min(2, len(copies)))),
            unreachable=[self._node(known) for _ in range(self._rng.choice((0, 1, 3)))],
        )

    def _forward(self, known: ClusterKnowledge) -> tuple[str, Request]:
        method = self._rng.choice(("CreateTopics", "AlterConfigs", "DescribeQuorum", "Nothing", "", "\x00"))
        return CONTROLLER + "ForwardAdmin", controller_messages.ForwardedRequest(
            method=f"/odradek.v1.Admin/{method}", request=self._rng.randbytes(self._rng.choice((1, 30, 1_000)))
        )
