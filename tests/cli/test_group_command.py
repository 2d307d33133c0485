"""`odradek group` and `odradek consume -G`, with members of Kafka's clients and of odradek's own."""

from __future__ import annotations

import json
import signal
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Any

import odradek.sync
import pytest
from confluent_kafka import Consumer as KafkaConsumer
from odradek import TopicPartition
from odradek.administration.groups import classic_assignment
from odradek.cli.groups.view import HEADINGS, group_text
from odradek.cli.records.reading import Reader
from odradek_broker.testing import Cluster

from tests.cli.conftest import Run


@contextmanager
def classic_member(bootstrap: str, group: str, topic: str) -> Iterator[None]:
    """One of librdkafka's, which has read a record and committed."""
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "client.id": "rd",
        "enable.auto.commit": False,
    }  # fmt: skip
    consumer = KafkaConsumer(settings)
    consumer.subscribe([topic])
    while (message := consumer.poll(30)) is None or message.error():
        pass
    consumer.commit(message=message, asynchronous=False)
    try:
        yield
    finally:
        consumer.close()


def test_groups_of_both_kinds_are_shown_moved_and_deleted(
    odradek: Run, bootstrap: str, odradek_topic: str, kafka_bootstrap: str
) -> None:
    """Members, committed offsets and lag; a reset only with --execute and without members."""
    topic = odradek_topic
    odradek("produce", topic, "--count", "10", "-q", code=0)
    with classic_member(kafka_bootstrap, "old", topic), odradek_sync_member(bootstrap, "new", topic) as member:
        listed = json.loads(odradek("group", "list", "--json").out)
        assert {(each["group"], each["type"], each["state"]) for each in listed} >= {
            ("old", "classic", "Stable"),
            ("new", "consumer", "Stable"),
        }
        old, new = json.loads(odradek("group", "describe", "old", "new", "--json").out)
        for group, client, committed in ((old, "rd", 1), (new, "odradek", 3)):
            [row] = group["partitions"]
            assert (row["topic"], row["partition"], row["client"]) == (topic, 0, client)
            assert (row["committed"], row["end"], row["lag"]) == (committed, 10, 10 - committed)
            assert group["members"][0]["assignment"] == [f"{topic}-0"]
        assert "lag 7" in odradek("group", "describe", "new").out.splitlines()[0]
        refused = odradek("group", "reset-offsets", "new", "-o", "beginning", "--execute")
        assert (refused.code, "NON_EMPTY_GROUP" in refused.err) == (1, True)
        odradek("group", "delete", "new", "--yes", code=1)
        member.unsubscribe()
    for group in ("old", "new"):
        shown = json.loads(odradek("group", "reset-offsets", group, "-o", "-4", "--json").out)
        assert [(row["committed"] in (1, 3), row["new"]) for row in shown] == [(True, 6)]
        assert json.loads(odradek("group", "describe", group, "--json").out)[0]["partitions"][0]["lag"] > 4
        odradek("group", "reset-offsets", group, "-o", "-4", "--execute", "-q", code=0)
        odradek("group", "reset-offsets", group, "--shift-by", "-2", "--execute", "-q", code=0)
        assert json.loads(odradek("group", "describe", group, "--json").out)[0]["partitions"][0]["committed"] == 4
    odradek("group", "delete-offsets", "old", topic, "--yes", "-q", code=0)
    assert json.loads(odradek("group", "describe", "old", "--json").out)[0]["partitions"] == []
    assert "no offset is committed" in odradek("group", "describe", "old").out
    odradek("group", "delete", "old", "new", "--yes", "-q", code=0)
    missing = odradek("group", "describe", "old")
    assert (missing.code, "GROUP_ID_NOT_FOUND" in missing.err) == (1, True)
    odradek("group", "reset-offsets", "made", f"{topic}/0", "-o", "7", "--execute", "-q", code=0)
    assert json.loads(odradek("group", "describe", "made", "--json").out)[0]["state"] == "Empty"


