"""When a voter that may have lost its disk counts again (R-217)."""

from __future__ import annotations

from odradek_broker.core.quorum.catching_up import CatchUpTracker
from odradek_broker.core.quorum.messages import BeginEpoch, Fetch, QuorumConfig, Send

NOW = 10_000
LATER = NOW + 3_000  # two election timeouts and the longest back-off
LOST = Fetch(2, 6, 12, 5, 12, 500, 1 << 20, catching_up=True)


def doubting(voters: int) -> CatchUpTracker:
    """Node 1 leads epoch 6, from 10 on, by votes of others; voter 2 has lost its disk, and all others have fetched."""
    doubts = CatchUpTracker(QuorumConfig(1, tuple(range(1, voters + 1))), (1, 3), 10)
    doubts.heard(LOST, 12, NOW)
    for voter in range(3, voters + 1):
        doubts.heard(Fetch(voter, 6, 12, 5, 12, 500, 1 << 20), 12, NOW)
    return doubts


def confirm(doubts: CatchUpTracker, peer: int) -> None:
    """The peer is asked whether this leader still leads, and knows of no newer one."""
    send = Send(peer, BeginEpoch(1, 6))
    doubts.asked(2, send)
    doubts.confirm(send)


def test_a_lost_disk_counts_for_nothing_until_a_majority_without_it_has_confirmed() -> None:
    """Of five voters two others beside the leader, however long it takes."""
    doubts = doubting(5)
    assert not doubts.counts(2)
    assert not doubts.has_caught_up(LOST, 12, LATER)
    confirm(doubts, 3)
    assert not doubts.has_caught_up(LOST, 12, LATER + 60_000)
    confirm(doubts, 4)
    assert doubts.has_caught_up(LOST, 12, LATER)


def test_of_three_voters_the_third_one_has_to_confirm() -> None:
    """The leader alone is no majority without the voter that is in doubt."""
    doubts = doubting(3)
    assert not doubts.has_caught_up(LOST, 12, LATER)
    confirm(doubts, 3)
    assert doubts.has_caught_up(LOST, 12, NOW), "everybody has confirmed: no candidate is waited for"


def test_who_has_not_confirmed_is_waited_for_as_a_candidate() -> None:
    """It may hold the lost vote in its hands, for as long as a candidate keeps one."""
    doubts = doubting(5)
    confirm(doubts, 3)
    confirm(doubts, 4)
    assert not doubts.has_caught_up(LOST, 12, LATER - 1)
    assert doubts.has_caught_up(LOST, 12, LATER)
    confirm(doubts, 5)
    assert doubts.has_caught_up(LOST, 12, NOW)


def test_who_lacks_what_is_committed_has_not_caught_up() -> None:
    """Whatever the others confirm; and nothing is known to be committed before this epoch has a high watermark."""
    doubts = doubting(3)
    confirm(doubts, 3)
    assert not doubts.has_caught_up(LOST, 13, LATER)
    assert not doubts.has_caught_up(LOST, None, LATER)
