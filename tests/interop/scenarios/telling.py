"""How a client's program tells what happened: one result for each scenario, an error as the number that Kafka gave it.

A result is what JSON has. What differs from run to run (offsets in shared topics, ids, times, host names) is no part of
it; an error is its code in Kafka's table where it came from a broker, and the client's own word where it did not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from odradek_proto.errors import ErrorCode

T = TypeVar("T")

PATIENCE_S = 180.0
CODECS = ("gzip", "snappy", "lz4", "zstd")
RECORDS, PARTITIONS = 20, 4
MORE = 8  # records after the first members of a group are gone
ONE, FOUR, SMALL, COMPACTED, STRICT, TIMED = "one", "four", "small", "compacted", "strict", "timed"
OLD_MS, FUTURE_MS = 1_000, 1 << 42  # times that no record of today has


class Refused(Exception):
    """An error with a number of Kafka's, or a client's own word."""

    def __init__(self, code: int | str) -> None:
        super().__init__(code)
        self.word = code if isinstance(code, str) else name_of(code)


def until(done: Callable[[], bool]) -> Iterator[None]:
    """Loop until it holds. Raises `TimeoutError`."""
    end = time.monotonic() + PATIENCE_S
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {PATIENCE_S:g} s")
        yield


def eventually(ask: Callable[[], T], holds: Callable[[T], bool]) -> T:
    """Ask until the answer shows what was done: Kafka's brokers learn of it after its caller. Raises `TimeoutError`."""
    answers = [ask()]
    for _ in until(lambda: holds(answers[-1])):
        answers.append(ask())
    return answers[-1]


def name_of(code: int) -> str:
    """Kafka's name of an error code; a code without a name here is told as its number."""
    return ErrorCode(code).name if code in ErrorCode._value2member_map_ else f"error {code}"


class Telling:
    """What one client was told, scenario by scenario, in the order in which they ran."""

    def __init__(self, word_of: Callable[[Exception], int | str]) -> None:
        self._word_of = word_of
        self.results: dict[str, Any] = {}

    def of(self, scenario: str, act: Callable[[], Any]) -> None:
        """Run it; an exception is its result, by what `word_of` calls it."""
        assert scenario not in self.results, scenario
        try:
            self.results[scenario] = act()
        except Exception as error:
            word = self._word_of(error)
            self.results[scenario] = {"error": word if isinstance(word, str) else name_of(word)}
