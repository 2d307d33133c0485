"""The clients without asyncio: the same methods, over gRPC on this machine, from ordinary code."""

from __future__ import annotations

import asyncio
import inspect
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, suppress
from typing import Any, assert_type

import odradek
import odradek.sync
import pytest
from odradek import (
    BootstrapError,
    BrokerError,
    ClientClosed,
    ConsumerRecord,
    RecordMetadata,
    RecordTooLarge,
    RequestTimeout,
    SerializationError,
    TopicPartition,
    UnknownTopic,
)
from odradek.core.batches import ProducerBatch, SendQueue
from odradek.sync import background_loop
from odradek_proto.errors import ErrorCode
from odradek_proto.records import encode_batch
from odradek_proto.transport.background import BackgroundLoop
from odradek_proto.transport.grpc_network import GrpcNetwork

TRANSLATED = {"__aenter__": "__enter__", "__aexit__": "__exit__", "__aiter__": "__iter__"}


def public_methods(kind: type) -> dict[str, list[tuple[Any, ...]]]:
    """Names and parameters, without the annotations."""
    found = {}
    for name, member in inspect.getmembers(kind, callable):
        if name in (*TRANSLATED, *TRANSLATED.values(), "__init__") or not name.startswith("_"):
            parameters = inspect.signature(member).parameters.values()
            found[TRANSLATED.get(name, name)] = [(p.name, p.kind, p.default) for p in parameters]
    return found


@pytest.mark.parametrize("name", ["Producer", "Consumer", "Admin"])
def test_both_faces_have_the_same_methods(name: str) -> None:
    """Every public method of the asynchronous client, with the same parameters, and no other (`make proto`)."""
    ours, theirs = getattr(odradek.sync, name), getattr(odradek, name)
    assert public_methods(ours) == public_methods(theirs)
    assert all(getattr(ours, method).__doc__ for method in public_methods(ours) if not method.startswith("_"))


def types_that_the_checker_sees(
    producer: odradek.sync.Producer[str, int], consumer: odradek.sync.Consumer[str, int], admin: odradek.sync.Admin
) -> None:
    """Never run: mypy fails when the derived methods lose their types, since an ignore without an error is one."""
    assert_type(producer.send("t", 1, key="k"), RecordMetadata)
    assert_type(producer.enqueue("t", 1), odradek.sync.Delivery)
    producer.send("t", "text")  # type: ignore[arg-type]
    producer.flush(timeuot=1)  # type: ignore[call-arg]
    assert_type(consumer.poll(1), list[ConsumerRecord[str, int]])
    assert_type(consumer.batches(max_wait=1), Iterator[list[ConsumerRecord[str, int]]])
    assert_type(consumer.seek(TopicPartition("t", 0), 1), None)
    consumer.seek("t", 1)  # type: ignore[arg-type]
    assert_type(admin.list_topics(), list[str])
    admin.create_partitions("t")  # type: ignore[call-arg]


@pytest.fixture
def served(peers: Any) -> Iterator[Any]:
    """The peer cluster's brokers on real ports, on the background loop."""
    loop = background_loop()
    network = GrpcNetwork()
    for broker in peers.brokers.values():
        broker.address = "127.0.0.1:0"
        loop.run(broker.serve(network))
    yield peers
    loop.run(network.close())


def addresses(peers: Any) -> str:
    return ",".join(broker.address for broker in peers.brokers.values())


def test_records_go_there_and_back(served: Any) -> None:
    """Send, enqueue, flush, iterate, seek, and questions, without one `await`."""
    served.topic("orders", partitions=2)
    one = TopicPartition("orders", 1)
    with odradek.sync.Producer(addresses(served)) as producer:
        assert producer.send("orders", "a", partition=1).offset == 0
        delivery = producer.enqueue("orders", "b", partition=1)
        assert delivery.result(timeout=60).offset == 1
        assert delivery.exception() is None
        producer.enqueue_many("orders", [str(number) for number in range(100)], partition=1)
        producer.flush(timeout=60)
        assert producer.partitions_for("orders") == [0, 1]
        with pytest.raises(UnknownTopic):
            producer.send("orders", "x", partition=7)
    with odradek.sync.Consumer(addresses(served), "orders", auto_offset_reset="earliest") as consumer:
        assert consumer.poll(60, max_records=1)[0].value == b"a"
        assert [record.value for record in consumer.records(until="end")][:2] == [b"b", b"0"]
        assert (consumer.position(one), consumer.lag(one)) == (102, 0)
        consumer.seek(one, 100)
        for record in consumer:
            assert record.offset == 100
            break
    with odradek.sync.Admin(addresses(served)) as admin:
        assert admin.list_topics() == ["orders"]
        assert [broker.broker_id for broker in admin.describe_cluster().brokers] == [1, 2, 3]
        assert len(admin.describe_replicas().replicas) == 6


