"""`odradek quota`: how much clients may take in a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.command_line import USAGE, CommandFailed
from odradek_proto.security.quota_words import DEFAULT, KEYS

from odradek.cli.clusters.commands import ask
from odradek.cli.terminal.failures import did_you_mean
from odradek.cli.terminal.grouping import SCREEN, CommandGroup, QuietScreen, ToScreen
from odradek.cli.terminal.options import DEFAULT_TIMEOUT_S, Bootstrap, Timeout
from odradek.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from odradek_proto.security.quotas import QuotaEntity

app = CommandGroup("Quotas of users and client ids: list, set and remove them.")

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user, without `User:`.")]
OtherUsers = Annotated[bool, typer.Option("--user-defaults", help="Every user who has no quota by name.")]
ClientId = Annotated[str | None, typer.Option("--client-id", metavar="NAME", help="Clients with this client.id.")]
OtherIds = Annotated[bool, typer.Option("--client-defaults", help="Every client.id that has no quota by name.")]


@app.command("list")
def list_quotas(
    user: User = None,
    user_defaults: OtherUsers = False,
    client_id: ClientId = None,
    client_defaults: OtherIds = False,
    bootstrap: Bootstrap = None,
    screen: ToScreen = SCREEN,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List quotas: all, or those of a user or a client id."""
    entity = _entity(user, user_defaults, client_id, client_defaults)
    found = ask(bootstrap, timeout, lambda admin: admin.describe_client_quotas(entity))
    rows = [{**_row(entity), "quota": key, "value": value} for entity, quotas in found.items()
            for key, value in quotas.items()]  # fmt: skip
    headings = {name: name.upper().replace("_", "-") for name in ("user", "client_id", "quota", "value")}
    screen.show_rows(rows, headings)
    if not rows:
        screen.say("no quotas")


@app.command("set")
def set_quotas(
    quotas: Annotated[
        list[str], typer.Argument(metavar="QUOTA=VALUE...", help=f"{', '.join(KEYS)}: bytes a second, or percent.")
    ],
    user: User = None,
    user_defaults: OtherUsers = False,
    client_id: ClientId = None,
    client_defaults: OtherIds = False,
    bootstrap: Bootstrap = None,
    screen: QuietScreen = SCREEN,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Say how much all clients of a user, of a client id, or of both together may take, from each broker."""
    values = {_key(text.partition("=")[0]): _number(text) for text in quotas}
    entity = _named(_entity(user, user_defaults, client_id, client_defaults))
    ask(bootstrap, timeout, lambda admin: admin.alter_client_quotas(entity, dict(values)))
    _done(entity, {"set": values}, screen)


@app.command("remove")
def remove(
    quotas: Annotated[list[str] | None, typer.Argument(metavar="[QUOTA]...", help="Default: all.")] = None,
    user: User = None,
    user_defaults: OtherUsers = False,
    client_id: ClientId = None,
    client_defaults: OtherIds = False,
    bootstrap: Bootstrap = None,
    screen: QuietScreen = SCREEN,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Remove quotas; what remains is that of the defaults, if there are any."""
    gone = [_key(text) for text in quotas or KEYS]
    entity = _named(_entity(user, user_defaults, client_id, client_defaults))
    found = ask(bootstrap, timeout, lambda admin: admin.describe_client_quotas(entity)).get(entity, {})
    gone = [key for key in gone if key in found]
    if gone:
        ask(bootstrap, timeout, lambda admin: admin.alter_client_quotas(entity, dict.fromkeys(gone)))
    _done(entity, {"removed": gone}, screen)


def _entity(user: str | None, users: bool, client_id: str | None, ids: bool) -> QuotaEntity:
    for name, given, others in (("user", user, users), ("client-id", client_id, ids)):
        if given is not None and others:
            said = f"--{name} names one, --{name.removesuffix('-id')}-defaults all others"
            raise CommandFailed(said, hint="leave one of them out", exit_code=USAGE)
    from odradek_proto.security.quotas import QuotaEntity

    return QuotaEntity(DEFAULT if users else user, DEFAULT if ids else client_id)


def _named(entity: QuotaEntity) -> QuotaEntity:
    if not entity.names():
        raise CommandFailed(
            "nobody is named", hint="--user NAME, --client-id NAME, --user-defaults, --client-defaults", exit_code=USAGE
        )
    return entity


def _key(text: str) -> str:
    if text not in KEYS:
        raise CommandFailed(f"no quota {text!r}{did_you_mean(text, KEYS)}", hint=", ".join(KEYS), exit_code=USAGE)
    return text


def _number(text: str) -> float:
    try:
        return float(text.partition("=")[2])
    except ValueError:
        raise CommandFailed(f"{text}: no number", hint=f"{text.partition('=')[0]}=1048576", exit_code=USAGE) from None


def _row(entity: QuotaEntity) -> dict[str, Any]:
    return {"user": entity.user, "client_id": entity.client_id}


def _done(entity: QuotaEntity, what: dict[str, Any], screen: Screen) -> None:
    if screen.for_people:
        of = " with ".join(f"{kind} {name or 'defaults'}" for kind, name in entity.names().items())
        screen.say(f"quotas of {of}: {' '.join(what)} {', '.join(next(iter(what.values()))) or 'nothing'}")
    else:
        screen.show_rows([{**_row(entity), **what}], {})
