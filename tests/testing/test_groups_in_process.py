"""Members of a group over gRPC, on a cluster in this process: what each record meets, once, again or never."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import Any, cast

import odradek.sync
import pytest
from odradek import Admin, CommitFailed, Consumer, Producer, TopicPartition
from odradek.consuming.group import GroupMember
from odradek_broker.testing import AsyncCluster, Cluster

from tests.playing import plays

SETTINGS = {"group.consumer.session.timeout.ms": "20000"}
RECORDS, PARTITIONS = 200, 4
TP = TopicPartition("orders", 0)


def run(story: Callable[[AsyncCluster], Awaitable[None]]) -> None:
    """On a cluster with some records in a topic."""

    async def whole() -> None:
        async with AsyncCluster(3, settings=SETTINGS) as cluster:
            await cluster.create_topic("orders", partitions=PARTITIONS)
            async with Producer(cluster.bootstrap) as producer:
                await producer.enqueue_many("orders", [str(number) for number in range(RECORDS)])
                for partition in range(PARTITIONS):
                    await producer.send("orders", "last", partition=partition)
            async with asyncio.timeout(60):
                await story(cluster)

    asyncio.run(whole())


def member(cluster: AsyncCluster, *topics: str, **settings: object) -> Consumer:
    return Consumer(cluster.bootstrap, *topics, group_id="g", auto_offset_reset="earliest", **settings)  # type: ignore[arg-type]


@plays(run)
async def test_each_record_meets_one_member_once(cluster: AsyncCluster) -> None:
    """A member that joins gets partitions where the first one stopped, a topic's pattern is found, and who leaves
    leaves its positions: nothing is read twice, and nothing is left out."""
    told: list[tuple[str, int]] = []
    seen: list[tuple[int, int]] = []

    async def heard(partitions: list[TopicPartition]) -> None:
        told.append(("assigned", len(partitions)))

    async with member(cluster, max_poll_records=10) as first:
        first.subscribe("orders", on_assigned=heard, on_revoked=lambda lost: told.append(("revoked", len(lost))))
        seen += [(record.partition, record.offset) for record in await first.poll(10)]
        async with member(cluster, max_poll_records=10) as second:
            second.subscribe(pattern="ord.*")
            while len(second.assignment()) < PARTITIONS // 2:
                for consumer in (first, second):
                    seen += [(record.partition, record.offset) for record in await consumer.poll(0.05)]
            assert sorted(first.assignment() + second.assignment()) == [
                TopicPartition("orders", number) for number in range(PARTITIONS)
            ]
        while len(first.assignment()) < PARTITIONS:
            seen += [(record.partition, record.offset) for record in await first.poll(0.05)]
        async for batch in first.batches(until="end"):
            seen += [(record.partition, record.offset) for record in batch]
    assert told == [("assigned", 4), ("revoked", 2), ("assigned", 2), ("revoked", 4)]
    assert len(seen) == len(set(seen)) == RECORDS + PARTITIONS


@plays(run)
async def test_the_record_that_was_being_worked_on_comes_again(cluster: AsyncCluster) -> None:
    """Whoever fails at a record has not done with it: what was committed by itself ends before it."""

    async def fail_at_the_eighth() -> None:
        async with member(cluster, "orders") as consumer:
            async for record in consumer:
                if record.offset == 7:
                    raise LookupError(record.partition)

    with pytest.raises(LookupError) as failed:
        await fail_at_the_eighth()
    partition = TopicPartition("orders", failed.value.args[0])
    async with member(cluster, "orders", enable_auto_commit=False) as consumer:
        again = [
            record.offset async for record in consumer.records(until="end") if record.partition == partition.partition
        ]
        assert again[0] == 7
        assert await consumer.committed(partition) == 7
        await consumer.commit({partition: 9})
        assert await consumer.committed(partition) == 9
        consumer.seek_to_committed(partition)
        assert (await consumer.poll(10, max_records=1))[0].offset == 9
    async with member(cluster) as alone:  # assigns itself, and begins where the group has committed
        alone.assign([partition])
        assert await alone.position(partition) == 9


@plays(run)
async def test_a_group_goes_on_when_its_coordinator_dies(cluster: AsyncCluster) -> None:
    """Another broker loads it: the members stay who they are, and what was committed is there."""
    told: list[str] = []
    async with member(cluster) as consumer:
        consumer.subscribe(
            "orders", on_assigned=lambda _: told.append("assigned"), on_lost=lambda _: told.append("lost")
        )
        await consumer.poll(10, max_records=5)
        before = await consumer.commit()
        coordinator = await cluster.coordinator_of("g")
        await cluster.kill(coordinator)
        records = [record async for record in consumer.records(until="end")]
        assert len(records) + sum(before.values()) == RECORDS + PARTITIONS
        after = await consumer.commit()
        assert sum(after.values()) == RECORDS + PARTITIONS
        assert await cluster.coordinator_of("g") != coordinator
        assert told == ["assigned"]


@plays(run)
async def test_who_was_silent_for_too_long_cannot_commit(cluster: AsyncCluster) -> None:
    """max.poll.interval.ms: the partitions are another member's, and the first one hears of it when it asks."""
    lost: list[TopicPartition] = []
    async with member(cluster, enable_auto_commit=False, max_poll_interval_ms=300) as first:
        first.subscribe("orders", on_lost=lost.extend)
        assert await first.poll(10, max_records=1)
        async with member(cluster, "orders") as second:
            while len(second.assignment()) < PARTITIONS:
                await second.poll(0.05)
            with pytest.raises(CommitFailed, match="max_poll_interval_ms"):
                await first.commit()
            assert lost == []
            while not lost:
                await first.poll(0.05)
            assert len(lost) == PARTITIONS


