"""Who may be in an ISR, who is eligible beside it, and whom a leader waits for."""

from __future__ import annotations

import pytest
from odradek_broker.core.metadata.image import MetadataImage, PartitionRegistration
from odradek_chaos.worlds.simulated.checks import isr
from odradek_chaos.worlds.simulated.checks.invariant import Change, changes_of
from odradek_chaos.worlds.simulated.checks.state import ReplicaState
from odradek_proto.values import replace

from tests.simulation.states_by_hand import ALONE, LEADER, REGISTRATION, everything, image, told

ELIGIBLE = (3,)


@pytest.mark.parametrize(
    ("min_isr", "of", "found"),
    [
        (2, replace(REGISTRATION, eligible=ELIGIBLE), 1),
        (3, replace(REGISTRATION, eligible=ELIGIBLE), 0),
        (2, replace(ALONE, eligible=ELIGIBLE), 0),
        (2, REGISTRATION, 0),
        (9, replace(REGISTRATION, replicas=(1, 2), isr=(1,), eligible=(2,)), 0),
        (9, replace(REGISTRATION, replicas=(1, 2), isr=(1, 2), eligible=(3,)), 2),  # nor is it a replica
        (2, replace(REGISTRATION, leader=-1, eligible=ELIGIBLE), 0),  # when one of them leads it is asked again
    ],
)
def test_nobody_is_eligible_beside_an_isr_that_is_enough(min_isr: int, of: PartitionRegistration, found: int) -> None:
    """It commits without them. All replicas are enough, however many min.insync.replicas asks for (W-6)."""
    now = everything()
    now.min_isr = min_isr
    assert len(list(isr.IsrWithinReplicas().on_image(now, 1, image(of), MetadataImage()))) == found


@pytest.mark.parametrize(
    ("leader", "known", "lost", "found"),
    [(-1, (1,), (), 0), (-1, (), (), 1), (-1, (), (2,), 0), (-1, (), (9,), 1), (1, (), (2,), 2)],
    ids=["remembered", "forgotten", "its disk is lost", "another disk is lost", "led"],
)
def test_an_empty_isr_remembers_somebody_who_has_a_disk(
    leader: int, known: tuple[int, ...], lost: tuple[int, ...], found: int
) -> None:
    """R-140: nobody could ever lead again, unless an administrator has to decide."""
    now, of = everything(), replace(REGISTRATION, leader=leader, isr=(), last_known_eligible=known)
    now.lost_disks = dict.fromkeys(lost)
    assert len(list(isr.IsrWithinReplicas().on_image(now, 1, image(of), MetadataImage()))) == found


@pytest.mark.parametrize(
    ("topic", "cluster", "found"), [("1", "2", 1), ("", "1", 1), ("", "", 0), ("2", "1", 0), ("", "2", 0)]
)
def test_what_is_enough_is_asked_anew_with_a_setting(topic: str, cluster: str, found: int) -> None:
    """The topic's comes before the cluster's, and that before the nodes' own, which is 2 here."""
    now, of = everything(), replace(ALONE, eligible=ELIGIBLE)
    now.min_isr, before, after = 2, image(of), image(of, offset=10)
    after.topics = before.topics
    for configs, name, value in ((after.topic_configs, "t", topic), (after.broker_configs, "", cluster)):
        if value:
            configs[name] = {"min.insync.replicas": value}
    assert len(list(isr.IsrWithinReplicas().on_image(now, 1, after, before))) == found


@pytest.mark.parametrize(
    ("ended", "then", "found"),
    [
        (b"a", replace(ALONE, eligible=(2, 3)), 1),
        (b"of 3", replace(ALONE, eligible=(2, 3)), 0),
        (b"a", replace(ALONE, eligible=(3,), partition_epoch=8), 0),
        (b"a", replace(ALONE, eligible=(2, 3), partition_epoch=8), 1),
        (b"a", replace(ALONE, eligible=(2, 3), partition_epoch=9), 0),
    ],
    ids=["stays", "ended cleanly", "left", "stays through a change", "left and came back"],
)
def test_who_ended_uncleanly_is_no_longer_eligible_when_it_registers(
    ended: bytes, then: PartitionRegistration, found: int
) -> None:
    """Beside an ISR as little as in it (S-10). After a clean shutdown it has everything, and may stay."""
    now, before, after = everything(), image(replace(ALONE, eligible=(2, 3))), image(then, offset=10)
    after.brokers[2] = replace(after.brokers[2], incarnation_id=b"b", broker_epoch=9)
    now.ended_uncleanly[ended] = None
    assert len(list(isr.UncleanExclusion().on_image(now, 1, after, before))) == found


@pytest.mark.parametrize(
    ("seen", "of", "found"),
    [
        (replace(LEADER, maximal_isr=(2, 1)), REGISTRATION, 0),  # the same set
        (replace(LEADER, maximal_isr=(1, 2, 3)), REGISTRATION, 1),  # nothing is proposed, and it waits for one more
        (replace(LEADER, maximal_isr=(1, 2, 3), is_proposing=True), REGISTRATION, 0),
        (replace(LEADER, partition_epoch=7), REGISTRATION, 0),
        (replace(LEADER, partition_epoch=7), ALONE, 1),  # not what the controller says of the very same epoch
        (replace(LEADER, partition_epoch=6), ALONE, 0),  # it has not heard yet
        (replace(LEADER, min_isr=2), replace(ALONE, eligible=(2,)), 0),  # it waits for 2 as for a member
        (replace(LEADER, min_isr=2), replace(ALONE, eligible=(3,)), 1),  # it commits without one who may lead
        (replace(LEADER, min_isr=3), replace(ALONE, eligible=(3,)), 0),  # it commits nothing
    ],
)
def test_a_leader_waits_for_no_fewer_and_without_a_proposal_for_no_more(
    seen: ReplicaState, of: PartitionRegistration, found: int
) -> None:
    """W-5. Whatever it hears of first, its own state or the controller's, the comparison is the same."""
    invariant, before = isr.MaximalIsrSuperset(), replace(seen, isr=(), maximal_isr=())
    assert len(told(invariant, everything(seen, of=of), seen, before)) == found
    now = everything(seen)
    now.image = image(of)
    by_image = list(invariant.on_image(now, 1, now.image, MetadataImage()))
    of_its_own = seen.maximal_isr == (1, 2, 3)  # nothing that the controller could say changes that
    assert len(by_image) == (0 if of_its_own else found)


@pytest.mark.parametrize(("was_proposing", "found"), [(True, 1), (False, 0)], ids=["just now", "told of before"])
def test_a_proposal_that_ends_is_a_change(was_proposing: bool, found: int) -> None:
    """Who was to be added is waited for no more, also when the sets stayed as they were."""
    seen = replace(LEADER, maximal_isr=(1, 2, 3))
    changes = changes_of(seen, replace(seen, is_proposing=was_proposing))
    assert isr.MaximalIsrSuperset().is_asked(Change(changes)) is bool(found)
