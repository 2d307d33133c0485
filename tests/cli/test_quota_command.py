"""`odradek quota` against a cluster."""

from __future__ import annotations

import json

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
