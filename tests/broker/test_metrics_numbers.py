"""The arithmetic behind the metrics: buckets, quantiles, windows, slices of a page, promises about lost records."""

from __future__ import annotations

import asyncio
import random
from math import isnan
from statistics import quantiles

import pytest
from odradek_broker.metrics.samples import SLICE, OneFamily, counters, gauges, page, sliced
from odradek_broker.metrics.times import RequestTimes, histogram, quantile_of
from odradek_broker.runtime.counters import BOUNDS_S, Counters, Durations, Traffic, measured
from odradek_broker.runtime.replicas.truncation_losses import TruncationLosses
from prometheus_client import generate_latest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics


def test_a_duration_lies_at_or_below_the_bound_of_its_bucket() -> None:
    """Each duration is counted once, in the first bucket whose bound it does not pass; the last has no bound."""
    for seconds in (0.0, 1e-5, 1.1e-5, 0.0025, 0.00251, 3.0, 80.0, 81.0, 1e9):
        durations = Durations()
        durations.observe(seconds)
        place = durations.counts.index(1)
        assert sum(durations.counts) == 1
        assert place == len(BOUNDS_S) or seconds <= BOUNDS_S[place]
        assert place == 0 or seconds > BOUNDS_S[place - 1]


def test_histograms_count_what_is_at_or_below_each_bound() -> None:
    """Buckets, count and sum of a page's histogram are those of a naive count."""
    chance = random.Random(7)
    seen = [chance.lognormvariate(-6, 2) for _ in range(1_000)]
    durations = Durations()
    for seconds in seen:
        durations.observe(seconds)
    metric = histogram("taken", "How long.", {"all": durations}, "which")
    for sample in metric.samples:
        if sample.name == "taken_bucket":
            assert sample.value == sum(seconds <= float(sample.labels["le"]) for seconds in seen), sample
    found = {sample.name: sample.value for sample in metric.samples}
    assert found["taken_count"] == 1_000
    assert found["taken_sum"] == pytest.approx(sum(seen))


def test_quantiles_are_within_a_bucket_of_the_truth() -> None:
    """An interpolated quantile is at most a quarter off."""
    chance = random.Random(11)
    seen = [chance.lognormvariate(-6, 1) for _ in range(20_000)]
    durations = Durations()
    for seconds in seen:
        durations.observe(seconds)
    exact = quantiles(seen, n=100)
    for percent in (50, 75, 95, 99):
        assert quantile_of(tuple(durations.counts), percent / 100) == pytest.approx(exact[percent - 1], rel=0.26)


def test_a_quantile_of_nothing_is_not_a_number() -> None:
    """Nothing counted has no quantile, and what is beyond all bounds is told as the last of them."""
    assert isnan(quantile_of(tuple(Durations().counts), 0.5))
    durations = Durations()
    durations.observe(1e6)
    assert quantile_of(tuple(durations.counts), 0.5) == BOUNDS_S[-1]


def test_quantiles_forget_what_is_older_than_a_minute() -> None:
    """A slow start is out of the quantiles a minute later, and stays in count and sum."""
    now = 0.0
    kept = Counters(lambda: now)
    times = RequestTimes(kept, lambda: now)

    def median() -> tuple[float, float]:
        summary = next(iter(times.collect()))
        samples = {(each.name, each.labels.get("quantile")): each.value for each in summary.samples}
        return samples[(summary.name, "0.5")], samples[(f"{summary.name}_count", None)]

    for _ in range(10):
        kept.request("Produce").observe(5.0)
    assert median()[0] > 4_000
    for second in range(1, 62):
        now = float(second)
        kept.request("Produce").observe(0.001)
        if second < 59:
            assert median()[1] == 10 + second
    milliseconds, count = median()
    assert milliseconds <= 1.0
    assert count == 71


