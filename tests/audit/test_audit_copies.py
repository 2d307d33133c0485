"""Copies of a broker that goes on meanwhile: checkpoints first, and nothing is a finding."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from odradek_audit.engine.local import audit
from odradek_proto.topics import TopicPartition

from tests.audit.sample import SampleLog, SamplePartition, WriteCluster, write_log_directory


@pytest.mark.parametrize(("checkpoints_first", "expected"), [(True, []), (False, ["checkpoint-order"])])
def test_checkpoints_are_copied_before_the_logs(
    write_cluster: WriteCluster, tmp_path: Path, checkpoints_first: bool, expected: list[str]
) -> None:
    """As docs/audit-kafka.md has it; the other way round the copy counts records that it does not have."""
    before, after = SampleLog().fill(40), SampleLog().fill(60)
    replicas = write_cluster(*[SamplePartition(after, segment_bytes=9000)] * 3)
    states = [
        write_log_directory(tmp_path / name, 2, {TopicPartition("t", 0): SamplePartition(log, segment_bytes=9000)})
        for name, log in (("then", before), ("now", after))
    ]
    checkpoints, logs = states if checkpoints_first else states[::-1]
    copy = tmp_path / "copy"
    shutil.copytree(logs, copy)
    for file in checkpoints.glob("*-checkpoint"):
        shutil.copyfile(file, copy / file.name)
    last = max((copy / "t-0").glob("*.log"))
    last.write_bytes(last.read_bytes()[:-37])  # it was growing while it was copied
    report = audit(replicas | {"2": copy})
    assert [finding.check for finding in report.findings] == expected
