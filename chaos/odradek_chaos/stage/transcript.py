"""The dialect of transcripts: a line is the name of a command, plain words, and options `name=value`."""

from __future__ import annotations

from collections.abc import Iterable


def options(words: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """Plain words, and those with a `=`."""
    pairs = [word.partition("=") for word in words]
    return [name for name, sign, _ in pairs if not sign], {name: value for name, sign, value in pairs if sign}


def numbers(text: str) -> tuple[int, ...]:
    """Of `1,2,3`."""
    return tuple(int(part) for part in text.split(",") if part)


class Transcript:
    """A story about one state machine. The command `name` is the method `do_name`, its options are keyword arguments.

    What a command causes is collected by `say`; then every state line follows that differs from when it was last shown.
    """

    def __init__(self) -> None:
        self.now_ms = 0
        self._said: list[str] = []
        self._shown: dict[str, str] = {}

    def run(self, line: str) -> list[str]:
        """Execute one command; returns the lines that it causes."""
        name, *words = line.split()
        plain, named = options(words)
        self._said = []
        getattr(self, f"do_{name}")(*plain, **named)
        self.settled()
        states = dict(self.states())
        gone = dict.fromkeys(self._shown.keys() - states.keys(), "is gone")
        for key, state in sorted(gone.items()) + list(states.items()):
            if self._shown.get(key) != state:
                self._said.append(f"{key} {state}")
        self._shown = states
        return self._said

    def say(self, text: str) -> None:
        """An event, with its time since the story began."""
        self._said.append(f"{self.now_ms} {text}")

    def settled(self) -> None:
        """Called after each command, before states are compared."""

    def states(self) -> Iterable[tuple[str, str]]:
        """The name of each thing that has a state, and the state."""
        raise NotImplementedError
