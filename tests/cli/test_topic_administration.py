"""`odradek topic alter|reassign|elect`, `config` and `quota` as they are typed, with what they print, line by line.

The words after `$ odradek` in the story below are run against a cluster of four brokers; `-> 1` is the exit code, and
what goes to standard error is marked by `!`. `pytest --rewrite` accepts new output.
Below it: plans, waiting for leaders, warnings of min.insync.replicas, and brokers that are unregistered.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from odradek import Admin, NewTopic
from odradek.administration.descriptions import ConfigEntry, PartitionDescription, TopicDescription
from odradek.cli.terminal.screen import Screen
from odradek.cli.topics import min_isr, settling
from odradek.cli.topics.min_isr import (
    ASKED_TOPICS,
    MIN_ISR,
    NAMED_TOPICS,
    TOPIC_SOURCE,
    warnings_for_brokers,
    warnings_for_topic,
)
from odradek.cli.topics.plan import current_plan, parse_brokers, plan_as_json, read_plan, select, spread
from odradek.shared.errors import RequestTimeout
from odradek.sync import Admin as SyncAdmin
from odradek_broker.testing import Cluster
from odradek_proto import command_line
from odradek_proto.errors import ErrorCode
from odradek_proto.topics import TopicPartition

from tests.cli.conftest import Run
from tests.cli.test_stories import tell
from tests.kafka.test_admin import ask

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
        with SyncAdmin(running.bootstrap) as admin:
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


@pytest.mark.parametrize("words", ["create orders -p 6 -r 1", "alter orders -p 6"])
def test_new_partitions_are_waited_for_as_long_as_one_more_gets_its_leader(
    words: str, odradek: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frozen broker has made no log: the command says how far it is, and ends with it. JSON stays what it is."""
    with Cluster(3, settings=CALM) as cluster:
        frozen = next(broker for broker in (1, 2, 3) if broker != cluster.controller())
        lively = [address for broker, address in enumerate(cluster.bootstrap.split(","), 1) if broker != frozen]
        monkeypatch.setenv("ODRADEK_BOOTSTRAP", ",".join(lively))
        monkeypatch.setattr("odradek.Admin", partial(Admin, request_timeout_ms=3_000))  # may ask the frozen one first
        if words.startswith("alter"):
            odradek("topic", "create", "orders", "-p", "1", "-r", "1", code=0)
        cluster.freeze(frozen)
        said: list[str] = []

        def say(self: Screen, text: str = "") -> None:
            said.append(text)
            if "of 6" in text:
                cluster.thaw(frozen)

        monkeypatch.setattr(settling, "SAY_EVERY_S", 0)
        monkeypatch.setattr(settling, "MANY", 6)
        monkeypatch.setattr(Screen, "say", say)
        outcome = odradek("topic", *words.split(), "--json", "--timeout", "120")
        ends = odradek("topic", "offsets", "orders", "--json")
    assert outcome.code == 0
    assert any(each.endswith(" of 6 partitions have their leader") for each in said)
    assert json.loads(outcome.out)
    assert [row["log_end_offset"] for row in json.loads(ends.out)] == [0] * 6


