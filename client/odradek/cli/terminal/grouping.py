"""A group of commands. A command that prints takes a `Screen`; the options that make one are added to it here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from inspect import Parameter
from typing import Annotated, Any, Final, TypeVar

import typer
from odradek_proto.command_line import OutputFormat

from odradek.cli.terminal.options import Json, Output, Quiet
from odradek.cli.terminal.screen import Screen

C = TypeVar("C", bound=Callable[..., Any])
OPTIONS: Final = {"output": (Output, OutputFormat.TABLE), "as_json": (Json, False)}
ToScreen = Annotated[Screen, OPTIONS]
QuietScreen = Annotated[Screen, {**OPTIONS, "quiet": (Quiet, False)}]
SCREEN: Final = Screen()  # what a command's parameter is set to: `screen: ToScreen = SCREEN`


class CommandGroup(typer.Typer):
    """The commands of one subject: `odradek topic`. Without a command it shows its help, if it has no other use."""

    def __init__(self, about: str, *, no_args_is_help: bool = True) -> None:
        super().__init__(help=about, no_args_is_help=no_args_is_help, add_completion=False, rich_markup_mode=None)

    def command(self, name: str | None = None, **more: Any) -> Callable[[C], C]:
        return _after(super().command(name, **more))

    def callback(self, **more: Any) -> Callable[[C], C]:
        return _after(super().callback(**more))


def _after(register: Callable[[Callable[..., Any]], object]) -> Callable[[C], C]:
    def add(command: C) -> C:
        register(with_options(command))
        return command

    return add


def with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same command, with the options of a screen in place of the screen."""
    parameters = list(inspect.signature(command, eval_str=True).parameters.values())
    place = next((place for place, each in enumerate(parameters) if each.default is SCREEN), None)
    if place is None:
        return command
    screen = parameters[place]
    options = screen.annotation.__metadata__[0]
    parameters[place : place + 1] = [
        Parameter(name, screen.kind, default=default, annotation=kind) for name, (kind, default) in options.items()
    ]

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        return command(**{screen.name: Screen(**{name: given.pop(name) for name in options})}, **given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run
