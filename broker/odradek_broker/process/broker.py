"""The broker's part of a node: its session with the controller, its replicas, and what clients may ask of it.

The order of the start is R-150's: open the logs of before, register, apply the metadata, and only then ask to be
unfenced. The order of the stop is R-142's; the log directory is the node's, and is closed by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from odradek_proto.topics import OFFSETS_TOPIC, TopicPartition, topic_id_from_text
from odradek_proto.v1.controller_messages import RegisterBrokerRequest

from odradek_broker.config.listeners import inter_broker_listener, parse_voters
from odradek_broker.config.log_levels import SESSION
from odradek_broker.config.own_configs import OwnConfigs
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.config.startup_topics import parse_topics
from odradek_broker.config.startup_users import authorizer, parse_users
from odradek_broker.config.topic_settings import log_settings
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.partition.messages import IsrAnswer, IsrProposal
from odradek_broker.process.wiring import (
    advertised_endpoints,
    authentication,
    controller_settings,
    group_settings,
    new_salt,
)
from odradek_broker.requests.access import Access
from odradek_broker.requests.admin import AdminRequests
from odradek_broker.requests.context import ANONYMOUS, RequestContext
from odradek_broker.requests.fetch import FetchRequests
from odradek_broker.requests.groups import GroupRequests
from odradek_broker.requests.layer import Requests
from odradek_broker.requests.metadata import MetadataRequests
from odradek_broker.requests.offsets import OffsetRequests
from odradek_broker.requests.produce import ProduceRequests
from odradek_broker.requests.producer_ids import ProducerIdRequests
from odradek_broker.requests.quotas import Throttle
from odradek_broker.requests.records import RecordRequests
from odradek_broker.requests.unpacked import UnpackedProduces
from odradek_broker.runtime.groups.coordinator import GroupCoordinator, ImageView
from odradek_broker.runtime.groups.offsets_topic import OffsetsTopic
from odradek_broker.runtime.groups.partition import ShardServices
from odradek_broker.runtime.membership.broker_session import BrokerSession, SessionHooks
from odradek_broker.runtime.membership.controller_channel import ControllerChannel
from odradek_broker.runtime.membership.isr_channel import IsrChannel
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.runtime.membership.producer_id_blocks import ProducerIdBlocks
from odradek_broker.runtime.membership.topic_creation import TopicCreation
from odradek_broker.runtime.membership.user_creation import UserCreation
from odradek_broker.runtime.replicas.cleaner import LogCleaner
from odradek_broker.runtime.replicas.flusher import Flusher
from odradek_broker.runtime.replicas.maintenance import Maintenance
from odradek_broker.runtime.replicas.manager import ReplicaManager
from odradek_broker.runtime.replicas.replica import Replica
from odradek_broker.runtime.services import NodeServices
from odradek_broker.storage.errors import StorageError

SHUTDOWN_TIMEOUT_MS = 10_000  # how long a controlled shutdown may take before the node stops all the same
SHUTDOWN_POLL_MS = 20
SESSION_GIVE_UP_MS = 1_500  # who has had no session for so long, and may only believe in a leader, finds none
LEADERLESS_GIVE_UP_MS = 500  # a quorum that has a majority elects well within this


class Broker:
    """Made on a running loop; `start` returns when the logs are open, `caught_up` is set when clients may ask."""

    def __init__(
        self,
        settings: BrokerSettings,
        services: NodeServices,
        *,
        feed: MetadataFeed,
        channel: ControllerChannel,
        quorum_leader: Callable[[], int],
        on_failed: Callable[[BaseException], None],
        on_ready: Callable[[], None],
        on_fenced: Callable[[], None],
    ) -> None:
        self.settings = settings
        self.caught_up = asyncio.Event()  # the image has reached this broker's registration
        self._services = services
        self._clock = clock = services.clock
        self._files = services.files
        self._directory = services.directory
        self._events = services.events
        self._feed = feed
        self._channel = channel
        self._quorum_leader = quorum_leader
        self._spawn = spawn = services.spawn
        self._on_failed = on_failed
        self._on_ready = on_ready
        self._on_fenced = on_fenced
        self.recovered = False  # the logs of before are open
        self._counters = services.counters
        self._say = services.say
        self._stopping, self._loads = False, True
        self._endpoints: dict[str, str] = {}  # known when the node listens, told when the broker registers
        self.session = self._make_session()
        self._isr_channel = IsrChannel(
            clock=clock,
            channel=channel,
            broker_id=settings.node_id,
            broker_epoch=self._broker_epoch,
            on_answer=self._on_isr_answer,
            spawn=spawn,
            confirm=self.session.confirm,
        )
        self._flusher = Flusher(
            files=services.files,
            clock=clock,
            before_ack=settings.odradek_fsync == "before-ack",
            on_failed=self._on_flush_failed,
            counters=services.counters,
        )
        self.replicas = ReplicaManager(
            settings,
            services,
            flusher=self._flusher,
            broker_epoch=self._broker_epoch,
            session_gone_ms=lambda: self.session.stream_gone_for_ms(clock.now_ms()),
            submit_isr=self._submit_isr,
            on_directory_failed=self._on_directory_failed,
        )
        self.requests = self._make_requests()

    def _make_session(self) -> BrokerSession:
        properties = self._directory.properties
        return BrokerSession(
            self.settings,
            RegisterBrokerRequest(
                broker_id=self.settings.node_id,
                cluster_id=properties.cluster_id,
                rack=self.settings.broker_rack,
                previous_broker_epoch=self._directory.previous_broker_epoch,
                log_directory_id=topic_id_from_text(properties.directory_id or ""),
            ),
            clock=self._clock,
            network=self._services.network,
            channel=self._channel,
            feed=self._feed,
            endpoints=self._endpoints,
            hooks=SessionHooks(
                reports=lambda: self.replicas.reports(),
                unreachable=lambda: self.replicas.probes.unreachable,
                has_room=lambda: self.replicas.has_room,
                on_unfenced=self._on_unfenced,
                on_fenced=self._on_fenced,
                on_returned=self._on_session_returned,
                on_event=self._events.recorder(SESSION),
                say=self._say,
            ),
        )

    def _make_groups(self, access: Access) -> GroupRequests:
        settings, feed = self.settings, self._feed
        services = ShardServices(
            settings=group_settings(settings),
            commit_timeout_ms=settings.offsets_commit_timeout_ms,
            metadata=ImageView(lambda: feed.image),
            clock=self._clock,
            files=self._files,
            spawn=self._spawn,
            rebalances=self._counters.rebalances,
        )
        self.groups = coordinator = GroupCoordinator(services, self.replicas.replicas.__getitem__)
        self.replicas.on_leadership(OFFSETS_TOPIC, coordinator)
        topic = OffsetsTopic(
            settings,
            expected_brokers=self._expected_brokers(),
            feed=feed,
            create=lambda request, timeout_ms: self._ask_as_broker("CreateTopics", request, timeout_ms),
        )
        return GroupRequests(coordinator=coordinator, image=lambda: feed.image, offsets_topic=topic, access=access)

    def _make_requests(self) -> Requests:
        """What this broker may be asked, for every protocol that clients speak with it."""
        self._users_created = asyncio.Event()  # those that settings name; whoever deletes one later means it
        settings, replicas, feed = self.settings, self.replicas, self._feed
        own = OwnConfigs(settings, lambda: feed.image)
        access = Access(authorizer(settings), lambda: feed.image.acls, trusted=inter_broker_listener(settings))
        admin = AdminRequests(
            forward=self._channel.forward_admin,
            feed=feed,
            settings=controller_settings(settings, self._directory.properties.cluster_id),
            describe_own=own.describe,
            alter_own=own.alter,
            access=access,
        )
        blocks = ProducerIdBlocks(channel=self._channel, broker_id=settings.node_id, broker_epoch=self._broker_epoch)
        return Requests(
            produce=ProduceRequests(
                lookup=replicas.lookup,
                counters=self._counters,
                unpacked=UnpackedProduces(files=self._files, spawn=self._spawn),
                access=access,
            ),
            fetch=FetchRequests(
                clock=self._clock,
                files=self._files,
                lookup=replicas.lookup,
                purgatory=replicas.purgatory,
                counters=self._counters,
                max_bytes=settings.fetch_max_bytes,
                access=access,
                quota=replicas.leader_quota,
            ),
            metadata=MetadataRequests(
                image=lambda: feed.image,
                controller_id=self._quorum_leader,
                auto_create=settings.auto_create_topics_enable,
                create_topics=admin.create_with_defaults,
                caught_up=self.caught_up,
                inter_broker_listener=inter_broker_listener(settings),
                access=access,
            ),
            offsets=OffsetRequests(lookup=replicas.lookup, files=self._files, access=access),
            producer_ids=ProducerIdRequests(blocks.allocate, access),
            records=RecordRequests(replicas=replicas, broker_id=settings.node_id, access=access),
            groups=self._make_groups(access),
            admin=admin,
            authentication=authentication(settings, feed, self._clock, self._files, self._users_created),
            throttle=Throttle(self._clock, self._counters.timer),
        )

    def _broker_epoch(self) -> int:
        return self.session.broker_epoch

    # --- Start ------------------------------------------------------------------------------------------------------

    async def start(self, listening: Mapping[str, str]) -> None:
        """Open the logs of before, then follow the metadata, and begin the duties that go by the clock."""
        self._endpoints.update(advertised_endpoints(self.settings, listening))
        self._spawn(self._flusher.run())
        await self.session.start()
        self.session.failed.add_done_callback(self._on_session_failed)
        image = self._feed.image
        for tp, topic_id in self._directory.partitions().items():
            if not self._loads:
                return
            await self._load(tp, topic_id, image)
        self.recovered = True
        self._spawn(self._follow_metadata())
        if self.settings.odradek_create_topics:
            self._spawn(self._make_topic_creation().run())
        if self.settings.odradek_create_users:
            self._spawn(self._create_users())
        maintenance = Maintenance(
            settings=self.settings,
            clock=self._clock,
            files=self._files,
            replicas=self.replicas,
            directory=self._directory,
        )
        self._spawn(self.replicas.probes.run())
        for duty in maintenance.duties():
            self._spawn(duty())
        if self.settings.log_cleaner_enable:
            self._spawn(self._make_cleaner().run())

    def _make_cleaner(self) -> LogCleaner:
        return LogCleaner(
            settings=self.settings,
            clock=self._clock,
            files=self._files,
            replicas=self.replicas,
            directory=self._directory,
            events=self._events,
            counters=self._counters,
        )

    def load_no_more(self) -> None:
        """The node is about to stop: a start that still opens logs ends with the one that it has begun."""
        self._loads = False

    def _make_topic_creation(self) -> TopicCreation:
        settings = self.settings
        return TopicCreation(
            parse_topics(settings.odradek_create_topics),
            default_replicas=settings.default_replication_factor,
            expected_brokers=self._expected_brokers(),
            clock=self._clock,
            feed=self._feed,
            create=lambda request, timeout_ms: self._ask_as_broker("CreateTopics", request, timeout_ms),
            say=self._say,
        )

    def _expected_brokers(self) -> int:
        """How many a cluster has when all have started: the voters, if this one is both; else nobody knows."""
        voters = parse_voters(self.settings.controller_quorum_voters)
        return len(voters) if self.settings.node_id in voters else 0

    async def _create_users(self) -> None:
        """Once the metadata say who is there: a user whose password was changed since is left alone."""
        await self.caught_up.wait()
        creation = UserCreation(
            parse_users(self.settings.odradek_create_users),
            clock=self._clock,
            files=self._files,
            feed=self._feed,
            new_salt=new_salt,
            alter=lambda request, timeout_ms: self._ask_as_broker("AlterUserScramCredentials", request, timeout_ms),
        )
        await creation.run()
        self._users_created.set()

    async def _ask_as_broker(self, method: str, request: Any, timeout_ms: float) -> Any:
        """In this broker's own name: the topics and users that settings name, and the groups' topic."""
        own = RequestContext(ANONYMOUS, self.settings.inter_broker_listener_name.upper())
        return await self.requests.admin.call(own, method, request, timeout_ms)

    async def _load(self, tp: TopicPartition, topic_id: bytes, image: MetadataImage) -> None:
        """Recover one log of an earlier life away from the loop; a broken one is that replica's failure (R-86)."""
        settings, wall_ms = log_settings(self.settings, image, tp.topic), self._clock.wall_ms()
        try:
            log = await self._files.offload(lambda: self._directory.open_log(tp, topic_id, settings, wall_ms=wall_ms))
        except (OSError, StorageError) as error:
            self.replicas.open_failed(tp, error)  # asked again, and remembered, if the metadata still wants it
        else:
            self.replicas.preload(log)

    async def _follow_metadata(self) -> None:
        broker_epoch = await self.session.wait_until_registered()
        await self._feed.wait_for_offset(broker_epoch + 1)
        self.replicas.apply_all(self._feed.image)
        self.requests.throttle.update(self._feed.image.quotas)
        self._feed.subscribe(self._on_metadata)
        self.caught_up.set()
        self.session.set_ready()

    # --- What the parts report --------------------------------------------------------------------------------------

    def _on_metadata(self, image: MetadataImage, delta: MetadataDelta) -> None:
        if not self._stopping:
            self.replicas.apply(image, delta)
            self.requests.throttle.update(image.quotas)
            self.requests.groups.coordinator.on_metadata(image, delta)

    def _on_isr_answer(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        self.replicas.on_isr_answer(proposal, answer)

    def _submit_isr(self, proposal: IsrProposal) -> None:
        if not self._stopping:
            self._isr_channel.submit(proposal)

    def _on_unfenced(self) -> None:
        self._on_ready()
        self._on_session_returned()

    def _on_session_failed(self, failed: asyncio.Future[None]) -> None:
        error = failed.exception()
        assert error is not None
        self._on_failed(error)

    def _on_session_returned(self) -> None:
        self.replicas.session_returned()

    def _on_flush_failed(self, replica: Replica, error: Exception) -> None:
        self.replicas.storage_failed(replica, error)

    def _on_directory_failed(self, error: Exception) -> None:
        """The one log directory failed: a broker without a disk stops, as Kafka's does."""
        failure = RuntimeError(f"the log directory {self._directory.path} failed: {error}")
        failure.__cause__ = error
        self._on_failed(failure)

    # --- Stop -------------------------------------------------------------------------------------------------------

    async def hand_over(self) -> None:
        """Controlled shutdown, unless there is nobody left to hand over to: the whole cluster may be stopping."""
        if not self.settings.controlled_shutdown_enable or self._broker_epoch() < 0:  # not registered: leads nothing
            return
        self.replicas.leaving = True
        handed_over = asyncio.ensure_future(self.session.controlled_shutdown(SHUTDOWN_TIMEOUT_MS))
        leaderless_ms = 0
        while (
            not handed_over.done()
            and leaderless_ms < LEADERLESS_GIVE_UP_MS
            and self.session.stream_gone_for_ms(self._clock.now_ms()) < SESSION_GIVE_UP_MS
        ):
            await self._clock.sleep(SHUTDOWN_POLL_MS)
            leaderless_ms = leaderless_ms + SHUTDOWN_POLL_MS if self._quorum_leader() < 0 else 0
        handed_over.cancel()
        await asyncio.gather(handed_over, return_exceptions=True)

    async def stop(self, *, graceful: bool) -> None:
        """Stop following, answer those who wait, and leave the controller."""
        self._stopping = True
        self.requests.groups.close()
        if graceful:
            await self.replicas.stop()
        else:
            self.replicas.purgatory.close()
        await self._isr_channel.stop()
        await self.session.stop()
