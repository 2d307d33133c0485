"""docs/kafka-clients.md against the table in the code."""

from __future__ import annotations

import re
from pathlib import Path

from odradek_broker.testing import Cluster

from tests.kafka.raw import API_VERSIONS, Raw, header

PAGE = Path(__file__).parents[2] / "docs/kafka-clients.md"
ROW = re.compile(r"^\| (\d+) \| \w+ \| (\d+)-(\d+) \|", re.MULTILINE)


def test_the_page_has_the_apis_that_a_broker_tells(odradek_cluster: Cluster) -> None:
    """Key, first and last version of each."""
    with Raw(odradek_cluster.kafka_bootstrap.partition(",")[0]) as raw:
        answer = raw.ask(header(API_VERSIONS, 0, 1)) or b""
    numbers = [int.from_bytes(answer[at : at + 2]) for at in range(10, len(answer), 2)]
    told = [tuple(numbers[at : at + 3]) for at in range(0, len(numbers), 3)]
    assert [tuple(map(int, row)) for row in ROW.findall(PAGE.read_text())] == told
