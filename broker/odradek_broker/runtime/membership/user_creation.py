"""Creates the users that the settings name, once the cluster has a controller. Existing users are left unchanged."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from odradek_proto.errors import ErrorCode
from odradek_proto.security.upsertions import scram_upsertions
from odradek_proto.transport.ports import Clock, Files
from odradek_proto.v1.admin_messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)

from odradek_broker.config.log_levels import SERVER
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed

logger = logging.getLogger(SERVER)

TIMEOUT_MS = 5_000
RETRY_MS = 500


class UserCreation:
    """`alter` passes a request to the active controller; `new_salt` gives bytes of chance."""

    def __init__(
        self,
        users: Mapping[str, str],
        *,
        clock: Clock,
        files: Files,
        feed: MetadataFeed,
        new_salt: Callable[[], bytes],
        alter: Callable[[AlterUserScramCredentialsRequest, float], Awaitable[AlterUserScramCredentialsResponse]],
    ) -> None:
        self._users = users
        self._clock = clock
        self._files = files
        self._feed = feed
        self._new_salt = new_salt
        self._alter = alter

    async def run(self) -> None:
        """Return when the image has had every user, or it was refused for good."""
        wanted = list(self._users)
        while wanted := [name for name in wanted if name not in self._feed.image.scram]:
            upsertions = [change for name in wanted for change in await self._upsertions(name)]
            try:
                answer = await self._alter(AlterUserScramCredentialsRequest(upsertions=upsertions), TIMEOUT_MS)
            except ControllerUnavailable:
                await self._clock.sleep(RETRY_MS)
                continue
            await self._seen({user.name for user in answer.users if user.error_code == ErrorCode.NONE})
            for user in answer.users:
                wanted.remove(user.name)
                error = ErrorCode.from_number(user.error_code)
                if error is ErrorCode.NONE:
                    logger.info("user %s created", user.name)
                else:
                    logger.error("user %s cannot be created: %s: %s", user.name, error.name, user.error_message)

    async def _seen(self, names: set[str]) -> None:
        """A user that is deleted at once may never be seen: the image is looked at after each batch of records."""
        with suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_MS / 1000):
                await self._feed.wait_for(lambda image: names <= image.scram.keys())

    async def _upsertions(self, name: str) -> list[ScramCredentialUpsertion]:
        """Of every mechanism; computed in a thread, since it takes milliseconds on purpose."""
        salt, password = self._new_salt(), self._users[name]
        return await self._files.offload(lambda: scram_upsertions(name, password, salt))
