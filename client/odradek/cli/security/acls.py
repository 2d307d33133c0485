"""`odradek acl`: who may do what."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.command_line import USAGE, CommandFailed
from odradek_proto.security.acl_words import ANY_NAME, CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from odradek_proto.words import noun

from odradek.cli.clusters.commands import ask
from odradek.cli.terminal.failures import did_you_mean
from odradek.cli.terminal.grouping import SCREEN, CommandGroup, QuietScreen, ToScreen
from odradek.cli.terminal.options import DEFAULT_TIMEOUT_S, Bootstrap, Timeout
from odradek.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from odradek_proto.security.acls import Acl

app = CommandGroup("ACLs: list, add and remove them.")

WORDS = {operation.name.lower().replace("_", "-"): operation for operation in Operation if operation != Operation.ANY}

Principal = Annotated[str | None, typer.Option("--principal", metavar="User:NAME", help="Who; User:* is everybody.")]
Operations = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="WORD", help=f"One of {', '.join(WORDS)}. May be repeated. [default: all]"),
]
Topic = Annotated[str | None, typer.Option("--topic", metavar="NAME", help="A topic; * is every topic.")]
Group = Annotated[str | None, typer.Option("--group", metavar="NAME", help="A consumer group.")]
OfCluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="All whose names begin so.")]
Host = Annotated[str | None, typer.Option("--host", metavar="ADDRESS", help="From where. [default: anywhere]")]
Deny = Annotated[bool, typer.Option("--deny", help="Forbid it: that wins over whatever allows it.")]


@app.command("list")
def list_acls(
    principal: Principal = None,
    topic: Topic = None,
    group: Group = None,
    bootstrap: Bootstrap = None,
    screen: ToScreen = SCREEN,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List ACLs: all, or those that speak of a principal, a topic or a group, by whichever pattern."""
    from odradek.administration.acls import AclFilter

    kind, name = _resource(topic, group, False) if topic or group else (ResourceType.ANY, None)
    pattern = PatternType.ANY if name is None else PatternType.MATCH
    wanted = AclFilter(kind, name, pattern, principal)
    found, screen = ask(bootstrap, timeout, lambda admin: admin.describe_acls(wanted)), screen
    _show(found, screen)
    if not found:
        screen.say("no ACLs")


@app.command("add")
def add(
    principal: Principal = None,
    operation: Operations = None,
    topic: Topic = None,
    group: Group = None,
    cluster: OfCluster = False,
    prefixed: Prefixed = False,
    host: Host = None,
    deny: Deny = False,
    bootstrap: Bootstrap = None,
    screen: QuietScreen = SCREEN,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Let a principal do something with a resource, or forbid it."""
    kind, name = _resource(topic, group, cluster)
    if principal is None:
        raise CommandFailed("nobody is named", hint="--principal User:NAME", exit_code=USAGE)
    from odradek_proto.security.acls import Acl

    acls = [
        Acl(
            kind,
            name,
            PatternType.PREFIXED if prefixed else PatternType.LITERAL,
            principal,
            host or ANY_NAME,
            each,
            Permission.DENY if deny else Permission.ALLOW,
        )
        for each in _operations(operation) or [Operation.ALL]
    ]
    ask(bootstrap, timeout, lambda admin: admin.create_acls(acls))
    if screen.for_people:
        screen.say(f"{len(acls)} {noun(len(acls), 'ACL')} added")
    else:
        _show(acls, screen)


@app.command("remove")
def remove(
    principal: Principal = None,
    operation: Operations = None,
    topic: Topic = None,
    group: Group = None,
    cluster: OfCluster = False,
    prefixed: Prefixed = False,
    host: Host = None,
    deny: Deny = False,
    bootstrap: Bootstrap = None,
    screen: ToScreen = SCREEN,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Remove what allows it, or with --deny what forbids it; prints what was removed."""
    from odradek.administration.acls import AclFilter

    kind, name = _resource(topic, group, cluster)
    pattern = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    gone: list[Acl] = []
    for each in _operations(operation) or [Operation.ANY]:
        wanted = AclFilter(kind, name, pattern, principal, host, each, permission)
        gone += ask(bootstrap, timeout, lambda admin, wanted=wanted: admin.delete_acls(wanted))  # type: ignore[misc]
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
