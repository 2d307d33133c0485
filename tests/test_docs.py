"""The pages in docs/ against what they speak of: links, files, functions, commands, settings, events.

A page that says more than the code does is worse than none, and a page is forgotten more easily than code. So whatever
can be looked up is looked up here.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from functools import cache
from pathlib import Path

import pytest
from odradek.cli.main import command_tree
from odradek.shared.config import AdminConfig, ConsumerConfig, ProducerConfig, dotted
from odradek_broker.config.settings import FIELDS, NONE_LIMIT, setting_key
from odradek_broker.core.metadata.topic_configs import TOPIC_CONFIGS

pytestmark = pytest.mark.xdist_group("docs")  # in one process, so that each file is parsed once
ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])
PAGE_NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
PACKAGES = (
    "proto/odradek_proto",
    "client/odradek",
    "broker/odradek_broker",
    "chaos/odradek_chaos",
    "audit/odradek_audit",
)

FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
ROW = re.compile(r"^\| `([^`]+)` \| (.+) \|$", re.MULTILINE)
PATH = re.compile(
    r"[\w./*-]+\.(?:py|pyi|proto|md|txt|toml|yml)\b|(?:proto|client|broker|chaos|audit|tests|bench|examples|docs)/[\w./*-]+"
)
FUNCTION = re.compile(r"([\w/]+\.py): ([A-Za-z_][\w.]*)")
NOT_OURS = {"server.properties", "server.toml", "audit_job.py", "utils.py"}  # of users, or examples of what not to do


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    return FENCE.sub("", text_of(page))


def section(page: Path, title: str) -> str:
    """What stands under a heading, up to the next one of the same or a higher level."""
    text = text_of(page)
    found = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert found, f"{page.name} has no heading {title!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


# --- Links and files ------------------------------------------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(prose_of(page))}


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_links_lead_somewhere(name: str) -> None:
    """A link inside of the repository names a file that is there, and a heading that is on it."""
    page = ROOT / name
    broken = []
    for target in LINK.findall(prose_of(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        aim = (page.parent / path).resolve() if path else page
        if not aim.exists() or (anchor and anchor not in anchors(aim)):
            broken.append(target)
    assert not broken, broken


def sources(path: str) -> list[Path]:
    """The files that a path on a page may mean: from the root, from docs/, or from inside of a package."""
    bases = [ROOT, DOCS, DOCS / "decisions", *(ROOT / package for package in PACKAGES)]
    found = [hit for base in bases for hit in base.glob(path.strip("/"))]
    if not found and "/" not in path:  # a bare name stands beside another one that has its folder
        found = [hit for top in ("docs", "tests", "bench", "examples", *PACKAGES) for hit in (ROOT / top).rglob(path)]
    return found


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_files_that_a_page_names_exist(name: str) -> None:
    """A file or folder of ours in a code span is in the repository."""
    missing = [
        path
        for span in SPAN.findall(prose_of(ROOT / name))
        for path in PATH.findall(span.split(": ")[0])
        if "://" not in span and span.split()[0] != "import" and path not in NOT_OURS and not sources(path)
    ]
    assert not missing, missing


@cache
def names_in(path: Path) -> set[str]:
    """`function`, `Class` and `Class.method` of a file."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef):
            inner = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
            found |= {node.name, *(f"{node.name}.{method.name}" for method in inner)}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.add(node.name)
    return found


@pytest.mark.parametrize("name", PAGE_NAMES)
def test_functions_that_a_page_names_exist(name: str) -> None:
    """`replicas/replica.py: Replica.produce` is defined in that file."""
    references = [hit for span in SPAN.findall(prose_of(ROOT / name)) for hit in FUNCTION.findall(span)]
    missing = [
        f"{path}: {function}"
        for path, function in references
        if not any(function in names_in(source) for source in sources(path))
    ]
    assert not missing, missing


def test_the_tour_names_functions() -> None:
    """The tour is held to the code by many references; otherwise the test before would pass on nothing."""
    spans = SPAN.findall(prose_of(DOCS / "architecture.md"))
    assert sum(len(FUNCTION.findall(span)) for span in spans) > 40


# --- Commands -------------------------------------------------------------------------------------------------------


def code_of(page: Path) -> Iterator[str]:
    """Every line of code on a page."""
    yield from SPAN.findall(prose_of(page))
    for block in FENCE.findall(text_of(page)):
        yield from block.splitlines()[1:-1]


def unknown_command(words: list[str]) -> str | None:
    """The command in `odradek <words>` that does not exist; options and arguments are not looked at."""
    command = command_tree()
    context = command.make_context("odradek", [], resilient_parsing=True)
    for word in words:
        if not hasattr(command, "list_commands") or not re.fullmatch(r"[a-z][a-z-]*", word):
            return None
        if word not in command.list_commands(context):
            return f"odradek {' '.join(words)}"
        command = command.get_command(context, word)
        context = command.make_context(word, [], parent=context, resilient_parsing=True)
    return None


