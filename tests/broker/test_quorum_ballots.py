"""The votes of one election: when it is won, and when it is lost (R-204, R-217)."""

from __future__ import annotations

from odradek_broker.core.quorum.roles import Ballot


def test_an_election_is_lost_when_too_few_votes_may_still_come() -> None:
    """Of five voters three elect: two that say no leave enough, a third one does not."""
    ballot = Ballot(1, (1, 2, 3, 4, 5), 0)
    for voter, lost in ((2, False), (3, False), (4, True)):
        ballot.refuse(voter)
        assert ballot.lost is lost


def test_a_provisional_vote_does_not_replace_one_that_was_refused() -> None:
    """It counts with those of all voters alone, and one of them has said no."""
    ballot = Ballot(1, (1, 2, 3), 0)
    ballot.grant(2, 0, provisional=True)
    assert not ballot.lost
    ballot.refuse(3)
    assert ballot.lost


def test_a_voter_that_was_out_of_reach_and_refuses_is_missing_once() -> None:
    """It came back and said no; the third one may still elect."""
    ballot = Ballot(1, (1, 2, 3), 0)
    ballot.unreachable(2, 10)
    ballot.refuse(2)
    assert not ballot.lost
    ballot.grant(3, 20)
    assert ballot.won
