"""Wrong usage of every command and every option, generated from the tree of commands: one voice, code 2, a remedy."""

from __future__ import annotations

import itertools
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from odradek import (
    BootstrapError,
    BrokerError,
    BufferFull,
    ConfigError,
    DeliveryTimeout,
    LogTruncated,
    OdradekError,
    TopicPartition,
    UnknownTopic,
)
from odradek.broker_errors import TopicAlreadyExists
from odradek.cli.main import main
from odradek.cli.terminal.failures import explain
from odradek.cluster.cluster import _bootstrap_hint
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.command_line import UNREACHABLE, USAGE

from tests.cli.conftest import Run
from tests.commands_of_odradek import tree

FOREIGN = (
    "Usage:", "Error:", "Input should", "Value error", "Invalid value", "Traceback", "failed to connect",
    "unexpected error", "No such option", "No such command",
)  # fmt: skip
ADDRESSES = ("localhost:99999", "localhost:0", "nohost", "a b:1", ":9092", "here:1,there", " , ", "")
A_FILE = __file__
TAKE_A_DIRECTORY = (
    "audit live --out", "audit package --out", f"audit run --replica 1={Path(A_FILE).parent} --out",
    "certs client a --dir", "certs node 1 --dir",
    "chaos kill --broker 1 --data", "chaos restart --data", "chaos rounds --data", "cluster down --data",
    "cluster stop --data", "cluster up --data", "demo --data", "demo acks --data",
)  # fmt: skip
TEXT = ("str", "Path", "list")  # what the parser cannot judge


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    """Those that act, by their words."""
    for path, command in tree().items():
        if not hasattr(command, "commands"):
            yield path[1:], command


def options(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "option" and "--help" not in each.opts]


