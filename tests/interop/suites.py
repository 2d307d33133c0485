"""The test suites of Kafka's clients, as their authors wrote them, against a cluster in this process.

    python -m tests.interop.suites [--only franz-go kafka-python]

They come from where their clients come from: Go's module proxy, which serves tests with each module, and PyPI's source
distribution. What is left out is named below with its reason; everything else has to pass, or skip itself. The exit
code is 1 if something failed. aiokafka's and confluent-kafka's distributions hold no tests.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from odradek_broker.testing import Cluster

GO = Path(__file__).parent / "scenarios/go"  # names the version of the client that is built
KGO = "github.com/twmb/franz-go/pkg/kgo"
BUILD_TIMEOUT_S, TIMEOUT_S = 900, 1_800
MOST_SAID = 20_000  # characters of a suite that failed, its last
OUTCOME = re.compile(
    r"^(?:--- )?(PASS|FAIL|SKIP|ERROR)(?:P?ED)?:? (?:\[(\d+)\] )?(\S+)", re.MULTILINE
)  # Go's, pytest's

TRANSACTIONS = "there are no transactions"
OWN_BROKER = "starts a broker of its own"
LEFT_OUT: Mapping[str, Mapping[str, str]] = {
    "franz-go": {"TestTxnEtl": TRANSACTIONS},
    "kafka-python": {
        "test_ssl_integration.py": OWN_BROKER,
        "test_sasl_integration.py": OWN_BROKER,
        "test_producer_integration.py::test_transactional_producer_messages": TRANSACTIONS,
        "test_producer_integration.py::test_transactional_producer_offsets": TRANSACTIONS,
        "test_admin_integration.py::test_create_partitions": "wants a broker 0: ids begin at 1 in a cluster of tests",
        "test_admin_integration.py::test_describe_configs_broker_resource_returns_configs": (
            "wants advertised.listeners in the broker's file, which sets none"
        ),
    },
}
# The source distribution lacks this file of its suite. With KAFKA_URI nothing is started or stopped.
SERVICE = """
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    pass
"""


@dataclass(frozen=True)
class Outcome:
    """Numbers of tests, and what those said that failed."""

    counts: Counter[str]
    failed: Sequence[str]
    said: str


def franz_go(place: Path) -> Outcome:
    """Three brokers, three replicas."""
    program = place / "kgo.test"
    build = ["go", "test", "-c", "-vet=off", "-o", str(program), KGO]
    subprocess.run(build, cwd=GO, check=True, timeout=BUILD_TIMEOUT_S)
    listed = subprocess.run(
        ["go", "list", "-f", "{{.Dir}}", KGO], cwd=GO, check=True, stdout=subprocess.PIPE, text=True
    )
    package = Path(listed.stdout.strip())  # one test reads a source file beside it
    skipped = "|".join(f"^{name}$" for name in LEFT_OUT["franz-go"])
    with Cluster() as cluster:
        environment = {
            "KGO_SEEDS": cluster.kafka_bootstrap,
            "KGO_TEST_RF": "3",
            "KGO_TEST_RECORDS": "5000",
            "KGO_TEST_STABLE_FETCH": "true",
            "KGO_TEST_MAX_TOPIC_PARTS": "7",
        }
        return run([str(program), "-test.v", f"-test.skip={skipped}"], package, environment)


def kafka_python(place: Path) -> Outcome:
    """One broker, as its own fixtures start one."""
    name = f"kafka-python=={version('kafka-python')}"
    download = ["pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--dest", str(place), name]
    subprocess.run([sys.executable, "-m", *download], check=True, timeout=BUILD_TIMEOUT_S)
    (archive,) = place.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(place, filter="data")
    (unpacked,) = (each for each in place.iterdir() if each.is_dir())
    suite = unpacked / "test"
    (suite / "__init__.py").touch()  # or Python's own package of this name comes first
    (suite / "service.py").write_text(SERVICE)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(unpacked)]
    command += ["-rA", "--tb=short", str(suite / "integration")]
    command += [f"--deselect=test/integration/{name}" for name in LEFT_OUT["kafka-python"]]
    settings = {
        "num.partitions": 4,
        "group.min.session.timeout.ms": 1,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": True,
    }
    with Cluster(1, settings=settings) as cluster:
        environment = {
            "KAFKA_URI": f"kafka://{cluster.kafka_bootstrap}",
            "KAFKA_VERSION": "4.1",
            "KAFKA_ROOT": str(place),  # has to be a directory
        }
        return run(command, unpacked, environment)


def run(command: Sequence[str], place: Path, environment: Mapping[str, str]) -> Outcome:
    """To its end."""
    done = subprocess.run(
        command,
        cwd=place,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=TIMEOUT_S,
    )
    outcomes = OUTCOME.findall(done.stdout)
    counts: Counter[str] = Counter()
    for kind, times, _ in outcomes:
        counts[kind] += int(times or 1)
    failed = [test for kind, _, test in outcomes if kind in ("FAIL", "ERROR")]
    if not failed and (done.returncode or not counts["PASS"]):
        failed = ["the suite itself"]
    return Outcome(counts, failed, done.stdout)


SUITES = {"franz-go": franz_go, "kafka-python": kafka_python}


def main() -> int:
    parser = argparse.ArgumentParser(description="Test suites of Kafka's clients, against odradek.")
    parser.add_argument("--only", nargs="+", choices=[*SUITES], default=[*SUITES], metavar="SUITE")
    failed = False
    for name in parser.parse_args().only:
        with tempfile.TemporaryDirectory(prefix="odradek-suite-") as place:
            found = SUITES[name](Path(place))
        counts = found.counts
        print(f"{name}: {counts['PASS']} passed, {counts['SKIP']} skipped, {len(LEFT_OUT[name])} left out")
        if found.failed:
            failed = True
            print(f"{found.said[-MOST_SAID:]}\n{name}: failed: {', '.join(found.failed)}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
