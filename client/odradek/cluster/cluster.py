"""The connection of a client with its cluster: finding it, keeping to know it, asking single questions.

Rules of this module. Any broker answers for metadata, so the question goes to the next one when the first is silent
for `HEDGE_MS`: a frozen broker must not cost a second. A refresh that is asked for while one runs, or within the
pause after it, becomes one more. Nobody is asked twice within a refresh, and
the same goes for every question that changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from odradek_proto.errors import ErrorCode
from odradek_proto.messages import Request, Response
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.backoff import SEARCHING, backoff_ms
from odradek_proto.transport.ports import (
    CallRejected,
    Clock,
    DeadlineExceeded,
    Network,
    NetworkError,
    NotAuthenticated,
    PeerUnavailable,
)
from odradek_proto.v1 import broker_pb2 as pb

from odradek.broker_errors import ClusterAuthorizationFailed, SaslAuthenticationFailed
from odradek.cluster.tasks import Failed, start_task, was_cancelled
from odradek.core.cluster_view import ClusterView
from odradek.shared.config import ClientConfig, refusals_are_final
from odradek.shared.errors import (
    BootstrapError,
    BrokerUnreachable,
    ClientClosed,
    ClientFailed,
    OdradekError,
    RequestTimeout,
    UnknownTopic,
    broker_error,
    no_such_partition,
)

logger = logging.getLogger(__name__)

REFUSED = "connection refused"  # why an address cannot be reached, in whole or in part
UNKNOWN_HOST, UNKNOWN_CERTIFICATE = "unknown host", "CERTIFICATE_VERIFY_FAILED"
METADATA = "/odradek.v1.Broker/Metadata"
METADATA_TIMEOUT_MS = 2_000  # for one broker; another is asked long before
HEDGE_MS = 150
QUIET_MS = 1_000  # when nobody wants a refresh for so long after a pause, the next pause starts small again


A = TypeVar("A")
R = TypeVar("R", bound=Response)


class ClusterClient:
    """One client's view of the cluster and its way to the brokers. `on_change` is called after each refresh."""

    def __init__(
        self, config: ClientConfig, clock: Clock, network: Network, *, allow_auto_create_topics: bool = False
    ) -> None:
        self.config = config
        self.clock = clock
        self.network = network
        self.view = ClusterView(config.bootstrap_servers)
        self.listeners: list[Callable[[], None]] = []
        self._auto_create = allow_auto_create_topics
        self._topics: dict[str, None] = {}
        self._wanted = asyncio.Event()
        self._refreshed = asyncio.Condition()
        self._refreshes = 0  # how many are over
        self._unanswered = 0  # how many of them in a row nobody answered
        self._denied: OdradekError | None = None  # by the last broker that answered so
        self._heard_from = ""  # the address that answered last
        self._silent = False  # a broker that was asked last said nothing, while others may have refused
        self._failures: dict[str, str] = {}  # the causes of the last refresh, by address
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self.failed: ClientFailed | None = None  # what ended the refreshes, if anything did
        self.failure_listeners: list[Failed] = []

    # --- life ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find a broker. Raises `BootstrapError` when none answers within bootstrap.timeout.ms, or at once when that
        would be in vain and `refusals_are_final`, and at once `SaslAuthenticationFailed` when one does not believe who
        this is.
        """
        deadline = self.clock.now_ms() + self.config.bootstrap_timeout_ms
        failures = 0
        while not await self._refresh():
            if self._denied is not None:
                raise self._denied
            failures += 1
            pause = backoff_ms(failures, self.config.retry_backoff_ms, 500, self.clock.rng)
            in_vain = refusals_are_final.get() and all(map(_stays_so, self._failures.values()))
            if in_vain or self.clock.now_ms() + pause >= deadline:
                raise BootstrapError(self._failures, hint=_bootstrap_hint(self._failures))
            await self.clock.sleep(pause)
        self._task = start_task(self._keep_fresh(), self._fail)

    async def begin_anew_if_cancelled(self) -> None:
        """Go on with the refreshes, if somebody has cancelled them."""
        if await was_cancelled(self._task):
            self._task = start_task(self._keep_fresh(), self._fail)

    async def close(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        await self._notify()

    def _fail(self, error: ClientFailed) -> None:
        self.failed = error
        for listener in self.failure_listeners:
            listener(error)
        self._task = start_task(self._notify(), self._fail)

    async def _notify(self) -> None:
        async with self._refreshed:
            self._refreshed.notify_all()

    # --- metadata --------------------------------------------------------------------------------------------------

    def request_refresh(self, reason: str) -> None:
        """Have the metadata refreshed soon; returns at once."""
        logger.debug("metadata refresh: %s", reason)
        self._wanted.set()

    def search_pause(self, failures: int) -> int:
        """Milliseconds to wait after the `failures`-th failure in a row to reach whoever is in charge."""
        config = self.config
        return backoff_ms(failures, config.retry_backoff_ms, config.retry_backoff_max_ms, self.clock.rng, SEARCHING)

    def patience_ms(self, failures: int, first_ms: int) -> int:
        """How long the attempt after `failures` in a row may take, up to a third of request.timeout.ms.

        Each time longer: where everything is slow, because many clients begin at once or the machine is busy, an
        attempt that is cut off and made anew after a fixed time only adds to the work, and none ever succeeds. But of
        what was asked of a machine that lost its power nothing comes, however long: there has to be time for another.
        """
        if not failures:
            return first_ms
        longest_ms = max(self.config.request_timeout_ms // 3, first_ms)
        return min(backoff_ms(failures + 1, first_ms, 2 * longest_ms, self.clock.rng), longest_ms)

    def follow(self, topics: Iterable[str]) -> None:
        """Keep these topics in the metadata."""
        for topic in topics:
            self._topics[topic] = None

    async def refresh(self, topic: str | None = None) -> None:
        """Return after a refresh that began after this call, or as soon as a refresh has shown this topic."""
        target = self._refreshes + 2 if self._refreshing else self._refreshes + 1
        self._wanted.set()

        def is_enough() -> bool:
            known = topic is not None and self.view.partitions_of(topic) is not None
            return known or self._closed or self.failed is not None or self._refreshes >= target

        async with self._refreshed:
            await self._refreshed.wait_for(is_enough)
        if self._closed:
            raise ClientClosed("the client was closed")
        if self.failed is not None:
            raise self.failed

    async def partitions_of(self, topic: str, timeout_ms: int, longest_ms: int | None = None) -> list[int]:
        """The partitions of a topic. Raises `UnknownTopic` when it does not appear in time.

        Brokers that are silent have not said that there is no such topic: they have request.timeout.ms, but no more
        than `longest_ms`.
        """
        self.follow((topic,))
        patience_ms = self.config.request_timeout_ms
        deadline = self.clock.now_ms() + timeout_ms
        silent_ms = patience_ms if longest_ms is None else min(patience_ms, longest_ms)
        silent_deadline = max(deadline, self.clock.now_ms() + silent_ms)
        while (partitions := self.view.partitions_of(topic)) is None:
            deadline = silent_deadline if self._silent else deadline
            if self.clock.now_ms() >= deadline:
                await self._explain_missing(topic, timeout_ms)
            await self._refresh_within(max(deadline - self.clock.now_ms(), 1), topic)
            known = self.view.topics.get(topic)
            if known is not None and known.error is not ErrorCode.NONE and not known.error.retriable:
                raise broker_error(known.error, where=topic)
        return partitions

    async def require(self, partition: TopicPartition, timeout_ms: int) -> None:
        """Return when a partition is known. Raises `UnknownTopic`."""
        if partition.partition in await self.partitions_of(partition.topic, timeout_ms):
            return
        await self.refresh()  # it may be new
        numbers = await self.partitions_of(partition.topic, timeout_ms)
        if partition.partition not in numbers:
            raise no_such_partition(*partition, len(numbers))

    async def _refresh_within(self, timeout_ms: int, topic: str) -> None:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self.refresh(topic)
        except TimeoutError:
            pass

    async def _explain_missing(self, topic: str, timeout_ms: int) -> None:
        if topic not in self.view.topics and self._failures:
            raise BootstrapError(self._failures, hint=_bootstrap_hint(self._failures))
        raise UnknownTopic(f"there is no topic {topic!r} (looked for it for {timeout_ms} ms)", topic=topic)

    _refreshing = False

    async def _keep_fresh(self) -> None:
        failures, last_ms = 0, self.clock.now_ms()
        while True:
            try:
                async with asyncio.timeout(self.config.metadata_max_age_ms / 1000):
                    await self._wanted.wait()
            except TimeoutError:
                pass
            failures = 0 if self.clock.now_ms() - last_ms > QUIET_MS else failures + 1
            self._wanted.clear()
            await self._refresh()
            for listener in self.listeners:
                listener()
            await self.clock.sleep(self.search_pause(failures))
            last_ms = self.clock.now_ms()

    async def _refresh(self) -> bool:
        """Ask who leads. Returns whether somebody answered."""
        self._refreshing = True
        question = pb.MetadataRequest(topics=list(self._topics), allow_auto_topic_creation=self._auto_create)
        answered = False
        try:
            timeout_ms = self.patience_ms(self._unanswered, METADATA_TIMEOUT_MS)
            self._unanswered += 1
            self._silent = False
            answer, address = await self._ask_around(METADATA, question, pb.MetadataResponse, timeout_ms)
            self._failures, self._unanswered, self._denied = {}, 0, None
            self.view.update(answer, address)
            answered = True
        except BootstrapError as error:
            self._failures = error.causes
        finally:
            self._refreshing = False
            self._refreshes += 1
            await self._notify()
        return answered

    async def _ask_around(self, method: str, request: Request, kind: type[R], timeout_ms: int) -> tuple[R, str]:
        """Ask brokers, one after the other and a slow one's successor early; the first answer and who gave it."""
        loop = asyncio.get_running_loop()
        asked: dict[asyncio.Task[R], str] = {}
        causes: dict[str, str] = {}
        addresses = iter(self._addresses())
        try:
            while True:
                address = next(addresses, None)
                if address is not None:
                    asked[loop.create_task(self.call_address(address, method, request, kind, timeout_ms))] = address
                elif not asked:
                    raise BootstrapError(causes, hint=_bootstrap_hint(causes))
                patience_ms = timeout_ms if address is None else HEDGE_MS
                await asyncio.wait(tuple(asked), timeout=patience_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in asked if task.done()]:
                    address = asked.pop(task)
                    error = task.exception()
                    if error is None:
                        self._heard_from = address
                        return task.result(), address
                    if not isinstance(error, OdradekError):
                        raise error
                    if isinstance(error, SaslAuthenticationFailed):
                        self._denied = error
                    causes[address] = error.message
                    self._silent = self._silent or isinstance(error, RequestTimeout)
        finally:
            for task in asked:
                task.cancel()

    def _addresses(self) -> list[str]:
        """Whom to ask, in order: the brokers that we know of, shuffled, then the bootstrap addresses.

        A fenced broker may be frozen: it is asked only if it is a bootstrap address, and after all others.
        """
        known = self.view.addresses_of(fenced=False)
        self.clock.rng.shuffle(known)
        fenced = self.view.addresses_of(fenced=True)
        return [*dict.fromkeys((*known, *sorted(self.config.bootstrap_servers, key=fenced.__contains__)))]

    # --- single questions ------------------------------------------------------------------------------------------

    async def patiently(self, what: str, timeout_ms: int, attempt: Callable[[], Awaitable[A]]) -> A:
        """Repeat an attempt while its errors are retriable and there is time; then the last error is raised."""
        deadline = self.clock.now_ms() + timeout_ms
        failures = 0
        while True:
            try:
                return await attempt()
            except OdradekError as error:
                failures += 1
                pause = self.search_pause(failures)
                if not error.retriable or self.clock.now_ms() + pause >= deadline:
                    raise
                self.request_refresh(f"{what}: {error.message}")
            await self.clock.sleep(pause)

    async def call_address(self, address: str, method: str, request: Request, kind: type[R], timeout_ms: int) -> R:
        """One call to one address. Raises `BrokerUnreachable`, `RequestTimeout` or `ClusterAuthorizationFailed`."""
        try:
            answer = await self.network.call(address, method, request.SerializeToString(), timeout_ms)
        except NotAuthenticated as error:
            raise SaslAuthenticationFailed(str(error).removeprefix(f"{address} {method}: ")) from None
        except PeerUnavailable as error:
            why = str(error).removeprefix(f"{address} {method}: ")
            words = REFUSED if error.refused else f"not reachable: {why}"
            raise BrokerUnreachable(words, undelivered=error.undelivered) from None
        except DeadlineExceeded:
            raise RequestTimeout(
                f"{address}: no answer to {method.rpartition('/')[2]} within {timeout_ms} ms"
            ) from None
        except NetworkError as error:
            if isinstance(error, CallRejected) and error.status == "PERMISSION_DENIED":
                raise ClusterAuthorizationFailed(str(error).removeprefix(f"{address} {method}: ")) from None
            raise BrokerUnreachable(
                f"the call was refused: {error}", hint="is it an odradek broker's GRPC listener?"
            ) from None
        return kind.FromString(answer)

    async def call_broker(self, broker_id: int, method: str, request: Request, kind: type[R], timeout_ms: int) -> R:
        """One call to one broker. Raises `BrokerUnreachable` or `RequestTimeout`."""
        address = self.view.address_of(broker_id)
        if address is None:
            raise BrokerUnreachable(f"broker {broker_id} is not part of the cluster at the moment", undelivered=True)
        return await self.call_address(address, method, request, kind, timeout_ms)

    async def ask_any(self, method: str, request: Request, kind: type[R], timeout_ms: int) -> R:
        """One question to whichever broker answers first; only for what may be asked twice. Raises `BootstrapError`."""
        return (await self._ask_around(method, request, kind, timeout_ms))[0]

    async def call_any(self, method: str, request: Request, kind: type[R], timeout_ms: int) -> R:
        """One call to the broker that answered last, or whichever takes it: others may be frozen, and nobody knows yet.

        Only a broker that certainly did not get the call is passed over; a call that may have taken effect is not made
        twice. Raises `BootstrapError` when nobody got it, `BrokerUnreachable` and `RequestTimeout` when somebody may
        have.
        """
        causes: dict[str, str] = {}
        addresses = self._addresses()
        if self._heard_from in self.view.addresses_of(fenced=False):
            addresses.sort(key=self._heard_from.__ne__)
        for address in addresses:
            try:
                return await self.call_address(address, method, request, kind, timeout_ms)
            except BrokerUnreachable as error:
                causes[address] = error.message
                self.request_refresh(f"{address}: {error.message}")
                if not error.undelivered:
                    raise
        raise BootstrapError(causes, hint=_bootstrap_hint(causes))