def kind(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    return str(getattr(annotation, "__name__", annotation))


def wrong_inputs() -> Iterator[tuple[str, ...]]:
    """Each command with an option that there is not, and without what it needs; each option once, used wrongly."""
    seen = set()
    for path, command in tree().items():
        if hasattr(command, "commands"):
            yield (*path[1:], "--frobnicate")
            if path[1:] and not command.invoke_without_command:
                yield (*path[1:], "frobnicate")
    for words, command in commands():
        yield (*words, "--frobnicate")
        if any(each.param_type_name == "argument" and each.required for each in command.params):
            yield words
        for option in options(command):
            name = option.opts[-1]
            if (key := (name, kind(option), option.help)) in seen:
                continue  # shared by many commands
            seen.add(key)
            if option.is_flag or option.count:
                yield (*words, f"{name}=1")
                continue
            yield (*words, name)
            if kind(option) not in TEXT:
                yield (*words, name, "@wrong@")


def check(odradek: Run, words: tuple[str, ...], *said: str) -> str:
    """Returns what is wrong with the answer, which has `said` in it; empty when nothing is."""
    code, out, err = odradek(*words)
    lines = err.splitlines()
    fine = (
        code == USAGE
        and not out
        and len(lines) == 2
        and lines[0].startswith("odradek: ")
        and lines[1].startswith("  try: ")
        and not any(foreign in err for foreign in FOREIGN)
        and all(each in err for each in said)
    )
    return "" if fine else f"{' '.join(words)}: {code} {out!r} {err!r}"


def test_every_command_and_option_is_told_how_it_is_used(odradek: Run) -> None:
    """A sentence that is ours and a remedy, before anything is done."""
    inputs = [*wrong_inputs()]
    assert len(inputs) > 300
    wrong = [*filter(None, (check(odradek, words) for words in inputs))]
    assert not wrong, "\n".join(wrong)


def test_no_address_that_cannot_be_is_dialled(odradek: Run) -> None:
    """By no command: a port beyond the last one, no port, no host."""
    bad = itertools.cycle(ADDRESSES)
    wrong = []
    for words, command in commands():
        for option in options(command):
            if "-b" in option.opts:
                given = ["orders" for each in command.params if each.param_type_name == "argument" and each.required]
                for address in itertools.islice(bad, 2):
                    enough = {"-o": "1", "--yes": None} if words == ("topic", "trim") else {}
                    more = [word for pair in enough.items() for word in pair if word is not None]
                    wrong.append(check(odradek, (*words, *given, "-b", address, *more)))
    assert len(wrong) > 40
    assert not [*filter(None, wrong)], "\n".join(filter(None, wrong))


WRONG: list[tuple[str, ...]] = [  # a command line, and what its answer has in it
    ("--command-config /nowhere/at/all topic list -b here:1",),
    ("-b 127.0.0.1:1 topic list", "there is no option -b", "`odradek topic ... -b`"),
    ("acl add --operation fly --topic a",),
    ("acl list --operation fly",),
    ("audit run --history /nowhere/at/all",),
    ("audit run --replica 1",),
    ("bench consume a/b",),
    ("bench produce orders --size big",),
    ("certs client a/b",),
    ("certs node 1 --host 'a b'",),
    ("certs node 1 --host a:9092",),
    ("chaos heal --controller --broker 1",),
    ("chaos kill --controller --broker 1", "one of"),
    ("chaos kill --leader orders",),
    ("chaos kill", "--leader"),
    ("chaos run --acks 2",),
    ("chaos run --truncation sometimes",),
    ("chaos slow --broker 1 --for 3601",),
    ("chaos slow --follower /0",),
    ("cluster down --data '' --yes", "--data: the name is empty", "variable"),
    ("cluster stop --data ''", "--data: the name is empty", "variable"),
    ("cluster stop --data 'a\nb'",),
    ("cluster up --data ''", "--data: the name is empty", "variable"),
    ("cluster up -d --data /proc/x", "cannot make /proc/x", "another place with --data"),
    ("chaos rounds --data /proc/x", "cannot make /proc/x", "another place with --data"),
    ("demo --data /proc/x", "cannot make /proc/x", "another place with --data"),
    ("cluster up --timeout 0", "--timeout"),
    ("cluster up -X min.insync.replcas=2", "did you mean 'min.insync.replicas'?"),
    ("cluster up -X odradek.fsync=sometimes", "never, before-ack"),
    ("cluster up -X odradek.fsynk=never", "did you mean 'odradek.fsync'?"),
    ("cluster up -n 0", "-n"),
    ("config alter --broker one a=b", "a broker's id, or default"),
    ("config alter --broker-logger one a=b",),
    ("config alter --topic orders", "nothing to change"),
    ("config describe --broker one",),
    ("config describe --topic orders --broker 1", "--broker default"),
    ("config describe", "--broker default"),
    ("consume 'a b'", "may hold only letters"),
    ("consume ^( -e",),
    ("consume orders -G ''", "the name of the group is empty", "group list"),
    ("consume orders -f %q", "'%q' means nothing"),
    ("consume orders -o 1:2:3",),
    ("consume orders -o 5:ten", "-o '5:ten' is no place in a log", "FROM:TO"),
    ("consume orders -o 9223372036854775808", "at most 9223372036854775807"),
    ("consume orders -o @9999999999999999999999 -e", "at most 9223372036854775807"),
    ("consume orders -o end -e", "reads nothing"),
    ("consume orders -o yesterday", "-N for the last N records"),
    ("consume orders -p 99999999999", "2147483647"),
    ("docs lesson", "did you mean 'lessons'?"),
    ("doctor -b ''", "the address is empty"),
    ("doctor -c ''",),
    ("doctor -c /nowhere/at/all", "/nowhere/at/all"),
    ("doctor -c /", "a directory"),
    ("group describe ''", "the name of the group is empty", "group list"),
    ("group reset-offsets '' orders -o 5", "the name of the group is empty", "group list"),
    ("group reset-offsets readers orders -o 5:10", "-o '5:10' is no place in a log", "@MILLISECONDS"),
    ("health", "`odradek cluster health` or `odradek server health`"),
    ("kill", "`odradek chaos kill`"),
    ("produce 'a b'", "may hold only letters"),
    ("produce a/b",),
    ("produce orders --acks 2", "none of all, 1, 0"),
    ("produce orders --batch-size big",),
    ("produce orders --count 1 --size 99999999999", "at most 2147483647"),
    ("produce orders --count 1 -H x", "expected name=value"),
    ("produce orders --count 1 -p 99999999999", "2147483647"),
    ("produce orders --count 5 --input json", "it reads no input"),
    ("produce orders --count 5 --size big", "'big' is no size"),
    ("produce orders --cuont 3", "--count"),
    ("produce orders --input json -k a",),
    ("produce orders --tombstone -k a --count 1",),
    ("produce orders --tombstone",),
    ("produce orders -K ''", "-K: the separator is empty"),
    ("produce orders -K : -k a",),
    ("quota set --user a --user-defaults producer_byte_rate=5", "--user-defaults all others"),
    ("quota set --user a producer_byte_rat=5", "did you mean 'producer_byte_rate'"),
    ("quota set --user a producer_byte_rate=fast", "no number"),
    ("quota set producer_byte_rate=5", "nobody is named"),
    ("server config -X node.id=1", "the CONTROLLER listener needs a port of its own, not 0"),  # as a server would
    ("server config -c /nowhere/server.properties", "cannot read /nowhere/server.properties"),
    ("server health --url ftp://here",),
    ("server health --url=",),
    ("server run -X node.id=1", "the CONTROLLER listener needs a port of its own, not 0"),
    ("server run -X node.id=1 -X listeners=nonsense", "GRPC://127.0.0.1:50051"),
    ("server run", "node.id"),
    ("status --watch", "`odradek cluster status`"),
    ("topc", "topic"),
    ("topic alter orders --add-config retention.ms=5", "there is no option --add-config", "--config"),
    ("topic alter orders --config retention", "expected key=value"),
    ("topic alter orders --config retention.ms=7d",),
    ("topic alter orders --config segment.bytes=1MiB", "segment.bytes=1048576"),
    (
        "topic alter orders -X retention.ms=1 --delete-config retention.ms",
        "--config and --delete-config both name retention.ms",
        "--help",
    ),
    ("topic alter orders -p 99999999999", "2147483647"),
    ("topic alter orders", "nothing to change"),
    ("topic craete", "did you mean 'create'?"),
    ("topic create ''", "a topic's name cannot be empty", "--help"),
    ("topic create __consumer_offsets", "__consumer_offsets is an internal topic", "offsets.topic.num.partitions"),
    ("topic create orders --config retention", "expected key=value"),
    ("topic create orders --config retention.ms=7d", "retention.ms=604800000"),
    ("topic create orders -X retention.ms=1 -X retention.ms=2", "--config: retention.ms is given twice", "once"),
    ("topic create orders -p -1", "at least 1"),
    ("topic create orders -p 0", "at least 1"),
    ("topic create orders -p 99999999999", "at most 2147483647"),
    ("topic create orders -r -1", "at least 1"),
    ("topic create orders -r 99999999999", "at most 2147483647"),
    ("topic create orders bills orders", "orders is named twice", "once"),
    ("topic delete orders orders --yes", "orders is named twice", "once"),
    ("topic delete orders", "--yes", "add --yes"),
    ("topic elect --all orders-0", "exclude each other"),
    ("topic elect --preferred --unclean", "exclude each other"),
    ("topic elect --unclean", "--yes"),
    ("topic elect orders-99999999999", "at most 2147483647"),
    ("topic list -b ''", "the address is empty"),
    ("topic offsets --time yesterday",),
    ("topic reassign --broker-list 1,1",),
    ("topic reassign --cancel --to 1", "--to is for carrying out"),
    ("topic reassign --cancel --verify", "exclude each other"),
    ("topic reassign --file '\u001b[31m\n'",),
    ("topic reassign --file /nowhere/plan.json --topic orders", "--file says everything"),
    ("topic reassign --generate", "--brokers 1,2,3"),
    ("topic reassign --topic orders --to 1,1", "none twice"),
    ("topic reassign --topic orders --to 99999999999", "at most 2147483647"),
    ("topic reassign --topic orders --to one", "broker ids"),
    ("topic reassign --topic orders", "which partitions, and to whom?"),
    ("topic reassign --topic orders-0 --to 99999999999999", "broker id 99999999999999: at most 2147483647"),
    ("topic reassign --verify --topic orders", "--verify --topic orders-0 --to 1,2,3"),
    ("topic trim orders -o 1x --yes",),
    ("topic trim orders -o beginning --yes",),
    ("up", "`odradek cluster up`"),
    ("user set '' --password-file a",),
    ("user set u --password-file '\n'",),
    ("user set u --password-file /",),
    (f"certs client {'a' * 65}",),
    ("log dump /nowhere/at/all", "/nowhere/at/all"),
    ("log verify /nowhere/at/all", "/nowhere/at/all"),
    ("log verify ''", "the name is empty", "variable"),
    ("log verify . ''", "the name is empty", "variable"),
    ("log dump ''", "the name is empty", "variable"),
    ("log diff '' /", "the name is empty", "variable"),
    ("log diff / ''", "the name is empty", "variable"),
    ("log verify /dev/null", "/dev/null: it is no regular file"),
    ("log diff /nowhere/at/all /nowhere/at/all", "/nowhere/at/all"),
    ("audit run --data /nowhere/at/all", "/nowhere/at/all"),
    ("audit run --replica 1=/nowhere/at/all --replica 2=/nowhere/at/all", "/nowhere/at/all"),
    ("server run -c /nowhere/at/all", "/nowhere/at/all"),
    ("produce orders -b 127.0.0.1:1 --file /nowhere/at/all", "/nowhere/at/all", "No such file or directory"),
    ("topic reassign -b 127.0.0.1:1 --file /nowhere/at/all", "/nowhere/at/all"),
    ("chaos trace 1 --script /nowhere/at/all", "/nowhere/at/all"),
    ("cluster down --data /nowhere/at/all", "/nowhere/at/all", "there is no cluster in"),
    ("chaos restart --data /nowhere/at/all", "/nowhere/at/all"),
    ("topic list -b localhost", "host:port"),
    *(
        (
            f"{words} {path}",
            path if path != "''" else "the name is empty",
            "directory" if path != "''" else "is a variable not set?",
        )
        for words in TAKE_A_DIRECTORY
        for path in ("''", A_FILE, f"{A_FILE}/below")
    ),
    ("audit live --out file:", "--out: the name is empty"),
    (f"cluster up --data {Path(__file__).parent}", "holds other files", "empty"),
    (f"chaos rounds --data {Path(__file__).parent}", "holds other files", "empty"),
    (f"demo --data {Path(__file__).parent}", "holds other files", "empty"),
    (f"chaos crash-states 1 --load {A_FILE}", "not a recording", "--save writes such files"),
    ("certs client node-1", "the name of a node"),
]


IN_ONE_VOICE: list[tuple[str, str, str]] = [  # a command line, how its answer's first line ends, and what to try
    ("topic info", "there is no command topic info", "`odradek topic --help` lists all"),
    ("topic lst", "there is no command topic lst; did you mean 'list'?", "`odradek topic --help` lists all"),
    ("topic list --frobnicate", "there is no option --frobnicate", "`odradek topic list --help` shows what it takes"),
    ("topic list --jsn", "there is no option --jsn; did you mean --json?", ""),
    ("consume orders -n 3", "there is no option -n", "--count, if that is what you mean"),
    ("topic create orders -c a=b", "there is no option -c", "--config, if that is what you mean"),
    ("topic delete orders --force", "there is no option --force", "--yes, if that is what you mean"),
    ("topic --version", "there is no option --version", "`odradek version`"),
    ("consume", "TOPIC is missing", "`odradek consume --help` shows what it takes"),
    ("topic describe a --output", "--output needs a value", ""),
    ("version please", "too many arguments: please", ""),
    ("consume orders -p x", "-p x: not a whole number", ""),
    ("consume orders -c 0", "-c 0: must be at least 1", ""),
    ("produce orders -z brotli", "-z brotli: is none of none, gzip, snappy, lz4, zstd", ""),
    ("demo --list", "there is no option --list", "`odradek demo --help` shows what it takes"),
    ("lessons", "there is no command 'lessons'", "`odradek demo --help` lists the lessons"),
    ("group reset-offsets g --to-earliest", "there is no option --to-earliest", "--offset beginning"),
    (
        "group reset g",
        "there is no command group reset; did you mean 'reset-offsets'?",
        "`odradek group --help` lists all",
    ),
    ("consume --topic orders", "there is no option --topic", "`odradek consume TOPIC...`"),
    ("group describe --group g", "there is no option --group", "`odradek group describe GROUP...`"),
    (
        "cluster up --port 9092",
        "there is no option --port",
        "ODRADEK_KAFKA_PORT=PORT: the first one for Kafka's clients",
    ),
    ("topic list --port 9092", "there is no option --port", "--bootstrap-server, if that is what you mean"),
    ("group reset-offsets g -o 3 --shift-by 2", "-o and --shift-by exclude each other", "-o WHERE, or --shift-by N"),
    ("topic list --timeout soon", "--timeout soon: not a number", ""),
    ("topic list --timeout nan", "--timeout nan: must be at most 1000000", ""),
    ("version --output xml", "--output xml: is none of table, json, jsonl", ""),
    ("topic list -b localhost:99999", "'localhost:99999' has no port that can be: 1 to 65535", ""),
    ("topic list -b ::1:9092", "'::1:9092': an address of IPv6 stands in brackets, [::1]:9092", ""),
    ("topic list -b localhost:०१", "'localhost:०१' is not host:port", ""),
    ("topic list -b localhost:0", "'localhost:0' has no port that can be: 1 to 65535", ""),
]
WRONG += [(words, f"{said}\n  try: {remedy}" + "\n" * bool(remedy)) for words, said, remedy in IN_ONE_VOICE]


@pytest.mark.parametrize("row", WRONG, ids=lambda row: row[0][:60])
def test_wrong_usage_is_told_with_a_remedy(
    odradek: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, row: tuple[str, ...]
) -> None:
    """What no parser of a command line knows is judged by us, in the same form, before anybody is asked.

    What is named twice, or is the empty word of a variable that is not set, is asked about instead of guessed.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", "127.0.0.1:1")
    line, *said = row
    assert check(odradek, tuple(shlex.split(line)), *said) == ""


@pytest.mark.parametrize("port", ["abc", "70000"])
def test_a_port_that_is_none_is_told_with_a_remedy(odradek: Run, monkeypatch: pytest.MonkeyPatch, port: str) -> None:
    """It comes from the environment, and is wrong usage all the same."""
    monkeypatch.setenv("ODRADEK_KAFKA_PORT", port)
    said = f"ODRADEK_KAFKA_PORT={port}: no port for 3 brokers"
    assert check(odradek, ("cluster", "up", "-d"), said, "a number from 1 to 65533") == ""


@pytest.mark.parametrize(
    "words",
    ["kill", "pause", "slow", "resume", "heal", "restart", "restart --wait"],
    ids=lambda words: f"chaos {words}",
)
def test_a_broker_that_is_none_is_told_with_a_remedy(odradek: Run, tmp_path: Path, words: str) -> None:
    """By every command that strikes one or makes good what struck it."""
    LocalCluster.create(tmp_path / "cluster", brokers=3)
    place = ("--data", str(tmp_path / "cluster"))
    said = "there is no broker 9 in this cluster; there are 1, 2, 3"
    assert check(odradek, ("chaos", *words.split(), "--broker", "9", *place), said, "--broker") == ""


SETTING_IN_PYTHON = re.compile(r"\b(bootstrap|security|ssl|sasl|auto|buffer|max)_\w+")


@pytest.mark.parametrize(
    "error",
    [
        BootstrapError({"here:1": said}, hint=_bootstrap_hint({"here:1": said}))
        for said in ("CERTIFICATE_VERIFY_FAILED", "WRONG_VERSION_NUMBER", "Socket closed", "connection refused")
    ]
    + [
        BufferFull("no room", hint="slow down, or raise buffer_memory"),
        ConfigError("security_protocol: 'X' is none of them", hint='security_protocol="SSL" or "SASL_SSL"'),
        LogTruncated(TopicPartition("a", 0), position=5, epoch=1, divergent_offset=3, divergent_epoch=0),
    ],
    ids=lambda error: f"{type(error).__name__} {str(error)[:40]}",
)
def test_what_the_client_says_is_told_in_the_shells_words(error: OdradekError) -> None:
    """Settings have the names that files have, and no remedy is a call of a method."""
    found = explain(error)
    assert found.hint
    assert not SETTING_IN_PYTHON.search(f"{found.message} {found.hint}")
    assert "()" not in found.hint
    assert '="' not in found.hint


@pytest.mark.parametrize(
    "error",
    [
        TopicAlreadyExists("topic 'client_id' exists already"),
        BrokerError("nothing is known of group_id", where="batch_size-0"),
        UnknownTopic("there is no topic 'client_id'", topic="client_id"),
        BootstrapError({"client_id:9092": "connection refused"}),
        DeliveryTimeout("client_id-0: not acknowledged within 1 ms", maybe_written=False),
    ],
    ids=lambda error: type(error).__name__,
)
def test_names_in_an_error_are_as_they_were_typed(error: OdradekError) -> None:
    """Also where a topic, a group or a host has the name of a setting."""
    assert explain(error).message == error.message


def test_a_directory_is_not_compared_with_itself(odradek: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By whatever name."""
    monkeypatch.chdir(tmp_path)
    assert check(odradek, ("log", "diff", ".", f"./../{tmp_path.name}"), ". is named twice", "other replica") == ""


@pytest.mark.parametrize(
    ("text", "said", "remedy"),
    [
        ("securty.protocol=SSL", "unknown setting 'securty.protocol'", "did you mean 'security.protocol'?"),
        ("ssl.truststore.locatoin=a.pem", "unknown setting", "did you mean 'ssl.truststore.location'?"),
        ("frobnicate=1", "unknown setting 'frobnicate'", "it takes security.protocol, "),
        ("transactional.id=a", "transactions are not there", "leave transactional.id out"),
    ],
)
def test_a_misspelt_key_of_the_command_config_is_told(
    odradek: Run, tmp_path: Path, text: str, said: str, remedy: str
) -> None:
    """Passed over it would be a connection without TLS, or without a user."""
    (file := tmp_path / "client.properties").write_text(f"acks=all\nclient.dns.lookup=use_all_dns_ips\n{text}\n")
    outcome = odradek("--command-config", str(file), "topic", "list", "-b", "127.0.0.1:1", code=USAGE)
    sentence, hint = outcome.err.splitlines()[-2:]
    assert said in sentence
    assert remedy in hint


def test_the_other_protocols_port_is_named(
    odradek: Run, odradek_bootstrap: str, kafka_bootstrap: str, tmp_path: Path
) -> None:
    """Whoever dials a listener for Kafka's clients with gRPC, or the other way, hears which one it is."""
    kafka, grpc = kafka_bootstrap.split(",")[0], odradek_bootstrap.split(",")[0]
    for words, said in (
        (("topic", "list", "-b", kafka), f"{kafka} speaks Kafka's protocol, and this command odradek's own"),
        (("audit", "live", "-b", grpc), f"{grpc} speaks gRPC, and this audit Kafka's protocol"),
    ):
        outcome = odradek(*words)
        assert (outcome.code, said in outcome.err) == (UNREACHABLE, True), outcome
        assert "`odradek cluster list`" in outcome.err
    examined = odradek("doctor", "-b", kafka, "--json", code=UNREACHABLE)
    assert "is a listener for Kafka's clients" in examined.out


def test_what_nobody_checks_and_nothing_matches_is_said(
    odradek: Run, odradek_bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user on a cluster that asks nobody who he is; an internal topic that nothing deletes."""
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", odradek_bootstrap)
    (tmp_path / "password").write_text("secret\n")
    assert "nobody checks it" in odradek("user", "set", "me", "--password-file", str(tmp_path / "password")).err
    odradek("user", "delete", "me", "--yes", code=0)


@pytest.mark.parametrize(("words", "listed"), [([], "cluster"), (["topic"], "create")], ids=["odradek", "topic"])
def test_a_group_without_a_command_shows_its_help(
    words: list[str], listed: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """That is no error to be explained, and no success."""
    assert main(words) == USAGE
    assert listed in capfd.readouterr().err


def test_a_topic_that_is_not_there_is_named_before_anything_else(
    odradek_bootstrap: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Not that reading from its end up to its end reads nothing."""
    assert main(["consume", "nope", "-e", "-o", "end", "-b", odradek_bootstrap]) != 0
    assert "nope" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("topic list --json --frobnicate", USAGE),
        ("topic list --frobnicate --json", USAGE),
        ("produce orders --size big --json", USAGE),
        ("audit run --frobnicate --json", USAGE),
        ("topic list --output jsonl -b localhost:1", UNREACHABLE),
        ("consume orders -J -b localhost:1 -e -o beginning", UNREACHABLE),
        ("--frobnicate topic list --output=json", USAGE),
        ("--json topic list", USAGE),
        ("audit run --replica 1=/nowhere --replica 2=/nowhere --json", USAGE),
        ("audit live -b localhost:1 --json", UNREACHABLE),
        ("audit live -b nowhere --json", USAGE),
    ],
)
def test_an_error_is_json_for_who_asked_for_json(words: str, code: int, capfd: pytest.CaptureFixture[str]) -> None:
    """One object on standard error, with the exit code and a remedy in it; nothing on standard output."""
    assert main(words.split()) == code
    out, err = capfd.readouterr()
    assert out == ""
    error = json.loads(err)["error"]
    assert error["exit_code"] == code
    assert error["message"]
    assert error["hint"]
    assert {*error} == {"message", "hint", "exit_code"}
