"""A group of commands. A command that prints takes a `Screen`; the options that make one are added to it here.

So are those of a dataclass whose fields are options: what several commands have in common is one parameter of each.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from inspect import Parameter
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer
from odradek_proto.command_line import OutputFormat

from odradek.cli.terminal.options import Json, Output, Quiet
from odradek.cli.terminal.screen import Screen

C = TypeVar("C", bound=Callable[..., Any])
OPTIONS: Final = {"output": (Output, OutputFormat.TABLE), "as_json": (Json, False)}
QUIET_OPTIONS: Final = {**OPTIONS, "quiet": (Quiet, False)}
ToScreen = Annotated[Screen, OPTIONS]
QuietScreen = Annotated[Screen, QUIET_OPTIONS]
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
    """The same command, with the options of a screen in place of the screen, and likewise of every dataclass."""
    given_as = {each.name: each for each in inspect.signature(command, eval_str=True).parameters.values()}
    made = {name: options for name, each in given_as.items() if (options := _options_of(each)) is not None}
    if not made:
        return command
    parameters: list[Parameter] = []
    for name, each in given_as.items():
        parameters += [each] if name not in made else [
            Parameter(option, each.kind, default=default, annotation=kind)
            for option, (kind, default) in made[name].items()
        ]  # fmt: skip

    @functools.wraps(command)
    def run(**given: Any) -> Any:
        for name, options in made.items():
            given[name] = type(given_as[name].default)(**{option: given.pop(option) for option in options})
        return command(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def _options_of(parameter: Parameter) -> Mapping[str, tuple[Any, object]] | None:
    """Each option with its annotation and default; None of a parameter that is an option itself."""
    if isinstance(parameter.default, Screen):
        options: Mapping[str, tuple[Any, object]] = parameter.annotation.__metadata__[0]
        return options
    if not is_dataclass(parameter.default):
        return None
    hints = get_type_hints(type(parameter.default), include_extras=True)
    return {field.name: (hints[field.name], field.default) for field in fields(parameter.default)}
