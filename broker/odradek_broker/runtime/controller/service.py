"""The gRPC service `odradek.v1.Controller` in front of the active controller.

- A node that is not the active controller responds with NOT_CONTROLLER and the id of the active one. The leader of the
  quorum, which becomes active any moment, lets calls wait for that.
- Session: the first accepted heartbeat opens the session, the end of the stream ends it; each heartbeat has one
  response, in order. After an error response the stream ends.
- Invalid bytes are answered with INVALID_REQUEST, and logged.
- ForwardAdmin: an Admin request with its full method name; the response's bytes are returned unchanged.
"""

from __future__ import annotations

import asyncio
from functools import partial

from google.protobuf.message import DecodeError
from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import CallContext, Handlers, Stream, UnaryHandler
from odradek_proto.v1 import controller_messages
from odradek_proto.values import Value, replace

from odradek_broker.core.context import ANONYMOUS, Principal, RequestContext
from odradek_broker.core.controller.admin import ADMIN_REQUESTS
from odradek_broker.core.controller.alter_partition import alter_partition
from odradek_broker.core.controller.decision import AdminCall, ChangeRequest
from odradek_broker.core.controller.heartbeats import process_heartbeat
from odradek_broker.core.controller.producer_ids import allocate_producer_ids
from odradek_broker.core.controller.registration import register_broker
from odradek_broker.core.controller.unfit_leaders import unfit_brokers
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.runtime.controller.node import ControllerNode
from odradek_broker.runtime.controller.term import NotActive, OutcomeUnknown, Term
from odradek_broker.runtime.refusals import Refusals

SERVICE = "odradek.v1.Controller"
MAX_SESSIONS = 1_000  # streams; a cluster has far fewer brokers


class ControllerService:
    def __init__(self, node: ControllerNode) -> None:
        self._node = node
        self._streams: dict[Stream, None] = {}  # closed in the order of their arrival
        self._refusals = Refusals()
        node.on_term_end(self._end_sessions)

    def handlers(self) -> Handlers:
        unary: dict[str, UnaryHandler] = {
            "RegisterBroker": self._register_broker,
            "AlterPartition": self._alter_partition,
            "AllocateProducerIds": self._allocate_producer_ids,
            "ForwardAdmin": self._forward_admin,
        }
        return Handlers(
            unary={f"/{SERVICE}/{name}": self._readable(name, handler) for name, handler in unary.items()},
            streams={f"/{SERVICE}/Session": self._session},
            services=(SERVICE,),
        )

    def _readable(self, name: str, handler: UnaryHandler) -> UnaryHandler:
        """NOT_CONTROLLER, or INVALID_REQUEST for bytes that are no request, in fields that all answers start with."""

        async def answer(request_bytes: bytes, context: CallContext) -> bytes:
            try:
                return await handler(request_bytes, context)
            except NotActive:
                error_code = ErrorCode.NOT_CONTROLLER
            except DecodeError as error:
                self._refusals.add(f"/{SERVICE}/{name}", context.peer, str(error))
                error_code = ErrorCode.INVALID_REQUEST
            header = controller_messages.ControllerAnswerHeader(
                error_code=error_code, controller_id=self._node.leader_id
            )
            return header.SerializeToString()

        return answer

    def _end_sessions(self) -> None:
        """The term is over: brokers have to look for the next controller."""
        for stream in tuple(self._streams):
            stream.close()

    async def _register_broker(self, request_bytes: bytes, context: CallContext) -> bytes:
        request = controller_messages.RegisterBrokerRequest.FromString(request_bytes)
        try:
            answer = await self._register(await self._node.wait_until_active(), request)
        except NotActive:
            answer = controller_messages.RegisterBrokerResponse(
                error_code=ErrorCode.NOT_CONTROLLER, broker_epoch=-1, controller_id=self._node.leader_id
            )
        return answer.SerializeToString()

    async def _register(
        self, term: Term, request: controller_messages.RegisterBrokerRequest
    ) -> controller_messages.RegisterBrokerResponse:
        node, now_ms = self._node, self._node.clock.now_ms()
        valid = term.sessions.has_valid_session(request.broker_id, now_ms)
        answer = node.decide(term, lambda image: register_broker(image, node.settings, request, session_valid=valid))
        if answer.error_code == ErrorCode.NONE:
            registration = term.ahead.brokers[request.broker_id]
            answer = replace(answer, broker_epoch=registration.broker_epoch)
            term.sessions.registered(registration, now_ms)
        await node.until_committed(term, term.ahead.offset)
        return answer

    async def _alter_partition(self, request_bytes: bytes, context: CallContext) -> bytes:
        request = controller_messages.AlterPartitionRequest.FromString(request_bytes)
        node = self._node
        term = await node.wait_until_active()
        answer = await node.carry_through(term, lambda image: alter_partition(image, node.settings, request))
        return answer.SerializeToString()

    async def _allocate_producer_ids(self, request_bytes: bytes, context: CallContext) -> bytes:
        request = controller_messages.AllocateProducerIdsRequest.FromString(request_bytes)
        term = await self._node.wait_until_active()
        answer = await self._node.carry_through(term, lambda image: allocate_producer_ids(image, request))
        return answer.SerializeToString()

    async def _forward_admin(self, request_bytes: bytes, context: CallContext) -> bytes:
        request = controller_messages.ForwardedRequest.FromString(request_bytes)
        try:
            term = await self._node.wait_until_active()
            response = await answer_admin(self._node, term, _caller(request), request.method, request.request)
            answer = controller_messages.ForwardedResponse(response=response)
        except OutcomeUnknown:
            answer = controller_messages.ForwardedResponse(
                error_code=ErrorCode.REQUEST_TIMED_OUT,
                error_message="the controller resigned before this was committed: the next one may have it, or not",
            )
        except (ValueError, DecodeError) as error:  # no such method, no principal, no request
            answer = controller_messages.ForwardedResponse(
                error_code=ErrorCode.INVALID_REQUEST, error_message=str(error)
            )
        return answer.SerializeToString()

    async def _session(self, stream: Stream, context: CallContext) -> None:
        if len(self._streams) >= MAX_SESSIONS:
            return
        self._streams[stream] = None
        opened: _Opened | None = None
        busy_ms = 0
        clock = self._node.clock
        try:
            while True:
                heartbeat = controller_messages.Heartbeat.FromString(await stream.recv())
                begun_ms = clock.now_ms()
                try:
                    term = await self._node.wait_until_active()
                    opened = self._open(term, heartbeat, opened)
                    answer = await self._heartbeat(term, heartbeat, busy_ms)
                except NotActive:
                    answer = controller_messages.HeartbeatAnswer(
                        error_code=ErrorCode.NOT_CONTROLLER, is_fenced=True, controller_id=self._node.leader_id
                    )
                await stream.send(answer.SerializeToString())
                if answer.error_code != ErrorCode.NONE:
                    return
                busy_ms = clock.now_ms() - begun_ms
        except DecodeError as error:
            self._refusals.add(f"/{SERVICE}/Session", context.peer, str(error))  # and the stream ends
        except asyncio.CancelledError:
            opened = None  # this server stops: nobody here will judge the broker any more
            raise
        finally:
            self._streams.pop(stream, None)
            if opened is not None:
                self._close(opened)

    def _open(self, term: Term, heartbeat: controller_messages.Heartbeat, opened: _Opened | None) -> _Opened | None:
        """Count the stream for the incarnation that speaks on it, from its first heartbeat on."""
        if opened is not None and opened.term is term:
            return opened
        registration = term.ahead.brokers.get(heartbeat.broker_id)
        if registration is None or registration.incarnation_id != heartbeat.incarnation_id:
            return None
        term.sessions.stream_opened(heartbeat.broker_id, heartbeat.incarnation_id, self._node.clock.now_ms())
        return _Opened(term, heartbeat.broker_id, heartbeat.incarnation_id)

    def _close(self, opened: _Opened) -> None:
        opened.term.sessions.stream_ended(opened.broker_id, opened.incarnation_id, self._node.clock.now_ms())
        self._node.step_sessions()

    async def _heartbeat(
        self, term: Term, heartbeat: controller_messages.Heartbeat, busy_ms: int
    ) -> controller_messages.HeartbeatAnswer:
        """`busy_ms` is how long the heartbeat before took us, which this one may have waited (R-154)."""
        node = self._node
        late = busy_ms > node.settings.session_timeout_ms
        now_ms = node.clock.now_ms()
        return await node.carry_through(
            term, lambda image: process_heartbeat(image, node.settings, term.sessions, heartbeat, now_ms, late=late)
        )


