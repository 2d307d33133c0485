"""A broker's membership in the cluster: registration, session stream with heartbeats, unfencing, controlled shutdown.

Rules of this module. Whether this broker is fenced is determined only by its committed metadata: a controller's
response is a promise, the record is the fact (R-150). Heartbeats are sent on one stream to the active controller; when
it ends, or another controller is announced, the next one is opened at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, TypeVar

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import Clock, Network, NetworkError, Stream
from odradek_proto.v1 import controller_messages
from odradek_proto.values import Value, replace

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage
from odradek_broker.runtime.membership.controller_channel import ControllerChannel, ControllerUnavailable
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.runtime.membership.session_stream import SessionStream

T = TypeVar("T")

SESSION_METHOD: Final = "/odradek.v1.Controller/Session"
INCARNATION_SIZE: Final = 16
NO_EPOCH: Final = -1
REGISTRATION_ATTEMPT_MS: Final = 5_000.0
TELL_AGAIN_AFTER: Final = 12  # such attempts without a controller: once a minute
REGISTRATION_RETRY_MS: Final = 50.0  # while another process with our id is in session; doubled up to the next number
REGISTRATION_RETRY_MAX_MS: Final = 1_000.0
OPEN_TIMEOUT_MS: Final = 2_000.0
REPORT_MS: Final = 50  # after new metadata was applied; a broker that stops waits until all have it
SHUTDOWN_INTERVAL_MS: Final = 50  # between heartbeats of a broker that waits to stop
FATAL: Final = frozenset({ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.INVALID_REGISTRATION})
REGISTER_AGAIN: Final = frozenset({ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED})


class RegistrationRefused(Exception):
    """The controller will never take this broker as it is: wrong cluster, invalid registration."""


class SessionHooks(Value, frozen=True):
    """What a session asks its broker, and what it tells it."""

    reports: Callable[[], Sequence[controller_messages.ReplicaReport]] = tuple
    unreachable: Callable[[], Sequence[int]] = tuple
    has_room: Callable[[], bool] = lambda: True
    on_unfenced: Callable[[], None] = lambda: None
    on_fenced: Callable[[], None] = lambda: None
    on_returned: Callable[[], None] = lambda: None  # a controller answers again after a gap, fenced or not
    on_event: Callable[[str, Mapping[str, object]], None] = lambda event, facts: None
    say: Callable[[str], None] = lambda sentence: None


NO_HOOKS = SessionHooks()


class BrokerSession:
    """`broker_epoch` is -1 until registered. `failed` (made by `start`) ends with the error that ended the session."""

    broker_epoch: int
    incarnation_id: bytes
    failed: asyncio.Future[None]

    def __init__(
        self,
        settings: BrokerSettings,
        registration: controller_messages.RegisterBrokerRequest,  # all but the incarnation and the endpoints
        *,
        clock: Clock,
        network: Network,
        channel: ControllerChannel,
        feed: MetadataFeed,
        endpoints: Mapping[str, str],  # listener name -> advertised host:port
        hooks: SessionHooks = NO_HOOKS,
    ) -> None:
        self.broker_epoch = NO_EPOCH
        self.incarnation_id = clock.rng.randbytes(INCARNATION_SIZE)
        self._settings = settings
        self._clock = clock
        self._channel = channel
        self._network = network
        self._feed = feed
        self._broker_id = registration.broker_id
        self._endpoints = endpoints
        self._request = replace(registration, incarnation_id=self.incarnation_id)
        self._hooks = hooks
        self._registered = asyncio.Event()
        self._may_stop = asyncio.Event()
        self._want_fence = True
        self._want_shut_down = False
        self._was_fenced = True
        self._task: asyncio.Task[None] | None = None
        self._stream: SessionStream | None = None
        self._last_contact_ms = 0  # when the last heartbeat that was answered had been sent
        self._gone_since_ms: int | None = 0
        self._confirming: dict[asyncio.Future[None], int] = {}  # who waits for an answer, and since when

    async def start(self) -> None:
        """Begin to register and to hold a session, in the background; returns at once."""
        assert self._task is None
        loop = asyncio.get_running_loop()
        self.failed = loop.create_future()
        self._last_contact_ms = self._clock.now_ms()
        self._gone_since_ms = self._last_contact_ms
        self._feed.subscribe(self._on_metadata)
        self._task = loop.create_task(self._run())
        self._task.add_done_callback(self._on_ended)

    async def wait_until_registered(self) -> int:
        """The broker epoch, as soon as the controller has given one. Raises `RegistrationRefused`."""
        await self._unless_failed(self._registered.wait())
        return self.broker_epoch

    async def wait_until_unfenced(self) -> None:
        """Returns when this broker's own metadata says so. Raises `RegistrationRefused`."""
        await self._unless_failed(self._feed.wait_for(lambda image: not self.fenced))

    def set_ready(self) -> None:
        """The logs are loaded: ask to be unfenced from now on."""
        self._want_fence = False
        self._beat_now()

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        """Wire up with the quorum's listener, after the channel's: the stream moves to the new controller at once."""
        address = self._channel.controller_address()
        if self._stream is not None and address is not None and self._stream.peer != address:
            self._stream.close()

    @property
    def fenced(self) -> bool:
        """As this broker's own committed metadata says; true before the registration."""
        registration = self._registration()
        return registration is None or registration.fenced

    def stream_gone_for_ms(self, now_ms: int) -> int:
        """For how long no controller has been in touch; 0 while the session stands.

        A leader that is alone in its ISR stops answering acks=all when this exceeds the grace (R-112). A stream that
        stands but is silent counts from its last answered heartbeat, once that is older than the session timeout.
        """
        if self._gone_since_ms is not None:
            return now_ms - self._gone_since_ms
        silent_ms = now_ms - self._last_contact_ms
        return silent_ms if silent_ms > self._settings.broker_session_timeout_ms else 0

    async def confirm(self) -> None:
        """Returns when a controller has answered a heartbeat that was sent no earlier than this call."""
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._confirming[answered] = self._clock.now_ms()
        self._beat_now()
        try:
            await answered
        finally:
            self._confirming.pop(answered, None)

    async def controlled_shutdown(self, timeout_ms: float) -> bool:
        """Hand over all leaderships; true when the controller said that this broker may stop (R-142)."""
        self._want_shut_down = True
        self._beat_now()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._unless_failed(self._may_stop.wait())
        except (TimeoutError, RegistrationRefused):
            return False
        return True

    async def stop(self) -> None:
        """End the stream and everything else here. Without a controlled shutdown before, the controller fences."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.wait((task,))
        self._feed.unsubscribe(self._on_metadata)

    # --- Registration and the life of streams ----------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            await self._register()
            await self._hold()

    async def _register(self) -> None:
        # The endpoints now: with port 0 they are known only once the node listens.
        request = replace(self._request, endpoints=dict(self._endpoints)).SerializeToString()
        delay_ms = REGISTRATION_RETRY_MS
        unanswered = 0
        while True:
            try:
                answer_bytes = await self._channel.call("RegisterBroker", request, REGISTRATION_ATTEMPT_MS)
            except ControllerUnavailable:  # it has waited between its attempts
                if unanswered % TELL_AGAIN_AFTER == 0:
                    self._tell_of_no_controller()
                unanswered += 1
                continue
            answer = controller_messages.RegisterBrokerResponse.FromString(answer_bytes)
            if answer.error_code == ErrorCode.NONE:
                break
            error = ErrorCode.from_number(answer.error_code)
            if error in FATAL:
                raise RegistrationRefused(f"broker {self._broker_id}: {error.name}: {answer.error_message}")
            self._event("registration_refused", {"error": error.name, "message": answer.error_message})
            await self._clock.sleep(delay_ms)
            delay_ms = min(2 * delay_ms, REGISTRATION_RETRY_MAX_MS)
        self.broker_epoch = answer.broker_epoch
        self._event("registered", {"broker_epoch": self.broker_epoch, "incarnation": self.incarnation_id.hex()})
        self._registered.set()

    def _tell_of_no_controller(self) -> None:
        missing = self._channel.unreachable()
        whom = ", ".join(f"{voter} at {address}" for voter, address in missing.items())
        why = f"cannot reach the voters {whom}" if whom else "the voters answer, and have not elected a controller"
        self._hooks.say(f"node {self._broker_id} waits for a controller: {why}")

    async def _hold(self) -> None:
        """Keep a session stream open; returns when this broker has to register again."""
        attempt = 0
        while True:
            try:
                address = self._channel.next_address()
                opened = self._network.open(address, SESSION_METHOD, OPEN_TIMEOUT_MS)
                stream = await self._channel.unless_replaced(address, opened)
            except NetworkError:
                self._channel.follow_hint(NO_EPOCH)
                await self._channel.back_off(attempt)
                attempt += 1
                continue
            if self._channel.controller_address() not in (None, address):
                stream.close()  # another was announced just now
            refusal = await self._beat(stream)
            error = ErrorCode.NONE if refusal is None else ErrorCode.from_number(refusal.error_code)
            if error in REGISTER_AGAIN:
                self._event("session_refused", {"error": error.name, "broker_epoch": self.broker_epoch})
                await self._channel.back_off(attempt)
                return
            if refusal is not None and error is ErrorCode.NOT_CONTROLLER:
                self._channel.follow_hint(refusal.controller_id)
            if self._gone_since_ms is None:  # it had served: the next one is opened at once
                self._gone_since_ms = self._clock.now_ms()
                attempt = 0
            else:
                await self._channel.back_off(attempt)
                attempt += 1

    async def _beat(self, stream: Stream) -> controller_messages.HeartbeatAnswer | None:
        """Heartbeats on this stream until it ends; the answer that refused it, if one did."""
        self._stream = SessionStream(
            stream,
            clock=self._clock,
            timeout_ms=self._settings.broker_session_timeout_ms,
            interval_ms=self._interval_ms,
            heartbeat=self._heartbeat,
            on_answer=self._on_answer,
        )
        try:
            return await self._stream.run()
        finally:
            self._stream = None

    def _on_answer(self, answer: controller_messages.HeartbeatAnswer, sent_ms: int) -> None:
        now_ms = self._clock.now_ms()
        was_gone = self.stream_gone_for_ms(now_ms) > 0
        self._last_contact_ms = sent_ms
        self._gone_since_ms = None
        if answer.should_shut_down and self._want_shut_down:  # else somebody else asked for it in this broker's name
            self._may_stop.set()
        for answered, asked_ms in self._confirming.items():
            if sent_ms >= asked_ms and not answered.done():
                answered.set_result(None)
        # A gap need not end in a fencing, so the way back must not wait for an unfencing.
        if was_gone and self.stream_gone_for_ms(now_ms) == 0:
            self._hooks.on_returned()

    def _heartbeat(self) -> controller_messages.Heartbeat:
        return controller_messages.Heartbeat(
            broker_id=self._broker_id,
            broker_epoch=self.broker_epoch,
            incarnation_id=self.incarnation_id,
            current_metadata_offset=self._feed.image.offset,
            want_fence=self._want_fence and not self._want_shut_down,
            want_shut_down=self._want_shut_down,
            replicas=self._hooks.reports(),
            unreachable=self._hooks.unreachable(),
            disk_full=not self._hooks.has_room(),
        )

    def _interval_ms(self) -> int:
        if self._want_shut_down and not self._may_stop.is_set():
            return SHUTDOWN_INTERVAL_MS
        return self._settings.broker_heartbeat_interval_ms

    # --- Metadata --------------------------------------------------------------------------------------------------

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if self._broker_id in delta.brokers:
            fenced = self.fenced
            if fenced and not self._want_fence and not self._want_shut_down:
                self._beat_now()  # the registration has arrived here, or we were fenced by mistake: ask at once
            if fenced != self._was_fenced:
                self._was_fenced = fenced
                self._event("fenced" if fenced else "unfenced", {"broker_epoch": self.broker_epoch})
                (self._hooks.on_fenced if fenced else self._hooks.on_unfenced)()
        if self._stream is not None:
            self._stream.beat_by(self._clock.now_ms() + REPORT_MS)

    def _registration(self) -> BrokerRegistration | None:
        """Our own registration, once it is committed and applied here; None when another incarnation stands there."""
        registration = self._feed.image.brokers.get(self._broker_id)
        if registration is None or registration.incarnation_id != self.incarnation_id:
            return None
        return registration

    def _beat_now(self) -> None:
        if self._stream is not None:
            self._stream.beat_by(self._clock.now_ms())

    # --- Failure ---------------------------------------------------------------------------------------------------

    def _on_ended(self, task: asyncio.Task[None]) -> None:
        if self.failed.done() or task.cancelled():
            return
        error = task.exception()
        assert error is not None, "the session ends by cancellation or with an error"
        self.failed.set_exception(error)

    async def _unless_failed(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.get_running_loop().create_task(work)
        try:
            await asyncio.wait((task, self.failed), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                self.failed.result()
            return await task
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))

    def _event(self, event: str, facts: Mapping[str, object]) -> None:
        self._hooks.on_event(event, {"broker_id": self._broker_id, **facts})
