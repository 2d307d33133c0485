"""`odradek cluster up --secure`: commands of its owner need nothing more, and nobody else gets in."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import until

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

TIMEOUT_S = 300


def test_a_secure_cluster_is_used_as_any_other(tmp_path: Path) -> None:
    """Without options by whoever started it; with its address alone by nobody; and its secrets go with it."""
    directory = tmp_path / "cluster"
    environment = {**os.environ, "ODRADEK_HOME": str(tmp_path / "home"), "ODRADEK_KAFKA_PORT": "0"}

    def run(*words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "odradek.cli", *words]
        return subprocess.run(line, env=environment, input=typed, capture_output=True, text=True, timeout=TIMEOUT_S)

    def said(*words: str, typed: str = "") -> str:
        done = run(*words, typed=typed)
        assert done.returncode == 0, done.stderr
        return done.stdout

    try:
        told = json.loads(said("cluster", "up", "--secure", "--data", str(directory), "-n", "1", "-d", "--json"))
        said("topic", "create", "orders")
        said("produce", "orders", typed="hello\n")
        assert said("consume", "orders", "-o", "beginning", "-e") == "hello\n"
        assert said("user", "list").split()[2] == "admin"
        assert json.loads(said("user", "list", "--json"))[0]["mechanisms"] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert said("audit", "live", "--topics", "orders").startswith("The replicas agree.")
        secrets = [directory / "client.properties", *(directory / "certificates").glob("*-*.pem")]
        assert [stat.S_IMODE(path.stat().st_mode) for path in secrets] == [0o600] * 3
        password = secrets[0].read_text().rpartition("=")[2].strip()
        logged = (directory / "broker-1.log").read_text()
        assert password not in logged
        assert "refused" not in logged  # who came before its user was there has waited
        stranger = until(  # a broker that has no time says nothing of TLS
            lambda: run("topic", "list", "-b", told["bootstrap"], "--timeout", "60"),
            lambda done: "security.protocol=SSL" in done.stderr,
        )
        assert stranger.returncode == 4, stranger.stderr
        again = run("cluster", "up", "--secure", "--data", str(directory), "-d")
        assert "runs already" in again.stderr
    finally:
        down = run("cluster", "down", "--data", str(directory), "--yes")
    assert down.returncode == 0, down.stderr