@pytest.mark.parametrize("name", [name for name in PAGE_NAMES if name != "docs/commands.md"])
def test_commands_that_a_page_shows_exist(name: str) -> None:
    """`odradek cluster up` is one, and so is each in `odradek cluster up|down`; commands.md is made from them."""
    wrong = []
    for line in code_of(ROOT / name):
        for words in re.findall(r"(?:^|[|&$(] )odradek((?: [a-z|-]+){1,2})(?=[\s.,;:)]|$)", line.strip()):
            first, *rest = words.split()
            for command in first.split("|"):
                for inner in rest[0].split("|") if rest else [""]:
                    wrong.append(unknown_command([word for word in (command, inner) if word]))
    assert not any(wrong), sorted(filter(None, wrong))


# --- Settings -------------------------------------------------------------------------------------------------------

MUST_BE_SET, NONE = "must be set", None
KAFKA_BROKER: dict[str, object] = {  # defaults of Apache Kafka 4.1 for the settings that we have, too
    "node.id": MUST_BE_SET,
    "process.roles": MUST_BE_SET,
    "controller.quorum.voters": "",
    "controller.listener.names": MUST_BE_SET,
    "listeners": "PLAINTEXT://:9092",
    "advertised.listeners": "",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "broker.rack": "",
    "log.dirs": "/tmp/kafka-logs",
    "num.partitions": 1,
    "default.replication.factor": 1,
    "min.insync.replicas": 1,
    "unclean.leader.election.enable": False,
    "auto.create.topics.enable": True,
    "delete.topic.enable": True,
    "auto.leader.rebalance.enable": True,
    "leader.imbalance.check.interval.seconds": 300,
    "message.max.bytes": 1_048_588,
    "compression.type": "producer",
    "compression.gzip.level": -1,
    "compression.lz4.level": 9,
    "compression.zstd.level": 3,
    "log.message.timestamp.type": "CreateTime",
    "log.message.timestamp.before.max.ms": NONE_LIMIT,
    "log.message.timestamp.after.max.ms": 3_600_000,
    "replica.lag.time.max.ms": 30_000,
    "replica.fetch.wait.max.ms": 500,
    "replica.fetch.min.bytes": 1,
    "replica.fetch.max.bytes": 1_048_576,
    "replica.fetch.response.max.bytes": 10_485_760,
    "replica.fetch.backoff.ms": 1_000,
    "replica.high.watermark.checkpoint.interval.ms": 5_000,
    "log.segment.bytes": 1_073_741_824,
    "log.roll.ms": NONE,  # log.roll.hours=168
    "log.index.interval.bytes": 4_096,
    "log.index.size.max.bytes": 10_485_760,
    "log.flush.interval.messages": NONE_LIMIT,
    "log.flush.interval.ms": NONE,
    "log.flush.offset.checkpoint.interval.ms": 60_000,
    "log.flush.start.offset.checkpoint.interval.ms": 60_000,
    "log.retention.ms": NONE,  # log.retention.hours=168
    "log.retention.bytes": -1,
    "log.retention.check.interval.ms": 300_000,
    "log.segment.delete.delay.ms": 60_000,
    "log.cleanup.policy": "delete",
    "log.cleaner.enable": True,
    "log.cleaner.backoff.ms": 15_000,
    "log.cleaner.dedupe.buffer.size": 134_217_728,
    "log.cleaner.io.max.bytes.per.second": 1.7976931348623157e308,
    "log.cleaner.delete.retention.ms": 86_400_000,
    "log.cleaner.min.compaction.lag.ms": 0,
    "log.cleaner.max.compaction.lag.ms": NONE_LIMIT,
    "log.cleaner.min.cleanable.ratio": "0.5",
    "producer.id.expiration.ms": 86_400_000,
    "broker.heartbeat.interval.ms": 2_000,
    "broker.session.timeout.ms": 9_000,
    "controller.quorum.election.timeout.ms": 1_000,
    "controller.quorum.fetch.timeout.ms": 2_000,
    "controller.quorum.election.backoff.max.ms": 1_000,
    "controller.quorum.request.timeout.ms": 2_000,
    "controller.quorum.retry.backoff.ms": 20,
    "metadata.log.max.record.bytes.between.snapshots": 20_971_520,
    "metadata.log.max.snapshot.interval.ms": 3_600_000,
    "metadata.log.segment.bytes": 1_073_741_824,
    "metadata.log.segment.ms": 604_800_000,
    "metadata.max.retention.bytes": 104_857_600,
    "metadata.max.retention.ms": 604_800_000,
    "controlled.shutdown.enable": True,
    "fetch.max.bytes": 57_671_680,
    "socket.request.max.bytes": 104_857_600,
    "queued.max.request.bytes": -1,
    "connections.max.idle.ms": 600_000,
    "max.connections": 2_147_483_647,
    "max.connections.per.ip": 2_147_483_647,
    "request.timeout.ms": 30_000,
    "offsets.topic.num.partitions": 50,
    "offsets.topic.replication.factor": 3,
    "offsets.topic.segment.bytes": 104_857_600,
    "offsets.commit.timeout.ms": 5_000,
    "offsets.retention.minutes": 10_080,
    "offsets.retention.check.interval.ms": 600_000,
    "offset.metadata.max.bytes": 4_096,
    "group.initial.rebalance.delay.ms": 3_000,
    "group.min.session.timeout.ms": 6_000,
    "group.max.session.timeout.ms": 1_800_000,
    "group.max.size": 2_147_483_647,
    "group.consumer.session.timeout.ms": 45_000,
    "group.consumer.min.session.timeout.ms": 45_000,
    "group.consumer.max.session.timeout.ms": 60_000,
    "group.consumer.heartbeat.interval.ms": 5_000,
    "group.consumer.min.heartbeat.interval.ms": 5_000,
    "group.consumer.max.heartbeat.interval.ms": 15_000,
    "group.consumer.max.size": 2_147_483_647,
    "group.consumer.assignors": "uniform,range",
    "group.consumer.migration.policy": "bidirectional",
    "ssl.keystore.type": "JKS",
    "ssl.keystore.location": "",
    "ssl.keystore.certificate.chain": "",
    "ssl.keystore.key": "",
    "ssl.truststore.type": "JKS",
    "ssl.truststore.location": "",
    "ssl.truststore.certificates": "",
    "ssl.client.auth": "none",
    "authorizer.class.name": "",
    "super.users": "",
    "allow.everyone.if.no.acl.found": False,
    "sasl.enabled.mechanisms": "GSSAPI",
    "sasl.server.max.receive.size": 524_288,
    "connection.failed.authentication.delay.ms": 100,
    "connections.max.reauth.ms": 0,
}
NOT_KAFKAS = {"cluster.id", "internal.segment.bytes"}  # Kafka's `format` command takes it; only of topics
KAFKA_CLIENT: dict[str, object] = {  # of the producer, the consumer and the admin client where they have it
    "bootstrap.servers": "",
    "client.id": "",
    "request.timeout.ms": 30_000,
    "retry.backoff.ms": 100,
    "retry.backoff.max.ms": 1_000,
    "metadata.max.age.ms": 300_000,
    "security.protocol": "PLAINTEXT",
    "ssl.truststore.location": "",
    "ssl.keystore.location": "",
    "sasl.mechanism": "GSSAPI",
    "acks": -1,
    "batch.size": 16_384,
    "linger.ms": 5,
    "compression.type": "none",
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 5,
    "delivery.timeout.ms": 120_000,
    "retries": 2_147_483_647,
    "max.block.ms": 60_000,
    "buffer.memory": 33_554_432,
    "max.request.size": 1_048_576,
    "group.id": "",
    "group.instance.id": "",
    "group.remote.assignor": "",
    "enable.auto.commit": True,
    "auto.commit.interval.ms": 5_000,
    "max.poll.interval.ms": 300_000,
    "auto.offset.reset": "latest",
    "isolation.level": "read_uncommitted",
    "fetch.min.bytes": 1,
    "fetch.max.bytes": 52_428_800,
    "fetch.max.wait.ms": 500,
    "max.partition.fetch.bytes": 1_048_576,
    "max.poll.records": 500,
    "check.crcs": True,
    "default.api.timeout.ms": 60_000,
    "allow.auto.create.topics": True,
}


