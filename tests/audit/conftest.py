"""Fixtures of the audit's tests: log directories of small healthy clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import typer.testing
from odradek_proto.topics import TopicPartition
from typer.main import get_command

from tests.audit.sample import SampleLog, SamplePartition, WriteCluster, write_log_directory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def write_cluster(tmp_path: Path) -> WriteCluster:
    """Writes replicas' directories: `write_cluster(a, b, c)`, a sample of the partition t-0 (or a mapping) for each
    replica."""

    def write(
        *samples: SampleLog | SamplePartition | Mapping[TopicPartition, SamplePartition], clean_shutdown: bool = False
    ) -> dict[str, Path]:
        replicas = {}
        for node, sample in enumerate(samples, start=1):
            if isinstance(sample, SampleLog):
                sample = SamplePartition(sample)
            if isinstance(sample, SamplePartition):
                sample = {TopicPartition("t", 0): sample}
            replicas[str(node)] = write_log_directory(
                tmp_path / f"b{node}", node, sample, clean_shutdown=clean_shutdown
            )
        return replicas

    return write


@pytest.fixture
def log() -> SampleLog:
    """Three epochs, a few index entries, 260 records in 65 batches."""
    return _three_epochs().copy()


@cache
def _three_epochs() -> SampleLog:
    return SampleLog().fill(15, epoch=0).fill(20, epoch=1).fill(30, epoch=3)


@pytest.fixture(scope="session", autouse=True)
def commands_made_once() -> Iterator[None]:
    """typer makes all commands anew for each call by its runner, which takes longer than most of these calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.testing, "_get_command", cache(get_command))
        yield


@pytest.fixture(scope="session")
def session() -> Iterator[SparkSession]:
    """One quiet Spark session on two threads, for all tests that want one: its start is most of what they cost."""
    pytest.importorskip("pyspark")
    from odradek_audit.spark.launch import spark_session

    with ExitStack() as stack:
        with (
            pytest.MonkeyPatch.context() as environment
        ):  # of this JVM alone: others say on stderr what they found there
            # What tests ask of it is over before the second compiler has paid for itself.
            environment.setenv("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1")
            spark = stack.enter_context(spark_session("local[2]"))
        yield spark
