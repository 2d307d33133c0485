"""Users at the controller: what is taken, what is refused, and that a user is changed as a whole (KIP-554)."""

from __future__ import annotations

import random

import pytest
from odradek.administration.acls import AclFilter
from odradek_broker.core.controller.security import alter_users, create_acls, delete_acls, describe_acls, describe_users
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import apply
from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek_proto.security.acls import Acl, acl_of, in_messages
from odradek_proto.security.upsertions import scram_upsertions
from odradek_proto.v1 import admin_messages as wire
from odradek_proto.v1.admin_messages import (
    AclBinding,
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from odradek_proto.values import replace

ALICE = tuple(scram_upsertions("alice", "secret", b"salt"))
GOOD = ALICE[0]


def altered(image: MetadataImage, request: AlterUserScramCredentialsRequest) -> dict[str, ErrorCode]:
    decision = alter_users(image, request)
    for record in decision.records:
        apply(image, record, image.offset, 0)
    return {user.name: ErrorCode(user.error_code) for user in decision.answer.users}


def described(image: MetadataImage, *users: str) -> dict[str, list[str] | ErrorCode]:
    answer = describe_users(image, DescribeUserScramCredentialsRequest(users=users))
    return {
        user.name: ErrorCode(user.error_code) if user.error_code else [each.mechanism for each in user.credentials]
        for user in answer.users
    }


def test_a_user_comes_and_goes_by_mechanism() -> None:
    """And who has none left is nobody."""
    image = MetadataImage()
    assert altered(image, AlterUserScramCredentialsRequest(upsertions=ALICE)) == {"alice": ErrorCode.NONE}
    assert described(image) == {"alice": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
    for mechanism, left in (("SCRAM-SHA-256", {"alice": ["SCRAM-SHA-512"]}), ("SCRAM-SHA-512", {})):
        deletion = ScramCredentialDeletion(name="alice", mechanism=mechanism)
        assert altered(image, AlterUserScramCredentialsRequest(deletions=[deletion])) == {"alice": ErrorCode.NONE}
        assert described(image) == left
        again = altered(image, AlterUserScramCredentialsRequest(deletions=[deletion]))
        assert again == {"alice": ErrorCode.RESOURCE_NOT_FOUND}
    assert described(image, "alice", "alice", "bob") == {
        "alice": ErrorCode.DUPLICATE_RESOURCE,
        "bob": ErrorCode.RESOURCE_NOT_FOUND,
    }


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (replace(GOOD, name=""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (replace(GOOD, name="a\nb"), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (replace(GOOD, name="a" * 250), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (replace(GOOD, iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (replace(GOOD, iterations=16_385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (replace(GOOD, salt=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (replace(GOOD, salted_password=b""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (replace(GOOD, mechanism="PLAIN"), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_what_could_not_be_used_is_refused_and_others_are_changed(
    bad: ScramCredentialUpsertion, error: ErrorCode
) -> None:
    """Of the user with the bad one nothing is changed, not even by its good one."""
    image = MetadataImage()
    bob = replace(GOOD, name="bob")
    also_good = replace(ALICE[1], name=bad.name)
    request = AlterUserScramCredentialsRequest(upsertions=[also_good, bad, bob])
    assert altered(image, request) == {bad.name: error, "bob": ErrorCode.NONE}
    assert described(image) == {"bob": ["SCRAM-SHA-256"]}


def test_a_credential_that_is_named_twice_is_refused() -> None:
    """As in Kafka: which of the two would it be?"""
    deletion = ScramCredentialDeletion(name="alice", mechanism=GOOD.mechanism)
    request = AlterUserScramCredentialsRequest(deletions=[deletion], upsertions=[GOOD])
    assert altered(MetadataImage(), request) == {"alice": ErrorCode.DUPLICATE_RESOURCE}


# --- ACLs at the controller: what is taken, and what a filter finds --------------------------------------------------


ORDERS = Acl(ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", Operation.READ, Permission.ALLOW)
PREFIX = replace(ORDERS, resource_name="ord", pattern_type=PatternType.PREFIXED, operation=Operation.WRITE)
STAR = replace(ORDERS, resource_name="*", principal="User:bob", permission=Permission.DENY)
CLUSTER = replace(ORDERS, resource_type=ResourceType.CLUSTER, resource_name=CLUSTER_NAME, operation=Operation.ALTER)
ALL = [ORDERS, PREFIX, STAR, CLUSTER]


def create(image: MetadataImage, *acls: Acl) -> list[ErrorCode]:
    request = CreateAclsRequest(acls=[AclBinding(**in_messages(acl)) for acl in acls])
    decision = create_acls(image, request, random.Random(1))
    for record in decision.records:
        apply(image, record, image.offset, 0)
    return [ErrorCode(result.error_code) for result in decision.answer.results]


def found(image: MetadataImage, wanted: AclFilter) -> list[Acl]:
    answer = describe_acls(image, DescribeAclsRequest(filter=wire.AclFilter(**in_messages(wanted))))
    return [acl_of(binding) for binding in answer.acls]


@pytest.mark.parametrize(
    ("wanted", "hits"),
    [
        (AclFilter(), ALL),
        (AclFilter(ResourceType.TOPIC), [ORDERS, PREFIX, STAR]),
        (AclFilter(ResourceType.TOPIC, "orders", PatternType.LITERAL), [ORDERS]),
        (AclFilter(ResourceType.TOPIC, "orders", PatternType.MATCH), [ORDERS, PREFIX, STAR]),
        (AclFilter(ResourceType.TOPIC, "orders", PatternType.PREFIXED), []),
        (AclFilter(ResourceType.TOPIC, "ord", PatternType.ANY), [PREFIX]),
        (AclFilter(principal="User:bob"), [STAR]),
        (AclFilter(host="10.0.0.1"), []),
        (AclFilter(operation=Operation.READ), [ORDERS, STAR]),
        (AclFilter(permission=Permission.DENY), [STAR]),
    ],
)
def test_a_filter_finds_and_removes_the_same(wanted: AclFilter, hits: list[Acl]) -> None:
    """What is added twice is there once; what was removed is gone, and nothing else."""
    image = MetadataImage()
    assert create(image, *ALL, *ALL) == [ErrorCode.NONE] * 8
    assert found(image, wanted) == hits
    decision = delete_acls(image, DeleteAclsRequest(filters=[wire.AclFilter(**in_messages(wanted))] * 2))
    for record in decision.records:
        apply(image, record, image.offset, 0)
    assert [acl_of(each) for each in decision.answer.results[1].acls] == hits
    assert found(image, AclFilter()) == [acl for acl in ALL if acl not in hits]


@pytest.mark.parametrize(
    "wrong",
    [
        replace(ORDERS, operation=Operation.ANY),
        replace(ORDERS, operation=Operation.IDEMPOTENT_WRITE),
        replace(ORDERS, permission=Permission.ANY),
        replace(ORDERS, pattern_type=PatternType.MATCH),
        replace(ORDERS, resource_type=ResourceType.ANY),
        replace(ORDERS, principal="alice"),
        replace(ORDERS, principal="User:"),
        replace(ORDERS, resource_name=""),
        replace(ORDERS, resource_name="no topic"),
        replace(ORDERS, host=""),
        replace(CLUSTER, resource_name="mine"),
    ],
)
def test_what_could_never_match_is_refused(wrong: Acl) -> None:
    """By itself: the others of the request are made."""
    image = MetadataImage()
    assert create(image, ORDERS, wrong) == [ErrorCode.NONE, ErrorCode.INVALID_REQUEST]
    assert found(image, AclFilter()) == [ORDERS]
