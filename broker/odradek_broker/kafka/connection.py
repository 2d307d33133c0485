"""One connection of a Kafka client: frames in, answers out in the order of the requests (K-5 to K-17).

Rules of this module. Answers leave in the order of requests. Produce requests that follow each other start at once and
overlap, which is where a client's pipelining pays; a request of any other kind starts only when everything before it
has been answered, as in Kafka (K-8). Nothing is read while 32 requests or 16 MiB of them are unanswered, while the
client does not take its answers, or while all connections together hold too much. Answers that become due in one turn
of the loop leave in one write. What cannot be understood closes the connection, after the answers to what was asked
before it (K-13).

Nobody holds memory that others wait for: a JoinGroup gives its frame back before it waits for the other members, and
who takes long to send a large frame is ended when there is no room for more.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections import deque
from collections.abc import Callable
from functools import partial

from odradek_proto.transport.ports import Buffer, ByteConnection, TimerHandle
from odradek_proto.values import replace

from odradek_broker.kafka.apis.sasl import AUTHENTICATE, HANDSHAKE
from odradek_broker.kafka.framing import FrameReader, OtherProtocol
from odradek_broker.kafka.messages.primitives import MALFORMED, Malformed, MessageReader
from odradek_broker.kafka.messages.request import Api, Body, ClientInformation, HangUp, KafkaRequest
from odradek_broker.kafka.shared import Shared
from odradek_broker.requests.context import RequestContext, principal_of

logger = logging.getLogger(__name__)

PRODUCE, API_VERSIONS = 0, 18
BEFORE_SASL = frozenset({API_VERSIONS, HANDSHAKE, AUTHENTICATE})  # what a client may ask that is nobody yet
MOST_UNANSWERED = 32
MOST_UNANSWERED_BYTES = 16 * 1024 * 1024
HEAVY_BYTES = 4 * 1024  # of a frame that may name so much that a thousand of them at once would hold up everybody
MOST_WITHOUT_RECORDS = 4 * 1024 * 1024  # bytes of a frame of any API but Produce: names and numbers alone

_HEADER = struct.Struct(">hhi")  # API key, version, correlation id
_ANSWER = struct.Struct(">ii")  # size, correlation id


class _Slot:
    """The place of one answer in the order."""

    __slots__ = ("body", "due", "header", "reserved", "size", "throttle_ms")

    def __init__(self, size: int, header: bytes) -> None:
        self.size = size  # of the request's frame
        self.header = header  # correlation id and, in flexible versions, an empty set of tags
        self.due = False
        self.throttle_ms = 0  # for how long nothing is read after it
        self.reserved = 0  # bytes of record batches that the answer may have
        self.body: Body | None = None


class KafkaConnection:
    """`ByteReceiver` of one client."""

    def __init__(self, connection: ByteConnection, shared: Shared, on_lost: Callable[[KafkaConnection], None]) -> None:
        certified = principal_of(connection.certificate)
        self.client = ClientInformation(principal=None if shared.needs_sasl else certified)
        self.last_activity_ms = shared.now_ms()  # when bytes came or an answer left
        self._connection = connection
        self._shared = shared
        self._on_lost = on_lost
        self._frames = FrameReader(shared.arrival, shared.settings.socket_request_max_bytes)
        if shared.needs_sasl:
            self._frames.largest = min(
                shared.settings.sasl_server_max_receive_size, shared.settings.socket_request_max_bytes
            )
        self._queue: deque[memoryview] = deque()  # requests that have not started
        self._slots: deque[_Slot] = deque()  # of those that have, unanswered
        self._unanswered_bytes = 0  # of the frames in both
        self._held_bytes = 0  # the same and a large frame under way, as the listener has counted them
        self._large_since_ms = 0  # when the large frame that is under way was given its room
        self._untaken_bytes = 0  # of answers, while the client is too slow
        self._alone = False  # what runs is no Produce
        self._running: asyncio.Task[None] | None = None
        self._context = RequestContext(certified, shared.name, "", connection.peer)
        self._paused = self._full = self._closing = self._gone = False
        self._flush_due = False
        self._throttled: TimerHandle | None = None  # the client has exceeded a quota, and waits

    # --- ByteReceiver -----------------------------------------------------------------------------------------------

    def room(self) -> memoryview:
        return self._frames.room()

    def on_bytes(self, count: int) -> None:
        self.last_activity_ms = self._shared.now_ms()
        self._frames.received(count)
        self.resume_reading()

    @property
    def missing(self) -> int:
        return self._frames.missing

    def on_full(self) -> None:
        self._full = True
        self._count_untaken(self._connection.unsent_bytes)

    def on_drained(self) -> None:
        self._full = False
        self._count_untaken(0)
        self.last_activity_ms = self._shared.now_ms()
        self.resume_reading()

    def _count_untaken(self, size: int) -> None:
        self._shared.untaken_bytes += size - self._untaken_bytes
        self._untaken_bytes = size

    def on_lost(self) -> None:
        self._gone = True
        if self._throttled is not None:
            self._throttled.cancel()
        self._count_untaken(0)
        if self._running is not None:
            self._running.cancel()
        under_way = sum([slot.size for slot in self._slots if not slot.due])  # counted until they are done
        self._shared.forget(self, self._held_bytes - under_way)
        self._on_lost(self)
        self._held_bytes = 0
        self._queue.clear()

    # --- Frames -----------------------------------------------------------------------------------------------------

    def resume_reading(self) -> None:
        """Take the frames that are there, start what may start, and read on or not."""
        self._start()
        if self._gone or self._closing:
            return
        try:
            while self._may_read():
                frame = self._frames.next()
                if frame is None:
                    if not self._frames.wanted:
                        break
                    self._check_wanted()
                    if not self._hold(self._frames.wanted):
                        break
                    self._frames.grant()
                    self._large_since_ms = self._shared.now_ms()
                    continue
                if not self._frames.granted:
                    self._hold(len(frame), anyway=True)  # it has arrived: no room is saved by refusing it
                self._unanswered_bytes += len(frame)
                self._queue.append(frame)
                self._start()
        except OtherProtocol as error:
            self._shared.mistaken(self._connection.peer, str(error))
            self.close()
            return
        except Malformed as error:
            self._hang_up(str(error))
            return
        wait = not self._may_read() or self._frames.wanted > 0
        if wait != self._paused:
            self._paused = wait
            if wait:
                self._connection.pause()
            else:
                self._connection.resume()

    def _may_read(self) -> bool:
        """Whether another frame may begin; one that has its buffer is always read to its end."""
        if self._closing or self._frames.reading_large:
            return not self._closing
        return (
            not self._full
            and self._throttled is None
            and len(self._queue) + len(self._slots) < MOST_UNANSWERED
            and self._unanswered_bytes < MOST_UNANSWERED_BYTES
            and self._shared.has_room(self)
        )

    def _check_wanted(self) -> None:
        """Raises `Malformed` for a large frame that cannot hold records."""
        size, key = self._frames.wanted, self._frames.wanted_key()
        if size > MOST_WITHOUT_RECORDS and not self._shared.overlaps(key):
            raise Malformed(f"a frame of {size} bytes with API key {key}: only Produce may have so many")

    def _hold(self, size: int, *, anyway: bool = False) -> bool:
        """Count a frame, if all connections together may hold so much."""
        if not self._shared.hold(self, size, anyway=anyway):
            return False
        self._held_bytes += size
        return True

    def look(self) -> None:
        """Once in each sweep: a client that takes an answer slowly is not silent."""
        if self._full:
            unsent_bytes = self._connection.unsent_bytes
            if unsent_bytes < self._untaken_bytes:
                self.last_activity_ms = self._shared.now_ms()
            self._count_untaken(unsent_bytes)

    def is_stuck(self) -> bool:
        """Whether it waits for the client, in the middle of a frame, of an answer (K-16) or of SASL."""
        return self._full or self.client.principal is None or (self._frames.under_way and not self._paused)

    def is_in_the_way(self, since_ms: int) -> bool:
        """Whether it holds room for a large frame since then, and is not done with it (others may wait for room)."""
        return self._frames.reading_large and self._large_since_ms <= since_ms

    def is_idle(self) -> bool:
        """Whether nothing goes on at all; a Fetch that waits is no silence (K-15)."""
        return not self._slots and not self._queue and self._throttled is None

    # --- Requests ---------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        """Start what may start now, in order."""
        while self._queue and not self._closing and not self._full and self._throttled is None:
            frame = self._queue[0]
            overlaps = self._shared.overlaps(_HEADER.unpack_from(frame)[0])
            if self._slots and (self._alone or not overlaps):
                return
            self._queue.popleft()
            try:
                self._start_one(frame)
            except HangUp as reason:
                self._hang_up(str(reason))

    def _start_one(self, frame: memoryview) -> None:
        key, version, correlation_id = _HEADER.unpack_from(frame)
        api = self._shared.api(key, version)
        if key not in BEFORE_SASL and self.client.has_to_authenticate(self._shared.now_ms()):
            raise HangUp(f"{api.name} before SaslHandshake and SaslAuthenticate")
        reader = MessageReader(frame, _HEADER.size)
        flexible = version >= api.flexible_from
        client_id = _client_id(reader, flexible=flexible)
        if client_id != self._context.client_id:
            self._context = replace(self._context, client_id=client_id)
        slot = _Slot(len(frame), b"\0" if flexible and key != API_VERSIONS else b"")
        slot.header = _ANSWER.pack(0, correlation_id)[4:] + slot.header

        def release() -> None:
            size, slot.size = slot.size, 0
            if self._gone:
                self._shared.release(size)
            else:
                self._release(size)

        def reserve(size: int) -> int:
            granted = self._shared.reserve(size)
            slot.reserved += granted
            return granted

        throttle, context = self._shared.throttle, self._context
        if throttle.is_on:
            slot.throttle_ms = throttle.owed(context)
            if key == PRODUCE:
                slot.throttle_ms = max(slot.throttle_ms, throttle.produced(context, len(frame)))
        request = KafkaRequest(
            key, version, reader, context, self.client, reserve, release, slot.throttle_ms, self._hang_up
        )
        self._slots.append(slot)
        started = self._shared.time()

        def done(body: Body | None) -> None:
            if slot.due:
                return
            slot.body, slot.due = body, True
            if key in BEFORE_SASL:
                self._took_sasl()
            if self._gone:
                self._shared.release(slot.size)
                self._shared.unreserve(slot.reserved)
                slot.reserved = 0
            self._shared.observe(api, started)
            self._flush_soon()

        if api.start is not None:
            self._alone = False
            try:
                if throttle.is_on:
                    throttle.call(context, partial(api.start, request, done))
                else:
                    api.start(request, done)
            except HangUp:
                self._drop(slot)
                raise
            except Exception:
                self._drop(slot)
                self._failed(api, request)
        else:
            self._alone = True
            self._running = asyncio.get_running_loop().create_task(self._answer(api, request, slot))
            self._running.add_done_callback(lambda _task: done(slot.body))

    def _took_sasl(self) -> None:
        """Whoever was refused hears of it, and the connection ends; whoever is let in may send large frames."""
        if self.client.refused:
            self.close()
        elif self.client.principal is not None and self.client.principal != self._context.principal:
            self._context = replace(self._context, principal=self.client.principal)
            self._frames.largest = self._shared.settings.socket_request_max_bytes

    async def _answer(self, api: Api, request: KafkaRequest, slot: _Slot) -> None:
        assert api.answer is not None
        try:
            if slot.size > HEAVY_BYTES:
                await self._shared.turn()
            throttle, work = self._shared.throttle, api.answer(request)
            slot.body = await (throttle.run(request.context, work) if throttle.is_on else work)
            slot.throttle_ms = request.throttle_ms
        except HangUp as reason:
            self._hang_up(str(reason))
        except Exception:
            self._failed(api, request)

    # --- Answers ----------------------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        if not self._flush_due and not self._gone:
            self._flush_due = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        """Write every answer whose turn it is, then start what waited for that."""
        self._flush_due = False
        out: list[Buffer] = []
        slots, reserved = self._slots, 0
        while slots and slots[0].due:
            slot = slots.popleft()
            self._release(slot.size)
            reserved += slot.reserved
            if slot.throttle_ms and not self._gone:
                self._read_nothing_for(slot.throttle_ms)
            if slot.body is not None and not self._gone:
                size = len(slot.header) + sum([len(buffer) for buffer in slot.body])
                out.append(_ANSWER.pack(size, 0)[:4] + slot.header)
                out += slot.body
        if out:
            self.last_activity_ms = self._shared.now_ms()
            self._connection.write(out)
            if self._full:  # `on_full` came in the middle of this write, or an answer follows that made it full
                self._count_untaken(self._connection.unsent_bytes)
        self._shared.unreserve(reserved)
        if self._closing and not slots:
            self._end()
        else:
            self.resume_reading()

    def _read_nothing_for(self, delay_ms: int) -> None:
        """Until then not even the requests that have arrived are looked at (KIP-219)."""
        if self._throttled is not None:
            self._throttled.cancel()
        self._throttled = self._shared.call_later(delay_ms, self._read_again)

    def _read_again(self) -> None:
        self._throttled = None
        self.last_activity_ms = self._shared.now_ms()
        self.resume_reading()

    def _release(self, size: int) -> None:
        if not self._gone:
            self._unanswered_bytes -= size
            self._held_bytes -= size
            self._shared.release(size)

    def _drop(self, slot: _Slot) -> None:
        """It has no answer; one that comes nevertheless comes too late."""
        slot.due = True
        self._slots.remove(slot)
        self._release(slot.size)

    # --- The end ----------------------------------------------------------------------------------------------------

    def _failed(self, api: Api, request: KafkaRequest) -> None:
        """In an exception's handler: an error that nobody expected ends this connection, and no other."""
        logger.exception("%s of version %d from %s failed", api.name, request.version, self)
        self.close()

    def _hang_up(self, reason: str) -> None:
        if not self._closing and not self._gone:
            self._shared.refused(str(self.client), f"{self}: {reason}")
            self.close()

    def close(self) -> None:
        """Read and start nothing more; what was answered leaves first."""
        if not self._closing and not self._gone:
            self._closing = True
            self._queue.clear()
            self._connection.pause()
            self._flush_soon()

    def _end(self) -> None:
        """Everything is written. To end TLS with a stranger would keep for a while what it has sent: it is cut off."""
        if self.client.has_to_authenticate(self._shared.now_ms()):
            asyncio.get_running_loop().call_soon(self.abort)  # uvloop sends what was written at the end of this turn
        else:
            self._connection.close()

    def abort(self) -> None:
        """End it now: whoever takes no answers will not take these."""
        self._connection.abort()

    def __str__(self) -> str:
        return f"{self._connection.peer} ({self.client}, client.id {self._context.client_id!r})"


def _client_id(reader: MessageReader, *, flexible: bool) -> str:
    """Reads the rest of the header. Raises `HangUp`."""
    try:
        client_id = reader.string_or_none(flexible=False) or ""
        if flexible:
            reader.skip_tags()
    except MALFORMED as error:
        raise HangUp(f"a malformed header: {error}") from error
    return client_id
