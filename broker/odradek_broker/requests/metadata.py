"""Metadata: brokers, topics and leaders, from this broker's committed image.

- Named topics that do not exist get UNKNOWN_TOPIC_OR_PARTITION, or are created when both the request and
  `auto.create.topics.enable` say so. An unknown topic id is UNKNOWN_TOPIC_ID (KIP-516).
- A broker that has just started answers once its image has reached its own registration: what it knew before its
  last stop would send clients to leaders of the past. The caller's deadline bounds the wait.
- Fenced brokers are listed, marked; clients do not dial them.
- As in Kafka, endpoints are those of the listener on which the request came in. A broker without that listener is not
  listed, and a partition that it leads has LISTENER_NOT_FOUND. Who asks for all listeners gets all those for clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import ResourceType
from odradek_proto.topics import INTERNAL_TOPICS, validate_topic_name
from odradek_proto.values import Value

from odradek_broker.core.metadata.image import MetadataImage, TopicImage
from odradek_broker.requests.access import OPEN, Access
from odradek_broker.requests.context import RequestContext

CreateTopics = Callable[[RequestContext, Sequence[str]], Awaitable[None]]


class BrokerDescription(Value, frozen=True):
    broker_id: int
    endpoints: Mapping[str, str]  # listener name -> host:port
    rack: str
    fenced: bool
    broker_epoch: int


class PartitionDescription(Value, frozen=True):
    error: ErrorCode
    partition: int
    leader_id: int  # -1: none
    leader_epoch: int
    partition_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline_replicas: Sequence[int]
    eligible: Sequence[int]  # eligible leader replicas (KIP-966)
    last_known_eligible: Sequence[int]


class TopicDescription(Value, frozen=True):
    """With an error there are no partitions, and of name and id only the one that was asked for."""

    name: str
    topic_id: bytes
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    is_internal: bool = False
    partitions: Sequence[PartitionDescription] = ()


class ClusterDescription(Value, frozen=True):
    cluster_id: str
    controller_id: int  # -1: unknown
    brokers: Sequence[BrokerDescription]
    topics: Sequence[TopicDescription]


class MetadataRequests:
    """`create_topics` asks the controller with the default settings; failures show as unknown topics."""

    def __init__(
        self,
        *,
        image: Callable[[], MetadataImage],
        controller_id: Callable[[], int],
        auto_create: bool,
        create_topics: CreateTopics,
        caught_up: asyncio.Event,
        inter_broker_listener: str = "REPLICATION",  # the setting's default
        access: Access = OPEN,
    ) -> None:
        self._access = access
        self._inter_broker_listener = inter_broker_listener
        self._image = image
        self._controller_id = controller_id
        self._auto_create = auto_create
        self._create_topics = create_topics
        self._caught_up = caught_up

    def topic_name(self, topic_id: bytes) -> str | None:
        """The name of the topic with this id; None: there is none."""
        return self._image().topic_names.get(topic_id)

    def brokers(self, listener: str) -> list[BrokerDescription]:
        """Those that have this listener, fenced ones too."""
        return _brokers(self._image(), lambda name: name == listener)

    def groups_with_configs(self) -> list[str]:
        return list(self._image().group_configs)

    def refusal(self, context: RequestContext, api: str) -> ErrorCode:
        """NONE, or the error for whoever may not ask the cluster that."""
        return self._access.refusal(context, api)

    def operations_on_topic(self, context: RequestContext, topic: str) -> int:
        """As `Access.operations`."""
        return self._access.operations(context, ResourceType.TOPIC, topic)

    def operations_on_cluster(self, context: RequestContext) -> int:
        return self._access.operations(context, ResourceType.CLUSTER)

    def _hidden(self, context: RequestContext, topics: Sequence[str] | None, topic_ids: Sequence[bytes]) -> set[str]:
        """The topics that the caller may not see; those that it has not named are left out in silence."""
        if not self._access.is_on:
            return set()
        image = self._image()
        if topics is None:
            return {name for name in image.topics if self._access.refusal(context, "Metadata", name, told=False)}
        named = [*topics, *(image.topic_names.get(topic_id, "") for topic_id in topic_ids)]
        return {name for name in named if name and self._access.refusal(context, "Metadata", name)}

    async def metadata(
        self,
        context: RequestContext,
        topics: Sequence[str] | None,
        topic_ids: Sequence[bytes] = (),
        allow_auto_topic_creation: bool = False,
        all_listeners: bool = False,
    ) -> ClusterDescription:
        """The brokers, and these topics in the order of the request; `topics` None: all, () and no id: none."""
        await self._caught_up.wait()
        hidden_topics = self._hidden(context, topics, topic_ids)
        image = self._image()
        missing = [
            name
            for name in topics or ()
            if name not in image.topics and name not in INTERNAL_TOPICS and name not in hidden_topics
        ]
        if missing and allow_auto_topic_creation and self._auto_create:
            creatable = [name for name in missing if not self._access.refusal_to_create(context, name)]
            await self._create_topics(context, creatable)
            hidden_topics |= {*missing} - {*creatable}
        image, listener = self._image(), context.listener
        names = [name for name in image.topics if name not in hidden_topics] if topics is None else topics
        described = [_refused(name) if name in hidden_topics else _topic(image, name, listener) for name in names]
        described += [
            _refused("", topic_id)
            if image.topic_names.get(topic_id) in hidden_topics
            else _topic_by_id(image, topic_id, listener)
            for topic_id in topic_ids
        ]
        hidden = self._inter_broker_listener
        brokers = _brokers(image, lambda name: name == listener or (all_listeners and name != hidden))
        return ClusterDescription(image.cluster_id, self._controller_id(), brokers, described)


def _refused(name: str, topic_id: bytes = b"") -> TopicDescription:
    """Nothing is said of it, not even whether there is such a topic."""
    error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return TopicDescription(name, topic_id, error, error.message)


def _brokers(image: MetadataImage, told: Callable[[str], bool]) -> list[BrokerDescription]:
    """Those that have a listener that is told, with these."""
    found = []
    for broker in image.brokers.values():
        endpoints = {name: text for name, text in broker.endpoints.items() if told(name)}
        if endpoints:
            found.append(
                BrokerDescription(broker.broker_id, endpoints, broker.rack, broker.fenced, broker.broker_epoch)
            )
    return found


def _topic(image: MetadataImage, name: str, listener: str) -> TopicDescription:
    topic = image.topics.get(name)
    if topic is not None:
        internal = name in INTERNAL_TOPICS
        partitions = _partitions(image, topic, listener)
        return TopicDescription(name, topic.topic_id, is_internal=internal, partitions=partitions)
    try:
        validate_topic_name(name)
    except ValueError as error:
        return TopicDescription(name, b"", ErrorCode.INVALID_TOPIC_EXCEPTION, str(error))
    return TopicDescription(name, b"", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")


def _topic_by_id(image: MetadataImage, topic_id: bytes, listener: str) -> TopicDescription:
    name = image.topic_names.get(topic_id)
    if name is None:
        return TopicDescription("", topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    return _topic(image, name, listener)


def _partitions(image: MetadataImage, topic: TopicImage, listener: str) -> list[PartitionDescription]:
    active = {broker_id for broker_id, broker in image.brokers.items() if not broker.fenced}
    described = []
    for index, registration in sorted(topic.partitions.items()):
        error = ErrorCode.NONE if registration.leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
        leader = image.brokers.get(registration.leader)
        if leader is not None and listener not in leader.endpoints:
            error = ErrorCode.LISTENER_NOT_FOUND
        described.append(
            PartitionDescription(
                error=error,
                partition=index,
                leader_id=registration.leader,
                leader_epoch=registration.leader_epoch,
                partition_epoch=registration.partition_epoch,
                replicas=registration.replicas,
                isr=registration.isr,
                offline_replicas=[replica for replica in registration.replicas if replica not in active],
                eligible=registration.eligible,
                last_known_eligible=registration.last_known_eligible,
            )
        )
    return described