def test_lag_is_not_said_of_partitions_without_a_committed_offset() -> None:
    """What a group has not begun to read is no lag of 0."""
    one: dict[str, Any] = dict.fromkeys(HEADINGS) | {"topic": "orders", "partition": 0, "committed": 3, "lag": 1}
    rest = [one | {"partition": number, "committed": None, "lag": None} for number in (1, 2)]
    found: dict[str, Any] = {"group": "g", "state": "Empty", "type": "classic", "assignor": None, "members": []}
    text = group_text(found | {"partitions": [one, *rest]})
    assert text.splitlines()[0].endswith("lag 1 where it has committed; 2 partitions without a committed offset")


@contextmanager
def odradek_sync_member(bootstrap: str, group: str, topic: str) -> Iterator[odradek.sync.Consumer]:
    with odradek.sync.Consumer(
        bootstrap, topic, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        assert len(consumer.poll(30, max_records=3)) == 3
        consumer.commit()
        yield consumer


def test_a_command_goes_on_where_its_group_was(
    odradek: Run, bootstrap: str, odradek_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was printed is committed; an expression is resolved by the coordinator."""
    topic = odradek_topic
    odradek("produce", topic, "--count", "10", "-q", code=0)
    shown = ["consume", topic, "-G", "readers", "-o", "beginning", "-f", r"%o\n"]
    assert odradek(*shown, "-c", "4").out.split() == ["0", "1", "2", "3"]
    assert odradek(*shown, "-e").out.split() == ["4", "5", "6", "7", "8", "9"]
    by_pattern = ["consume", f"^{topic[:-1]}", *shown[2:]]
    assert odradek(*by_pattern, "-e").out == ""
    odradek("group", "reset-offsets", "readers", "-o", "8", "--execute", "-q", code=0)
    assert odradek(*by_pattern, "-e").out.split() == ["8", "9"]

    batches = Reader.batches

    async def told_to_end(self: Reader, **named: Any) -> AsyncIterator[Any]:
        async for batch in batches(self, **named):
            yield batch
            if batch:
                signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Reader, "batches", told_to_end)
    odradek("group", "reset-offsets", "readers", "-o", "8", "--execute", "-q", code=0)
    ended = odradek(*shown)
    assert (ended.code, ended.out.split()) == (130, ["8", "9"])
    (described,) = json.loads(odradek("group", "describe", "readers", "--json").out)
    assert ([each["committed"] for each in described["partitions"]], described["members"]) == ([10], [])
    usage = odradek("consume", topic, "-G", "readers", "-p", "0")
    assert (usage.code, "-G" in usage.err) == (2, True)


def test_assignments_of_classic_members_are_read_and_nothing_else_breaks_it() -> None:
    """As Kafka's consumers write them; what a stranger wrote has no partitions."""
    name = b"orders"
    data = struct.pack(">hih6sI2i", 3, 1, len(name), name, 2, 5, 1) + struct.pack(">i", -1)
    assert classic_assignment(data) == (TopicPartition("orders", 1), TopicPartition("orders", 5))
    for cut in range(len(data) - 4):
        assert classic_assignment(data[:cut]) == ()
    assert classic_assignment(struct.pack(">hi", 0, 2**31 - 1)) == ()
    assert classic_assignment(struct.pack(">hih1si", 0, 1, 1, b"a", -1)) == ()


def test_the_admin_of_sync_asks_too(odradek_cluster: Cluster) -> None:
    """A group that commits without members is one of the classic type, and is listed."""
    odradek_cluster.create_topic("synced")
    with odradek.sync.Admin(odradek_cluster.bootstrap) as admin:
        admin.alter_consumer_group_offsets("tool", {TopicPartition("synced", 0): 0})
        assert {each.group_id: each.state for each in admin.list_consumer_groups(types=["classic"])}["tool"] == "Empty"
        admin.delete_consumer_groups(["tool"])
        assert "tool" not in [each.group_id for each in admin.list_consumer_groups()]
