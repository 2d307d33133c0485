"""One connection: the order of answers, what overlaps, what is bounded, and who is hung up on."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.security.quotas import BURST_S, Quotas
from odradek_broker.kafka.connection import HEAVY_BYTES, MOST_UNANSWERED, MOST_WITHOUT_RECORDS
from odradek_broker.kafka.listener import STUCK_MS, SWEEP_MS, KafkaListener
from odradek_broker.kafka.messages.primitives import MessageReader
from odradek_broker.kafka.messages.request import Api, Body, Done, HangUp, KafkaRequest
from odradek_broker.kafka.shared import LARGE_SHARE, UNTAKEN_BYTES, Shared
from odradek_broker.requests.quotas import Throttle
from odradek_broker.runtime.counters import Counters
from odradek_proto.security.quota_words import DEFAULT, PRODUCER_BYTE_RATE
from odradek_proto.security.quotas import QuotaEntity
from odradek_proto.values import replace

from tests.kafka.by_hand import HandClock, Wire, feed, turns

SETTINGS = BrokerSettings(node_id=1)
PRODUCE, FETCH, SLOW, JOIN = 0, 1, 3, 11
BUG = 666  # a Produce that fails as no Produce should


class Door:
    """A listener with APIs whose answers the test gives: Produce, which overlaps, and some that do not.

    Of these one waits for others, as JoinGroup does, and gives its frame back before it waits; one reads records.
    """

    def __init__(
        self, settings: BrokerSettings = SETTINGS, *, is_open: bool = True, quotas: Quotas | None = None
    ) -> None:
        self.started: list[tuple[int, int]] = []  # key, number
        self.done: dict[int, Done] = {}
        self.hang_up: dict[int, Callable[[str], None]] = {}
        self.granted: dict[int, int] = {}  # bytes of records
        self.slow: dict[int, asyncio.Future[Body]] = {}
        self.clock = HandClock()
        rows = [
            Api(PRODUCE, "Produce", 0, 13, 9, start=self._produce),
            Api(SLOW, "Slow", 0, 3, 9, self._answer),
            Api(JOIN, "Join", 0, 3, 9, self._join),
            Api(FETCH, "Fetch", 0, 3, 9, self._fetch),
        ]
        throttle = Throttle(self.clock)
        throttle.update(quotas or {})
        shared = Shared(
            "KAFKA",
            lambda: {row.key: row for row in rows},
            clock=self.clock,
            settings=settings,
            counters=Counters(),
            throttle=throttle,
            grpc=lambda: "broker:50051",
        )
        self.listener = KafkaListener(shared)
        if is_open:
            self.listener.open()

    def _produce(self, request: KafkaRequest, done: Done) -> None:
        number = request.decoded(_number)
        if number < 0:
            raise HangUp("a negative number")
        if number == BUG:
            raise IndexError("a bug")
        self.started.append((PRODUCE, number))
        self.done[number] = done
        self.hang_up[number] = request.hang_up

    async def _answer(self, request: KafkaRequest) -> Body:
        return await self._begin(request)

    async def _join(self, request: KafkaRequest) -> Body:
        answer = self._begin(request)
        request.release()
        return await answer

    def _begin(self, request: KafkaRequest) -> Awaitable[Body]:
        number = request.decoded(_number)
        self.started.append((request.key, number))
        self.slow[number] = asyncio.get_running_loop().create_future()
        return self.slow[number]

    async def _fetch(self, request: KafkaRequest) -> Body:
        answer = self._begin(request)
        self.granted[self.started[-1][1]] = request.reserve(1 << 30)
        return await answer

    def connect(self) -> Client:
        return Client(self)


class Client:
    def __init__(self, door: Door) -> None:
        self.wire = Wire()
        taken = door.listener.accept(self.wire)
        assert taken is not None
        self.receiver = taken

    def send(self, data: bytes) -> None:
        feed(self.receiver, data)

    def ask(self, *requests: tuple[int, int], filling: int = 0) -> None:
        """Requests by key and number, in one write; the number is the correlation id as well."""
        self.send(b"".join(asked(key, number, filling) for key, number in requests))


@pytest.fixture
def door() -> Door:
    """Without limits of its own, open."""
    return Door()


@pytest.fixture
def client(door: Door) -> Client:
    return door.connect()


def asked(key: int, number: int, filling: int = 0, version: int = 1) -> bytes:
    body = struct.pack(">hhihi", key, version, number, -1, number) + bytes(filling)
    return struct.pack(">i", len(body)) + body


def _number(reader: MessageReader, _version: int) -> int:
    return reader.int32()


async def test_produces_overlap_and_are_answered_in_order(door: Door, client: Client) -> None:
    """Both have started before the first is answered; the second's answer waits for the first's (K-8)."""
    client.ask((PRODUCE, 1), (PRODUCE, 2))
    assert door.started == [(PRODUCE, 1), (PRODUCE, 2)]
    door.done[2]([b"two"])
    await turns()
    assert client.wire.correlation_ids() == []
    door.done[1]([b"one"])
    await turns()
    assert client.wire.correlation_ids() == [1, 2]
    assert client.wire.writes == 1  # what becomes due together leaves together


async def test_another_request_waits_for_all_before_it_and_holds_all_behind_it(door: Door, client: Client) -> None:
    """As every request does in Kafka (K-8)."""
    client.ask((PRODUCE, 1), (SLOW, 2), (PRODUCE, 3), (SLOW, 4))
    await turns()
    assert door.started == [(PRODUCE, 1)]
    door.done[1]([b""])
    await turns()
    assert door.started == [(PRODUCE, 1), (SLOW, 2)]
    door.slow[2].set_result([b""])
    await turns()
    assert door.started == [(PRODUCE, 1), (SLOW, 2), (PRODUCE, 3)]
    door.done[3](None)  # acks=0: no answer, and no place in the order
    await turns()
    door.slow[4].set_result([b"four"])
    await turns()
    assert client.wire.correlation_ids() == [1, 2, 4]


async def test_reading_stops_at_32_unanswered_requests_and_goes_on(door: Door, client: Client) -> None:
    """Whatever has arrived beyond them lies until there is room."""
    client.ask(*((PRODUCE, number) for number in range(100)))
    assert len(door.started) == MOST_UNANSWERED
    assert client.wire.paused
    for number in range(100):
        door.done[number]([b""])
        await turns(2)
    assert client.wire.correlation_ids() == list(range(100))
    assert not client.wire.paused


async def test_reading_stops_at_16_mib_of_unanswered_requests(door: Door, client: Client) -> None:
    """Five of 4 MiB: the fifth is not read before the first is answered."""
    client.ask(*((PRODUCE, number) for number in range(4)), filling=4 << 20)
    assert len(door.started) == 4
    assert client.wire.paused
    door.done[0]([b""])
    await turns()
    assert not client.wire.paused


async def test_frames_of_all_connections_together_are_bounded() -> None:
    """At queued.max.request.bytes another connection's large frame is not read; it is when there is room again."""
    door = Door(replace(SETTINGS, queued_max_request_bytes=1 << 20))
    first, second = door.connect(), door.connect()
    first.ask((PRODUCE, 1), filling=900_000)
    second.send(asked(PRODUCE, 2, 900_000)[:70_000])
    assert second.wire.paused
    door.done[1]([b""])
    await turns()
    assert not second.wire.paused
    second.send(asked(PRODUCE, 2, 900_000)[70_000:])
    assert (PRODUCE, 2) in door.started


