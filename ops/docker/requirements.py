"""Prints what odradek depends on, with the extras that are named: `python requirements.py pyproject.toml fast ...`.

The image installs this before it copies the sources, so that a change of the sources does not fetch all packages anew.
An extra that names others of the project (`odradek[fast,compression]`) is followed.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path


def requirements(project: Mapping[str, object], extras: Iterable[str]) -> list[str]:
    """All requirements in PEP 508, sorted, each once. Raises `ValueError` when there is no such extra."""
    optional = project.get("optional-dependencies", {})
    base = project.get("dependencies", [])
    assert isinstance(optional, dict), optional
    assert isinstance(base, list), base
    own = re.compile(rf"{project['name']}\[([^\]]*)\]")
    found, waiting, seen = set(base), list(extras), set()
    while waiting:
        extra = waiting.pop().strip()
        if extra in seen:
            continue
        seen.add(extra)
        if extra not in optional:
            raise ValueError(f"there is no extra {extra!r}; there are {', '.join(sorted(optional))}")
        for requirement in optional[extra]:
            match = own.fullmatch(requirement)
            if match is not None:
                waiting += match[1].split(",")
            else:
                found.add(requirement)
    return sorted(found)


def main(arguments: list[str]) -> int:
    """Print one requirement a line; 2 for an extra that does not exist."""
    path, *extras = arguments
    try:
        lines = requirements(tomllib.loads(Path(path).read_text(encoding="utf-8"))["project"], extras)
    except ValueError as error:
        print(f"requirements: {error}", file=sys.stderr)
        return 2
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
