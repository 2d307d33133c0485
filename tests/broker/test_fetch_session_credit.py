"""What a fetch session charges to its client's credit: what it sent, and nothing else."""

from __future__ import annotations

import random

from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import PartitionSettings, TruncationMode
from odradek_broker.core.partition.policy import policy_for
from odradek_broker.requests.context import ANONYMOUS, RequestContext
from odradek_broker.requests.fetch import FetchRequests
from odradek_broker.rpc.fetch_session import FetchSession, SessionLimits
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.replicas.purgatory import ProduceAnswer
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.storage.log import Log
from odradek_broker.storage.opening import KnownLog
from odradek_broker.storage.settings import LogSettings
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.net.fabric import SimFabric
from odradek_proto.errors import ErrorCode
from odradek_proto.records import encode_batch
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.frames import pack_frame, split_frame
from odradek_proto.v1 import broker_pb2 as pb

from tests.broker.session_world import Broker

TOPIC_ID = bytes(range(16))
CREDIT = 10_000_000
SMALL = 200  # replica.fetch.max.bytes: less than the batches below


def lead(files: SimFiles, broker: Broker, number: int) -> Replica:
    tp, directory = TopicPartition("orders", number), f"/data/orders-{number}"
    files.makedirs(directory)
    log = Log.open(files, directory, tp, settings=LogSettings(), known=KnownLog(TOPIC_ID), clean=True, wall_ms=0)
    replica = Replica(log, broker)
    leader = LeaderPartition(
        replica.state,
        broker_id=1,
        registration=PartitionRegistration((1, 2), (1, 2), 1, 0, 0),
        settings=PartitionSettings(),
        policy=policy_for(TruncationMode.FETCH),
        brokers=broker,
        now_ms=0,
    )
    replica.take_role(leader)
    answers: list[ProduceAnswer] = []
    replica.produce(memoryview(encode_batch([(0, None, bytes(300), ())])), 1, 1_000, answers.append)
    assert answers[0].error is ErrorCode.NONE, answers
    return replica


def test_a_batch_that_does_not_fit_costs_no_credit() -> None:
    """A second partition whose first batch is over its limit waits for the next answer, and is charged when sent.

    Otherwise each such wait costs a whole answer's budget, and a follower with a small replica.fetch.max.bytes
    starves after a few.
    """
    loop = SimLoop(1)
    clock = SimClock(loop, random.Random(1))
    files = SimFiles(SimDisk(random.Random(2)), loop, random.Random(3))
    files.makedirs("/data")
    broker = Broker(clock, EventLog(files=files, clock=clock, directory="/data", broker_id=1))
    replicas = {replica.topic_partition: replica for replica in (lead(files, broker, 0), lead(files, broker, 1))}
    near = SimFabric(loop, random.Random(4)).connect("b2", "b1", "b2", "b1")
    session = FetchSession(
        near.other,
        FetchRequests(
            clock=clock,
            files=files,
            lookup=lambda tp, topic_id: replicas[tp],
            purgatory=broker.purgatory,
            counters=broker.counters,
            max_bytes=8_000_000,
        ),
        RequestContext(ANONYMOUS, "GRPC"),
        limits=SessionLimits(8_000_000),
        follower=True,
    )
    header = pb.FetchHeader(replica_id=2, replica_epoch=-1, max_wait_ms=500, min_bytes=1, credit_bytes=CREDIT)
    for number in (0, 1):
        header.partitions.add(
            topic="orders",
            partition=number,
            fetch_offset=0,
            current_leader_epoch=0,
            last_fetched_epoch=-1,
            max_bytes=SMALL,
        )
    session.on_message(pack_frame(header.SerializeToString(), ()))
    sent = 0
    for _ in replicas:
        frame = session.gather()
        assert frame is not None
        answers, data = split_frame(frame)
        assert len(pb.FetchAnswerHeader.FromString(answers).partitions) == 1
        sent += len(data)
    assert session._credit.left == CREDIT - sent
    loop.close()
