"""Registrations: incarnations, epochs, and what a new one costs the old (R-150 to R-155)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from odradek_broker.core.controller.balance import elect_leaders
from odradek_broker.core.controller.producer_ids import BLOCK_SIZE, LARGEST_PRODUCER_ID, allocate_producer_ids
from odradek_broker.core.controller.registration import (
    MAX_BROKERS,
    fence_broker,
    register_broker,
    unfencing_records,
)
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import NO_LEADER, MetadataImage, PartitionRegistration
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_messages, controller_messages
from odradek_proto.values import replace

from tests.broker.controller_images import (
    CLUSTER_ID,
    SETTINGS,
    add_topic,
    image_of,
    incarnation,
    partition_of,
    write,
)

OLD_PROTOCOL = ControllerSettings(node_id=0, cluster_id=CLUSTER_ID, fast_restart_keeps_isr=True)


def request(broker_id: int = 1, life: int = 0, **fields: Any) -> controller_messages.RegisterBrokerRequest:
    values: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": CLUSTER_ID,
        "incarnation_id": incarnation(abs(broker_id), life),
        "endpoints": {"GRPC": f"host{broker_id}:9092"},
        "previous_broker_epoch": -1,
    }
    return controller_messages.RegisterBrokerRequest(**values | fields)


def register(
    image: MetadataImage,
    asked: controller_messages.RegisterBrokerRequest,
    *,
    session_valid: bool = False,
    settings: ControllerSettings = SETTINGS,
) -> ErrorCode:
    decision = register_broker(image, settings, asked, session_valid=session_valid)
    write(image, decision.records)
    return ErrorCode(decision.answer.error_code)


def test_the_broker_epoch_is_the_offset_of_the_registration() -> None:
    """KIP-903; and a new broker starts fenced (R-150)."""
    image = image_of([2])
    assert register(image, request(1)) is ErrorCode.NONE
    assert image.brokers[1].broker_epoch == 200
    assert image.brokers[1].fenced


def test_the_same_incarnation_keeps_its_epoch_and_a_new_one_waits_for_the_old_session() -> None:
    """CO-17: refused for another incarnation while in session, a larger epoch once the session has ended."""
    image = image_of([1])
    assert register(image, request(1), session_valid=True) is ErrorCode.NONE
    assert (image.brokers[1].broker_epoch, image.brokers[1].fenced) == (101, False)
    offset = image.offset
    assert register(image, request(1, life=1), session_valid=True) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert image.offset == offset
    assert register(image, request(1, life=1)) is ErrorCode.NONE
    assert image.brokers[1].broker_epoch == offset
    assert image.brokers[1].fenced


def test_a_registration_that_was_sent_twice_writes_nothing() -> None:
    """The answer to the first was lost on its way."""
    image = image_of([1])
    assert register(image, request(1)) is ErrorCode.NONE
    assert image.offset == 200


@pytest.mark.parametrize(
    "changes", [{"endpoints": {"GRPC": "elsewhere:1"}}, {"rack": "r2"}, {"log_directory_id": bytes(16)}]
)
@pytest.mark.parametrize("session_valid", [False, True])
def test_a_process_changes_nothing_of_its_registration(changes: dict[str, Any], session_valid: bool) -> None:
    """Who has read its incarnation would send its clients elsewhere, or have it taken for one that lost its disk."""
    image = image_of([1, 2], leaving=[2])
    for broker_id in (1, 2):
        asked = request(broker_id, **changes)
        assert register(image, asked, session_valid=session_valid) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert image.brokers == image_of([1, 2], leaving=[2]).brokers


IMPOSSIBLE: list[dict[str, Any]] = [
    {"broker_id": -1},
    {"incarnation_id": b""},
    {"incarnation_id": bytes(17)},
    {"endpoints": {}},
    {"endpoints": {f"L{i}": "a:1" for i in range(17)}},
    {"endpoints": {"": "a:1"}},
    {"endpoints": {"grpc": "a:1"}},
    {"endpoints": {"GRPC": ""}},
    {"endpoints": {"GRPC": "a"}},
    {"endpoints": {"GRPC": "a:0"}},
    {"endpoints": {"GRPC": "a:65536"}},
    {"endpoints": {"GRPC": "a b:1"}},
    {"endpoints": {"GRPC": "a\x1b[31m:1"}},
    {"endpoints": {"GRPC": "a" * 256 + ":1"}},
    {"rack": "r" * 1_001},
    {"log_directory_id": bytes(15)},
    {"previous_broker_epoch": -2},
    {"previous_broker_epoch": 200},
    {"previous_broker_epoch": 2**63 - 1},
]


@pytest.mark.parametrize("fields", IMPOSSIBLE, ids=str)
def test_a_registration_that_cannot_be_is_refused(fields: dict[str, Any]) -> None:
    """It would be kept for ever, and be told to every client."""
    image = image_of([1])
    assert register(image, request(**{"broker_id": 2} | fields)) is ErrorCode.INVALID_REGISTRATION
    assert image.offset == 200


@pytest.mark.parametrize("address", ["broker-1.example:9092", "10.0.0.1:1", "[::1]:65535", "[fe80::1%eth0]:9092"])
def test_every_kind_of_address_may_be_registered(address: str) -> None:
    """Names, IPv4 and IPv6."""
    image = image_of([1])
    assert register(image, request(2, endpoints={"GRPC_HOST": address}, rack="r" * 1_000)) is ErrorCode.NONE


def test_strangers_do_not_fill_the_metadata_with_brokers() -> None:
    """Those that are known may come back."""
    image = image_of([1])
    image.brokers |= {each: replace(image.brokers[1], broker_id=each) for each in range(100, 99 + MAX_BROKERS)}
    assert register(image, request(2)) is ErrorCode.INVALID_REGISTRATION
    assert register(image, request(1, life=1)) is ErrorCode.NONE


def test_a_new_incarnation_leaves_every_isr_and_leads_nothing() -> None:
    """R-152, in one batch with its registration; but the last member stays (R-135)."""
    image = image_of([1, 2, 3])
    topic = add_topic(image, "orders", partition_of([1, 2, 3]), partition_of([2, 1]), partition_of([1, 3], [1]))
    decision = register_broker(image, SETTINGS, request(1, life=1), session_valid=False)
    assert len(decision.records) == 4
    write(image, decision.records)
    assert [(p.leader, p.isr) for p in topic.partitions.values()] == [(2, (2, 3)), (2, (2,)), (NO_LEADER, (1,))]
    assert [p.leader_epoch for p in topic.partitions.values()] == [6, 5, 6]


def test_a_fast_restart_keeps_isr_and_leadership_in_the_old_protocol() -> None:
    """L-12: the new incarnation takes the old one's place, unfenced; a fenced one gets no such favour."""
    image = image_of([1, 2])
    topic = add_topic(image, "orders", partition_of([1, 2]))
    assert register(image, request(1, life=1), settings=OLD_PROTOCOL, session_valid=True) is ErrorCode.NONE
    assert topic.partitions[0] == partition_of([1, 2])
    assert not image.brokers[1].fenced
    fenced = image_of([1, 2], fenced=[1])
    assert register(fenced, request(1, life=1), settings=OLD_PROTOCOL) is ErrorCode.NONE
    assert fenced.brokers[1].fenced


