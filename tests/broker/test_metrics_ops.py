"""The dashboard, the alert rules and docs/metrics.md against what a real cluster emits."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from odradek import TopicPartition
from odradek.sync import Consumer, Producer
from odradek_broker.testing import Cluster

from tests.broker.metrics_pages import LISTENER, Page, scrape

ROOT = Path(__file__).parent.parent.parent
DASHBOARD = ROOT / "ops/grafana/odradek.json"
ALERTS = ROOT / "ops/prometheus/alerts.yml"
SCRAPING = ROOT / "ops/prometheus/prometheus.yml"
DOCS = ROOT / "docs/metrics.md"
ROW = re.compile(r"^\| `((?:kafka|odradek|process)_\w+)` \| (\w+) \| (.+?) \| .+ \|$", re.MULTILINE)
OF_PROMETHEUS = {"instance", "job"}  # labels that every scraped series has
QUERY = re.compile(r"label_values\((.+), (\w+)\)")
VARIABLES = {"$__rate_interval": "5m"}


@pytest.fixture(scope="module")
def pages() -> list[Page]:
    """Three brokers after some traffic; a leader and a follower, an active and a passive controller are among them."""
    with Cluster(settings=LISTENER) as cluster:
        cluster.create_topic("orders", 3)
        with Producer(cluster.bootstrap) as producer:
            for number in range(30):
                producer.send("orders", f"value {number}", partition=number % 3)
        with Consumer(
            cluster.bootstrap, "orders", group_id="readers", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            assert len(list(consumer.records(until="end"))) == 30
            consumer.commit()
            consumer.commit({TopicPartition("orders", 1): 4})
            return [scrape(cluster, broker) for broker in cluster.brokers]


@pytest.fixture(scope="module")
def labels(pages: list[Page]) -> dict[str, dict[str, set[str]]]:
    """Every sample's name, its labels, and the values that they have."""
    found: dict[str, dict[str, set[str]]] = {}
    for page in pages:
        for name, samples in page.samples.items():
            known = found.setdefault(name, {})
            for carried, _ in samples:
                for label, value in carried.items():
                    known.setdefault(label, set()).add(value)
    return found


