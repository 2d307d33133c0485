"""Commands that take the name of a topic find an internal one, too, though `odradek topic list` leaves it out."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import pytest
from odradek.sync import Admin
from odradek_chaos.cli.selecting import select

from tests.cli.conftest import Run

OFFSETS = "__consumer_offsets"


@pytest.fixture
def group(odradek: Run, bootstrap: str, request: pytest.FixtureRequest) -> str:
    """A group that has committed an offset in the topic of offsets: who looks for its coordinator makes that topic."""
    name: str = request.node.name
    odradek("group", "reset-offsets", name, f"{OFFSETS}/0", "-o", "0", "--execute", "-q", code=0)
    return name


def test_only_who_wants_them_lists_internal_topics(group: str, bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        assert (OFFSETS in admin.list_topics(), OFFSETS in admin.list_topics(internal=True)) == (False, True)


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_the_coordinator_of_a_group_can_be_killed(group: str, bootstrap: str, role: str) -> None:
    """It is the leader of a partition of the topic of offsets."""
    world: Any = SimpleNamespace(bootstrap=bootstrap, place=lambda broker: {"pid": broker}, running=lambda broker: True)
    partition = f"{OFFSETS}-0"
    led, followed = (partition if role == each else None for each in ("leader", "follower"))
    with Admin(bootstrap) as admin:
        known = admin.describe_topics([OFFSETS])[0].partitions[0]
    found = asyncio.run(select(world, led, followed, controller=False, broker=None))
    assert (found.broker == known.leader_id) is (role == "leader")


def test_the_brokers_say_what_cannot_be_changed_of_an_internal_topic(group: str, odradek: Run) -> None:
    odradek("topic", "alter", OFFSETS, "--config", "retention.ms=86400000", "--dry-run", code=0)
    refused = odradek("topic", "alter", OFFSETS, "--partitions", "99", code=1)
    assert "INVALID_TOPIC_EXCEPTION" in refused.err


def test_a_group_that_reads_an_internal_topic_has_a_lag(group: str, odradek: Run) -> None:
    rows = json.loads(odradek("group", "describe", group, "--json").out)[0]["partitions"]
    [row] = [each for each in rows if each["partition"] == 0]
    assert (row["committed"], row["lag"]) == (0, row["end"])
    assert row["end"] is not None