async def test_a_request_that_waits_for_other_clients_does_not_hold_up_who_reads() -> None:
    """What it gave back is given back once: when its client goes before it is answered, and when it is answered."""
    door = Door(replace(SETTINGS, queued_max_request_bytes=1 << 20))
    gone, stays, other, last = (door.connect() for _ in range(4))
    for number, client in enumerate((gone, stays), 1):
        client.ask((JOIN, number), filling=900_000)
        await turns()
        assert (JOIN, number) in door.started
    gone.receiver.on_lost()
    door.slow[2].set_result([b"two"])
    await turns()
    assert stays.wire.correlation_ids() == [2]
    other.ask((PRODUCE, 3), filling=600_000)
    assert (PRODUCE, 3) in door.started
    last.send(asked(PRODUCE, 4, 600_000)[:70_000])
    assert last.wire.paused  # the bound holds still


async def test_a_large_frame_without_records_closes_the_connection(door: Door) -> None:
    """Before there is room made for it; Produce alone may be as large as socket.request.max.bytes."""
    large, produce = door.connect(), door.connect()
    produce.send(asked(PRODUCE, 1, MOST_WITHOUT_RECORDS)[:70_000])
    large.send(asked(JOIN, 2, MOST_WITHOUT_RECORDS)[:70_000])
    await turns()
    assert large.wire.closed
    assert not produce.wire.closed


