"""Regular expressions over topic names, as RE2 has them, in time linear in the name whatever the expression is.

`subscribed_topic_regex` comes from strangers and is evaluated in the broker's turn, so nothing may backtrack: the
expression becomes a non-deterministic automaton, and the sets of its states become states of a deterministic one as
names ask for them. A name must match as a whole.

Topic names are made of letters, digits, `.`, `_` and `-`, so a set of characters is a set of these. Understood are
literals, `.`, classes with ranges, negation and [:names:], \\d \\w \\s and their negations, \\Q...\\E, \\xHH, groups,
also (?:...), (?P<name>...), (?i) and (?s), alternation, ^ $ \\A \\z, and * + ? {n} {n,} {n,m}, also lazy. Anything
else is `InvalidPattern`: among it \\b and classes of Unicode.
"""

from __future__ import annotations

import string
from collections.abc import Iterable
from typing import Any, TypeAlias

ALPHABET = frozenset(string.ascii_letters + string.digits + "._-")
MAX_LENGTH = 1_000  # of an expression
MAX_REPEAT = 1_000  # RE2's
MAX_STATES = 2_000  # of the automaton, after repetitions are written out
MAX_SETS = 500  # of states that are remembered; beyond it they are forgotten, and found again
MAX_VISITS = 200_000  # of states for all names together: some 50 ms of the loop
MAX_DEPTH = 50  # of groups in groups

_CLASSES = {
    "alnum": string.ascii_letters + string.digits,
    "alpha": string.ascii_letters,
    "digit": string.digits,
    "lower": string.ascii_lowercase,
    "upper": string.ascii_uppercase,
    "punct": "._-",
    "graph": "".join(ALPHABET),
    "print": "".join(ALPHABET),
    "word": string.ascii_letters + string.digits + "_",
    "xdigit": string.hexdigits,
    "ascii": "".join(ALPHABET),
    "blank": "",
    "cntrl": "",
    "space": "",
}
_ESCAPES = {"d": _CLASSES["digit"], "w": _CLASSES["word"], "s": ""}
_CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}

_Chars: TypeAlias = frozenset[str]
_Node: TypeAlias = tuple[Any, ...]
"""("chars", set), ("start",), ("end",), ("all", [nodes]), ("any", [nodes]), ("repeat", node, least, most or None)."""


class InvalidPattern(ValueError):
    """This is no expression that is understood here; the message says what and where."""


def matching(expression: str, names: Iterable[str]) -> tuple[str, ...]:
    """The names that match, ascending. Raises InvalidPattern, also for an expression that takes too long over them."""
    pattern = SubscriptionPattern(expression)
    return tuple(sorted(name for name in names if pattern.matches(name)))


class SubscriptionPattern:
    """An expression that was read. Raises InvalidPattern."""

    def __init__(self, expression: str) -> None:
        if len(expression) > MAX_LENGTH:
            raise InvalidPattern(f"an expression of {len(expression)} characters; at most {MAX_LENGTH}")
        program = _Program()
        self._accept = program.add_accept()
        self._first = program.compile(_Parser(expression).parse(), self._accept)
        self._program = program
        self._moves: dict[tuple[frozenset[int], str], frozenset[int]] = {}

    def matches(self, name: str) -> bool:
        states = self._program.closure((self._first,), at_start=True, at_end=not name)
        last = len(name) - 1
        for position, char in enumerate(name):
            states = self._step(states, char) if position < last else self._program.step(states, char, at_end=True)
            if not states:
                return False
        return self._accept in states

    def _step(self, states: frozenset[int], char: str) -> frozenset[int]:
        if (known := self._moves.get((states, char))) is not None:
            return known
        if len(self._moves) >= MAX_SETS:
            self._moves.clear()
        found = self._moves[states, char] = self._program.step(states, char, at_end=False)
        return found


