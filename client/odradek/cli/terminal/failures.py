"""How a command ends: exit codes, and errors as a person should read them.

Rules of this module. An error is a sentence, a cause if there is one, and one thing to try; a traceback appears only
with ODRADEK_DEBUG=1. An exception of any package may carry `exit_code` (a number below) and `hint`; what carries
neither is a failure of code 1.
"""

from __future__ import annotations

import difflib
import errno
import json
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from odradek_proto.command_line import FAILED, TIMED_OUT, UNREACHABLE, USAGE, CommandFailed

EXIT_CODES: Final = (
    "Exit codes: 0 fine, 1 failed or inconclusive, 2 wrong usage, 3 findings, 4 cluster unreachable, 5 timed out, "
    "130 interrupted."
)
NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
GRPC_PORT: Final = (
    "name a GRPC listener with -b: `odradek cluster list` shows both for clusters of this machine, "
    "`odradek server config` for a broker"
)
DEBUG_VARIABLE: Final = "ODRADEK_DEBUG"
QUOTED_LINE: Final = "\n    "  # before each line of a log that a message quotes


class Explanation(NamedTuple):
    """An error for people."""

    message: str
    hint: str
    exit_code: int


def explain(error: BaseException) -> Explanation:
    """Say in a sentence what went wrong, what to try, and how the command ends."""
    if isinstance(error, BaseExceptionGroup):
        first = explain(error.exceptions[0])
        more = len(error.exceptions) - 1
        return first._replace(message=f"{first.message} (and {more} more)") if more else first
    code = getattr(error, "exit_code", None)
    if isinstance(code, int):
        return Explanation(str(error), str(getattr(error, "hint", "")), code)
    if isinstance(error, OSError) and error.filename is not None:
        hint = "name a place that is there, and that you may use"
        return Explanation(f"{error.filename}: {error.strerror}", hint, FAILED)
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        hint = "standard output goes to a full disk: write it elsewhere"
        return Explanation(f"cannot write: {error.strerror}", hint, FAILED)
    if type(error).__module__.startswith("odradek"):
        return _explain_client(error)
    if isinstance(error, TimeoutError):
        return Explanation(str(error) or "no answer in time", "give it more time with --timeout", TIMED_OUT)
    return Explanation(
        f"unexpected error: {type(error).__name__}: {error}", f"{DEBUG_VARIABLE}=1 shows where it came from", FAILED
    )


def _explain_client(error: BaseException) -> Explanation:
    """Errors of `odradek` carry message and hint; which of the exit codes follows from their class."""
    from odradek.shared import errors

    message, hint = str(getattr(error, "message", error)), str(getattr(error, "hint", ""))
    if isinstance(error, errors.ConfigError):  # the other messages name topics and groups, and no settings
        message = _as_in_a_file(message)
    if isinstance(error, errors.BufferFull):
        hint = "records come faster than the cluster takes them: --rate slows down"
    elif isinstance(error, errors.LogTruncated):
        hint = "-o OFFSET says where to go on; what was read from there to the old position is gone"
    else:
        hint = _as_in_a_file(hint)
    code = FAILED
    if isinstance(error, errors.BootstrapError) and (kafka := _speaks_kafka(error.causes)):
        return Explanation(
            f"{kafka} speaks Kafka's protocol, and this command odradek's own, on gRPC", GRPC_PORT, UNREACHABLE
        )
    if isinstance(error, errors.BootstrapError | errors.BrokerUnreachable):
        code = UNREACHABLE
        if hint != getattr(error, "hint", ""):
            hint = f"{hint} (--command-config FILE has such lines)"
        hint = hint or "is the cluster up? `odradek cluster up` starts one; -b names another address"
    elif isinstance(error, TimeoutError):
        code = TIMED_OUT
    elif isinstance(error, errors.ConfigError):
        code = USAGE
    elif isinstance(error, errors.BrokerError) and error.retriable:
        hint = hint or "`odradek cluster health` says what is wrong"
    return Explanation(message, hint, code)


def _as_in_a_file(text: str) -> str:
    """What the client says of its settings, which Python gives it as keywords, with the names that files have."""
    from dataclasses import fields

    from odradek.shared.config import AdminConfig, ConsumerConfig, ProducerConfig, dotted

    names = {field.name for kind in (AdminConfig, ConsumerConfig, ProducerConfig) for field in fields(kind)}

    def in_file(found: re.Match[str]) -> str:
        name, value = found[1], found[2]
        return found[0] if name not in names else dotted(name) if value is None else f"{dotted(name)}={value}"

    return re.sub(r"""\b([a-z]+(?:_[a-z]+)+)\b(?:="(\w+)")?""", in_file, text)


def _speaks_kafka(causes: Mapping[str, str]) -> str:
    """The first of these addresses at which a listener for Kafka's clients was dialled; empty when there is none."""
    from odradek_proto.transport.reaching import Spoken, which_protocol

    hung_up = (address for address, cause in causes.items() if cause.endswith("Socket closed"))
    return next((address for address in hung_up if which_protocol(address) is Spoken.KAFKA), "")


def wants_json(arguments: Sequence[str]) -> bool:
    """Whether somebody asked for JSON on this command line, which may be wrong otherwise."""
    pairs = pairwise([*arguments, ""])
    return any(
        one in ("--json", "-J", "--output=json", "--output=jsonl") or (one == "--output" and other.startswith("json"))
        for one, other in pairs
    )


def report(error: BaseException, how_to_use: Callable[[], str], *, as_json: bool = False) -> int:
    """Print an error on standard error, as a sentence or as one JSON object; returns the exit code.

    `how_to_use` is what to try when something was used wrongly, or refused, and nobody has said how it is right.
    """
    if os.environ.get(DEBUG_VARIABLE, "") not in ("", "0"):
        traceback.print_exception(error)
    explained = explain(error)
    if not explained.hint and (explained.exit_code == USAGE or _is_refusal(error)):
        explained = explained._replace(hint=how_to_use())
    if as_json:
        failure = {"message": explained.message, "hint": explained.hint, "exit_code": explained.exit_code}
        print(json.dumps({"error": failure}, ensure_ascii=False), file=sys.stderr)
        return explained.exit_code
    lines = explained.message.split(QUOTED_LINE)
    print(f"odradek: {QUOTED_LINE.join(map(_on_a_line, lines))}", file=sys.stderr)
    if explained.hint:
        print(f"  try: {_on_a_line(explained.hint)}", file=sys.stderr)
    return explained.exit_code


def _is_refusal(error: BaseException) -> bool:
    """Whether a broker refused what was typed."""
    from odradek.shared.errors import BrokerError

    return isinstance(error, BrokerError)


def _on_a_line(text: str) -> str:
    """What was typed may have ends of lines in it, and orders for the terminal."""
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in text)


def no_such_topic(name: str, known: Iterable[str]) -> CommandFailed:
    """The error for a topic that was named and is none of the cluster's."""
    said = f"there is no topic {name!r}{did_you_mean(name, known)}"
    return CommandFailed(said, hint="`odradek topic list` shows what is there")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean 'orders'?`, up to three that go on after a hyphen, or nothing when no known name is near."""
    names = sorted(known)
    near = [each for each in names if name and each.startswith(f"{name}-")]
    near = near or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    return f"; did you mean {' or '.join(map(repr, near[:3]))}?" if near else ""
