"""The admin requests of a cluster: one table, of their types and of what decides them at the active controller.

A new one is a line here and a function beside it. Brokers pass all of them on (requests/admin.py); the active
controller looks them up by name and carries out what was decided (runtime/controller/admin.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from odradek_proto.messages import Message
from odradek_proto.v1 import admin_messages
from odradek_proto.values import Value

from odradek_broker.core.context import RequestContext
from odradek_broker.core.controller.balance import elect_leaders
from odradek_broker.core.controller.configs import alter_configs, describe_configs
from odradek_broker.core.controller.decision import Decision
from odradek_broker.core.controller.reassignment import alter_partition_reassignments, list_partition_reassignments
from odradek_broker.core.controller.registration import unregister_broker
from odradek_broker.core.controller.security import (
    alter_quotas,
    alter_users,
    create_acls,
    delete_acls,
    describe_acls,
    describe_quotas,
    describe_users,
)
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.controller.topics import create_partitions, create_topics, delete_topics
from odradek_broker.core.metadata.image import MetadataImage


class AdminCall(Value, frozen=True):
    """One request at the active controller. `image` runs ahead of the commit, for a reading request it does not."""

    context: RequestContext  # of the client, also when a broker has passed the request on
    request: Any  # of the method's request type
    image: MetadataImage
    settings: ControllerSettings
    rng: random.Random
    describe_quorum: Callable[[], admin_messages.DescribeQuorumResponse]


class Change(Value, frozen=True):
    """A request that may change something: it is sent at most once, and answered when its records are committed."""

    request: type[Message]
    response: type[Message]
    decide: Callable[[AdminCall], Decision[Any]]
    kafka_name: str = ""  # where Kafka's differs


class Reading(Value, frozen=True):
    """A request that changes nothing: it may be sent twice, and is answered at once from what is committed."""

    request: type[Message]
    response: type[Message]
    answer: Callable[[AdminCall], Message]
    kafka_name: str = ""


ADMIN_REQUESTS: Final[Mapping[str, Change | Reading]] = {
    "CreateTopics": Change(
        admin_messages.CreateTopicsRequest,
        admin_messages.CreateTopicsResponse,
        lambda call: create_topics(call.image, call.settings, call.request, call.rng),
    ),
    "DeleteTopics": Change(
        admin_messages.DeleteTopicsRequest,
        admin_messages.DeleteTopicsResponse,
        lambda call: delete_topics(call.image, call.request, enabled=call.settings.delete_topic_enable),
    ),
    "CreatePartitions": Change(
        admin_messages.CreatePartitionsRequest,
        admin_messages.CreatePartitionsResponse,
        lambda call: create_partitions(call.image, call.request, call.rng),
    ),
    "AlterConfigs": Change(
        admin_messages.AlterConfigsRequest,
        admin_messages.AlterConfigsResponse,
        lambda call: alter_configs(call.image, call.settings, call.request),
        kafka_name="IncrementalAlterConfigs",
    ),
    "ElectLeaders": Change(
        admin_messages.ElectLeadersRequest,
        admin_messages.ElectLeadersResponse,
        lambda call: elect_leaders(call.image, call.settings, call.request),
    ),
    "AlterPartitionReassignments": Change(
        admin_messages.AlterPartitionReassignmentsRequest,
        admin_messages.AlterPartitionReassignmentsResponse,
        lambda call: alter_partition_reassignments(call.image, call.settings, call.request),
    ),
    "ListPartitionReassignments": Reading(
        admin_messages.ListPartitionReassignmentsRequest,
        admin_messages.ListPartitionReassignmentsResponse,
        lambda call: list_partition_reassignments(call.image, call.request),
    ),
    "DescribeConfigs": Reading(
        admin_messages.DescribeConfigsRequest,
        admin_messages.DescribeConfigsResponse,
        lambda call: describe_configs(call.image, call.settings, call.request),
    ),
    "AlterUserScramCredentials": Change(
        admin_messages.AlterUserScramCredentialsRequest,
        admin_messages.AlterUserScramCredentialsResponse,
        lambda call: alter_users(call.image, call.request),
    ),
    "DescribeUserScramCredentials": Reading(
        admin_messages.DescribeUserScramCredentialsRequest,
        admin_messages.DescribeUserScramCredentialsResponse,
        lambda call: describe_users(call.image, call.request),
    ),
    "CreateAcls": Change(
        admin_messages.CreateAclsRequest,
        admin_messages.CreateAclsResponse,
        lambda call: create_acls(call.image, call.request, call.rng),
    ),
    "DeleteAcls": Change(
        admin_messages.DeleteAclsRequest,
        admin_messages.DeleteAclsResponse,
        lambda call: delete_acls(call.image, call.request),
    ),
    "DescribeAcls": Reading(
        admin_messages.DescribeAclsRequest,
        admin_messages.DescribeAclsResponse,
        lambda call: describe_acls(call.image, call.request),
    ),
    "AlterClientQuotas": Change(
        admin_messages.AlterClientQuotasRequest,
        admin_messages.AlterClientQuotasResponse,
        lambda call: alter_quotas(call.image, call.request),
    ),
    "DescribeClientQuotas": Reading(
        admin_messages.DescribeClientQuotasRequest,
        admin_messages.DescribeClientQuotasResponse,
        lambda call: describe_quotas(call.image, call.request),
    ),
    "UnregisterBroker": Change(
        admin_messages.UnregisterBrokerRequest,
        admin_messages.UnregisterBrokerResponse,
        lambda call: unregister_broker(call.image, call.request.broker_id),
    ),
    "DescribeQuorum": Reading(
        admin_messages.DescribeQuorumRequest,
        admin_messages.DescribeQuorumResponse,
        lambda call: call.describe_quorum(),
    ),
}


def topics_with_defaults(names: Sequence[str], timeout_ms: int) -> admin_messages.CreateTopicsRequest:
    """A request for topics with the cluster's default partitions and replicas."""
    topics = [admin_messages.NewTopic(name=name, partitions=-1, replication_factor=-1) for name in names]
    return admin_messages.CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)
