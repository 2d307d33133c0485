"""`odradek acl`: who may do what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.command_line import USAGE, CommandFailed
from odradek_proto.security.acl_words import ANY_NAME, CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek_proto.words import noun

from odradek.cli.clusters.asking import ASKING, QuietAsking, ToAsking
from odradek.cli.terminal.failures import did_you_mean
from odradek.cli.terminal.grouping import CommandGroup
from odradek.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from odradek_proto.security.acls import Acl

app = CommandGroup("ACLs: list, add and remove them.")

WORDS = {operation.name.lower().replace("_", "-"): operation for operation in Operation if operation != Operation.ANY}

Principal = Annotated[str | None, typer.Option("--principal", metavar="User:NAME", help="Who; User:* is everybody.")]
Topic = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="A topic; * is every topic.")]
Group = Annotated[str | None, typer.Option("--group", metavar="NAME", help="A consumer group.")]


@dataclass(frozen=True, slots=True)
class AclOptions:
    """Options that say what ACLs are to be made, or removed."""

    principal: Principal = None
    operation: Annotated[
        list[str] | None,
        typer.Option("--operation", metavar="WORD", help=f"One of {', '.join(WORDS)}. May be repeated. [default: all]"),
    ] = None
    topic: Topic = None
    group: Group = None
    cluster: Annotated[bool, typer.Option("--cluster", help="The cluster itself.")] = False
    prefixed: Annotated[bool, typer.Option("--prefixed", help="All whose names begin so.")] = False
    host: Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="From where. [default: anywhere]")] = (
        None
    )
    deny: Annotated[bool, typer.Option("--deny", help="Forbid it: that wins over whatever allows it.")] = False

    def resource(self) -> tuple[ResourceType, str, PatternType]:
        kind = PatternType.PREFIXED if self.prefixed else PatternType.LITERAL
        return *_resource(self.topic, self.group, self.cluster), kind

    def permission(self) -> Permission:
        return Permission.DENY if self.deny else Permission.ALLOW


PATTERN = AclOptions()


@app.command("list")
def list_acls(principal: Principal = None, topic: Topic = None, group: Group = None, screen: ToAsking = ASKING) -> None:
    """List ACLs: all, or those that speak of a principal, a topic or a group, by whichever pattern."""
    from odradek.administration.acls import AclFilter

    kind, name = _resource(topic, group, False) if topic or group else (ResourceType.ANY, None)
    pattern = PatternType.ANY if name is None else PatternType.MATCH
    wanted = AclFilter(kind, name, pattern, principal)
    found = screen.ask(lambda admin: admin.describe_acls(wanted))
    _show(found, screen)
    if not found:
        screen.say("no ACLs")


@app.command("add")
def add(wanted: AclOptions = PATTERN, screen: QuietAsking = ASKING) -> None:
    """Let a principal do something with a resource, or forbid it."""
    resource, principal = wanted.resource(), wanted.principal
    if principal is None:
        raise CommandFailed("nobody is named", hint="--principal User:NAME", exit_code=USAGE)
    from odradek_proto.security.acls import Acl

    acls = [
        Acl(*resource, principal, wanted.host or ANY_NAME, each, wanted.permission())
        for each in _operations(wanted.operation) or [Operation.ALL]
    ]
    screen.ask(lambda admin: admin.create_acls(acls))
    if screen.for_people:
        screen.say(f"{len(acls)} {noun(len(acls), 'ACL')} added")
    else:
        _show(acls, screen)


@app.command("remove")
def remove(wanted: AclOptions = PATTERN, screen: ToAsking = ASKING) -> None:
    """Remove what allows it, or with --deny what forbids it; prints what was removed."""
    from odradek.administration.acls import AclFilter

    gone: list[Acl] = []
    for each in _operations(wanted.operation) or [Operation.ANY]:
        found = AclFilter(*wanted.resource(), wanted.principal, wanted.host, each, wanted.permission())
        gone += screen.ask(lambda admin, found=found: admin.delete_acls(found))  # type: ignore[misc]
    _show(gone, screen)
    if not gone:
        screen.say("no ACL is so: nothing was removed (`odradek acl list` shows those that there are)")


def _resource(topic: str | None, group: str | None, cluster: bool) -> tuple[ResourceType, str]:
    found = [
        (kind, name)
        for kind, name in (
            (ResourceType.TOPIC, topic),
            (ResourceType.GROUP, group),
            (ResourceType.CLUSTER, CLUSTER_NAME if cluster else None),
        )
        if name is not None
    ]
    if len(found) != 1:
        raise CommandFailed(
            "an ACL is of one resource", hint="--topic NAME, --group NAME or --cluster", exit_code=USAGE
        )
    return found[0]


def _operations(words: Iterable[str] | None) -> list[Operation]:
    for word in words or ():
        if word.lower() not in WORDS:
            said = f"--operation: {word!r} is no operation{did_you_mean(word.lower(), WORDS)}"
            raise CommandFailed(said, hint=", ".join(WORDS), exit_code=USAGE)
    return [WORDS[word.lower()] for word in words or ()]


def _show(acls: Iterable[Acl], screen: Screen) -> None:
    rows: list[dict[str, Any]] = [
        {
            "permission": acl.permission.name.lower(),
            "principal": acl.principal,
            "operation": acl.operation.name.lower().replace("_", "-"),
            "resource": acl.resource_type.name.lower(),
            "name": acl.resource_name,
            "pattern": acl.pattern_type.name.lower(),
            "host": acl.host,
        }
        for acl in acls
    ]
    screen.show_rows(rows, {name: name.upper() for name in rows[0]} if rows else {})
