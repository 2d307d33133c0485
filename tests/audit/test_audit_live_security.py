"""How `odradek audit live` is told whom it talks with, and what it tells Prometheus."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path

import pytest
from odradek_audit.cli.commands import app
from odradek_audit.findings import Finding, Severity
from odradek_audit.live.metrics import metrics_of
from odradek_audit.live.security import BadSettings, Security, security_from
from odradek_audit.live.wire import Connection, WireError
from odradek_audit.report import Report
from typer.testing import CliRunner

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="al\\"ice" password="a;b = \\\\c";'


def written(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "client.properties"
    path.write_text("# for tools\n" + "\n".join(lines) + "\n")
    return path


def test_settings_are_kafkas(tmp_path: Path) -> None:
    """By Kafka's names, with a user as Java's clients are told it; paths are relative to the file."""
    path = written(
        tmp_path,
        "security.protocol = SASL_SSL",
        "ssl.truststore.location=ca.pem",
        "ssl.truststore.type=PEM",
        "ssl.endpoint.identification.algorithm=",
        "sasl.mechanism=SCRAM-SHA-256",
        f"sasl.jaas.config={JAAS}",
        "client.id=somebody else's",
    )
    expected = Security("SASL_SSL", str(tmp_path / "ca.pem"), "", False, "SCRAM-SHA-256", 'al"ice', "a;b = \\c")
    assert security_from(path) == expected
    assert security_from(written(tmp_path, "retries=1")) == Security(mechanism="SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (["security.protocol=TLS"], "security.protocol=TLS is none of PLAINTEXT, SSL"),
        (["security.protocol=SASL_SSL"], "needs a user: sasl.username and sasl.password, or sasl.jaas.config"),
        (["security.protocol=SASL_SSL", "sasl.mechanism=GSSAPI"], "sasl.mechanism=GSSAPI is not spoken here"),
        (["ssl.truststore.location=x.jks", "ssl.truststore.type=JKS"], "`keytool -exportcert -rfc`"),
        (["security.protocol=SSL", "ssl.truststore.location=none.pem"], "none.pem: No such file"),
    ],
)
def test_settings_that_cannot_be_used_name_the_remedy(tmp_path: Path, lines: list[str], said: str) -> None:
    """On the command line, with the exit code of wrong usage, before anything is dialled."""
    result = CliRunner().invoke(app, ["live", "-b", "127.0.0.1:1", "--command-config", str(written(tmp_path, *lines))])
    assert result.exit_code == 2
    assert said in result.output
    if "none.pem" not in said:
        with pytest.raises(BadSettings, match=re.escape(said)):
            security_from(written(tmp_path, *lines))


def test_a_listener_without_tls_is_told(tmp_path: Path) -> None:
    """It answers a handshake with nothing, or with something else: one line, and no traceback."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            peer, _ = listener.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(b"\0\0\0\4\0\0\0\1")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(WireError, match="no TLS: "):
            Connection("127.0.0.1", listener.getsockname()[1], 10.0, lambda size: None, Security("SSL"))
        thread.join()


def test_numbers_for_prometheus() -> None:
    """Each number has its type and its meaning; findings are counted by their checks."""
    report = Report("live", {}, seconds=1.25, inconclusive=["one"])
    report.findings = [Finding(check, Severity.CRITICAL, "t", 0, "1", "") for check in ("log-matching",) * 2]
    lines = metrics_of(report, 1_795_262_400.5).splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert values["odradek_audit_verdict"] == "3"
    assert values['odradek_audit_findings{check="log-matching"}'] == "2"
    assert values["odradek_audit_inconclusive"] == "1"
    assert values["odradek_audit_finished_timestamp_seconds"] == "1795262400.5"
    names = {name.partition("{")[0] for name in values}
    assert {line.split()[2] for line in lines if line.startswith("# TYPE")} == names
    assert {line.split()[2] for line in lines if line.startswith("# HELP")} == names
