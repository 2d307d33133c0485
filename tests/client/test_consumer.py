"""The consumer against a peer cluster in virtual time: positions, failover, truncation, ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import crc32c
import pytest
from odradek import (
    BrokerError,
    ClientClosed,
    ConfigError,
    Consumer,
    ConsumerRecord,
    CorruptRecords,
    LogTruncated,
    NoOffset,
    NotAssigned,
    Producer,
    RequestTimeout,
    SerializationError,
    TopicPartition,
    UnknownTopic,
    Watermarks,
)
from odradek_proto.errors import ErrorCode
from odradek_proto.records import (
    HEADER_SIZE,
    ControlType,
    encode_batch,
    encode_control_batch,
    end_transaction_value,
    read_header,
)

TP = TopicPartition("orders", 0)


def fill(log: Any, *values: str) -> None:
    """One batch, appended behind the client's back."""
    code, _ = log.append(encode_batch([(1_000 + log.end + at, b"k", v.encode(), ()) for at, v in enumerate(values)]))
    assert code is ErrorCode.NONE


def values(records: list[ConsumerRecord]) -> list[str]:
    return [(record.value or b"").decode() for record in records]


async def test_a_topic_is_read_from_beginning_to_end(peers: Any) -> None:
    """All partitions, each in order, and it stops where they ended when it began."""
    logs = peers.topic("orders", partitions=3)
    for number, log in enumerate(logs):
        fill(log, *[f"{number}-{at}" for at in range(100)])
        fill(log, f"{number}-100")
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        records = []
        async for record in reader.records(until="end"):
            records.append(record)
            if len(records) == 5:
                fill(logs[0], "too late")
        for number in range(3):
            own = [record for record in records if record.partition == number]
            assert values(own) == [f"{number}-{at}" for at in range(101)]
            assert [record.offset for record in own] == list(range(101))
        first = records[0]
        assert (first.topic, first.key, first.headers, first.leader_epoch) == ("orders", b"k", (), 0)
        assert values(await reader.poll(1.0)) == ["too late"]


def emptied(offset: int, count: int) -> bytes:
    """A batch whose records a compaction took away: it still says how many offsets it spans."""
    batch = bytearray(encode_batch([(1_000, b"k", b"v", ())] * count)[:HEADER_SIZE])
    batch[:8] = offset.to_bytes(8, "big")
    batch[8:12] = (HEADER_SIZE - 12).to_bytes(4, "big")
    batch[12:16] = bytes(4)  # leader epoch 0
    batch[57:61] = bytes(4)
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return bytes(batch)


async def test_more_partitions_than_one_request_can_name_are_read(peers: Any) -> None:
    """A broker ends a stream whose request has more than 1 MiB of header."""
    name = "o" * 249
    logs = peers.topic(name, partitions=4_200)
    for log in logs:
        log.lead(1)
    for log in (logs[0], logs[-1]):
        fill(log, "one")
    async with peers.client(Consumer, name, auto_offset_reset="earliest") as reader:
        read = [*await reader.poll(5.0), *await reader.poll(5.0)]
        assert sorted(record.partition for record in read) == [0, 4_199]
        peers.brokers[1].drop_streams()
        fill(logs[-2], "two")
        assert values(await reader.poll(30.0)) == ["two"]
        assert len(peers.brokers[1].fetchers) == 2


async def test_a_compacted_tail_is_stepped_over(peers: Any, log: Any) -> None:
    """R-268: the next offset is the one behind the batch, also when no record of it is left."""
    fill(log, "first")
    batch = emptied(1, 5)
    log.batches.append((read_header(batch), batch))
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        assert values([record async for record in reader.records(until="end")]) == ["first"]
        assert await reader.position(TP) == 6
        fill(log, "next")
        assert [record.offset for record in await reader.poll(1.0)] == [6]


async def test_the_position_is_behind_a_batch_whose_last_records_are_gone(peers: Any, log: Any) -> None:
    """R-268: as soon as the last one that is left was handed out."""
    batch = bytearray(encode_batch([(1_000, b"k", value, ()) for value in (b"a", b"b")], leader_epoch=0))
    batch[23:27] = (4).to_bytes(4, "big")  # its last offset is that of the fifth record
    batch[17:21] = crc32c.crc32c(bytes(batch[21:])).to_bytes(4, "big")
    log.batches.append((read_header(batch), bytes(batch)))
    async with peers.client(Consumer, auto_offset_reset="earliest") as reader:
        reader.assign([TP])
        assert values(await reader.poll(1.0)) == ["a", "b"]
        assert await reader.position(TP) == 5


