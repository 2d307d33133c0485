"""Users that a cluster is to have from the start, how users authenticate, and what asks whether they may.

`odradek.create.users=admin=secret,alice=other`: whoever is there already is left as it is. The first user has to come
from somewhere: with Kafka it is `kafka-storage format --add-scram`.
"""

from __future__ import annotations

from odradek_proto.security.scram import MECHANISMS

from odradek_broker.config.settings import BrokerSettings, SettingError
from odradek_broker.core.context import Principal
from odradek_broker.core.security.authorizer import Authorizer

KEY = "odradek.create.users"


def parse_users(text: str) -> dict[str, str]:
    """Names and passwords. Raises `SettingError`, which repeats no password."""
    users: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, _, password = part.partition("=")
        if not name or not password:
            raise SettingError(f"{KEY} looks like admin=secret,alice=other: a name or a password is missing")
        if name in users:
            raise SettingError(f"{KEY} names the user {name!r} twice")
        users[name] = password
    return users


def enabled_mechanisms(settings: BrokerSettings) -> tuple[str, ...]:
    """Raises `SettingError`."""
    found = tuple(dict.fromkeys(part.strip() for part in settings.sasl_enabled_mechanisms.split(",") if part.strip()))
    for mechanism in found:
        if mechanism not in MECHANISMS:
            raise SettingError(f"sasl.enabled.mechanisms: there are {', '.join(MECHANISMS)}, not {mechanism!r}")
    if not found:
        raise SettingError(f"sasl.enabled.mechanisms is empty: name some of {', '.join(MECHANISMS)}")
    return found


AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def authorizer(settings: BrokerSettings) -> Authorizer | None:
    """Kafka's way to turn ACLs on. Raises `SettingError`."""
    super_users = [part.strip() for part in settings.super_users.split(";") if part.strip()]
    for text in super_users:
        try:
            Principal.parse(text)
        except ValueError as error:
            raise SettingError(f"super.users looks like User:admin;User:CN=alice: {error}") from None
    if settings.authorizer_class_name not in ("", AUTHORIZER):
        raise SettingError(
            f"authorizer.class.name: there is {AUTHORIZER}, not {settings.authorizer_class_name!r}; empty: none"
        )
    if not settings.authorizer_class_name:
        return None
    return Authorizer(super_users=super_users, allow_if_no_acl=settings.allow_everyone_if_no_acl_found)