@pytest.mark.parametrize(
    ("previous", "eligible"), [(101, (1, 3)), (100, (3,)), (-1, (3,))], ids=["clean", "older", "no file"]
)
def test_an_unclean_shutdown_costs_the_place_among_the_eligible(previous: int, eligible: tuple[int, ...]) -> None:
    """CO-07, R-141: clean is only who knows the epoch of its own last registration."""
    settings = ControllerSettings(node_id=0, cluster_id=CLUSTER_ID, elr_enable=True, min_insync_replicas=2)
    image = image_of([1, 2, 3], fenced=[1])
    topic = add_topic(image, "orders", partition_of([1, 2, 3], [2], eligible=[1, 3]))
    assert register(image, request(1, life=1, previous_broker_epoch=previous), settings=settings) is ErrorCode.NONE
    assert topic.partitions[0].eligible == eligible


OLD_DISK, NEW_DISK = b"o" * 16, b"n" * 16


def came_back(
    partition: PartitionRegistration, disk: bytes, settings: ControllerSettings, fenced: Sequence[int] = (1,)
) -> MetadataImage:
    """Broker 1, which was cleanly stopped, has registered with this disk, and is unfenced."""
    image = image_of([1, 2, 3], fenced=fenced)
    image.brokers[1] = replace(image.brokers[1], log_directory_id=OLD_DISK)
    add_topic(image, "orders", partition)
    asked = request(1, life=1, previous_broker_epoch=101, log_directory_id=disk)
    assert register(image, asked, settings=settings) is ErrorCode.NONE
    write(image, unfencing_records(image, settings, image.brokers[1]))
    return image


WAITED_FOR = {
    "last member": (False, partition_of([1, 2, 3], [1], NO_LEADER)),
    "last known leader": (True, partition_of([1, 2, 3], [], NO_LEADER, last_known=[1])),
    "eligible": (True, partition_of([1, 2, 3], [], NO_LEADER, eligible=[1])),
}


