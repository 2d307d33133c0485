"""An attempt to reach the controller can be given up at any moment, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

import pytest
from odradek_broker.runtime.membership.controller_channel import ControllerChannel, ControllerUnavailable
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.transport.ports import DeadlineExceeded, NetworkError, PeerUnavailable
from odradek_proto.v1 import controller_messages


def test_an_attempt_that_fails_as_it_is_given_up_is_not_missed() -> None:
    """Whoever waits for it is cancelled in the step in which it fails: asyncio has no error left that nobody took."""
    left: list[dict[str, Any]] = []
    waiting: list[asyncio.Task[None]] = []

    async def attempt() -> None:
        await asyncio.sleep(0)
        waiting.pop().cancel()
        raise PeerUnavailable("gone")

    async def story() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: left.append(context))
        voters = {1: "b1:9093"}
        channel = ControllerChannel(clock=LoopClock(), network=GrpcNetwork(), voters=voters, leader=lambda: 1)
        task = loop.create_task(channel.unless_replaced("b1:9093", attempt()))
        waiting.append(task)
        await asyncio.wait((task,))
        assert task.cancelled()
        del task
        gc.collect()

    asyncio.run(story())
    assert left == []


class FailsAtFirst(GrpcNetwork):
    """Its first calls end with these errors; the next ones are answered by a controller that has nothing to say."""

    def __init__(self, *errors: NetworkError) -> None:
        super().__init__()
        self.errors = list(errors)
        self.calls = 0

    async def call(self, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return controller_messages.ControllerAnswerHeader(error_code=0, controller_id=1).SerializeToString()


def give_an_order(network: FailsAtFirst) -> None:
    async def story() -> None:
        channel = ControllerChannel(clock=LoopClock(), network=network, voters={1: "b1:9093"}, leader=lambda: 1)
        await channel.call("ForwardAdmin", b"", 60_000, at_most_once=True)

    asyncio.run(story())


def test_an_order_that_was_not_delivered_is_given_again() -> None:
    """No connection, or no address for the controller's name at this moment: it did not get the order."""
    network = FailsAtFirst(PeerUnavailable("refused", refused=True), PeerUnavailable("no name", undelivered=True))
    give_an_order(network)
    assert network.calls == 3


@pytest.mark.parametrize("error", [PeerUnavailable("it broke"), DeadlineExceeded("silence")])
def test_an_order_that_may_have_been_delivered_is_not_given_again(error: NetworkError) -> None:
    """The second one might be told that the topic exists."""
    network = FailsAtFirst(error)
    with pytest.raises(ControllerUnavailable):
        give_an_order(network)
    assert network.calls == 1


def test_whoever_knows_no_controller_waits_for_an_election_before_it_asks_around() -> None:
    """Brokers that start together would be refused by voters that are about to elect; without news they ask one."""
    network, leader = FailsAtFirst(), -1
    loop = SimLoop()

    async def story() -> tuple[int, int, float]:
        nonlocal leader
        voters = {1: "b1:9093", 2: "b2:9093"}
        channel = ControllerChannel(clock=LoopClock(), network=network, voters=voters, leader=lambda: leader)
        began = loop.time()
        await channel.call("RegisterBroker", b"", 60_000)
        unannounced_ms = round((loop.time() - began) * 1000)
        registration = loop.create_task(channel.call("RegisterBroker", b"", 60_000))
        await asyncio.sleep(0)
        leader = 2
        channel.on_leader_changed(2, 1)
        began = loop.time()
        await registration
        return unannounced_ms, network.calls, loop.time() - began

    assert loop.run_until_complete(story()) == (20, 2, 0)
