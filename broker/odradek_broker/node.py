"""One process of the cluster: listeners, quorum, controller and broker, wired together.

Everything that touches the world comes in by the three ports, so the same node runs as a process and in the simulated
world. The order of the start is R-150's: lock and open the log directory, listen, join the quorum, open the logs,
register, apply the metadata, and only then ask to be unfenced. The order of the stop is R-142's.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence

from odradek_proto.topics import TopicPartition, topic_id_from_text
from odradek_proto.transport.ports import Clock, Files, Handlers, Network, Server
from odradek_proto.v1.admin_pb2 import CreateTopicsResponse

from odradek_broker import config
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.partition.messages import IsrAnswer, IsrProposal
from odradek_broker.rpc.data import DataService
from odradek_broker.rpc.metadata import CREATE_TOPICS, MetadataService
from odradek_broker.rpc.offsets import OffsetsService
from odradek_broker.rpc.producer_ids import ProducerIdService
from odradek_broker.rpc.replicas import ReplicaService
from odradek_broker.rpc.services import BrokerServices, merge
from odradek_broker.runtime.controller_channel import ControllerChannel
from odradek_broker.runtime.controller_node import ControllerNode
from odradek_broker.runtime.events import EventLog
from odradek_broker.runtime.fetch_session import SessionLimits
from odradek_broker.runtime.flusher import Flusher
from odradek_broker.runtime.hosted import HostedReplica
from odradek_broker.runtime.isr_channel import IsrChannel
from odradek_broker.runtime.maintenance import Maintenance
from odradek_broker.runtime.metadata_feed import MetadataFeed
from odradek_broker.runtime.quorum_node import QuorumNode, QuorumSettings
from odradek_broker.runtime.replicas import ReplicaManager
from odradek_broker.runtime.session import BrokerSession, SessionSettings
from odradek_broker.runtime.topic_settings import log_settings, topic_defaults
from odradek_broker.settings import BrokerSettings
from odradek_broker.storage.cache import RecentBatches
from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.errors import StorageError

SHUTDOWN_TIMEOUT_MS = 10_000  # how long a controlled shutdown may take before the node stops all the same
SHUTDOWN_POLL_MS = 20
LEADERLESS_GIVE_UP_MS = 500  # a quorum that has a majority elects well within this
STOP_GRACE_MS = 200


class _QuorumListener:
    """Passes what the quorum says to whoever is there by then: the parts of a node know each other in a circle."""

    def __init__(self) -> None:
        self.feed: MetadataFeed | None = None
        self.controller: ControllerNode | None = None
        self.followers: list[Callable[[int, int], None]] = []

    def on_commit(self, base_offset: int, epoch: int, records: Sequence[bytes]) -> None:
        if self.feed is not None:
            self.feed.on_commit(base_offset, epoch, records)

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


async def _watch(failed: asyncio.Future[None]) -> None:
    """Ends with the error that a part of the node died of, if it does."""
    await asyncio.shield(failed)


class Node:
    """A broker, a controller, or both. `start` returns when it listens; `ready` is set once it is unfenced."""

    def __init__(self, settings: BrokerSettings, *, clock: Clock, files: Files, network: Network) -> None:
        self.settings = settings
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._clock = clock
        self._files = files
        self._network = network
        self._roles = config.roles(settings)
        self._voters = config.parse_voters(settings.controller_quorum_voters)
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: dict[str, Server] = {}
        self._stopping = False
        self.session: BrokerSession | None = None
        self.replicas: ReplicaManager | None = None
        self.controller: ControllerNode | None = None
        self.quorum: QuorumNode | None = None
        self.feed = MetadataFeed()
        self.caught_up = asyncio.Event()  # the image has reached this broker's registration

    @property
    def is_broker(self) -> bool:
        return "broker" in self._roles

    def addresses(self) -> dict[str, str]:
        """Listener names and where they listen."""
        return {name: server.address for name, server in self._servers.items()}

    # --- Start ------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open, listen, join. Raises `OSError` for a taken port, and the log directory's own errors."""
        settings = self.settings
        path = settings.log_dirs.split(",")[0].strip()
        clock, files = self._clock, self._files
        cluster_id = settings.cluster_id
        self._directory = await files.offload(
            lambda: LogDirectory.open(
                files,
                path,
                node_id=settings.node_id,
                cluster_id=cluster_id or None,
                wall_ms=clock.wall_ms(),
                rng=clock.rng,
                cache=RecentBatches(settings.odradek_cache_bytes),
            )
        )
        try:
            await self._start_parts(path)
        except BaseException:
            await self.kill()
            raise

    async def _start_parts(self, path: str) -> None:
        settings, clock = self.settings, self._clock
        self.events = EventLog(
            files=self._files,
            clock=clock,
            directory=path,
            broker_id=settings.node_id,
            enabled=settings.odradek_events_enable,
        )
        listener = _QuorumListener()
        listener.feed = self.feed
        self.quorum = QuorumNode(
            self._quorum_settings(),
            clock=clock,
            network=self._network,
            files=self._files,
            log_directory=path,
            listener=listener,
            on_event=self._on_event,
        )
        self.channel = ControllerChannel(
            clock=clock, network=self._network, voters=self._voters, leader=lambda: self._quorum_leader()
        )
        listener.followers.append(self.channel.on_leader_changed)
        if "controller" in self._roles:
            self.controller = ControllerNode(
                self._controller_settings(),
                clock=clock,
                network=self._network,
                quorum=self.quorum,
                feed=self.feed,
                on_event=self._on_event,
            )
            listener.controller = self.controller
        services = self._build_broker(listener) if self.is_broker else None
        await self._listen(services)
        await self.quorum.start()
        self.spawn(_watch(self.quorum.failed))
        if self.controller is not None:
            self.spawn(_watch(self.controller.failed))
        if self.is_broker:
            await self._start_broker()

    def _quorum_leader(self) -> int:
        return self.quorum.leader_id if self.quorum is not None else -1

    def _build_broker(self, listener: _QuorumListener) -> BrokerServices:
        settings, clock = self.settings, self._clock
        self.flusher = Flusher(
            files=self._files,
            clock=clock,
            before_ack=settings.odradek_fsync == "before-ack",
            on_failed=self._on_flush_failed,
        )
        self.session = session = BrokerSession(
            settings=SessionSettings(
                settings.broker_heartbeat_interval_ms,
                settings.broker_session_timeout_ms,
                settings.odradek_session_grace_ms,
            ),
            clock=clock,
            channel=self.channel,
            network=self._network,
            feed=self.feed,
            broker_id=settings.node_id,
            cluster_id=self._directory.properties.cluster_id,
            endpoints=self._advertised(),
            rack=settings.broker_rack,
            previous_broker_epoch=self._directory.previous_broker_epoch,
            log_directory_id=topic_id_from_text(self._directory.properties.directory_id or ""),
            on_unfenced=self._on_unfenced,
            on_event=self._on_event,
        )
        listener.followers.append(session.on_leader_changed)
        self.isr_channel = IsrChannel(
            clock=clock,
            channel=self.channel,
            broker_id=settings.node_id,
            broker_epoch=lambda: session.broker_epoch,
            on_answer=self._on_isr_answer,
        )
        self.replicas = replicas = ReplicaManager(
            settings=settings,
            clock=clock,
            network=self._network,
            directory=self._directory,
            events=self.events,
            flusher=self.flusher,
            broker_epoch=lambda: session.broker_epoch,
            session_gone_ms=lambda: session.stream_gone_for_ms(clock.now_ms()),
            submit_isr=self._submit_isr,
            spawn=self.spawn,
            on_directory_failed=self._on_directory_failed,
        )
        limits = SessionLimits(
            settings.fetch_max_bytes, settings.odradek_stream_credit_bytes, settings.replica_fetch_wait_max_ms
        )
        return BrokerServices(
            data=DataService(
                replicas=replicas,
                clock=clock,
                limits=limits,
                stream_credit_bytes=settings.odradek_stream_credit_bytes,
            ),
            metadata=MetadataService(
                image=lambda: self.feed.image,
                controller_id=self._quorum_leader,
                auto_create=settings.auto_create_topics_enable,
                forward_admin=self.channel.forward_admin,
                caught_up=self.caught_up,
            ),
            offsets=OffsetsService(lookup=replicas.lookup, files=self._files),
            producer_ids=ProducerIdService(
                channel=self.channel, broker_id=settings.node_id, broker_epoch=lambda: session.broker_epoch
            ),
            replicas=ReplicaService(replicas=replicas, broker_id=settings.node_id),
            forward_admin=self._forward_admin,
        )

    async def _forward_admin(self, method: str, request: bytes, timeout_ms: float) -> bytes:
        """Pass it to the controller; what it created is known here, too, before the caller hears of it."""
        answer = await self.channel.forward_admin(method, request, timeout_ms)
        if method == CREATE_TOPICS:
            created = [topic.name for topic in CreateTopicsResponse.FromString(answer).topics if not topic.error_code]
            known = self.feed.wait_for(lambda image: all(name in image.topics for name in created))
            with contextlib.suppress(TimeoutError):  # the controller has it: this broker will hear of it
                await asyncio.wait_for(known, timeout_ms / 1000)
        return answer

    def _advertised(self) -> dict[str, str]:
        text = self.settings.advertised_listeners or self.settings.listeners
        controller = self._controller_listeners()
        return {name: address for name, address in config.parse_listeners(text).items() if name not in controller}

    def _controller_listeners(self) -> set[str]:
        return {name.strip() for name in self.settings.controller_listener_names.split(",")}

    async def _listen(self, services: BrokerServices | None) -> None:
        assert self.quorum is not None
        controller = self._controller_listeners()
        control = [self.quorum.handlers()]
        if self.controller is not None:
            control.append(self.controller.handlers())
        for name, address in config.parse_listeners(self.settings.listeners).items():
            handlers: Handlers | None
            if name in controller:
                handlers = merge(*control)
            else:
                handlers = services.handlers() if services is not None else None
            if handlers is not None:
                self._servers[name] = await self._network.serve(address, handlers)

    async def _start_broker(self) -> None:
        """Open the logs of before, then follow the metadata, then say that we are ready."""
        assert self.replicas is not None
        assert self.session is not None
        self.spawn(self.flusher.run())
        await self.session.start()
        self.spawn(_watch(self.session.failed))
        image = self.feed.image
        for tp, topic_id in self._directory.partitions().items():
            await self._load(tp, topic_id, image)
        self.spawn(self._follow_metadata())
        maintenance = Maintenance(
            settings=self.settings,
            clock=self._clock,
            files=self._files,
            replicas=self.replicas,
            directory=self._directory,
        )
        self._maintenance = maintenance
        for duty in maintenance.duties():
            self.spawn(duty())

    async def _load(self, tp: TopicPartition, topic_id: bytes, image: MetadataImage) -> None:
        """Recover one log of an earlier life away from the loop; a broken one is that replica's failure (R-86)."""
        assert self.replicas is not None
        settings, wall_ms = log_settings(self.settings, image, tp.topic), self._clock.wall_ms()
        try:
            log = await self._files.offload(lambda: self._directory.open_log(tp, topic_id, settings, wall_ms=wall_ms))
        except (OSError, StorageError) as error:
            self.events.write("replica_failed", "R-86", {"partition": str(tp), "reason": str(error)})
        else:
            self.replicas.preload(log)

    async def _follow_metadata(self) -> None:
        assert self.replicas is not None
        assert self.session is not None
        broker_epoch = await self.session.wait_until_registered()
        await self.feed.wait_for_offset(broker_epoch + 1)
        self.replicas.apply_all(self.feed.image)
        self.caught_up.set()
        self.feed.subscribe(self._on_metadata)
        self.session.set_ready()
        await self.session.wait_until_unfenced()

    async def wait_until_ready(self) -> None:
        """Until this broker is unfenced, or at once for a mere controller."""
        if self.session is not None:
            await self.session.wait_until_unfenced()

    # --- What the parts report --------------------------------------------------------------------------------------

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if self.replicas is not None and not self._stopping:
            self.replicas.apply(image, delta)

    def _on_isr_answer(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        if self.replicas is not None:
            self.replicas.on_isr_answer(proposal, answer)

    def _submit_isr(self, proposal: IsrProposal) -> None:
        if not self._stopping:
            self.isr_channel.submit(proposal)

    def _on_unfenced(self) -> None:
        if self.replicas is not None:
            self.replicas.session_returned()

    def _on_event(self, event: str, facts: Mapping[str, object]) -> None:
        self.events.write(event, str(facts.get("rule", "")), {k: v for k, v in facts.items() if k != "rule"})

    def _on_flush_failed(self, hosted: HostedReplica, error: Exception) -> None:
        if self.replicas is not None:
            self.replicas.storage_failed(hosted, error)

    def _on_directory_failed(self, error: Exception) -> None:
        """The one log directory failed: a broker without a disk stops, as Kafka's does."""
        self._fail(RuntimeError(f"the log directory {self._directory.path} failed: {error}"))

    def _fail(self, error: BaseException) -> None:
        if not self.failed.done() and not self._stopping:
            self.failed.set_exception(error)

    def spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run a part of this node; an error that nobody expected stops the node and is not swallowed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            error = task.exception()
            if error is not None:
                self._fail(error)

    # --- Stop -------------------------------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Controlled shutdown (R-142): hand over leaderships, stop fetching, flush, checkpoint, mark clean."""
        if self.session is not None and self.settings.controlled_shutdown_enable and not self.failed.done():
            await self._hand_over(self.session)
        self._stopping = True
        loaded = self.replicas is not None and self.replicas.loaded
        if self.replicas is not None:
            await self.replicas.stop()
        await self._end_parts(graceful=True)
        clean = loaded and not self.failed.done()
        epoch = self.session.broker_epoch if self.session is not None else -1
        await self._close_directory(clean=clean, broker_epoch=epoch)

    async def _hand_over(self, session: BrokerSession) -> None:
        """Controlled shutdown, unless there is nobody left to hand over to: the whole cluster may be stopping."""
        handed_over = asyncio.ensure_future(session.controlled_shutdown(SHUTDOWN_TIMEOUT_MS))
        leaderless_ms = 0
        while not handed_over.done() and leaderless_ms < LEADERLESS_GIVE_UP_MS:
            await self._clock.sleep(SHUTDOWN_POLL_MS)
            leaderless_ms = leaderless_ms + SHUTDOWN_POLL_MS if self._quorum_leader() < 0 else 0
        handed_over.cancel()
        await asyncio.gather(handed_over, return_exceptions=True)

    async def kill(self) -> None:
        """Stop at once, as after an error: nothing is flushed, nothing is marked clean."""
        self._stopping = True
        await self._end_parts(graceful=False)
        await self._close_directory(clean=False, broker_epoch=-1)

    async def _end_parts(self, *, graceful: bool) -> None:
        for server in self._servers.values():
            server.set_serving(False)
        if self.is_broker and hasattr(self, "isr_channel"):
            await self.isr_channel.stop()
        if self.session is not None:
            await self.session.stop()
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

    async def _close_directory(self, *, clean: bool, broker_epoch: int) -> None:
        await self._files.offload(lambda: self._directory.close(clean=clean, broker_epoch=broker_epoch))
        if hasattr(self, "events"):
            self.events.close()

    # --- From settings ----------------------------------------------------------------------------------------------

    def _quorum_settings(self) -> QuorumSettings:
        settings = self.settings
        return QuorumSettings(
            node_id=settings.node_id,
            cluster_id=self._directory.properties.cluster_id,
            voters=self._voters,
            election_timeout_ms=settings.controller_quorum_election_timeout_ms,
            fetch_timeout_ms=settings.controller_quorum_fetch_timeout_ms,
            election_backoff_max_ms=settings.controller_quorum_election_backoff_max_ms,
            request_timeout_ms=settings.controller_quorum_request_timeout_ms,
            retry_backoff_ms=settings.controller_quorum_retry_backoff_ms,
        )

    def _controller_settings(self) -> ControllerSettings:
        settings = self.settings
        return ControllerSettings(
            node_id=settings.node_id,
            cluster_id=self._directory.properties.cluster_id,
            session_timeout_ms=settings.broker_session_timeout_ms,
            heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
            session_grace_ms=settings.odradek_session_grace_ms,
            early_fencing=settings.odradek_session_early_fencing,
            default_replication_factor=settings.default_replication_factor,
            num_partitions=settings.num_partitions,
            min_insync_replicas=settings.min_insync_replicas,
            unclean_leader_election_enable=settings.unclean_leader_election_enable,
            leader_imbalance_check_interval_s=settings.leader_imbalance_check_interval_seconds,
            auto_leader_rebalance=settings.auto_leader_rebalance_enable,
            elr_enable=settings.odradek_elr_enable,
            fast_restart_keeps_isr=settings.odradek_legacy_fast_restart_keeps_isr,
            inter_broker_listener=settings.inter_broker_listener_name,
            topic_defaults=topic_defaults(settings),
        )
