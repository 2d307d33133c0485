"""The network of a node of the metadata quorum, both ways: calling its peers, and answering them.

Rules of this module. It decides nothing: the result of a call is reported unchanged, and an unreadable request is
answered without the core. Nothing is repeated here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import (
    CallContext,
    DeadlineExceeded,
    DialResult,
    Handlers,
    Network,
    NetworkError,
    PeerUnavailable,
)
from odradek_proto.values import replace

from odradek_broker.core.quorum.messages import (
    NO_NODE,
    Answer,
    Fetch,
    FetchSnapshot,
    Request,
    SendRequest,
    Unanswered,
)
from odradek_broker.runtime.quorum.settings import QuorumSettings
from odradek_broker.runtime.quorum.wire import (
    BEGIN,
    END,
    FETCH,
    FETCH_SNAPSHOT,
    SERVICE,
    VOTE,
    UnreadableMessage,
    decode_answer,
    decode_request,
    encode_answer,
    encode_request,
    refusal,
)
from odradek_broker.runtime.refusals import Refusals

DIAL_TIMEOUT_MS = 500  # a refusal comes in less; whoever says nothing for so long proves nothing
LONGEST_WAIT_MS = 5_000  # of a fetch, whatever its sender asks for
LARGEST_PIECE = 8 << 20  # bytes of a snapshot in one answer, whatever its receiver asks for
MAX_WAITING = 2_000  # requests that wait for their answer, all peers together

Token = asyncio.Future[Answer | None]  # None: the node stopped before the core had an answer


class QuorumPeers:
    """Asks the voters."""

    def __init__(self, settings: QuorumSettings, network: Network) -> None:
        self._settings = settings
        self._network = network
        self._silent: dict[int, None] = {}  # whose latest call got no answer

    def silent(self) -> dict[int, str]:
        """The voters that did not answer when they were asked last, and their addresses."""
        return {voter: self._settings.voters[voter] for voter in self._silent}

    async def ask(self, send: SendRequest) -> Answer | Unanswered:
        """The peer's answer, or why there is none. An answer that cannot be read counts as none."""
        method, data = encode_request(send.request, self._settings.cluster_id)
        peer = self._settings.voters[send.peer_id]
        try:
            found = await self._network.call(peer, method, data, self._settings.request_timeout_ms)
            answer = decode_answer(send.request, found)
        except PeerUnavailable as error:
            self._silent[send.peer_id] = None
            return Unanswered.REFUSED if error.refused else Unanswered.BROKEN
        except (NetworkError, UnreadableMessage):
            self._silent[send.peer_id] = None
            return Unanswered.TIMED_OUT
        self._silent.pop(send.peer_id, None)
        if answer.error is ErrorCode.INCONSISTENT_CLUSTER_ID:
            return replace(answer, leader_id=NO_NODE, epoch=0)  # the leader and the epoch of another quorum
        return answer

    async def is_gone(self, peer_id: int) -> bool:
        """Whether it is certain that nobody listens there."""
        try:
            found = await self._network.dial(self._settings.voters[peer_id], DIAL_TIMEOUT_MS)
        except DeadlineExceeded:
            return False
        except PeerUnavailable as error:
            return error.refused
        return found is DialResult.REFUSED


class QuorumService:
    """Answers the other nodes: `odradek.v1.Quorum`, only on the CONTROLLER listener.

    - A node that has not started, or is stopping, says BROKER_NOT_AVAILABLE: it does not lead, and says so.
    - Another cluster's node hears INCONSISTENT_CLUSTER_ID, and the log says so: new nodes may have none set.
    - Where as many wait as may, one more is to be asked again: BROKER_NOT_AVAILABLE, for a fetch REQUEST_TIMED_OUT.
    - Bytes that are no request, and what no sound node says: INVALID_REQUEST, and a line of log.
    """

    def __init__(
        self,
        settings: QuorumSettings,
        *,
        is_ready: Callable[[], bool],
        submit: Callable[[Request, Token], None],
        forget: Callable[[Token], None],
        known: Callable[[], tuple[int, int]],
    ) -> None:
        """`submit` hands a request to the core, `forget` says its sender hung up; `known` is (leader id, epoch)."""
        self._settings = settings
        self._is_ready = is_ready
        self._submit = submit
        self._forget = forget
        self._known = known
        self._waiting: dict[Token, None] = {}
        self._refusals = Refusals()

    def handlers(self) -> Handlers:
        methods = (VOTE, BEGIN, END, FETCH, FETCH_SNAPSHOT)
        return Handlers(unary={method: partial(self._serve, method) for method in methods}, services=(SERVICE,))

    def close(self) -> None:
        """End every request that still waits, with BROKER_NOT_AVAILABLE."""
        for token in tuple(self._waiting):
            answer_caller(token, None)

    async def _serve(self, method: str, data: bytes, context: CallContext) -> bytes:
        try:
            incoming = decode_request(method, data)
        except UnreadableMessage as unreadable:
            self._refusals.add(method, context.peer, str(unreadable))
            return refusal(method, ErrorCode.INVALID_REQUEST, *self._known())
        if not self._is_ready():
            return refusal(method, ErrorCode.BROKER_NOT_AVAILABLE, *self._known())
        if len(self._waiting) >= MAX_WAITING:
            # A follower takes the latter for the word of a leader that leads no more.
            fetches = method in (FETCH, FETCH_SNAPSHOT)
            error = ErrorCode.REQUEST_TIMED_OUT if fetches else ErrorCode.BROKER_NOT_AVAILABLE
            return refusal(method, error, *self._known())
        if incoming.cluster_id != self._settings.cluster_id:
            error = ErrorCode.INCONSISTENT_CLUSTER_ID
            why = f"this node is of cluster {self._settings.cluster_id}: all voters need the same cluster.id"
            self._refusals.add(method, context.peer, why, error)
            return refusal(method, error, *self._known())
        answer = await self._decide(_bounded(incoming.request, context))
        if answer is None:
            return refusal(method, ErrorCode.BROKER_NOT_AVAILABLE, *self._known())
        if answer.error is ErrorCode.INVALID_REQUEST:
            self._refusals.add(method, context.peer, _summary(incoming.request, answer))
        return encode_answer(answer)

    async def _decide(self, request: Request) -> Answer | None:
        """The core's answer; None when the node stopped before it had one."""
        token: Token = asyncio.get_running_loop().create_future()
        self._waiting[token] = None
        try:
            self._submit(request, token)
            return await token
        except BaseException:  # the sender hung up
            token.cancel()
            self._forget(token)
            raise
        finally:
            del self._waiting[token]


def answer_caller(token: object, answer: Answer | None) -> None:
    """Answer a request, unless its sender has hung up."""
    assert isinstance(token, asyncio.Future)
    if not token.done():
        token.set_result(answer)


def _summary(request: Request, answer: Answer) -> str:
    return f"{type(request).__name__} of epoch {request.epoch}, where the epoch is {answer.epoch}"


def _bounded(request: Request, context: CallContext) -> Request:
    """A fetch does not wait longer than its sender does, nor than we allow; and a piece fits into one message."""
    if isinstance(request, FetchSnapshot):
        return replace(request, max_bytes=min(request.max_bytes, LARGEST_PIECE))
    if not isinstance(request, Fetch):
        return request
    limit_ms = LONGEST_WAIT_MS
    if context.deadline_ms is not None:
        limit_ms = min(limit_ms, int(context.deadline_ms / 2))
    return replace(request, max_wait_ms=min(request.max_wait_ms, limit_ms))
