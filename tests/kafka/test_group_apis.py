"""What the versions of the group APIs say differently of the same thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest
from odradek_broker.core.security.authorizer import Authorizer
from odradek_broker.kafka.apis.group_offsets import GroupOffsetsApi
from odradek_broker.kafka.apis.groups import GroupsApi
from odradek_broker.kafka.messages.codec import REQUEST, RESPONSE, reader_of, writer_of
from odradek_broker.kafka.messages.primitives import MessageReader, MessageWriter
from odradek_broker.kafka.messages.request import ClientInformation, KafkaRequest
from odradek_broker.requests.access import Access
from odradek_broker.requests.context import Principal, RequestContext
from odradek_broker.requests.groups import GROUP, GroupRequests
from odradek_broker.runtime.groups.offsets_topic import OffsetsTopic
from odradek_proto.errors import ErrorCode

from tests.broker.replica_world import CALLER, World, run
from tests.broker.test_group_coordinator import Groups
from tests.playing import plays

COMMIT, FETCH, JOIN, LEAVE, DESCRIBE = 8, 9, 11, 13, 15
ORDERS = {"name": "orders", "partition_indexes": [0]}
NUMBER = {"partition_index": 0}
OFFSET = {**NUMBER, "committed_offset": 7, "committed_metadata": None}
TO_COMMIT = [{"name": "orders", "partitions": [OFFSET]}]
COMMITTED = {"group_id": "g", "generation_id_or_member_epoch": 3, "member_id": "m", "topics": TO_COMMIT}
LEFT = {"member_id": "m", "group_instance_id": None, "error_code": 25}
DEAD = {"group_id": "g", "group_state": "Dead", "protocol_type": "", "protocol_data": "", "members": []}
JOINED = {"group_id": "g", "session_timeout_ms": 1, "member_id": "", "protocol_type": "consumer", "protocols": []}


async def ask(requests: GroupRequests, key: int, version: int, message: Mapping[str, Any]) -> dict[str, Any]:
    """The answer, read as this version writes it."""
    writer = MessageWriter()
    writer_of(key, REQUEST, version)(writer, message)
    groups, offsets = GroupsApi(requests), GroupOffsetsApi(requests)
    answer = {COMMIT: offsets.commit, FETCH: offsets.fetch, JOIN: groups.join, LEAVE: groups.leave}
    answer[DESCRIBE] = groups.describe
    body = await answer[key](
        KafkaRequest(key, version, MessageReader(memoryview(bytes(writer.out))), CALLER, ClientInformation())
    )
    return reader_of(key, RESPONSE, version)(MessageReader(memoryview(b"".join(body))))


def requests_of(groups: Groups) -> GroupRequests:
    return GroupRequests(
        coordinator=groups.coordinator, image=lambda: groups.world.image, offsets_topic=cast(OffsetsTopic, None)
    )


@pytest.mark.parametrize(
    ("key", "version", "asked", "told"),
    [
        (COMMIT, 8, COMMITTED, {"topics": [{"name": "orders", "partitions": [{**NUMBER, "error_code": 22}]}]}),
        (COMMIT, 9, COMMITTED, {"topics": [{"name": "orders", "partitions": [{**NUMBER, "error_code": 69}]}]}),
        (LEAVE, 2, {"group_id": "g", "member_id": "m"}, {"error_code": 25}),
        (LEAVE, 3, {"group_id": "g", "members": [{"member_id": "m"}]}, {"error_code": 0, "members": [LEFT]}),
        (DESCRIBE, 5, {"groups": ["g"]}, {"groups": [{**DEAD, "error_code": 0}]}),
        (
            DESCRIBE,
            6,
            {"groups": ["g"]},
            {"groups": [{**DEAD, "error_code": 69, "error_message": "Group g not found."}]},
        ),
        (JOIN, 6, JOINED, {"error_code": 26, "protocol_name": "", "generation_id": -1}),
        (JOIN, 7, JOINED, {"error_code": 26, "protocol_name": None, "protocol_type": None}),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
@plays(run)
async def test_an_unknown_group(
    world: World, key: int, version: int, asked: dict[str, Any], told: dict[str, Any]
) -> None:
    """ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, INVALID_SESSION_TIMEOUT, where Kafka says them."""
    groups = Groups(world)
    await groups.lead(epoch=0)
    await groups.loaded()
    await world.learn(1, 0)  # orders-0 exists
    answer = await ask(requests_of(groups), key, version, asked)
    for each in answer.get("groups", ()):
        del each["authorized_operations"]
    assert {name: answer[name] for name in told} == told


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (1, {"topics": [{"name": "orders", "partitions": [16]}]}),
        (2, {"topics": [], "error_code": 16}),
        (8, {"groups": [{"group_id": "g", "topics": [], "error_code": 16}]}),
    ],
)
@plays(run)
async def test_where_a_fetch_of_offsets_says_that_all_of_it_failed(
    world: World, version: int, told: dict[str, Any]
) -> None:
    """Nobody leads the group's partition here: in each partition, for all of them, or for each group."""
    asked: dict[str, Any] = {"group_id": "g", "topics": [ORDERS]}
    answer = await ask(requests_of(Groups(world)), FETCH, version, {"groups": [asked]} if version > 7 else asked)
    answer.pop("throttle_time_ms", None)
    for topic in answer.get("topics", ()):
        topic["partitions"] = [each["error_code"] for each in topic["partitions"]]
    assert answer == told


@plays(run)
async def test_who_may_not_use_a_group_does_not_make_the_topic_of_groups(world: World) -> None:
    """The refusal comes first: without an offsets topic to ask for, nothing else can be said."""
    requests = GroupRequests(
        coordinator=Groups(world).coordinator,
        image=lambda: world.image,
        offsets_topic=cast(OffsetsTopic, None),
        access=Access(Authorizer()),
    )
    mallory = RequestContext(peer="10.0.0.9:1", principal=Principal("User", "mallory"), listener="KAFKA")
    found = await requests.find_coordinator(mallory, GROUP, ["g", "h"])
    assert [each.error for each in found] == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 2
