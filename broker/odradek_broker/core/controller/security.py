"""Users (KIP-554), ACLs (KIP-140) and quotas (KIP-546) at the controller.

Changes are atomic for each user and for each entity with quotas; ACLs are changed one by one. The stored form of a
password is computed here from the salted password, which a client has computed from the password; the password itself
is never sent. ACLs and quotas are found by filters.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeAlias

from odradek_proto.errors import ErrorCode
from odradek_proto.security.acl_words import (
    ANY_NAME,
    CLUSTER_NAME,
    OPERATIONS,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from odradek_proto.security.acls import Acl, acl_of, in_messages
from odradek_proto.security.quota_words import (
    ANY,
    CLIENT_ID,
    DEFAULT,
    IP,
    KEYS,
    OF_DEFAULT,
    REQUEST_PERCENTAGE,
    TYPES,
    USER,
)
from odradek_proto.security.quotas import QuotaEntity
from odradek_proto.security.scram import HASHES, LEAST_ITERATIONS, MOST_ITERATIONS, credential_of
from odradek_proto.topics import validate_topic_name
from odradek_proto.v1.admin_messages import (
    AclBinding,
    AclFilter,
    AclResult,
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuota,
    AlteredUser,
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    CreateAclsRequest,
    CreateAclsResponse,
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeletedAcls,
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuota,
    DescribedUser,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    QuotaAlteration,
    QuotaFilter,
    QuotaName,
    QuotaValue,
    ScramCredentialDeletion,
    ScramCredentialInfo,
    ScramCredentialUpsertion,
)
from odradek_proto.v1.metadata_messages import (
    ClientQuotaRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

from odradek_broker.core.context import RequiredPermission
from odradek_broker.core.controller.decision import ChangeRequest, Decision, ReadRequest, RequestRefused
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.metadata.records import MetadataRecord
from odradek_broker.core.metadata.snapshot import acl_record

UserChange: TypeAlias = ScramCredentialDeletion | ScramCredentialUpsertion

LONGEST_NAME = 249
LONGEST_SALT = 1_024
MOST_CHANGES = 1_000  # of one request
MOST_ACLS = 10_000
LONGEST_TEXT = 1_024
ID_BYTES = 16
MOST_QUOTAS = 10_000


def alter_users(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> Decision[AlterUserScramCredentialsResponse]:
    """Make, change and remove credentials."""
    changes: list[UserChange] = [*request.deletions, *request.upsertions]
    times = Counter((change.name, change.mechanism) for change in changes)
    records: list[MetadataRecord] = []
    results = []
    for name in dict.fromkeys(change.name for change in changes):
        mine = [change for change in changes if change.name == name]
        try:
            if len(changes) > MOST_CHANGES:
                raise RequestRefused(
                    ErrorCode.INVALID_REQUEST, f"{len(changes)} changes at once; {MOST_CHANGES} are the most"
                )
            if any(times[name, change.mechanism] > 1 for change in mine):
                raise RequestRefused(
                    ErrorCode.DUPLICATE_RESOURCE, f"the credential of {name!r} is named more than once"
                )
            records += _records(image, mine)
        except RequestRefused as refusal:
            results.append(AlteredUser(name=name, error_code=refusal.error, error_message=refusal.message))
        else:
            results.append(AlteredUser(name=name))
    return Decision(records, AlterUserScramCredentialsResponse(users=results))


def _records(image: MetadataImage, changes: Iterable[UserChange]) -> list[MetadataRecord]:
    records: list[MetadataRecord] = []
    for change in changes:
        _check_name(change.name)
        if change.mechanism not in HASHES:
            raise RequestRefused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"a mechanism is one of {', '.join(HASHES)}")
        if isinstance(change, ScramCredentialUpsertion):
            records.append(_credential(change))
        elif change.mechanism in image.scram.get(change.name, {}):
            records.append(RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism))
        else:
            message = f"the user {change.name!r} has no credential of {change.mechanism}"
            raise RequestRefused(ErrorCode.RESOURCE_NOT_FOUND, message)
    return records


def _check_name(name: str) -> None:
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        message = f"the name of a user has 1 to {LONGEST_NAME} printable characters"
        raise RequestRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)


def _credential(change: ScramCredentialUpsertion) -> MetadataRecord:
    if not LEAST_ITERATIONS <= change.iterations <= MOST_ITERATIONS:
        message = f"{change.iterations} iterations: {LEAST_ITERATIONS} to {MOST_ITERATIONS} can be"
        raise RequestRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
    if not change.salt or len(change.salt) > LONGEST_SALT or not 0 < len(change.salted_password) <= LONGEST_SALT:
        raise RequestRefused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt or the salted password is empty, or too long")
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


# --- ACLs -------------------------------------------------------------------------------------------------------------


def create_acls(image: MetadataImage, request: CreateAclsRequest, rng: random.Random) -> Decision[CreateAclsResponse]:
    """Each by itself; one that is there already is done."""
    known = set(image.acls.values())
    records: list[MetadataRecord] = []
    results = []
    for binding in request.acls:
        try:
            acl = _acl(binding)
            if len(known) >= MOST_ACLS and acl not in known:
                raise RequestRefused(
                    ErrorCode.INVALID_REQUEST, f"there are {len(known)} ACLs, and {MOST_ACLS} are the most"
                )
        except RequestRefused as refusal:
            results.append(AclResult(error_code=refusal.error, error_message=refusal.message))
            continue
        if acl not in known:
            known.add(acl)
            records.append(acl_record(rng.randbytes(ID_BYTES), acl))
        results.append(AclResult())
    return Decision(records, CreateAclsResponse(results=results))


def delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> Decision[DeleteAclsResponse]:
    """What each filter finds; an ACL that several find is removed once."""
    gone: dict[bytes, None] = {}
    results = []
    for each in request.filters:
        try:
            found = _found(image.acls, each)
        except RequestRefused as refusal:
            results.append(DeletedAcls(error_code=refusal.error, error_message=refusal.message))
            continue
        gone |= dict.fromkeys(found)
        results.append(DeletedAcls(acls=[AclBinding(**in_messages(acl)) for acl in found.values()]))
    records = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone]
    return Decision(records, DeleteAclsResponse(results=results))


def describe_acls(image: MetadataImage, request: DescribeAclsRequest) -> DescribeAclsResponse:
    try:
        found = _found(image.acls, request.filter or AclFilter())
    except RequestRefused as refusal:
        return DescribeAclsResponse(error_code=refusal.error, error_message=refusal.message)
    return DescribeAclsResponse(acls=[AclBinding(**in_messages(acl)) for acl in found.values()])


def _acl(binding: AclBinding) -> Acl:
    """Raises `RequestRefused` for what could never match, or is no ACL of this version."""
    try:
        acl = acl_of(binding)
    except ValueError as error:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"no ACL: {error}") from None
    operations = OPERATIONS.get(acl.resource_type, ())
    wrong = (
        "an ACL is of a topic, a group, the cluster or a transactional id" if not operations
        else "a pattern is literal or prefixed" if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED)
        else "an ACL allows or denies" if acl.permission is Permission.ANY
        else f"{acl.operation.name} is no operation of {acl.resource_type.name}"
        if acl.operation not in (*operations, Operation.ALL)
        else "a principal looks like User:alice" if not acl.principal.partition(":")[2] or ":" not in acl.principal
        else f"the cluster's name is {CLUSTER_NAME}"
        if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME
        else f"names have 1 to {LONGEST_TEXT} characters"
        if not all(0 < len(text) <= LONGEST_TEXT for text in (acl.resource_name, acl.principal, acl.host))
        else _wrong_topic(acl)
    )  # fmt: skip
    if wrong:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, wrong)
    return acl


def _wrong_topic(acl: Acl) -> str:
    if acl.resource_type is not ResourceType.TOPIC or acl.resource_name == ANY_NAME:
        return ""
    try:
        validate_topic_name(acl.resource_name)
    except ValueError as error:
        return "" if acl.pattern_type is PatternType.PREFIXED and acl.resource_name in (".", "..") else str(error)
    return ""


def _found(acls: Mapping[bytes, Acl], wanted: AclFilter) -> dict[bytes, Acl]:
    """Raises `RequestRefused` for a filter that is none."""
    try:
        kind, pattern = ResourceType(wanted.resource_type), PatternType(wanted.pattern_type)
        operation, permission = Operation(wanted.operation), Permission(wanted.permission_type)
    except ValueError as error:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"no filter of ACLs: {error}") from None
    return {
        acl_id: acl
        for acl_id, acl in acls.items()
        if kind in (ResourceType.ANY, acl.resource_type)
        and _fits(acl, wanted.resource_name, pattern)
        and wanted.principal in (None, acl.principal)
        and wanted.host in (None, acl.host)
        and operation in (Operation.ANY, acl.operation)
        and permission in (Permission.ANY, acl.permission)
    }


def _fits(acl: Acl, name: str | None, pattern: PatternType) -> bool:
    if pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
        return False
    if name is None or name == acl.resource_name:
        return True
    if pattern is not PatternType.MATCH:
        return False
    if acl.pattern_type is PatternType.LITERAL:
        return acl.resource_name == ANY_NAME
    return name.startswith(acl.resource_name)


# --- quotas -----------------------------------------------------------------------------------------------------------


def alter_quotas(image: MetadataImage, request: AlterClientQuotasRequest) -> Decision[AlterClientQuotasResponse]:
    """Set and remove quotas; removing one that is not there is done. An entity has one result."""
    records: list[MetadataRecord] = []
    results = []
    added = 0
    times = Counter(_names(each) for each in request.entries)
    for each in {_names(entry): entry for entry in request.entries}.values():
        try:
            if times[_names(each)] > 1:
                raise RequestRefused(ErrorCode.INVALID_REQUEST, "this entity is named more than once")
            entity = _entity(each.entity)
            made = _quota_records(image, entity, each)
            if entity not in image.quotas and any(record.value is not None for record in made):
                if len(image.quotas) + added >= MOST_QUOTAS:
                    raise RequestRefused(ErrorCode.INVALID_REQUEST, f"quotas of {MOST_QUOTAS} entities are the most")
                added += 1
            records += made
        except RequestRefused as refusal:
            results.append(AlteredQuota(error_code=refusal.error, error_message=refusal.message, entity=each.entity))
        else:
            results.append(AlteredQuota(entity=each.entity))
    if request.validate_only:
        records = []
    return Decision(records, AlterClientQuotasResponse(entries=results))


def _names(asked: QuotaAlteration) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((part.type, part.name or "") for part in asked.entity))


def _quota_records(image: MetadataImage, entity: QuotaEntity, asked: QuotaAlteration) -> list[ClientQuotaRecord]:
    known = image.quotas.get(entity, {})
    for each in asked.values:
        _check_quota(each)
    if len({each.key for each in asked.values}) < len(asked.values):
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "a quota is named more than once")
    return [
        ClientQuotaRecord(user=entity.user, client_id=entity.client_id, key=each.key, value=each.value)
        for each in asked.values
        if known.get(each.key) != each.value
    ]


def _entity(parts: Iterable[QuotaName]) -> QuotaEntity:
    """Raises `RequestRefused`."""
    found: dict[str, str] = {}
    for part in parts:
        _check_kind(part.type)
        if part.type == IP:
            raise RequestRefused(ErrorCode.INVALID_REQUEST, "quotas are of user and client-id: none of connections")
        name = DEFAULT if part.name is None else part.name
        if part.type in found or (part.name == DEFAULT) or not 0 < len(name) <= LONGEST_TEXT:
            message = f"{part.type}: a name of 1 to {LONGEST_TEXT} characters, once, or none for the default"
            raise RequestRefused(ErrorCode.INVALID_REQUEST, message)
        found[part.type] = name
    if not found:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "no entity is named")
    return QuotaEntity(found.get(USER), found.get(CLIENT_ID))


def _check_quota(quota: QuotaValue) -> None:
    if quota.key not in KEYS:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"a quota is one of {', '.join(KEYS)}, not {quota.key[:40]!r}")
    value = quota.value
    if value is None:
        return
    if not 0 < value < 2**53:  # false for what is not a number, too
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"{quota.key}={value:g}: must be above 0")
    if quota.key != REQUEST_PERCENTAGE and value != int(value):
        raise RequestRefused(ErrorCode.INVALID_REQUEST, f"{quota.key}={value:g}: whole bytes a second")


def describe_quotas(image: MetadataImage, request: DescribeClientQuotasRequest) -> DescribeClientQuotasResponse:
    """Those whom all filters fit; `strict`: and that are about nothing else."""
    types = [each.type for each in request.filters]
    try:
        _check_filters(types)
    except RequestRefused as error:
        return DescribeClientQuotasResponse(error_code=error.error, error_message=error.message)
    found = []
    for entity, values in image.quotas.items():
        names = entity.names()
        if request.strict and set(names) != set(types):
            continue
        if all(each.type in names and _quota_fits(each, names[each.type]) for each in request.filters):
            found.append(
                DescribedQuota(
                    entity=[QuotaName(type=kind, name=name) for kind, name in names.items()],
                    values=[QuotaValue(key=key, value=value) for key, value in values.items()],
                )
            )
    return DescribeClientQuotasResponse(entries=found)


def _check_filters(types: Sequence[str]) -> None:
    """Raises `RequestRefused`, with Kafka's errors. A filter of addresses may be, and finds nothing."""
    for place, kind in enumerate(types):
        _check_kind(kind)
        if kind in types[:place]:
            raise RequestRefused(ErrorCode.INVALID_REQUEST, "filters are of user and client-id, each once")
    if IP in types and len(types) > 1:
        raise RequestRefused(ErrorCode.INVALID_REQUEST, "a filter of ip stands alone")


