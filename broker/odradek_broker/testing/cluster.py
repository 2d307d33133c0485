"""A cluster for code without asyncio; for code with it, `async with Cluster() as cluster` gives an `AsyncCluster`.

The brokers run on the process's one background loop, which the synchronous clients use as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from odradek_proto.transport.background import background_loop

from odradek_broker.testing.async_cluster import DEFAULT_TIMEOUT_S, AsyncCluster, open_doors


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

    def open(self, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Start all brokers and wait until they are ready. Raises `ClusterError`, `ConfigError`, `OSError`."""
        background_loop().run(self._cluster.open(timeout=timeout))

    def close(self) -> None:
        """Stop whatever runs: a temporary cluster at once, one with a directory cleanly, so that it can go on later."""
        background_loop().run(self._cluster.close())

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

    def replicas(self) -> dict[str, Path]:
        """Broker ids and their log directories, as the audit wants them."""
        return self._cluster.replicas()

    def metrics_url(self, broker: int) -> str:
        """`http://host:port` where a running broker serves its metrics. Raises `ClusterError` when it serves none."""
        return background_loop().call(lambda: self._cluster.metrics_url(broker))

    def isr_of(self, topic: str, partition: int = 0) -> list[int]:
        """The in-sync replicas, as the newest metadata has them. Raises `ClusterError` for an unknown partition."""
        return background_loop().call(lambda: self._cluster.isr_of(topic, partition))

    # --- Failures and their end -------------------------------------------------------------------------------------

    def kill(self, broker: int) -> None:
        """As kill -9: listeners and connections close, nothing is flushed or marked clean. The others find out."""
        background_loop().run(self._cluster.kill(broker))

    def stop(self, broker: int) -> None:
        """Controlled shutdown, as after SIGTERM: leaderships are handed over first."""
        background_loop().run(self._cluster.stop(broker))

    def start(self, broker: int, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Start a broker that does not run, on the directory and ports that it had, and wait until it is ready.

        While fewer than a majority run there is no controller to wait for: then it returns as soon as it listens.
        """
        background_loop().run(self._cluster.start(broker, timeout=timeout))

    def lose_power(self, *brokers: int) -> None:
        """Kill brokers, and take from their directories whatever they have not flushed. Without names: all of them."""
        background_loop().run(self._cluster.lose_power(*brokers))

    def freeze(self, broker: int) -> None:
        """As SIGSTOP: it takes connections, and neither hears nor says anything until `thaw`. Its clock goes on."""
        background_loop().run(self._cluster.freeze(broker))

    def thaw(self, broker: int) -> None:
        """As SIGCONT: what came meanwhile is heard now."""
        background_loop().run(self._cluster.thaw(broker))

    def cut(self, broker: int, *others: int) -> None:
        """Cut the network between a broker and others, both ways; without names between it and all others.

        Clients reach it. What is on its way arrives when `heal` mends the network, as with TCP.
        """
        background_loop().run(self._cluster.cut(broker, *others))

    def slow(self, broker: int, delay_ms: float) -> None:
        """Everything that a broker says or hears takes so much longer, on its way to and from clients, too."""
        background_loop().run(self._cluster.slow(broker, delay_ms))

    def lose_next_answer(self, broker: int, api: str = "Produce") -> None:
        """Have a broker do what the next request of an API asks for and lose the connection instead of answering.

        `api` is a name of Kafka's protocol. It holds for one answer of the broker, whichever client asks.
        """
        background_loop().run(self._cluster.lose_next_answer(broker, api))

    def heal(self, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """End all faults, start every broker that does not run, and wait until all are ready."""
        background_loop().run(self._cluster.heal(timeout=timeout))

    # --- Topics and leaders -----------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
        timeout: float = DEFAULT_TIMEOUT_S,
    ) -> None:
        """Create a topic and wait until all its leaders lead and every running broker knows it.

        Raises `ClusterError` with the controller's words.
        """
        work = self._cluster.create_topic(
            name, partitions, replication_factor=replication_factor, configs=configs, timeout=timeout
        )
        background_loop().run(work)

    def leader_of(self, topic: str, partition: int = 0, *, timeout: float = DEFAULT_TIMEOUT_S) -> int:
        """The running broker that leads a partition; while there is none, wait for the election.

        Raises `ClusterError` for an unknown partition, and when nobody came to lead it in time.
        """
        return background_loop().run(self._cluster.leader_of(topic, partition, timeout=timeout))

    def coordinator_of(self, group: str, *, timeout: float = DEFAULT_TIMEOUT_S) -> int:
        """The running broker that coordinates a group; while there is none, wait until a client asked for it."""
        return background_loop().run(self._cluster.coordinator_of(group, timeout=timeout))

    def controller(self, *, timeout: float = DEFAULT_TIMEOUT_S) -> int:
        """The broker that is the active controller; while there is none, wait for the election."""
        return background_loop().run(self._cluster.controller(timeout=timeout))

    # --- Waiting ----------------------------------------------------------------------------------------------------

    def wait_until_ready(self, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Return once all running brokers know that each of them is unfenced, and that each one that is down is not.

        After `kill` it is the time at which the cluster has taken notice. With fewer than a majority of the brokers
        running there is no controller, and no end to this but the timeout.
        """
        background_loop().run(self._cluster.wait_until_ready(timeout=timeout))

    def wait_until_in_sync(self, topic: str, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Return once all replicas of all partitions of a topic are in sync. Brokers that are down are never that."""
        background_loop().run(self._cluster.wait_until_in_sync(topic, timeout=timeout))

    def wait_until_told(self, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Return once every running broker goes by all metadata that are committed now: settings, leaders, replicas."""
        background_loop().run(self._cluster.wait_until_told(timeout=timeout))

    def wait_until_reassigned(self, topic: str, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Return once no partition of a topic is on its way to other replicas, and all replicas are in sync."""
        background_loop().run(self._cluster.wait_until_reassigned(topic, timeout=timeout))

    def wait_until(self, condition: Callable[[], bool], *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Return once a condition holds, about files for example; it is asked on the background loop.

        Raises `ClusterError` when a broker fails meanwhile, or when the time is over.
        """
        background_loop().run(self._cluster.wait_until(condition, timeout=timeout))
