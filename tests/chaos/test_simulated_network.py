"""Faults of simulated links, machines and processes, as the other side sees them."""

from __future__ import annotations

import asyncio
from asyncio import sleep as virtual_sleep  # on the simulated loop: no real time passes
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from odradek_chaos.worlds.simulated.cluster.node import NodePorts, SimNode
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.net.fabric import SimFabric
from odradek_chaos.worlds.simulated.net.links import uniform
from odradek_chaos.worlds.simulated.net.network import NEVER_REPEATED, SimNetwork
from odradek_proto.transport.ports import (
    CallContext,
    DeadlineExceeded,
    DialResult,
    Handlers,
    NetworkError,
    PeerUnavailable,
    Stream,
    StreamClosed,
)
from odradek_proto.v1 import groups_pb2

from tests.playing import plays

ADDRESS = "server:9092"
ECHO = "/t.T/Echo"
COLLECT = "/t.T/Collect"
COUNT = "/t.T/Count"


class Pair:
    """A client's network and a serving node that echoes streams and counts calls."""

    def __init__(self, seed: int) -> None:
        self.loop = SimLoop(seed)
        self.fabric = SimFabric(self.loop, self.loop.fork_rng("fabric"))
        self.client = SimNetwork(self.fabric, "client")
        self.server = SimNode("server", self.loop, self.fabric)
        self.received: list[bytes] = []
        self.counted = 0

    async def main(self, ports: NodePorts) -> None:
        async def echo(stream: Stream, _: CallContext) -> None:
            while True:
                message = await stream.recv()
                self.received.append(message)
                await stream.send(message)

        async def collect(stream: Stream, _: CallContext) -> None:
            while True:
                self.received.append(await stream.recv())

        async def count(_: bytes, __: CallContext) -> bytes:
            self.counted += 1
            return b"%d" % self.counted

        await ports.network.serve(
            ADDRESS, Handlers(unary={COUNT: count, NEVER_REPEATED[0]: count}, streams={ECHO: echo, COLLECT: collect})
        )
        await asyncio.Event().wait()

    async def open(self) -> Stream:
        self.server.start(self.main)
        await virtual_sleep(0.001)
        return await self.client.open(ADDRESS, ECHO)


def tell(story: Callable[[Pair], Coroutine[Any, Any, None]], seed: int = 1) -> Pair:
    pair = Pair(seed)
    pair.loop.run(story(pair), limit_s=600)
    pair.loop.close()
    assert pair.loop.unhandled == []
    return pair


async def silence(stream: Stream, seconds: float) -> bool:
    """Whether a stream gives neither a message nor an end for so long."""
    try:
        await asyncio.wait_for(stream.recv(), seconds)
    except TimeoutError:
        return True
    except StreamClosed:
        return False
    return False


@plays(tell)
async def test_killed_process_ends_its_streams_at_once_and_refuses(pair: Pair) -> None:
    """The kernel of a killed process closes its sockets: an unclean end within the link's delay, then refusals."""
    stream = await pair.open()
    killed_us = pair.loop.now_us
    pair.server.kill()
    with pytest.raises(StreamClosed) as ended:
        await stream.recv()
    assert not ended.value.clean
    assert pair.loop.now_us - killed_us <= 1000
    assert await pair.client.dial(ADDRESS, 1000) is DialResult.REFUSED
    with pytest.raises(PeerUnavailable) as refused:
        await pair.client.open(ADDRESS, ECHO)
    assert refused.value.refused
    pair.server.start(pair.main)
    await virtual_sleep(0.001)
    again = await pair.client.open(ADDRESS, ECHO)
    await again.send(b"x")
    assert await again.recv() == b"x"
    assert pair.server.ports.incarnation == 2


@plays(tell)
async def test_paused_process_is_silent_and_goes_on_later(pair: Pair) -> None:
    """While it is paused its kernel accepts dials and bytes; the answers come at resume."""
    stream = await pair.open()
    pair.server.pause()
    await stream.send(b"1")
    assert await silence(stream, 30)
    assert await pair.client.dial(ADDRESS, 1000) is DialResult.LISTENING
    with pytest.raises(DeadlineExceeded):
        await pair.client.open(ADDRESS, ECHO, timeout_ms=5000)
    pair.server.resume()
    assert await stream.recv() == b"1"


