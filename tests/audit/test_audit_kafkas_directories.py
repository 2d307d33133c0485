"""Damage and near misses in the log directories that Apache Kafka wrote: transactions, a killed broker, two epochs."""

from __future__ import annotations

import shutil
from pathlib import Path

from odradek_audit.engine.local import audit
from odradek_proto.formats import decode_transaction_index
from odradek_proto.topics import TopicPartition

from tests.audit.corruption import KINDS, NEAR_MISSES
from tests.audit.corruption.places import log_end_of
from tests.interop.planted import WHOLE_DIRECTORY, plant_all

GOLDEN = Path(__file__).parents[1] / "golden" / "kafka-4.1.1"
SOURCES = {str(node): GOLDEN / f"broker-{node}" for node in (1, 2, 3)}
PARTITIONS = (TopicPartition("ledger", 0), TopicPartition("golden", 0))


def test_damage_is_found_and_no_near_miss_of_any_partition(tmp_path: Path) -> None:
    """Each kind, among transactions if it can be there, is one class of findings; near misses are none anywhere.

    Damage without transactions is that of test_audit_two_passes.py.
    """
    made = plant_all(SOURCES, PARTITIONS, tmp_path, seed=1)
    assert made.wrong(audit(made.replicas).findings) == {}
    assert set(made.planted) == set(made.near) == set(KINDS) - set(WHOLE_DIRECTORY)


def test_the_readme_counts_the_kinds_of_damage() -> None:
    """All of them: those of a whole directory are planted in tests/golden."""
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert f"identifies {len(KINDS)} kinds of damage planted in logs written by Kafka" in readme


def test_a_lagging_follower_lacks_the_aborted_transaction_too(tmp_path: Path) -> None:
    """A follower that has not fetched the marker that ends an aborted transaction does not know its end either."""
    replicas = {name: tmp_path / name for name in SOURCES}
    ledgers = [replicas[name] / "ledger-0" for name in SOURCES]
    for name, path in SOURCES.items():
        shutil.copytree(path, replicas[name])
    lag = NEAR_MISSES["cut-log"].change
    (index,) = ledgers[1].glob("*.txnindex")
    *_, aborted = decode_transaction_index(index.read_bytes())
    for ledger in ledgers:
        while log_end_of(ledger)[0] > aborted.last_offset + 1:
            lag(ledger)
    lag(ledgers[1])
    assert aborted not in decode_transaction_index(index.read_bytes())
    assert [finding.sentence for finding in audit(replicas, topics=["ledger"]).findings] == []
