"""Commands that write, told to stop once more than needed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from typing import Any, Generic, Self, TypeVar

import odradek as client
import pytest
from odradek.cli.failures import FAILED
from odradek.cli.stopping import TELLING

Run = Callable[..., Any]
K = TypeVar("K")
V = TypeVar("V")


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """As a command in a terminal finds them, and afterwards as they were."""
    before = {number: signal.getsignal(number) for number in TELLING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def ctrl_c() -> None:
    """Press it; the loop has heard of it when this returns."""
    signal.raise_signal(signal.SIGINT)
    for _ in range(5):  # it comes by way of a socket, and then as a callback
        await asyncio.sleep(0)


class ProducerWithoutAnswers(Generic[K, V]):
    """Takes records, of which nobody hears again, while somebody presses Ctrl-C: when the third is taken, when they are
    waited for, and when it is closed."""

    held_up_by = None
    taken = 0

    @classmethod
    def from_config(cls, config: object) -> Self:
        return cls()

    async def start(self) -> None:
        pass

    async def partitions_for(self, topic: str) -> list[int]:
        return [0]

    async def enqueue(self, topic: str, value: bytes, **settings: object) -> asyncio.Future[None]:
        self.taken += 1
        if self.taken == 3:
            await ctrl_c()
        return asyncio.get_running_loop().create_future()

    async def flush(self, timeout: float | None) -> None:
        await ctrl_c()
        await asyncio.get_running_loop().create_future()

    async def close(self, timeout: float) -> None:
        await ctrl_c()


def test_a_third_ctrl_c_keeps_produce_from_no_summary(odradek: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unknown is counted, and the code is 1, although somebody is impatient while the producer is closed."""
    monkeypatch.setattr(client, "Producer", ProducerWithoutAnswers, raising=False)
    outcome = odradek("produce", "orders", "--count", "0", "-b", "127.0.0.1:1")
    assert outcome.code == FAILED, outcome
    assert "stopping: 2 records are on their way" in outcome.err
    assert "3 records were not acknowledged yet; they may be written or not" in outcome.err
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # until the process has ended