def test_failures_are_raised_here(served: Any) -> None:
    """What was enqueued and failed is raised at the end, as with the asynchronous producer."""
    [log] = served.topic("orders")
    served.brokers[1].errors.append((log.name, ErrorCode.INVALID_RECORD))
    with (
        pytest.raises(ExceptionGroup, match="1 record was not delivered") as caught,
        odradek.sync.Producer(addresses(served)) as producer,
    ):
        producer.enqueue("orders", "a")
    assert isinstance(caught.value.exceptions[0], BrokerError)


def test_threads_share_a_producer(served: Any) -> None:
    """Several threads send at once; everything arrives once."""
    [log] = served.topic("orders")
    with odradek.sync.Producer(addresses(served)) as producer:

        def work(name: str) -> None:
            for number in range(25):
                producer.send("orders", f"{name}{number}")

        threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(log.values()) == sorted(f"{name}{number}".encode() for name in "abcd" for number in range(25))


FORGETFUL = """
import sys
from odradek.sync import Producer

def write(count):
    producer = Producer(sys.argv[1])
    producer.start()
    for number in range(count):
        producer.enqueue("orders", str(number))
    return producer

kept = write(25)
write(25)  # dropped
sys.exit(7)
"""


def run_python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a process of its own."""
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_a_process_that_ends_without_close_sends_what_it_took(served: Any) -> None:
    """Whether the producer is still there at the end or was dropped before."""
    [log] = served.topic("orders")
    ended = run_python(f"import warnings; warnings.simplefilter('always'){FORGETFUL}", addresses(served))
    assert (ended.returncode, ended.stdout) == (7, "")
    assert len(log.values()) == 50
    assert "ResourceWarning: unclosed Producer" in ended.stderr


def test_a_dropped_consumer_has_the_name_that_its_user_knows(served: Any) -> None:
    served.topic("orders")
    consumer = odradek.sync.Consumer(addresses(served), "orders")
    consumer.start()
    with pytest.warns(ResourceWarning, match="^unclosed Consumer 'odradek'$"):
        del consumer


IN_A_CHILD = """
import multiprocessing, sys
from odradek.sync import Producer

producer = Producer(sys.argv[1], linger_ms=60_000)  # not used before the fork

def write():
    for number in range(50):
        producer.enqueue("orders", str(number))

(child := multiprocessing.get_context("fork").Process(target=write)).start()
child.join()
write()
sys.exit(child.exitcode)
"""


def test_a_child_that_is_forked_sends_what_it_took(served: Any) -> None:
    """With a client that its parent has made and not used; multiprocessing ends it without atexit."""
    [log] = served.topic("orders")
    ended = run_python(IN_A_CHILD, addresses(served))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert len(log.values()) == 100


USED_BEFORE = """
import os
from odradek_proto.transport.background import background_loop

loop = background_loop()
loop.call(lambda: None)
if not os.fork():
    try:
        loop.call(lambda: None)
    except RuntimeError as error:
        print(loop.is_gone, error, flush=True)
        os._exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]), loop.is_gone, loop.call(lambda: "goes on"))
"""


def test_whoever_uses_the_loop_of_its_parent_is_told() -> None:
    """It waits for nothing, as it would for a thread that is not there."""
    ended = run_python(USED_BEFORE)
    child, parent = ended.stdout.splitlines()
    assert child.startswith("True odradek was used in this process before it was forked")
    assert parent == "3 False goes on"


LEFT_OPEN = """
import sys
from odradek.sync import Consumer, Producer

def write():
    with Producer(sys.argv[1], linger_ms=60_000) as producer:
        for number in range(50):
            producer.enqueue("orders", str(number))
            yield number

def read():
    with Consumer(sys.argv[1], "orders", auto_offset_reset="earliest") as consumer:
        yield from consumer

writing, reading = write(), read()
for number in writing:
    if number == 30:
        break
