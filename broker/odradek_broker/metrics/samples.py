"""Families of samples in the words of prometheus_client, and pages made of them without holding up the loop.

A family may come in several slices, one behind the other with the same name, so that a thousand partitions are not
written in one go: between two slices the loop does its other work. What stands in one slice was read at one moment;
the slices of a page were not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TypeVar

from prometheus_client.core import Metric

T = TypeVar("T")
Encoder = Callable[["OneFamily"], bytes]
Labels = Mapping[str, str]
Rows = Iterable[tuple[Labels, float]]

SLICE = 200  # samples that are written in one go: well below a millisecond
END = b"# EOF\n"  # of a page in OpenMetrics
NO_LABELS: Labels = {}


class OneFamily:
    """A registry with a single family, as the encoders want one."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterator[Metric]:
        yield self._metric


def gauge(name: str, text: str, value: float, labels: Labels = NO_LABELS) -> Metric:
    return gauges(name, text, [(labels, value)])


def gauges(name: str, text: str, rows: Rows) -> Metric:
    """One gauge with several sets of labels."""
    metric = Metric(name, text, "gauge")
    for labels, value in rows:
        metric.add_sample(name, dict(labels), value)
    return metric


def counter(name: str, text: str, value: float) -> Metric:
    return counters(name, text, [(NO_LABELS, value)])


def counters(name: str, text: str, rows: Rows) -> Metric:
    """One counter with several sets of labels; `name` ends with `_total`."""
    assert name.endswith("_total"), name
    metric = Metric(name.removesuffix("_total"), text, "counter")
    for labels, value in rows:
        metric.add_sample(name, dict(labels), value)
    return metric


def sliced(rows: Iterable[T]) -> Iterator[Sequence[T]]:
    """The rows in portions that may be written in one go; one empty portion when there are none."""
    iterator = iter(rows)
    portion = list(islice(iterator, SLICE))
    yield portion
    while portion := list(islice(iterator, SLICE)):
        yield portion


async def page(metrics: Iterable[Metric], encode: Encoder, pause: Callable[[], Awaitable[None]]) -> bytes:
    """All families as one text; `pause` lets others run between two slices."""
    parts: list[bytes] = []
    before, ended = "", False
    for metric in metrics:
        text = encode(OneFamily(metric))
        if text.endswith(END):
            text, ended = text[: -len(END)], True
        if metric.name == before:
            text = b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"#"))
        before = metric.name
        parts.append(text)
        await pause()
    if ended:
        parts.append(END)
    return b"".join(parts)
