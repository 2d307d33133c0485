"""What is named twice, or is the empty word of a variable that is not set, is asked about instead of guessed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("words", "said", "remedy"),
    [
        ("topic create orders bills orders", "orders is named twice", "once"),
        ("topic delete orders orders --yes", "orders is named twice", "once"),
        ("topic create __consumer_offsets", "__consumer_offsets is an internal topic", "offsets.topic.num.partitions"),
        ("topic create ''", "a topic's name cannot be empty", "--help"),
        ("topic create orders -X retention.ms=1 -X retention.ms=2", "--config: retention.ms is given twice", "once"),
        ("topic alter orders -X retention.ms=1 --delete-config retention.ms",
         "--config and --delete-config both name retention.ms", "--help"),
        ("consume orders -G ''", "the name of the group is empty", "group list"),
        ("group describe ''", "the name of the group is empty", "group list"),
        ("group reset-offsets '' orders -o 5", "the name of the group is empty", "group list"),
        ("group reset-offsets readers orders -o 5:10", "-o '5:10' is no place in a log", "@MILLISECONDS"),
        ("consume orders -o 5:ten", "-o '5:ten' is no place in a log", "FROM:TO"),
        ("cluster up --data ''", "--data: the name is empty", "variable"),
        ("cluster stop --data ''", "--data: the name is empty", "variable"),
        ("cluster down --data '' --yes", "--data: the name is empty", "variable"),
        ("log diff . ./../{here}", ". is named twice", "other replica"),
        ("-b 127.0.0.1:1 topic list", "there is no option -b", "`odradek topic ... -b`"),
        ("--json topic list", "there is no option --json", "`odradek topic ... --json`"),
        ("topic alter orders --add-config retention.ms=5", "there is no option --add-config", "--config"),
    ],
)  # fmt: skip
def test_no_guess_is_made(
    words: str, said: str, remedy: str, odradek: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong usage, before anybody is asked or anything is done, and with what to type instead."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ODRADEK_BOOTSTRAP", "127.0.0.1:1")
    typed = [word.strip("'") for word in words.format(here=tmp_path.name).split(" ")]
    outcome = odradek(*typed)
    assert outcome.code == 2
    assert said in outcome.err
    assert remedy in outcome.err
