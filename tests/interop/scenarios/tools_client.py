"""Kafka's command line tools: what each prints, without what differs from run to run, or which error ends it.

Errors are the names of Kafka's exceptions, one for each code; sentences are every broker's own.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.interop.kafka.java import classpath_of, programs_of, tool
from tests.interop.scenarios.telling import (
    COMPACTED,
    FOUR,
    FUTURE_MS,
    ONE,
    PARTITIONS,
    RECORDS,
    SMALL,
    STRICT,
    Refused,
    Telling,
    eventually,
)

EXCEPTION = re.compile(r"org\.apache\.kafka\.common\.errors\.(\w+)")
VARIES = (  # from run to run
    (re.compile(r"\s+"), " "),
    (re.compile(r"\b\d+\.\d+\.\d+\.\d+:\d+\b|\b\d+\.\d+\.\d+\.\d+\b"), "HOST"),
    (re.compile(r"(?<![\w-])[\w-]{8}-(?:[\w-]{4}-){3}[\w-]{12}\b"), "UUID"),
    (re.compile(r"(?<![\w-])[\w-]{22}(?![\w-])"), "ID"),
    (re.compile(r"\bLeader: \d+"), "Leader: N"),
    (re.compile(r"HOST \(\d+\)"), "HOST (N)"),
)
REPLICAS = re.compile(r"\b(Replicas|Isr): ([\d,]+)")
TWO = ("--partitions", "2", "--replication-factor", "2")


class Tools:
    """One run; `prefix` begins the names of all topics and groups."""

    def __init__(self, bootstrap: str, prefix: str) -> None:
        self._bootstrap = bootstrap
        self._prefix = prefix
        self._programs = programs_of(classpath_of())
        self.telling = Telling(lambda error: error.word if isinstance(error, Refused) else type(error).__name__)

    def topic(self, name: str) -> str:
        return f"{self._prefix}-{name}"

    def run(self, program: str, *arguments: str, lines: Sequence[str] = ()) -> list[str]:
        """The lines that it printed, sorted. Raises `Refused` with the exception that ended it, or with its code."""
        said = self._programs.run(tool(program), arguments, typed="".join(f"{line}\n" for line in lines))
        refusal = EXCEPTION.search(said.output + said.errors)
        if refusal is not None or said.code:
            raise Refused(refusal[1] if refusal is not None else f"exit code {said.code}")
        return sorted(filter(None, map(self._same, said.output.splitlines())))

    def _same(self, line: str) -> str:
        line = REPLICAS.sub(
            lambda found: f"{found[1]}: {len(found[2].split(','))}", line.replace(f"{self._prefix}-", "")
        )
        for varies, word in VARIES:
            line = varies.sub(word, line)
        return line.strip()

    def ask(self, program: str, *arguments: str, lines: Sequence[str] = ()) -> list[str]:
        return self.run(program, "--bootstrap-server", self._bootstrap, *arguments, lines=lines)

    def with_file(self, program: str, option: str, content: object, *arguments: str) -> list[str]:
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory) / "wanted.json"
            file.write_text(json.dumps({"version": 1, "partitions": content}))
            return self.ask(program, option, str(file), *arguments)

    def partition(self, name: str, number: int = 0, **more: object) -> dict[str, object]:
        return {"topic": self.topic(name), "partition": number, **more}

    # --- Scenarios --------------------------------------------------------------------------------------------------

    def topics(self) -> None:
        tell, ask, topic, other = (
            self.telling.of,
            partial(self.ask, "TopicCommand"),
            self.topic("made"),
            self.topic("no"),
        )
        tell("create a topic", lambda: ask("--create", "--topic", topic, *TWO, "--config", "retention.ms=100000"))
        tell("create a topic again", lambda: ask("--create", "--topic", topic, *TWO))
        tell("create a topic unless it is there", lambda: ask("--create", "--if-not-exists", "--topic", topic, *TWO))
        tell("create with a name that cannot be", lambda: ask("--create", "--topic", "no good", *TWO))
        many = ("--replication-factor", "4")
        tell("create with too many replicas", lambda: ask("--create", "--topic", other, *many))
        tell(
            "create with replicas",
            lambda: ask("--create", "--topic", self.topic("placed"), "--replica-assignment", "1:2,2:3"),
        )
        tell("create with an unknown config", lambda: ask("--create", "--topic", other, *TWO, "--config", "no.such=1"))
        tell("list topics", lambda: [each for each in ask("--list", "--exclude-internal") if each in ("made", ONE)])
        tell("describe a topic", lambda: ask("--describe", "--topic", topic))
        tell(
            "describe topics with other configs", lambda: ask("--describe", "--topics-with-overrides", "--topic", topic)
        )
        tell("describe an unknown topic", lambda: ask("--describe", "--topic", other))
        tell("add partitions", lambda: ask("--alter", "--topic", topic, "--partitions", "3"))
        tell("take partitions away", lambda: ask("--alter", "--topic", topic, "--partitions", "1"))
        tell("add partitions to an unknown topic", lambda: ask("--alter", "--topic", other, "--partitions", "3"))
        tell("delete a topic", lambda: ask("--delete", "--topic", self.topic("placed")))
        tell("delete an unknown topic", lambda: ask("--delete", "--topic", other))

    def configs(self) -> None:
        tell, ask = self.telling.of, partial(self.ask, "kafka.admin.ConfigCommand")
        topic = ("--topic", self.topic("made"))
        tell(
            "set a config", lambda: ask("--alter", *topic, "--add-config", "retention.ms=200000,max.message.bytes=5000")
        )
        tell("set an unknown config", lambda: ask("--alter", *topic, "--add-config", "no.such=1"))
        tell("set a config that cannot be", lambda: ask("--alter", *topic, "--add-config", "retention.ms=soon"))
        tell("delete a config", lambda: ask("--alter", *topic, "--delete-config", "max.message.bytes"))
        tell("describe a topic's configs", lambda: eventually(
            lambda: ask("--describe", *topic), lambda found: "max.message.bytes" not in str(found)))  # fmt: skip
        for who, entity in {"a broker": ("--entity-name", "1"), "all brokers": ("--entity-default",)}.items():
            broker = ("--entity-type", "brokers", *entity)
            tell(
                f"set a config of {who}", partial(ask, "--alter", *broker, "--add-config", "log.segment.bytes=2000000")
            )
            tell(f"describe configs of {who}", partial(
                eventually, partial(ask, "--describe", *broker), lambda found: "=2000000 " in str(found)))  # fmt: skip
            tell(
                f"set a config of {who} that cannot be",
                partial(ask, "--alter", *broker, "--add-config", "message.max.bytes=x"),
            )
            tell(f"delete a config of {who}", partial(ask, "--alter", *broker, "--delete-config", "log.segment.bytes"))
        loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
        tell("loggers of a broker", lambda: len(ask("--describe", *loggers)) > 1)
        group = ("--entity-type", "groups", "--entity-name", self.topic("group"))
        tell(
            "set a group's config", lambda: ask("--alter", *group, "--add-config", "consumer.session.timeout.ms=50000")
        )
        tell(
            "describe a group's configs",
            lambda: eventually(lambda: ask("--describe", *group), lambda found: len(found) > 1),
        )
        user = ("--entity-type", "users", "--entity-name", self.topic("user"))
        tell("set a user's quota", lambda: ask("--alter", *user, "--add-config", "producer_byte_rate=1048576"))
        tell("describe a user's quota", lambda: eventually(lambda: ask("--describe", *user), bool))
        scram = "SCRAM-SHA-256=[iterations=4096,password=secret]"
        tell("set a user's password", lambda: ask("--alter", *user, "--add-config", scram))
        tell(
            "describe a user", lambda: eventually(lambda: ask("--describe", *user), lambda found: "SCRAM" in str(found))
        )
        tell("delete a user's quota", lambda: ask("--alter", *user, "--delete-config", "producer_byte_rate"))

    def data(self) -> None:
        tell, ask, one = self.telling.of, self.ask, ("--topic", self.topic(ONE))
        numbers, read = [str(number) for number in range(RECORDS)], "consumer.ConsoleConsumer"
        count = ("--num-records", "500", "--record-size", "100", "--throughput", "-1")
        for settings in ("acks=0", "acks=1", "acks=all", "compression.type=zstd"):
            plain = () if "type" in settings else ("enable.idempotence=false",)
            properties = ("--producer-props", f"bootstrap.servers={self._bootstrap}", settings, *plain)
            command = partial(self.run, "ProducerPerformance", *one, *count, *properties)
            tell(f"performance of a producer, {settings}", partial(_first_words, command))
        tell("console producer", lambda: ask("ConsoleProducer", *one, lines=numbers))
        from_end = ("--partition", "0", "--offset", "2000", "--max-messages", str(RECORDS))
        tell("console consumer of a partition", lambda: ask(read, *one, *from_end))
        keys = ("--property", "parse.key=true", "--property", "key.separator=:")
        tell(
            "console producer with keys",
            lambda: ask("ConsoleProducer", "--topic", self.topic(COMPACTED), *keys, lines=["k:v"]),
        )
        shown = (
            "--property",
            "print.key=true",
            "--property",
            "print.offset=true",
            "--property",
            "print.partition=true",
        )
        begin, all_ = "--from-beginning", ("--max-messages", str(RECORDS * PARTITIONS))
        tell(
            "console consumer with keys",
            lambda: ask(read, "--topic", self.topic(COMPACTED), begin, "--max-messages", "1", *shown),
        )
        tell(
            "verifiable producer",
            lambda: len(
                ask(
                    "VerifiableProducer",
                    "--topic",
                    self.topic(FOUR),
                    "--max-messages",
                    str(RECORDS * PARTITIONS),
                    "--repeating-keys",
                    "20",
                )
            ),
        )
        four = ("--topic", self.topic(FOUR), begin, *all_)
        for protocol in ("classic", "consumer"):
            group = ("--group", self.topic(protocol), "--consumer-property", f"group.protocol={protocol}")
            tell(f"console consumer in a group, {protocol}", partial(_count, partial(ask, read, *four, *group)))
        tell(
            "console consumer of committed records",
            lambda: len(ask(read, *four, "--isolation-level", "read_committed")),
        )
        performance = ("--messages", "500", "--group", self.topic("performance"))
        tell("performance of a consumer", lambda: len(ask("ConsumerPerformance", *one, *performance)))
        verified = ("--group-id", self.topic("verified"), "--max-messages", "80", "--reset-policy", "earliest")
        tell(
            "verifiable consumer",
            lambda: "records_consumed" in str(ask("VerifiableConsumer", "--topic", self.topic(FOUR), *verified)),
        )
        latency = (self._bootstrap, self.topic(STRICT), "20", "all", "100")
        tell("latency from end to end", lambda: self.run("EndToEndLatency", *latency)[-1].split(":")[0])
        for time in ("-1", "-2", str(FUTURE_MS)):
            tell(f"offsets at {time}", partial(ask, "GetOffsetShell", *one, "--time", time))
        tell("offsets of the latest time", lambda: len(ask("GetOffsetShell", *one, "--time", "-3")))
        tell("offsets of an unknown topic", lambda: ask("GetOffsetShell", "--topic", self.topic("no")))

    def groups(self) -> None:
        tell, ask = self.telling.of, partial(self.ask, "consumer.group.ConsumerGroupCommand")
        classic, new, none = (("--group", self.topic(name)) for name in ("classic", "consumer", "nobody"))
        topic = ("--topic", self.topic(FOUR))
        tell(
            "list groups",
            lambda: [each for each in ask("--list", "--state") if each.startswith(("classic", "consumer"))],
        )
        tell(
            "groups of all kinds",
            lambda: [each for each in self.ask("GroupsCommand", "--list") if each.startswith(("classic", "consumer"))],
        )
        for kind, group in {"a classic": classic, "a consumer": new}.items():
            tell(f"describe {kind} group", partial(ask, "--describe", *group))
            tell(f"members of {kind} group", partial(ask, "--describe", *group, "--members", "--verbose"))
            tell(f"state of {kind} group", partial(ask, "--describe", *group, "--state"))
        tell("describe an unknown group", lambda: ask("--describe", *none))
        for way in (("--to-earliest",), ("--shift-by", "2"), ("--to-offset", "5"), ("--to-latest",)):
            tell(f"reset offsets {' '.join(way)}", partial(ask, *classic, *topic, "--reset-offsets", *way, "--execute"))
        tell(
            "reset offsets, and only show it",
            lambda: ask(*new, *topic, "--reset-offsets", "--to-earliest", "--dry-run"),
        )
        tell("delete offsets", lambda: ask(*classic, *topic, "--delete-offsets"))
        tell("delete offsets of an unknown group", lambda: ask(*none, *topic, "--delete-offsets"))
        tell("delete a group", lambda: ask(*classic, "--delete"))
        tell("delete an unknown group", lambda: ask(*none, "--delete"))

    def cluster(self) -> None:
        tell, ask = self.telling.of, self.ask
        election, reassign = "LeaderElectionCommand", "reassign.ReassignPartitionsCommand"
        preferred = ("--election-type", "preferred", "--topic")
        tell("elect", lambda: ask(election, *preferred, self.topic(FOUR), "--partition", "0"))
        tell(
            "elect uncleanly",
            lambda: ask(election, "--election-type", "unclean", "--topic", self.topic(FOUR), "--partition", "0"),
        )
        tell("elect for an unknown partition", lambda: ask(election, *preferred, self.topic(FOUR), "--partition", "99"))
        plan = partial(self.with_file, reassign, "--reassignment-json-file")
        moved = [self.partition("made", replicas=[2, 3])]
        tell("reassign", lambda: len(plan(moved, "--execute")) > 0)
        tell("verify a reassignment", lambda: eventually(
            lambda: plan(moved, "--verify"), lambda found: "is completed" in str(found)))  # fmt: skip
        tell("reassign to an unknown broker", lambda: plan([self.partition("made", replicas=[1, 9])], "--execute"))
        tell("cancel a reassignment that is not", lambda: plan(moved, "--cancel"))
        tell("list reassignments", lambda: ask(reassign, "--list"))
        self.throttles(plan)
        cut = partial(self.with_file, "DeleteRecordsCommand", "--offset-json-file")
        tell("delete records", lambda: cut([self.partition(ONE, offset=3)]))
        tell("delete records beyond the end", lambda: cut([self.partition(ONE, offset=1_000_000)]))
        tell("log directories", lambda: len(ask("LogDirsCommand", "--describe", "--topic-list", self.topic(ONE))))
        tell("transactions", lambda: ask("TransactionsCommand", "list"))
        tell(
            "describe an unknown transaction",
            lambda: ask("TransactionsCommand", "describe", "--transactional-id", "no"),
        )
        producers = ("describe-producers", "--topic", self.topic(ONE), "--partition", "0")
        tell("producers of a partition", lambda: len(ask("TransactionsCommand", *producers)))
        hanging = ("find-hanging", "--topic", self.topic(ONE))
        tell("hanging transactions", lambda: ask("TransactionsCommand", *hanging))
        tell(
            "status of the quorum",
            lambda: [each.split(":")[0] for each in ask("MetadataQuorumCommand", "describe", "--status")],
        )
        tell("replication of the quorum", lambda: len(ask("MetadataQuorumCommand", "describe", "--replication")))
        tell("id of the cluster", lambda: self.run("ClusterTool", "cluster-id", "--bootstrap-server", self._bootstrap))
        tell(
            "brokers of the cluster",
            lambda: len(self.run("ClusterTool", "list-endpoints", "--bootstrap-server", self._bootstrap)),
        )
        tell(
            "unregister an unknown broker",
            lambda: self.run("ClusterTool", "unregister", "--bootstrap-server", self._bootstrap, "--id", "99"),
        )
        tell("client metrics", lambda: ask("ClientMetricsCommand", "--list"))
        tell(
            "set a metadata version that is not",
            lambda: ask("FeatureCommand", "upgrade", "--feature", "group.version=99"),
        )

    def throttles(self, plan: Callable[..., list[str]]) -> None:
        """KIP-73: of a reassignment, which the tool sets and removes, and set by hand."""
        tell, configs = self.telling.of, partial(self.ask, "kafka.admin.ConfigCommand")
        back = [self.partition("made", replicas=[1, 2])]
        topic, broker = ("--topic", self.topic("made")), ("--entity-type", "brokers", "--entity-name", "1")
        tell("reassign with a throttle", lambda: _sentences(plan(back, "--execute", "--throttle", "1000000")))
        for who, entity in {"a topic": topic, "a broker": broker}.items():
            shown = partial(configs, "--describe", *entity)
            tell(
                f"throttles of {who}", partial(eventually, partial(_throttles, shown), lambda found: "1" in str(found))
            )
        slower = ("--execute", "--additional", "--throttle", "2000000")
        tell("change the throttle of a reassignment", lambda: _sentences(plan(back, *slower)))
        tell("verify a throttled reassignment", lambda: eventually(
            lambda: plan(back, "--verify"), lambda found: "is completed" in str(found)))  # fmt: skip
        for who, entity in {"a topic": topic, "a broker": broker}.items():
            all_of = partial(configs, "--describe", "--all", *entity)
            tell(f"throttles of {who} after the reassignment", partial(
                eventually, partial(_throttles, all_of), lambda found: "DYNAMIC" not in str(found)))  # fmt: skip
        rates = "leader.replication.throttled.rate={0},follower.replication.throttled.rate={0}"
        tell("set rates of replication", lambda: configs("--alter", *broker, "--add-config", rates.format(3000000)))
        tell("rates of replication", lambda: eventually(
            lambda: _throttles(partial(configs, "--describe", *broker)), lambda found: len(found) > 1))  # fmt: skip
        tell("set rates below 0", lambda: configs("--alter", *broker, "--add-config", rates.format(-1)))
        taken = ("--delete-config", rates.replace("={0}", ""))
        tell("delete rates of replication", lambda: configs("--alter", *broker, *taken))
        for replicas in ("*", "[0:1,1:2]", "[0:1,*]", "0", "none", "[0:1, 1:2]", "[]", "0:-1"):
            wanted = f"leader.replication.throttled.replicas={replicas},follower.replication.throttled.replicas=*"
            tell(f"throttle replicas {replicas}", partial(configs, "--alter", *topic, "--add-config", wanted))
        taken = ("--delete-config", "leader.replication.throttled.replicas,follower.replication.throttled.replicas")
        tell("throttle no replicas", lambda: configs("--alter", *topic, *taken))

    def whole(self) -> None:
        for part in (self.topics, self.configs, self.data, self.groups, self.cluster):
            part()

    def below_min_isr(self) -> None:
        """With a broker too few for the topic `strict`."""
        ask, strict = partial(self.ask, "TopicCommand", "--describe"), ("--topic", self.topic(STRICT))
        for which in ("under-replicated", "under-min-isr", "at-min-isr", "unavailable"):
            self.telling.of(f"below the minimum, partitions {which}", partial(ask, *strict, f"--{which}-partitions"))
        self.telling.of(
            "below the minimum, small", partial(ask, "--topic", self.topic(SMALL), "--at-min-isr-partitions")
        )


def _first_words(run: Callable[[], list[str]]) -> str:
    return " ".join(run()[0].split()[:3])


def _sentences(lines: Sequence[str]) -> list[str]:
    """Without plans: where replicas were before is left to each cluster."""
    return [line for line in lines if "{" not in line]


def _throttles(run: Callable[[], list[str]]) -> list[str]:
    return [line for line in run() if "throttled" in line]


def _count(run: Callable[[], list[str]]) -> int:
    return len(run())


def run(bootstrap: str, prefix: str, phase: str) -> dict[str, Any]:
    client = Tools(bootstrap, prefix)
    (client.below_min_isr if phase == "below" else client.whole)()
    return client.telling.results
