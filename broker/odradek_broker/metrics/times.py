"""How long things took: histograms, and quantiles over the last minute.

A counter of durations only ever grows; a quantile of all time says nothing of now. So each look at the quantiles
remembers the counts that it saw, and subtracts those of a minute ago: nothing is kept on the hot path, and whoever
scrapes more seldom than once a minute sees the time since the scrape before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from math import inf, nan

from prometheus_client.core import Metric

from odradek_broker.metrics.samples import Labels
from odradek_broker.runtime.counters import BOUNDS_S, Counters, Durations, Timer

WINDOW_S = 60.0
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)  # those of Kafka's own histograms
ALWAYS = frozenset({"Produce", "FetchConsumer", "FetchFollower"})  # the others show from their first time on
SHOWN_EVERY = (0, 4, 6)  # of the ten bounds of a decade: 1, 2.5 and 5
SHOWN = tuple(place for place in range(len(BOUNDS_S)) if place % 10 in SHOWN_EVERY)
_BOUND_TEXTS = {place: f"{BOUNDS_S[place]:.10g}" for place in SHOWN}
MOST_LOOKS = 64  # that are remembered: scrapers that come more often share what they see

Counts = tuple[int, ...]


def add_histogram(metric: Metric, name: str, durations: Durations, labels: Labels) -> None:
    """Add one histogram in seconds, with three buckets to a decade."""
    counts = tuple(durations.counts)
    below, position = 0, 0
    for place in SHOWN:
        below += sum(counts[position : place + 1])
        position = place + 1
        metric.add_sample(f"{name}_bucket", {**labels, "le": _BOUND_TEXTS[place]}, below)
    metric.add_sample(f"{name}_bucket", {**labels, "le": "+Inf"}, sum(counts))
    metric.add_sample(f"{name}_count", dict(labels), sum(counts))
    metric.add_sample(f"{name}_sum", dict(labels), durations.total_s)


def histogram(name: str, text: str, rows: Mapping[str, Durations], label: str) -> Metric:
    """One histogram for each value of a label."""
    metric = Metric(name, text, "histogram")
    for value, durations in rows.items():
        add_histogram(metric, name, durations, {label: value} if label else {})
    return metric


def quantile_of(counts: Counts, quantile: float) -> float:
    """Seconds, interpolated inside of the bucket; NaN when nothing was counted."""
    total = sum(counts)
    if not total:
        return nan
    rank, below = quantile * total, 0
    for place, count in enumerate(counts):
        if count and below + count >= rank:
            if place == len(BOUNDS_S):
                return BOUNDS_S[-1]
            lower = BOUNDS_S[place - 1] if place else 0.0
            return lower + (BOUNDS_S[place] - lower) * (rank - below) / count
        below += count
    return inf


class RequestTimes:
    """The summaries and histograms of all kinds of requests."""

    def __init__(self, counters: Counters, timer: Timer) -> None:
        self._counters = counters
        self._timer = timer
        self._looks: deque[tuple[float, dict[str, Counts]]] = deque([(timer(), {})])

    def collect(self) -> Iterator[Metric]:
        requests = {name: each for name, each in self._counters.requests.items() if name in ALWAYS or any(each.counts)}
        now, seen = self._timer(), {name: tuple(each.counts) for name, each in requests.items()}
        name = "kafka_network_requestmetrics_totaltimems"
        summary = Metric(name, "Milliseconds from a request's arrival to its answer, by kind of request.", "summary")
        earlier = self._look_back(now)
        for request, durations in requests.items():
            before = earlier.get(request)
            lately = seen[request] if before is None else tuple(map(int.__sub__, seen[request], before))
            for quantile in QUANTILES:
                value = round(quantile_of(lately, quantile) * 1000, 6)
                summary.add_sample(name, {"request": request, "quantile": str(quantile)}, value)
            summary.add_sample(f"{name}_count", {"request": request}, sum(seen[request]))
            summary.add_sample(f"{name}_sum", {"request": request}, round(durations.total_s * 1000, 6))
        self._remember(now, seen)
        yield summary
        text = "Seconds from a request's arrival to its answer, by kind of request."
        yield histogram("odradek_request_seconds", text, requests, "request")

    def _look_back(self, now: float) -> dict[str, Counts]:
        """The newest look that is at least a minute old, or the oldest there is."""
        while len(self._looks) > 1 and self._looks[1][0] <= now - WINDOW_S:
            self._looks.popleft()
        return self._looks[0][1]

    def _remember(self, now: float, seen: dict[str, Counts]) -> None:
        if len(self._looks) < 2 or now - self._looks[-1][0] >= WINDOW_S / MOST_LOOKS:
            self._looks.append((now, seen))