@plays(tell)
async def test_paused_process_can_be_killed(pair: Pair) -> None:
    """A kill of a paused process is as quick as any other."""
    stream = await pair.open()
    pair.server.pause()
    pair.server.kill()
    assert not await silence(stream, 1)
    pair.server.start(pair.main)


@plays(tell)
async def test_power_loss_is_silent_until_the_machine_is_back(pair: Pair) -> None:
    """No end, no refusal; when the machine runs again, it resets the connections that it has forgotten."""
    stream = await pair.open()
    pair.server.power_loss()
    await stream.send(b"into the void")
    assert await silence(stream, 60)
    assert await pair.client.dial(ADDRESS, 1000) is DialResult.SILENT
    with pytest.raises(NetworkError) as failed:
        await pair.client.call(ADDRESS, COUNT, b"", 2000)
    assert not getattr(failed.value, "refused", False)
    pair.server.start(pair.main)
    with pytest.raises(StreamClosed) as ended:
        await asyncio.wait_for(stream.recv(), 1)
    assert not ended.value.clean


@pytest.mark.parametrize("seed", range(5))
def test_cut_link_holds_messages_back_and_keeps_their_order(seed: int) -> None:
    """Nothing passes a cut, one way or both; after it healed everything arrives in order."""

    async def story(pair: Pair) -> None:
        stream = await pair.open()
        pair.fabric.link("client", "server").delay = uniform(0.1, 50)
        await stream.send(b"0")
        pair.fabric.cut("client", "server", both_ways=False)
        for number in range(1, 10):
            await stream.send(b"%d" % number)
            await virtual_sleep(0.01)
        assert await silence(stream, 5)
        assert await pair.client.dial(ADDRESS, 1000) is DialResult.SILENT
        pair.fabric.heal("client", "server")
        await stream.send(b"10")
        assert [await stream.recv() for _ in range(11)] == [b"%d" % number for number in range(11)]
        pair.fabric.cut("server", "client", both_ways=False)
        await stream.send(b"11")
        assert await silence(stream, 5)
        assert pair.received[-1] == b"11"
        pair.fabric.heal_all()
        assert await stream.recv() == b"11"

    tell(story, seed)


@plays(tell)
async def test_window_stays_closed_while_the_way_back_is_cut(pair: Pair) -> None:
    """Acknowledgements do not pass a cut either: a sender runs into its window, and goes on after the heal."""
    stream = await pair.open()
    pair.fabric.cut("server", "client", both_ways=False)

    async def send() -> None:
        for _ in range(20):
            await stream.send(bytes(64 * 1024))

    sender = asyncio.ensure_future(send())
    _, waiting = await asyncio.wait((sender,), timeout=30)
    assert waiting
    assert len(pair.received) == 4
    pair.fabric.heal_all()
    for _ in range(20):
        await stream.recv()
    await sender


@plays(tell)
async def test_kill_behind_a_cut_is_heard_after_the_heal(pair: Pair) -> None:
    """The end of a connection cannot pass a cut link."""
    stream = await pair.open()
    pair.fabric.cut("client", "server")
    pair.server.kill()
    assert await silence(stream, 10)
    pair.fabric.heal_all()
    assert not await silence(stream, 1)


@plays(tell)
async def test_stall_ends_by_itself(pair: Pair) -> None:
    """A stalled direction delivers once the stall is over."""
    stream = await pair.open()
    pair.fabric.stall("client", "server", 500)
    started_us = pair.loop.now_us
    await stream.send(b"late")
    assert await stream.recv() == b"late"
    assert 500_000 <= pair.loop.now_us - started_us < 510_000


