"""Wrong usage in odradek's own words, whoever noticed it: the parser of the command line, or the check of a value."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from odradek_proto.command_line import USAGE, CommandFailed

from odradek.cli.terminal.failures import did_you_mean

_PHRASES: Final[tuple[tuple[str, Callable[[re.Match[str]], str]], ...]] = (
    (
        r"No such option: (\S+?)\.?(?: \((?:Possible options|Did you mean):? (\S+?)[,)?].*| Did you mean (\S+?)\?)?",
        lambda m: f"there is no option {m[1]}" + _meant(m[1], m[2] or m[3]),
    ),
    (
        r"Missing (?:argument|option|parameter):? '?(.+?)(?:\.\.\.)?'?(?: / '\S+?')*\.?",
        lambda m: f"{m[1]} is missing",
    ),
    (r"Got unexpected extra arguments? \((.+)\)", lambda m: f"too many arguments: {m[1]}"),
    (r"Got unexpected extra argument\(s\) \((.+)\)", lambda m: f"too many arguments: {m[1]}"),
    (r"Option '(\S+)' requires an argument\.?", lambda m: f"{m[1]} needs a value"),
    (r"Option '(\S+)' does not take a value\.?", lambda m: f"{m[1]} takes no value"),
    (r"Invalid value for '(\S+?)'(?: / '\S+?')*: (.*)", lambda m: f"{m[1]}{{given}}: {_value(m[2])}"),
)  # fmt: skip
_VALUES: Final[tuple[tuple[str, str], ...]] = (
    (r"Input should be a valid integer.*", "not a whole number"),
    (r"Input should be a valid number.*", "not a number"),
    (r"Input should be greater than or equal to (\S+)", r"must be at least \1"),
    (r"Input should be less than or equal to (\S+)", r"must be at most \1"),
    (r"Input should be (.*)", r"must be \1"),
    (r"Value error, '.*' is not one of (.*?)\.?", r"is none of \1"),
    (r"Value error, (.*)", r"\1"),
)
PLACES: Final = {"--to-earliest": "beginning", "--to-latest": "end", "--to-offset": "N", "--to-datetime": "@TIME",
                 "--from-beginning": "beginning"}  # fmt: skip
HABITS: Final[dict[str, tuple[str, ...]]] = {  # what others call it, and what it may be here: the first that is there
    "-n": ("--count",),
    "--num": ("--count",),
    "--max-messages": ("--count",),
    "-c": ("--config", "--count", "--command-config"),
    "--force": ("--yes", "--overwrite"),
    "--confirm": ("--yes",),
    "--add-config": ("--config",),
    **dict.fromkeys(PLACES, ("--offset",)),
    "--port": ("--bootstrap-server",),
}

ARGUMENTS: Final = {"--topic": ("TOPIC", "NAME"), "--topics": ("TOPIC", "NAME"), "--group": ("GROUP",)}
REMEDIES: Final = {"--version": "`odradek version`",
                   "--port": "ODRADEK_KAFKA_PORT=PORT: the first one for Kafka's clients"}  # fmt: skip


def in_own_words(error: Any, arguments: Sequence[str]) -> CommandFailed:
    """What a usage error of the parser says, with a remedy. Its `ctx` tells which command was meant, if it knows."""
    text, context = str(error.format_message()), error.ctx
    first = next((word for word in arguments if not word.startswith("-")), "")
    path = getattr(context, "command_path", f"odradek {first}".strip())
    hint = f"`{path} --help`"
    if (unknown := re.fullmatch(r"No such command '(.+?)'\..*", text, re.DOTALL)) is not None:
        known = context.command.list_commands(context)
        return CommandFailed(
            f"there is no command {path.partition(' ')[2]} {unknown[1]}{did_you_mean(unknown[1], known)}",
            hint=f"{hint} lists all",
            exit_code=USAGE,
        )
    for pattern, say in _PHRASES:
        if (match := re.fullmatch(pattern, text, re.DOTALL)) is not None:
            text = say(match).replace("{given}", _given(error))
            break
    option = str(getattr(error, "option_name", ""))
    if option and context is not None and context.parent is None:
        commands = context.command.list_commands(context)
        if (command := next((word for word in arguments if word in commands), None)) is not None:
            behind = f"options stand behind the command: `odradek {command} ... {option}`"
            return CommandFailed(text.partition(";")[0], hint=behind, exit_code=USAGE)
    if (remedy := _habit(option, context)) is not None:
        return CommandFailed(text.partition(";")[0], hint=remedy, exit_code=USAGE)
    return CommandFailed(text, hint=f"{hint} shows what it takes", exit_code=USAGE)


def _habit(option: str, context: Any) -> str | None:
    """What to type instead of an option that other commands have under this name, if it has a counterpart here."""
    parameters = context.command.get_params(context) if context is not None else []
    here = [name for each in parameters for name in each.opts]
    meant = next((name for name in HABITS.get(option, ()) if name in here), None)
    if meant is not None:
        place = PLACES.get(option)
        return f"{meant}, if that is what you mean" if place is None else f"{meant} {place}"
    arguments = " ".join(each.metavar or "" for each in parameters if each.param_type_name == "argument")
    if any(name in arguments for name in ARGUMENTS.get(option, ())):
        return f"`{context.command_path} {arguments}`"
    return REMEDIES.get(option)


def _meant(option: str, near: str | None) -> str:
    """The dashes, which all have, make none alike."""
    return f"; did you mean {near}?" if near and did_you_mean(option.strip("-"), [near.strip("-")]) else ""


def _value(text: str) -> str:
    for pattern, said in _VALUES:
        if (match := re.fullmatch(pattern, text, re.DOTALL)) is not None:
            return match.expand(said).replace("'", "")
    return text


def _given(error: Any) -> str:
    """The value that was refused, if the check knows it."""
    try:
        return f" {error.__cause__.errors()[0]['input']}"
    except (AttributeError, LookupError, TypeError):
        return ""
