"""A cluster on the running event loop. `Cluster` is the same for code without asyncio.

Rule of this module: whatever waits has a limit, and says in its error what was missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import sys
import warnings
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import OFFSETS_TOPIC, TopicPartition
from odradek_proto.transport.ports import NetworkError
from odradek_proto.v1 import admin_messages

from odradek_broker.core.groups.records import partition_for
from odradek_broker.core.metadata.image import MetadataImage, PartitionRegistration
from odradek_broker.local.cluster import ClusterError
from odradek_broker.process.node import Node
from odradek_broker.storage.errors import LogDirectoryLocked
from odradek_broker.testing.arguments import as_path, as_text, check, check_number, check_text, check_whole
from odradek_broker.testing.doors import API_NAMES
from odradek_broker.testing.fabric import OUTSIDE, Fabric
from odradek_broker.testing.layout import ClusterLayout, broker_settings, check_settings
from odradek_broker.testing.member import ClusterMember
from odradek_broker.testing.network import BrokerNetwork, admin_address
from odradek_broker.testing.readiness import not_in_sync, not_leading, not_noticed, not_ready, not_reassigned

CREATE_TOPICS = "/odradek.v1.Admin/CreateTopics"
DEFAULT_TIMEOUT_S = 30.0
LOOK_AGAIN_S = 0.001
MOST_BROKERS = 9  # as of `odradek cluster up`
DEFAULT = -1  # Kafka's number for "as the cluster's settings say"


_closing: set[asyncio.Task[None]] = set()  # of clusters that nobody holds; a loop itself holds tasks weakly


class AsyncCluster:
    """`brokers` brokers, ids from 1 on, each broker and controller in one. Times are seconds.

    `settings` are Kafka's dotted names and hold for all brokers. `directory` is kept at the end and may be used by a
    later cluster of the same size; without one the cluster lives in a temporary directory and forgets everything.
    """

    def __init__(
        self, brokers: int = 3, *, settings: Mapping[str, object] | None = None, directory: Path | str | None = None
    ) -> None:
        check_whole("brokers", brokers, least=1, most=MOST_BROKERS)
        self._size = brokers
        self._layout: ClusterLayout | None = None  # of an open cluster
        self._settings = check_settings(settings or {})
        self._wanted_directory = None if directory is None else as_path("directory", directory)
        self.opens_late = False  # for gRPC clients: not before `open_doors` is called
        self._members: dict[int, ClusterMember] = {}
        self._network: BrokerNetwork | None = None

    # --- Life -------------------------------------------------------------------------------------------------------

    async def open(self, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Start all brokers and wait until they are ready. Raises `ClusterError`, `SettingError`, `OSError`."""
        check_number("timeout", timeout)
        if self._layout is not None:
            raise ClusterError("the cluster is open already")
        self._loop = asyncio.get_running_loop()
        self._layout = ClusterLayout(self._size, self._wanted_directory)
        self._fabric = Fabric()
        self._fabric.doors_are_open = not self.opens_late
        try:
            for broker in range(1, self._size + 1):
                self._members[broker] = ClusterMember(broker, self._layout.log_directory(broker), self._fabric)
            self._network = BrokerNetwork(self._fabric, OUTSIDE)
            first = random.choice(self.brokers)
            await self._all([self._start(each, stands_first=each.broker == first) for each in self._members.values()])
            await self._until_unfenced(timeout)
            await self.wait_until_ready(timeout=timeout)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop whatever runs: a temporary cluster at once, one with a directory cleanly, so that it can go on later."""
        if self._layout is None:
            return
        if self._loop.is_closed():  # the brokers ended with it
            running, self._network = [], None
        else:
            self._check_loop()
            running = [member for member in self._members.values() if member.node is not None]
        layout, self._layout = self._layout, None
        try:
            await self._all(
                [member.kill() if layout.is_temporary else member.stop(hand_over=False) for member in running]
            )
        finally:
            if self._network is not None:
                await self._network.close()
            for member in self._members.values():
                for port in member.ports:
                    port.release()
            self._members.clear()
            layout.remove_temporary()
            await asyncio.sleep(0)  # connections that were closed are forgotten in the next turn
            if gc.isenabled():
                gc.collect(1)  # a node's parts know each other in circles: while they are young that costs little

    def __del__(self) -> None:
        """Whoever had it did not close it. The collector may run on any thread, and does not wait."""
        if getattr(self, "_layout", None) is None or sys.is_finalizing():
            return
        where = ", ".join(f"broker {broker} at {member.kafka_address}" for broker, member in self._members.items())
        with contextlib.suppress(RuntimeError):  # its loop is closed, and its brokers ended with that
            self._loop.call_soon_threadsafe(self._close_soon)
        said = f"unclosed cluster ({where}): keep it while it is used"
        warnings.warn(said, ResourceWarning, stacklevel=2, source=self)

    def _close_soon(self) -> None:
        task = self._loop.create_task(self.close())
        _closing.add(task)
        task.add_done_callback(_closing.discard)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- What there is ----------------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """`host:port` of all brokers, comma-separated, for gRPC clients; it stays the same until `close`."""
        return ",".join(member.address for member in self._opened().values())

    @property
    def kafka_bootstrap(self) -> str:
        """The same for Kafka's clients, as `bootstrap.servers`."""
        return ",".join(self.kafka_addresses.values())

    @property
    def kafka_addresses(self) -> dict[int, str]:
        """Broker ids and the `host:port` where each listens for Kafka's clients."""
        return {broker: member.kafka_address for broker, member in self._opened().items()}

    @property
    def brokers(self) -> list[int]:
        """All broker ids."""
        return list(self._opened())

    @property
    def running(self) -> list[int]:
        """Ids of the brokers that run."""
        return [broker for broker, member in self._opened().items() if member.node is not None]

    def replicas(self) -> dict[str, Path]:
        """Broker ids and their log directories, as the audit wants them."""
        members = self._opened()
        assert self._layout is not None
        return {str(broker): self._layout.log_directory(broker) for broker in members}

    def metrics_url(self, broker: int) -> str:
        """`http://host:port` where a running broker serves its metrics. Raises `ClusterError` when it serves none."""
        node = self._running_member(broker).node
        if node is None or not node.metrics_address:
            raise ClusterError(
                f"broker {broker} serves no metrics", hint='settings={"odradek.metrics.listener": "HTTP://127.0.0.1:0"}'
            )
        return f"http://{node.metrics_address}"

    def isr_of(self, topic: str, partition: int = 0) -> list[int]:
        """The in-sync replicas, as the newest metadata has them. Raises `ClusterError` for an unknown partition."""
        return list(self._partition(topic, partition).isr)

    # --- Failures and their end -------------------------------------------------------------------------------------

    async def kill(self, broker: int) -> None:
        """As kill -9: listeners and connections close, nothing is flushed or marked clean. The others find out."""
        await self._running_member(broker).kill()

    async def stop(self, broker: int) -> None:
        """Controlled shutdown, as after SIGTERM: leaderships are handed over first."""
        await self._running_member(broker).stop()

    async def start(self, broker: int, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Start a broker that does not run, on the directory and ports that it had, and wait until it is ready.

        While fewer than a majority run there is no controller to wait for: then it returns as soon as it listens.
        """
        check_number("timeout", timeout)
        member = self._member(broker)
        if member.node is not None:
            raise ClusterError(f"broker {broker} runs already")
        await self._start(member)
        if 2 * len(self.running) > len(self.brokers):
            await self._until(lambda: not_ready(self._nodes()), timeout)

    async def lose_power(self, *brokers: int) -> None:
        """Kill brokers, and take from their directories whatever they have not flushed. Without names: all of them."""
        lost = [self._member(broker) for broker in brokers or self.brokers]
        await self._all([member.kill() for member in lost if member.node is not None])
        for member in lost:
            member.forget_unflushed()

    async def freeze(self, broker: int) -> None:
        """As SIGSTOP: it takes connections, and neither hears nor says anything until `thaw`. Its clock goes on."""
        self._faults(broker).freeze(broker)

    async def thaw(self, broker: int) -> None:
        """As SIGCONT: what came meanwhile is heard now."""
        self._faults(broker).thaw(broker)

    async def cut(self, broker: int, *others: int) -> None:
        """Cut the network between a broker and others, both ways; without names between it and all others.

        Clients reach it. What is on its way arrives when `heal` mends the network, as with TCP.
        """
        faults = self._faults(broker, *others)
        if broker in others:
            raise ClusterError(f"broker {broker} cannot be cut off from itself", hint="name others, or none for all")
        for other in others or [each for each in self.brokers if each != broker]:
            faults.cut(broker, other)

    async def slow(self, broker: int, delay_ms: float) -> None:
        """Everything that a broker says or hears takes so much longer, on its way to and from clients, too."""
        check_number("delay_ms", delay_ms)
        self._faults(broker).slow(broker, delay_ms)

    async def lose_next_answer(self, broker: int, api: str = "Produce") -> None:
        """Have a broker do what the next request of an API asks for and lose the connection instead of answering.

        `api` is a name of Kafka's protocol. It holds for one answer of the broker, whichever client asks.
        """
        if api not in API_NAMES.values():
            raise ClusterError(f"there is no API {api!r}", hint="names of docs/kafka-clients.md, such as Produce")
        self._running_member(broker).lose_next_answer(api)

    def _faults(self, *brokers: int) -> Fabric:
        for broker in brokers:
            self._running_member(broker)
        return self._fabric

    async def heal(self, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """End all faults, start every broker that does not run, and wait until all are ready."""
        check_number("timeout", timeout)
        members = self._opened_here()
        self._fabric.mend()
        down = [member for member in members.values() if member.node is None]
        await self._all([self._start(member) for member in down])
        await self.wait_until_ready(timeout=timeout)

    # --- Topics and leaders -----------------------------------------------------------------------------------------

    async def create_topic(
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
        replicas = DEFAULT if replication_factor is None else replication_factor
        check_text("name", name)
        check_whole("partitions", partitions, least=DEFAULT)
        check_whole("replication_factor", replicas, least=DEFAULT)
        check_number("timeout", timeout)
        topic = admin_messages.NewTopic(
            name=name,
            partitions=partitions,
            replication_factor=replicas,
            configs=as_text("configs", configs or {}),
        )
        request = admin_messages.CreateTopicsRequest(topics=[topic], timeout_ms=int(timeout * 1000))
        is_new = name not in self._newest_image().topics
        found = await self._ask(CREATE_TOPICS, request.SerializeToString(), timeout)
        for created in admin_messages.CreateTopicsResponse.FromString(found).topics:
            # By this order: its answer was lost, or the controller resigned before the commit, and it was repeated.
            done_before = is_new and created.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
            if created.error_code and not done_before:
                raise ClusterError(f"{created.name}: {created.error_message or f'error {created.error_code}'}")
        await self._until(lambda: not_leading(self._nodes(), name), timeout)

    async def leader_of(self, topic: str, partition: int = 0, *, timeout: float = DEFAULT_TIMEOUT_S) -> int:
        """The running broker that leads a partition; while there is none, wait for the election.

        Raises `ClusterError` for an unknown partition, and when nobody came to lead it in time.
        """
        self._partition(topic, partition)

        def leaderless() -> str:
            leader = self._partition(topic, partition).leader
            return "" if leader in self._nodes() else f"{topic}-{partition}: no running broker leads it"

        await self._until(leaderless, timeout)
        return self._partition(topic, partition).leader

    async def coordinator_of(self, group: str, *, timeout: float = DEFAULT_TIMEOUT_S) -> int:
        """The running broker that coordinates a group; while there is none, wait until a client asked for it.

        The topic of committed offsets is created for the first group that a client looks for.
        """
        check_text("group", group)

        def unknown() -> str:
            return (
                "" if OFFSETS_TOPIC in self._newest_image().topics else f"no client has looked for the group {group!r}"
            )

        await self._until(unknown, timeout)
        partitions = self._newest_image().topics[OFFSETS_TOPIC].partitions
        return await self.leader_of(OFFSETS_TOPIC, partition_for(group, len(partitions)), timeout=timeout)

    async def controller(self, *, timeout: float = DEFAULT_TIMEOUT_S) -> int:
        """The broker that is the active controller; while there is none, wait for the election."""

        def leaders() -> list[tuple[int, int]]:
            quorums = [(node.quorum, broker) for broker, node in self._nodes().items()]
            return [(quorum.epoch, broker) for quorum, broker in quorums if quorum is not None and quorum.is_leader]

        await self._until(lambda: "" if leaders() else "no broker is the active controller", timeout)
        return max(leaders())[1]

    # --- Waiting ----------------------------------------------------------------------------------------------------

    async def wait_until_ready(self, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Return once all running brokers know that each of them is unfenced, and that each one that is down is not.

        After `kill` it is the time at which the cluster has taken notice. With fewer than a majority of the brokers
        running there is no controller, and no end to this but the timeout.
        """
        await self._until(lambda: not_ready(self._nodes()) or not_noticed(self._nodes(), self.brokers), timeout)

    async def wait_until_in_sync(self, topic: str, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Return once all replicas of all partitions of a topic are in sync. Brokers that are down are never that."""
        check_text("topic", topic)
        await self._until(lambda: not_in_sync(self._newest_image(), topic), timeout)

    async def wait_until_reassigned(self, topic: str, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Return once no partition of a topic is on its way to other replicas, and all of its replicas are in sync.

        By then every running broker has taken up what it gained and given up what it lost.
        """
        check_text("topic", topic)
        await self._until(lambda: not_reassigned(self._nodes(), topic), timeout)

    async def wait_until_told(self, *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Return once every running broker goes by all metadata that are committed now: settings, leaders, replicas."""
        offset = self._newest_image().offset

        def untold() -> str:
            late = [broker for broker, node in self._nodes().items() if node.feed.image.offset < offset]
            return f"brokers {late} have not read all metadata" if late else ""

        await self._until(untold, timeout)

    async def wait_until(self, condition: Callable[[], bool], *, timeout: float = DEFAULT_TIMEOUT_S) -> None:
        """Return once a condition holds, about files for example; it is asked on the loop of the cluster.

        Raises `ClusterError` when a broker fails meanwhile, or when the time is over.
        """
        check("condition", condition, callable(condition), "a function")
        await self._until(lambda: "" if condition() else "the condition does not hold", timeout)

    async def _until(self, missing: Callable[[], str], timeout: float) -> None:
        """Look again and again until nothing is missing. Raises `ClusterError` with what was."""
        check_number("timeout", timeout)
        deadline = asyncio.get_running_loop().time() + timeout
        while lack := missing():
            for broker, node in self._nodes().items():
                if node.failed.done():
                    raise ClusterError(f"broker {broker} failed: {node.failed.exception()!r}")
            if asyncio.get_running_loop().time() >= deadline:
                raise ClusterError(f"not within {timeout:g} s: {lack}", hint=f"running brokers: {self.running}")
            await asyncio.sleep(LOOK_AGAIN_S)

    # --- Inside -----------------------------------------------------------------------------------------------------

    async def _start(self, member: ClusterMember, *, stands_first: bool = False) -> None:
        assert self._layout is not None, "the cluster is not open"
        voters = [each.voter for each in self._members.values()]
        settings = broker_settings(member.broker, self._layout, voters, member.listeners, self._settings)
        try:
            await member.start(settings, stands_first=stands_first)
        except LogDirectoryLocked as error:
            hint = "close or stop that one first, or name another directory"
            raise ClusterError(
                f"{self._layout.log_directory(member.broker)} is in use by another cluster or process", hint=hint
            ) from error

    async def _ask(self, method: str, request: bytes, timeout: float) -> bytes:
        """One call as a client makes it, to the first running broker that answers.

        A broker whose answer is lost may have acted on the call.
        """
        assert self._network is not None, "the cluster is not open"
        failure = "no broker runs"
        for broker in self._nodes():
            try:
                return await self._network.call(admin_address(broker), method, request, timeout * 1000)
            except NetworkError as error:
                failure = f"broker {broker}: {error}"
        raise ClusterError(failure)

    async def _until_unfenced(self, timeout: float) -> None:
        """Return as soon as every broker's metadata say so of all, one has failed, or the time is over."""
        nodes = self._nodes().values()
        known: asyncio.Future[Any] = asyncio.gather(*(node.feed.wait_for(self._all_active) for node in nodes))
        try:
            ended = (known, *(node.failed for node in nodes))
            await asyncio.wait(ended, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            known.cancel()
            await asyncio.gather(known, return_exceptions=True)

    def _all_active(self, image: MetadataImage) -> bool:
        return all(map(image.is_active, self.brokers))

    def _partition(self, topic: str, partition: int) -> PartitionRegistration:
        check_text("topic", topic)
        check_whole("partition", partition)
        found = self._newest_image().partition(TopicPartition(topic, partition))
        if found is None:
            raise ClusterError(f"there is no partition {topic}-{partition}")
        return found

    def _newest_image(self) -> MetadataImage:
        images = [node.feed.image for node in self._nodes().values()]
        return max(images, key=lambda image: image.offset, default=MetadataImage())

    def _nodes(self) -> dict[int, Node]:
        """Of the brokers that run and are not frozen."""
        return {
            broker: member.node
            for broker, member in self._opened_here().items()
            if member.node is not None and not self._fabric.is_frozen(broker)
        }

    def _opened(self) -> dict[int, ClusterMember]:
        if not self._members:
            raise ClusterError("the cluster is not open", hint="use `with Cluster() as cluster:`")
        return self._members

    def _opened_here(self) -> dict[int, ClusterMember]:
        members = self._opened()
        self._check_loop()
        return members

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise ClusterError(
                "the cluster runs on another event loop",
                hint="call the methods of what `async with` gives, on the loop where it was entered",
            )

    def _member(self, broker: int) -> ClusterMember:
        check_whole("broker", broker)
        try:
            return self._opened_here()[broker]
        except KeyError:
            known = ", ".join(map(str, self._members))
            raise ClusterError(f"there is no broker {broker} in this cluster; there are {known}") from None

    def _running_member(self, broker: int) -> ClusterMember:
        member = self._member(broker)
        if member.node is None:
            raise ClusterError(f"broker {broker} does not run")
        return member

    @staticmethod
    async def _all(works: list[Coroutine[object, object, None]]) -> None:
        """Do all at the same time, to the end; then raise the first error."""
        for result in await asyncio.gather(*works, return_exceptions=True):
            if isinstance(result, BaseException):
                raise result


async def open_doors(cluster: AsyncCluster) -> None:
    """Listen for gRPC clients as well, where that was to wait until somebody asks for the addresses."""
    members = cluster._opened_here()
    cluster._fabric.doors_are_open = True
    await cluster._all([member.open_doors() for member in members.values()])
