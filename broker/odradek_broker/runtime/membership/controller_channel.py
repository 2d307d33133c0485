"""A broker's channel to the active controller: finds it, calls it, and retries.

Rules of this module. The local node's view of the quorum comes first, then the hint in a response, then every voter in
turn. A call is repeated until its time is over, so the other side may see a request twice: a lost response says nothing
about what was done. An administrator's request is not such a call: it is resent only if it certainly had no effect,
since the second CreateTopics would fail because the topic exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import Clock, Network, NetworkError, PeerUnavailable
from odradek_proto.v1 import controller_messages

from odradek_broker.core.context import RequestContext

RETRY_BACKOFF_MS = 5.0  # the first wait; doubled up to the next number (R-50: about 50 ms)
RETRY_BACKOFF_MAX_MS = 50.0
ATTEMPT_TIMEOUT_MS = 2_000.0  # quorum.request.timeout.ms, Kafka's default: one silent controller must not use up a call
ELECTION_ATTEMPT = 2  # whoever knows no controller waits 20 ms, an election among live voters, before it asks around
NO_CONTROLLER = -1
SERVICE = "/odradek.v1.Controller/"
ADMIN_SERVICE = "/odradek.v1.Admin/"

T = TypeVar("T")


class ControllerUnavailable(Exception):
    """No active controller responded in time. Whether one acted on the request is unknown."""


class ControllerChannel:
    """One per broker. `leader` is the local node's view of the quorum's leader, -1 for none."""

    def __init__(self, *, clock: Clock, network: Network, voters: Mapping[int, str], leader: Callable[[], int]) -> None:
        assert voters
        self._clock = clock
        self._network = network
        self._voters = dict(sorted(voters.items()))
        self._leader = leader
        self._hint = NO_CONTROLLER
        self._turn = 0  # of the voter that is asked when nobody is known
        self._changed: asyncio.Future[None] | None = None  # for those who wait for another leader
        self._unreachable: dict[str, None] = {}  # addresses whose latest call got no answer

    def unreachable(self) -> dict[int, str]:
        """The voters that did not answer when they were called last, and their addresses."""
        return {voter: address for voter, address in self._voters.items() if address in self._unreachable}

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        """The local node learned of another leader: all waiting calls retry at once. While there is none they wait."""
        self._hint = NO_CONTROLLER
        if leader_id not in self._voters:
            return
        changed, self._changed = self._changed, None
        if changed is not None:
            changed.set_result(None)

    def _change(self) -> asyncio.Future[None]:
        """Done as soon as another leader is announced. It belongs to all who wait: nobody cancels it."""
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        return self._changed

    def controller_address(self) -> str | None:
        """Where the active controller listens, as far as this node knows."""
        for node_id in (self._leader(), self._hint):
            if node_id in self._voters:
                return self._voters[node_id]
        return None

    def next_address(self) -> str:
        """The controller's address, else that of the next voter to try."""
        known = self.controller_address()
        if known is not None:
            return known
        addresses = list(self._voters.values())
        self._turn = (self._turn + 1) % len(addresses)
        return addresses[self._turn]

    def follow_hint(self, controller_id: int) -> None:
        """A response had NOT_CONTROLLER and the id of the controller, or -1."""
        self._hint = controller_id if controller_id in self._voters else NO_CONTROLLER

    async def back_off(self, attempt: int, limit_ms: float = RETRY_BACKOFF_MAX_MS) -> None:
        """Wait before the next attempt (counted from 0); ends at once when another leader is announced."""
        delay_ms = min(RETRY_BACKOFF_MS * 2 ** min(attempt, 10), RETRY_BACKOFF_MAX_MS, limit_ms)
        await asyncio.wait((self._change(),), timeout=delay_ms / 1000)

    async def unless_replaced(self, address: str, work: Coroutine[Any, Any, T]) -> T:
        """Await an attempt to reach the controller at `address`; given up when another one is announced meanwhile.

        A machine that was cut off does not respond, and waiting for it would use up the session timeout with the new
        controller. Raises `PeerUnavailable` then, and any error of `work`.
        """
        task = asyncio.get_running_loop().create_task(work)
        try:
            while not task.done():
                await asyncio.wait((task, self._change()), return_when=asyncio.FIRST_COMPLETED)
                if not task.done() and self.controller_address() not in (None, address):
                    raise PeerUnavailable(f"{address} is not the controller any more")
            return task.result()
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()  # whoever gave up in the moment in which it failed does not want to know

    async def call(self, method: str, request_bytes: bytes, timeout_ms: float, *, at_most_once: bool = False) -> bytes:
        """Call the active controller; `method` is a name of the service, such as `AlterPartition`, or a full path.

        Returns the first response other than NOT_CONTROLLER. Raises `ControllerUnavailable` when the time is over; with
        `at_most_once` one attempt gets all the remaining time, and only undelivered requests are retried.
        """
        path = method if method.startswith("/") else SERVICE + method
        deadline = self._clock.now_ms() + timeout_ms
        attempt, last = 0, "no controller is known"
        if self.controller_address() is None:
            await self.back_off(ELECTION_ATTEMPT, timeout_ms)
        while (left_ms := deadline - self._clock.now_ms()) > 0:
            address = self.next_address()
            attempt_ms = left_ms if at_most_once else min(left_ms, ATTEMPT_TIMEOUT_MS)
            try:
                asked = self._network.call(address, path, request_bytes, attempt_ms)
                answer = await (asked if at_most_once else self.unless_replaced(address, asked))
            except NetworkError as error:
                last = str(error)
                self._unreachable[address] = None
                if at_most_once and not error.undelivered:
                    break  # it may have been carried out
                self._hint = NO_CONTROLLER
            else:
                self._unreachable.pop(address, None)
                header = controller_messages.ControllerAnswerHeader.FromString(answer)
                if header.error_code != ErrorCode.NOT_CONTROLLER:
                    return answer
                last = f"{address} is not the active controller"
                self.follow_hint(header.controller_id)
            await self.back_off(attempt, deadline - self._clock.now_ms())
            attempt += 1
        raise ControllerUnavailable(f"{method}: {last.replace(f' {path}', '')}")

    async def forward_admin(
        self, context: RequestContext, method: str, request: bytes, timeout_ms: float, *, at_most_once: bool
    ) -> bytes:
        """Pass an admin request on, with its caller's identity; returns the answer's bytes.

        `method` is a name such as `CreateTopics`; one that changes something is sent at most once. Raises
        `ControllerUnavailable`, also when the controller did not understand the request.
        """
        forwarded = controller_messages.ForwardedRequest(
            method=ADMIN_SERVICE + method,
            request=request,
            principal=str(context.principal),
            listener=context.listener,
            client_id=context.client_id,
            client_address=context.peer,
        )
        answer = controller_messages.ForwardedResponse.FromString(
            await self.call("ForwardAdmin", forwarded.SerializeToString(), timeout_ms, at_most_once=at_most_once)
        )
        if answer.error_code != ErrorCode.NONE:
            raise ControllerUnavailable(
                f"{method}: {ErrorCode.from_number(answer.error_code).name}: {answer.error_message}"
            )
        return answer.response
