"""One process of the cluster: listeners, quorum, controller and broker, wired together.

Everything that touches the world comes in by the three ports, so the same node runs as a process and in the simulated
world. It locks and opens the log directory, listens, joins the quorum, and starts the broker's part (R-150); it stops
in the order of R-142.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from odradek_proto.transport.ports import Clock, Files, Handlers, Network, Server

from odradek_broker.config import sources as config
from odradek_broker.config.listeners import (
    BROKERS,
    CLIENTS,
    CONTROLLERS,
    KAFKA_CLIENTS,
    ListenerKind,
    kind_of,
    metrics_address,
    nodes_use_tls,
    parse_listeners,
    parse_voters,
    protocol_of,
)
from odradek_broker.config.log_levels import CONTROLLER, QUORUM, SERVER
from odradek_broker.config.settings import BrokerSettings, SettingError
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.snapshot import image_of
from odradek_broker.kafka.listener import KafkaListener
from odradek_broker.process.broker import Broker
from odradek_broker.process.wiring import (
    controller_settings,
    identities,
    kafka_listener,
    quorum_settings,
)
from odradek_broker.rpc.of_nodes import of_nodes
from odradek_broker.rpc.services import BrokerServices, merge
from odradek_broker.rpc.timing import timed
from odradek_broker.runtime.controller.node import ControllerNode
from odradek_broker.runtime.controller.service import ControllerService
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.membership.controller_channel import ControllerChannel
from odradek_broker.runtime.membership.leader_watch import LeaderWatch
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.runtime.quorum.node import QuorumNode
from odradek_broker.runtime.services import NodeServices
from odradek_broker.storage.cache import RecentBatches
from odradek_broker.storage.directory import LogDirectory

logger = logging.getLogger(SERVER)

if TYPE_CHECKING:
    from odradek_broker.metrics.listener import MetricsListener

STOP_GRACE_MS = 200
NO_LEADER = -1
NO_BROKER_EPOCH = -1


class NodeQuorumListener:
    """Passes what the quorum says to whoever is there by then: the parts of a node know each other in a circle."""

    def __init__(self, feed: MetadataFeed) -> None:
        self.feed = feed
        self.freeze, self.on_commit, self.on_control = feed.freeze, feed.on_commit, feed.on_control
        self.controller: ControllerNode | None = None
        self.followers: list[Callable[[int, int], None]] = []

    def load(self, end_offset: int, epoch: int, records: Iterator[bytes]) -> MetadataImage:
        return image_of(records, end_offset, epoch)

    def on_snapshot(self, end_offset: int, epoch: int, state: object) -> None:
        assert isinstance(state, MetadataImage), state
        self.feed.on_snapshot(state)

    def on_leader(self, epoch: int) -> None:
        if self.controller is not None:
            self.controller.on_leader(epoch)

    def on_resigned(self, epoch: int) -> None:
        if self.controller is not None:
            self.controller.on_resigned(epoch)

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        if self.controller is not None:
            self.controller.on_leader_changed(leader_id, epoch)
        for follower in self.followers:
            follower(leader_id, epoch)


class Node:
    """A broker, a controller, or both. `failed` ends with the error that stopped the node, if one did."""

    def __init__(
        self,
        settings: BrokerSettings,
        *,
        clock: Clock,
        files: Files,
        network: Network,
        secured: Callable[[str], Network] | None = None,
        say: Callable[[str], None] = logger.info,
    ) -> None:
        """`say` tells whoever runs the node what they asked for, a sentence at a time.

        `secured` makes a network with TLS, of this ssl.client.auth.
        """
        self.settings = settings
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.feed = MetadataFeed()
        self.quorum: QuorumNode | None = None
        self.controller: ControllerNode | None = None
        self.broker: Broker | None = None
        self.counters = Counters()
        self.recent = RecentBatches(settings.odradek_cache_bytes)  # of all logs; the simulated world clears it
        self._clock = clock
        self._files = files
        self._plain = network
        self._secured = secured
        self._network = self._secure("required") if nodes_use_tls(settings) else network  # with other nodes
        self._say = say
        self._roles = config.roles(settings)
        self._directory: LogDirectory | None = None
        self._events: EventLog | None = None
        self._servers: dict[str, Server] = {}
        self._tasks: dict[asyncio.Future[None], None] = {}
        self._metrics: MetricsListener | None = None
        self._watch: LeaderWatch | None = None
        self._leaving = False  # leaderships are being handed over; from `_stopping` on nothing is served any more
        self._stopping = False

    def addresses(self) -> dict[str, str]:
        """Listener names and where they listen."""
        return {name: server.address for name, server in self._servers.items()}

    @property
    def metrics_address(self) -> str:
        """Where metrics and health are served, `host:port`; empty when they are not."""
        return "" if self._metrics is None else self._metrics.address

    @property
    def stopping(self) -> bool:
        return self._leaving or self._stopping

    # --- Start ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open, listen, join. Raises `OSError` for a taken port, and the log directory's own errors."""
        self._directory = await self._files.offload(self._open_directory)
        try:
            await self._start_metrics()
            await self._start_parts(self._directory)
        except (Exception, asyncio.CancelledError):  # not GeneratorExit: who is thrown away can wait for nothing
            await self.kill()
            raise

    def _open_directory(self) -> LogDirectory:
        settings = self.settings
        return LogDirectory.open(
            self._files,
            settings.log_dirs.split(",")[0].strip(),
            node_id=settings.node_id,
            cluster_id=settings.cluster_id or None,
            wall_ms=self._clock.wall_ms(),
            rng=self._clock.rng,
            cache=self.recent,
        )

    async def _start_metrics(self) -> None:
        """First of all, so that probes are answered while logs are recovered. Raises `SettingError`, `OSError`."""
        address = metrics_address(self.settings)
        if not address:
            return
        try:
            from odradek_broker.metrics.listener import MetricsListener  # brokers without it need not load it
        except ModuleNotFoundError as error:
            raise SettingError(
                f"odradek.metrics.listener needs the package {error.name}, which is not installed: "
                "pip install 'odradek[metrics]'"
            ) from error
        self._metrics = await MetricsListener.start(self, address)

    async def _start_parts(self, directory: LogDirectory) -> None:
        settings, clock, network = self.settings, self._clock, self._network
        self._events = events = EventLog(
            files=self._files,
            clock=clock,
            directory=directory.path,
            broker_id=settings.node_id,
            max_bytes=settings.odradek_events_max_bytes,
            enabled=settings.odradek_events_enable,
        )
        cluster_id = directory.properties.cluster_id
        listener = NodeQuorumListener(self.feed)
        self.quorum = quorum = QuorumNode(
            quorum_settings(settings, cluster_id),
            clock=clock,
            network=network,
            files=self._files,
            log_directory=directory.path,
            listener=listener,
            on_event=events.recorder(QUORUM),
            counters=self.counters,
        )
        voters = parse_voters(settings.controller_quorum_voters)
        channel = ControllerChannel(clock=clock, network=network, voters=voters, leader=self._quorum_leader)
        listener.followers.append(channel.on_leader_changed)  # before the session's: it looks where the channel points
        if "controller" in self._roles:
            listener.controller = self.controller = ControllerNode(
                controller_settings(settings, cluster_id),
                clock=clock,
                network=network,
                quorum=quorum,
                feed=self.feed,
                on_event=events.recorder(CONTROLLER),
            )
        if "broker" in self._roles:
            self.broker = self._make_broker(directory, events, channel)
            if self._leaving:
                self._load_no_more()
            listener.followers.append(self.broker.session.on_leader_changed)
        self._watch = LeaderWatch(
            node_id=settings.node_id,
            clock=clock,
            silent=quorum.silent_voters,
            may_speak=self._was_registered,
            say=self._say,
        )
        listener.followers.append(self._watch.on_leader_changed)
        await self._listen(quorum)
        self._watch.start()
        await quorum.start()
        quorum.failed.add_done_callback(self._on_task_done)
        if self.controller is not None:
            self.controller.failed.add_done_callback(self._on_task_done)
        if self.broker is not None:
            await self.broker.start(self.addresses())

    def _make_broker(self, directory: LogDirectory, events: EventLog, channel: ControllerChannel) -> Broker:
        return Broker(
            self.settings,
            NodeServices(
                clock=self._clock,
                files=self._files,
                network=self._network,
                directory=directory,
                events=events,
                counters=self.counters,
                spawn=self.spawn,
                say=self._say,
            ),
            feed=self.feed,
            channel=channel,
            quorum_leader=self._quorum_leader,
            on_failed=self._fail,
            on_ready=self._on_ready,
            on_fenced=self._on_fenced,
        )

    async def _listen(self, quorum: QuorumNode) -> None:
        """Open every listener before anything is asked: voters must hear each other to elect."""
        control = [quorum.handlers()]
        if self.controller is not None:
            control.append(ControllerService(self.controller).handlers())
        serving: dict[ListenerKind, Callable[[str], Handlers]] = {CONTROLLERS: lambda _: merge(*control)}
        if self.broker is not None:  # a mere controller has nothing for others
            services = BrokerServices(self.broker.requests, self.settings, self._clock)
            requests = self.broker.requests
            serving |= {
                CLIENTS: lambda name: services.for_clients(name, identities(name, requests, self.settings)),
                BROKERS: services.for_brokers,
            }
        for name, address in parse_listeners(self.settings.listeners).items():
            kind = kind_of(name, self.settings)
            if kind is KAFKA_CLIENTS and self.broker is not None:
                requests = self.broker.requests
                kafka = kafka_listener(name, requests, self.settings, self._clock, self.counters, self.feed)
                self._servers[name] = await self._network_of(name).listen_bytes(address, kafka.accept)
                self.spawn(_open(kafka, self.broker.caught_up))
            elif kind in serving:
                handlers = timed(serving[kind](name), self.counters)
                if self.settings.odradek_grpc_reflection_enable:
                    handlers = replace(handlers, reflection=True)
                if not kind.for_clients and self._network is not self._plain:
                    handlers = of_nodes(handlers)
                self._servers[name] = server = await self._network_of(name).serve(address, handlers)
                server.set_serving(not kind.for_clients)  # clients are served once the broker is unfenced

    def _network_of(self, listener: str) -> Network:
        if not kind_of(listener, self.settings).for_clients:
            return self._network
        tls = protocol_of(listener, self.settings).tls
        return self._secure(self.settings.ssl_client_auth) if tls else self._plain

    def _secure(self, client_auth: str) -> Network:
        if self._secured is None:
            raise SettingError("there is no TLS in this world: take listeners without")
        return self._secured(client_auth)

    async def wait_until_ready(self) -> None:
        """Until this broker is unfenced, or at once for a mere controller."""
        if self.broker is not None:
            await self.broker.session.wait_until_unfenced()

    # --- What the parts report --------------------------------------------------------------------------------------

    def _was_registered(self) -> bool:
        """Until then a broker says by itself that it waits for a controller."""
        return self.broker is None or self.broker.session.broker_epoch >= 0

    def _quorum_leader(self) -> int:
        return self.quorum.leader_id if self.quorum is not None else NO_LEADER

    def _on_ready(self) -> None:
        """The broker is unfenced: the health service of its client listeners says so."""
        if not self._stopping:
            for server in self._servers.values():
                server.set_serving(True)

    def _on_fenced(self) -> None:
        """The broker is fenced again: clients that look for a broker that serves are to look elsewhere."""
        for name, server in self._servers.items():
            if kind_of(name, self.settings).for_clients:
                server.set_serving(False)

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done() and not self._stopping:
            self.failed.set_exception(error)
            self._load_no_more()

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a part of this node; an error that nobody expected stops the node and is not swallowed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Future[None]) -> None:
        """A task has ended, or a part of the node has failed."""
        self._tasks.pop(task, None)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._fail(error)

    # --- Stop -------------------------------------------------------------------------------------------------------

    def slow_fetches(self, delay_ms: int, for_ms: int) -> None:
        """Fetch late from leaders for a while, as a follower on a slow machine does."""
        if self.broker is not None:
            self.broker.replicas.fetch_delay.set(delay_ms, for_ms)

    def leave(self) -> None:
        """It is to stop: a start that is under way opens no more logs, and returns. Call `stop` then."""
        self._leaving = True
        self._load_no_more()

    def _load_no_more(self) -> None:
        if self.broker is not None:
            self.broker.load_no_more()

    async def stop(self) -> None:
        """Controlled shutdown (R-142): hand over leaderships, stop fetching, flush, checkpoint, mark clean."""
        broker = self.broker
        self.leave()
        if broker is not None and not self.failed.done():
            await broker.hand_over()
        self._stopping = True
        sound = broker is None or broker.replicas.sound
        await self._end_parts(graceful=True)
        epoch = broker.session.broker_epoch if broker is not None else NO_BROKER_EPOCH
        await self._close_directory(clean=sound and not self.failed.done(), broker_epoch=epoch)

    async def kill(self) -> None:
        """Stop at once, as after an error: nothing is flushed, nothing is marked clean."""
        self._stopping = True
        await self._end_parts(graceful=False)
        await self._close_directory(clean=False, broker_epoch=NO_BROKER_EPOCH)

    async def _end_parts(self, *, graceful: bool) -> None:
        for server in self._servers.values():
            server.set_serving(False)
        if self._watch is not None:
            self._watch.stop()
        if self.broker is not None:
            await self.broker.stop(graceful=graceful)
        if self.controller is not None:
            await self.controller.stop()
        if self.quorum is not None:
            await self.quorum.stop(graceful)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._servers.values():
            await server.stop(STOP_GRACE_MS if graceful else 0)
        await self._network.close()
        if self._metrics is not None:
            await self._metrics.stop()

    async def _close_directory(self, *, clean: bool, broker_epoch: int) -> None:
        directory = self._directory
        if directory is not None:
            await self._files.offload(lambda: directory.close(clean=clean, broker_epoch=broker_epoch))
        if self._events is not None:
            self._events.close()


async def _open(listener: KafkaListener, caught_up: asyncio.Event) -> None:
    """Before that a broker does not know what it leads, and would tell clients that topics do not exist."""
    await caught_up.wait()
    listener.open()
