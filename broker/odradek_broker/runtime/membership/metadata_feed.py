"""The committed metadata of this node, and the subscribers to its changes.

Rules of this module. The image changes only here, one committed batch or snapshot at a time, and every subscriber is
notified before the next one is applied. Subscribers are called synchronously and must not raise: a broker that has
missed a change cannot recover, so an exception propagates to the quorum and stops the node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields

from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import apply, decode, encode
from odradek_broker.core.metadata.snapshot import difference, records_of

Subscriber = Callable[[MetadataImage, MetadataDelta], None]
Condition = Callable[[MetadataImage], bool]


class MetadataFeed:
    """Follows the high watermark of the metadata log. `image` is the living image: read it, do not keep parts of it."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self._subscribers: list[Subscriber] = []
        self._waiters: list[tuple[Condition, asyncio.Future[None]]] = []

    def on_commit(self, base_offset: int, epoch: int, records: Sequence[bytes]) -> None:
        """Apply one committed batch and tell the subscribers, in the order in which they came.

        Raises `CorruptMetadata`.
        """
        assert base_offset >= self.image.offset, (base_offset, self.image.offset)
        delta = MetadataDelta()
        for index, value in enumerate(records):
            delta.add(apply(self.image, decode(value), base_offset + index, epoch))
        self._tell(delta)

    def on_control(self, end_offset: int, epoch: int) -> None:
        """Nothing changes but how far the log was read.

        A snapshot taken now ends here, and the heartbeats of a broker that begins with it must not be ahead of what
        the controller has read.
        """
        assert end_offset > self.image.offset, (end_offset, self.image.offset)
        self.image.offset, self.image.epoch = end_offset, epoch
        self._tell(MetadataDelta())

    def _tell(self, delta: MetadataDelta) -> None:
        for subscriber in tuple(self._subscribers):
            subscriber(self.image, delta)
        self._wake()

    def freeze(self) -> Callable[[], Iterator[bytes]]:
        """The image as it is now, as the records of a snapshot, to be read in another thread."""
        image = self.image.copy()
        return lambda: (encode(record) for record in records_of(image))

    def on_snapshot(self, image: MetadataImage) -> None:
        """Everything up to a snapshot at once, instead of the batches before it. The living image stays the same
        object, and the subscribers hear what differs.
        """
        assert image.offset >= self.image.offset, (image.offset, self.image.offset)
        delta = difference(self.image, image)
        for item in fields(MetadataImage):
            setattr(self.image, item.name, getattr(image, item.name))
        self._tell(delta)

    def subscribe(self, callback: Subscriber) -> None:
        """Call `callback(image, delta)` after each committed batch from now on."""
        self._subscribers.append(callback)

    def unsubscribe(self, callback: Subscriber) -> None:
        self._subscribers.remove(callback)

    async def wait_for_offset(self, offset: int) -> None:
        """Return once everything below `offset` has been applied: `image.offset >= offset`."""
        await self.wait_for(lambda image: image.offset >= offset)

    async def wait_for(self, condition: Condition) -> None:
        """Return once the condition holds; looked at now and after each batch. Deadlines are the caller's."""
        if condition(self.image):
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiter = (condition, future)
        self._waiters.append(waiter)
        try:
            await future
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    def _wake(self) -> None:
        for waiter in tuple(self._waiters):
            condition, future = waiter
            if condition(self.image):
                self._waiters.remove(waiter)
                if not future.done():
                    future.set_result(None)
