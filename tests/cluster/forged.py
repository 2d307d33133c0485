"""What a stranger says who knows everything that the metadata log tells: right ids, extreme and plausible values.

`refused`: it cannot be, so nobody takes it, whoever says it. `answered`: a question that changes nothing. `taken`:
nobody can tell it from what the named node would say, so an open listener believes it, and the harm must not last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from odradek_broker.core.metadata.image import MetadataImage
from odradek_proto.transport.frames import pack_frame
from odradek_proto.v1 import admin_messages as admin
from odradek_proto.v1 import broker_pb2 as broker
from odradek_proto.v1 import controller_messages as controller
from odradek_proto.v1 import quorum_pb2 as quorum

INT_MAX, LONG_MAX = 2**31 - 1, 2**63 - 1
REFUSED, ANSWERED, TAKEN = "refused", "answered", "taken"
STREAMS: Final = ("Session", "FetchStream")
LISTENERS: Final = {"Quorum": "controller", "Controller": "controller", "Replication": "replication"}  # else: clients'


class Facts(NamedTuple):
    """What a stranger has read."""

    cluster_id: str
    image: MetadataImage
    leader: int  # of the quorum
    epoch: int

    @property
    def topic_id(self) -> bytes:
        return self.image.topics["orders"].topic_id

    @property
    def partition(self) -> Any:
        return self.image.topics["orders"].partitions[0]

    @property
    def follower(self) -> int:
        """Of the partition and of the quorum."""
        return min(set(self.image.brokers) - {self.leader, self.partition.leader})


class Forged(NamedTuple):
    method: str  # such as Quorum/Vote
    name: str
    outcome: str
    message: Callable[[Facts], Any]  # with `SerializeToString`, or bytes


def row(method: str, name: str, outcome: str, message: Callable[[Facts], Any]) -> Forged:
    return Forged(method, name, outcome, message)


def vote(f: Facts, **changes: Any) -> quorum.VoteRequest:
    fields = {"candidate_epoch": f.epoch + 1, "candidate_id": f.follower, "last_epoch": f.epoch, **changes}
    return quorum.VoteRequest(cluster_id=f.cluster_id, **{"last_epoch_end_offset": f.image.offset + 100, **fields})


def begin(f: Facts, **changes: Any) -> quorum.BeginQuorumEpochRequest:
    fields = {"leader_id": f.follower, "leader_epoch": f.epoch + 1, **changes}
    return quorum.BeginQuorumEpochRequest(cluster_id=f.cluster_id, **fields)


def end(f: Facts, **changes: Any) -> quorum.EndQuorumEpochRequest:
    fields = {"leader_id": f.leader, "leader_epoch": f.epoch, "preferred_successors": [f.follower], **changes}
    return quorum.EndQuorumEpochRequest(cluster_id=f.cluster_id, **fields)


def quorum_fetch(f: Facts, **changes: Any) -> quorum.QuorumFetchRequest:
    fields = {"replica_id": f.follower, "current_leader_epoch": f.epoch, "fetch_offset": 0, "max_bytes": 1 << 20}
    return quorum.QuorumFetchRequest(cluster_id=f.cluster_id, **{**fields, "last_fetched_epoch": -1, **changes})


def snapshot(f: Facts, position: int = 0, **changes: Any) -> quorum.FetchSnapshotRequest:
    fields: dict[str, Any] = {"replica_id": f.follower, "current_leader_epoch": f.epoch, **changes}
    found = fields.pop("snapshot", quorum.SnapshotId(end_offset=1, epoch=1))
    return quorum.FetchSnapshotRequest(
        cluster_id=f.cluster_id, snapshot=found, position=position, max_bytes=1 << 20, **fields
    )


def register(f: Facts, **changes: Any) -> controller.RegisterBrokerRequest:
    known = f.image.brokers[f.follower]
    fields = {
        "broker_id": f.follower, "cluster_id": f.cluster_id, "incarnation_id": bytes(range(16)),
        "endpoints": dict(known.endpoints), "previous_broker_epoch": -1, "log_directory_id": known.log_directory_id,
    }  # fmt: skip
    return controller.RegisterBrokerRequest(**{**fields, **changes})


def heartbeat(f: Facts, **changes: Any) -> controller.Heartbeat:
    known = f.image.brokers[f.follower]
    fields = {
        "broker_id": f.follower, "broker_epoch": known.broker_epoch, "incarnation_id": known.incarnation_id,
        "current_metadata_offset": f.image.offset,
    }  # fmt: skip
    return controller.Heartbeat(**{**fields, **changes})


def isr(f: Facts, members: list[int] | None = None, *, sender: int | None = None, **changes: Any) -> Any:
    leader = f.partition.leader if sender is None else sender
    epochs = {each: known.broker_epoch for each, known in f.image.brokers.items()}
    named = [f.partition.leader] if members is None else members
    item = {
        "topic_id": f.topic_id, "partition": 0, "leader_epoch": f.partition.leader_epoch,
        "partition_epoch": f.partition.partition_epoch,
        "new_isr": [controller.IsrMember(broker_id=each, broker_epoch=epochs.get(each, 1)) for each in named],
    }  # fmt: skip
    epoch = changes.pop("broker_epoch", epochs.get(leader, 1))
    return controller.AlterPartitionRequest(
        broker_id=leader, broker_epoch=epoch, partitions=[controller.AlterPartitionItem(**{**item, **changes})]
    )


def forward(f: Facts, method: str, request: Any, **changes: Any) -> controller.ForwardedRequest:
    fields = {"method": method, "request": request, "principal": "User:ANONYMOUS", "listener": "GRPC", **changes}
    return controller.ForwardedRequest(**fields)


def fetch(f: Facts, *, topic: str = "orders", replica: int | None = None, **changes: Any) -> bytes:
    follower = f.follower if replica is None else replica
    known = f.image.brokers.get(follower)
    header = broker.FetchHeader(
        replica_id=follower, replica_epoch=changes.pop("replica_epoch", known.broker_epoch if known else 1),
        max_wait_ms=1, max_bytes=1 << 20, credit_bytes=1 << 20,
    )  # fmt: skip
    fields = {
        "fetch_offset": 0, "current_leader_epoch": f.partition.leader_epoch, "last_fetched_epoch": -1,
        "log_start_offset": 0, "max_bytes": 1 << 20, "topic_id": f.topic_id, **changes,
    }  # fmt: skip
    header.partitions.add(topic=topic, partition=fields.pop("partition", 0), **fields)
    return pack_frame(header.SerializeToString(), ())


TABLE: Final = (
    row("Quorum/Vote", "largest epoch", REFUSED, lambda f: vote(f, candidate_epoch=INT_MAX)),
    row("Quorum/Vote", "far epoch", REFUSED, lambda f: vote(f, candidate_epoch=f.epoch + 1_000_000)),
    row("Quorum/Vote", "negative epoch", REFUSED, lambda f: vote(f, candidate_epoch=-1)),
    row("Quorum/Vote", "old epoch", REFUSED, lambda f: vote(f, candidate_epoch=f.epoch - 1)),
    row("Quorum/Vote", "candidate that is no voter", REFUSED, lambda f: vote(f, candidate_id=99)),
    row("Quorum/Vote", "log from the future", REFUSED, lambda f: vote(f, last_epoch=INT_MAX)),
    row("Quorum/Vote", "negative log", REFUSED, lambda f: vote(f, last_epoch_end_offset=-1)),
    row("Quorum/Vote", "another cluster", REFUSED, lambda f: vote(f._replace(cluster_id="x" * 22))),
    row("Quorum/Vote", "next epoch", TAKEN, vote),
    row("Quorum/BeginQuorumEpoch", "largest epoch", REFUSED, lambda f: begin(f, leader_epoch=INT_MAX)),
    row("Quorum/BeginQuorumEpoch", "second leader of the epoch", REFUSED, lambda f: begin(f, leader_epoch=f.epoch)),
    row("Quorum/BeginQuorumEpoch", "leader that is no voter", REFUSED, lambda f: begin(f, leader_id=99)),
    row("Quorum/BeginQuorumEpoch", "next epoch", TAKEN, begin),
    row("Quorum/EndQuorumEpoch", "largest epoch", REFUSED, lambda f: end(f, leader_epoch=INT_MAX)),
    row("Quorum/EndQuorumEpoch", "of one who does not lead", REFUSED, lambda f: end(f, leader_id=f.follower)),
    row("Quorum/EndQuorumEpoch", "of the leader", TAKEN, end),
    row("Quorum/Fetch", "from an offset that is not there", REFUSED, lambda f: quorum_fetch(f, fetch_offset=LONG_MAX)),
    row("Quorum/Fetch", "from a negative offset", REFUSED, lambda f: quorum_fetch(f, fetch_offset=-1)),
    row("Quorum/Fetch", "in the largest epoch", REFUSED, lambda f: quorum_fetch(f, current_leader_epoch=INT_MAX)),
    row("Quorum/Fetch", "as one who is nobody", REFUSED, lambda f: quorum_fetch(f, replica_id=-5)),
    row("Quorum/Fetch", "of the whole log", ANSWERED, quorum_fetch),
    row("Quorum/FetchSnapshot", "that is not there", REFUSED, snapshot),
    row("Quorum/FetchSnapshot", "from beyond its end", REFUSED, lambda f: snapshot(f, LONG_MAX)),
    row("Quorum/FetchSnapshot", "from before it", REFUSED, lambda f: snapshot(f, -1)),
    row("Controller/RegisterBroker", "another cluster", REFUSED, lambda f: register(f, cluster_id="x" * 22)),
    row("Controller/RegisterBroker", "negative id", REFUSED, lambda f: register(f, broker_id=-1)),
    row("Controller/RegisterBroker", "a broker that runs", REFUSED, register),
    row("Controller/RegisterBroker", "a broker that runs, elsewhere", REFUSED,
        lambda f: register(f, incarnation_id=f.image.brokers[f.follower].incarnation_id, rack="of a stranger")),
    row("Controller/RegisterBroker", "no incarnation", REFUSED, lambda f: register(f, incarnation_id=b"")),
    row("Controller/RegisterBroker", "no address", REFUSED, lambda f: register(f, endpoints={"GRPC": "nowhere"})),
    row("Controller/RegisterBroker", "a new broker", TAKEN, lambda f: register(f, broker_id=99)),
    row("Controller/Session", "an old epoch", REFUSED, lambda f: heartbeat(f, broker_epoch=0)),
    row("Controller/Session", "another incarnation", REFUSED, lambda f: heartbeat(f, incarnation_id=bytes(16))),
    row("Controller/Session", "unknown broker", REFUSED, lambda f: heartbeat(f, broker_id=77)),
    row("Controller/Session", "metadata not written yet", REFUSED,
        lambda f: heartbeat(f, current_metadata_offset=LONG_MAX)),
    row("Controller/Session", "asks to be fenced", TAKEN, lambda f: heartbeat(f, want_fence=True)),
    row("Controller/Session", "asks to shut down", TAKEN, lambda f: heartbeat(f, want_shut_down=True)),
    row("Controller/AlterPartition", "largest leader epoch", REFUSED, lambda f: isr(f, leader_epoch=INT_MAX)),
    row("Controller/AlterPartition", "old partition epoch", REFUSED, lambda f: isr(f, partition_epoch=-1)),
    row("Controller/AlterPartition", "by one who does not lead", REFUSED, lambda f: isr(f, sender=f.follower)),
    row("Controller/AlterPartition", "old broker epoch", REFUSED, lambda f: isr(f, broker_epoch=0)),
    row("Controller/AlterPartition", "members that are no replicas", REFUSED,
        lambda f: isr(f, [f.partition.leader, 99])),
    row("Controller/AlterPartition", "nobody", REFUSED, lambda f: isr(f, [])),
    row("Controller/AlterPartition", "without the leader", REFUSED, lambda f: isr(f, [f.follower])),
    row("Controller/AlterPartition", "unknown topic", REFUSED, lambda f: isr(f, topic_id=bytes(16))),
    row("Controller/AlterPartition", "the leader alone", TAKEN, isr),
    row("Controller/AllocateProducerIds", "old epoch", REFUSED,
        lambda f: controller.AllocateProducerIdsRequest(broker_id=f.follower, broker_epoch=0)),
    row("Controller/AllocateProducerIds", "unknown broker", REFUSED,
        lambda f: controller.AllocateProducerIdsRequest(broker_id=77, broker_epoch=1)),
    row("Controller/ForwardAdmin", "no such method", REFUSED, lambda f: forward(f, "/odradek.v1.Admin/Erase", b"")),
    row("Controller/ForwardAdmin", "no request", REFUSED,
        lambda f: forward(f, "/odradek.v1.Admin/CreateTopics", b"\xff" * 40)),
    row("Controller/ForwardAdmin", "no principal", REFUSED,
        lambda f: forward(f, "/odradek.v1.Admin/DescribeQuorum", b"", principal="nobody")),
    row("Replication/FetchStream", "no frame", REFUSED, lambda f: b"\xff" * 40),
    row("Replication/FetchStream", "from beyond the end", REFUSED, lambda f: fetch(f, fetch_offset=LONG_MAX)),
    row("Replication/FetchStream", "from a negative offset", REFUSED, lambda f: fetch(f, fetch_offset=-1)),
    row("Replication/FetchStream", "in the largest epoch", REFUSED, lambda f: fetch(f, current_leader_epoch=INT_MAX)),
    row("Replication/FetchStream", "an old broker epoch", REFUSED, lambda f: fetch(f, replica_epoch=0)),
    row("Replication/FetchStream", "a broker that is no replica", REFUSED, lambda f: fetch(f, replica=99)),
    row("Replication/FetchStream", "another topic's id", REFUSED, lambda f: fetch(f, topic_id=bytes(16))),
    row("Replication/FetchStream", "from the beginning", ANSWERED, fetch),
    row("Replication/ListOffsets", "in the largest epoch", REFUSED,
        lambda f: broker.ListOffsetsRequest(partitions=[
            broker.ListOffsetsPartition(topic="orders", current_leader_epoch=INT_MAX, timestamp_ms=-1)])),
    row("Replication/OffsetsForLeaderEpoch", "in the largest epoch", REFUSED,
        lambda f: broker.OffsetsForLeaderEpochRequest(replica_id=f.follower, partitions=[
            broker.OffsetForLeaderEpochPartition(topic="orders", current_leader_epoch=INT_MAX, leader_epoch=1)])),
    row("Broker/FetchStream", "a client as a follower", ANSWERED, lambda f: fetch(f, fetch_offset=0)),
    row("Broker/Produce", "a batch of lies", REFUSED, lambda f: produce(bytes(61), 61)),
    row("Broker/Produce", "sizes that do not add up", REFUSED, lambda f: produce(bytes(61), INT_MAX)),
    row("Admin/CreateTopics", "200,000 partitions", REFUSED,
        lambda f: admin.CreateTopicsRequest(topics=[admin.NewTopic(name="wide", partitions=200_000)])),
    row("Admin/CreateTopics", "a path", REFUSED,
        lambda f: admin.CreateTopicsRequest(topics=[admin.NewTopic(name="../../etc", partitions=1)])),
    row("Admin/AlterPartitionReassignments", "to nobody", REFUSED,
        lambda f: admin.AlterPartitionReassignmentsRequest(
            partitions=[admin.ReassignedPartition(topic="orders", partition=0, replicas=[77])])),
    row("Admin/AlterClientQuotas", "below nothing", REFUSED,
        lambda f: admin.AlterClientQuotasRequest(entries=[admin.QuotaAlteration(
            entity=[admin.QuotaName(type="user")], values=[admin.QuotaValue(key="producer_byte_rate", value=-1.0)])])),
)  # fmt: skip


def produce(data: bytes, size: int) -> bytes:
    header = broker.ProduceHeader()
    header.items.add(correlation_id=1, acks=-1, topic="orders", partition=0, size=size)
    return pack_frame(header.SerializeToString(), [data])
