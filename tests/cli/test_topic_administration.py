"""`odradek topic alter|reassign|elect` and `odradek config` as they are typed, with what they print, line by line.

The words after `$ odradek` in the story below are run against a cluster of four brokers; `-> 1` is the exit code, and
what goes to standard error is marked by `!`. `pytest --rewrite` accepts new output.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from odradek import NewTopic
from odradek.administration.descriptions import PartitionDescription, TopicDescription
from odradek.cli.topics import min_isr
from odradek.cli.topics.plan import current_plan, parse_brokers, plan_as_json, read_plan, select, spread
from odradek.sync import Admin
from odradek_broker.testing import Cluster
from odradek_proto import command_line
from odradek_proto.topics import TopicPartition

from tests.cli.conftest import Run
from tests.cli.stories import tell

CALM = {  # who is late by seconds is neither missed nor voted out: the story knows of no such thing
    "broker.session.timeout.ms": 300_000,
    "controller.quorum.fetch.timeout.ms": 300_000,
    "replica.lag.time.max.ms": 300_000,
}
STORY = Path(__file__).parent / "topic_administration.txt"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Cluster]:
    """Four brokers, with two partitions of `orders` on the first three."""
    with Cluster(4, settings={"min.insync.replicas": 1, **CALM}) as running:
        with Admin(running.bootstrap) as admin:
            assignments = {0: [1, 2, 3], 1: [2, 3, 1]}
            admin.create_topics([NewTopic("orders", assignments=assignments)])
        running.wait_until_in_sync("orders")
        monkeypatch.setenv("ODRADEK_BOOTSTRAP", running.bootstrap)
        yield running


def test_the_story_of_an_administrator(
    cluster: Cluster, odradek: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """Every command prints what the story says, in a directory with a plan, and ends with its code."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(min_isr, "PATIENCE_S", 60.0)  # what is warned of stands there, however busy the machine is
    plan = {"version": 1, "partitions": [
        {"topic": "orders", "partition": 1, "replicas": [4, 3], "log_dirs": ["any", "any"]}
    ]}  # fmt: skip
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    tell(STORY, odradek, request, cluster.wait_until_told)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "is not JSON"),
        ("[]", "not a plan of version 1"),
        ('{"version": 2, "partitions": []}', "not a plan of version 1"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0}]}', "partition 0 of the list"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": []}]}', "list of broker ids"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": null}]}', "list of broker ids"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": ["1"]}]}', "list of broker ids"),
        ('{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [2147483648]}]}', "list of broker"),
        ('{"version": 1, "partitions": [{"topic": [], "partition": 0, "replicas": [1]}]}', "topic is a name"),
        ('{"version": 1, "partitions": [[]]}', "not an object"),
        ("[" * 200_000, "too deep to be a plan"),
        (
            '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["/disk2"]}]}',
            "one log directory",
        ),
        (
            '{"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]},'
            ' {"topic": "t", "partition": 0, "replicas": [2]}]}',
            "stands there twice",
        ),
    ],
)
def test_a_plan_that_is_none_is_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    """A wrong plan is a usage error that names the file."""
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(command_line.CommandFailed, match=said) as refused:
        read_plan(path)
    assert refused.value.exit_code == command_line.USAGE
    assert str(path) in str(refused.value)


def topic(name: str, *replicas: tuple[int, ...]) -> TopicDescription:
    partitions = [PartitionDescription(number, each[0], 0, 0, each, each, ()) for number, each in enumerate(replicas)]
    return TopicDescription(name, "id", False, partitions)


def test_a_plan_survives_its_file(tmp_path: Path) -> None:
    """What is written as a plan is read as the same plan, in Kafka's form."""
    plan = current_plan([topic("orders", (1, 2), (2, 3)), topic("pay-ments", (3,))])
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan_as_json(plan)))
    assert read_plan(path) == plan
    assert json.loads(path.read_text())["partitions"][0] == {"topic": "orders", "partition": 0, "replicas": [1, 2]}


def test_words_choose_partitions() -> None:
    """A topic stands for all of its partitions, TOPIC-PARTITION for one, nothing is chosen twice."""
    topics = [topic("orders", (1,), (1,)), topic("payments", (1,))]
    chosen = select(["orders-1", "payments", "orders"], topics)
    assert chosen == [TopicPartition("orders", 1), TopicPartition("payments", 0), TopicPartition("orders", 0)]
    for word, said in (
        ("ordres", "did you mean 'orders'"),
        ("orders-2", "partitions 0 to 1, not 2"),
        ("orders-99999999999", "partitions 0 to 1, not 99999999999"),
        (f"payments/{'9' * 5000}", r"partition 0 only, not 9{40}\.\.\.$"),
    ):
        with pytest.raises(command_line.CommandFailed, match=said):
            select([word], topics)


def test_a_generated_plan_spreads_leaders_and_followers() -> None:
    """Every broker leads as often and holds as many replicas; the factor stays or is the one that is asked for."""
    current = current_plan([topic("orders", *[(1, 2, 3)] * 12)])
    plan = spread(current, parse_brokers("2,3,4,5", "--brokers"), None)
    leaders = [replicas[0] for replicas in plan.values()]
    held = [replica for replicas in plan.values() for replica in replicas]
    assert {leaders.count(broker) for broker in (2, 3, 4, 5)} == {3}
    assert {held.count(broker) for broker in (2, 3, 4, 5)} == {9}
    assert all(len(set(replicas)) == 3 for replicas in plan.values())
    assert {len(replicas) for replicas in spread(current, (2, 3), 1).values()} == {1}
    with pytest.raises(command_line.CommandFailed, match="3 replicas, and --brokers names 2"):
        spread(current, (2, 3), None)
