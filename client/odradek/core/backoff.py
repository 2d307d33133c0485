"""How long to wait before a retry.

Two curves. `backoff_ms` doubles: for a partition or broker that refused. `search_ms` grows by a third: for finding a
new leader, where waiting twice as long as the election took would double what a failover costs. Both have a limit and
a jitter of a fifth, so that many clients do not come back in step.
"""

from __future__ import annotations

import random

JITTER = 0.2  # Kafka's CommonClientConfigs.RETRY_BACKOFF_JITTER
DOUBLING_LIMIT = 30  # exponents above do not matter and would overflow floats one day
SEARCH_GROWTH = 1.3


def backoff_ms(failures: int, base_ms: int, limit_ms: int, rng: random.Random) -> int:
    """Milliseconds to wait after the `failures`-th failure in a row, 1 being the first."""
    delay = base_ms * 2.0 ** min(max(failures - 1, 0), DOUBLING_LIMIT)
    return _jittered(min(delay, limit_ms), rng)


def search_ms(failures: int, base_ms: int, limit_ms: int, rng: random.Random) -> int:
    """The same, with a gap that stays below a third of the time that has passed since the first failure."""
    delay = base_ms * SEARCH_GROWTH ** min(max(failures - 1, 0), DOUBLING_LIMIT)
    return _jittered(min(delay, limit_ms), rng)


def _jittered(delay: float, rng: random.Random) -> int:
    return max(1, round(delay * rng.uniform(1 - JITTER, 1 + JITTER)))