def test_how_far_a_group_is_behind_can_be_told(pages: list[Page]) -> None:
    """Its coordinator says what it has committed, leaders where the partitions end; one group came to rest at once."""
    ends: dict[tuple[str, ...], float] = {}
    committed: dict[tuple[str, ...], float] = {}
    states: dict[tuple[str, ...], float] = {}
    rebalances = 0.0
    for page in pages:
        for labels, value in page.samples["odradek_replica_hw"]:
            ends[labels["topic"], labels["partition"]] = max(value, ends.get((labels["topic"], labels["partition"]), 0))
        for labels, value in page.samples.get("odradek_group_committed_offset", []):
            committed[labels["group"], labels["topic"], labels["partition"]] = value
        for labels, value in page.samples["odradek_groups"]:
            states[labels["type"], labels["state"]] = states.get((labels["type"], labels["state"]), 0) + value
        rebalances += sum(value for _, value in page.samples["odradek_group_rebalances_total"])
    lag = {name: ends[name[1:]] - offset for name, offset in committed.items()}
    assert lag == {("readers", "orders", "0"): 0, ("readers", "orders", "1"): 6, ("readers", "orders", "2"): 0}
    assert {kind: count for kind, count in states.items() if count} == {("consumer", "Stable"): 1}
    assert rebalances == 1


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Where it stands, and the PromQL."""
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"]
    for annotation in json.loads(DASHBOARD.read_text())["annotations"]["list"]:
        yield annotation["name"], annotation["expr"]
    for rule in rules():
        yield rule["alert"], rule["expr"]


def parsed(expression: str) -> list[Any]:
    """All nodes of a PromQL expression; raises when it is none."""
    for variable, value in VARIABLES.items():
        expression = expression.replace(variable, value)
    nodes: list[Any] = []
    promql_parser.walk(promql_parser.parse(expression), nodes.append)
    return nodes


def selectors(expression: str) -> list[Any]:
    return [node for node in parsed(expression) if isinstance(node, promql_parser.VectorSelector)]


EXPRESSIONS = list(expressions())


@pytest.mark.parametrize(
    ("where", "expression"), EXPRESSIONS, ids=[f"{n}: {w}" for n, (w, _) in enumerate(EXPRESSIONS)]
)
def test_every_name_and_label_of_an_expression_is_emitted(
    where: str, expression: str, labels: dict[str, dict[str, set[str]]]
) -> None:
    """A metric of the dashboard or of a rule exists, has the labels that it is asked by, and the values named."""
    found = selectors(expression)
    assert found, f"{where} asks for no metric"
    carried: set[str] = set(OF_PROMETHEUS)
    for selector in found:
        if selector.name == "up":
            continue  # Prometheus' own
        assert selector.name in labels, f"{where}: nobody emits {selector.name}"
        known = labels[selector.name]
        carried |= set(known)
        for matcher in selector.matchers.matchers:
            assert matcher.name in known or matcher.name in OF_PROMETHEUS, (
                f"{where}: {selector.name} has no {matcher.name}"
            )
            if matcher.op == promql_parser.MatchOp.Equal and matcher.name in known:
                assert matcher.value in known[matcher.name], f"{where}: {matcher.name} is never {matcher.value!r}"
    for node in parsed(expression):
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None:
            assert set(node.modifier.labels) <= carried, f"{where}: grouped by {node.modifier.labels}"


@pytest.mark.parametrize("panel", panels(), ids=lambda panel: panel["title"])
def test_legends_name_labels_that_are_there(panel: dict[str, Any], labels: dict[str, dict[str, set[str]]]) -> None:
    """A placeholder of a legend is a label of the metrics behind it."""
    for target in panel["targets"]:
        known = {label for each in selectors(target["expr"]) for label in labels.get(each.name, ())} | OF_PROMETHEUS
        assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known, target["legendFormat"]


def test_variables_of_the_dashboard_have_something_to_choose(labels: dict[str, dict[str, set[str]]]) -> None:
    """Each variable's query names a metric and a label that are emitted."""
    queries = [
        each["definition"] for each in json.loads(DASHBOARD.read_text())["templating"]["list"] if "definition" in each
    ]
    assert len(queries) == 3
    for query in queries:
        match = QUERY.fullmatch(query)
        assert match, query
        (selector,) = selectors(match[1].replace("$topic", "orders"))
        assert match[2] in labels[selector.name] or match[2] in OF_PROMETHEUS, query


def test_panels_do_not_overlap() -> None:
    """Each panel has a place of its own within 24 columns."""
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells


def test_the_page_lists_every_metric_with_its_type_and_labels(
    pages: list[Page], labels: dict[str, dict[str, set[str]]]
) -> None:
    """docs/metrics.md has each emitted family with its type and its labels, and no other."""
    emitted = {name: kind for page in pages for name, kind in page.types.items()}
    listed = {name: (kind, set(re.findall(r"`(\w+)`", cell))) for name, kind, cell in ROW.findall(DOCS.read_text())}
    assert {name: kind for name, (kind, _) in listed.items()} == emitted
    for name, (kind, written) in listed.items():
        parts = ("_bucket", "_sum", "_count") if kind in ("summary", "histogram") else ()
        carried = {label for part in ("", *parts) for label in labels.get(name + part, ())} - {"le"}
        assert written == carried, name


def test_the_page_explains_every_alert() -> None:
    """docs/metrics.md has a row for each rule, and no other; each rule says how bad it is, and in words what it is."""
    listed = set(re.findall(r"^\| `(Odradek\w+)` \|", DOCS.read_text(), re.MULTILINE))
    assert listed == {rule["alert"] for rule in rules()}
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]


def test_prometheus_scrapes_the_brokers_of_the_compose_file() -> None:
    """The targets are the compose file's brokers, and the rules file lies beside the configuration."""
    config = yaml.safe_load(SCRAPING.read_text())
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    brokers = {name for name, service in services.items() if "KAFKA_NODE_ID" in (service.get("environment") or {})}
    (job,) = config["scrape_configs"]
    assert {target.partition(":")[0] for target in job["static_configs"][0]["targets"]} == brokers
    assert all((SCRAPING.parent / name).exists() for name in config["rule_files"])
