"""A cluster for code without asyncio; for code with it, `async with Cluster() as cluster` gives an `AsyncCluster`.

The brokers run on the process's one background loop, which the synchronous clients use as well. Parameters, types and
docstrings of the methods are those of `AsyncCluster`, for people (`help`), for `inspect` and for type checkers.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from odradek_proto.transport.background import background_loop

from odradek_broker.testing.async_cluster import AsyncCluster, open_doors

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    method: Callable[Concatenate[AsyncCluster, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Cluster, P], R]:
    """Of a coroutine method: returns when it has returned."""

    @wraps(method)
    def run(self: Cluster, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return background_loop().run(method(self._cluster, *args, **kwargs))

    return run


def _called(method: Callable[Concatenate[AsyncCluster, P], R]) -> Callable[Concatenate[Cluster, P], R]:
    """Of a method that only tells what is there: asked on the loop, between two steps of the brokers."""

    @wraps(method)
    def call(self: Cluster, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return background_loop().call(lambda: method(self._cluster, *args, **kwargs))

    return call


class Cluster:
    """`AsyncCluster` for code without asyncio: the same methods, each returning when it is done.

    `with Cluster() as cluster:` runs it on the background loop, `async with Cluster() as cluster:` on the running one.
    """

    def __init__(
        self, brokers: int = 3, *, settings: Mapping[str, object] | None = None, directory: Path | str | None = None
    ) -> None:
        self._cluster = AsyncCluster(brokers, settings=settings, directory=directory)
        self._cluster.opens_late = True

    # --- Life -------------------------------------------------------------------------------------------------------

    open = _blocking(AsyncCluster.open)
    close = _blocking(AsyncCluster.close)

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> AsyncCluster:
        self._cluster.opens_late = False
        return await self._cluster.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._cluster.__aexit__(kind, error, trace)

    # --- What there is ----------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """`host:port` of all brokers, comma-separated, for gRPC clients; it stays the same until `close`."""
        background_loop().run(open_doors(self._cluster))
        return self._cluster.bootstrap

    @property
    def kafka_bootstrap(self) -> str:
        """The same for Kafka's clients, as `bootstrap.servers`."""
        return self._cluster.kafka_bootstrap

    @property
    def kafka_addresses(self) -> dict[int, str]:
        """Broker ids and the `host:port` where each listens for Kafka's clients."""
        return self._cluster.kafka_addresses

    @property
    def brokers(self) -> list[int]:
        """All broker ids."""
        return self._cluster.brokers

    @property
    def running(self) -> list[int]:
        """Ids of the brokers that run."""
        return background_loop().call(lambda: self._cluster.running)

    replicas = _called(AsyncCluster.replicas)
    metrics_url = _called(AsyncCluster.metrics_url)
    isr_of = _called(AsyncCluster.isr_of)

    # --- Failures and their end -------------------------------------------------------------------------------------

    kill = _blocking(AsyncCluster.kill)
    stop = _blocking(AsyncCluster.stop)
    start = _blocking(AsyncCluster.start)
    lose_power = _blocking(AsyncCluster.lose_power)
    freeze = _blocking(AsyncCluster.freeze)
    thaw = _blocking(AsyncCluster.thaw)
    cut = _blocking(AsyncCluster.cut)
    slow = _blocking(AsyncCluster.slow)
    lose_next_answer = _blocking(AsyncCluster.lose_next_answer)
    heal = _blocking(AsyncCluster.heal)

    # --- Topics and leaders -----------------------------------------------------------------------------------------

    create_topic = _blocking(AsyncCluster.create_topic)
    leader_of = _blocking(AsyncCluster.leader_of)
    coordinator_of = _blocking(AsyncCluster.coordinator_of)
    controller = _blocking(AsyncCluster.controller)

    # --- Waiting ----------------------------------------------------------------------------------------------------

    wait_until_ready = _blocking(AsyncCluster.wait_until_ready)
    wait_until_in_sync = _blocking(AsyncCluster.wait_until_in_sync)
    wait_until_told = _blocking(AsyncCluster.wait_until_told)
    wait_until_reassigned = _blocking(AsyncCluster.wait_until_reassigned)
    wait_until = _blocking(AsyncCluster.wait_until)
