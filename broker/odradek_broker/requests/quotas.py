"""What clients take, held against their quotas; for how long they are made to wait is told to whoever serves them.

What a connection does with that is its protocol's: an answer says `throttle_time_ms`, and meanwhile nothing is read of
its client (KIP-219). How it is decided is in `core.security.quotas`. The time of requests is that of this broker's
loop, which is where a request costs others theirs; what threads and followers do meanwhile is not counted.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final, TypeVar

from odradek_proto.security.quota_words import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from odradek_proto.transport.ports import Clock

from odradek_broker.core.security.quotas import QuotaBuckets, Quotas
from odradek_broker.requests.context import RequestContext
from odradek_broker.runtime.counters import Timer

MOST_HELD_MS: Final = 30_000  # request.timeout.ms of Kafka's clients
LONGEST_CLIENT_ID: Final = 255  # characters that count; caches remember them
T = TypeVar("T")


class Throttle:
    """Keeps to the quotas of the committed metadata, of which `update` tells. Without a timer no time is counted.

    Every method gives milliseconds for which the client has to wait; 0: it has not. While no quota is set `is_on` is
    false, and nobody on the way of a record calls any of them.
    """

    def __init__(self, clock: Clock | None = None, timer: Timer | None = None) -> None:
        self.is_on = False
        self._clock = clock
        self._timer = timer
        self._buckets = QuotaBuckets()

    def update(self, quotas: Quotas) -> None:
        """Cheap when they are the same object as before."""
        self.is_on = bool(quotas) and self._clock is not None
        self._buckets.update(quotas)

    def produced(self, context: RequestContext, size: int) -> int:
        """Bytes of a request that writes."""
        return self._take(context, PRODUCER_BYTE_RATE, size)

    def fetched(self, context: RequestContext, size: int) -> int:
        """Bytes of batches in an answer."""
        return self._take(context, CONSUMER_BYTE_RATE, size)

    def owed(self, context: RequestContext) -> int:
        """For the time that earlier requests took."""
        return self._take(context, REQUEST_PERCENTAGE, 0)

    def call(self, context: RequestContext, work: Callable[[], T]) -> T:
        """Do a part of a request, and count its time if a quota is about it."""
        if self._timer is None or not self._is_timed(context):
            return work()
        started = self._timer()
        try:
            return work()
        finally:
            self._took(context, self._timer() - started)

    async def run(self, context: RequestContext, work: Coroutine[Any, Any, T]) -> T:
        """Await a request, and count the time that it takes of the loop if a quota is about it."""
        if self._timer is None or not self._is_timed(context):
            return await work
        return await _counted(work, self._timer, lambda seconds: self._took(context, seconds))

    async def wait(self, delay_ms: int) -> None:
        if self._clock is not None and delay_ms:
            await self._clock.sleep(delay_ms)

    async def hold(self, delay_ms: int) -> None:
        """Wait before a call is answered: no longer than callers wait for answers, since it is kept in memory."""
        await self.wait(min(delay_ms, MOST_HELD_MS))

    def _is_timed(self, context: RequestContext) -> bool:
        return self.is_on and self._buckets.limits(
            context.principal.name, context.client_id[:LONGEST_CLIENT_ID], REQUEST_PERCENTAGE
        )

    def _took(self, context: RequestContext, seconds: float) -> None:
        self._take(context, REQUEST_PERCENTAGE, seconds * 100)

    def _take(self, context: RequestContext, key: str, amount: float) -> int:
        if not self.is_on or self._clock is None:
            return 0
        client_id = context.client_id[:LONGEST_CLIENT_ID]
        return self._buckets.take(context.principal.name, client_id, key, amount, self._clock.now_ms())


NO_QUOTAS: Final = Throttle()


@types.coroutine
def _counted(work: Coroutine[Any, Any, T], timer: Timer, took: Callable[[float], None]) -> Generator[Any, Any, T]:
    """Drive a coroutine as `await` does, and add up its steps: what it waits for costs nobody anything."""
    step: Callable[[], Any] = lambda: work.send(None)  # noqa: E731
    while True:
        started = timer()
        try:
            awaited = step()
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            took(timer() - started)
        try:
            yield awaited
        except BaseException as error:  # a cancellation, above all
            step = lambda error=error: work.throw(error)  # type: ignore[misc]  # noqa: E731
        else:
            step = lambda: work.send(None)  # noqa: E731