def test_reset_loses_a_suffix_of_what_was_not_seen() -> None:
    """A reset delivers some prefix in order and then an unclean end, on both sides; every length occurs."""
    lengths = set()

    def run(seed: int) -> None:
        async def story(pair: Pair) -> None:
            (await pair.open()).close()
            stream = await pair.client.open(ADDRESS, COLLECT)
            for number in range(4):
                await stream.send(b"%d" % number)
            pair.fabric.reset("client", "server")
            with pytest.raises(StreamClosed) as ended:
                await stream.recv()
            assert not ended.value.clean
            await virtual_sleep(0.1)
            assert pair.received == [b"%d" % number for number in range(len(pair.received))]
            lengths.add(len(pair.received))

        tell(story, seed)

    for seed in range(40):
        run(seed)
    assert lengths == {0, 1, 2, 3, 4}


def test_calls_are_lost_before_or_after_they_acted() -> None:
    """The caller cannot tell the two apart: a broken connection or its deadline, both times."""

    async def calls(pair: Pair, number: int) -> set[type[NetworkError]]:
        failures = set()
        for _ in range(number):
            with pytest.raises(NetworkError) as failed:
                await pair.client.call(ADDRESS, COUNT, b"", 1000)
            failures.add(failed.type)
        return failures

    async def story(pair: Pair) -> None:
        (await pair.open()).close()
        pair.fabric.drop_calls("client", "server", before=1.0)
        assert await calls(pair, 20) == {PeerUnavailable, DeadlineExceeded}
        assert pair.counted == 0
        pair.fabric.drop_calls("client", "server", after=1.0)
        assert await calls(pair, 20) == {PeerUnavailable, DeadlineExceeded}
        assert pair.counted == 20
        pair.fabric.drop_calls("client", "server")
        assert await pair.client.call(ADDRESS, COUNT, b"", 1000) == b"21"

    tell(story)


@plays(tell)
async def test_call_under_way_fails_when_its_server_is_killed(pair: Pair) -> None:
    """The caller hears at once that the connection broke, which is not a refusal."""

    async def main(ports: NodePorts) -> None:
        async def hang(_: bytes, __: CallContext) -> bytes:
            await asyncio.Event().wait()
            return b""

        await ports.network.serve(ADDRESS, Handlers(unary={COUNT: hang}))
        await asyncio.Event().wait()

    pair.server.start(main)
    await virtual_sleep(0.001)
    call = asyncio.ensure_future(pair.client.call(ADDRESS, COUNT, b"", 60_000))
    await virtual_sleep(1)
    pair.server.kill()
    with pytest.raises(PeerUnavailable) as broken:
        await asyncio.wait_for(call, 0.1)
    assert not broken.value.refused


@plays(tell)
async def test_killed_process_reaches_nobody_while_it_unwinds(pair: Pair) -> None:
    """What a `finally` block of a killed process says or writes goes nowhere."""

    async def dying(ports: NodePorts) -> None:
        ports.files.makedirs("/data")
        log = ports.files.open("/data/log", create=True)
        log.pwritev([b"alive"], 0)
        stream = await ports.network.open(ADDRESS, ECHO)
        try:
            await asyncio.Event().wait()
        finally:
            log.pwritev([b"ghost"], 0)
            with pytest.raises(StreamClosed):
                await stream.send(b"ghost")
            with pytest.raises(PeerUnavailable):
                await ports.network.call(ADDRESS, COUNT, b"", 1000)
            unwound.append(ports.node)

    unwound: list[str] = []
    (await pair.open()).close()
    node = SimNode("dying", pair.loop, pair.fabric)
    node.start(dying)
    await virtual_sleep(1)
    node.kill()
    await virtual_sleep(1)
    assert unwound == ["dying"]
    assert pair.received == []
    assert pair.counted == 0
    assert node.disk.read("/data/log") == b"alive"


@plays(tell)
async def test_program_that_raises_has_exited(pair: Pair) -> None:
    """Its failure is kept, its sockets are closed, and it can be started again."""

    async def fails(ports: NodePorts) -> None:
        await ports.network.serve(ADDRESS, Handlers())
        await ports.clock.sleep(100)
        raise AssertionError("log end offset fell")

    pair.server.start(fails)
    await pair.server.wait()
    await virtual_sleep(0)
    assert isinstance(pair.server.failure, AssertionError)
    assert not pair.server.is_running
    assert await pair.client.dial(ADDRESS, 1000) is DialResult.REFUSED
    (await pair.open()).close()
    assert pair.server.failure is None


