"""`odradek server`: one node as a process, and the settings that it would run with."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from odradek_proto.command_line import USAGE, CommandFailed
from odradek_proto.setting_units import WITH_UNITS

from odradek_broker.commands.server_health import health

if TYPE_CHECKING:
    from odradek_broker.config.sources import LoadedConfig

app = typer.Typer(
    help="Run one broker or controller; show its settings.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

ConfigFile = Annotated[
    Path | None,
    typer.Option("-c", "--config", metavar="FILE", help="Settings: server.properties, as Kafka's, or TOML."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("-X", metavar="KEY=VALUE", help=f"One setting; wins over the file. {WITH_UNITS} May be repeated."),
]


@app.command("run")
def run(config: ConfigFile = None, overrides: Overrides = None) -> None:
    """Run one node until SIGTERM or Ctrl-C; a second one ends it at once.

    Settings come from the file, then the environment (KAFKA_..., ODRADEK_...), then -X; the later wins. Without
    controller.quorum.voters the node is a cluster of its own.
    """
    if not __debug__:
        raise CommandFailed("assertions are part of the broker", hint="start it without python -O", exit_code=USAGE)
    loaded = _load(config, overrides)
    from odradek_broker.config.sources import SettingError
    from odradek_broker.process.server import run as run_node

    try:
        code = run_node(loaded)
    except SettingError as error:
        raise CommandFailed(str(error), exit_code=USAGE) from error
    raise typer.Exit(code)


@app.command("config")
def show_config(
    config: ConfigFile = None,
    overrides: Overrides = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that are not at their default.")] = False,
    sources: Annotated[bool, typer.Option("--sources", help="Only which source set what, a line for each.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show the final settings and where each comes from. Checks them as `server run` would."""
    from odradek_broker.config.settings import FIELD_BY_KEY, FIELDS, SettingError, as_text, shown
    from odradek_broker.process.server import single_node_defaults

    loaded = _load(config, overrides)
    try:
        single_node_defaults(loaded.settings)
    except SettingError as error:
        raise CommandFailed(str(error), exit_code=USAGE) from error
    if sources and not as_json:
        print("\n".join((*loaded.set_by(), *loaded.unheard())))
        return
    defaults = {item.name: item.default for item in FIELDS}
    rows = [
        {
            "name": key,
            "value": shown(loaded.settings, name),
            "source": loaded.sources.get(key, "default"),
            "default": as_text(defaults[name]),
        }
        for key, name in FIELD_BY_KEY.items()
        if not changed or key in loaded.sources
    ]
    if as_json:
        print(json.dumps({"settings": rows, "unused": loaded.unused, "ignored": loaded.ignored}, indent=2))
        return
    width = max((len(row["name"]) + len(row["value"]) + 1 for row in rows), default=0)
    for row in rows:
        setting = f"{row['name']}={row['value']}"
        print(f"{setting.ljust(min(width, 72))}  # {row['source']}")
    for line in loaded.unheard():
        print(f"odradek: {line}", file=sys.stderr)


def _load(path: Path | None, overrides: list[str] | None) -> LoadedConfig:
    from odradek_broker.config import sources as config

    try:
        return config.load(path, environment=os.environ, overrides=overrides or ())
    except config.SettingError as error:
        hint = "`odradek server config --help`; `odradek docs configuration` lists all settings"
        raise CommandFailed(str(error), hint=hint, exit_code=USAGE) from error


app.command("health")(health)
