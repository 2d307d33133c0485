"""docs/client.md is enough to write a program: every method, every field and every keyword is on it."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import odradek
import pytest
from odradek.shared.kafka import METHODS
from odradek_broker.testing import Cluster

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGE = (DOCS / "client.md").read_text()
COMING = (DOCS / "coming-from.md").read_text()


@pytest.mark.parametrize("kind", [odradek.Producer, odradek.Consumer, odradek.Admin, odradek.Delivery])
def test_every_method_is_on_the_page(kind: type) -> None:
    """By its name in code."""
    names = [name for name, _ in inspect.getmembers(kind) if not name.startswith("_")]
    assert [name for name in names if not re.search(rf"\b{name}\b", PAGE)] == []


def test_every_field_of_a_record_is_on_the_page() -> None:
    """Of what is read and of what is told of a record that was written."""
    fields = [*odradek.ConsumerRecord._fields, *odradek.RecordMetadata._fields]
    assert [name for name in fields if f"`{name}`" not in PAGE and f".{name}" not in PAGE] == []


@pytest.mark.parametrize("kind", [odradek.Producer, odradek.Consumer])
def test_every_keyword_that_is_no_setting_is_on_the_page(kind: type) -> None:
    """Serializers and deserializers; clock and network are for tests of odradek itself."""
    parameters = set(inspect.signature(kind).parameters) - {"bootstrap_servers", "clock", "network", "settings"}
    assert [name for name in sorted(parameters) if name not in PAGE] == []


def test_what_other_clients_call_a_method_is_on_the_page() -> None:
    """At least one name of each answer that is given."""
    for kind, names in METHODS.items():
        for answer in set(names.values()) - {"nothing: callbacks of a Delivery run by themselves"}:
            asked = [name for name, given in names.items() if given == answer]
            assert kind == "Admin" or any(f"`{name}" in PAGE + COMING for name in asked), (kind, asked)


def test_the_examples_run(odradek_cluster: Cluster) -> None:
    """As their first lines say, with a cluster that is there."""
    odradek_cluster.create_topic("examples", partitions=2)
    runs: tuple[tuple[str, list[str], str], ...] = (
        ("produce_and_consume.py", [], "read greetings-"),
        ("fast_producer.py", ["examples", "2000"], "2000 records acknowledged"),
        ("without_asyncio.py", ["examples"], "b'from a script'"),
    )
    for name, arguments, words in runs:
        command = [sys.executable, str(ROOT / "examples" / name), odradek_cluster.bootstrap, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        assert words in done.stdout
