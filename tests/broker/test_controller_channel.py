"""An attempt to reach the controller can be given up at any moment, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import gc
from typing import Any

from odradek_broker.runtime.controller_channel import ControllerChannel
from odradek_broker.testing.network import BrokerNetwork
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.ports import PeerUnavailable


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
        channel = ControllerChannel(clock=LoopClock(), network=BrokerNetwork(), voters=voters, leader=lambda: 1)
        task = loop.create_task(channel.unless_replaced("b1:9093", attempt()))
        waiting.append(task)
        await asyncio.wait((task,))
        assert task.cancelled()
        del task
        gc.collect()

    asyncio.run(story())
    assert left == []
