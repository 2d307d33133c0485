"""A leader that leads on in the next epoch, and one that may have been replaced in between (R-42, R-56, R-101)."""

from __future__ import annotations

import pytest
from odradek import NewTopic
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.replicas.purgatory import ProduceAnswer
from odradek_proto.encoding import encode_batch
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.values import replace

from tests.broker.sim_brokers import NODE, SimBrokers, alone
from tests.playing import plays

ORDERS = TopicPartition("orders", 0)


def become(
    replicas: ReplicaManager, *, epochs: int, members: tuple[int, ...], recovering: bool = False, changes: int = 1
) -> None:
    """Apply changes of the partition's metadata at once, with so many more leader epochs among them."""
    image = replicas.image.copy()
    known = image.topics["orders"].partitions[0]
    image.topics["orders"].partitions[0] = replace(
        known,
        replicas=members,
        isr=members,
        leader_epoch=known.leader_epoch + epochs,
        partition_epoch=known.partition_epoch + max(changes, epochs),
        recovering=recovering,
    )
    delta = MetadataDelta()
    delta.partitions[ORDERS] = None
    replicas.apply(image, delta)


@pytest.mark.parametrize(
    ("epochs", "changes", "recovering", "stays"),
    [
        (0, 1, False, True),
        (0, 3, False, True),
        (1, 1, False, True),
        (1, 2, False, False),
        (2, 2, False, False),
        (1, 1, True, False),
    ],
)
@plays(alone)
async def test_waiting_writes_survive_the_next_epoch_of_the_same_leader(
    cluster: SimBrokers, epochs: int, changes: int, recovering: bool, stays: bool
) -> None:
    """With one epoch more nobody else has led: writers go on waiting. With a gap, or unclean, all begins anew, and so
    it does when several changes came at once: followers may have left and come back with less."""
    cluster.start(NODE)
    await cluster.as_admin(lambda admin: admin.create_topics([NewTopic("orders", partitions=1)]))
    replicas, replica = cluster.replicas, cluster.replica(ORDERS)
    become(replicas, epochs=0, members=(NODE, 2))  # the other replica is in sync and silent
    before = replica.leader
    assert before is not None
    answers: list[ProduceAnswer] = []
    batch = memoryview(encode_batch([(replicas.clock.wall_ms(), None, b"waits", ())]))
    replica.produce(batch, -1, 5_000, answers.append)
    assert answers == []
    become(replicas, epochs=epochs, members=(NODE, 2), recovering=recovering, changes=changes)
    after = replica.leader
    assert after is not None
    assert (after is before) is stays
    assert after.leader_epoch == before.leader_epoch + (0 if stays else epochs)
    assert replica.state.epochs.entries[-1].epoch == (0 if epochs == 0 else after.leader_epoch)
    if not stays:
        assert [answer.error for answer in answers] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        return
    assert answers == []
    become(replicas, epochs=1, members=(NODE,))  # the silent replica is removed: what waited for it is committed
    assert [answer.error for answer in answers] == [ErrorCode.NONE]
