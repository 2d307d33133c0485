"""The page of rules, docs/protocol.md, knows every rule that the code cites."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGES = ("proto", "client", "broker", "chaos", "audit")
CITED = re.compile(r"(?<![\w-])([RLK]-\d+)(?![\w-])")
DEFINED = re.compile(r"^- \*\*([RLK]-\d+)\*\* \S", re.MULTILINE)


def defined_rules() -> list[str]:
    return DEFINED.findall((ROOT / "docs" / "protocol.md").read_text())


def cited_rules() -> dict[str, list[str]]:
    """Each rule that is cited, with the files that cite it."""
    cited: dict[str, list[str]] = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for rule in sorted(set(CITED.findall(path.read_text()))):
                cited.setdefault(rule, []).append(str(path.relative_to(ROOT)))
    return cited


def test_every_cited_rule_is_defined() -> None:
    """A reader who meets R-36 in the code finds R-36 on the page."""
    defined = set(defined_rules())
    missing = {rule: files for rule, files in cited_rules().items() if rule not in defined}
    assert not missing, missing


def test_no_rule_is_defined_twice() -> None:
    """A number means one thing."""
    rules = defined_rules()
    assert sorted(rules) == sorted(set(rules))


def test_citations_are_found_at_all() -> None:
    """The search sees the core's citations; otherwise the first test would pass on nothing."""
    cited = cited_rules()
    assert "broker/odradek_broker/core/partition/fencing.py" in cited["R-36"]
    assert "broker/odradek_broker/kafka/connection.py" in cited["K-8"]
    assert "broker/odradek_broker/core/partition/policy.py" in cited["L-9"]