consumer = Consumer(sys.argv[1], "orders")
records = iter(consumer)
next(reading)
"""


def test_a_process_ends_whose_generators_hold_clients(served: Any) -> None:
    """They are closed when no loop runs any more, by the interpreter, which must not wait for it."""
    [log] = served.topic("orders")
    log.append(encode_batch([(1_000, None, b"to read", ())]))
    ended = run_python(LEFT_OPEN, addresses(served))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert len(log.values()) == 1 + 31


def test_what_cannot_be_sent_at_the_end_of_a_process_is_told(served: Any) -> None:
    """On standard error, with the error and the number of records."""
    [log] = served.topic("orders")
    served.brokers[1].errors.append((log.name, ErrorCode.INVALID_RECORD))
    ended = run_python(FORGETFUL.removesuffix("sys.exit(7)\n"), addresses(served))
    assert ended.returncode == 0
    assert "at the end of the process, " in ended.stderr
    assert "INVALID_RECORD" in ended.stderr


def test_records_keep_their_order_however_they_are_sent(served: Any) -> None:
    """What is enqueued goes before what is sent after it, and a full buffer changes nothing in that."""
    [log] = served.topic("orders")
    with odradek.sync.Producer(addresses(served), buffer_memory=2_000, batch_size=200) as producer:
        for number in range(0, 1_000, 2):
            producer.enqueue("orders", str(number))
            if number % 100 == 0:
                producer.send("orders", str(number + 1))
            else:
                producer.enqueue("orders", str(number + 1))
    assert log.values() == [str(number).encode() for number in range(1_000)]


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def test_errors_of_a_record_are_raised_where_it_is_enqueued(served: Any) -> None:
    """As with the asynchronous producer; those of its way to the leader are the delivery's."""
    served.topic("orders")
    with odradek.sync.Producer(addresses(served), value_serializer=as_json, max_request_size=100) as producer:
        producer.send("orders", 1)
        with pytest.raises(SerializationError):
            producer.enqueue("orders", object())
        with pytest.raises(RecordTooLarge):
            producer.enqueue("orders", "x" * 200)
        with pytest.raises(UnknownTopic):
            producer.enqueue("orders", 1, partition=9)
        delivery = producer.enqueue("orders", 2)
        assert delivery.exception(60) is None
        assert delivery.done()
    with pytest.raises(ClientClosed):
        producer.enqueue("orders", 3)


def test_the_background_loop_refuses_itself() -> None:
    """A synchronous call on the loop that would have to carry it out can never end."""
    loop = background_loop()

    async def nested() -> None:
        loop.call(lambda: None)

    with pytest.raises(RuntimeError, match="own background loop"):
        loop.run(nested())


def test_a_client_starts_with_its_first_use(served: Any) -> None:
    """As kafka-python's and librdkafka's do; what needs no cluster does not, and a client that was closed is closed."""
    [log] = served.topic("orders")
    uses: list[Callable[[odradek.sync.Producer[Any, Any]], int]] = [
        lambda producer: producer.send("orders", "a").offset,
        lambda producer: producer.enqueue("orders", "b").result(60).offset,
        lambda producer: producer.enqueue_many("orders", "c")[0].result(60).offset,
    ]
    for offset, use in enumerate(uses):
        with closing(odradek.sync.Producer(addresses(served))) as producer:
            assert use(producer) == offset
    with closing(odradek.sync.Consumer(addresses(served))) as reader:
        reader.assign([log.name])
        reader.seek(log.name, 1)
        assert [record.value for record in reader.records(until="end")] == [b"b", b"c"]
    with closing(odradek.sync.Consumer(addresses(served), "orders", auto_offset_reset="earliest")) as reader:
        assert next(iter(reader)).value == b"a"
    with closing(odradek.sync.Admin(addresses(served))) as admin:
        assert admin.list_topics() == ["orders"]
    for unused in (odradek.sync.Producer("localhost:1"), odradek.sync.Consumer("localhost:1", "orders")):
        unused.close()
        with pytest.raises(ClientClosed, match="make a new one"):
            unused.partitions_for("orders")
    admin = odradek.sync.Admin(addresses(served))
    with admin:
        pass
    with pytest.raises(ClientClosed, match="make a new one"):
        admin.start()