def _stays_so(cause: str) -> bool:
    """Whether an address that failed by this cause will fail again, as long as nobody starts or mends something."""
    return cause == REFUSED or any(sign in cause for sign in (UNKNOWN_HOST, UNKNOWN_CERTIFICATE))


def _bootstrap_hint(causes: dict[str, str]) -> str:
    if causes and all(cause == REFUSED for cause in causes.values()):
        return (
            "nobody listens there: is the cluster up (`odradek cluster up`), and is the port that of the GRPC listener?"
        )
    if any("says nothing" in cause or "no answer" in cause for cause in causes.values()):
        return "is the process frozen, or the machine too busy? `odradek doctor` looks closer"
    if any(UNKNOWN_CERTIFICATE in cause for cause in causes.values()):
        return (
            "the certificate shown is not that of this host, or of no authority that is believed: "
            "ssl_truststore_location names a PEM file with its authority"
        )
    if any("WRONG_VERSION_NUMBER" in cause for cause in causes.values()):
        return 'no TLS is spoken there: is security_protocol="PLAINTEXT" meant?'
    if any("Socket closed" in cause for cause in causes.values()):
        return (
            'is it a listener with TLS (security_protocol="SSL"), one that asks for a certificate '
            "(ssl_keystore_location), or one for Kafka's clients?"
        )
    return "check host names and ports, and that they are those of the GRPC listener"