async def test_who_sends_a_large_frame_slowly_is_ended_when_others_wait_for_room() -> None:
    """Not before, and nobody who was quick."""
    door = Door(replace(SETTINGS, queued_max_request_bytes=2 << 20))
    slow, quick, waits = door.connect(), door.connect(), door.connect()
    frame = asked(PRODUCE, 1, 900_000)
    slow.send(frame[:70_000])
    quick.ask((PRODUCE, 2))
    for number in range(12):
        slow.send(frame[70_000 + number : 70_001 + number])
        door.clock.turn(SWEEP_MS)
    assert not slow.wire.aborted
    waits.send(asked(PRODUCE, 3, 900_000)[:70_000])
    assert waits.wire.paused
    door.clock.turn(SWEEP_MS)
    assert slow.wire.aborted
    assert not quick.wire.aborted
    slow.receiver.on_lost()
    assert not waits.wire.paused


async def test_large_requests_leave_room_for_small_ones() -> None:
    """However many clients send large frames and do not finish them."""
    door = Door(replace(SETTINGS, queued_max_request_bytes=1 << 20))
    hostile, small = [door.connect() for _ in range(9)], door.connect()
    for client in hostile:
        client.send(asked(PRODUCE, 1, 250_000)[:70_000])
    assert [client.wire.paused for client in hostile] == [False] * 3 + [True] * 6
    small.ask((PRODUCE, 2), filling=10_000)
    assert door.started == [(PRODUCE, 2)]


async def test_answers_that_are_read_at_once_have_less_room_each(door: Door) -> None:
    """What was asked for together cannot fill the memory together, and what is written makes room again."""
    clients = [door.connect() for _ in range(500)]
    for number, client in enumerate(clients):
        client.ask((FETCH, number))
    await turns()
    assert door.granted[0] == SETTINGS.fetch_max_bytes
    assert sum(door.granted.values()) <= UNTAKEN_BYTES + len(clients)
    for number, client in enumerate(clients):
        if number % 2:
            client.receiver.on_lost()
        else:
            door.slow[number].set_result([b"found"])
    await turns()
    again = door.connect()
    again.ask((FETCH, 1_000))
    await turns()
    assert door.granted[1_000] == SETTINGS.fetch_max_bytes


async def test_requests_that_name_much_take_turns_with_everybody_else(door: Door) -> None:
    """One in each turn of the loop, though all came together; who has gone does not keep the others waiting."""
    clients = [door.connect() for _ in range(9)]
    for number, client in enumerate(clients):
        client.ask((SLOW, number), filling=HEAVY_BYTES)
    clients[3].receiver.on_lost()
    small = door.connect()
    begun = []
    while len(door.started) < 8:
        before = len(door.started)
        await turns(1)
        begun.append(len(door.started) - before)
    assert max(begun) <= 2  # `turns` takes two of the loop's
    small.ask((SLOW, 100))
    await turns(2)
    assert door.started[-1] == (SLOW, 100)


async def test_a_connection_that_ends_gives_back_what_it_held() -> None:
    """In the middle of a frame, and with requests that nobody will take the answers of."""
    door = Door(replace(SETTINGS, queued_max_request_bytes=round((1 << 20) / LARGE_SHARE)))
    first, second = door.connect(), door.connect()
    first.ask((PRODUCE, 1), filling=300_000)
    first.send(asked(PRODUCE, 2, 700_000)[:70_000])
    second.send(asked(PRODUCE, 3, 700_000)[:70_000])
    assert second.wire.paused
    first.receiver.on_lost()
    assert not second.wire.paused
    third = door.connect()
    third.send(asked(PRODUCE, 4, 300_000)[:70_000])
    assert third.wire.paused  # what the first has under way is in memory still
    door.done[1]([b"too late"])
    await turns()
    assert not first.wire.written
    assert not third.wire.paused


async def test_a_connection_that_fails_does_not_hold_up_the_others() -> None:
    """Those that wait for room are all told that there is some."""
    door = Door(replace(SETTINGS, queued_max_request_bytes=1 << 20))
    first, second, third = door.connect(), door.connect(), door.connect()
    first.ask((PRODUCE, 1), filling=900_000)
    for number, client in enumerate((second, third), 2):
        client.send(asked(PRODUCE, number, 300_000)[:70_000])
        assert client.wire.paused
    second.wire.broken = True
    door.done[1]([b""])
    await turns()
    assert second.wire.aborted
    assert not third.wire.paused
    assert first.wire.correlation_ids() == [1]


