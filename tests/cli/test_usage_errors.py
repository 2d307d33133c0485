"""Wrong usage: one voice, one remedy, and JSON for who asked for JSON."""

from __future__ import annotations

import json

import pytest
from odradek.cli.main import main
from odradek_proto.command_line import UNREACHABLE, USAGE

WRONG = [
    ("topic info", "there is no command topic info", "`odradek topic --help` lists all"),
    ("topic lst", "there is no command topic lst; did you mean 'list'?", "`odradek topic --help` lists all"),
    ("topic list --frobnicate", "there is no option --frobnicate", "`odradek topic list --help` shows what it takes"),
    ("topic list --jsn", "there is no option --jsn; did you mean --json?", ""),
    ("consume orders -n 3", "there is no option -n", "--count, if that is what you mean"),
    ("topic create orders -c a=b", "there is no option -c", "--config, if that is what you mean"),
    ("topic delete orders --force", "there is no option --force", "--yes, if that is what you mean"),
    ("--version", "there is no option --version", "`odradek version`"),
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


@pytest.mark.parametrize(("words", "said", "remedy"), WRONG, ids=[words for words, _, _ in WRONG])
def test_wrong_usage_is_told_in_one_voice(
    words: str, said: str, remedy: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A sentence that names the thing and the value, and what to try; never the parser's own words."""
    assert main(words.split()) == USAGE
    out, err = capfd.readouterr()
    first, *rest = err.splitlines()
    assert first.startswith("odradek: ")
    assert first.endswith(said)
    assert out == ""
    assert not remedy or rest == [f"  try: {remedy}"]
    for foreign in ("Usage:", "Error:", "Input should", "Value error", "Invalid value"):
        assert foreign not in err


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


def test_an_empty_separator_is_refused(capfd: pytest.CaptureFixture[str]) -> None:
    """It would part nothing."""
    assert main(["produce", "orders", "-K", ""]) == USAGE
    assert "-K: the separator is empty" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("topic list --json --frobnicate", USAGE),
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
    """One object on standard error, with the exit code in it; nothing on standard output."""
    assert main(words.split()) == code
    out, err = capfd.readouterr()
    assert out == ""
    error = json.loads(err)["error"]
    assert error["exit_code"] == code
    assert error["message"]
    assert {*error} == {"message", "hint", "exit_code"}
