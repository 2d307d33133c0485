"""How fast the simulated world is: virtual seconds of a whole cluster for each second of one core.

    python -m bench --only simulated [--quick] [--json]

Each figure is a run of seeds with the everyday options: three brokers, two writers, one reader, three kinds of faults,
chance points as the seed draws them, and every invariant looked at after every callback of a broker. Time is CPU time
of this process; the codec, the storage, the quorum and the client are the product's own.
"""

from __future__ import annotations

import time

from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.run import run_seed

from bench.report import Figure

WARM_UP_SEED = 0
FLOOR = 8  # times real time, for all seeds together: at a load of five, on two cores, 11.3 was measured; at two, 15.6
LONG_MS = 150_000


def figures(quick: bool) -> list[Figure]:
    """Virtual seconds for each second of CPU time, by seed and for all of them."""
    run_seed(WARM_UP_SEED, Options(faults_ms=500))
    found: list[Figure] = []
    total_s = total_cpu_s = events = 0.0
    for seed in range(1, 4 if quick else 11):
        virtual_s, cpu_s, count = _measure(seed, Options())
        total_s, total_cpu_s, events = total_s + virtual_s, total_cpu_s + cpu_s, events + count
        found.append(Figure("simulated", f"seed {seed}, {virtual_s:.1f} virtual s", virtual_s / cpu_s, "x"))
    found.append(Figure("simulated", "all seeds, virtual s / CPU s", total_s / total_cpu_s, "x", FLOOR, at_least=True))
    found.append(Figure("simulated", "all seeds, callbacks / CPU s", events / total_cpu_s, "/s"))
    if not quick:
        virtual_s, cpu_s, _ = _measure(1, Options(faults_ms=LONG_MS))
        found.append(Figure("simulated", f"one long seed, {virtual_s:.0f} virtual s", virtual_s / cpu_s, "x"))
    return found


def _measure(seed: int, options: Options) -> tuple[float, float, int]:
    """Virtual seconds, CPU seconds, callbacks. Raises `RuntimeError` for a run with a finding."""
    began = time.process_time()
    result = run_seed(seed, options)
    cpu_s = time.process_time() - began
    if result.findings:
        raise RuntimeError(result.report())
    return result.virtual_ms / 1000, cpu_s, result.events
