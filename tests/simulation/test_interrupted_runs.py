"""A simulated run that Ctrl-C ends: quietly, and with nothing left of it."""

from __future__ import annotations

import gc
import signal
import sys
from functools import partial

import pytest
from odradek.cli.failures import INTERRUPTED
from odradek.cli.main import main
from odradek_chaos.worlds.simulated import run
from odradek_chaos.worlds.simulated.world import World


@pytest.mark.parametrize("after_ms", [0.0, 1.0, 2_500.0])
def test_an_interrupted_trace_ends_quietly(
    after_ms: float,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the midst of a run, or before anything has happened: code 130, a sentence, and no task that cries."""
    cries: list[object] = []
    before = signal.getsignal(signal.SIGINT)

    def interrupted(world: World) -> None:
        world.later(after_ms, partial(signal.raise_signal, signal.SIGINT))

    monkeypatch.setattr(sys, "unraisablehook", lambda cry: cries.append(cry.exc_value))
    monkeypatch.setattr(run, "run_seed", partial(run.run_seed, prepare=interrupted))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        assert main(["chaos", "trace", "3", "--faults", "600"]) == INTERRUPTED
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    gc.collect()
    assert cries == []
    assert caplog.messages == []
    out, err = capsys.readouterr()
    assert (out, err) == ("", "interrupted: seed 3 did not run to its end\n")