async def test_a_control_batch_is_stepped_over(peers: Any, log: Any) -> None:
    """R-268: the marker of a transaction is no record of the application's."""
    fill(log, "a")
    marker = encode_control_batch(
        ControlType.COMMIT,
        end_transaction_value(0),
        base_offset=1,
        leader_epoch=0,
        timestamp=0,
        producer_id=1,
        producer_epoch=0,
    )
    log.batches.append((read_header(marker), marker))
    fill(log, "b")
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        assert [record.offset for record in await reader.poll(1.0)] == [0, 2]


async def test_an_answer_for_a_position_from_before_a_seek_is_dropped(peers: Any, log: Any) -> None:
    """R-265: it was on its way when the application went back."""
    for value in "abcd":
        fill(log, value)
    broker = peers.brokers[1]
    leaves, answered = broker.garbled, asyncio.Event()

    def garbled(message: bytes) -> bytes:
        answered.set()
        return bytes(leaves(message))

    broker.garbled = garbled
    async with peers.client(Consumer, auto_offset_reset="earliest") as reader:
        reader.assign([TP])
        assert values(await reader.poll(1.0)) == ["a", "b", "c", "d"]
        answered.clear()
        reader.seek(TP, 2)
        await answered.wait()
        reader.seek(TP, 0)
        assert values(await reader.poll(1.0)) == ["a", "b", "c", "d"]


async def test_the_default_is_to_read_what_comes(peers: Any, log: Any) -> None:
    """auto.offset.reset=latest: older records are not handed out."""
    fill(log, "old")
    async with peers.client(Consumer, "orders") as reader, peers.client(Producer) as sender:
        assert await reader.poll(0.2) == []
        await sender.send("orders", "new")
        assert values(await reader.poll(1.0)) == ["new"]


async def test_records_come_without_a_pause(peers: Any) -> None:
    """A consumer that waits at the end has a record a few milliseconds after it was written."""
    peers.topic("orders")
    async with peers.client(Consumer, "orders") as reader, peers.client(Producer) as sender:
        await reader.poll(0.2)
        for number in range(20):
            await sender.send("orders", str(number))
            began = peers.clock.now_ms()
            assert values(await reader.poll(5.0)) == [str(number)]
            assert peers.clock.now_ms() - began <= 5


async def test_positions_move_when_records_are_handed_out(peers: Any, log: Any) -> None:
    """Not when they are fetched; seek and poll's limit go by them."""
    fill(log, *"abcdefgh")
    async with peers.client(Consumer, auto_offset_reset="earliest") as reader:
        reader.assign([TP])
        assert await reader.position(TP) == 0
        assert values(await reader.poll(1.0, max_records=3)) == ["a", "b", "c"]
        assert await reader.position(TP) == 3
        assert await reader.lag(TP) == 5
        reader.seek(TP, 6)
        assert values(await reader.poll(1.0)) == ["g", "h"]
        reader.seek_to_beginning()
        assert values(await reader.poll(1.0, max_records=1)) == ["a"]
        reader.seek_to_end(TP)
        assert await reader.position(TP) == 8
        with pytest.raises(ConfigError):
            reader.seek(TP, -1)
        with pytest.raises(NotAssigned):
            reader.seek(TopicPartition("orders", 1), 0)


async def test_breaking_out_of_the_loop_loses_nothing(peers: Any, log: Any) -> None:
    """`async for` can be left and taken up again."""
    fill(log, *"abcdef")
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        seen: list[ConsumerRecord] = []
        while len(seen) < 6:
            async for record in reader:
                seen.append(record)
                break
        assert values(seen) == [*"abcdef"]


async def test_paused_partitions_rest(peers: Any) -> None:
    """What was fetched before is kept for when they are resumed."""
    one, two = peers.topic("orders", partitions=2)
    fill(one, "one")
    fill(two, "two")
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        await reader.position(one.name)
        reader.pause(one.name)
        assert reader.paused() == [one.name]
        assert values(await reader.poll(0.5)) == ["two"]
        assert await reader.poll(0.5) == []
        reader.resume(one.name)
        assert values(await reader.poll(0.5)) == ["one"]


