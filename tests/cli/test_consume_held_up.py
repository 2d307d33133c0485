"""`odradek consume` while a partition has no leader: the others are read, the stuck one is named, --timeout ends it."""

from __future__ import annotations

import asyncio

import pytest
from odradek import Producer, TopicPartition
from odradek.broker_errors import KafkaStorageError
from odradek.cli.records import reading
from odradek.cli.terminal.screen import Screen
from odradek_broker.testing import Cluster

from tests.cli.conftest import Run

RECORDS = 5


@pytest.fixture
def cluster(odradek_cluster: Cluster) -> Cluster:
    """Three brokers."""
    return odradek_cluster


@pytest.fixture
def stuck(cluster: Cluster) -> tuple[str, int]:
    """A topic of three partitions with one replica each; the leader of partition 1 is down, which is the number."""
    name = "orders"
    cluster.create_topic(name, 3, replication_factor=1)
    asyncio.run(write(cluster.bootstrap, name))
    target = cluster.leader_of(name, 1)
    cluster.kill(target)
    return name, target


async def write(bootstrap: str, topic: str) -> None:
    async with Producer(bootstrap) as producer:
        for partition in range(3):
            for number in range(RECORDS):
                await producer.send(topic, b"%d-%d" % (partition, number), partition=partition)


@pytest.mark.parametrize(
    "words",
    [
        ("-o", "beginning", "-e"),
        *(
            pytest.param(words, marks=pytest.mark.slow)  # each waits for its time to be over
            for words in (
                ("-o", "-5", "-e"),
                ("-o", "beginning", "-c", "20"),
                ("-o", "beginning"),
                ("-o", "@1000", "-e"),
            )
        ),
    ],
)
def test_what_can_be_read_is_read_and_the_rest_is_named(
    cluster: Cluster, stuck: tuple[str, int], odradek: Run, words: tuple[str, ...]
) -> None:
    """Exit code 5 after --timeout, with the partition, the reason and what to do."""
    name, _ = stuck
    outcome = odradek("consume", name, *words, "--timeout", "6", "-b", cluster.bootstrap)
    assert sorted(outcome.out.split()) == sorted(f"{part}-{number}" for part in (0, 2) for number in range(RECORDS))
    last, hint = outcome.err.splitlines()[-2:]
    assert last.startswith(f"odradek: no record for 6 seconds; held up: {name}-1: ")
    assert f"{name}-0" not in outcome.err
    assert "try: " in hint
    assert "odradek cluster health" in hint
    assert outcome.code == 5


@pytest.mark.slow
def test_the_end_is_not_waited_for_in_silence(cluster: Cluster, stuck: tuple[str, int], odradek: Run) -> None:
    """`-o end`: nothing comes, and who is waited for is said before the time is over."""
    name, _ = stuck
    outcome = odradek("consume", name, "-o", "end", "--timeout", "10", "-b", cluster.bootstrap)
    assert (outcome.code, outcome.out) == (5, "")
    assert outcome.err.startswith(f"held up: {name}-1: ")


def test_a_partition_is_read_as_soon_as_it_has_a_leader_again(
    cluster: Cluster, stuck: tuple[str, int], odradek: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --timeout it is waited for, from where it was to be begun."""
    name, target = stuck
    told: list[str] = []

    def say(screen: Screen, text: str = "") -> None:
        told.append(text)
        if text.startswith("held up: "):
            cluster.start(target)

    monkeypatch.setattr(Screen, "say", say)
    outcome = odradek("consume", name, "--from-beginning", "-e", "-b", cluster.bootstrap, code=0)
    assert sorted(outcome.out.split()) == sorted(f"{part}-{number}" for part in range(3) for number in range(RECORDS))
    assert next(text for text in told if text.startswith("held up: ")).startswith(f"held up: {name}-1: ")


def test_what_passes_by_itself_is_not_told(capfd: pytest.CaptureFixture[str]) -> None:
    """What stays is told once, with the error's own advice, and its end too."""
    news = reading.WaitNotices(Screen())
    troubles = {TopicPartition("orders", 2): KafkaStorageError(where="orders-2")}
    for moment, found in ((100, troubles), (101, {}), (102, troubles), (103, troubles)):
        news.look(found, moment)
    assert capfd.readouterr().err == ""
    for moment in (104, 106, 110):
        news.look(troubles, moment)
    first, hint = capfd.readouterr().err.splitlines()
    assert first.startswith("held up: orders-2: KAFKA_STORAGE_ERROR: ")
    assert "stop that broker" in hint
    news.look({}, 111)
    assert capfd.readouterr().err == "orders-2: read again\n"