@pytest.mark.parametrize("encode", [generate_latest, generate_openmetrics])
@pytest.mark.parametrize("rows", [0, 1, SLICE, SLICE + 1, 3 * SLICE])
def test_a_page_in_slices_is_the_page_in_one_go(rows: int, encode: object) -> None:
    """However many rows a family has, its slices make the same text as the whole, with one pause after each."""
    assert callable(encode)
    samples = [({"row": str(number)}, float(number)) for number in range(rows)]
    last = counters("last_total", "The end.", [({}, 1.0)])
    pauses = 0

    async def pause() -> None:
        nonlocal pauses
        pauses += 1

    def metrics() -> list[Metric]:
        return [*(gauges("many", "Rows.", portion) for portion in sliced(samples)), last]

    text = asyncio.run(page(metrics(), encode, pause))
    whole = encode(_Several([gauges("many", "Rows.", samples), last]))
    assert text == whole
    assert pauses == len(metrics())
    assert encode(OneFamily(last)).count(b"last_total 1.0") == 1


class _Several:
    def __init__(self, metrics: list[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> list[Metric]:
        return self._metrics


def test_a_deleted_topic_stays_in_the_total() -> None:
    """What a topic had counted goes to those that are gone; a topic of the same name begins at zero."""
    kept = Counters()
    traffic = kept.traffic("orders")
    for number, name in enumerate(Traffic.__slots__):
        setattr(traffic, name, number + 1)
    kept.forget("orders")
    kept.forget("payments")
    assert [getattr(kept.gone, name) for name in Traffic.__slots__] == list(range(1, len(Traffic.__slots__) + 1))
    assert kept.traffic("orders").messages_in == 0


def test_work_is_measured_only_with_a_timer() -> None:
    """Without a timer the function itself comes back: nothing is put in its way."""
    durations = Durations()

    def work() -> int:
        return 7

    assert measured(work, durations, None) is work
    moments = iter((1.0, 3.5))
    assert measured(work, durations, lambda: next(moments))() == 7
    assert durations.total_s == 2.5


LED_FROM, LED_TO = 10, 30


@pytest.mark.parametrize(
    ("acknowledged_to", "high_watermark", "cut_from", "cut_to", "expected"),
    [
        (0, 30, 30, 30, (0, 0, 0)),
        (0, 20, 30, 20, (0, 10, 0)),  # led, told nobody
        (25, 20, 30, 20, (5, 5, 0)),  # acks=1 told up to 25
        (0, 20, 30, 15, (5, 10, 0)),  # five of them were committed
        (0, 5, 30, 5, (0, 20, 5)),  # another leader wrote the first five
        (0, 20, 40, 20, (0, 10, 10)),  # and the last ten
        (40, 20, 40, 20, (10, 0, 10)),  # what another one wrote stays unknown, whatever was told here
        (0, 35, 40, 32, (3, 0, 5)),  # nothing of ours is in it
        (0, 30, 40, 30, (0, 0, 10)),
    ],
)
def test_lost_records_by_what_was_promised(
    acknowledged_to: int, high_watermark: int, cut_from: int, cut_to: int, expected: tuple[int, int, int]
) -> None:
    """This broker led from 10 to 30; what lies below the high watermark was promised by somebody."""
    losses = TruncationLosses()
    losses.leadership_ended(LED_FROM, LED_TO, min(high_watermark, 10))
    losses.acknowledged_to = max(losses.acknowledged_to, acknowledged_to)
    lost = losses.truncated(cut_from, cut_to, high_watermark)
    assert lost == expected
    assert sum(lost) == cut_from - cut_to


def test_leaderships_in_a_row_are_one() -> None:
    """Whoever leads twice with nothing in between wrote all of it; a gap makes the earlier part unknown."""
    losses = TruncationLosses()
    losses.leadership_ended(0, 10, 0)
    losses.leadership_ended(10, 20, 0)
    assert losses.truncated(20, 5, 0) == (0, 15, 0)
    losses.leadership_ended(8, 12, 0)  # after the cut to 5, three records came from another leader
    assert losses.truncated(12, 0, 0) == (0, 4, 8)
