"""docs/configuration.md against the settings in the code, and `odradek server config`."""

from __future__ import annotations

import json
import re
from pathlib import Path

from odradek_broker.config.settings import FIELDS, NONE_LIMIT, setting_key

from tests.cli.conftest import Run

PAGE = Path(__file__).parents[2] / "docs/configuration.md"
LISTENERS = "GRPC://127.0.0.1:50051,REPLICATION://127.0.0.1:50052,CONTROLLER://127.0.0.1:50061"
DIFFERENCES = Path(__file__).parents[2] / "docs/differences.md"
ROW = re.compile(r"^\| `([a-z0-9.]+)` \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)


def shown(value: object) -> str:
    """A default as the page writes it."""
    if value == "":
        return "empty"
    if value == NONE_LIMIT:
        return "2^63-1"
    return f"`{str(value).lower()}`" if isinstance(value, bool) else f"`{value}`"


def test_the_page_lists_every_setting_with_its_default() -> None:
    """No setting is missing, none is left over, and each default is the code's."""
    listed = {key: default for key, default, _, _ in ROW.findall(PAGE.read_text())}
    wanted = {setting_key(item.name): shown(item.default) for item in FIELDS}
    assert {key: default.strip("*") for key, default in listed.items()} == wanted


def test_a_default_that_is_not_kafkas_is_bold_and_explained() -> None:
    """What differs from Kafka is marked on the page and stands in docs/differences.md."""
    differences = DIFFERENCES.read_text()
    for key, default, kafka, _ in ROW.findall(PAGE.read_text()):
        differs = kafka not in ("same", "-")
        assert default.startswith("**") == differs, key
        if differs:
            assert f"`{key}`" in differences, f"docs/differences.md does not speak of {key}"


def test_the_final_settings_are_shown_with_their_sources(odradek: Run, tmp_path: Path) -> None:
    """File, environment and command line, the later winning, each named."""
    file = tmp_path / "server.properties"
    file.write_text(f"node.id=4\nlisteners={LISTENERS}\nnum.partitions=7\nlog.retention.hours=1\nnum.io.threads=8\n")
    outcome = odradek("server", "config", "-c", str(file), "-X", "num.partitions=9", "--json", code=0)
    answer = json.loads(outcome.out)
    found = {row["name"]: (row["value"], row["source"]) for row in answer["settings"]}
    assert found["node.id"] == ("4", str(file))
    assert found["num.partitions"] == ("9", "command line")
    assert found["log.retention.ms"] == ("3600000", str(file))
    assert found["min.insync.replicas"] == ("1", "default")
    assert answer["unused"] == ["num.io.threads"]
