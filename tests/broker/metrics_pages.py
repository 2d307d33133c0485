"""Reading the metrics of a cluster as Prometheus does: over HTTP, with the official parser."""

from __future__ import annotations

import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import cast

from odradek_broker.testing import Cluster
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

# Counts are compared to the number. So when the machine stands still for some seconds, nobody is voted out, fenced or
# removed from an ISR for it; whoever is killed is noticed as early as ever, by a refused connection.
LISTENER_ALONE = {"odradek.metrics.listener": "HTTP://127.0.0.1:0"}
LISTENER = {
    **LISTENER_ALONE,
    "controller.quorum.fetch.timeout.ms": 30_000,
    "broker.session.timeout.ms": 60_000,
    "replica.lag.time.max.ms": 60_000,
}
PACE_S = 0.02  # between two looks
PATIENCE_S = 180.0

parse_openmetrics = cast(Callable[[str], Iterable[Metric]], openmetrics.text_string_to_metric_families)


@dataclass
class Page:
    """The samples of one scrape: name -> [(labels, value)], and the type of each family."""

    samples: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)

    def total(self, name: str, **labels: str) -> float:
        """The sum of all samples of this name that carry these labels. Raises `KeyError` for an unknown name."""
        return sum(value for found, value in self.samples[name] if labels.items() <= found.items())


def get(url: str, accept: str = "") -> tuple[int, str, str]:
    """Status, content type and text of a page."""
    request = urllib.request.Request(url, headers={"Accept": accept} if accept else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"], error.read().decode()


def parse(text: str) -> Page:
    page = Page()
    for family in text_string_to_metric_families(text):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert name not in page.types, f"{name} comes twice"
        page.types[name] = family.type
        page.samples.setdefault(name, [])  # a family may be empty: nobody follows, nobody leads
        for sample in family.samples:
            page.samples.setdefault(sample.name, []).append((sample.labels, sample.value))
    return page


def scrape(cluster: Cluster, broker: int, view: str = "", *, only: str = "") -> Page:
    """What a broker tells; with `only` the lines about that metric, since the parser takes its time."""
    status, _, text = get(f"{cluster.metrics_url(broker)}/metrics{view}")
    assert status == 200, text
    return parse("".join(line for line in text.splitlines(keepends=True) if only in line))


def total(cluster: Cluster, name: str, **labels: str) -> float:
    """The sum over all brokers that run."""
    only = name.removesuffix("_total").removesuffix("_count").removesuffix("_sum")  # as the family is called
    return sum(scrape(cluster, broker, only=only).total(name, **labels) for broker in cluster.running)


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Look until it holds. Raises `AssertionError` when it does not in time."""
    deadline = time.monotonic() + PATIENCE_S
    pause = threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what
        pause.wait(PACE_S)
