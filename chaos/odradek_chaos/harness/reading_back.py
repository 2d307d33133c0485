"""Reads a topic of a whole cluster to its end, and holds it against what the writers were told.

A leader that was silent and is back leads in its own eyes until it hears that it was replaced, and whoever asks it
reads up to its old high watermark, as in Kafka. So a read counts only between two moments in which all brokers told of
the same leaders, and every replica had all that its leader has.

What was read and what the writers were told is laid down in portions: memory does not grow with the length of a run.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from odradek import Consumer, OdradekError
from odradek_audit.inputs.history import Event
from odradek_broker.local.cluster import ClusterError
from odradek_proto.topics import TopicPartition

from odradek_chaos.harness.cluster_health import Leadership, wait_until_converged
from odradek_chaos.harness.portions import Portions
from odradek_chaos.harness.verify import ReadBack
from odradek_chaos.worlds.real import ObservedBrokers


async def read_back(
    world: ObservedBrokers, topic: str, events: Iterable[Event], *, patience_s: float, say: Callable[[str], None]
) -> ReadBack:
    """The verdict of a read that counts. Nobody may write to the topic any more. Raises `ClusterError`.

    `patience_s` is for one wait for the cluster; what is done while it is not at rest is done again, but not for ever.
    """
    with tempfile.TemporaryDirectory(prefix="odradek-read-back-") as directory:
        portions = Portions(Path(directory))
        try:
            async with asyncio.timeout(3 * patience_s):
                while True:
                    before = await _leaders_at_rest(world, topic, patience_s)
                    whole = await _read_all(world, topic, len(before), patience_s, portions, say)
                    if whole and await _leaders_at_rest(world, topic, patience_s) == before:
                        break
                    say("the leaders changed while they were read: once more")
                    portions.forget_records()
        except TimeoutError:
            what = f"{topic} could not be read in {3 * patience_s:g} s without a change of leaders"
            raise ClusterError(what) from None
        portions.add_events(events)
        return portions.verify()


async def _leaders_at_rest(world: ObservedBrokers, topic: str, patience_s: float) -> Mapping[int, Leadership]:
    health = await wait_until_converged(world, timeout_s=patience_s, settled=lambda found: found.is_at_rest(topic))
    return health.leaderships(topic)


async def _read_all(
    world: ObservedBrokers,
    topic: str,
    partitions: int,
    patience_s: float,
    portions: Portions,
    say: Callable[[str], None],
) -> bool:
    """Whether all records were read; false when the leaders did not hand them out, as in an election."""
    consumer: Consumer[bytes, bytes] = Consumer(
        world.bootstrap, auto_offset_reset="earliest", bootstrap_timeout_ms=round(patience_s * 1000)
    )
    try:
        async with consumer:
            consumer.assign([TopicPartition(topic, partition) for partition in range(partitions)])
            async for batch in consumer.batches(until="end"):
                portions.add_records((each.topic, each.partition, each.offset, each.value or b"") for each in batch)
    except OdradekError as error:
        say(f"the records could not be read: {error}")
        return False
    return True
