"""`python -m odradek_broker -c FILE -X key=value`: one node, as `odradek server run` starts it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from odradek_broker.config import sources as config
from odradek_broker.process.server import run

USAGE_ERROR = 2


def main(arguments: list[str] | None = None) -> int:
    """Parse, load, run; returns the exit code."""
    parser = argparse.ArgumentParser(prog="odradek_broker", description="Run one odradek node.")
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="a .properties or .toml file")
    parser.add_argument(
        "-X", dest="overrides", action="append", default=[], metavar="KEY=VALUE", help="one setting; wins over the file"
    )
    parser.add_argument(
        "--while-stdin-is-open", action="store_true", help="stop when whoever started it has gone, and its pipe with it"
    )
    options = parser.parse_args(arguments)
    if not __debug__:
        print("odradek: assertions are part of the broker; start it without -O", file=sys.stderr)
        return USAGE_ERROR
    try:
        loaded = config.load(options.config, environment=os.environ, overrides=options.overrides)
        return run(loaded, while_stdin_is_open=options.while_stdin_is_open)
    except config.SettingError as error:
        print(f"odradek: {error}", file=sys.stderr)
        return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
