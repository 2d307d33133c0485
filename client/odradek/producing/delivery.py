"""What became of a record, for those who do not wait at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from odradek_proto.words import noun

from odradek.core.batches import ProducerBatch
from odradek.shared.errors import OdradekError
from odradek.shared.kafka import missing
from odradek.shared.results import RecordMetadata


class Delivery:
    """The future of one record. Await it as often as you like, from as many tasks as you like.

    Asking in any way (await, `result`, `exception`) counts as having been told: a failure is then not raised again
    when the producer is closed.
    """

    __slots__ = ("_batch", "_claimed", "_index")

    def __init__(self, batch: ProducerBatch, index: int) -> None:
        self._batch = batch
        self._index = index
        self._claimed = False
        batch.unclaimed += 1

    if not TYPE_CHECKING:  # type checkers shall complain about unknown names themselves

        def __getattr__(self, name: str) -> NoReturn:
            raise missing("Delivery", name)

    def done(self) -> bool:
        """Whether the record is acknowledged or has failed."""
        return self._batch.done

    def exception(self) -> OdradekError | None:
        """The error, None for an acknowledged record. Raises `asyncio.InvalidStateError` before it is done."""
        if not self._batch.done:
            raise asyncio.InvalidStateError("the record is still on its way")
        self._claim()
        return self._batch.error

    def result(self) -> RecordMetadata:
        """Where the record is. Raises its error, or `asyncio.InvalidStateError` before it is done."""
        error = self.exception()
        if error is not None:
            raise error
        return self._batch.metadata(self._index)

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Have `callback(self)` called on this loop, soon after the record is acknowledged or has failed.

        It counts as having been told. Costs less than a task that awaits. What the callback raises goes to the loop's
        exception handler, which logs it; neither the producer nor other callbacks hear of it.
        """
        self._claim()
        call = _Call(self, callback)
        if self._batch.done:
            call.soon()
        else:
            self._batch.waiters.append((self._index, call))

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        self._claim()
        if self._batch.done:
            return self.result()
        future: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self._batch.waiters.append((self._index, future))
        return (yield from future.__await__())

    def _claim(self) -> None:
        if not self._claimed:
            self._claimed = True
            self._batch.unclaimed -= 1


def batch_of(delivery: Delivery) -> ProducerBatch:
    """What shares its fate: whoever counts records counts those of a batch together."""
    return delivery._batch


class _Call:
    """Waits in place of a future, and has a function called."""

    __slots__ = ("_callback", "_delivery", "_loop")

    def __init__(self, delivery: Delivery, callback: Callable[[Delivery], object]) -> None:
        self._delivery = delivery
        self._callback = callback
        self._loop = asyncio.get_running_loop()

    def soon(self) -> None:
        self._loop.call_soon(self._callback, self._delivery)

    def done(self) -> bool:
        return False

    def set_result(self, result: RecordMetadata, /) -> None:
        self.soon()

    def set_exception(self, exception: BaseException, /) -> None:
        self.soon()


class LoopYield:
    """Let everybody else on the loop run once."""

    __slots__ = ()

    def __await__(self) -> Generator[None, None, None]:
        yield


class AllDelivered:
    """Waits until each of some batches is done, well or not."""

    def __init__(self, batches: Sequence[ProducerBatch]) -> None:
        self.left = len(batches)
        self._event = asyncio.Event()
        for batch in batches:
            batch.waiters.append((0, self))
        if not batches:
            self._event.set()

    async def wait(self) -> None:
        await self._event.wait()

    def done(self) -> bool:
        return False

    def set_result(self, result: RecordMetadata, /) -> None:
        self._one_less()

    def set_exception(self, exception: BaseException, /) -> None:
        self._one_less()

    def _one_less(self) -> None:
        self.left -= 1
        if not self.left:
            self._event.set()


class FailedDeliveries:
    """The failed batches of which somebody may still ask what became of them; of the oldest only the number is kept."""

    LIMIT = 1_000

    def __init__(self) -> None:
        self._batches: list[ProducerBatch] = []
        self._forgotten = 0

    def add(self, batch: ProducerBatch) -> None:
        self._batches.append(batch)
        if len(self._batches) > self.LIMIT:
            oldest = self._batches.pop(0)
            self._forgotten += oldest.unclaimed

    def as_group(self) -> ExceptionGroup[OdradekError] | None:
        """One exception per error, each with notes that say how many records of which partition it took."""
        errors: dict[int, OdradekError] = {}
        records = self._forgotten
        for batch in self._batches:
            if batch.unclaimed and batch.error is not None:
                records += batch.unclaimed
                batch.error.add_note(
                    f"{batch.owner.name}: {batch.unclaimed} {noun(batch.unclaimed, 'record')} that nobody awaited"
                )
                errors[id(batch.error)] = batch.error
        if not errors:
            return None
        forgotten = f", {self._forgotten} of them long ago" if self._forgotten else ""
        were = noun(records, "record was", "records were")
        return ExceptionGroup(f"{records} {were} not delivered{forgotten}", [*errors.values()])
