"""What the cleaner of a broker may take: records that are stable, those of ended transactions among them."""

from __future__ import annotations

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.runtime.replicas.cleaner import LogCleaner
from odradek_proto.records import ControlType, encode_batch, encode_control_batch, end_transaction_value

from tests.broker.replica_world import ME, ONE, ORDERS, World, answered, run
from tests.playing import plays

KEYED = 40  # batches with one key, behind the transaction
CONFIGS = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "internal.segment.bytes": "1000"}


def transaction_and_more() -> bytes:
    """What a leader has whose directory was Kafka's: a transaction, its marker, and many values of one key."""
    written = encode_batch(
        [(0, b"k", b"v", ())], leader_epoch=0, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True
    )
    written += encode_control_batch(
        ControlType.COMMIT,
        end_transaction_value(0),
        base_offset=1,
        leader_epoch=0,
        timestamp=0,
        producer_id=7,
        producer_epoch=0,
    )
    values = (
        encode_batch([(0, b"k", b"v" * 100, ())], base_offset=2 + place, leader_epoch=0) for place in range(KEYED)
    )
    return written + b"".join(values)


@plays(run)
async def test_a_transaction_that_has_ended_holds_up_no_cleaner(world: World) -> None:
    """Once its marker is below the high watermark, what follows is as stable as anything (PS-09)."""
    world.image.topic_configs["orders"] = CONFIGS
    await world.learn(ONE, 0)
    await answered(world, ONE, transaction_and_more(), epoch=0, high_watermark=2 + KEYED)
    replica = world.replicas.replicas[ORDERS]
    replica.log.flush()
    cleaner = LogCleaner(
        settings=BrokerSettings(node_id=ME),
        clock=world.clock,
        files=world.files,
        replicas=world.replicas,
        directory=world.replicas._directory,
        events=world.replicas.events,
        counters=world.replicas.counters,
    )
    before = replica.log.size_bytes
    assert await cleaner.clean_one()
    assert replica.log.size_bytes < before / 2