def test_threads_that_share_a_client_start_it_once(served: Any) -> None:
    """All of them wait for the same start; one that failed is made again by the next use."""
    served.topic("orders")
    producer = odradek.sync.Producer(addresses(served))
    threads = [threading.Thread(target=producer.send, args=("orders", str(number))) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    calls = [call for broker in served.brokers.values() for call in broker.calls]
    assert calls.count("InitProducerId") == 1
    producer.close()
    lonely = odradek.sync.Producer("localhost:1", bootstrap_timeout_ms=1)
    for _ in range(2):
        with pytest.raises(BootstrapError):
            lonely.send("orders", "x")


def test_a_callback_cannot_start_a_client() -> None:
    """Nor can it wait for the thread that does, which waits for the loop."""
    loop, failures = background_loop(), list[BaseException]()

    def start() -> None:
        with pytest.raises(BootstrapError) as caught:
            admin.start()
        failures.append(caught.value)

    async def in_callback() -> None:
        admin.list_topics()

    with socket.create_server(("127.0.0.1", 0)) as silent:
        admin = odradek.sync.Admin(f"127.0.0.1:{silent.getsockname()[1]}", bootstrap_timeout_ms=500)
        thread = threading.Thread(target=start)
        thread.start()
        connection, _ = silent.accept()  # the start is on its way
        with connection, pytest.raises(RuntimeError, match="own background loop"):
            loop.run(in_callback())
        thread.join()
    assert len(failures) == 1


class Looked(ProducerBatch):
    """Another thread looks at it after each step of the loop's, or the loop finishes it after so many looks."""

    __slots__ = ("finishes_after", "is_done", "outcomes")

    def __init__(self, finishes_after: int) -> None:
        self.is_done, self.finishes_after = False, -1
        self.outcomes: list[object] = []
        super().__init__(SendQueue(TopicPartition("orders", 0)), 0, 0)
        self.records.append((7, None, b"a", ()))
        self.finishes_after = finishes_after

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name != "outcomes" and self.is_done:
            self.outcomes.append(self.error or self.metadata(0))

    @property
    def done(self) -> bool:
        was_done, self.finishes_after = self.is_done, self.finishes_after - 1
        if self.finishes_after == 0:
            self.finish(None)
        return was_done

    @done.setter
    def done(self, value: bool) -> None:
        self.is_done = value


def test_a_delivery_can_be_looked_at_at_any_moment(served: Any) -> None:
    """Other threads see it undone or as it will be, wherever the loop is."""
    for error in (None, ClientClosed("closed")):
        batch = Looked(0)
        batch.finish(error)
        assert {*map(type, batch.outcomes)} == {RecordMetadata if error is None else ClientClosed}
    with odradek.sync.Producer(addresses(served)) as producer:
        for looks in range(1, 6):
            delivery = odradek.sync.Delivery(producer._client)
            batch = Looked(looks)
            delivery.put(batch)
            delivery._claimed = True  # it has a callback, or somebody has asked before
            with suppress(RequestTimeout):
                assert delivery.exception(0) is None
            if not batch.is_done:
                batch.finishes_after = 0
                batch.finish(None)
            assert delivery.result().timestamp == 7


def test_a_callback_hears_what_became_of_a_record(served: Any) -> None:
    """On the loop's thread, where the outcome can be asked for without waiting; it counts as having been told."""
    [log] = served.topic("orders")
    told: list[Any] = []
    with odradek.sync.Producer(addresses(served)) as producer:
        producer.enqueue("orders", "a").add_done_callback(lambda delivery: told.append(delivery.result().offset))
        producer.flush(60)
        served.brokers[1].errors.append((log.name, ErrorCode.INVALID_RECORD))
        producer.enqueue("orders", "b").add_done_callback(lambda delivery: told.append(delivery.exception()))
    assert told[0] == 0
    assert "INVALID_RECORD" in str(told[1])


def test_the_background_loop_keeps_time_while_a_test_freezes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """freezegun replaces `time.monotonic`; without uvloop, the brokers' timers would wait for ever."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    background = BackgroundLoop()
    loop = background.call(asyncio.get_running_loop)
    try:
        monkeypatch.setattr("time.monotonic", lambda: 0.0)
        assert background.call(loop.time) > 0
    finally:
        loop.call_soon_threadsafe(loop.stop)


def test_an_interrupt_right_after_the_start_of_a_call_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the coroutine is on its way to the loop, where it runs by now."""
    runs, goes_on = threading.Event(), threading.Event()

    async def work() -> None:
        runs.set()
        goes_on.wait()

    def interrupted(work: Coroutine[Any, Any, None], loop: asyncio.AbstractEventLoop) -> None:
        loop.call_soon_threadsafe(loop.create_task, work)
        runs.wait()
        raise KeyboardInterrupt

    monkeypatch.setattr("asyncio.run_coroutine_threadsafe", interrupted)
    try:
        with pytest.raises(KeyboardInterrupt):
            background_loop().run(work())
    finally:
        goes_on.set()