async def test_a_killed_leader_is_followed_by_its_successor(peers: Any, log: Any) -> None:
    """The position is validated at the new leader (R-266), and reading goes on within a fraction of the election."""
    fill(log, "a")
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        assert values(await reader.poll(1.0)) == ["a"]
        peers.brokers[1].kill()
        await peers.clock.sleep(300)
        log.lead(2)
        fill(log, "b")
        began = peers.clock.now_ms()
        [record] = await reader.poll(5.0)
        assert (record.value, record.leader_epoch) == (b"b", 1)
        assert peers.clock.now_ms() - began < 200
        assert "OffsetsForLeaderEpoch" in peers.brokers[2].calls


async def test_a_frozen_leader_is_left_when_another_leads(peers: Any, log: Any) -> None:
    """A fetch without an answer may mean that nothing is new: so somebody else is asked now and then."""
    fill(log, "a")
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        await reader.poll(1.0)
        peers.brokers[1].node.pause()
        await peers.clock.sleep(9_000)
        log.lead(3)
        fill(log, "b")
        assert values(await reader.poll(5.0)) == ["b"]


@pytest.mark.parametrize("way", ["records", "batches"])
async def test_an_end_that_is_truncated_away_is_not_waited_for(peers: Any, log: Any, way: str) -> None:
    """A new leader has less than the old one promised: what it has is all that is read."""
    for value in "abc":
        fill(log, value)
    read: list[ConsumerRecord] = []
    settings = {"auto_offset_reset": "earliest", "max_partition_fetch_bytes": 1}
    async with asyncio.timeout(10), peers.client(Consumer, "orders", **settings) as reader:
        ways = {"records": reader.records(until="end"), "batches": reader.batches(max_records=1, until="end")}
        async for found in ways[way]:
            read += found if way == "batches" else [found]
            if log.leader == 1:
                log.truncate(2)
                log.lead(2)
                peers.brokers[1].drop_streams()
    assert values(read) == ["a", "b"]


async def test_reading_to_the_end_does_not_wait_for_ever_for_a_leader(peers: Any, log: Any) -> None:
    """After default.api.timeout.ms it says which partition has none; what was there before it was handed out."""
    fill(log, "a")
    fill(log, "b")
    settings: dict[str, Any] = {"max_partition_fetch_bytes": 1, "default_api_timeout_ms": 2_000}
    async with (
        asyncio.timeout(10),
        peers.client(Consumer, "orders", auto_offset_reset="earliest", **settings) as reader,
    ):
        read = reader.records(until="end")
        assert (await anext(read)).value == b"a"
        log.lead(-1)
        peers.brokers[1].drop_streams()
        with pytest.raises(BrokerError, match="orders-0: LEADER_NOT_AVAILABLE"):
            [record async for record in read]


@pytest.mark.parametrize("reset", ["earliest", "none"])
async def test_truncation_is_detected(peers: Any, log: Any, reset: Any) -> None:
    """CL-06: a new leader does not have what was read: go on where the logs part, or be told (KIP-320)."""
    fill(log, "a")
    fill(log, "b")
    async with peers.client(Consumer, auto_offset_reset=reset) as reader:
        reader.assign([TP])
        reader.seek(TP, 0)
        assert values(await reader.poll(1.0)) == ["a", "b"]
        log.truncate(1)
        log.lead(2)
        fill(log, "other")
        peers.brokers[1].drop_streams()
        if reset == "earliest":
            assert values(await reader.poll(5.0)) == ["other"]
            return
        with pytest.raises(LogTruncated) as caught:
            await reader.poll(5.0)
        assert (caught.value.position, caught.value.divergent_offset, caught.value.divergent_epoch) == (2, 1, 0)
        with pytest.raises(LogTruncated):
            await reader.poll(5.0)
        reader.seek(TP, 1)
        assert values(await reader.poll(5.0)) == ["other"]


async def test_an_offset_out_of_range_resets_or_is_raised(peers: Any, log: Any) -> None:
    """As auto.offset.reset says."""
    fill(log, "a", "b")
    async with peers.client(Consumer, auto_offset_reset="earliest") as reader:
        reader.assign([TP])
        reader.seek(TP, 99)
        assert values(await reader.poll(1.0)) == ["a", "b"]
    async with peers.client(Consumer, auto_offset_reset="none") as reader:
        reader.assign([TP])
        with pytest.raises(NoOffset):
            await reader.poll(1.0)
        reader.seek(TP, 99)
        with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
            await reader.poll(1.0)


