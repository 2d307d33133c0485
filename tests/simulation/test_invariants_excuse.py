"""What an invariant excuses, and how little beside it is one violation more."""

from __future__ import annotations

import pytest
from odradek_chaos.worlds.simulated.checks import logs, quorum, requests, watermarks
from odradek_chaos.worlds.simulated.checks.exchanges import EndHeard, EndTold
from odradek_chaos.worlds.simulated.checks.history import Batch
from odradek_chaos.worlds.simulated.checks.seen import METADATA, QuorumSeen
from odradek_proto.values import replace

from tests.simulation.seen_by_hand import ALONE, FOLLOWER, LEADER, QUORUM_LEADER, T, everything, told


@pytest.mark.parametrize(("known", "found"), [(6, 0), (7, 1)], ids=["not heard of yet", "heard of"])
def test_a_member_that_the_controller_dropped_is_none(known: int, found: int) -> None:
    """A machine that comes back with less has left every ISR: its leader may not have heard of that yet."""
    leader = replace(LEADER, partition_epoch=known)
    now = everything(leader, replace(FOLLOWER, log_end_offset=7), of=ALONE)
    assert len(told(watermarks.HighWatermarkOnEveryIsrMember(), now, leader, None)) == found


def test_a_voter_on_damaged_bytes_is_not_counted_by_what_it_had() -> None:
    """Nobody looks at it, so what is known of it is old."""
    now = everything()
    now.voter_ends = {1: 10, 2: 7, 3: 0}
    now.damaged[2, METADATA] = -1
    assert not list(quorum.MajorityReachedHighWatermark().on_quorum(now, QUORUM_LEADER, None))


@pytest.mark.parametrize(("epoch", "found"), [(QUORUM_LEADER.epoch - 1, 0), (QUORUM_LEADER.epoch + 1, 1)])
def test_a_deposed_leader_may_learn_late_what_its_epoch_had_committed(epoch: int, found: int) -> None:
    """Another leader's larger high watermark speaks against a rise only when that leader's epoch is older."""
    invariant, now = quorum.MetadataHighWatermarkNeverFalls(), everything()
    ahead = QUORUM_LEADER._replace(high_watermark=9)
    assert not list(invariant.on_quorum(now, ahead, ahead._replace(high_watermark=8)))
    late = QUORUM_LEADER._replace(epoch=epoch, high_watermark=7)
    assert len(list(invariant.on_quorum(now, late, late._replace(high_watermark=6)))) == found


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (EndTold(2, T, 6, 9, 9, by_fetch=False), 0),
        (EndTold(2, T, 6, 8, 8, by_fetch=True), 1),  # its epoch has begun: nothing excuses it
        (EndTold(3, T, 4, 5, 3, by_fetch=False), 0),  # it has not heard yet that it was replaced
        (EndTold(3, T, 4, 3, 3, by_fetch=False), 1),  # but it told more itself
        (EndTold(3, T, 4, 3, 3, by_fetch=True), 0),  # before this answer, which waited for a slow disk
    ],
)
def test_an_end_is_compared_with_what_leaders_of_the_same_and_of_older_epochs_told(told: EndTold, found: int) -> None:
    """A leader answers for those before it, and not for one of whom it cannot know."""
    invariant, now = requests.EndOffsetsNeverFall(), everything()
    assert not list(invariant.on_end_told(now, EndTold(3, T, 4, 4, 3, by_fetch=False)))
    assert not list(invariant.on_end_told(now, EndTold(1, T, 5, 9, 6, by_fetch=True)))
    assert len(list(invariant.on_end_told(now, told))) == found


@pytest.mark.parametrize(
    ("heard", "found"),
    [
        (EndHeard("r1", T, 6, 8, 9, 5, by_fetch=False), 1),
        (EndHeard("r1", T, 6, 8, 9, 5, by_fetch=True), 1),
        (EndHeard("r1", T, 6, 8, 9, 9, by_fetch=True), 0),  # the leader's epoch has not begun for readers
        (EndHeard("r1", T, 6, 9, 9, 5, by_fetch=False), 0),
    ],
)
def test_a_client_never_hears_of_a_smaller_end_than_it_knew_when_it_asked(heard: EndHeard, found: int) -> None:
    """What was on its way when it asked does not count; the excuse of R-25 does."""
    assert len(list(requests.EndOffsetsNeverFall().on_end_heard(everything(), heard))) == found


@pytest.mark.parametrize("start", [8, 9])
def test_a_snapshot_that_is_being_installed_is_known_by_where_the_log_starts(start: int) -> None:
    """Its event may be missing, of a node whose disk is full. A node's own snapshots end at its high watermark."""
    now, invariant = everything(), logs.MetadataLogMatching()
    now.history(METADATA).view(1).batches = [Batch(0, 8, 3, 0, -1, -1, -1)]
    before = QuorumSeen(1, 1, 3, 8, 8, False, 4)
    told = list(invariant.on_quorum(now, QuorumSeen(1, 1, 3, 9, 9, False, start), before))
    assert bool(told) == (start == 8), told
