"""Apache Kafka's own tools on a cluster of odradek."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.interop.kafka.java import programs_of, run_program

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kafka")]  # one JVM runs them


@dataclass(frozen=True)
class Tools:
    """Of one cluster."""

    classpath: str
    bootstrap: str

    def run(self, program: str, *arguments: str, typed: str = "") -> str:
        """What it printed. Its exit code must be 0."""
        return run_program(self.classpath, name_of(program), arguments, typed=typed)

    def ask(self, program: str, *arguments: str, typed: str = "") -> str:
        return self.run(program, "--bootstrap-server", self.bootstrap, *arguments, typed=typed)

    def refused(self, program: str, *arguments: str) -> str:
        """What it says on both channels."""
        asked = ("--bootstrap-server", self.bootstrap, *arguments)
        said = programs_of(self.classpath).run(name_of(program), asked)
        return said.output + said.errors


def name_of(program: str) -> str:
    return program if program.startswith("kafka.") else f"org.apache.kafka.tools.{program}"


@pytest.fixture
def tools(classpath: str, kafka_bootstrap: str) -> Tools:
    return Tools(classpath, kafka_bootstrap)


def test_the_console_and_performance_tools_produce_and_read(tools: Tools, odradek_topic: str) -> None:
    """With every acks, idempotent and compressed; the console reads a partition from its beginning."""
    for settings in (
        ("acks=0", "enable.idempotence=false"),
        ("acks=1", "enable.idempotence=false"),
        ("acks=all", "enable.idempotence=false"),
        ("compression.type=zstd",),
    ):
        properties = ("--producer-props", f"bootstrap.servers={tools.bootstrap}", *settings)
        size = ("--num-records", "500", "--record-size", "100", "--throughput", "-1")
        assert "500 records sent" in tools.run("ProducerPerformance", "--topic", odradek_topic, *size, *properties)
    tools.ask("ConsoleProducer", "--topic", odradek_topic, typed="".join(f"line {number}\n" for number in range(10)))
    where = ("--topic", odradek_topic, "--partition", "0", "--offset", "2000", "--max-messages", "10")
    lines = tools.ask("consumer.ConsoleConsumer", *where).splitlines()
    assert lines == [f"line {number}" for number in range(10)]
    assert f"{odradek_topic}:0:2010" in tools.ask("GetOffsetShell", "--topic", odradek_topic)


def test_the_admin_tools_do_what_they_say(tools: Tools, odradek_topic: str, tmp_path: Path) -> None:
    """Create, describe, alter, reassign, verify, elect, delete."""
    topic = f"{odradek_topic}-tools"
    tools.ask("TopicCommand", "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "2")
    assert "PartitionCount: 2" in tools.ask("TopicCommand", "--describe", "--topic", topic)
    tools.ask("TopicCommand", "--alter", "--topic", topic, "--partitions", "3")
    tools.ask("kafka.admin.ConfigCommand", "--alter", "--topic", topic, "--add-config", "retention.ms=1000000")
    assert "retention.ms=1000000" in tools.ask("kafka.admin.ConfigCommand", "--describe", "--topic", topic)
    plan = tmp_path / "plan.json"
    moved = {"topic": topic, "partition": 0, "replicas": [2, 3]}
    plan.write_text(json.dumps({"version": 1, "partitions": [moved]}))
    with_plan = ("--reassignment-json-file", str(plan))
    tools.ask("reassign.ReassignPartitionsCommand", *with_plan, "--execute")
    while "still in progress" in tools.ask("reassign.ReassignPartitionsCommand", *with_plan, "--verify"):
        pass
    tools.ask("LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    cut = tmp_path / "cut.json"
    cut.write_text(json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 0}]}))
    assert "low_watermark: 0" in tools.ask("DeleteRecordsCommand", "--offset-json-file", str(cut))
    assert topic in tools.ask("LogDirsCommand", "--describe", "--topic-list", topic)
    assert "CurrentVoters" in tools.ask("MetadataQuorumCommand", "describe", "--status")
    tools.ask("TopicCommand", "--delete", "--topic", topic)
    assert topic not in tools.ask("TopicCommand", "--list").split()