def _caller(request: controller_messages.ForwardedRequest) -> RequestContext:
    """The client at the broker that passed the request on. A broker of before principals says nothing of it."""
    principal = Principal.parse(request.principal) if request.principal else ANONYMOUS
    return RequestContext(principal, request.listener, request.client_id, request.client_address)


class _Opened(Value, frozen=True):
    """A stream that the sessions of a term count."""

    term: Term
    broker_id: int
    incarnation_id: bytes


# --- Admin requests at the active controller -------------------------------------------------------------------------
# The name says which, bytes in and bytes out.


ADMIN_SERVICE = "/odradek.v1.Admin/"


class UnknownAdminMethod(ValueError):
    """No admin request has this name."""


async def answer_admin(
    controller: ControllerNode, term: Term, context: RequestContext, method: str, data: bytes
) -> bytes:
    """Raises `UnknownAdminMethod`, `NotActive`, and `DecodeError` for what is no such request."""
    kind = ADMIN_REQUESTS.get(method.removeprefix(ADMIN_SERVICE))
    if kind is None:
        raise UnknownAdminMethod(f"there is no admin request {method!r}")
    request = kind.request.FromString(data)

    def call(image: MetadataImage) -> AdminCall:
        settings, describe = controller.settings, controller.quorum.describe
        unfit = partial(unfit_brokers, image, term.sessions)
        return AdminCall(request, image, settings, context, controller.clock.rng, describe, unfit)

    if not isinstance(kind, ChangeRequest):
        return kind.answer(call(controller.feed.image)).SerializeToString()
    decide = kind.decide
    answer = await controller.carry_through(term, lambda image: decide(call(image)))
    encoded: bytes = answer.SerializeToString()
    return encoded
