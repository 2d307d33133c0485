"""`odradek quota`: how much clients may take in a second."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.command_line import USAGE, CommandFailed
from odradek_proto.security.quota_words import DEFAULT, KEYS

from odradek.cli.clusters.asking import ASKING, QuietAsking, ToAsking
from odradek.cli.terminal.failures import did_you_mean
from odradek.cli.terminal.grouping import CommandGroup
from odradek.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from odradek_proto.security.quotas import QuotaEntity

app = CommandGroup("Quotas of users and client ids: list, set and remove them.")


@dataclass(frozen=True, slots=True)
class QuotaTarget:
    """Options that say of whom a quota is."""

    user: Annotated[str | None, typer.Option("--user", metavar="NAME", help="A user, without `User:`.")] = None
    user_defaults: Annotated[bool, typer.Option("--user-defaults", help="Every user who has no quota by name.")] = False
    client_id: Annotated[
        str | None, typer.Option("--client-id", metavar="NAME", help="Clients with this client.id.")
    ] = None
    client_defaults: Annotated[
        bool, typer.Option("--client-defaults", help="Every client.id that has no quota by name.")
    ] = False

    def entity(self) -> QuotaEntity:
        """Raises `CommandFailed` (2) for one and all others at once."""
        for name, given, others in (
            ("user", self.user, self.user_defaults),
            ("client-id", self.client_id, self.client_defaults),
        ):
            if given is not None and others:
                said = f"--{name} names one, --{name.removesuffix('-id')}-defaults all others"
                raise CommandFailed(said, hint="leave one of them out", exit_code=USAGE)
        from odradek_proto.security.quotas import QuotaEntity

        user = DEFAULT if self.user_defaults else self.user
        return QuotaEntity(user, DEFAULT if self.client_defaults else self.client_id)

    def named(self) -> QuotaEntity:
        """The same; raises `CommandFailed` (2) where nobody is named."""
        entity = self.entity()
        if not entity.names():
            hint = "--user NAME, --client-id NAME, --user-defaults, --client-defaults"
            raise CommandFailed("nobody is named", hint=hint, exit_code=USAGE)
        return entity


ANYBODY = QuotaTarget()


@app.command("list")
def list_quotas(whose: QuotaTarget = ANYBODY, screen: ToAsking = ASKING) -> None:
    """List quotas: all, or those of a user or a client id."""
    entity = whose.entity()
    found = screen.ask(lambda admin: admin.describe_client_quotas(entity))
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
    whose: QuotaTarget = ANYBODY,
    screen: QuietAsking = ASKING,
) -> None:
    """Say how much all clients of a user, of a client id, or of both together may take, from each broker."""
    values = {_key(text.partition("=")[0]): _number(text) for text in quotas}
    entity = whose.named()
    screen.ask(lambda admin: admin.alter_client_quotas(entity, dict(values)))
    _done(entity, {"set": values}, screen)


@app.command("remove")
def remove(
    quotas: Annotated[list[str] | None, typer.Argument(metavar="[QUOTA]...", help="Default: all.")] = None,
    whose: QuotaTarget = ANYBODY,
    screen: QuietAsking = ASKING,
) -> None:
    """Remove quotas; what remains is that of the defaults, if there are any."""
    gone = [_key(text) for text in quotas or KEYS]
    entity = whose.named()
    found = screen.ask(lambda admin: admin.describe_client_quotas(entity)).get(entity, {})
    gone = [key for key in gone if key in found]
    if gone:
        screen.ask(lambda admin: admin.alter_client_quotas(entity, dict.fromkeys(gone)))
    _done(entity, {"removed": gone}, screen)


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
    of = " with ".join(f"{kind} {name or 'defaults'}" for kind, name in entity.names().items())
    said = f"quotas of {of}: {' '.join(what)} {', '.join(next(iter(what.values()))) or 'nothing'}"
    screen.done(said, [{**_row(entity), **what}])
