"""Users at the controller: what is taken, what is refused, and that a user is changed as a whole (KIP-554)."""

from __future__ import annotations

import pytest
from odradek_broker.core.controller.security import alter_users, describe_users
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import apply
from odradek_proto.errors import ErrorCode
from odradek_proto.security.upsertions import scram_upsertions
from odradek_proto.v1.admin_messages import (
    AlterUserScramCredentialsRequest,
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
