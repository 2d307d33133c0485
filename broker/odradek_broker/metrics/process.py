"""The process: its loop, its flushes, its memory and time, and what was built into it."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric

from odradek_broker.metrics.samples import gauge
from odradek_broker.metrics.times import histogram
from odradek_broker.runtime.counters import Counters, Durations


class ProcessMetrics:
    """`loop_lag` is filled by the listener's tick."""

    def __init__(self, counters: Counters, loop_lag: Durations) -> None:
        self._counters = counters
        self._loop_lag = loop_lag
        self._kernel = ProcessCollector(registry=None)
        self._build = {"version": _version(), "python": platform.python_version()}

    def collect(self) -> Iterator[Metric]:
        text = "Delay of a timer on the event loop, which all other work on the loop shares."
        yield histogram("odradek_loop_lag_seconds", text, {"": self._loop_lag}, "")
        text = "Duration of fsyncs of the data logs and of the metadata log."
        fsyncs = {"data": self._counters.data_fsyncs, "metadata": self._counters.metadata_fsyncs}
        yield histogram("odradek_fsync_seconds", text, fsyncs, "log")
        yield gauge("odradek_build_info", "1; version of odradek and of Python.", 1, self._build)
        yield from self._kernel.collect()


def _version() -> str:
    try:
        return version("odradek")
    except PackageNotFoundError:  # run from a source tree that nobody installed
        return "unknown"
