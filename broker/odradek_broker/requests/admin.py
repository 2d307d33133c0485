"""Admin: every broker takes these requests and passes them to the active controller, with their caller's identity.

- What comes back is the controller's answer, unchanged, once it is committed. What it created is known here, too,
  before the caller hears of it.
- When no controller answers in time, `ControllerUnavailable` says nothing about what was done. What changes nothing is
  answered from this broker's own metadata then, which may be behind.
- DescribeConfigs of this very broker it answers itself: only it knows its own configuration. So it does with both
  requests about its loggers.

Requests and answers are the messages of `core.controller.admin.ADMIN_REQUESTS` as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final

from odradek_proto.errors import ErrorCode

from odradek_broker.core.controller.admin import ADMIN_REQUESTS, topics_with_defaults
from odradek_broker.core.controller.decision import ChangeRequest, MetadataCall, ReadRequest
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.security.needs import OF_ACLS, judge, merge, refuse_all
from odradek_broker.requests.access import OPEN, Access
from odradek_broker.requests.context import RequestContext
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed

DEFAULT_TIMEOUT_MS: Final = 30_000  # default.api.timeout.ms of Kafka's admin client is 60 s; request.timeout.ms is this
READ_TIMEOUT_MS: Final = 5_000  # several elections of the quorum, on a busy machine, too
AUTO_CREATE_TIMEOUT_MS: Final = 1_500  # the caller waits for its metadata meanwhile, and asks again anyway

ForwardAdmin = Callable[..., Awaitable[bytes]]  # ControllerChannel.forward_admin


class AdminRequests:
    """`describe_own` answers DescribeConfigs of this broker, `alter_own` AlterConfigs; None: the controller does."""

    def __init__(
        self,
        *,
        forward: ForwardAdmin,
        feed: MetadataFeed,
        settings: ControllerSettings,
        describe_own: Callable[[Any], Any | None],
        alter_own: Callable[[Any], Any | None] = lambda _: None,
        access: Access = OPEN,
    ) -> None:
        self._access = access
        self._forward = forward
        self._feed = feed
        self._settings = settings
        self._own = {"DescribeConfigs": describe_own, "AlterConfigs": alter_own}

    async def call(self, context: RequestContext, method: str, request: Any, timeout_ms: float) -> Any:
        """The answer to a request of `ADMIN_REQUESTS[method]`. Raises `ControllerUnavailable`."""
        left, refused = request, None
        if self._access.is_on:
            left, refused = judge(method, request, partial(self._refusal, context))
        elif method in OF_ACLS:
            return refuse_all(method, request, ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker")
        return refused if left is None else merge(await self._call(context, method, left, timeout_ms), refused)

    def _refusal(self, context: RequestContext, api: str, name: str) -> ErrorCode:
        if api == "CreateTopics":
            return self._access.refusal_to_create(context, name)
        return self._access.refusal(context, api, name)

    async def _call(self, context: RequestContext, method: str, request: Any, timeout_ms: float) -> Any:
        if method in self._own and (own := self._own[method](request)) is not None:
            return own
        kind = ADMIN_REQUESTS[method]
        if isinstance(kind, ReadRequest):
            return await self._read(kind, context, request, timeout_ms)
        at_most_once = isinstance(kind, ChangeRequest)
        data = await self._forward(context, method, request.SerializeToString(), timeout_ms, at_most_once=at_most_once)
        answer: Any = kind.response.FromString(data)
        if method == "CreateTopics" and not request.validate_only:
            created = [topic.name for topic in answer.topics if not topic.error_code]
            with contextlib.suppress(TimeoutError):  # the controller has it: this broker will hear of it
                async with asyncio.timeout(timeout_ms / 1000):
                    await self._feed.wait_for(lambda image: all(name in image.topics for name in created))
        return answer

    async def _read(self, kind: ReadRequest, context: RequestContext, request: Any, timeout_ms: float) -> Any:
        asked, limit_ms = request.SerializeToString(), min(timeout_ms, READ_TIMEOUT_MS)
        try:
            data = await self._forward(context, kind.name, asked, limit_ms, at_most_once=False)
        except ControllerUnavailable:
            return kind.answer(MetadataCall(request, self._feed.image, self._settings))
        return kind.response.FromString(data)

    async def create_with_defaults(self, context: RequestContext, names: Sequence[str]) -> None:
        """auto.create.topics.enable: failures show as unknown topics, and the client asks again."""
        with contextlib.suppress(ControllerUnavailable):
            request = topics_with_defaults(names, AUTO_CREATE_TIMEOUT_MS)
            await self.call(context, "CreateTopics", request, AUTO_CREATE_TIMEOUT_MS)
