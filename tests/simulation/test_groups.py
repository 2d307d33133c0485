"""Consumer groups in the simulated world, of the classic protocol and of KIP-848, under the faults of a seed (K-64)."""

from __future__ import annotations

import pytest
from odradek.core.fetch_state import FetchState
from odradek_broker.core.groups import reconciliation
from odradek_broker.core.groups.commit_queue import CommitQueue
from odradek_chaos.worlds.simulated.checks.groups import (
    DELIVERED,
    GENERATION_FELL,
    OFFSET_FELL,
    ONE_OWNER,
    OVER,
    UNCOMMITTED,
    GroupHistory,
)
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_proto.errors import ErrorCode

from tests.seeds import unless_torture

SEEDS = unless_torture((5,), (5, 1, 9))  # the first of them twice: it is the shortest
SHORT, LONG = 400, unless_torture(4_000, Options().faults_ms)


@pytest.mark.parametrize(
    ("seed", "faults_ms"),
    [
        (SEEDS[0], SHORT),
        *(pytest.param(seed, LONG, marks=pytest.mark.slow) for seed in SEEDS),
    ],
)
def test_groups_go_on_under_faults(seed: int, faults_ms: int) -> None:
    """One owner for each partition, offsets that stay, and peace afterwards; the same each time."""
    options = Options(members=3, faults_ms=faults_ms)
    result = run_seed(seed, options)
    assert not result.findings, result.report()
    assert result.generation >= 1
    assert result.commits > 0
    assert result.commits_of_consumers > 0
    if (seed, faults_ms) == (SEEDS[0], LONG):
        assert run_seed(seed, options).trace_hash == result.trace_hash


@pytest.mark.slow
def test_what_a_dead_leader_alone_has_is_not_taken_for_committed() -> None:
    """Its last commit was never committed; at its offset there is another one, which a client was told of."""
    assert run_seed(31_083, Options(members=3)).findings == []


def test_what_is_answered_before_it_is_committed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """K-43: no failover is needed to see that the commit is in no committed batch when its client hears of it."""
    reply = CommitQueue.reply
    monkeypatch.setattr(CommitQueue, "reply", lambda queue, token, answer, after=0: reply(queue, token, answer))
    result = run_seed(SEEDS[0], Options(members=3, faults_ms=SHORT))
    assert {finding.check for finding in result.findings} == {UNCOMMITTED}


def test_a_partition_that_is_written_to_two_members_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """K-59: in the log, whatever the two make of it: they may commit offsets that go back, too."""
    monkeypatch.setattr(reconciliation, "_where", lambda partitions, keep: partitions)
    result = run_seed(SEEDS[0], Options(members=3, faults_ms=SHORT))
    assert {finding.check for finding in result.findings} - {OFFSET_FELL} == {ONE_OWNER}


@pytest.mark.parametrize("beside", [-1, 1])
def test_a_consumer_that_begins_beside_the_committed_offset_is_found(
    monkeypatch: pytest.MonkeyPatch, beside: int
) -> None:
    """K-64: a record before it is processed again, the one at it by nobody."""
    begin = FetchState.on_committed

    def begin_beside(state: FetchState, offset: int | None, epoch: int) -> None:
        begin(state, offset and offset + beside, epoch)

    monkeypatch.setattr(FetchState, "on_committed", begin_beside)
    result = run_seed(SEEDS[0], Options(members=3, faults_ms=SHORT))
    assert {finding.check for finding in result.findings} == {DELIVERED}


def test_what_must_not_happen_is_found() -> None:
    """Two owners, a generation and an offset that fall, a late commit; an answer that comes late is none of them."""
    found: list[str] = []
    history = GroupHistory(lambda check, sentence: found.append(check))
    history.on_synced("a", 1, (0, 1), newest_asked=-1)
    history.on_synced("a", 2, (0,), newest_asked=1)
    history.on_synced("b", 1, (2,), newest_asked=-1)
    history.on_committed(0, 7)
    history.on_fetched("b", 0, 6, least=-1)
    history.on_late_commit("a", ErrorCode.ILLEGAL_GENERATION)
    assert found == []
    history.on_synced("b", 2, (0,), newest_asked=1)
    history.on_synced("c", 1, (3,), newest_asked=2)
    history.on_fetched("b", 0, 6, least=history.offsets[0])
    history.on_late_commit("a", ErrorCode.NONE)
    assert found == [ONE_OWNER, GENERATION_FELL, OFFSET_FELL, OVER]


def test_what_is_processed_is_held_to_what_is_committed() -> None:
    """Once more only behind the last commit, and each record once at least; a record that is gone is owed to nobody."""
    found: list[str] = []
    history = GroupHistory(lambda check, sentence: found.append(sentence))
    for member, offset, least in (("a", 0, -1), ("a", 1, -1), ("b", 1, 1)):
        history.on_processed(member, 0, offset, least)
    history.on_committed(0, 2)
    history.judge([(0, 0), (0, 1), (0, 2), (1, 0)])
    history.on_committed(0, 4)
    history.judge([(0, 0), (0, 1)])
    assert found == []
    history.on_processed("c", 0, 2, least=4)
    history.judge([(0, 2), (0, 3)])
    assert found == [
        "c begins at offset 2 of partition 0, 4 was committed before",
        "nobody processed offset 3 of partition 0, and 4 is committed",
    ]
