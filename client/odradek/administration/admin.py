"""The administrator's client: topics, partitions, settings, and what the cluster says of itself.

Rules of this module. Any broker takes a question and passes it to the active controller. What only asks is repeated
while the cluster has nobody to answer; what changes something is repeated only when it surely did not happen, so
`NOT_CONTROLLER` and a refused connection are tried again and a lost answer is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar, Unpack

from odradek_proto.errors import ErrorCode
from odradek_proto.messages import Request, Response
from odradek_proto.security.acls import Acl, acl_of, in_messages
from odradek_proto.security.quotas import QuotaEntity
from odradek_proto.security.upsertions import scram_upsertions
from odradek_proto.topics import TopicPartition, topic_id_to_text
from odradek_proto.transport.ports import Clock, Network
from odradek_proto.v1 import admin_messages, broker_pb2

from odradek.administration.acls import ANY_ACL, AclFilter
from odradek.administration.descriptions import (
    ClusterDescription,
    ConfigEntry,
    CreatedTopic,
    NewTopic,
    PartitionReassignment,
    QuorumDescription,
    ReplicaDescription,
    ReplicasDescription,
    TopicDescription,
)
from odradek.administration.from_wire import (
    alteration,
    describe_cluster,
    describe_config,
    describe_quorum,
    describe_replica,
    describe_topic,
    described,
    filters_of,
    quotas_of,
    raise_first,
    topic_request,
)
from odradek.administration.groups import GroupAdmin
from odradek.shared.arguments import as_names, as_number, as_partition
from odradek.shared.config import AdminConfig, AdminSettings, BootstrapServers, build, from_dotted
from odradek.shared.errors import (
    BrokerError,
    BrokerUnreachable,
    ClientError,
    ConfigError,
    OdradekError,
    RequestTimeout,
    broker_error,
    raise_for,
)

ADMIN = "/odradek.v1.Admin/"
BROKER = "/odradek.v1.Broker/"
SALT_BYTES = 24
ANYBODY = QuotaEntity()
UP_TO_HIGH_WATERMARK = -1
DESCRIBE_TIMEOUT_MS = 2_000  # of one broker that describes its replicas: a frozen one is reported, not waited for
ANSWER_MS = 500  # of the time that a leader has for DeleteRecords, what is left to it to answer

ElectionType = Literal["preferred", "unclean"]
ResourceType = Literal["topic", "broker", "broker-logger", "group"]
R = TypeVar("R", bound=Response)


class Admin(GroupAdmin):
    """Use it with `async with`. Methods raise a `BrokerError` that says what the cluster refused, `BootstrapError`
    when nobody can be reached, `RequestTimeout`. Timeouts are seconds."""

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        *,
        clock: Clock | None = None,
        network: Network | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        config = build(AdminConfig, bootstrap_servers, settings)
        super().__init__(config, clock, network)
        self._config = config

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, clock: Clock | None = None, network: Network | None = None
    ) -> Self:
        """The same from Kafka's dotted names."""
        bootstrap_servers, settings = from_dotted(AdminConfig, config)
        return cls(bootstrap_servers, clock=clock, network=network, **settings)

    # --- topics ----------------------------------------------------------------------------------------------------

    async def create_topics(
        self, topics: Iterable[NewTopic], *, timeout: float | None = None, validate_only: bool = False
    ) -> list[CreatedTopic]:
        """Create topics. Raises the first topic's error, with notes on the others; those without one were created."""
        request = admin_messages.CreateTopicsRequest(
            topics=[topic_request(topic) for topic in _new_topics(topics)],
            timeout_ms=self._timeout_ms(timeout),
            validate_only=validate_only,
        )
        answer = await self._change(request, admin_messages.CreateTopicsResponse, timeout)
        raise_first(answer.topics)
        return [
            described(CreatedTopic, made, topic_id=topic_id_to_text(made.topic_id) if made.topic_id else "")
            for made in answer.topics
        ]

    async def delete_topics(self, topics: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete topics. Raises the first topic's error; those without one were deleted."""
        request = admin_messages.DeleteTopicsRequest(topics=as_names(topics), timeout_ms=self._timeout_ms(timeout))
        answer = await self._change(request, admin_messages.DeleteTopicsResponse, timeout)
        raise_first(answer.topics)

    async def create_partitions(self, topic: str, count: int, *, timeout: float | None = None) -> None:
        """Let a topic have `count` partitions in all. Keys may go to other partitions from then on."""
        request = admin_messages.CreatePartitionsRequest(topic=topic, count=count, timeout_ms=self._timeout_ms(timeout))
        await self._change(request, admin_messages.CreatePartitionsResponse, timeout, where=topic)

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted; internal ones only if they are wanted, too."""
        answer = await self._metadata(broker_pb2.MetadataRequest(all_topics=True))
        return sorted(topic.topic for topic in answer.topics if internal or not topic.internal)

    async def describe_topics(self, topics: Iterable[str] | None = None) -> list[TopicDescription]:
        """Partitions, leaders, ISRs; of all topics when none is named. Raises UNKNOWN_TOPIC_OR_PARTITION."""
        names = None if topics is None else as_names(topics)
        if names == []:
            return []
        answer = await self._metadata(broker_pb2.MetadataRequest(topics=names or [], all_topics=names is None))
        raise_first(answer.topics, [topic.topic for topic in answer.topics])
        found = [describe_topic(topic) for topic in answer.topics]
        return found if names is not None else sorted(found, key=lambda topic: topic.name)

    # --- partitions ---------------------------------------------------------------------------------------------------

    async def elect_leaders(
        self, election_type: ElectionType = "preferred", partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, BrokerError | None]:
        """Elect leaders, of all partitions when none is named; says of each what refused it, or None."""
        named = [admin_messages.ElectPartition(topic=topic, partition=number) for topic, number in partitions or ()]
        request = admin_messages.ElectLeadersRequest(election_type=election_type, partitions=named)
        answer = await self._change(request, admin_messages.ElectLeadersResponse)
        return _outcomes(answer.partitions)

    async def delete_records(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Raise log start offsets: what lies below is gone (-1: all below the high watermark).

        Returns the smallest log start offsets of the live replicas, once all of them have moved. The leader of each
        partition is asked. Raises the first partition's error.
        """
        cluster = self._require_running()
        timeout_ms = self._config.request_timeout_ms
        wanted: dict[TopicPartition, int] = {}  # all of it is looked at first: nothing brings records back
        for given, offset in offsets.items():
            wanted[partition := as_partition(given)] = UP_TO_HIGH_WATERMARK
            if offset != UP_TO_HIGH_WATERMARK:
                what = f"delete_records: {partition}: offset"
                wanted[partition] = as_number(what, offset, "-1: up to the high watermark")
        for partition in wanted:
            await cluster.require(partition, self._config.default_api_timeout_ms)
        low_watermarks: dict[TopicPartition, int] = {}
        for partition, offset in wanted.items():
            waits_ms = max(timeout_ms - ANSWER_MS, timeout_ms // 2)  # of the leader for its followers: it must answer
            request = broker_pb2.DeleteRecordsRequest(timeout_ms=waits_ms)
            request.partitions.add(topic=partition.topic, partition=partition.partition, offset=offset)

            async def ask(
                partition: TopicPartition = partition, request: broker_pb2.DeleteRecordsRequest = request
            ) -> int:
                leader = cluster.view.leader_of(partition).leader_id
                answer = await cluster.call_broker(
                    leader, BROKER + "DeleteRecords", request, broker_pb2.DeleteRecordsResponse, timeout_ms
                )
                raise_for(answer.partitions[0].error_code, where=str(partition))
                return answer.partitions[0].low_watermark

            # Deleting twice up to the same offset is deleting once, so this may be repeated.
            what = f"delete records of {partition}"
            running = self._require_running()
            low_watermarks[partition] = await running.patiently(what, self._config.default_api_timeout_ms, ask)
        return low_watermarks

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> dict[TopicPartition, BrokerError | None]:
        """Give partitions other replicas, preferred leader first (KIP-455); None goes back to those of before.

        It only begins here: `list_partition_reassignments` says what is on its way. Says of each partition what
        refused it, or None: INVALID_REPLICA_ASSIGNMENT, NO_REASSIGNMENT_IN_PROGRESS, UNKNOWN_TOPIC_OR_PARTITION, and
        INVALID_REPLICATION_FACTOR without `allow_replication_factor_change` (KIP-860).
        """
        for partition, replicas in reassignments.items():
            if replicas is not None and not replicas:
                raise ValueError(f"{partition}: a partition has at least one replica; None cancels a reassignment")
        request = admin_messages.AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms(timeout),
            keep_replication_factor=not allow_replication_factor_change,
            partitions=[
                admin_messages.ReassignedPartition(topic=topic, partition=number, replicas=replicas or ())
                for (topic, number), replicas in reassignments.items()
            ],
        )
        kind = admin_messages.AlterPartitionReassignmentsResponse
        answer = await self._change(request, kind, timeout)
        return _outcomes(answer.partitions)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The reassignments that are on their way, of all partitions when none is named."""
        named = None if partitions is None else list(partitions)
        if named == []:
            return {}
        wanted = [admin_messages.ElectPartition(topic=topic, partition=number) for topic, number in named or ()]
        request = admin_messages.ListPartitionReassignmentsRequest(partitions=wanted)
        kind = admin_messages.ListPartitionReassignmentsResponse
        answer = await self._ask(request, kind)
        return {
            TopicPartition(found.topic, found.partition): PartitionReassignment(
                tuple(found.replicas), tuple(found.adding_replicas), tuple(found.removing_replicas)
            )
            for found in answer.partitions
        }

    # --- settings -----------------------------------------------------------------------------------------------------

    async def describe_configs(self, resource_type: ResourceType, resource_name: str) -> list[ConfigEntry]:
        """The settings of a topic, a group, a broker (its id as text), or of all brokers (""), with their sources.

        A broker tells its own, and the levels of its loggers, so it must be up: `BrokerUnreachable` otherwise.
        """
        request = admin_messages.DescribeConfigsRequest(resource_type=resource_type, resource_name=resource_name)
        response = admin_messages.DescribeConfigsResponse
        if resource_type in ("broker", "broker-logger") and resource_name.isdecimal():
            answer = await self._ask_broker(int(resource_name), request, response)
        else:
            answer = await self._ask(request, response, where=resource_name)
        return [describe_config(entry) for entry in answer.entries]

    async def list_config_resources(
        self, resource_types: Iterable[Literal["topic", "broker", "group"]] = ()
    ) -> dict[str, dict[str, dict[str, str]]]:
        """Everything that can have settings, by type and name, with what was set for it while the cluster ran.

        `""` among the brokers stands for all of them; a group is there only if some were set. One call tells what
        `describe_configs` says of one after another.
        """
        request = admin_messages.ListConfigResourcesRequest(resource_types=as_names(resource_types))
        answer = await self._ask(request, admin_messages.ListConfigResourcesResponse)
        found: dict[str, dict[str, dict[str, str]]] = {}
        for each in answer.resources:
            found.setdefault(each.resource_type, {})[each.resource_name] = dict(each.configs)
        return found

    async def _ask_broker(self, broker_id: int, request: Request, kind: type[R]) -> R:
        cluster = self._require_running()
        known = {broker.broker_id: broker for broker in (await self.describe_cluster()).brokers}
        broker = known.get(broker_id)
        if broker is None:
            words = f"there is no broker {broker_id}; there are {', '.join(map(str, sorted(known)))}"
            raise broker_error(ErrorCode.INVALID_REQUEST, words)
        address, method = broker.endpoints.get(cluster.view.listener, ""), ADMIN + _method_of(request)
        answer = await cluster.call_address(address, method, request, kind, self._config.request_timeout_ms)
        return _checked(answer, str(broker_id))

    async def incremental_alter_configs(
        self,
        resource_type: ResourceType,
        resource_name: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        validate_only: bool = False,
    ) -> None:
        """Set some settings and take others back to their defaults; what is not named stays (KIP-339).

        `alter_configs` is its short name. Unlike Kafka's old call it keeps what is not named.

        It holds on every broker as soon as that one has read it, without a restart; levels of loggers on that broker
        until its end. Raises INVALID_CONFIG (of brokers INVALID_REQUEST, as in Kafka) for a name or a value that cannot
        be, and changes nothing then.
        """
        request = admin_messages.AlterConfigsRequest(
            resource_type=resource_type,
            resource_name=resource_name,
            set=dict(set or {}),
            unset=unset,
            validate_only=validate_only,
        )
        response = admin_messages.AlterConfigsResponse
        if resource_type == "broker-logger" and resource_name.isdecimal():
            await self._ask_broker(int(resource_name), request, response)
        else:
            await self._change(request, response, where=resource_name)

    alter_configs = incremental_alter_configs  # its short name: Kafka's old call of it resets what is not named

    # --- the cluster -------------------------------------------------------------------------------------------------

    async def describe_cluster(self, *, all_listeners: bool = False) -> ClusterDescription:
        """Brokers with their endpoints, and who is the active controller.

        The endpoints are those of the listener that was asked, or of all that clients may use.
        """
        return describe_cluster(await self._metadata(broker_pb2.MetadataRequest(all_listeners=all_listeners)))

    async def unregister_broker(self, broker_id: int, *, timeout: float | None = None) -> None:
        """Forget a broker that is gone for good. Raises INVALID_REQUEST while it is in session or has replicas."""
        request = admin_messages.UnregisterBrokerRequest(broker_id=broker_id)
        await self._change(request, admin_messages.UnregisterBrokerResponse, timeout)

    async def describe_quorum(self) -> QuorumDescription:
        """The metadata quorum: its leader, voters and observers."""
        request = admin_messages.DescribeQuorumRequest()
        return describe_quorum(await self._ask(request, admin_messages.DescribeQuorumResponse))

    async def describe_replicas(
        self, topics: Iterable[str] = (), *, brokers: Collection[int] | None = None, timeout: float | None = None
    ) -> ReplicasDescription:
        """What every broker, or these, say of the replicas that they host: log end offset, high watermark, epochs.

        All are asked at once, each at its own moment; one that does not answer is named with the reason. Raises
        `ClusterAuthorizationFailed` for whoever may not DESCRIBE the cluster.
        """
        cluster = self._require_running()
        described = await self.describe_cluster()
        request = broker_pb2.DescribeReplicasRequest(topics=as_names(topics))
        addresses = {
            broker.broker_id: broker.endpoints.get(cluster.view.listener, "")
            for broker in described.brokers
            if brokers is None or broker.broker_id in brokers
        }
        timeout_ms = DESCRIBE_TIMEOUT_MS if timeout is None else self._timeout_ms(timeout)

        full: list[int] = []

        async def ask(broker_id: int) -> list[ReplicaDescription] | str:
            try:
                answer = await cluster.call_address(
                    addresses[broker_id],
                    BROKER + "DescribeReplicas",
                    request,
                    broker_pb2.DescribeReplicasResponse,
                    timeout_ms,
                )
            except ClientError as error:
                return error.message
            if answer.disk_full:
                full.append(broker_id)
            return [describe_replica(broker_id, replica) for replica in answer.replicas]

        answers = await asyncio.gather(*[ask(broker_id) for broker_id in addresses])
        replicas: list[ReplicaDescription] = []
        unreachable: dict[int, str] = {}
        for broker_id, outcome in zip(addresses, answers, strict=True):
            if isinstance(outcome, str):
                unreachable[broker_id] = outcome
            else:
                replicas += outcome
        replicas.sort(key=lambda replica: (replica.topic, replica.partition, replica.broker_id))
        return ReplicasDescription(replicas, unreachable, sorted(full))

    # --- users ------------------------------------------------------------------------------------------------------

    async def describe_user_scram_credentials(self, users: Iterable[str] = ()) -> dict[str, list[str]]:
        """The mechanisms of users, of all when none is named. Raises RESOURCE_NOT_FOUND."""
        request = admin_messages.DescribeUserScramCredentialsRequest(users=as_names(users))
        answer = await self._ask(request, admin_messages.DescribeUserScramCredentialsResponse)
        raise_first(answer.users)
        return {user.name: [each.mechanism for each in user.credentials] for user in answer.users}

    async def upsert_user_scram_credentials(self, user: str, password: str) -> None:
        """Let a user authenticate with this password, by every mechanism; it is not sent itself."""
        salt = self._require_running().clock.rng.randbytes(SALT_BYTES)  # unique is enough
        upsertions = await asyncio.to_thread(scram_upsertions, user, password, salt)
        await self._alter_users(admin_messages.AlterUserScramCredentialsRequest(upsertions=upsertions))

    async def delete_user_scram_credentials(self, user: str) -> None:
        """Let a user authenticate no more; open connections go on. Raises RESOURCE_NOT_FOUND."""
        known = (await self.describe_user_scram_credentials([user]))[user]
        deletions = [admin_messages.ScramCredentialDeletion(name=user, mechanism=each) for each in known]
        await self._alter_users(admin_messages.AlterUserScramCredentialsRequest(deletions=deletions))

    async def _alter_users(self, request: admin_messages.AlterUserScramCredentialsRequest) -> None:
        answer = await self._change(request, admin_messages.AlterUserScramCredentialsResponse)
        raise_first(answer.users)

    # --- ACLs -------------------------------------------------------------------------------------------------------

    async def describe_acls(self, acl_filter: AclFilter = ANY_ACL) -> list[Acl]:
        """The ACLs that a filter finds. Raises SECURITY_DISABLED where brokers have no authorizer."""
        request = admin_messages.DescribeAclsRequest(filter=admin_messages.AclFilter(**in_messages(acl_filter)))
        answer = await self._ask(request, admin_messages.DescribeAclsResponse)
        return [acl_of(binding) for binding in answer.acls]

    async def create_acls(self, acls: Iterable[Acl]) -> None:
        """Make ACLs; one that is there already stays. Raises the first one's error."""
        named = list(acls)
        bindings = [admin_messages.AclBinding(**in_messages(acl)) for acl in named]
        request = admin_messages.CreateAclsRequest(acls=bindings)
        answer = await self._change(request, admin_messages.CreateAclsResponse)
        raise_first(answer.results, [acl.resource_name for acl in named])

    async def delete_acls(self, acl_filter: AclFilter) -> list[Acl]:
        """Remove the ACLs that a filter finds; returns them."""
        request = admin_messages.DeleteAclsRequest(filters=[admin_messages.AclFilter(**in_messages(acl_filter))])
        answer = await self._change(request, admin_messages.DeleteAclsResponse)
        raise_first(answer.results)
        return [acl_of(binding) for each in answer.results for binding in each.acls]

    # --- quotas -------------------------------------------------------------------------------------------------------

    async def describe_client_quotas(self, entity: QuotaEntity = ANYBODY) -> dict[QuotaEntity, dict[str, float]]:
        """All quotas, or those that are about the user or the client id which `entity` names."""
        request = admin_messages.DescribeClientQuotasRequest(filters=filters_of(entity))
        answer = await self._ask(request, admin_messages.DescribeClientQuotasResponse)
        return dict(quotas_of(each) for each in answer.entries)

    async def alter_client_quotas(self, entity: QuotaEntity, quotas: Mapping[str, float | None]) -> None:
        """Set quotas of a user, a client id, or both together, by Kafka's names; None removes one."""
        request = admin_messages.AlterClientQuotasRequest(entries=[alteration(entity, quotas)])
        answer = await self._change(request, admin_messages.AlterClientQuotasResponse)
        raise_first(answer.entries)

    # --- how it asks and orders ---------------------------------------------------------------------------------------

    def _timeout_ms(self, timeout: float | None) -> int:
        return self._config.request_timeout_ms if timeout is None else max(round(timeout * 1000), 1)

    async def _metadata(self, request: broker_pb2.MetadataRequest) -> broker_pb2.MetadataResponse:
        return await self._ask(request, broker_pb2.MetadataResponse, service=BROKER)

    async def _ask(self, request: Request, kind: type[R], *, where: str = "", service: str = ADMIN) -> R:
        """A question that changes nothing: repeated while there is hope. Raises the error of the whole answer."""
        cluster = self._require_running()
        name = _method_of(request)

        async def ask() -> R:
            answer = await cluster.ask_any(service + name, request, kind, self._config.request_timeout_ms)
            _raise_if_nobody_is_in_charge(answer)
            return answer

        return _checked(await cluster.patiently(name, self._config.default_api_timeout_ms, ask), where)

    async def _change(self, request: Request, kind: type[R], timeout: float | None = None, *, where: str = "") -> R:
        """An order: repeated only when it surely was not carried out. A lost answer is `RequestTimeout`.

        A lost connection is `BrokerUnreachable`. Raises the error of the whole answer.
        """
        cluster = self._require_running()
        name = _method_of(request)
        timeout_ms = self._timeout_ms(timeout)

        async def ask() -> R:
            try:
                answer = await cluster.call_any(ADMIN + name, request, kind, timeout_ms)
            except (BrokerUnreachable, RequestTimeout) as error:
                error.hint = error.hint or "whether the order was carried out is unknown: look before you repeat it"
                raise _Unknown(error) from None
            _raise_if_nobody_is_in_charge(answer)
            return answer

        try:
            patience_ms = max(timeout_ms, self._config.default_api_timeout_ms)
            return _checked(await cluster.patiently(name, patience_ms, ask), where)
        except _Unknown as unknown:
            raise unknown.error from None


class _Unknown(OdradekError):
    """Carries an error past those who would try again."""

    def __init__(self, error: OdradekError) -> None:
        super().__init__(error.message)
        self.error = error


def _method_of(request: Request) -> str:
    return type(request).__name__.removesuffix("Request")


def _checked(answer: R, where: str) -> R:
    raise_for(getattr(answer, "error_code", 0), getattr(answer, "error_message", ""), where=where)
    return answer


def _outcomes(
    results: Iterable[admin_messages.ElectionResult | admin_messages.ReassignmentResult],
) -> dict[TopicPartition, BrokerError | None]:
    found: dict[TopicPartition, BrokerError | None] = {}
    for each in results:
        partition = TopicPartition(each.topic, each.partition)
        error = broker_error(each.error_code, each.error_message, where=f"{each.topic}-{each.partition}")
        found[partition] = error if each.error_code else None
    return found


def _new_topics(given: NewTopic | Iterable[NewTopic]) -> list[NewTopic]:
    topics: list[Any] = [given] if isinstance(given, NewTopic | str) else [*given]
    for topic in topics:
        if not isinstance(topic, NewTopic):
            name = topic if isinstance(topic, str) else getattr(topic, "name", "orders")
            raise ConfigError(f"create_topics: {topic!r} is no NewTopic", hint=f"for example NewTopic({name!r}, 3)")
    return topics


def _raise_if_nobody_is_in_charge(answer: object) -> None:
    """NOT_CONTROLLER says that nothing was done, wherever it stands in the answer; so does, of the metadata log,
    NOT_LEADER_OR_FOLLOWER from a controller that was one when it was chosen."""
    if getattr(answer, "error_code", 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER:
        raise broker_error(ErrorCode.NOT_LEADER_OR_FOLLOWER, "no leader of the metadata quorum")
    items: Sequence[object] = [answer, *getattr(answer, "topics", ())]
    if any(getattr(item, "error_code", 0) == ErrorCode.NOT_CONTROLLER for item in items):
        raise broker_error(ErrorCode.NOT_CONTROLLER, "no active controller")


async def describe_all(admin: Admin) -> tuple[ClusterDescription, list[TopicDescription]]:
    """`describe_cluster` and `describe_topics` of one moment, by one request."""
    answer = await admin._metadata(broker_pb2.MetadataRequest(all_topics=True))
    return describe_cluster(answer), sorted(map(describe_topic, answer.topics), key=lambda topic: topic.name)