def _check_kind(kind: str) -> None:
    if kind not in (*TYPES, IP):
        error = ErrorCode.UNSUPPORTED_VERSION if kind else ErrorCode.INVALID_REQUEST
        raise RequestRefused(error, f"quotas are of user and client-id, not of {kind[:20]!r}")


def _quota_fits(wanted: QuotaFilter, name: str | None) -> bool:
    return wanted.match_type == ANY or name == (None if wanted.match_type == OF_DEFAULT else wanted.match)


REQUESTS = (
    ChangeRequest(
        "AlterUserScramCredentials",
        RequiredPermission(Operation.ALTER),
        decide=lambda call: alter_users(call.image, call.request),
    ),
    ReadRequest(
        "DescribeUserScramCredentials",
        RequiredPermission(Operation.DESCRIBE),
        answer=lambda call: describe_users(call.image, call.request),
    ),
    ChangeRequest(
        "CreateAcls",
        RequiredPermission(Operation.ALTER),
        decide=lambda call: create_acls(call.image, call.request, call.rng),
    ),
    ChangeRequest(
        "DeleteAcls", RequiredPermission(Operation.ALTER), decide=lambda call: delete_acls(call.image, call.request)
    ),
    ReadRequest(
        "DescribeAcls",
        RequiredPermission(Operation.DESCRIBE),
        answer=lambda call: describe_acls(call.image, call.request),
    ),
    ChangeRequest(
        "AlterClientQuotas",
        RequiredPermission(Operation.ALTER_CONFIGS),
        decide=lambda call: alter_quotas(call.image, call.request),
    ),
    ReadRequest(
        "DescribeClientQuotas",
        RequiredPermission(Operation.DESCRIBE_CONFIGS),
        answer=lambda call: describe_quotas(call.image, call.request),
    ),
)