class _Program:
    """States of the automaton: each goes on by a character, or by itself to others, perhaps only at an end."""

    def __init__(self) -> None:
        self._chars: list[_Chars | None] = []
        self._next: list[list[int]] = []
        self._only_at: list[str] = []  # "", "start" or "end"
        self._visits_left = MAX_VISITS

    def add_accept(self) -> int:
        return self._add(None, [])

    def _add(self, chars: _Chars | None, following: list[int], only_at: str = "") -> int:
        if len(self._chars) >= MAX_STATES:
            raise InvalidPattern(f"the expression is too large: more than {MAX_STATES} states")
        self._chars.append(chars)
        self._next.append(following)
        self._only_at.append(only_at)
        return len(self._chars) - 1

    def compile(self, node: _Node, goal: int) -> int:
        """The state from which `node` leads to `goal`."""
        match node:
            case ("chars", chars):
                return self._add(chars, [goal])
            case ("start" | "end" as only_at,):
                return self._add(None, [goal], only_at)
            case ("all", parts):
                goal = self._add(None, [goal])  # also for no parts: a repetition of nothing is bounded, too
                for part in reversed(parts):
                    goal = self.compile(part, goal)
                return goal
            case ("any", parts):
                return self._add(None, [self.compile(part, goal) for part in parts])
            case ("repeat", part, least, most):
                return self._repeat(part, least, most, goal)
        raise AssertionError(node)

    def _repeat(self, part: _Node, least: int, most: int | None, goal: int) -> int:
        if most is None:
            loop = self._add(None, [goal])
            self._next[loop].append(self.compile(part, loop))
            goal = loop
        else:
            end = goal
            for _ in range(most - least):
                goal = self._add(None, [end, self.compile(part, goal)])
        for _ in range(least):
            goal = self.compile(part, goal)
        return goal

    def step(self, states: frozenset[int], char: str, *, at_end: bool) -> frozenset[int]:
        following = [
            goal for state in states if (chars := self._chars[state]) and char in chars for goal in self._next[state]
        ]
        return self.closure(following, at_start=False, at_end=at_end)

    def closure(self, states: Iterable[int], *, at_start: bool, at_end: bool) -> frozenset[int]:
        """These states and all that they lead to without a character."""
        found: set[int] = set()
        left = list(states)
        while left:
            state = left.pop()
            if state in found:
                continue
            found.add(state)
            self._visits_left -= 1
            only_at = self._only_at[state]
            passable = not only_at or (at_start if only_at == "start" else at_end)
            if self._chars[state] is None and passable:
                left.extend(self._next[state])
        if self._visits_left < 0:
            raise InvalidPattern("the expression is too costly for the topics that there are; make it simpler")
        return frozenset(found)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._ignore_case = False

    def parse(self) -> _Node:
        node = self._alternatives()
        if self._at < len(self._text):
            raise self._error("a ) without its (")
        return node

    def _error(self, what: str) -> InvalidPattern:
        return InvalidPattern(f"{what}, at character {self._at} of {self._text!r}")

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        if not (char := self._peek()):
            raise self._error("the expression ends too early")
        self._at += 1
        return char

    def _accept(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _alternatives(self) -> _Node:
        parts = [self._sequence()]
        while self._accept("|"):
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else ("any", parts)

    def _sequence(self) -> _Node:
        parts: list[_Node] = []
        while (char := self._peek()) and char not in "|)":
            if self._accept(r"\Q"):
                literal = self._text[self._at :].split(r"\E", 1)[0]
                self._at += len(literal)
                self._accept(r"\E")
                parts += [self._chars(char) for char in literal]
            else:
                parts.append(self._repeated(self._atom()))
        return ("all", parts)

    def _repeated(self, node: _Node) -> _Node:
        bounds: tuple[int, int | None] | None = None
        if self._accept("*"):
            bounds = 0, None
        elif self._accept("+"):
            bounds = 1, None
        elif self._accept("?"):
            bounds = 0, 1
        elif self._peek() == "{":
            bounds = self._counts()
        if bounds is None:
            return node
        self._accept("?")  # lazy: the same names match
        if self._peek() in ("*", "+", "?"):
            raise self._error("nothing to repeat")
        return ("repeat", node, *bounds)

    def _counts(self) -> tuple[int, int | None] | None:
        """Of {n}, {n,} or {n,m}; None: a brace that stands for itself."""
        body, closed, _ = self._text[self._at + 1 :].partition("}")
        least, comma, most = body.partition(",")
        if not closed or not _is_number(least) or (most and not _is_number(most)):
            return None
        self._at += len(body) + 2
        low, high = int(least), int(most) if most else None if comma else int(least)
        if low > MAX_REPEAT or (high is not None and not low <= high <= MAX_REPEAT):
            raise self._error(f"a repetition {{{body}}}; at most {MAX_REPEAT}, the smaller number first")
        return low, high

    def _atom(self) -> _Node:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return ("chars", self._class())
        if char == "\\":
            return self._escape()
        if char == ".":
            return ("chars", ALPHABET)
        if char == "^":
            return ("start",)
        if char == "$":
            return ("end",)
        if char in "*+?":
            raise self._error("nothing to repeat")
        return self._chars(char)

    def _chars(self, text: str) -> _Node:
        return ("chars", self._cases(text))

    def _cases(self, text: Iterable[str]) -> _Chars:
        chars = {char for one in text for char in ((one.lower(), one.upper()) if self._ignore_case else one)}
        return ALPHABET & chars

    def _group(self) -> _Node:
        before = self._ignore_case
        if self._accept("?"):
            if self._accept("P<") or self._accept("<"):
                name, closed, _ = self._text[self._at :].partition(">")
                if not closed or not name.isidentifier():
                    raise self._error("a group without a proper name")
                self._at += len(name) + 1
            elif self._flags():
                return ("all", [])
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} groups in each other")
        node = self._alternatives()
        if not self._accept(")"):
            raise self._error("a ( without its )")
        self._depth -= 1
        self._ignore_case = before
        return node

    def _flags(self) -> bool:
        """Reads (?flags) or (?flags:; whether it was the former, which holds until the group around it ends."""
        negative = False
        while True:
            char = self._take()
            if char == ":":
                return False
            if char == ")":
                return True
            if char == "-" and not negative:
                negative = True
            elif char == "i":
                self._ignore_case = not negative
            elif char not in "smU":  # names have one line, and greed does not change what matches
                raise self._error(f"(?{char} is not understood")

    def _escape(self) -> _Node:
        char = self._take()
        if char == "A":
            return ("start",)
        if char == "z":
            return ("end",)
        return ("chars", self._escaped(char))

    def _escaped(self, char: str) -> _Chars:
        if char.lower() in _ESCAPES:
            chars = frozenset(_ESCAPES[char.lower()])
            return ALPHABET - chars if char.isupper() else chars
        return self._cases(self._escaped_char(char))

    def _escaped_char(self, char: str) -> str:
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            digits = self._braced() if self._accept("{") else self._take() + self._take()
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise self._error(f"\\x with {digits!r}, no hexadecimal number of a character") from None
        if char.isalnum():
            raise self._error(f"\\{char} is not understood")
        return char

    def _braced(self) -> str:
        digits, closed, _ = self._text[self._at :].partition("}")
        if not closed:
            raise self._error("a { without its }")
        self._at += len(digits) + 1
        return digits

    def _class(self) -> _Chars:
        negated = self._accept("^")
        found: set[str] = set()
        first = True
        while first or self._peek() != "]":
            first = False
            if self._accept("[:"):
                found |= self._named_class()
            else:
                found |= self._class_item()
        self._take()
        return ALPHABET - found if negated else frozenset(found)

    def _class_item(self) -> _Chars:
        char = self._take()
        if char == "\\":
            char = self._take()
            if char.lower() in _ESCAPES:
                return self._escaped(char)
            char = self._escaped_char(char)
        if not self._text.startswith("-", self._at) or self._text.startswith("-]", self._at):
            return self._cases(char)
        self._take()
        last = self._take()
        if last == "\\":
            last = self._escaped_char(self._take())
        if last < char:
            raise self._error(f"a range from {char!r} down to {last!r}")
        return self._cases(one for one in sorted(ALPHABET) if char <= one <= last)

    def _named_class(self) -> _Chars:
        name, closed, _ = self._text[self._at :].partition(":]")
        negated = name.startswith("^")
        if not closed or name.removeprefix("^") not in _CLASSES:
            raise self._error(f"the class [:{name[:20]}:] is not known")
        self._at += len(name) + 2
        chars = frozenset(_CLASSES[name.removeprefix("^")])
        return ALPHABET - chars if negated else chars


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
