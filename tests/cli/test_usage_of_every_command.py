"""Wrong usage of every command and every option, generated from the tree of commands: one voice, code 2, a remedy."""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from odradek_proto.command_line import UNREACHABLE, USAGE

from tests.commands_of_odradek import tree

Run = Callable[..., Any]
FOREIGN = (
    "Usage:", "Error:", "Input should", "Value error", "Invalid value", "Traceback", "failed to connect",
    "unexpected error", "No such option", "No such command",
)  # fmt: skip
ADDRESSES = ("localhost:99999", "localhost:0", "nohost", "a b:1", ":9092", "here:1,there", " , ", "")
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


def check(odradek: Run, words: tuple[str, ...]) -> str:
    """Returns what is wrong with the answer; empty when nothing is."""
    code, out, err = odradek(*words)
    lines = err.splitlines()
    fine = (
        code == USAGE
        and not out
        and len(lines) == 2
        and lines[0].startswith("odradek: ")
        and lines[1].startswith("  try: ")
        and not any(foreign in err for foreign in FOREIGN)
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


VALUES = [
    "topic create orders --config retention",
    "topic alter orders --config retention.ms=7d",
    "topic offsets --time yesterday",
    "topic trim orders -o beginning --yes",
    "topic trim orders -o 1x --yes",
    "topic reassign --broker-list 1,1",
    "config describe --broker one",
    "config alter --broker-logger one a=b",
    "produce orders --size big",
    "produce orders --batch-size big",
    "produce orders -H x",
    "produce orders -K : -k a",
    "produce orders --tombstone",
    "produce orders --tombstone -k a --count 1",
    "produce orders --input json -k a",
    "produce a/b",
    "consume orders -o 5:x",
    "consume orders -o 1:2:3",
    "consume ^( -e",
    "consume orders -f %q",
    "chaos kill --leader orders",
    "chaos slow --follower /0",
    "chaos slow --broker 1 --for 3601",
    "chaos heal --controller --broker 1",
    "chaos run --truncation sometimes",
    "chaos run --acks 2",
    "bench produce orders --size big",
    "bench consume a/b",
    "user set u --password-file /",
    "user set '' --password-file a",
    "acl add --operation fly --topic a",
    "acl list --operation fly",
    "cluster up -X min.insync.replcas=2",
    "audit run --replica 1",
    "audit run --history /nowhere/at/all",
    "server health --url ftp://here",
    "server health --url=",
    "cluster stop --data 'a\nb'",
    "topic reassign --file '\x1b[31m\n'",
    "user set u --password-file '\n'",
    "certs node 1 --host 'a b'",
    "certs node 1 --host a:9092",
    "certs client a/b",
    f"certs client {'a' * 65}",
    "--command-config /nowhere/at/all topic list -b here:1",
]


@pytest.mark.parametrize("line", VALUES)
def test_a_value_that_cannot_be_is_told_with_a_remedy(odradek: Run, line: str) -> None:
    """What no parser of a command line knows is judged by us, in the same form."""
    assert check(odradek, tuple(shlex.split(line))) == ""


@pytest.mark.parametrize("line", ["topic list --frobnicate", "produce orders --size big", "audit run --frobnicate"])
def test_with_json_wrong_usage_is_an_object(odradek: Run, line: str) -> None:
    """With the remedy in it."""
    code, out, err = odradek(*line.split(), "--json")
    error = json.loads(err)["error"]
    assert (code, out, error["exit_code"]) == (USAGE, "", USAGE)
    assert error["hint"]


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
    odradek: Run, tmp_path: Any, text: str, said: str, remedy: str
) -> None:
    """Passed over it would be a connection without TLS, or without a user."""
    (file := tmp_path / "client.properties").write_text(f"acks=all\nclient.dns.lookup=use_all_dns_ips\n{text}\n")
    outcome = odradek("--command-config", str(file), "topic", "list", "-b", "127.0.0.1:1")
    assert outcome.code == USAGE, outcome
    sentence, hint = outcome.err.splitlines()[-2:]
    assert said in sentence
    assert remedy in hint


def test_the_other_protocols_port_is_named(
    odradek: Run, odradek_bootstrap: str, kafka_bootstrap: str, tmp_path: Any
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
    examined = odradek("doctor", "-b", kafka, "--json")
    assert examined.code == UNREACHABLE
    assert "is a listener for Kafka's clients" in examined.out


def test_what_nobody_checks_and_nothing_matches_is_said(
    odradek: Run, odradek_bootstrap: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user on a cluster that asks nobody who he is; an internal topic that nothing deletes."""
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", odradek_bootstrap)
    (tmp_path / "password").write_text("secret\n")
    assert "nobody checks it" in odradek("user", "set", "me", "--password-file", str(tmp_path / "password")).err
    assert odradek("user", "delete", "me", "--yes").code == 0
