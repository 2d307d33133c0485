"""`odradek audit live` on a cluster of which a broker is frozen, does not run or dies meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from odradek_audit.cli.commands import app
from odradek_audit.live import wire
from odradek_audit.live.run import LiveProgress, LiveRequest, audit_cluster
from odradek_audit.live.wire import AnswerReader, Connection, WireUnreachable
from odradek_audit.report import Report
from odradek_broker.testing import Cluster
from odradek_proto.errors import ErrorCode
from typer.testing import CliRunner

from tests.audit.test_audit_live import errors_of, live, produce, replicated
from tests.waiting import until

runner = CliRunner()


@pytest.fixture
def topics(odradek_cluster: Cluster, kafka_bootstrap: str) -> list[str]:
    """Three topics of one partition and 100 records, replicated."""
    names = ["a", "b", "c"]
    for name in names:
        odradek_cluster.create_topic(name)
        produce(kafka_bootstrap, name, 0, 100)
        replicated(kafka_bootstrap, name, 100)
    return names


@contextmanager
def frozen(address: str) -> Iterator[list[int]]:
    """A broker takes connections and says nothing: keys of the requests that were waited for in vain."""
    asked: list[int] = []
    ask = Connection.ask

    def silent(self: Connection, api_key: int, body: bytes) -> AnswerReader:
        if self.address != address:
            return ask(self, api_key, body)
        asked.append(api_key)
        raise WireUnreachable(f"{address} does not answer", "") from TimeoutError()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "ask", silent)
        yield asked


def test_a_frozen_broker_is_waited_for_once(odradek_cluster: Cluster, kafka_bootstrap: str, topics: list[str]) -> None:
    """Also where it is asked first, for topics that are compacted; the other two replicas are compared, and one line
    says which partitions were compared without it, or not at all as it leads them. Each partition dialled it again."""
    for broker, address in odradek_cluster.kafka_addresses.items():
        led = [topic for topic in topics if odradek_cluster.leader_of(topic) == broker]
        with frozen(address) as asked:
            code, document = live(kafka_bootstrap, ",".join(topics))
        assert len(asked) == 1
        without = [f"{topic}-0" for topic in topics if topic not in led]
        said = [f"broker {broker}: {address} does not answer"]
        said += [f"not compared on it: {', '.join(without)}"] if without else []
        said += [f"not compared at all: {', '.join(f'{topic}-0' for topic in led)}"] if led else []
        assert (code, document["inconclusive"][0]) == (1, "; ".join(said))
        assert document["compared_records"] == 100 * len(without)


@pytest.mark.parametrize("error", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_a_replica_that_answers_with_an_error_is_left_out(
    odradek_cluster: Cluster, kafka_bootstrap: str, topics: list[str], error: ErrorCode
) -> None:
    """As one whose broker is down: the others are compared. The whole partition was not."""
    fetch = wire.fetch
    for broker, address in odradek_cluster.kafka_addresses.items():
        led = [f"{topic}-0" for topic in topics if odradek_cluster.leader_of(topic) == broker]
        without = [f"{topic}-0" for topic in topics if f"{topic}-0" not in led]

        def refusing(connection: Connection, *asked: Any, address: str = address) -> wire.Fetched:
            return wire.Fetched(error, -1, -1, b"") if connection.address == address else fetch(connection, *asked)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(wire, "fetch", refusing)
            code, document = live(kafka_bootstrap, ",".join(topics))
        said = [f"replica {broker} answers {error.name}"]
        said += [f"not compared on it: {', '.join(without)}"] if without else []
        said += [f"not compared at all: {', '.join(led)}"] if led else []
        assert (code, document["inconclusive"][0]) == (1, "; ".join(said))
        assert document["compared_records"] == 100 * len(without)


def test_topics_that_are_deleted_meanwhile_do_not_count(
    odradek_cluster: Cluster, kafka_bootstrap: str, topics: list[str]
) -> None:
    """Before their comparison; one line says so, and the others are compared."""
    from confluent_kafka.admin import AdminClient

    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    addresses = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in kafka_bootstrap.split(","))]

    def progress(shown: LiveProgress) -> None:
        if shown.done == 1 and shown.partition == "b-0":
            admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
            admin.delete_topics(["b"])["b"].result(60)
            until(lambda: errors_of(kafka_bootstrap, "b"), lambda seen: seen == unknown)

    report: Report = audit_cluster(LiveRequest(addresses, topics), lambda _: None, progress)[0]
    said = "the topic b was deleted during the audit: what was not compared by then does not count"
    assert [each.sentence for each in report.notes if each.topic == "b"] == [said]
    assert (report.exit_code, report.inconclusive, report.compared_records) == (0, [], 400)


def test_what_was_found_counts_although_the_topic_is_deleted_then(
    odradek_cluster: Cluster, kafka_bootstrap: str, topics: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that was damaged is told of; only what was not compared does not count."""
    from confluent_kafka.admin import AdminClient

    fetch = wire.fetch
    unknown = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 3
    follower = next(broker for broker in odradek_cluster.brokers if broker != odradek_cluster.leader_of("b"))

    def damaged(connection: Connection, *asked: Any) -> wire.Fetched:
        found = fetch(connection, *asked)
        if connection.address != odradek_cluster.kafka_addresses[follower] or not found.records:
            return found
        return found._replace(records=found.records[:-1] + bytes([found.records[-1] ^ 1]))

    def deleting(*asked: Any) -> None:
        admin = AdminClient({"bootstrap.servers": kafka_bootstrap})
        admin.delete_topics(["b"])["b"].result(60)
        until(lambda: errors_of(kafka_bootstrap, "b"), lambda seen: seen == unknown)

    monkeypatch.setattr(wire, "fetch", damaged)
    monkeypatch.setattr("odradek_audit.live.run.judge_epochs", deleting)
    code, document = live(kafka_bootstrap, "b")
    (finding,) = document["finding_list"]
    assert (finding["check"], finding["replica"], code) == ("crc-mismatch", str(follower), 3)


