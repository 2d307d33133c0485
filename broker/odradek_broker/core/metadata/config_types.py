"""The types of settings and their limits, for values that come as text."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final

from odradek_proto.values import Value

INT_MAX: Final = (1 << 31) - 1
LONG_MAX: Final = (1 << 63) - 1
LONGEST: Final = 1000  # digits: Python itself refuses to read more than some thousands
EXPECTED: Final = {  # by the last part of a setting's name
    "ms": "; a whole number of milliseconds is expected, for example 604800000 for seven days",
    "bytes": "; a whole number of bytes is expected, for example 1048576 for 1 MiB",
}


class ConfigType(Enum):
    """Kafka's names of types, as its tools print them."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"


class ConfigDefinition(Value, frozen=True):
    """One setting: `check` gets the typed value and returns what is wrong with it, or None."""

    name: str
    type: ConfigType
    default: str
    check: Callable[[object], str | None]
    server_name: str  # the broker's setting that gives the default

    def validate(self, value: str) -> None:
        """Raise `ValueError` with a sentence for people."""
        try:
            typed = parse(self.type, value)
        except NotAnInteger as error:
            expected = EXPECTED.get(self.name.rpartition(".")[2], "")
            raise ValueError(f"{self.name}: {error}{expected}") from None
        except TooLarge as error:
            wrong = self.check(error.number)  # its own limit is the one to keep
            raise ValueError(f"{self.name}={value}: {wrong}" if wrong else f"{self.name}: {error}") from None
        except ValueError as error:
            raise ValueError(f"{self.name}: {error}") from None
        wrong = self.check(typed)
        if wrong is not None:
            raise ValueError(f"{self.name}={value}: {wrong}")


class NotAnInteger(ValueError):
    """A text that should be a whole number and is none."""


class TooLarge(ValueError):
    """A whole number that its type cannot hold."""

    def __init__(self, sentence: str, number: int) -> None:
        super().__init__(sentence)
        self.number = number


def parse(kind: ConfigType, value: str) -> object:
    """The typed value of a text. Raises `ValueError`."""
    text = value.strip()
    match kind:
        case ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise ValueError(f"{value!r} is not true or false")
            return text.lower() == "true"
        case ConfigType.INT | ConfigType.LONG:
            limit = INT_MAX if kind is ConfigType.INT else LONG_MAX
            digits = text.removeprefix("-")
            if not (digits.isascii() and digits.isdecimal() and len(digits) <= LONGEST):
                raise NotAnInteger(f"{value!r} is not a whole number")
            if not -limit - 1 <= int(text) <= limit:
                bound = f"at least {-limit - 1}" if int(text) < 0 else f"at most {limit}"
                raise TooLarge(f"{value!r} does not fit into {kind.value}, must be {bound}", int(text))
            return int(text)
        case ConfigType.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise ValueError(f"{value!r} is not a number") from None
        case ConfigType.LIST:
            return [part.strip() for part in text.split(",")] if text else []
        case ConfigType.STRING:
            return text


def anything(value: object) -> str | None:
    return None


def at_least(smallest: int, largest: int | None = None) -> Callable[[object], str | None]:
    """A whole number from `smallest` to `largest`, both included."""

    def check(value: object) -> str | None:
        assert isinstance(value, int)
        if value < smallest:
            return f"must be at least {smallest}"
        return None if largest is None or value <= largest else f"must be at most {largest}"

    return check


def between(smallest: float, largest: float) -> Callable[[object], str | None]:
    def check(value: object) -> str | None:
        assert isinstance(value, float)
        return None if smallest <= value <= largest else f"must lie between {smallest} and {largest}"

    return check


def one_of(*allowed: str) -> Callable[[object], str | None]:
    return lambda value: None if value in allowed else f"must be one of {', '.join(allowed)}"


def only(allowed: object, reason: str) -> Callable[[object], str | None]:
    """One value is supported; `reason` says why the others, which Kafka knows, are refused."""
    return lambda value: None if value == allowed else reason