async def test_nothing_is_read_before_the_listener_is_open() -> None:
    """A broker that does not know its metadata would deny topics that exist."""
    door = Door(is_open=False)
    client = door.connect()
    client.ask((PRODUCE, 1), (SLOW, 2))
    await turns()
    assert door.started == []
    assert client.wire.paused
    door.clock.turn(STUCK_MS + SWEEP_MS)
    assert not client.wire.aborted
    door.listener.open()
    assert door.started == [(PRODUCE, 1)]
    assert not client.wire.paused


@pytest.mark.parametrize(
    "bad",
    [asked(99, 9), asked(SLOW, 9, version=4), asked(PRODUCE, -9), b"\0\0\0\x02ab", asked(SLOW, 9)[:-4] + b""],
    ids=["unknown API", "unknown version", "hung up on by its handler", "too short", "cut short"],
)
async def test_what_cannot_be_understood_closes_after_the_answers_before_it(
    door: Door, client: Client, bad: bytes
) -> None:
    """The client knows what became of everything that it asked before (K-13)."""
    if bad == asked(SLOW, 9)[:-4]:
        size = len(bad) - 4
        data = struct.pack(">i", size) + bad[4:]
    else:
        data = bad
    client.send(asked(PRODUCE, 1) + data + asked(PRODUCE, 5))
    await turns()
    assert not client.wire.closed
    door.done[1]([b"one"])
    await turns()
    assert client.wire.correlation_ids() == [1]
    assert client.wire.closed
    assert (PRODUCE, 5) not in door.started
    assert door.listener.shared.refused_requests == 1


async def test_partitions_that_fail_together_close_the_connection_once(door: Door) -> None:
    """With acks=0 each of them says so, now or after it has waited; and of a client that has gone nobody complains."""
    client, gone = door.connect(), door.connect()
    client.ask((PRODUCE, 1))
    gone.ask((PRODUCE, 2))
    gone.receiver.on_lost()
    for number in (1, 1, 1, 2):
        door.done[number](None)
        door.hang_up[number]("Produce with acks=0 failed")
    await turns()
    assert client.wire.closed
    assert door.listener.shared.refused_requests == 1