@plays(run)
@pytest.mark.parametrize("caught", ["between heartbeats", "in a heartbeat", "in a callback"])
async def test_a_member_whose_tasks_were_cancelled_leaves_when_it_is_closed(cluster: AsyncCluster, caught: str) -> None:
    """As `asyncio.run` cancels all tasks of its loop, while a worker of the application leaves its `async with`."""
    entered = asyncio.Event()

    async def hold(partitions: list[TopicPartition]) -> None:
        entered.set()
        await asyncio.Event().wait()

    async with Admin(cluster.bootstrap) as admin:
        before = asyncio.all_tasks()
        async with member(cluster) as consumer:
            consumer.subscribe("orders", on_assigned=hold if caught == "in a callback" else None)
            reading = asyncio.ensure_future(consumer.poll(30, max_records=5))
            if caught == "in a callback":
                await entered.wait()
            else:
                assert await reading
            if caught == "in a heartbeat":
                for broker in cluster.brokers:
                    await cluster.freeze(broker)
                membership = cast("GroupMember", consumer._group)._membership
                consumer.subscribe("payments")  # which it has to say
                await cluster.wait_until(lambda: membership._asked is not None)
            cancel_tasks_of_clients(before)
            for broker in cluster.brokers if caught == "in a heartbeat" else ():
                await cluster.thaw(broker)
        [found] = await admin.describe_consumer_groups(["g"])
        assert found.members == ()


@plays(run)
async def test_a_close_that_is_cancelled_leaves_no_task_behind(cluster: AsyncCluster, caplog: Any) -> None:
    """The cancellation goes on; that the group was not told is logged."""
    before = asyncio.all_tasks()
    entered = asyncio.Event()

    async def hold(partitions: list[TopicPartition]) -> None:
        entered.set()
        await asyncio.Event().wait()

    consumer = member(cluster)
    consumer.subscribe("orders", on_revoked=hold)
    await consumer.start()
    assert await consumer.poll(30)
    closing = asyncio.ensure_future(consumer.close())
    await entered.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert not cancel_tasks_of_clients(before)
    assert "group 'g': left without telling its coordinator" in caplog.text


def cancel_tasks_of_clients(before: set[asyncio.Task[Any]]) -> int:
    """Those that clients have begun since."""
    own = [
        task
        for task in asyncio.all_tasks() - before
        if "/client/odradek/" in cast("CoroutineType[Any, Any, Any]", task.get_coro()).cr_code.co_filename
    ]
    return sum(task.cancel() for task in own)


def test_an_error_of_a_callback_reaches_the_application(cluster: Cluster) -> None:
    """Once, and the group goes on; without asyncio callbacks may commit."""
    cluster.create_topic("orders")
    committed: list[dict[TopicPartition, int]] = []
    with odradek.sync.Producer(cluster.bootstrap) as producer:
        producer.send("orders", "book", partition=0)

    def fail(partitions: list[TopicPartition]) -> None:
        raise ZeroDivisionError

    with odradek.sync.Consumer(cluster.bootstrap, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(
            "orders", on_assigned=fail, on_revoked=lambda partitions: committed.append(consumer.commit())
        )
        with pytest.raises(ZeroDivisionError):
            consumer.poll(10)
        [record] = consumer.poll(10)
        assert record.value == b"book"
    assert [found[TP] for found in committed] == [1]


FORGETFUL = """
import sys
from odradek.sync import Consumer

consumer = Consumer(sys.argv[1], "orders", group_id="g", auto_offset_reset="earliest", max_poll_records=1)
for record in consumer:
    if record.value == b"2":
        raise KeyboardInterrupt
"""


def test_a_process_that_ends_without_close_leaves_its_group(cluster: Cluster) -> None:
    """As after Ctrl-C in a loop over a consumer: what it had done with is committed, and nobody waits for a session."""
    cluster.create_topic("orders", partitions=1)
    with odradek.sync.Producer(cluster.bootstrap) as producer:
        for number in range(5):
            producer.send("orders", str(number))
    ended = subprocess.run(
        [sys.executable, "-W", "always", "-c", FORGETFUL, cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.stderr.endswith("\nKeyboardInterrupt\n")
    with odradek.sync.Admin(cluster.bootstrap) as admin:
        [found] = admin.describe_consumer_groups(["g"])
        assert found.members == ()
        assert admin.list_consumer_group_offsets("g")[TP].offset == 2


CALLBACK_FAILED = """
import sys, threading
from odradek.sync import Consumer, Producer

called = threading.Event()

def refuse(partitions):
    called.set()
    raise ValueError("of a callback")

consumer = Consumer(sys.argv[1], group_id="g", auto_offset_reset="earliest")
consumer.subscribe("orders", on_assigned=refuse, on_revoked=print)
while not called.wait(0.05):
    consumer.poll(0)
producer = Producer(sys.argv[1], linger_ms=600_000)
producer.enqueue("orders", "last")
"""


def test_callbacks_of_a_consumer_that_nobody_closes_cost_other_clients_nothing(cluster: Cluster) -> None:
    """No thread can be started for one any more, and an error of an earlier one is logged: records are sent all the
    same, of a producer that nobody has closed either."""
    cluster.create_topic("orders", partitions=1)
    ended = subprocess.run(
        [sys.executable, "-c", CALLBACK_FAILED, cluster.bootstrap], capture_output=True, text=True, timeout=120
    )
    assert "at the end of the process: of a callback" in ended.stderr
    assert "its callback is not called" in ended.stderr
    assert not ended.stdout
    with odradek.sync.Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
        assert [record.value for record in consumer.poll(30)] == [b"last"]
    with odradek.sync.Admin(cluster.bootstrap) as admin:
        [found] = admin.describe_consumer_groups(["g"])
        assert found.members == ()
