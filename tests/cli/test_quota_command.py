"""`odradek quota` against a cluster."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Run


def test_quotas_are_set_listed_and_removed(odradek: Run, odradek_bootstrap: str) -> None:
    """By user, by client id, and for all others."""
    at = ("-b", odradek_bootstrap)
    assert (
        odradek("quota", "set", "--user", "carol", "producer_byte_rate=1048576", "request_percentage=12.5", *at).code
        == 0
    )
    assert odradek("quota", "set", "--user", "carol", "--client-defaults", "consumer_byte_rate=5", *at).code == 0
    listed = json.loads(odradek("quota", "list", "--user", "carol", "--json", *at).out)
    assert listed == [
        {"user": "carol", "client_id": None, "quota": "producer_byte_rate", "value": 1048576},
        {"user": "carol", "client_id": None, "quota": "request_percentage", "value": 12.5},
        {"user": "carol", "client_id": "<default>", "quota": "consumer_byte_rate", "value": 5},
    ]
    assert odradek("quota", "remove", "--user", "carol", *at).code == 0
    assert odradek("quota", "remove", "--user", "carol", "--client-defaults", "consumer_byte_rate", *at).code == 0
    assert json.loads(odradek("quota", "list", "--user", "carol", "--json", *at).out) == []
    refused = odradek("quota", "set", "--user", "carol", "producer_byte_rate=0.5", *at)
    assert refused.code == 1
    assert "whole bytes a second" in refused.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("set", "producer_byte_rate=5"), "nobody is named"),
        (("set", "--user", "a", "producer_byte_rat=5"), "did you mean 'producer_byte_rate'"),
        (("set", "--user", "a", "producer_byte_rate=fast"), "no number"),
        (("set", "--user", "a", "--user-defaults", "producer_byte_rate=5"), "--user-defaults all others"),
    ],
)
def test_what_cannot_be_is_told_before_anybody_is_asked(odradek: Run, words: tuple[str, ...], said: str) -> None:
    """Wrong usage, with a remedy."""
    told = odradek("quota", *words, "-b", "127.0.0.1:1")
    assert told.code == 2
    assert said in told.err
