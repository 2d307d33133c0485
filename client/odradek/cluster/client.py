"""What producer, consumer and admin have in common: a cluster, a clock, a network, a beginning and an end."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.ports import Clock, Network

from odradek.cluster.cluster import ClusterClient
from odradek.shared.config import ClientConfig
from odradek.shared.errors import ClientClosed
from odradek.shared.kafka import missing
from odradek.shared.security import network_for


class Client:
    """Base of the three. It makes the real clock and network when none is given, and closes only what it made.

    One that is dropped without `close` says so: a `ResourceWarning`, and, when records are lost by it, a call of the
    loop's exception handler, which logs.
    """

    _cluster: ClusterClient | None = None
    _loop: asyncio.AbstractEventLoop | None = None

    def __init__(self, config: ClientConfig, clock: Clock | None, network: Network | None) -> None:
        self._base_config = config
        self._clock = clock or LoopClock()
        self._given_network = network
        self._closed = False

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:  # `warnings` may be gone by then
        if self._cluster is None or self._loop is None:
            return
        what, lost = f"unclosed {type(self).__name__.lstrip('_')} {self._base_config.client_id!r}", self._held()
        message = f"{what}: {lost}" if lost else what
        warn(message, ResourceWarning, source=self)
        if lost:
            self._loop.call_exception_handler({"message": message, "client": self})

    def _held(self) -> str:
        """What is lost when the client is dropped now; empty when nothing is."""
        return ""

    if not TYPE_CHECKING:  # type checkers shall complain about unknown names themselves

        def __getattr__(self, name: str) -> NoReturn:
            raise missing(type(self).__name__, name)

    async def start(self) -> None:
        """Find the cluster. Raises `BootstrapError`."""
        await self._open()

    async def close(self) -> None:
        """End."""
        await self._shut()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _open(self, *, allow_auto_create_topics: bool = False) -> ClusterClient:
        """Find the cluster. Raises `BootstrapError`; a client that was closed cannot be opened again."""
        if self._closed:
            raise ClientClosed("the client was closed", hint="make a new one")
        if self._cluster is not None:
            return self._cluster
        network = self._given_network or network_for(self._base_config.security)
        cluster = ClusterClient(
            self._base_config, self._clock, network, allow_auto_create_topics=allow_auto_create_topics
        )
        try:
            await cluster.start()
        except BaseException:
            await self._release(cluster)
            raise
        self._cluster, self._loop = cluster, asyncio.get_running_loop()
        return cluster

    def _require_running(self) -> ClusterClient:
        """The cluster. Raises `ClientClosed` outside of start and close."""
        if self._closed:
            raise ClientClosed("the client was closed")
        if self._cluster is None:
            raise ClientClosed(  # those of odradek.sync start by themselves
                "the client was not started", hint=f"use `async with {type(self).__name__}(...)`, or await start()"
            )
        return self._cluster

    async def _shut(self) -> None:
        self._closed = True
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            await self._release(cluster)

    async def _release(self, cluster: ClusterClient) -> None:
        await cluster.close()
        if self._given_network is None:
            await cluster.network.close()
