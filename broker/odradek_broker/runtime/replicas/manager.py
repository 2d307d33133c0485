"""All replicas that this broker hosts, kept in the roles that the metadata give them.

The committed metadata arrive in order, one delta at a time; each changed partition becomes leader, follower or nothing
here (R-100 to R-107). Nothing in this module awaits while it applies a delta. A new log costs several fsyncs: if there
are many, all but a few get their directories in a thread, in portions. Until then such a partition has no replica here,
as on a broker that gets the metadata later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice

from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition
from odradek_proto.v1.controller_messages import ReplicaReport

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.config.topic_settings import log_settings, partition_settings
from odradek_broker.core.metadata.delta import MetadataDelta
from odradek_broker.core.metadata.image import NO_LEADER, BrokerRegistration, MetadataImage, PartitionRegistration
from odradek_broker.core.partition.messages import IsrAnswer, IsrProposal, PartitionSettings, TruncationMode
from odradek_broker.core.partition.policy import policy_for
from odradek_broker.core.partition.replication_quota import FOLLOWER, LEADER, ReplicationQuota
from odradek_broker.core.partition.roles import impossible_epoch, new_role, role_goes_on
from odradek_broker.runtime.offloading import finish
from odradek_broker.runtime.replicas.fetch_delay import FetchDelay
from odradek_broker.runtime.replicas.fetcher import Fetcher
from odradek_broker.runtime.replicas.flusher import Flusher
from odradek_broker.runtime.replicas.leader_probes import LeaderProbes
from odradek_broker.runtime.replicas.leadership import LeadershipListener, Leaderships
from odradek_broker.runtime.replicas.purgatory import Purgatory
from odradek_broker.runtime.replicas.replica import UNKNOWN, Replica
from odradek_broker.runtime.services import NodeServices
from odradek_broker.storage.errors import ROOM_BYTES, DiskFull, LogDirectoryFailed, StorageError, is_no_room
from odradek_broker.storage.log import Log

MOST_REPORTS = 1_000  # replicas in one heartbeat
HOSTED_AT_ONCE = 8  # new logs, before everybody else on the loop has a turn
PREPARED_AT_ONCE = 64  # directories of new logs: a stop waits for their end
PREPARING_THREADS = 3  # their fsyncs share the disk's journal; the fourth thread is for others


class ReplicaManager:
    """Hosts replicas. Implements `ReplicaServices` for them."""

    def __init__(
        self,
        settings: BrokerSettings,
        services: NodeServices,
        *,
        flusher: Flusher,
        broker_epoch: Callable[[], int],
        session_gone_ms: Callable[[], int],
        submit_isr: Callable[[IsrProposal], None],
        on_directory_failed: Callable[[Exception], None],
    ) -> None:
        self.clock = clock = services.clock
        self.events = services.events
        self.counters = services.counters
        self.purgatory = Purgatory(clock)
        self.replicas: dict[TopicPartition, Replica] = {}
        self.image = MetadataImage()
        self._settings = settings
        self._broker_id = settings.node_id
        self._services = services
        self._files = services.files
        self._directory = services.directory
        self._flusher = flusher
        self._broker_epoch = broker_epoch
        self._session_gone_ms = session_gone_ms
        self._submit_isr = submit_isr
        self._spawn = services.spawn
        self._on_directory_failed = on_directory_failed
        self._policy = policy_for(TruncationMode(settings.odradek_truncation_mode))
        self._leaderships = Leaderships()
        self.leader_quota = ReplicationQuota(LEADER)
        self.follower_quota = ReplicationQuota(FOLLOWER)
        self.fetch_delay = FetchDelay(clock)
        self._fetchers: dict[int, Fetcher] = {}
        self.probes = LeaderProbes(
            self._fetchers,
            clock=clock,
            session_timeout_ms=settings.broker_session_timeout_ms,
            spawn=services.spawn,
            events=services.events,
        )
        self._preloaded: dict[TopicPartition, Log] = {}
        self._broken: dict[TopicPartition, str] = {}  # replicas whose log could not be opened, and why
        self._without_room: dict[TopicPartition, None] = {}  # offline, or not made, until the disk has room
        self._is_short_of_space = False
        self._to_host: dict[TopicPartition, None] = {}  # replicas whose log is still to be made
        self.loaded = False
        self.leaving = False  # this broker has begun its controlled shutdown

    # --- Looking up -------------------------------------------------------------------------------------------------

    def lookup(self, tp: TopicPartition, topic_id: bytes = b"") -> Replica | ErrorCode:
        """The replica on this broker, or Kafka's code for why there is none (R-10, R-35)."""
        replica = self.replicas.get(tp)
        if replica is not None:
            if topic_id and topic_id != replica.state.topic_id:
                return ErrorCode.INCONSISTENT_TOPIC_ID
            return replica
        if self.image.partition(tp) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if tp in self._broken:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        """This broker's metadata about another one (R-47)."""
        return self.image.brokers.get(broker_id)

    @property
    def broken(self) -> Mapping[TopicPartition, str]:
        """Replicas whose log could not be opened, and why."""
        return self._broken

    @property
    def sound(self) -> bool:
        """Everything was loaded and nothing of it has failed: the next start may trust the logs as they are."""
        return self.loaded and not self._broken and all(each.offline is None for each in self.replicas.values())

    @property
    def has_room(self) -> bool:
        """Whether the disk takes anything more, as far as the file system knows (R-148)."""
        return self._has_free_space and not any(replica.trouble.is_full for replica in self.replicas.values())

    @property
    def _has_free_space(self) -> bool:
        """Where there was none it takes twice as much: a disk at its edge would pass leaderships back and forth."""
        wanted_bytes = 2 * ROOM_BYTES if self._is_short_of_space else ROOM_BYTES
        self._is_short_of_space = self._files.free_bytes(self._directory.path) < wanted_bytes
        return not self._is_short_of_space

    def on_leadership(self, topic: str, listener: LeadershipListener) -> None:
        """`listener` is called when this broker becomes leader of a partition of the topic, and when it ceases."""
        self._leaderships.register(topic, listener)

    def partition_settings(self, topic: str) -> PartitionSettings:
        return partition_settings(self._settings, self.image, topic)

    # --- Metadata ---------------------------------------------------------------------------------------------------

    def apply(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Bring every changed partition into the role that `image` gives it here."""
        self.image = image
        for deleted in delta.deleted_topics.values():
            for partition in deleted.partitions:
                self._stop_hosting(TopicPartition(deleted.name, partition), deleted.topic_id)
        new = [tp for tp in delta.partitions if self._is_new_here(tp) and tp not in self._to_host]
        self._host_later(new[HOSTED_AT_ONCE:])
        for tp in delta.partitions:
            registration = image.partition(tp)
            if registration is not None and tp not in self._to_host:
                self._bring_into_role(tp, registration)
        self._directory.flush_names()
        self._follow_less_when_leaving()
        if delta.topic_configs or delta.broker_configs:
            self._refresh_settings()
        if delta.topic_configs or delta.broker_configs or delta.deleted_topics:
            self._refresh_throttles()
        if delta.brokers:
            for replica in list(self.replicas.values()):
                replica.on_brokers_changed()
            for fetcher in self._fetchers.values():
                fetcher.address_changed()

    def _is_new_here(self, tp: TopicPartition) -> bool:
        registration = self.image.partition(tp)
        hosted = registration is not None and self._broker_id in registration.replicas
        return hosted and tp not in self.replicas and tp not in self._preloaded

    def _host_later(self, replicas: Sequence[TopicPartition]) -> None:
        if replicas and not self._to_host:
            self._spawn(self._host_in_portions())
        self._to_host.update(dict.fromkeys(replicas))

    async def _host_in_portions(self) -> None:
        """The metadata at the time of the partition's turn count: the topic may be gone, or another one of its name."""
        while portion := [*islice(self._to_host, PREPARED_AT_ONCE)]:
            wanted = {tp: self.image.topics[tp.topic].topic_id for tp in portion if self._is_new_here(tp)}
            parts = [dict([*wanted.items()][first::PREPARING_THREADS]) for first in range(PREPARING_THREADS)]
            made = [finish(self._files, self._directory.prepare(part)) for part in parts]
            for error in await asyncio.gather(*made, return_exceptions=True):
                if isinstance(error, LogDirectoryFailed):
                    self._on_directory_failed(error)
                    return
                if error is not None and not isinstance(error, DiskFull):  # which the opening meets, too, and says so
                    raise error
            for place, tp in enumerate(portion):
                if place % HOSTED_AT_ONCE == 0:
                    await self.clock.sleep(0)
                self._host_prepared(tp, wanted.get(tp))
            self._directory.flush_names()
            self._follow_less_when_leaving()

    def _host_prepared(self, tp: TopicPartition, topic_id: bytes | None) -> None:
        if tp not in self._to_host:
            return  # stopped
        del self._to_host[tp]
        registration = self.image.partition(tp)
        present = self.image.topics[tp.topic].topic_id if registration is not None else None
        if topic_id is not None and (topic_id != present or not self._is_new_here(tp)):
            try:
                self._delete(self._open(tp, topic_id))
            except (OSError, StorageError) as error:
                self.open_failed(tp, error)
        if registration is not None:
            self._bring_into_role(tp, registration)

    def _follow_less_when_leaving(self) -> None:
        """During this broker's own controlled shutdown: no fetch where there is no leader, or where the ISR no longer
        holds this broker; the log is kept (R-106).

        Nothing waits for such a copy any more. Its fetches would be wasted work for busy leaders, and it would take a
        high watermark of a term whose end this broker does not see. Metadata alone do not decide: a broker that a
        forged heartbeat called leaving stays up, and nothing would make it fetch again.
        """
        own = self.image.brokers.get(self._broker_id)
        if not self.leaving or own is None or not own.in_controlled_shutdown:
            return
        for tp, replica in self.replicas.items():
            known = replica.registration
            if known is not None and (known.leader == NO_LEADER or self._broker_id not in known.isr):
                for fetcher in self._fetchers.values():
                    fetcher.remove(tp)

    def preload(self, log: Log) -> None:
        """A log of an earlier process, opened and recovered before the metadata show whether it is still assigned."""
        self._preloaded[log.topic_partition] = log
        self._note_recovery(log)

    def _note_recovery(self, log: Log) -> None:
        """Count and log what opening a log has truncated, and log at every start which earlier records it lacks."""
        recovery = log.recovery
        self.counters.recovery_dropped_bytes += recovery.cut_bytes
        facts: dict[str, object] = {"partition": str(log.topic_partition), "log_end_offset": log.end_offset}
        if recovery.cut_offset is not None:
            cut = {"bytes": recovery.cut_bytes, "reason": recovery.reason}
            self.events.write("log_cut_in_recovery", "R-234", facts | cut)
        promised = self._directory.promised.get(log.topic_partition)
        if promised is not None:
            self.events.write("log_lacks_records", "R-146", facts | {"promised": promised})

    def apply_all(self, image: MetadataImage) -> None:
        """The first pass, once the existing logs are open. Unassigned ones are set aside."""
        delta = MetadataDelta()
        for topic in image.topics.values():
            for partition in sorted(topic.partitions):
                delta.partitions[TopicPartition(topic.name, partition)] = None
        self.apply(image, delta)
        self._refresh_throttles()
        for log in self._preloaded.values():
            self.events.write("stray_log_set_aside", "R-105", {"partition": str(log.topic_partition)})
            self._directory.set_aside_stray(log, self.clock.wall_ms())
        self._directory.flush_names()
        self._preloaded.clear()
        self.loaded = True

    def _bring_into_role(self, tp: TopicPartition, registration: PartitionRegistration) -> None:
        if self._broker_id not in registration.replicas:
            self._stop_hosting(tp)
            self._drop_preloaded(tp)
            return
        replica = self.replicas.get(tp)
        topic = self.image.topics[tp.topic]
        if replica is not None and replica.state.topic_id != topic.topic_id:
            self._stop_hosting(tp)  # the topic was made anew: the old log must not be used
            replica = None
        if replica is None:
            replica = self._host(tp, topic.topic_id)
            if replica is None:
                return
        known = replica.registration
        if known is not None and registration.partition_epoch < known.partition_epoch:
            return
        if known is not None and registration.leader == self._broker_id:
            self._count_isr_change(known.isr, registration.isr)
        if known is not None and replica.role is not None and role_goes_on(known, registration, self._broker_id):
            replica.update_registration(registration)
        else:
            self._leaderships.ceased(tp)
            self._enter_term(replica, registration)
        self._tell_leadership(replica)
        self._look_at_promise(replica)

    def _tell_leadership(self, replica: Replica) -> None:
        if replica.leader is not None and replica.offline is None:
            self._leaderships.began(replica.topic_partition, replica.leader.leader_epoch)

    def _look_at_promise(self, replica: Replica) -> None:
        if replica.has_promised(self._broker_id):
            replica.promise_kept()
            self._directory.promise_kept(replica.topic_partition)

    def reports(self) -> list[ReplicaReport]:
        """The reports to the controller about the copies here (R-146), about some of them if there are very many."""
        if not self.loaded:
            return []
        found = []
        for replica in self.replicas.values():
            self._look_at_promise(replica)
            if (report := replica.report()) is not None:
                found.append(report)
        for tp in self._broken:
            registration = self.image.partition(tp)
            if registration is not None:
                found.append(
                    ReplicaReport(
                        topic_id=self.image.topics[tp.topic].topic_id,
                        partition=tp.partition,
                        leader_epoch=registration.leader_epoch,
                        log_end_offset=UNKNOWN,
                        damaged=True,
                    )
                )
        return found[:MOST_REPORTS]

    def _count_isr_change(self, before: Sequence[int], after: Sequence[int]) -> None:
        """Counted by the leader afterwards, whether or not it decided the change: so each change is counted once in the
        cluster.
        """
        self.counters.isr_shrinks += any(member not in after for member in before)
        self.counters.isr_expands += any(member not in before for member in after)

    def _host(self, tp: TopicPartition, topic_id: bytes) -> Replica | None:
        loaded = self._preloaded.get(tp)
        if loaded is not None and loaded.state.topic_id == topic_id:
            del self._preloaded[tp]
            loaded.use(log_settings(self._settings, self.image, tp.topic))
            return self._keep(Replica(loaded, self))
        if loaded is not None:  # another topic of this name
            self._delete(self._preloaded.pop(tp))
        try:
            log = self._open(tp, topic_id)
        except (OSError, StorageError) as error:
            self.open_failed(tp, error)
            self._broken[tp] = str(error)
            if is_no_room(error):
                self._without_room[tp] = None
            return None
        self._broken.pop(tp, None)
        self._note_recovery(log)
        return self._keep(Replica(log, self))

    def _open(self, tp: TopicPartition, topic_id: bytes) -> Log:
        settings = log_settings(self._settings, self.image, tp.topic)
        return self._directory.open_log(tp, topic_id, settings, wall_ms=self.clock.wall_ms())

    def open_failed(self, tp: TopicPartition, error: OSError | StorageError) -> None:
        """A log that cannot be read, or has no room, is that replica's failure (R-86); a failing disk ends it."""
        self.events.write("replica_failed", "R-86", {"partition": str(tp), "reason": str(error)})
        if not _is_one_replicas(error):
            self._on_directory_failed(error)

    def _keep(self, replica: Replica) -> Replica:
        self.replicas[replica.topic_partition] = replica
        promised = self._directory.promised.get(replica.topic_partition)
        if promised is not None:
            replica.lacks(promised)
        self._flusher.after_append(replica)  # what a crash left unflushed does not count before it is on the disk
        return replica

    def _enter_term(self, replica: Replica, registration: PartitionRegistration) -> None:
        """A new leader epoch: the fetcher stops first, so that nothing is appended in between (R-101, R-103)."""
        tp = replica.topic_partition
        for fetcher in self._fetchers.values():
            fetcher.remove(tp)
        before, replica.registration = replica.role, registration
        impossible = impossible_epoch(replica.state, registration)
        if impossible is not None:
            replica.trouble.impossible_epoch(impossible.offset, impossible.epoch, registration.leader_epoch)
        role = new_role(
            before,
            replica.state,
            registration,
            broker_id=self._broker_id,
            settings=self.partition_settings(tp.topic),
            policy=self._policy,
            brokers=self,
            now_ms=self.clock.now_ms(),
        )
        replica.take_role(role)
        follows = registration.leader not in (self._broker_id, NO_LEADER)
        if follows and replica.offline is None:
            self._fetcher(registration.leader).add(replica)

    def _fetcher(self, leader_id: int) -> Fetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = Fetcher(
                self._settings,
                self._services,
                leader_id=leader_id,
                address=lambda: self._replication_address(leader_id),
                broker_epoch=self._broker_epoch,
                delay=self.fetch_delay,
                quota=self.follower_quota,
            )
            self._fetchers[leader_id] = fetcher
        return fetcher

    def _replication_address(self, broker_id: int) -> str | None:
        registration = self.image.brokers.get(broker_id)
        if registration is None or registration.fenced:
            return None
        return registration.endpoints.get(self._settings.inter_broker_listener_name.upper())

    def _stop_hosting(self, tp: TopicPartition, topic_id: bytes | None = None) -> None:
        """Not a replica any more, or the topic is gone (R-105). With a topic id: only that topic's replica."""
        self._broken.pop(tp, None)
        replica = self.replicas.get(tp)
        if replica is None or (topic_id is not None and replica.state.topic_id != topic_id):
            return
        self._leaderships.ceased(tp)
        del self.replicas[tp]
        for fetcher in self._fetchers.values():
            fetcher.remove(tp)
        replica.registration = self.image.partition(tp)
        replica.take_role(None)
        replica.close()
        self._flusher.forget(replica)
        if tp.topic not in self.image.topics:
            self.counters.forget(tp.topic)
        self._delete(replica.log)

    def _drop_preloaded(self, tp: TopicPartition) -> None:
        """The topic is there and this broker is no replica any more: it was reassigned while this broker was away."""
        log = self._preloaded.get(tp)
        if log is not None and log.state.topic_id == self.image.topics[tp.topic].topic_id:
            self._delete(self._preloaded.pop(tp))

    def _delete(self, log: Log) -> None:
        """Set a log aside, to be removed after file.delete.delay.ms (R-105)."""
        facts = {"partition": str(log.topic_partition), "log_end_offset": log.state.log_end_offset}
        self.events.write("replica_deleted", "R-105", facts)
        self._directory.delete_log(log, self.clock.wall_ms())

    def _refresh_settings(self) -> None:
        for tp, replica in self.replicas.items():
            replica.log.use(log_settings(self._settings, self.image, tp.topic))
            if replica.role is not None:
                replica.role.settings = self.partition_settings(tp.topic)
                replica.on_brokers_changed()

    def _refresh_throttles(self) -> None:
        """If that has changed: what is throttled goes on, or waits for another time (KIP-73)."""
        quotas = (self.leader_quota, self.follower_quota)
        changed = [quota.update(self.image, self._broker_id) for quota in quotas]
        for replica in self.replicas.values() if any(changed) else ():
            self.purgatory.complete(replica.follower_fetches)
            self.request_ready(replica)

    # --- ReplicaServices --------------------------------------------------------------------------------------------

    def propose_isr(self, replica: Replica, proposal: IsrProposal) -> None:
        self._submit_isr(proposal)

    def on_isr_answer(self, proposal: IsrProposal, answer: IsrAnswer) -> None:
        replica = self.replicas.get(proposal.topic_partition)
        if replica is not None and replica.state.topic_id == proposal.topic_id:
            replica.on_isr_answer(proposal, answer)

    def request_ready(self, replica: Replica) -> None:
        follower = replica.follower
        if follower is not None and follower.leader in self._fetchers:
            self._fetchers[follower.leader].request_ready(replica)

    def after_append(self, replica: Replica) -> None:
        self._flusher.after_append(replica)

    def may_acknowledge_alone(self) -> bool:
        return self._session_gone_ms() <= self._settings.odradek_session_grace_ms

    def session_returned(self) -> None:
        """The controller responds again: acks=all requests that waited for that may complete."""
        for replica in self.replicas.values():
            replica.complete_produces()

    def storage_failed(self, replica: Replica, error: Exception) -> None:
        """The replica goes offline. The others continue, unless the disk itself failed (R-86, R-238).

        Changed bytes, or an append that does not fit, concern one log; after a failed write or fsync nothing in the
        directory can be trusted, and the node stops.
        """
        reason = f"{replica.topic_partition}: {type(error).__name__}: {error}"
        self.events.write("replica_offline", "R-86", {"partition": str(replica.topic_partition), "reason": reason})
        if is_no_room(error):
            self._without_room[replica.topic_partition] = None
        self._leaderships.ceased(replica.topic_partition)
        replica.take_offline(reason)
        for fetcher in self._fetchers.values():
            fetcher.remove(replica.topic_partition)
        if not _is_one_replicas(error):
            self._on_directory_failed(error)

    def allow_gaps(self, replica: Replica) -> None:
        self._directory.write_cleaned(replica.log, replica.state.log_start_offset)

    def room_again(self) -> None:
        """A checkpoint could be written: replicas that the full disk had taken offline, or that could not be made
        there, start in their roles. Operations refused for lack of room had changed nothing yet.
        """
        if self._has_free_space:
            for replica in self.replicas.values():
                if replica.trouble.is_full:
                    replica.trouble.room_again()
        waiting, self._without_room = self._without_room, {}
        for tp in waiting:
            known, registration = self.replicas.get(tp), self.image.partition(tp)
            if known is None and registration is not None and tp in self._broken:
                self._bring_into_role(tp, registration)
            elif known is not None and known.offline is not None and known.registration is not None:
                known.offline = None
                self._enter_term(known, known.registration)
                self._tell_leadership(known)
        if waiting:
            self._directory.flush_names()

    # --- Time -------------------------------------------------------------------------------------------------------

    def check_isrs(self) -> None:
        """Called every replica.lag.time.max.ms / 2 (R-43)."""
        for replica in list(self.replicas.values()):
            replica.on_time()

    def leaders(self) -> Iterable[Replica]:
        return [replica for replica in self.replicas.values() if replica.leader is not None]

    async def stop(self) -> None:
        """Stop following; then answer all waiting requests (R-142)."""
        self._to_host.clear()
        for fetcher in list(self._fetchers.values()):
            await fetcher.stop()
        for tp, replica in self.replicas.items():
            self._leaderships.ceased(tp)
            replica.take_role(None)
            replica.close()
        self.purgatory.close()


def _is_one_replicas(error: Exception) -> bool:
    """Is this failure independent of the disk under the other logs?"""
    return is_no_room(error) or (isinstance(error, StorageError) and not isinstance(error, LogDirectoryFailed))