def shown(value: object) -> str:
    """A default as the page writes it."""
    if value == "":
        return "empty"
    if value == NONE_LIMIT:
        return "2^63-1"
    return str(value).lower() if isinstance(value, bool) else str(value)


def client_defaults() -> Iterator[tuple[str, object]]:
    """Every setting of every client; one that two clients set differently comes twice."""
    seen = set()
    for kind in (ProducerConfig, ConsumerConfig, AdminConfig):
        for item in fields(kind):
            default = "" if item.default is MISSING else item.default
            if (item.name, default) not in seen:
                seen.add((item.name, default))
                yield dotted(item.name), default


def listed(title: str) -> dict[str, str]:
    """Settings of a table on the page of differences, with our default."""
    rows = ROW.findall(section(DOCS / "differences.md", title))
    return {key: rest.split(" | ")[0] for key, rest in rows}


def test_every_broker_setting_has_a_default_of_kafkas_to_be_compared_with() -> None:
    """A new setting is Kafka's, or has our prefix; a setting that is gone leaves the table, too."""
    ours = {setting_key(item.name) for item in FIELDS}
    assert {key for key in ours if not key.startswith("odradek.")} == {*KAFKA_BROKER, *NOT_KAFKAS}


def test_broker_defaults_that_differ_from_kafkas_are_on_the_page_and_no_others() -> None:
    """The table says each of them with the value that the code has."""
    differing = {
        key: shown(item.default)
        for item in FIELDS
        if (key := setting_key(item.name)) in KAFKA_BROKER and item.default != KAFKA_BROKER[key]
    }
    assert listed("Settings of a broker") == differing


