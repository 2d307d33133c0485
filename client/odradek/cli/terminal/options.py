"""Options that many commands share, with one name, one meaning and one help text each."""

from __future__ import annotations

import sys
from typing import Annotated, Any, Final

import typer
from odradek_proto.command_line import USAGE, CommandFailed, OutputFormat
from odradek_proto.setting_units import WITH_UNITS

LARGEST_INT32: Final = (1 << 31) - 1  # of partitions, replicas and broker ids, as they go over the wire
LARGEST_INT64: Final = (1 << 63) - 1  # of offsets and timestamps
MOST_SECONDS: Final = 1_000_000  # eleven days: in milliseconds it still fits into 32 bits


def seconds(name: str, text: str, *, least: float = 0.001, most: float = MOST_SECONDS) -> Any:
    """An option that is a time. All of them have an upper bound, so that `inf` is refused as `nan` is, by its name."""
    return typer.Option(name, metavar="SECONDS", min=least, max=most, help=text)


def addresses(*names: str) -> Any:
    """The option that says where brokers are."""
    text = "Addresses of brokers. Default: the cluster that `odradek cluster up` started last."
    return typer.Option(*names, metavar="HOST:PORT,...", envvar="ODRADEK_BOOTSTRAP", help=text)


Bootstrap = Annotated[str | None, addresses("-b", "--bootstrap-server", "--brokers")]
Output = Annotated[OutputFormat, typer.Option("--output", help="How to print the result.")]
Json = Annotated[bool, typer.Option("--json", help="Short for --output json.")]
Quiet = Annotated[bool, typer.Option("-q", "--quiet", help="Print only data and errors.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]
Timeout = Annotated[
    float, seconds("--timeout", "Give up after so long (exit code 5). To find out why may take up to 8 s more.")
]
DataDirectory = Annotated[
    str | None,
    typer.Option(
        "--data", metavar="DIR", help="The cluster's directory. Default: that of the cluster that was started last."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "-X", metavar="KEY=VALUE", help=f"A setting of every broker, with Kafka's name. {WITH_UNITS} May be repeated."
    ),
]
DEFAULT_TIMEOUT_S: Final = 15.0


def is_given(context: typer.Context, parameter: str) -> bool:
    """Whether somebody wrote a parameter of this command on the command line, its default or not."""
    source = context.get_parameter_source(parameter)
    return source is not None and source.name == "COMMANDLINE"


def confirm(doing: str, does: str, wanted: str, hint: str = "add --yes") -> None:
    """What cannot be undone is said twice: by --yes, or on a terminal by typing `wanted`.

    Raises `CommandFailed` where nobody can be asked (2), or for another answer (1).
    """
    if not sys.stdin.isatty():
        raise CommandFailed(f"{doing} cannot be undone", hint=hint, exit_code=USAGE)
    print(f"This {does}. Type {wanted!r} to go on: ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip() != wanted:
        raise CommandFailed("nothing was done: the answer was another one")