def test_replicas_that_run_are_compared_without_one_that_does_not(
    odradek_cluster: Cluster, kafka_bootstrap: str, topics: list[str]
) -> None:
    """Nothing was compared, with one line for each partition."""
    stopped = odradek_cluster.brokers[-1]
    others = [address for broker, address in odradek_cluster.kafka_addresses.items() if broker != stopped]
    odradek_cluster.stop(stopped)
    until(lambda: {odradek_cluster.leader_of(topic) for topic in topics}, lambda leaders: stopped not in leaders)
    code, document = live(",".join(others), ",".join(topics))
    (reason,) = document["inconclusive"]
    assert reason.startswith(f"broker {stopped}")
    assert reason.endswith("; not compared on it: a-0, b-0, c-0")
    assert (code, document["compared_records"]) == (1, 300)


def test_a_broker_that_dies_meanwhile_may_have_been_stopped(
    odradek_cluster: Cluster, kafka_bootstrap: str, topics: list[str]
) -> None:
    """It had answered, so it is no listener with TLS."""
    leader = odradek_cluster.leader_of("b")
    follower = next(broker for broker in odradek_cluster.brokers if broker != leader)
    others = [address for broker, address in odradek_cluster.kafka_addresses.items() if broker != follower]
    addresses = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in others)]

    def progress(shown: LiveProgress) -> None:
        if shown.done == 1 and shown.partition == "b-0":
            odradek_cluster.kill(follower)

    report: Report = audit_cluster(LiveRequest(addresses, ["a", "b"]), lambda _: None, progress)[0]
    told = f"broker {follower} hung up during the audit: it may have been stopped; not compared on it: b-0"
    assert told in report.inconclusive
    assert report.compared_records == 300


def test_a_bootstrap_that_timed_out_is_asked_no_more(
    odradek_cluster: Cluster, kafka_bootstrap: str, topics: list[str]
) -> None:
    """Also when the broker that answered in its place has failed: it was waited for once more at each partition."""
    first = kafka_bootstrap.partition(",")[0]
    broker = next(broker for broker, address in odradek_cluster.kafka_addresses.items() if address == first)
    others = [each for each in odradek_cluster.brokers if each != broker]

    def progress(shown: LiveProgress) -> None:
        for other in others:
            odradek_cluster.kill(other)
        others.clear()

    addresses = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in kafka_bootstrap.split(","))]
    with frozen(first) as asked:
        report: Report = audit_cluster(LiveRequest(addresses, topics), lambda _: None, progress)[0]
    assert (len(asked), report.compared_records) == (1, 0)


def test_an_address_that_says_nothing_is_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 4 and what to look at; who is waited for is told before."""
    monkeypatch.setattr("odradek_audit.live.run.FIRST_TIMEOUT_S", 0.2)
    monkeypatch.setattr(wire, "PATIENCE_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        result = runner.invoke(app, ["live", "-b", address])
        quiet = runner.invoke(app, ["live", "-b", address, "--json"])
    assert (result.exit_code, quiet.exit_code) == (4, 4)
    waited, *said = result.stderr.splitlines()
    assert waited == f"{address} does not answer yet; it is waited for"
    assert said == [f"odradek: {address} does not answer", "  try: is the process frozen, or the machine too busy?"]
    assert "waited for" not in quiet.output
