"""What three real brokers say of themselves, against what happened to them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from odradek.sync import Consumer, Producer
from odradek_broker.testing import Cluster

from tests.broker.metrics_pages import LISTENER, Page, eventually, get, parse_openmetrics, scrape, total

RECORDS = 60
MANAGER = "kafka_server_replicamanager_"
CONTROLLER = "kafka_controller_kafkacontroller_"
TOPICS = "kafka_server_brokertopicmetrics_"
PER_ROW = ("topic", "partition", "replica")


@pytest.fixture(scope="module")
def busy() -> Iterator[Cluster]:
    """Three brokers, one topic of three partitions, sixty records written and read."""
    with Cluster(settings=LISTENER) as cluster:
        cluster.create_topic("orders", 3)
        with Producer(cluster.bootstrap, acks="all") as producer:
            for number in range(RECORDS):
                producer.send("orders", f"value {number}", partition=number % 3)
        with Consumer(cluster.bootstrap, "orders", auto_offset_reset="earliest") as consumer:
            assert len(list(consumer.records(until="end"))) == RECORDS
        eventually(lambda: total(cluster, "odradek_replica_hw") == 3 * RECORDS, "followers never heard of the commit")
        yield cluster


@pytest.fixture(scope="module")
def pages(busy: Cluster) -> list[Page]:
    """What each of them tells then."""
    return [scrape(busy, broker) for broker in busy.brokers]


def total_of(pages: list[Page], name: str, **labels: str) -> float:
    """The sum over all brokers."""
    return sum(page.total(name, **labels) for page in pages)


def test_traffic_is_counted_once_where_it_happened(pages: list[Page]) -> None:
    """Records, bytes in and bytes out are those of the clients; what followers take is what leaders send them."""
    bytes_in = total_of(pages, f"{TOPICS}bytesin_total", topic="orders")
    assert total_of(pages, f"{TOPICS}messagesin_total", topic="orders") == RECORDS
    assert bytes_in == sum(total_of(pages, "kafka_log_log_size", partition=str(each)) for each in range(3)) / 3
    assert total_of(pages, f"{TOPICS}bytesout_total", topic="orders") == bytes_in
    assert total_of(pages, f"{TOPICS}replicationbytesin_total", topic="orders") == 2 * bytes_in
    assert total_of(pages, f"{TOPICS}replicationbytesout_total", topic="orders") == 2 * bytes_in
    assert total_of(pages, f"{TOPICS}failedproducerequests_total", topic="orders") == 0


def test_the_series_without_a_topic_is_the_total(pages: list[Page]) -> None:
    """As with Kafka's MBeans, the empty topic holds the sum of all topics."""
    for name in ("messagesin_total", "bytesin_total", "replicationbytesin_total", "totalproducerequests_total"):
        for page in pages:
            every = page.samples[TOPICS + name]
            assert page.total(TOPICS + name, topic="") == sum(value for labels, value in every if labels["topic"])


def test_each_replica_shows_its_offsets(busy: Cluster, pages: list[Page]) -> None:
    """Log end, high watermark and leader epoch of all nine replicas, and what leaders know of their followers."""
    for broker, page in zip(busy.brokers, pages, strict=True):
        for partition in map(str, range(3)):
            own = {"topic": "orders", "partition": partition, "replica": str(broker)}
            assert page.total("odradek_replica_leo", **own) == RECORDS / 3
            assert page.total("odradek_replica_hw", **own) == RECORDS / 3
            assert page.total("odradek_replica_leader_epoch", **own) == 0
            assert page.total("kafka_log_log_logendoffset", topic="orders", partition=partition) == RECORDS / 3
    remote = [value for page in pages for _, value in page.samples.get("odradek_remote_replica_leo", ())]
    assert remote == [RECORDS / 3] * 6
    assert total_of(pages, "odradek_isr_size") == 9
    assert total_of(pages, "odradek_assigned_replicas") == 9
    assert total_of(pages, "kafka_server_fetcherlagmetrics_consumerlag") == 0