async def test_a_produce_that_fails_closes_the_connection(
    door: Door, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """After the answers before it; the log has the traceback, and does not blame the client."""
    client.ask((PRODUCE, 1), (PRODUCE, BUG), (PRODUCE, 3))
    door.done[1]([b""])
    await turns()
    assert client.wire.correlation_ids() == [1]
    assert client.wire.closed
    assert door.started == [(PRODUCE, 1)]
    assert door.listener.shared.refused_requests == 0
    assert 'raise IndexError("a bug")' in caplog.text


@pytest.mark.parametrize(
    ("begins", "protocol", "remedy"),
    [
        (
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            "HTTP/2",
            "; gRPC clients, odradek's among them, are served at broker:50051",
        ),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP", ""),
        (bytes.fromhex("16030100a5010000a1"), "TLS", ""),
    ],
)
async def test_clients_of_another_protocol_are_told_apart(
    door: Door, begins: bytes, protocol: str, remedy: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The line says what they speak and where that is served, once for all of them; bytes may come one by one."""
    clients = [door.connect() for _ in range(3)]
    for client in clients:
        for byte in begins[:4]:
            client.send(bytes((byte,)))
        await turns()
    assert [client.wire.closed for client in clients] == [True] * 3
    (said,) = [record.getMessage() for record in caplog.records]
    sentence = f"speaks {protocol}, and this listener is for Kafka's clients{remedy}; the connection is closed"
    assert said.startswith("listener KAFKA: ")
    assert said.endswith(sentence)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), IndexError("a bug that a malformed frame may raise too")])
async def test_a_handler_that_fails_closes_the_connection(door: Door, error: Exception) -> None:
    """The others go on, and the client is not blamed."""
    client, other = door.connect(), door.connect()
    client.ask((SLOW, 1))
    await turns()
    door.slow[1].set_exception(error)
    other.ask((SLOW, 2))
    await turns()
    door.slow[2].set_result([b""])
    await turns()
    assert client.wire.closed
    assert door.listener.shared.refused_requests == 0
    assert other.wire.correlation_ids() == [2]


async def test_a_client_that_takes_no_answers_is_asked_nothing_more_and_then_ended(door: Door, client: Client) -> None:
    """Its memory is bounded by the answers that it has (K-16)."""
    client.ask((SLOW, 1), (SLOW, 2))
    await turns()
    client.wire.unsent_bytes = 70_000
    client.receiver.on_full()
    door.slow[1].set_result([b""])
    await turns()
    assert door.started == [(SLOW, 1)]
    assert door.listener.shared.untaken_bytes == 70_000
    door.clock.turn(STUCK_MS + 2 * SWEEP_MS)
    assert client.wire.aborted
    client.receiver.on_lost()
    assert door.listener.shared.untaken_bytes == 0


async def test_all_of_an_answer_that_a_client_does_not_take_is_counted(door: Door, client: Client) -> None:
    """`on_full` comes in the middle of a write; the rest of the answer, and answers after it, count as well."""
    client.wire.on_full = client.receiver.on_full
    client.ask((PRODUCE, 1), (PRODUCE, 2))
    door.done[1]([bytes(100_000), bytes(2_000_000)])
    await turns()
    assert door.listener.shared.untaken_bytes == client.wire.unsent_bytes > 2_100_000
    door.done[2]([bytes(1_000_000)])
    await turns()
    assert door.listener.shared.untaken_bytes == client.wire.unsent_bytes > 3_100_000
    client.wire.unsent_bytes, client.wire.full = 0, False
    client.receiver.on_drained()
    assert door.listener.shared.untaken_bytes == 0


async def test_a_client_that_takes_an_answer_slowly_is_not_ended(door: Door, client: Client) -> None:
    """Bytes that leave are activity (K-16); when none leave any more, it is stuck."""
    client.wire.on_full = client.receiver.on_full
    client.ask((PRODUCE, 1))
    door.done[1]([bytes(8_000_000)])
    await turns()
    for _ in range(4):
        door.clock.turn(STUCK_MS - SWEEP_MS)
        client.wire.unsent_bytes -= 100_000
    door.clock.turn(STUCK_MS - SWEEP_MS)
    assert not client.wire.aborted
    assert door.listener.shared.untaken_bytes == client.wire.unsent_bytes
    door.clock.turn(STUCK_MS + 2 * SWEEP_MS)
    assert client.wire.aborted


async def test_silence_closes_but_a_waiting_request_is_no_silence(door: Door) -> None:
    """connections.max.idle.ms (K-15); a frame that is never finished is ended earlier."""
    silent, waiting, half = door.connect(), door.connect(), door.connect()
    waiting.ask((SLOW, 1))
    half.send(asked(SLOW, 2)[:9])
    await turns()
    door.clock.turn(STUCK_MS + SWEEP_MS)
    await turns()
    assert half.wire.aborted
    assert not silent.wire.closed
    door.clock.turn(700_000)
    await turns()
    assert silent.wire.closed
    assert not waiting.wire.closed


def test_connections_are_bounded_in_all_and_by_address() -> None:
    """max.connections and max.connections.per.ip."""
    door = Door(replace(SETTINGS, max_connections_per_ip=2))
    first = door.connect()
    door.connect()
    assert door.listener.accept(Wire()) is None
    first.receiver.on_lost()
    assert door.listener.accept(Wire()) is not None


async def test_a_client_beyond_its_quota_is_answered_and_then_not_read_until_it_has_waited() -> None:
    """Neither what arrives meanwhile nor what had arrived; then it goes on in order (KIP-219)."""
    door = Door(quotas={QuotaEntity(DEFAULT): {PRODUCER_BYTE_RATE: 1000.0}})
    client = door.connect()
    client.ask((PRODUCE, 1), filling=1000 * BURST_S + 2000)
    door.done[1]([b""])
    await turns()
    assert client.wire.correlation_ids() == [1]
    client.ask((SLOW, 2))
    await turns()
    assert client.wire.paused
    assert door.started == [(PRODUCE, 1)]
    door.clock.turn(1_900)
    await turns()
    assert door.started == [(PRODUCE, 1)]
    door.clock.turn(200)
    await turns()
    assert door.started == [(PRODUCE, 1), (SLOW, 2)]
    assert not client.wire.paused