async def test_what_is_buffered_is_bounded(peers: Any, log: Any) -> None:
    """The broker gets credit for fetch.max.bytes, and more only as records are read."""
    for number in range(200):
        fill(log, f"{number:0500}")
    settings = {"fetch_max_bytes": 10_000, "max_partition_fetch_bytes": 2_000, "max_poll_records": 1}
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest", **settings) as reader:
        assert len(await reader.poll(1.0)) == 1
        await peers.clock.sleep(1_000)
        [fetcher] = peers.brokers[1].fetchers
        assert -2_000 < fetcher.credit <= 0
        records = [record async for record in reader.records(until="end")]
        assert [int(value) for value in values(records)] == list(range(1, 200))


async def test_a_corrupt_batch_is_named(peers: Any, log: Any) -> None:
    """With its partition and offset; what came before it is handed out first, and seek gets past it."""
    for value in "abc":
        fill(log, value)
    header, data = log.batches[1]
    log.batches[1] = (header, data[:-1] + bytes([data[-1] ^ 1]))
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        assert values(await reader.poll(1.0)) == ["a"]
        with pytest.raises(CorruptRecords, match="orders-0 from offset 1"):
            await reader.poll(1.0)
        reader.seek(TP, 2)
        assert values(await reader.poll(1.0)) == ["c"]


async def test_a_copy_that_stays_damaged_is_named(peers: Any, log: Any) -> None:
    """The leader says so again and again, as if nobody had it whole: that is an error, and no silence."""
    fill(log, "a")
    peers.brokers[1].errors.extend([(log.name, ErrorCode.CORRUPT_MESSAGE)] * 100)
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        with pytest.raises(CorruptRecords, match="orders-0 from offset 0: the leader's copy is damaged"):
            await reader.poll(30.0)


async def test_a_record_that_cannot_be_deserialized_is_named(peers: Any, log: Any) -> None:
    """Those before it are handed out; the position stays on it until somebody seeks."""
    fill(log, "1", "2", "three", "4")
    as_number = {"value_deserializer": lambda value: int(value or b"")}
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest", **as_number) as reader:
        assert [record.value for record in await reader.poll(1.0)] == [1, 2]
        for _ in range(2):
            with pytest.raises(SerializationError, match="orders-0 at offset 2"):
                await reader.poll(1.0)
        reader.seek(TP, 3)
        assert [record.value for record in await reader.poll(1.0)] == [4]


async def test_offsets_can_be_asked_for(peers: Any, log: Any) -> None:
    """Beginning, end, by time, and all three ends of a log."""
    fill(log, "a", "b", "c")
    async with peers.client(Consumer) as reader:
        assert await reader.beginning_offsets([TP]) == {TP: 0}
        assert await reader.end_offsets([TP]) == {TP: 3}
        found = (await reader.offsets_for_times({TP: 1_001}))[TP]
        assert found is not None
        assert found.offset == 1
        assert await reader.offsets_for_times({TP: 9_999}) == {TP: None}
        assert await reader.watermarks(TP) == Watermarks(0, 3, 3)
        log.lead(2)
        assert await reader.end_offsets([TP]) == {TP: 3}
        assert await reader.watermarks(TP) == Watermarks(0, 3, 3)


async def test_batches_come_full_or_in_time(peers: Any, log: Any) -> None:
    """With max_wait an empty list says that nothing came."""
    fill(log, *"abcde")
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest") as reader:
        sizes = [len(batch) async for batch in reader.batches(max_records=2, until="end")]
        assert sizes == [2, 2, 1]
        async for batch in reader.batches(max_wait=0.1):
            assert batch == []
            break


async def test_new_partitions_of_a_subscription_are_read(peers: Any) -> None:
    """Once the metadata shows them."""
    peers.topic("orders")
    async with peers.client(Consumer, "orders", auto_offset_reset="earliest", metadata_max_age_ms=1_000) as reader:
        await reader.poll(0.1)
        assert reader.assignment() == [TP]
        _, two = peers.topic("orders", partitions=2)
        fill(two, "new")
        assert values(await reader.poll(3.0)) == ["new"]
        assert len(reader.assignment()) == 2


async def test_what_is_not_there_is_named(peers: Any) -> None:
    """An unknown topic, a consumer that is not started, one that is closed."""
    reader = peers.client(Consumer, "nowhere")
    with pytest.raises(ClientClosed, match="not started"):
        await reader.poll()
    async with reader:
        with pytest.raises(UnknownTopic, match="'nowhere'"):
            await reader.poll(1.0)
    with pytest.raises(ClientClosed):
        await reader.poll()


