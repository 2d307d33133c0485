"""`odradek topic create` and `alter -p` return when the new partitions can be used, and say how far that is."""

from __future__ import annotations

import json
from functools import partial

import pytest
from odradek import Admin
from odradek.cli.terminal.screen import Screen
from odradek.cli.topics import settling
from odradek_broker.testing import Cluster

from tests.cli.conftest import Run

CALM = {"broker.session.timeout.ms": 300_000, "controller.quorum.fetch.timeout.ms": 300_000}


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
            assert odradek("topic", "create", "orders", "-p", "1", "-r", "1").code == 0
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
