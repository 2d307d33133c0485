"""A node that cannot start says why in one sentence, and what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.process.server import FAILED, serve
from odradek_proto.transport.files import OsFiles

METADATA = "__cluster_metadata-0"
VOTERS = "1@127.0.0.1:1,2@127.0.0.1:2,3@127.0.0.1:3"


def refusal(caplog: pytest.LogCaptureFixture, directory: Path, **settings: Any) -> str:
    """The one sentence of a node that cannot start there."""
    given = {"node_id": 1, "controller_quorum_voters": VOTERS, "log_dirs": str(directory), **settings}
    assert asyncio.run(serve(BrokerSettings(**given))) == FAILED
    (record,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert record.exc_info is None
    return record.getMessage()


def test_voters_that_the_disk_does_not_know_are_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A slip of the pen in the configuration of one node could make two majorities."""
    (tmp_path / METADATA).mkdir()
    known = '"currentVoters":[{"voterId":1},{"voterId":2},{"voterId":4}]'
    state = f'{{"leaderEpoch":3,"leaderId":2,"votedId":-1,"data_version":0,{known}}}'
    (tmp_path / METADATA / "quorum-state").write_text(state)
    line = refusal(caplog, tmp_path)
    assert line.startswith("node 1 cannot start: controller.quorum.voters names the voters [1, 2, 3], and ")
    assert "quorum-state was written among [1, 2, 4]" in line
    assert (tmp_path / METADATA / "quorum-state").read_text() == state


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("00000000000000000009.log", "", "the log begins at 9 and there is no sound snapshot"),
        ("quorum-state", "not JSON", "quorum-state cannot be read (it is not the JSON of such a file)"),
        ("quorum-state", "{}", "quorum-state cannot be read (data_version is missing)"),
        ("quorum-state", '{"data_version":7,"leaderEpoch":1,"leaderId":1,"votedId":1}', "of no use (version 7"),
    ],
)
def test_damaged_metadata_is_a_sentence_with_its_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, content: str, said: str
) -> None:
    """Exit code 1 and one sentence: what is missing, and to restore it or to remove the directory."""
    directory = tmp_path / METADATA
    directory.mkdir()
    (directory / name).write_text(content)
    line = refusal(caplog, tmp_path)
    assert line.startswith("node 1 cannot start: ")
    assert said in line
    assert "restore the" in line
    assert "while the other controllers are a majority of all, remove" in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"garbage\n", "version and node.id are missing"),
        (b"version=1\n\xff", "its byte 10 is no ASCII"),
        (b"version=1\nnode.id=1\n", "cluster.id is missing"),
    ],
)
def test_a_directory_that_does_not_say_whose_it_is_has_a_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, said: str
) -> None:
    """Restored, or removed where others have what it has: another directory leads nothing that it led before."""
    (tmp_path / "meta.properties").write_bytes(content)
    line = refusal(caplog, tmp_path)
    assert line.startswith(f"node 1 cannot start: {tmp_path}/meta.properties cannot be read ({said}): restore the file")
    assert (tmp_path / "meta.properties").read_bytes() == content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"version=1\nnode.id=2\ncluster.id=ours\n", "belongs to node 2, not to node 1: correct node.id or log.dirs"),
        (
            b"version=1\nnode.id=1\ncluster.id=other\n",
            "belongs to cluster other, not to cluster ours: correct cluster.id",
        ),
    ],
)
def test_a_directory_of_somebody_else_is_refused_with_the_settings_to_correct(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes, said: str
) -> None:
    """Nothing in it is changed."""
    (tmp_path / "meta.properties").write_bytes(content)
    line = refusal(caplog, tmp_path, cluster_id="ours")
    assert line.startswith(f"node 1 cannot start: {tmp_path} {said}")
    assert (tmp_path / "meta.properties").read_bytes() == content


def test_a_directory_that_another_process_uses_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Two would write over each other."""
    lock = OsFiles().lock(f"{tmp_path}/.lock")
    line = refusal(caplog, tmp_path)
    lock.close()
    assert "another process uses this log directory (it holds .lock): stop it, or correct log.dirs" in line


@pytest.mark.parametrize("where", ["a file", "a file/below", "/proc/below"])
def test_a_directory_that_cannot_be_made_names_the_setting_and_its_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    """A file is in its place, or no directory may be made there."""
    (tmp_path / "a file").write_text("")
    line = refusal(caplog, tmp_path / where)
    assert line.startswith(f"node 1 cannot start: log.dirs={tmp_path / where} cannot be made or written ([Errno ")
    assert "name a directory on a disk that the broker's user may write" in line


@pytest.mark.parametrize("names", ["GRPC", "GRPC,REPLICATION,CONTROLLER"])
def test_certificates_that_are_not_there_are_a_sentence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, names: str
) -> None:
    """Whether clients alone need them, or other nodes, too."""
    protocols = [f"{name}:GRPC" + "_SSL" * (name in names) for name in ("GRPC", "REPLICATION", "CONTROLLER")]
    line = refusal(
        caplog,
        tmp_path,
        controller_quorum_voters="1@127.0.0.1:1",
        listeners="GRPC://127.0.0.1:0,REPLICATION://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        listener_security_protocol_map=",".join(protocols),
        ssl_keystore_location="/no/such.pem",
        ssl_truststore_location="/no/such.pem",
    )
    assert "node 1 cannot start: ssl.keystore.location=/no/such.pem: cannot be read" in line