async def test_closing_wakes_who_waits(peers: Any) -> None:
    """A poll without a limit ends when the consumer is closed by another task."""
    peers.topic("orders")
    reader = peers.client(Consumer, "orders")
    await reader.start()

    async def read() -> None:
        async for _ in reader:
            pass

    task = asyncio.ensure_future(read())
    await peers.clock.sleep(100)
    await reader.close()
    with pytest.raises(ClientClosed):
        await task


async def test_a_position_may_take_too_long(peers: Any, log: Any) -> None:
    """Without any leader a position is not found, and says so in time."""
    log.lead(-1)
    async with peers.client(Consumer, "orders", default_api_timeout_ms=2_000) as reader:
        with pytest.raises(RequestTimeout, match="no position"):
            await reader.position(TP)


@pytest.mark.parametrize("seed", range(5))
def test_leaders_that_come_and_go_skip_and_repeat_nothing(peers_of_seed: Callable[[int], Any], seed: int) -> None:
    """Kills, moves and broken streams while everything is read: each record once and in order."""
    peers = peers_of_seed(seed)
    logs = peers.topic("orders", partitions=3)
    rng = peers.loop.fork_rng("faults")

    async def faults() -> None:
        for number in range(60):
            await peers.clock.sleep(rng.randrange(1, 40))
            for log in logs:
                fill(log, *[f"{log.end + at}" for at in range(rng.randrange(1, 9))])
                if number % 2 == 0:
                    log.lead(rng.choice([1, 2, 3]))
                else:
                    peers.appended(log)
            peers.brokers[rng.choice([1, 2, 3])].drop_streams()

    async def story() -> None:
        settings = {"fetch_max_bytes": 2_000, "max_partition_fetch_bytes": 500}
        async with peers.client(Consumer, "orders", auto_offset_reset="earliest", **settings) as reader:
            task = asyncio.ensure_future(faults())
            seen: dict[int, list[int]] = {0: [], 1: [], 2: []}
            while not task.done() or sum(map(len, seen.values())) < sum(log.end for log in logs):
                for record in await reader.poll(1.0, max_records=rng.randrange(1, 50)):
                    seen[record.partition].append(int(record.value or b""))
            assert [seen[number] for number in range(3)] == [list(range(log.end)) for log in logs]

    peers.run(story())


async def as_coroutine(call: Callable[[], Any]) -> None:
    if (outcome := call()) is not None:
        await outcome


async def test_arguments_that_cannot_be_are_refused_with_a_remedy(peers: Any) -> None:
    """Before anything is asked of anybody; what other clients take in its place is among them."""
    peers.topic("orders")
    tp = TopicPartition("orders", 0)
    async with peers.client(Consumer, group_id="g") as reader:
        wrong: list[tuple[Callable[[], Any], str]] = [
            (lambda: reader.subscribe("^ord.*"), r"subscribe\(pattern='\^ord\.\*'\)"),
            (lambda: reader.subscribe([1]), "1 is no name"),
            (lambda: reader.assign(cast(Any, ["orders"])), r"'orders' is no partition \(for example TopicPartition\("),
            (lambda: reader.seek(tp, "5"), "seek: offset '5' is not a whole number"),
            (lambda: reader.assign([TopicPartition("orders", 2**31)]), r"partition=2147483648\) is no partition"),
            (lambda: reader.seek(tp, 2**63), "seek: offset 9223372036854775808 is more than 64 bits hold"),
            (lambda: reader.seek(tp, -1), r"seek: offset -1 is negative \(seek_to_beginning"),
            (lambda: reader.commit({tp: "5"}), "commit: orders-0: offset '5' is not"),
            *(
                (lambda each=each: reader.commit({tp: each}), "commit: orders-0: .* is no OffsetAndMetadata")
                for each in ((), (1, None), (1, "text", 2**31), (1, "text", -1, 4))
            ),
            (lambda: reader.commit(7), r"commit: 7 is no mapping"),
            (lambda: reader.offsets_for_times({tp: "now"}), "timestamp 'now' is not .* since 1970"),
            (lambda: reader.end_offsets(cast(Any, ["orders"])), "'orders' is no partition"),
        ]
        for call, words in wrong:
            with pytest.raises(ConfigError, match=words):
                await as_coroutine(call)
        reader.unsubscribe()
        with pytest.raises(NotAssigned, match=r"nothing is subscribed to or assigned \(call assign\(\) or subscribe"):
            await reader.poll(1.0)