@pytest.mark.parametrize(("elr", "partition"), WAITED_FOR.values(), ids=list(WAITED_FOR))
def test_nobody_waits_for_a_broker_that_lost_its_disk(elr: bool, partition: PartitionRegistration) -> None:
    """R-130, R-140: the others would cut what they have. An administrator decides, with the broker stopped."""
    settings = replace(SETTINGS, elr_enable=elr, min_insync_replicas=2)
    assert came_back(partition, OLD_DISK, settings).topics["orders"].partitions[0].leader == 1
    image = came_back(partition, NEW_DISK, settings)
    after = image.topics["orders"].partitions[0]
    assert (after.leader, after.isr, after.eligible, after.last_known_eligible) == (NO_LEADER, (), (), ())
    write(image, fence_broker(image, settings, 1).records)
    asked = admin_messages.ElectLeadersRequest(election_type="unclean")
    write(image, elect_leaders(image, settings, asked).records)
    assert image.topics["orders"].partitions[0].isr == (2,)


def test_a_lost_disk_leaves_the_others_what_they_have() -> None:
    """R-139: an eligible replica is elected as soon as it is back; the one in sync stays."""
    settings = replace(SETTINGS, elr_enable=True, min_insync_replicas=2)
    before = partition_of([1, 2, 3], [], NO_LEADER, eligible=[2], last_known=[1])
    image = came_back(before, NEW_DISK, settings, fenced=[1, 2])
    assert image.topics["orders"].partitions[0].last_known_eligible == ()
    write(image, unfencing_records(image, settings, image.brokers[2]))
    assert (image.topics["orders"].partitions[0].leader, image.topics["orders"].partitions[0].isr) == (2, (2,))
    image = came_back(partition_of([1, 2, 3]), NEW_DISK, settings, fenced=())
    assert (image.topics["orders"].partitions[0].leader, image.topics["orders"].partitions[0].isr) == (2, (2, 3))


@pytest.mark.parametrize("elr", [False, True])
def test_the_only_replica_begins_anew_on_its_empty_disk(elr: bool) -> None:
    """Its records are lost, whoever waits."""
    partition = partition_of([1], [], NO_LEADER, last_known=[1]) if elr else partition_of([1], [1], NO_LEADER)
    image = came_back(partition, NEW_DISK, replace(SETTINGS, elr_enable=elr))
    assert (image.topics["orders"].partitions[0].leader, image.topics["orders"].partitions[0].isr) == (1, (1,))


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"broker_id": -1}, ErrorCode.INVALID_REGISTRATION),
        ({"incarnation_id": b"short"}, ErrorCode.INVALID_REGISTRATION),
        ({"endpoints": {}}, ErrorCode.INVALID_REGISTRATION),
    ],
)
def test_what_can_never_be_registered(fields: dict[str, Any], error: ErrorCode) -> None:
    """Each with its error, and nothing is written."""
    image = image_of([2])
    assert register(image, request(**fields)) is error
    assert image.offset == 200


# --- Blocks of producer ids, one decision at a time (R-250) ----------------------------------------------------------


def asked(broker_id: int = 1, broker_epoch: int = 101) -> controller_messages.AllocateProducerIdsRequest:
    return controller_messages.AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)


@pytest.mark.parametrize(("broker_id", "broker_epoch"), [(1, 100), (1, 102), (7, 107)])
def test_a_broker_of_another_life_gets_no_producer_ids(broker_id: int, broker_epoch: int) -> None:
    """R-111, R-250: one that was replaced would hand them out beside its successor."""
    image = image_of([1, 2])
    decision = allocate_producer_ids(image, asked(broker_id, broker_epoch))
    assert (decision.answer.error_code, len(decision.records)) == (ErrorCode.STALE_BROKER_EPOCH, 0)


def test_the_last_producer_ids_are_given_once_and_then_none() -> None:
    """R-250: they do not begin again from 0."""
    image = image_of([1])
    image.next_producer_id = LARGEST_PRODUCER_ID - BLOCK_SIZE
    decision = allocate_producer_ids(image, asked())
    assert (decision.answer.first_producer_id, decision.answer.count) == (LARGEST_PRODUCER_ID - BLOCK_SIZE, BLOCK_SIZE)
    write(image, decision.records)
    decision = allocate_producer_ids(image, asked())
    assert (decision.answer.error_code, len(decision.records)) == (ErrorCode.UNKNOWN_SERVER_ERROR, 0)
