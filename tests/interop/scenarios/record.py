"""Records what Apache Kafka 4.1.1 tells its clients: `recorded/CLIENT.json`, which odradek is compared with.

    python -m tests.interop.scenarios.record [CLIENT...]

Needs Java, Maven, Go and Node with npm, and some ten minutes for all of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.interop.kafka.cluster import KafkaCluster
from tests.interop.kafka.java import classpath_of
from tests.interop.scenarios.clients import CLIENTS, KILLED, RECORDED, SETTINGS, run


def one_a_line(told: dict[str, Any]) -> str:
    """JSON with a line for each scenario: a difference between two versions is a line, too."""
    return "{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in told.items()) + "\n}\n"


def record(names: list[str]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        cluster = KafkaCluster(classpath_of(), Path(directory), SETTINGS)
        cluster.format()
        cluster.start()
        try:
            for name in names:
                told = run(name, cluster, name)
                (RECORDED / f"{name}.json").write_text(one_a_line(told))
                cluster.start(KILLED)
        finally:
            cluster.stop()


if __name__ == "__main__":
    record(sys.argv[1:] or list(CLIENTS))
