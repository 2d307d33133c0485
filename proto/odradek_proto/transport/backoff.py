"""How long to wait before a retry.

Two curves. DOUBLING is for a partition, a broker or a stream that refused. SEARCHING grows by a third, so that a pause
stays below a third of the time since the first failure: for finding a new leader, where waiting twice as long as the
election took would double what a failover costs. With an `rng` each pause is off by up to a fifth, so that many who
failed together do not come back in step; a core without chance of its own leaves it out.
"""

from __future__ import annotations

import random
from typing import Final

DOUBLING: Final = 2.0
SEARCHING: Final = 1.3
JITTER: Final = 0.2  # Kafka's CommonClientConfigs.RETRY_BACKOFF_JITTER
MOST_STEPS: Final = 30  # exponents above do not matter and would overflow floats one day


def backoff_ms(
    failures: int, first_ms: float, longest_ms: float, rng: random.Random | None = None, growth: float = DOUBLING
) -> int:
    """Milliseconds to wait after the `failures`-th failure in a row, 1 being the first; at least 1."""
    delay = min(first_ms * growth ** min(max(failures - 1, 0), MOST_STEPS), longest_ms)
    return max(1, round(delay if rng is None else delay * rng.uniform(1 - JITTER, 1 + JITTER)))
