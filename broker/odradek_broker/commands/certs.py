"""`odradek certs`: an authority for development, and certificates of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated

import typer
from odradek_proto.output_places import check_output_directory

app = typer.Typer(
    help="Make certificates for development: of nodes, and of clients that use mTLS.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Directory = Annotated[
    str, typer.Option("--dir", metavar="DIR", help="Where they are, and the authority's ca.pem and ca-key.pem.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("node")
def node(
    node_id: Annotated[int, typer.Argument(metavar="ID", min=0, help="The node.id.")],
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Under which others dial it; may be repeated. Default: those of this machine."),
    ] = None,
    directory: Directory = "certificates",
    as_json: Json = False,
) -> None:
    """Make a node's key and certificate, and the authority if there is none. Prints what to set."""
    from odradek_broker.local.certificates import AUTHORITY, make_node

    path = make_node(check_output_directory("--dir", directory), node_id, host or ())
    _print({"ssl.keystore.location": path, "ssl.truststore.location": path.with_name(AUTHORITY)}, as_json)


@app.command("client")
def client(
    user: Annotated[str, typer.Argument(metavar="USER", help="The common name; the principal is User:CN=USER.")],
    directory: Directory = "certificates",
    as_json: Json = False,
) -> None:
    """Make a client's key and certificate, and the authority if there is none. Prints what to set."""
    from odradek_broker.local.certificates import AUTHORITY, make_client

    path = make_client(check_output_directory("--dir", directory), user)
    settings = {"ssl.keystore.location": path, "ssl.truststore.location": path.with_name(AUTHORITY)}
    _print({"security.protocol": "SSL", **settings}, as_json)


def _print(settings: Mapping[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps(settings, default=str))
    else:
        print("\n".join(f"{name}={value}" for name, value in settings.items()))
