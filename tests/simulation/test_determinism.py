"""A seed is a bug report: it must say the same thing every time, in every process."""

from __future__ import annotations

import os
import subprocess
import sys

from odradek_chaos.worlds.simulated.faults.catalogue import SAFE_NEMESES
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.run import run_seed

OPTIONS = Options(faults_ms=1_500)
EVERYTHING = Options(faults_ms=1_500, nemeses=SAFE_NEMESES)


def test_a_seed_runs_twice_in_the_same_way() -> None:
    """Trace hash, faults and the brokers' events are equal, whatever ran in this process before."""
    first, second = run_seed(0, OPTIONS), run_seed(0, OPTIONS)
    assert first.trace_hash == second.trace_hash
    assert first.faults == second.faults
    assert [moment.line() for moment in first.timeline.moments] == [moment.line() for moment in second.timeline.moments]


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


def test_another_seed_is_another_history() -> None:
    """Otherwise the seeds of a campaign would be one."""
    assert len({run_seed(seed, Options(faults_ms=100)).trace_hash for seed in range(2)}) == 2


def test_the_mode_of_truncation_does_not_shift_the_faults() -> None:
    """Old and new protocol are given the same plan, so that what differs is the protocol's doing."""
    plans = [run_seed(3, Options(faults_ms=100, truncation_mode=mode)).plan for mode in ("fetch", "high-watermark")]
    described = [plan.describe() for plan in plans]
    assert described[0]["nemeses"] == described[1]["nemeses"]
    assert described[0]["write_pause_ms"] == described[1]["write_pause_ms"]
