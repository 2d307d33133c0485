"""Who may do what: Kafka's rules, one by one, and against a naive second version."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from odradek_broker.core.security.authorizer import Authorizer
from odradek_broker.core.security.needs import NEEDS
from odradek_proto.security.acl_words import OPERATIONS, Operation, PatternType, Permission, ResourceType
from odradek_proto.security.acls import Acl

ALICE, HERE = "User:alice", "10.0.0.1"
TOPIC, LITERAL, PREFIXED = ResourceType.TOPIC, PatternType.LITERAL, PatternType.PREFIXED


def acl(
    name: str,
    operation: Operation = Operation.READ,
    *,
    pattern: PatternType = LITERAL,
    principal: str = ALICE,
    host: str = "*",
    permission: Permission = Permission.ALLOW,
) -> Acl:
    return Acl(TOPIC, name, pattern, principal, host, operation, permission)


def may(operation: Operation, name: str, *acls: Acl, principal: str = ALICE, host: str = HERE, **given: bool) -> bool:
    authorizer = Authorizer(super_users=("User:root",), **given)
    authorizer.update({bytes([number]): each for number, each in enumerate(acls)})
    return authorizer.allows(principal, host, operation, TOPIC, name)


DENY: Any = {"permission": Permission.DENY}


@pytest.mark.parametrize(
    ("operation", "acls", "allowed"),
    [
        (Operation.READ, [], False),
        (Operation.READ, [acl("orders")], True),
        (Operation.WRITE, [acl("orders")], False),
        (Operation.READ, [acl("payments")], False),
        (Operation.READ, [acl("*")], True),
        (Operation.READ, [acl("ord", pattern=PREFIXED)], True),
        (Operation.READ, [acl("ord")], False),
        (Operation.READ, [acl("orders-2", pattern=PREFIXED)], False),
        (Operation.READ, [acl("orders", principal="User:*")], True),
        (Operation.READ, [acl("orders", principal="User:bob")], False),
        (Operation.READ, [acl("orders", host=HERE)], True),
        (Operation.READ, [acl("orders", host="10.0.0.2")], False),
        (Operation.READ, [acl("orders", Operation.ALL)], True),
        (Operation.DESCRIBE, [acl("orders", Operation.WRITE)], True),
        (Operation.DESCRIBE, [acl("orders", Operation.ALTER_CONFIGS)], False),
        (Operation.DESCRIBE_CONFIGS, [acl("orders", Operation.ALTER_CONFIGS)], True),
        (Operation.READ, [acl("orders", Operation.DESCRIBE)], False),
        (Operation.READ, [acl("orders"), acl("ord", pattern=PREFIXED, **DENY)], False),
        (Operation.READ, [acl("*", principal="User:*", **DENY), acl("orders")], False),
        (Operation.READ, [acl("orders", Operation.ALL, **DENY), acl("orders")], False),
        (Operation.DESCRIBE, [acl("orders", Operation.READ, **DENY), acl("orders", Operation.DESCRIBE)], True),
    ],
)  # fmt: skip
def test_an_acl_says_who_what_where_and_from_where(operation: Operation, acls: list[Acl], allowed: bool) -> None:
    """A DENY wins, and implies nothing; patterns are literal, prefixed, or the star."""
    assert may(operation, "orders", *acls) is allowed
    assert may(operation, "orders", *reversed(acls)) is allowed


def test_super_users_and_resources_of_which_no_acl_speaks() -> None:
    """A super user is denied nothing; with the setting everybody may use what nobody has spoken of."""
    assert may(Operation.DELETE, "orders", acl("*", Operation.ALL, **DENY), principal="User:root")
    assert may(Operation.READ, "orders", allow_if_no_acl=True)
    assert not may(Operation.READ, "orders", acl("orders", principal="User:bob"), allow_if_no_acl=True)
    authorizer = Authorizer(allow_if_no_acl=True)
    assert authorizer.allows_on_any(ALICE, HERE, Operation.WRITE, TOPIC)
    authorizer.update({b"1": acl("*", Operation.WRITE, **DENY)})
    assert not authorizer.allows_on_any(ALICE, HERE, Operation.WRITE, TOPIC)


def test_an_answer_is_not_remembered_beyond_the_acls_that_it_came_from() -> None:
    """What was allowed a moment ago is asked anew when the metadata has changed."""
    authorizer = Authorizer()
    authorizer.update({b"1": acl("orders")})
    assert authorizer.allows(ALICE, HERE, Operation.READ, TOPIC, "orders")
    authorizer.update({})
    assert not authorizer.allows(ALICE, HERE, Operation.READ, TOPIC, "orders")


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([acl("a", Operation.WRITE)], True),
        ([acl("a", Operation.WRITE), acl("b", Operation.WRITE, **DENY)], True),
        ([acl("a", Operation.WRITE), acl("a", Operation.ALL, **DENY)], False),
        ([acl("ab", Operation.WRITE, pattern=PREFIXED), acl("a", Operation.WRITE, pattern=PREFIXED, **DENY)], False),
        ([acl("a", Operation.WRITE), acl("*", Operation.WRITE, **DENY)], False),
        ([acl("a")], False),
    ],
)
def test_who_may_write_some_topic_may_have_a_producer_id(acls: list[Acl], allowed: bool) -> None:
    """KIP-679: unless everything that is allowed is denied, too."""
    authorizer = Authorizer()
    authorizer.update(dict(enumerate(acls)))  # type: ignore[arg-type]
    assert authorizer.allows_on_any(ALICE, HERE, Operation.WRITE, TOPIC) is allowed


NAMES = st.sampled_from(["a", "ab", "abc", "b"])
ACLS = st.lists(
    st.builds(
        acl,
        NAMES | st.just("*"),
        st.sampled_from([Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL]),
        pattern=st.sampled_from([LITERAL, PREFIXED]),
        principal=st.sampled_from([ALICE, "User:bob", "User:*"]),
        permission=st.sampled_from([Permission.ALLOW, Permission.DENY]),
    ),
    max_size=6,
)


@given(ACLS, NAMES, st.sampled_from([Operation.READ, Operation.WRITE, Operation.DESCRIBE]), st.booleans())
def test_the_index_decides_as_looking_at_every_acl_does(
    acls: list[Acl], name: str, operation: Operation, allow_if_no_acl: bool
) -> None:
    """The naive version asks each ACL whether it fits."""

    def fits(each: Acl) -> bool:
        if each.pattern_type is PREFIXED:
            return name.startswith(each.resource_name)
        return each.resource_name in (name, "*")

    about = [each for each in acls if fits(each)]
    mine = [each for each in about if each.principal in (ALICE, "User:*")]
    implied = {Operation.READ, Operation.WRITE} if operation is Operation.DESCRIBE else set()
    denied = any(each.permission is Permission.DENY and each.operation in (operation, Operation.ALL) for each in mine)
    granted = any(
        each.permission is Permission.ALLOW and each.operation in {operation, Operation.ALL, *implied} for each in mine
    )
    expected = not denied and (granted or (allow_if_no_acl and not about))
    assert may(operation, name, *acls, allow_if_no_acl=allow_if_no_acl) is expected


def test_every_need_is_an_operation_that_its_resource_has() -> None:
    """Otherwise no ACL could ever allow it."""
    assert {api: need for api, need in NEEDS.items() if need.operation not in OPERATIONS[need.kind]} == {}


def test_giant_names_are_not_remembered() -> None:
    """Whoever may be refused may say names of 32 KiB all day long."""
    authorizer = Authorizer()
    tracemalloc.start()
    for number in range(500):
        assert not authorizer.allows(ALICE, HERE, Operation.READ, ResourceType.GROUP, f"{number:032767}")
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1 << 20