def test_settings_of_our_own_are_on_the_page_and_no_others() -> None:
    """So that nobody looks for them in Kafka's documentation."""
    own = {key: shown(item.default) for item in FIELDS if (key := setting_key(item.name)).startswith("odradek.")}
    assert listed("Settings that Kafka does not have") == own


def test_client_defaults_that_differ_from_kafkas_are_on_the_page_and_no_others() -> None:
    """A setting that Kafka's clients lack counts as different."""
    differing = {key: shown(value) for key, value in client_defaults() if KAFKA_CLIENT.get(key, NONE) != value}
    differing["allow.auto.create.topics"] = "producer true, consumer false"
    assert listed("Settings of the clients") == differing


def test_settings_that_nothing_reads_are_on_the_page_of_limits() -> None:
    """A setting without effect is a promise that is not kept; at least it is said."""
    code = "\n".join(path.read_text() for path in sorted((ROOT / "broker").rglob("*.py")) if path.name != "settings.py")
    own = {setting_key(item.name): item.name for item in FIELDS}
    topics = {definition.server_name for definition in TOPIC_CONFIGS.values()}  # looked up by name
    unread = {key for key, name in own.items() if key not in topics and not re.search(rf"settings\.{name}\b", code)}
    said = section(DOCS / "limits.md", "Security and operation")
    assert not {key for key in unread if f"`{key}`" not in said}


# --- Events ---------------------------------------------------------------------------------------------------------

TELLERS = {"Transition", "tell", "_event"}  # functions whose first argument is an event's name
COMMON = ["event", "broker", "mono_ms", "wall_ms", "rule"]


def constants(node: ast.expr) -> list[str]:
    """The texts that an expression may be."""
    if isinstance(node, ast.IfExp):
        return [*constants(node.body), *constants(node.orelse)]
    if isinstance(node, ast.Tuple) and node.elts:
        return constants(node.elts[0])
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def events_of(path: Path) -> Iterator[str]:
    text = path.read_text()
    is_list = path.parts[-2:] == ("controller", "events.py")  # of what the active controller tells
    if not is_list and not any(teller in text for teller in (*TELLERS, "events.write")):
        return  # parsing and walking is most of the work
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Return) and node.value is not None and is_list:
            yield from constants(node.value)
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = ast.unparse(node.func)
        if name.split(".")[-1] in TELLERS or name.endswith(("events.write", "_events.write")):
            yield from constants(node.args[0])


@cache
def events_in_code() -> set[str]:
    return {event for path in sorted((ROOT / "broker").rglob("*.py")) for event in events_of(path)}


def events_on_page() -> dict[str, set[str]]:
    """Events with the facts that the page gives them; several parts of a broker may write events of one name."""
    found: dict[str, set[str]] = {}
    for event, rest in ROW.findall(text_of(DOCS / "events.md")):
        facts = rest.split(" | ")[1]
        found.setdefault(event, set()).update(SPAN.findall(facts))
    return found


def test_every_event_is_on_the_page_and_no_others() -> None:
    """Who reads an evidence file finds each line's meaning."""
    assert set(events_on_page()) == events_in_code()


def test_events_are_found_at_all() -> None:
    """The search sees each way in which an event is written; otherwise the test before would pass on nothing."""
    assert {
        "truncated",
        "leadership_began",
        "unfenced",
        "broker_leaving",
        "leader_chosen",
        "disk_full",
    } <= events_in_code()


def test_lines_on_the_page_of_events_hold_facts_that_it_explains() -> None:
    """The examples are lines of real files; each fact in them is named in the row of its event."""
    known = events_on_page()
    lines = [json.loads(line) for line in code_of(DOCS / "events.md") if line.startswith('{"event"')]
    assert len(lines) >= 6
    for line in lines:
        assert list(line)[: len(COMMON)] == COMMON, line
        assert set(line) - set(COMMON) <= known[line["event"]], line