def test_counts_of_a_healthy_cluster(busy: Cluster, pages: list[Page]) -> None:
    """Nine replicas, three leaders, one controller, nothing offline."""
    assert total_of(pages, f"{MANAGER}partitioncount") == 9
    assert total_of(pages, f"{MANAGER}leadercount") == 3
    assert total_of(pages, f"{CONTROLLER}activecontrollercount") == 1
    for name in ("underreplicatedpartitions", "underminisrpartitioncount", "offlinereplicacount"):
        assert total_of(pages, MANAGER + name) == 0, name
    for page in pages:
        assert page.total(f"{CONTROLLER}activebrokercount") == 3
        assert page.total(f"{CONTROLLER}globalpartitioncount") == 3
        assert page.total("kafka_server_raft_metrics_current_leader") == busy.controller()
        assert page.total("kafka_server_raft_metrics_current_state") == 1


def test_requests_are_timed(busy: Cluster, pages: list[Page]) -> None:
    """Each batch written has one time in the summary and in the histogram, which agree with each other."""
    name = "kafka_network_requestmetrics_totaltimems"
    seconds = "odradek_request_seconds"

    def agree() -> bool:
        """A request that ends while a page is being read may be in one of them already."""
        now = [scrape(busy, broker, only="request") for broker in busy.brokers]
        for request in ("Produce", "FetchConsumer", "FetchFollower", "Metadata"):
            seen, again = (total_of(now, f"{each}_count", request=request) for each in (name, seconds))
            took_ms, took_s = (total_of(now, f"{each}_sum", request=request) for each in (name, seconds))
            if not (seen == again > 0 and took_ms == pytest.approx(1000 * took_s)):
                return False
        return True

    eventually(agree, "two times of a request")
    produces = total_of(pages, f"{TOPICS}totalproducerequests_total", topic="")
    assert total_of(pages, f"{name}_count", request="Produce") == produces
    for page in pages:
        buckets = [value for labels, value in page.samples["odradek_request_seconds_bucket"]
                   if labels["request"] == "Produce"]  # fmt: skip
        assert all(smaller <= larger for smaller, larger in pairwise(buckets))
        assert buckets[-1] == page.total("odradek_request_seconds_count", request="Produce")


def test_the_process_shows_itself(busy: Cluster) -> None:
    """Loop lag and metadata fsyncs are measured; version, memory and time are there."""
    lag = "odradek_loop_lag_seconds"
    eventually(lambda: scrape(busy, 1, only=lag).total(f"{lag}_count") > 0, "the loop was never measured")
    page = scrape(busy, 1)
    assert page.total("odradek_fsync_seconds_count", log="metadata") > 0
    assert page.total("odradek_build_info") == 1
    assert page.total("process_resident_memory_bytes") > 1 << 20
    assert page.total("process_cpu_seconds_total") > 0


def test_the_cluster_view_has_no_series_for_topics_or_replicas(busy: Cluster) -> None:
    """However many topics and partitions there are, that page stays as long as it is; it has a part of all families."""
    small, full = scrape(busy, 1, "?view=cluster"), scrape(busy, 1)
    assert small.types.items() <= full.types.items()
    rows = {(name, label) for name, samples in small.samples.items()
            for labels, _ in samples for label in PER_ROW if labels.get(label)}  # fmt: skip
    assert not rows
    assert small.total(f"{TOPICS}messagesin_total") == full.total(f"{TOPICS}messagesin_total", topic="")
    assert get(f"{busy.metrics_url(1)}/metrics?view=some")[0] == 400


def test_openmetrics_is_spoken_when_asked_for(busy: Cluster) -> None:
    """The page in OpenMetrics passes the strict parser, ends as it must, and has the same families."""
    status, content_type, text = get(f"{busy.metrics_url(1)}/metrics", "application/openmetrics-text; version=1.0.0")
    assert status == 200
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")
    assert text.count("# EOF") == 1
    names = {f"{each.name}_total" if each.type == "counter" else each.name for each in parse_openmetrics(text)}
    assert names == set(scrape(busy, 1).types)
