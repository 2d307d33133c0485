"""`odradek server health`: is the node behind a metrics listener ready, or alive?"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from odradek_proto.command_line import FAILED, FINE, USAGE, CommandFailed

from odradek_broker.commands.probe import (
    DEFAULT_TIMEOUT_S,
    DEFAULT_URL,
    UNREACHABLE,
    VARIABLE,
    NoAnswer,
    ask,
    default_url,
    reasons_in,
    split_address,
)

LONGEST_S = 86_400


def health(
    live: Annotated[bool, typer.Option("--live", help="Only whether the process works, ready or not.")] = False,
    ready: Annotated[bool, typer.Option("--ready", help="Whether clients may be sent to it; the default.")] = False,
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help=f"Where. Default: {VARIABLE}, else {DEFAULT_URL}.")
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", metavar="SECONDS", min=0.001, max=LONGEST_S, help="For all of it.")
    ] = DEFAULT_TIMEOUT_S,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: url, asked, answer, reasons.")] = False,
) -> None:
    """Ask a node whether it is ready, by its metrics listener.

    Exit code 0: it is. 1: it is not, and the reasons are printed, a line each. 4: nobody answers; in JSON the answer
    is null then.
    """
    if live and ready:
        raise CommandFailed("--live and --ready are two questions", hint="ask one at a time", exit_code=USAGE)
    where, word = default_url() if url is None else url, "live" if live else "ready"
    try:
        reasons = reasons_in(ask(*split_address(where), f"/health/{word}", timeout))
    except ValueError as error:
        raise CommandFailed(str(error), hint="name the node's listener with --url", exit_code=USAGE) from error
    except NoAnswer as error:
        if as_json:
            _print_json(where, word, None, [str(error)])
        hint = "is the node up, and odradek.metrics.listener set?"
        raise CommandFailed(f"no answer from {where}: {error}", hint=hint, exit_code=UNREACHABLE) from error
    if as_json:
        _print_json(where, word, not reasons, reasons)
        raise typer.Exit(FAILED if reasons else FINE)
    for reason in reasons:
        print(f"not {word}: {reason}", file=sys.stderr)
    if reasons:
        raise typer.Exit(FAILED)
    print(word)


def _print_json(url: str, asked: str, answer: bool | None, reasons: Sequence[str]) -> None:
    print(json.dumps({"url": url, "asked": asked, "answer": answer, "reasons": list(reasons)}))
