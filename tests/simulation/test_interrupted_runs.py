"""A simulated run that Ctrl-C ends: quietly, and with nothing left of it."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from odradek.cli.main import main
from odradek_chaos.cli.campaign_progress import CampaignProgress
from odradek_chaos.worlds.simulated.campaign import campaign, shrink
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run import run
from odradek_chaos.worlds.simulated.world.world import World
from odradek_proto.command_line import INTERRUPTED


@pytest.fixture
def as_in_a_terminal() -> Iterator[None]:
    """Ctrl-C interrupts, and a SIGTERM that nobody hears fails the test and does not end it."""

    def unheard(number: int, frame: object) -> None:
        raise AssertionError("SIGTERM was not heard")

    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, unheard)
    yield
    for number, handler in before:
        signal.signal(number, handler)


def told(number: signal.Signals, world: World, after_ms: float = 1.0) -> None:
    """In the midst of a run."""
    world.faults.later(after_ms, partial(signal.raise_signal, number))


@pytest.mark.parametrize(
    ("number", "after_ms"),
    [*((signal.SIGINT, after_ms) for after_ms in (0.0, 1.0, 2_500.0)), (signal.SIGTERM, 1.0)],
)
def test_an_interrupted_trace_ends_quietly(
    number: signal.Signals,
    after_ms: float,
    as_in_a_terminal: None,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the midst of a run, or before anything has happened: code 130, a sentence, and no task that cries."""
    cries: list[object] = []
    before = signal.getsignal(number)
    monkeypatch.setattr(sys, "unraisablehook", lambda cry: cries.append(cry.exc_value))
    monkeypatch.setattr(run, "run_seed", partial(run.run_seed, prepare=partial(told, number, after_ms=after_ms)))
    assert main(["chaos", "trace", "3", "--faults", "600"]) == INTERRUPTED
    assert signal.getsignal(number) is before
    gc.collect()
    assert cries == []
    assert caplog.messages == []
    out, err = capsys.readouterr()
    assert (out, err) == ("", "interrupted: seed 3 did not run to its end\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("command", [("trace", "3"), ("run", "--seeds", "1..3")], ids=["trace", "run"])
def test_a_script_that_was_not_written_is_told(
    as_in_a_terminal: None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    command: tuple[str, ...],
    number: signal.Signals,
) -> None:
    """Whoever interrupts the shrinking of a seed, after a campaign that found it too, looks for no file."""

    def found(seeds: object, options: Options, **_: object) -> campaign.Campaign:
        return campaign.Campaign(options, failed_seeds=[3])

    monkeypatch.setattr(campaign, "run_campaign", found)
    monkeypatch.setattr(shrink, "run_seed", partial(run.run_seed, prepare=partial(told, number)))
    file = tmp_path / "small.json"
    assert main(["chaos", *command, "--faults", "600", "--shrink", str(file)]) == INTERRUPTED
    assert capsys.readouterr().err == f"interrupted: seed 3 was not made small, and {file} was not written\n"
    assert not file.exists()


@pytest.mark.slow
def test_a_campaign_that_is_interrupted_shrinks_nothing_and_says_so(
    as_in_a_terminal: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Below how far it has come."""
    monkeypatch.setattr(CampaignProgress, "add", lambda self, summary: signal.raise_signal(signal.SIGINT))
    file = tmp_path / "small.json"
    words = ["--seeds", "1..1000", "-j", "1", "--faults", "0.1", "--shrink", str(file)]
    assert main(["chaos", "run", *words]) == INTERRUPTED
    assert capsys.readouterr().err == f"interrupted after 1 of 1000 seeds\n{file} was not written\n"