@plays(tell)
async def test_a_machine_that_is_up_again_resets_connections_of_its_earlier_life(pair: Pair) -> None:
    """Its kernel knows nothing of them, and says so at the first byte, also when none came while it was off."""
    stream = await pair.open()
    pair.server.power_loss()
    await virtual_sleep(1)
    pair.server.start(pair.main)
    await virtual_sleep(0.01)
    await stream.send(b"are you there?")
    with pytest.raises(StreamClosed) as lost:
        await asyncio.wait_for(stream.recv(), 1)
    assert not lost.value.clean


def test_power_loss_of_a_node_forgets_unflushed_bytes() -> None:
    """A kill keeps all that was written; after a power loss the next incarnation finds at least what was flushed."""
    sizes: dict[bool, set[int]] = {True: set(), False: set()}

    def run(seed: int, power: bool) -> None:
        async def writes(ports: NodePorts) -> None:
            ports.files.makedirs("/data")
            ports.files.fsync_dir("/")
            log = ports.files.open("/data/log", create=True)
            ports.files.fsync_dir("/data")
            if ports.incarnation == 2:
                sizes[power].add(log.size())
            log.pwritev([b"flushed"], 0)
            await ports.files.offload(log.fsync)
            log.pwritev([bytes(10_000)], 7)
            await asyncio.Event().wait()

        async def story(pair: Pair) -> None:
            pair.server.start(writes)
            await virtual_sleep(1)
            if power:
                pair.server.kill()
            else:
                pair.server.power_loss()
            pair.server.start(writes)
            await virtual_sleep(1)

        tell(story, seed)

    for seed in range(30):
        run(seed, power=True)
        run(seed, power=False)
    assert sizes[True] == {10_007}
    assert min(sizes[False]) == 7
    assert len(sizes[False]) > 5


@plays(tell)
async def test_a_repeated_call_acts_twice_and_is_answered_once(pair: Pair) -> None:
    """The second request comes late, and nobody waits for what it is answered."""
    (await pair.open()).close()
    link = pair.fabric.link("client", "server")
    link.duplicate_requests, link.duplicate_late_ms = 1.0, 50.0
    assert await pair.client.call(ADDRESS, COUNT, b"", 1000) == b"1"
    await virtual_sleep(0.04)
    assert pair.counted == 1
    await virtual_sleep(0.04)
    assert pair.counted == 2


def test_what_is_never_repeated_is_a_method_of_the_product() -> None:
    """A commit that is repeated after a later one would take the group back, and Kafka does not see to that either."""
    methods = {
        f"/{groups_pb2.DESCRIPTOR.services_by_name['Groups'].full_name}/{method.name}"
        for method in groups_pb2.DESCRIPTOR.services_by_name["Groups"].methods
    }
    assert methods.issuperset(NEVER_REPEATED)


@plays(tell)
async def test_a_call_that_is_never_repeated_arrives_once(pair: Pair) -> None:
    (await pair.open()).close()
    pair.fabric.link("client", "server").duplicate_requests = 1.0
    assert await pair.client.call(ADDRESS, NEVER_REPEATED[0], b"", 1000) == b"1"
    await virtual_sleep(0.04)
    assert pair.counted == 1


@plays(tell)
async def test_a_held_method_gets_no_answer_while_the_others_do(pair: Pair) -> None:
    """A broker that reads no metadata goes on with all the rest."""
    stream = await pair.open()
    pair.fabric.held["client"] = COUNT
    with pytest.raises(DeadlineExceeded):
        await pair.client.call(ADDRESS, COUNT, b"", 100)
    await stream.send(b"x")
    assert await stream.recv() == b"x"
    del pair.fabric.held["client"]
    assert await pair.client.call(ADDRESS, COUNT, b"", 100) == b"1"
