"""What a run did by choice, as a list that can be written down, cut and replayed: injections and sends of clients.

A whole run draws both by its seed. A script replaces the draw: exactly these injections at these times, and, when it
has sends, exactly these records. So a failing seed can be made smaller than its seed allows (shrink.py).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Injection(NamedTuple):
    """One injection of a nemesis, with all that it chose. Times are microseconds of virtual time."""

    at_us: int
    name: str
    choice: dict[str, Any]

    def line(self) -> str:
        chosen = " ".join(f"{name}={value}" for name, value in self.choice.items())
        return f"{self.at_us / 1e6:11.6f}  {self.name:<18} {chosen}".rstrip()


class ScriptedRecord(NamedTuple):
    """One record that a writer hands to its producer."""

    at_us: int
    writer: int
    partition: int

    def __str__(self) -> str:
        return f"{self.at_us / 1e6:11.6f}  w{self.writer} to partition {self.partition}"


@dataclass(frozen=True, slots=True)
class Script:
    """`sends` None: the writers write as the seed says. Another `salt` draws all other luck of the run anew.

    With another seed the injections hit another world. None: it is not known whose they are.
    """

    injections: tuple[Injection, ...]
    sends: tuple[ScriptedRecord, ...] | None = None
    salt: int = 0
    seed: int | None = None

    def dump(self, options: Mapping[str, object]) -> str:
        """As JSON, with the options of its run."""
        sends = None if self.sends is None else [list(send) for send in self.sends]
        injections = [list(injection) for injection in self.injections]
        facts = {
            "options": dict(options),
            "seed": self.seed,
            "salt": self.salt,
            "injections": injections,
            "sends": sends,
        }
        return json.dumps(facts, indent=1)

    @classmethod
    def load(cls, text: str) -> tuple[Script, dict[str, Any]]:
        """A script and the options of its run. Raises `ValueError` for what is no script."""
        try:
            data = json.loads(text)
            sends, options, seed = data["sends"], _object("options", data["options"]), data.get("seed")
            script = cls(
                tuple(
                    Injection(int(at), str(name), _object(f"what {name} chooses", choice))
                    for at, name, choice in data["injections"]
                ),
                None
                if sends is None
                else tuple(ScriptedRecord(int(at), int(who), int(where)) for at, who, where in sends),
                int(data["salt"]),
                None if seed is None else int(seed),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a script of a simulated run: {error}") from error
        except RecursionError as error:
            raise ValueError("not a script of a simulated run: it is too deep to be read") from error
        return script, options


def _object(what: str, value: Any) -> dict[str, Any]:
    """A JSON object, and no list of pairs, of which `dict` makes one as well. Raises `ValueError`."""
    if not isinstance(value, dict):
        raise ValueError(f"{what} must be an object, not {_kind(value)}")
    return value


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else json.dumps(value)


def by_name(injections: Sequence[Injection]) -> dict[str, list[Injection]]:
    """The injections of each nemesis, in the order of time."""
    found: dict[str, list[Injection]] = {}
    for injection in sorted(injections, key=lambda each: each.at_us):
        found.setdefault(injection.name, []).append(injection)
    return found
