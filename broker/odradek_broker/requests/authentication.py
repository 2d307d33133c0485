"""SASL: who a client is, for every protocol that clients speak.

Rules of this module. A conversation belongs to one connection, has a mechanism, and ends with a principal or with
`AuthenticationRefused`; a refusal is told late (`connection.failed.authentication.delay.ms`), so that guessing takes
time, and logged. Credentials are those of the committed metadata; PLAIN is checked against the same ones as SCRAM.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from odradek_proto.security.scram import (
    HASHES,
    PLAIN,
    AuthenticationRefused,
    Credential,
    ScramServer,
    credential_of,
    parse_plain,
    salted_password,
    wrong_plain,
)
from odradek_proto.transport.ports import Clock, Files

from odradek_broker.config.log_levels import AUDIT
from odradek_broker.requests.context import Principal
from odradek_broker.runtime.refusals import is_said

logger = logging.getLogger(AUDIT)

Credentials = Mapping[str, Mapping[str, Credential]]  # by user and mechanism
PREPARING_S = 8.0  # shorter than clients wait for an answer


async def _at_once() -> None: ...


class Authentication:
    """`new_nonce` gives text that nobody can guess; `prepared` returns when the users are there that settings name."""

    def __init__(
        self,
        mechanisms: tuple[str, ...],
        *,
        credentials: Callable[[], Credentials],
        prepared: Callable[[], Awaitable[None]] = _at_once,
        new_nonce: Callable[[], str],
        clock: Clock,
        files: Files,
        refusal_delay_ms: int,
        session_ms: int = 0,
    ) -> None:
        """`session_ms` is for how long a client is believed before it has to authenticate again; 0: for ever."""
        self.mechanisms = mechanisms
        self.credentials = credentials
        self._prepared = prepared
        self.new_nonce = new_nonce
        self.files = files
        self._clock = clock
        self.session_ms = session_ms
        self._refusal_delay_ms = refusal_delay_ms
        self._refusals = 0

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def prepare(self) -> None:
        """Wait for a while: the first users of a new cluster come a moment after its brokers."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PREPARING_S):
                await self._prepared()

    def begin(self, mechanism: str, peer: str) -> Conversation | None:
        """None for a mechanism that is not enabled."""
        return Conversation(self, mechanism, peer) if mechanism in self.mechanisms else None

    async def refused(self, peer: str, username: str, reason: AuthenticationRefused) -> None:
        self._refusals += 1
        if is_said(self._refusals):
            logger.info("%s refused as %r: %s (%d so far)", peer, username, reason, self._refusals)
        await self._clock.sleep(self._refusal_delay_ms)


class Conversation:
    """`principal` is there when it has succeeded."""

    def __init__(self, authentication: Authentication, mechanism: str, peer: str) -> None:
        self._authentication = authentication
        self.mechanism = mechanism
        self._peer = peer
        self._begun = False
        self._scram = ScramServer(mechanism, self._credential, authentication.new_nonce())
        self._username = ""
        self.principal: Principal | None = None

    def _credential(self, username: str) -> Credential | None:
        return self._authentication.credentials().get(username, {}).get(self.mechanism)

    async def step(self, message: bytes) -> bytes:
        """The answer to a client's message. Raises `AuthenticationRefused`, and the conversation is over."""
        try:
            return await self._step(message)
        except AuthenticationRefused as reason:
            await self._authentication.refused(self._peer, self._username or self._scram.username, reason)
            raise

    async def _step(self, message: bytes) -> bytes:
        if not self._begun:
            await self._authentication.prepare()
        if self.mechanism == PLAIN:
            self._username, password = parse_plain(message)
            await self._check_password(password)
            self.principal = Principal("User", self._username)
            return b""
        if not self._begun:
            self._begun = True
            return self._scram.first(message)
        answer = self._scram.final(message)
        self.principal = Principal("User", self._scram.username)
        return answer

    async def _check_password(self, password: str) -> None:
        """In a thread, since it takes milliseconds on purpose."""
        known = self._authentication.credentials().get(self._username, {})
        mechanism = next((each for each in reversed(HASHES) if each in known), None)
        if mechanism is None:
            raise wrong_plain()
        kept = known[mechanism]

        def compute() -> Credential:
            salted = salted_password(mechanism, password, kept.salt, kept.iterations)
            return credential_of(mechanism, salted, kept.salt, kept.iterations)

        computed = await self._authentication.files.compute(compute)
        if not hmac.compare_digest(computed.stored_key, kept.stored_key):
            raise wrong_plain()
