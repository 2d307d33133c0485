"""Users: their SCRAM credentials (KIP-554), each mechanism by itself.

Of each user all is done or nothing. What is kept is computed here from the salted password, which a client has computed
from the password; the password itself is never sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

from odradek_proto.errors import ErrorCode
from odradek_proto.security.scram import HASHES, LEAST_ITERATIONS, MOST_ITERATIONS, credential_of
from odradek_proto.v1.admin_messages import (
    AlteredUser,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribedUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialInfo,
    ScramCredentialUpsertion,
)
from odradek_proto.v1.metadata_messages import RemoveUserScramCredentialRecord, UserScramCredentialRecord

from odradek_broker.core.controller.decision import Decision
from odradek_broker.core.controller.refusal import Refusal
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord

Change: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion

LONGEST_NAME = 249
LONGEST_SALT = 1_024
MOST_CHANGES = 1_000  # of one request


def alter_users(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> Decision[AlterUserScramCredentialsResponse]:
    """Make, change and remove credentials."""
    changes: list[Change] = [*request.deletions, *request.upsertions]
    times = Counter((change.name, change.mechanism) for change in changes)
    records: list[MetadataRecord] = []
    results = []
    for name in dict.fromkeys(change.name for change in changes):
        mine = [change for change in changes if change.name == name]
        try:
            if len(changes) > MOST_CHANGES:
                raise Refusal(ErrorCode.INVALID_REQUEST, f"{len(changes)} changes at once; {MOST_CHANGES} are the most")
            if any(times[name, change.mechanism] > 1 for change in mine):
                raise Refusal(ErrorCode.DUPLICATE_RESOURCE, f"the credential of {name!r} is named more than once")
            records += _records(image, mine)
        except Refusal as refusal:
            results.append(AlteredUser(name=name, error_code=refusal.error, error_message=refusal.message))
        else:
            results.append(AlteredUser(name=name))
    return Decision(records, AlterUserScramCredentialsResponse(users=results))


def _records(image: MetadataImage, changes: Iterable[Change]) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for change in changes:
        _check_name(change.name)
        if change.mechanism not in HASHES:
            raise Refusal(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"a mechanism is one of {', '.join(HASHES)}")
        if isinstance(change, ScramCredentialUpsertion):
            records.append(_credential(change))
        elif change.mechanism in image.scram.get(change.name, {}):
            records.append(RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism))
        else:
            message = f"the user {change.name!r} has no credential of {change.mechanism}"
            raise Refusal(ErrorCode.RESOURCE_NOT_FOUND, message)
    return records


def _check_name(name: str) -> None:
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        message = f"the name of a user has 1 to {LONGEST_NAME} printable characters"
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)


def _credential(change: ScramCredentialUpsertion) -> MetadataRecord:
    if not LEAST_ITERATIONS <= change.iterations <= MOST_ITERATIONS:
        message = f"{change.iterations} iterations: {LEAST_ITERATIONS} to {MOST_ITERATIONS} can be"
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if not change.salt or len(change.salt) > LONGEST_SALT or not 0 < len(change.salted_password) <= LONGEST_SALT:
        raise Refusal(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt or the salted password is empty, or too long")
    kept = credential_of(change.mechanism, change.salted_password, change.salt, change.iterations)
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=kept.salt,
        stored_key=kept.stored_key,
        server_key=kept.server_key,
        iterations=kept.iterations,
    )


def describe_users(
    image: MetadataImage, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """Mechanisms and iterations; of all users when none is named."""
    times = Counter(request.users)
    described = []
    for name in times or sorted(image.scram):
        known = image.scram.get(name, {})
        if times[name] > 1:
            error, message = ErrorCode.DUPLICATE_RESOURCE, f"the user {name!r} is named more than once"
        elif not known:
            error, message = ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name!r} with credentials"
        else:
            error, message = ErrorCode.NONE, ""
        infos = [
            ScramCredentialInfo(mechanism=mechanism, iterations=kept.iterations)
            for mechanism, kept in sorted(known.items())
            if not error
        ]
        described.append(DescribedUser(name=name, error_code=error, error_message=message, credentials=infos))
    return DescribeUserScramCredentialsResponse(users=described)
