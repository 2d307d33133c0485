"""What `odradek chaos` asks and hints, where no cluster is needed."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from odradek.cli.failures import USAGE, CommandFailed
from odradek_chaos.commands import Place, World, app
from typer.testing import CliRunner

from tests.signals import sigint_of_children

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
        (Place(World.PROCESSES, None, None), ""),
        (Place(World.PROCESSES, "my data", None), " --data 'my data'"),
        (Place(World.COMPOSE, None, "shop"), " --world compose --project shop"),
    ],
)
def test_a_hint_names_the_cluster_that_was_struck(place: Place, arguments: str) -> None:
    """Without --data or --project the hint would act on another cluster."""
    assert place.arguments() == arguments


def test_an_interrupted_campaign_ends_quietly_with_the_sum_of_what_was_done() -> None:
    """Ctrl-C goes to the workers too: nobody prints a traceback, the exit code is that of an interrupt, and the seeds
    that were done are summed up."""
    command = ["chaos", "run", "--seeds", "1..1000", "-j", "2", "--faults", "0.1"]
    with sigint_of_children():
        campaign = subprocess.Popen(
            [sys.executable, "-m", "odradek.cli.main", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    assert campaign.stdout is not None
    try:
        assert select.select([campaign.stdout], [], [], 300)[0]  # ten seeds are done, so all workers are at work
        os.killpg(campaign.pid, signal.SIGINT)
        said, _ = campaign.communicate(timeout=180)  # ends when nobody holds its output any more
    finally:
        campaign.kill()
    assert campaign.returncode == 130, said
    assert "Traceback" not in said
    assert "never awaited" not in said
    ended = re.search(r"interrupted after (\d+) of 1000 seeds", said)
    assert ended is not None, said
    assert f"{ended[1]} seeds, " in said
    assert "longest recovery after the faults" in said
