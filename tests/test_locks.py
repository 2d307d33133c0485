"""The lock files pin, with hashes, what pyproject.toml asks for (`make lock`)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
IMAGE = ("fast", "compression", "metrics", "security")
LOCKS = {  # by the files that are installed one after the other
    ("ops/dev.lock",): ("dev",),
    ("ops/docker/broker.lock",): IMAGE,
    ("ops/docker/broker.lock", "ops/docker/audit.lock"): (*IMAGE, "audit"),
}
PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;\\]+)[^\n]*\\\n\s+--hash=sha256:[0-9a-f]{64}", re.MULTILINE)


def wanted(extras: tuple[str, ...]) -> list[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = [Requirement(each) for each in project["dependencies"]]
    for extra in extras:
        for each in map(Requirement, project["optional-dependencies"][extra]):
            found += wanted(tuple(each.extras)) if each.name == project["name"] else [each]
    return found


def unmet(requirements: list[Requirement], *locks: str) -> set[str]:
    text = "".join((ROOT / lock).read_text() for lock in locks)
    pins = {canonicalize_name(found["name"]): found["version"] for found in PIN.finditer(text)}
    return {
        str(each) for each in requirements if not each.specifier.contains(pins.get(canonicalize_name(each.name), "0"))
    }


@pytest.mark.parametrize("locks", sorted(LOCKS), ids=lambda locks: locks[-1])
def test_a_lock_fits_the_project(locks: tuple[str, ...]) -> None:
    """A requirement that was added or raised is pinned, too."""
    assert unmet(wanted(LOCKS[locks]), *locks) == set()


def test_the_lock_of_the_documents_fits() -> None:
    """The same for what builds their site."""
    lines = (ROOT / "ops/docs/requirements.in").read_text().splitlines()
    assert unmet([Requirement(line) for line in lines], "ops/docs/requirements.lock") == set()