def test_partitions_that_get_no_leader_are_named_and_fail_nothing(
    odradek: Run, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The topic is made; what keeps a broker from its log is another question, and so is a cluster that is gone."""
    with Cluster(1) as cluster:
        bootstrap = cluster.bootstrap
        monkeypatch.setenv("ODRADEK_BOOTSTRAP", bootstrap)
        outcome = odradek("topic", "create", "orders", "-p", "2")
        assert (outcome.code, outcome.err.splitlines()[0]) == (0, "orders created: partitions 2, replicas 1")
        settling.wait_for_leaders(bootstrap, Screen(), {"orders": 3, "not-heard-of": 1}, 0)
        said = "4 of 4 partitions have no leader yet: `odradek cluster health` says why"
        assert said in capfd.readouterr().err
        settling.wait_for_leaders(bootstrap, Screen(), {"orders": 3}, 0)
        assert "1 of 3 partitions have no leader yet" in capfd.readouterr().err


class ManyTopics(Admin):
    """An admin client of a cluster with many topics of one replica, which stops answering after some questions."""

    def __init__(self, topics: int, *, own: int = 0, answers: int = 1_000_000, silent: bool = False) -> None:
        super().__init__("127.0.0.1:1")
        self.names = [f"t{place:04}" for place in range(topics)]
        self.own = set(self.names[:own])  # those that have a value of their own
        self.answers = answers
        self.silent = silent
        self.asked = 0

    async def _answer(self) -> None:
        self.asked += 1
        if self.asked > self.answers:
            if self.silent:
                await asyncio.Event().wait()
            raise RequestTimeout("not answered in time")

    async def list_topics(self, *, internal: bool = False) -> list[str]:
        await self._answer()
        return self.names

    async def describe_topics(self, topics: Iterable[str] | None = None) -> list[TopicDescription]:
        await self._answer()
        partition = PartitionDescription(0, 1, 0, 0, [1], [1], [])
        return [TopicDescription(name, "", False, [partition]) for name in topics or ()]

    async def describe_configs(self, resource_type: Any, resource_name: str) -> list[ConfigEntry]:
        await self._answer()
        source = TOPIC_SOURCE if resource_name in self.own else "DEFAULT_CONFIG"
        return [ConfigEntry(MIN_ISR, "2", source, False)]


def test_a_topic_that_cannot_be_described_is_no_failure() -> None:
    """The settings were changed before; nothing is said then."""
    assert asyncio.run(warnings_for_topic(ManyTopics(1, answers=0), "t0000", {MIN_ISR: "2"})) == []
    (said,) = asyncio.run(warnings_for_topic(ManyTopics(1), "t0000", {MIN_ISR: "2"}))
    assert said.startswith("warning: t0000 has 1 replica")


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("answers", [0, 1, 2, 4])
def test_what_was_found_before_a_failure_is_said(monkeypatch: pytest.MonkeyPatch, answers: int, silent: bool) -> None:
    """A list and a description first, then each topic; also when no answer comes at all."""
    monkeypatch.setattr(min_isr, "PATIENCE_S", 0.05)
    admin = ManyTopics(50, answers=answers, silent=silent)
    said = asyncio.run(warnings_for_brokers(admin, {MIN_ISR: "2"}))
    assert [line.split()[1] for line in said] == admin.names[: max(0, answers - 2)]


def test_no_more_topics_are_asked_for_than_are_named() -> None:
    """One more, to know that there are others."""
    admin = ManyTopics(5_000, own=3)
    said = asyncio.run(warnings_for_brokers(admin, {MIN_ISR: "2"}))
    assert [line.split()[1] for line in said[:-1]] == admin.names[3 : 3 + NAMED_TOPICS]
    assert said[-1] == "warning: and so it is with other topics"
    assert admin.asked == 2 + 3 + NAMED_TOPICS + 1
    assert len(asyncio.run(warnings_for_brokers(ManyTopics(NAMED_TOPICS), {MIN_ISR: "2"}))) == NAMED_TOPICS


def test_topics_with_values_of_their_own_are_not_asked_for_without_end() -> None:
    """They have nothing to do with the default, but each costs a question."""
    admin = ManyTopics(5_000, own=5_000)
    said = asyncio.run(warnings_for_brokers(admin, {MIN_ISR: "2"}))
    assert said == [f"warning: {5_000 - ASKED_TOPICS} other topics with few replicas were not looked at"]
    assert admin.asked == 2 + ASKED_TOPICS


UNREGISTER_BROKER = 64


def test_a_dead_broker_without_replicas_is_forgotten(odradek: Callable[..., Any]) -> None:
    """Not while it is in session, nor while it is a replica; and it may come back."""
    with Cluster(3) as cluster, SyncAdmin(cluster.bootstrap) as admin:
        cluster.wait_until_ready()
        admin.create_topics([NewTopic("orders", assignments={0: [1, 3]})])

        def unregister(broker: int) -> ErrorCode:
            return ErrorCode(ask(cluster.kafka_addresses[1], UNREGISTER_BROKER, 0, {"broker_id": broker})["error_code"])

        def fenced() -> list[int]:
            return [broker.broker_id for broker in admin.describe_cluster().brokers if broker.fenced]

        assert unregister(3) == ErrorCode.INVALID_REQUEST
        assert unregister(4) == ErrorCode.BROKER_ID_NOT_REGISTERED
        cluster.kill(3)
        cluster.wait_until_ready()
        assert fenced() == [3]
        refused = odradek("cluster", "unregister", "3", "-b", cluster.bootstrap)
        assert (refused.code, "is a replica of 1 partition: reassign them first" in refused.err) == (1, True)
        admin.delete_topics(["orders"])
        done = odradek("cluster", "unregister", "3", "-b", cluster.bootstrap, "--json")
        assert json.loads(done.out) == {"broker": 3, "unregistered": True}
        cluster.wait_until_told()
        assert [broker.broker_id for broker in admin.describe_cluster().brokers] == [1, 2]
        cluster.start(3)
        cluster.wait_until_ready()
        assert fenced() == []
