"""What `odradek chaos` asks and hints, where no cluster is needed."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from odradek.cli.clusters.current import remember
from odradek_broker.local.cluster import LocalCluster
from odradek_broker.local.processes import start_time
from odradek_chaos.cli.cluster import app as clusters
from odradek_chaos.cli.commands import WorldChoice, WorldKind, app
from odradek_chaos.cli.interrupting import ENDS, terminable
from odradek_chaos.harness.waiting import NotReadyInTime, obituary
from odradek_proto.command_line import USAGE, CommandFailed
from typer.testing import CliRunner

from tests.signals import started
from tests.waiting import until

runner = CliRunner()


def test_a_ledger_that_is_there_is_not_replaced_unasked(tmp_path: Path) -> None:
    """It may be all that is left of what a cluster promised."""
    ledger = tmp_path / "history.jsonl"
    ledger.write_text("promised\n")
    result = runner.invoke(app, ["write", "t", "-b", "127.0.0.1:1", "--history", str(ledger)])
    assert isinstance(result.exception, CommandFailed)
    assert result.exception.exit_code == USAGE
    assert "--overwrite" in str(result.exception.hint)
    assert ledger.read_text() == "promised\n"


@pytest.mark.parametrize(
    ("place", "arguments"),
    [
        (WorldChoice(WorldKind.PROCESSES, None, None), ""),
        (WorldChoice(WorldKind.PROCESSES, "my data", None), " --data 'my data'"),
        (WorldChoice(WorldKind.COMPOSE, None, "shop"), " --world compose --project shop"),
    ],
)
def test_a_hint_names_the_cluster_that_was_struck(place: WorldChoice, arguments: str) -> None:
    """Without --data or --project the hint would act on another cluster."""
    assert place.arguments() == arguments


@pytest.mark.parametrize("frozen", [[], [2]])
def test_a_broker_that_is_frozen_is_named_when_the_wait_for_it_is_over(
    frozen: list[int], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With what thaws it: nobody reads that in its log."""
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=2)
    late = NotReadyInTime("the brokers are not ready after 3 s", hint="what they say: broker-2.log")

    async def never(*_: object, **__: object) -> None:
        raise late

    monkeypatch.setattr("odradek_chaos.harness.waiting.wait_until_ready", never)
    monkeypatch.setattr(LocalCluster, "running", lambda *_: True)
    monkeypatch.setattr(LocalCluster, "paused", lambda _, node_id: node_id in frozen)
    where = f"{tmp_path / 'cluster'}"
    error = runner.invoke(app, ["restart", "--wait", "--data", where]).exception
    assert isinstance(error, NotReadyInTime)
    if not frozen:
        assert error is late
        return
    assert str(error) == f"{late}; broker 2 (pid {cluster.nodes[2].pid}) is frozen"
    assert error.hint == f"`odradek chaos resume --data {where} --broker 2`, which ends it"


def test_a_broker_that_is_frozen_is_not_frozen_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is said, as `resume` says it of one that runs; and `cluster list` does not call such a cluster up."""
    monkeypatch.setenv("ODRADEK_HOME", str(tmp_path / "home"))
    cluster = LocalCluster.create(tmp_path / "c", brokers=1)
    child = subprocess.Popen(["sleep", "60"])
    node = cluster.nodes[1]
    node.pid, node.started = child.pid, start_time(child.pid)
    cluster.save()
    pause = ["pause", "--data", str(cluster.directory), "--broker", "1"]
    try:
        first = runner.invoke(app, pause)
        until(lambda: cluster.paused(1), bool)  # the signal is on its way
        again = runner.invoke(app, pause)
        assert (first.exit_code, again.exit_code) == (0, 0), (first.output, again.output)
        assert first.output.startswith(f"froze broker 1 (pid {child.pid})")
        thaws = f"`odradek chaos resume --data {cluster.directory} --broker 1` thaws it"
        assert again.output == f"broker 1 is frozen already: {thaws}\nnothing to do\n"
        assert runner.invoke(app, [*pause, "--json"]).stdout == "[]\n"
        remember(cluster.directory)
        (row,) = json.loads(runner.invoke(clusters, ["list", "--json"]).stdout)
        assert (row["state"], row["running"], row["frozen"]) == ("partly up", [1], [1])
        assert "1 of 1, 1 frozen" in runner.invoke(clusters, ["list"]).stdout
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize(
    ("last", "said"),
    [
        (
            "2026-11-28T20:17:57.918Z ERROR broker 1 server: node 1 cannot start: meta.properties cannot be read",
            "broker 1 has ended: node 1 cannot start: meta.properties cannot be read ({log})",
        ),
        ("Killed", "broker 1 has ended; the end of {log}:\n    INFO begins\n    Killed"),
    ],
)
def test_why_a_broker_cannot_start_is_said_before_all(tmp_path: Path, last: str, said: str) -> None:
    """It names the file and the remedy, and stood behind all that the broker had said before."""
    cluster = LocalCluster.create(tmp_path / "c", brokers=1)
    cluster.log_file(1).write_text(f"INFO begins\n{last}\n")
    assert obituary(cluster, 1) == said.format(log=cluster.log_file(1))


@pytest.fixture
def campaign_at_work() -> Iterator[subprocess.Popen[str]]:
    """A campaign of which ten seeds are done: all its workers are at work."""
    command = "chaos run --seeds 1..1000 -j 2 --faults 0.1 --nemeses pause --core never"
    with started(command, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        assert select.select([process.stdout], [], [], 300)[0]
        yield process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tell", "number"),
    [(os.killpg, signal.SIGINT), (os.kill, signal.SIGTERM), (os.killpg, signal.SIGHUP)],
    ids=["ctrl-c", "kill", "closed-terminal"],
)
def test_an_interrupted_campaign_ends_quietly_with_the_sum_of_what_was_done(
    campaign_at_work: subprocess.Popen[str], tell: Callable[[int, int], None], number: signal.Signals
) -> None:
    """However it is told, and whether its workers hear it too: nobody prints a traceback, the exit code is that of an
    interrupt, the seeds that were done are summed up, and no process is left."""
    tell(campaign_at_work.pid, number)
    said, _ = campaign_at_work.communicate(timeout=180)  # ends when nobody holds its output any more
    assert campaign_at_work.returncode == 130, said
    assert "Traceback" not in said
    assert "never awaited" not in said
    ended = re.search(r"interrupted after (\d+) of 1000 seeds", said)
    assert ended is not None, said
    assert re.search(rf"(?<!\d){ended[1]} seeds?, ", said), said
    assert "longest recovery after the faults" in said


@pytest.mark.slow
def test_the_workers_of_a_campaign_end_when_it_is_killed(campaign_at_work: subprocess.Popen[str]) -> None:
    """kill -9 lets it tell them nothing; they notice that it is gone."""
    campaign_at_work.kill()
    campaign_at_work.communicate(timeout=180)  # ends when nobody holds its output any more


@pytest.mark.parametrize("number", ENDS)
def test_what_a_command_was_started_to_ignore_does_not_end_it(number: signal.Signals) -> None:
    """`nohup` has it ignore a closed terminal."""
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with terminable():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)
