"""`odradek user`: users and their passwords."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from odradek_proto.command_line import USAGE, CommandFailed, read_small

from odradek.cli.clusters.asking import ASKING, QuietAsking, ToAsking
from odradek.cli.terminal.grouping import CommandGroup
from odradek.cli.terminal.options import Yes, confirm

UNCHECKED = (
    "nobody checks it: this cluster took the command without asking who gives it; `odradek cluster up --secure` starts "
    "one that asks"
)
app = CommandGroup("Users who authenticate by SASL: list them, set a password, delete one.")


def _named(name: str) -> str:
    if not name:
        raise CommandFailed("the name of a user is empty", hint="USER is one word", exit_code=USAGE)
    return name


Name = Annotated[str, typer.Argument(metavar="USER", help="The principal is User:USER.", callback=_named)]


@app.command("list")
def list_users(screen: ToAsking = ASKING) -> None:
    """List users and the mechanisms that each may use."""
    found = screen.ask(lambda admin: admin.describe_user_scram_credentials())
    rows = [{"user": name, "mechanisms": list(credentials)} for name, credentials in found.items()]
    screen.show_rows(rows, {"user": "USER", "mechanisms": "MECHANISMS"})
    screen.say("" if rows else "no users")


@app.command("set")
def set_password(
    name: Name,
    password_file: Annotated[
        Path | None,
        typer.Option("--password-file", metavar="FILE", help="Its first line is the password; - is standard input."),
    ] = None,
    screen: QuietAsking = ASKING,
) -> None:
    """Make a user, or change the password of one. Without a file the password is asked for."""
    password = _password(name, password_file)
    screen.ask(lambda admin: admin.upsert_user_scram_credentials(name, password))
    screen.done(f"user {name} can authenticate with this password", [{"user": name, "set": True}])
    if not _talks_with_sasl():
        screen.say(UNCHECKED)


@app.command("delete")
def delete(name: Name, yes: Yes = False, screen: QuietAsking = ASKING) -> None:
    """Delete a user's credentials; connections that are open go on.

    On a terminal it asks first; elsewhere it needs --yes.
    """
    if not yes:
        confirm("deleting a user", f"deletes the credentials of {name}{_itself(name)}", name)
    screen.ask(lambda admin: admin.delete_user_scram_credentials(name))
    screen.done(f"user {name}{_itself(name)} can authenticate no more", [{"user": name, "deleted": True}])


def _talks_with_sasl() -> bool:
    """Whether this command itself had to say who it is."""
    from odradek.shared.security import default_security

    return default_security().sasl


def _itself(name: str) -> str:
    from odradek.shared.security import default_security

    security = default_security()
    return ", as whom this command authenticates," if security.sasl and security.sasl_username == name else ""


def _password(name: str, file: Path | None) -> str:
    if file is None:
        if not sys.stdin.isatty():
            said = "a password is asked for on a terminal only"
            raise CommandFailed(said, hint="--password-file FILE; - is standard input", exit_code=USAGE)
        return str(typer.prompt(f"password of {name}", hide_input=True, confirmation_prompt=True, err=True))
    try:
        text = sys.stdin.readline() if str(file) == "-" else read_small(file).decode()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CommandFailed(
            f"--password-file {file} cannot be read: {why}", hint="name a file of text", exit_code=USAGE
        ) from error
    password = text.split("\n", 1)[0].rstrip("\r")
    if not password:
        raise CommandFailed(f"--password-file {file}: its first line is empty", exit_code=USAGE)
    return password
