"""Records, bytes and requests by topic (Kafka's BrokerTopicMetrics), and what went wrong with records.

As with Kafka's MBeans, the series with an empty topic holds the broker's total, deleted topics and unknown ones
included; add up one or the others, not both.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric

from odradek_broker.metrics.samples import Labels, counter, counters, gauge, sliced
from odradek_broker.runtime.counters import Counters

NAMES = {  # Kafka's name -> ours, and what it counts
    "messagesin": ("messages_in", "Records that clients wrote."),
    "bytesin": ("bytes_in", "Bytes of record batches that clients wrote."),
    "bytesout": ("bytes_out", "Bytes of record batches sent to consumers."),
    "replicationbytesin": ("replication_bytes_in", "Bytes of record batches fetched from leaders."),
    "replicationbytesout": ("replication_bytes_out", "Bytes of record batches sent to followers."),
    "totalproducerequests": ("produces", "Batches in produce requests of clients."),
    "totalfetchrequests": ("fetches", "Partitions in fetch requests of consumers and followers."),
    "failedproducerequests": ("failed_produces", "Batches that were refused or timed out."),
    "failedfetchrequests": ("failed_fetches", "Partitions whose fetch was answered with an error."),
}
REASONS = {  # rule -> why a follower cut its log
    "R-79": "divergence",
    "R-75": "epoch-answer",
    "R-73": "no-epoch",
    "R-84": "leader-is-shorter",
    "L-1": "high-watermark",
}


def topics(counts: Counters, *, each_topic: bool) -> Iterator[Metric]:
    """The broker's totals, and with `each_topic` every topic."""
    for name, (attribute, text) in NAMES.items():
        total = sum(getattr(traffic, attribute) for traffic in (counts.gone, *counts.topics.values()))
        rows: list[tuple[Labels, float]] = [({"topic": ""}, total)]
        if each_topic:
            rows += [({"topic": topic}, getattr(each, attribute)) for topic, each in counts.topics.items()]
        for portion in sliced(rows):
            yield counters(f"kafka_server_brokertopicmetrics_{name}_total", text, portion)


def cleaning(counts: Counters) -> Iterator[Metric]:
    """The cleaner of compacted logs."""
    cleaner = counts.cleaner
    text = "Compacted logs that were cleaned."
    yield counter("odradek_log_cleaner_rounds_total", text, cleaner.rounds)
    text = "Bytes that the cleaner has read, those of keys and those of segments."
    yield counter("odradek_log_cleaner_read_bytes_total", text, cleaner.bytes_read)
    text = "Bytes by which cleaned segments are smaller than the originals."
    yield counter("odradek_log_cleaner_freed_bytes_total", text, cleaner.bytes_freed)
    text = "Records replaced by a newer one with their key, and expired tombstones."
    yield counter("odradek_log_cleaner_dropped_records_total", text, cleaner.records_dropped)
    text = "Share of bytes that were never cleaned, of the dirtiest compacted log when the cleaner last looked."
    yield gauge("odradek_log_cleaner_max_dirty_ratio", text, cleaner.dirty_ratio)


def losses(counts: Counters) -> Iterator[Metric]:
    """Truncations and damage."""
    cuts = counts.truncations
    known = dict.fromkeys(REASONS, 0) | cuts.by_rule
    text = "Truncations of logs on this broker, by reason."
    yield counters(
        "odradek_truncations_total",
        text,
        [({"reason": REASONS.get(rule, rule)}, count) for rule, count in known.items()],
    )
    text = "Records dropped by truncations on this broker, by whether they had been acknowledged."
    answers = {"yes": cuts.acknowledged, "no": cuts.unacknowledged, "unknown": cuts.unknown}
    yield counters("odradek_truncated_records_total", text, [({"acked": word}, n) for word, n in answers.items()])
    text = "Logs dropped entirely because the leader's log begins later."
    yield counter("odradek_log_restarts_total", text, cuts.restarts)
    text = "Bytes truncated by recovery when logs were opened."
    yield counter("odradek_recovery_dropped_bytes_total", text, counts.recovery_dropped_bytes)
    text = "Record batches that failed their check, by where they came from."
    rows = [({"source": source}, count) for source, count in counts.damaged_batches.items()]
    yield counters("odradek_crc_errors_total", text, rows)
