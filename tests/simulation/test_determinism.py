"""A seed is a bug report: it must say the same thing every time, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

from odradek_chaos.worlds.simulated.faults.catalogue import SAFE_NEMESES
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.expansion import expand
from odradek_chaos.worlds.simulated.run.run import run_seed

OPTIONS = Options(faults_ms=500)
EVERYTHING = Options(faults_ms=1_000, nemeses=SAFE_NEMESES)


def test_a_seed_runs_twice_in_the_same_way() -> None:
    """Trace hash, faults and the brokers' events are equal, whatever ran in this process before.

    Another seed is another history: otherwise the seeds of a campaign would be one.
    """
    first, second = run_seed(0, OPTIONS), run_seed(0, OPTIONS)
    assert first.trace_hash == second.trace_hash
    assert first.faults == second.faults != {}
    assert [moment.line() for moment in first.timeline.moments] == [moment.line() for moment in second.timeline.moments]
    assert run_seed(1, OPTIONS).trace_hash != first.trace_hash


def test_hash_seeds_leave_no_trace() -> None:
    """Another process with another PYTHONHASHSEED and all nemeses at once gives the trace hash of this process."""
    program = (
        "from odradek_chaos.worlds.simulated.faults.catalogue import SAFE_NEMESES\n"
        "from odradek_chaos.worlds.simulated.plan.options import Options\n"
        "from odradek_chaos.worlds.simulated.run.run import run_seed\n"
        f"print(run_seed(7, Options(faults_ms={EVERYTHING.faults_ms}, nemeses=SAFE_NEMESES)).trace_hash)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "4242"}
    told = subprocess.check_output([sys.executable, "-c", program], env=environment, text=True)
    assert told.strip() == run_seed(7, EVERYTHING).trace_hash


def test_the_mode_of_truncation_does_not_shift_the_faults() -> None:
    """Old and new protocol are given the same plan, so that what differs is the protocol's doing."""
    modes = ("fetch", "high-watermark")
    described = [expand(SimLoop(3).fork_rng("plan"), Options(truncation_mode=mode)).describe() for mode in modes]
    assert described[0]["nemeses"] == described[1]["nemeses"]
    assert described[0]["write_pause_ms"] == described[1]["write_pause_ms"]
