"""`odradek`: starts the command that was asked for, and says in a sentence what went wrong.

Rule of this module: it imports nothing heavy. `odradek --help` is there before grpc could have been loaded.
"""

from __future__ import annotations

import os
import sys
from contextvars import copy_context
from functools import cache
from typing import Annotated, Any

import typer
from odradek_proto.command_line import FINE, INTERRUPTED, USAGE
from typer.main import get_command

from odradek.cli.terminal.failures import EXIT_CODES, report, wants_json
from odradek.cli.tree import CommandTree

HELP = "A small Kafka that can be broken on purpose and proves what survived."
EPILOG = (
    f"{EXIT_CODES} Environment: ODRADEK_BOOTSTRAP, ODRADEK_COMMAND_CONFIG, ODRADEK_HOME, ODRADEK_KAFKA_PORT, "
    "ODRADEK_DEBUG=1, NO_COLOR."
)

HELP_OPTIONS = ("-h", "--help")

app = typer.Typer(
    cls=CommandTree,
    help=HELP,
    epilog=EPILOG,
    no_args_is_help=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": [*HELP_OPTIONS], "max_content_width": 100},
)


def show_version(context: typer.Context, wanted: bool) -> None:
    """Run `odradek version`, if this option is given, and end."""
    if wanted:
        command: Any = context.command
        version = command.get_command(context, "version")
        with version.make_context("version", [], parent=context) as its_own:
            version.invoke(its_own)
        raise typer.Exit(FINE)


@app.callback()
def options(
    no_color: Annotated[bool, typer.Option("--no-color", help="No colours, as with NO_COLOR=1.")] = False,
    command_config: Annotated[
        str | None,
        typer.Option(
            "--command-config",
            metavar="FILE",
            help="Properties of a client: security.protocol, ssl.*, sasl.* (ODRADEK_COMMAND_CONFIG).",
        ),
    ] = None,
    verbose: Annotated[
        int, typer.Option("-v", "--verbose", count=True, help="Log more to standard error (-vv: debug).")
    ] = 0,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=show_version, help="Short for `odradek version`.")
    ] = False,
) -> None:
    if no_color:
        os.environ["NO_COLOR"] = "1"
    if command_config is not None:
        os.environ["ODRADEK_COMMAND_CONFIG"] = command_config
    if verbose:
        import logging

        logging.basicConfig(level=logging.INFO if verbose == 1 else logging.DEBUG, stream=sys.stderr)


@cache
def command_tree() -> Any:
    """`odradek` with all commands below it, each of which is loaded when it is called for, once."""
    return get_command(app)


def main(arguments: list[str] | None = None) -> int:
    """Run a command line; returns the exit code."""
    _open_what_is_closed()
    arguments = sys.argv[1:] if arguments is None else arguments
    as_json = wants_json(arguments)
    code = FINE
    try:
        code = copy_context().run(_run, arguments)  # what it settles for its own process is not for the next one
        sys.stdout.flush()  # so that what cannot be written is an error like any other
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = FINE  # whoever read our output has had enough
    except Exception as error:
        code = report(error, lambda: how_to_use(command_tree(), arguments), as_json=as_json)
    _give_up_output()
    return code


def _run(arguments: list[str]) -> int:
    """The command alone. Raises what it raises, and `CommandFailed` for wrong usage."""
    command = command_tree()
    if arguments and arguments[-1] in HELP_OPTIONS and (help_text := help_of(command, arguments[:-1])):
        print(help_text)
        return FINE
    try:
        ended = command.main(args=arguments, prog_name="odradek", standalone_mode=False)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):
            raise end.__context__ from None  # typer makes a failure of it
        return end.code if isinstance(end.code, int) else FINE
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)
            return USAGE
        if not hasattr(error, "format_message"):
            raise
        from odradek.cli.terminal.usage import in_own_words

        raise in_own_words(error, arguments) from error
    return ended if isinstance(ended, int) else FINE


def help_of(command: Any, words: list[str]) -> str:
    """The help of the command that these words name; empty when there are other words among them.

    Nothing is parsed: what typer loads to judge values takes twice as long as all the rest.
    """
    context = command.context_class(command, info_name="odradek", **command.context_settings)
    for word in words:
        command = command.get_command(context, word) if hasattr(command, "get_command") else None
        if command is None:
            return ""
        context = command.context_class(command, info_name=word, parent=context, **command.context_settings)
    return str(command.get_help(context))


def how_to_use(command: Any, arguments: list[str]) -> str:
    """What to try when the command that these words name was used wrongly."""
    path = ["odradek"]
    for word in arguments:
        below = command.get_command(None, word) if hasattr(command, "get_command") else None
        if below is not None:
            path.append(word)
            command = below
    return f"`{' '.join(path)} --help` shows what it takes"


def _open_what_is_closed() -> None:
    """After `>&-` Python has no standard output, and the next file or socket would get its number."""
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8", errors="replace", closefd=False))


def _give_up_output() -> None:
    """What could not be written is not tried again, with a traceback, when the interpreter ends."""
    from odradek.cli.terminal.screen import drop_output

    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            drop_output(stream)


if __name__ == "__main__":
    sys.exit(main())
