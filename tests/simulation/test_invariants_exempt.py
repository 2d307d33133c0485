"""What an invariant exempts, and how little beside it is one violation more; and who may be in an ISR or beside it."""

from __future__ import annotations

import json
import random

import pytest
from odradek_broker.core.metadata.image import MetadataImage, PartitionRegistration
from odradek_broker.core.partition.producers import CachedBatch, ProducerEntry, ProducerStates
from odradek_chaos.worlds.simulated.checks import isr, leaders, logs, quorum, requests, watermarks
from odradek_chaos.worlds.simulated.checks.exchanges import EndOffsetReceived, EndOffsetSent, VoteGranted
from odradek_chaos.worlds.simulated.checks.history import BatchSummary
from odradek_chaos.worlds.simulated.checks.invariant import ReplicaChange, changes_of
from odradek_chaos.worlds.simulated.checks.state import METADATA, QuorumNodeState, RemoteState, ReplicaState
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.values import replace

from tests.simulation.states_by_hand import (
    ALONE,
    BEHIND_A_LAST_MEMBER,
    FOLLOWER,
    LEADER,
    QUORUM_LEADER,
    REGISTRATION,
    T,
    everything,
    fill,
    image,
    told,
    write_metadata_file,
)


@pytest.mark.parametrize(("known", "found"), [(6, 0), (7, 1)], ids=["not heard of yet", "heard of"])
def test_a_member_that_the_controller_dropped_is_none(known: int, found: int) -> None:
    """A machine that comes back with less has left every ISR: its leader may not have heard of that yet."""
    leader = replace(LEADER, partition_epoch=known)
    now = everything(leader, replace(FOLLOWER, log_end_offset=7), of=ALONE)
    assert len(told(watermarks.HighWatermarkOnEveryIsrMember(), now, leader, None)) == found


@pytest.mark.parametrize(("position", "found"), [(8, 0), (7, 1)], ids=["waited for it", "ran ahead"])
def test_a_leader_that_has_not_heard_who_was_dropped_still_waits_for_him(position: int, found: int) -> None:
    """What the controller did elsewhere exemptions no rise past what the leader was told of a member."""
    leader = replace(LEADER, partition_epoch=6, remotes={2: RemoteState(position, 1)})
    now = everything(leader, replace(FOLLOWER, log_end_offset=7), of=ALONE)
    before = replace(leader, high_watermark=7)
    assert len(told(watermarks.HighWatermarkOnEveryIsrMember(), now, leader, before)) == found


@pytest.mark.parametrize(("cut", "found"), [(False, 0), (True, 1)], ids=["as it was flushed", "cut and written anew"])
def test_what_was_written_anew_over_flushed_bytes_is_not_flushed(cut: bool, found: int) -> None:
    """The file was flushed that far once, with other bytes."""
    now = everything(LEADER, FOLLOWER)
    file = SimFiles(now.disks[2], SimLoop(1), random.Random(2)).open("/log", create=True)
    file.pwritev([b"flushed!"], 0)
    file.fsync()
    if cut:
        file.truncate(4)
        file.pwritev([b"anew"], 4)
    fill(now, 2, 8, segment=now.disks[2].file("/log"))
    assert len(told(watermarks.DurableOnEveryIsrMember(), now, LEADER, None)) == found


def test_a_disk_that_lies_about_its_flushes_is_not_held_against_the_broker() -> None:
    """Out of contract, and nothing that a broker could see."""
    now = everything(LEADER, FOLLOWER)
    file = SimFiles(now.disks[2], SimLoop(1), random.Random(2)).open("/log", create=True)
    file.pwritev([bytes(8)], 0)
    fill(now, 2, 8, segment=now.disks[2].file("/log"))
    now.disks[2].lying = True
    assert not told(watermarks.DurableOnEveryIsrMember(), now, LEADER, None)


@pytest.mark.parametrize(("has_read", "found"), [(10, 0), (11, 1)], ids=["not read of yet", "read of"])
def test_an_older_process_may_ask_until_the_leader_has_read_of_the_newer_one(has_read: int, found: int) -> None:
    """R-38 compares with the metadata: the newer one may have asked before these were read."""
    now, before = everything(), replace(LEADER, remotes={2: RemoteState(8, 11)})
    now.images[1] = image(REGISTRATION, broker_epoch=has_read)
    seen = replace(LEADER, remotes={2: RemoteState(9, 10)})
    assert len(told(leaders.StaleIncarnationNeverCounts(), now, seen, before)) == found


def test_who_leads_on_in_a_new_epoch_is_compared_anew() -> None:
    """The set that it waits for is the same as before, and the controller's is another."""
    seen = replace(LEADER, maximal_isr=(1,))
    assert told(isr.MaximalIsrSuperset(), everything(), seen, replace(seen, leader_epoch=4))


@pytest.mark.parametrize(
    ("then", "found"),
    [
        (replace(REGISTRATION, leader=2, leader_epoch=6, partition_epoch=8), 1),
        (replace(REGISTRATION, leader=2, leader_epoch=6, partition_epoch=9), 0),
        (replace(REGISTRATION, isr=(1,), partition_epoch=8), 0),
    ],
    ids=["another leader", "left and came back", "left"],
)
def test_one_change_is_too_few_to_leave_an_isr_and_come_back(then: PartitionRegistration, found: int) -> None:
    """That a partition has changed in some way exemptions no member of its ISR that registered anew."""
    after = image(then, incarnation=b"b", offset=10)
    after.brokers[1] = image(then).brokers[1]
    assert len(list(isr.UncleanExclusion().on_image(everything(), 1, after, image(REGISTRATION)))) == found


@pytest.mark.parametrize(("gone", "found"), [(2, 1), (3, 0)], ids=["a member", "another broker"])
def test_nobody_is_in_an_isr_who_was_never_registered(gone: int, found: int) -> None:
    """As little as somebody who is fenced."""
    after = image(REGISTRATION)
    del after.brokers[gone]
    assert len(list(isr.IsrWithinReplicas().on_image(everything(), 1, after, MetadataImage()))) == found


@pytest.mark.parametrize("leader", [2, -1])
def test_a_last_member_registers_anew_and_stays(leader: int) -> None:
    """It leads again as soon as it is unfenced, which is one change."""
    after = image(replace(BEHIND_A_LAST_MEMBER, leader=leader, partition_epoch=8), incarnation=b"b", offset=10)
    assert not list(isr.UncleanExclusion().on_image(everything(), 1, after, image(BEHIND_A_LAST_MEMBER)))


@pytest.mark.parametrize(("first", "found"), [(4, 0), (3, 1)])
def test_every_producer_of_what_came_at_once_is_compared(first: int, found: int) -> None:
    """Not that of the last batch alone."""
    now, states = everything(), ProducerStates()
    view = now.history(T).view(2)
    view.batches += [BatchSummary(8, 9, 5, 0, 77, 0, 4), BatchSummary(9, 10, 5, 0, 78, 0, 0)]
    view.producers.update({77: (0, 4), 78: (0, 0)})
    states.restore(
        [
            ProducerEntry(77, 0, [CachedBatch(first, first, 8, 0)]),
            ProducerEntry(78, 0, [CachedBatch(0, 0, 9, 0)]),
        ]
    )
    seen = replace(FOLLOWER, producers=states)
    assert len(told(logs.ProducerTableEqualsLog(), now, seen, replace(seen, log_end_offset=8))) == found


@pytest.mark.parametrize("end", [0, 8])
@pytest.mark.parametrize(("begins", "found"), [(0, 1), (2, 0)])
def test_a_producer_is_forgotten_with_its_last_batch(end: int, begins: int, found: int) -> None:
    """A cut takes all of it back; what stood before the log's first offset may be remembered."""
    now, states = everything(), ProducerStates()
    view = now.history(T).view(2)
    del view.batches[end:]
    del view.batches[:begins]
    states.restore([ProducerEntry(77, 0, [CachedBatch(4, 4, 9, 0)])])
    seen = replace(FOLLOWER, producers=states, log_end_offset=end if view.batches or not begins else begins)
    assert len(told(logs.ProducerTableEqualsLog(), now, seen, replace(seen, log_end_offset=10))) == found


def test_all_of_two_images_is_compared() -> None:
    """Settings and producer ids come from the same records."""
    invariant, other = quorum.MetadataImagesEqual(), image(REGISTRATION)
    other.topic_configs["t"] = {"min.insync.replicas": "1"}
    assert not list(invariant.on_image(everything(), 1, image(REGISTRATION), MetadataImage()))
    assert list(invariant.on_image(everything(), 2, other, MetadataImage()))


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
        (EndOffsetSent(2, T, 6, 9, 9, by_fetch=False), 0),
        (EndOffsetSent(2, T, 6, 8, 8, by_fetch=True), 1),  # its epoch has begun: nothing excuses it
        (EndOffsetSent(3, T, 4, 5, 3, by_fetch=False), 0),  # it has not heard yet that it was replaced
        (EndOffsetSent(3, T, 4, 3, 3, by_fetch=False), 1),  # but it told more itself
        (EndOffsetSent(3, T, 4, 3, 3, by_fetch=True), 0),  # before this answer, which waited for a slow disk
    ],
)
def test_an_end_is_compared_with_what_leaders_of_the_same_and_of_older_epochs_told(
    told: EndOffsetSent, found: int
) -> None:
    """A leader answers for those before it, and not for one of whom it cannot know."""
    invariant, now = requests.EndOffsetsNeverFall(), everything()
    assert not list(invariant.on_end_told(now, EndOffsetSent(3, T, 4, 4, 3, by_fetch=False)))
    assert not list(invariant.on_end_told(now, EndOffsetSent(1, T, 5, 9, 6, by_fetch=True)))
    assert len(list(invariant.on_end_told(now, told))) == found


@pytest.mark.parametrize(
    ("heard", "found"),
    [
        (EndOffsetReceived("r1", T, 6, 8, 9, 5, by_fetch=False), 1),
        (EndOffsetReceived("r1", T, 6, 8, 9, 5, by_fetch=True), 1),
        (EndOffsetReceived("r1", T, 6, 8, 9, 9, by_fetch=True), 0),  # the leader's epoch has not begun for readers
        (EndOffsetReceived("r1", T, 6, 9, 9, 5, by_fetch=False), 0),
    ],
)
def test_a_client_never_hears_of_a_smaller_end_than_it_knew_when_it_asked(heard: EndOffsetReceived, found: int) -> None:
    """What was on its way when it asked does not count; the excuse of R-25 does."""
    assert len(list(requests.EndOffsetsNeverFall().on_end_heard(everything(), heard))) == found


@pytest.mark.parametrize(
    ("state", "flushed", "found"),
    [
        ({"leaderEpoch": 3, "leaderId": -1, "votedId": 2}, True, 0),
        ({"leaderEpoch": 3, "leaderId": -1, "votedId": 2}, False, 1),
        ({"leaderEpoch": 3, "leaderId": -1, "votedId": -1}, True, 1),
        ({"leaderEpoch": 3, "leaderId": -1, "votedId": 1}, True, 1),
        ({"leaderEpoch": 2, "leaderId": -1, "votedId": 2}, True, 1),
        ({"leaderEpoch": 3, "leaderId": 2, "votedId": -1}, True, 0),  # it was elected meanwhile
        ({"leaderEpoch": 4, "leaderId": -1, "votedId": -1}, True, 0),
    ],
)
def test_a_vote_is_on_the_disk_before_it_is_granted(state: dict[str, int], flushed: bool, found: int) -> None:
    """Of broker 1 for candidate 2 in epoch 3: a voter that forgets it may vote twice (N9)."""
    now = everything()
    write_metadata_file(now, "quorum-state", json.dumps(state).encode(), flushed=flushed)
    assert len(list(leaders.EpochPersistedBeforeUse().on_vote_granted(now, VoteGranted(1, 3, 2)))) == found


@pytest.mark.parametrize(("epoch", "found"), [(2, 1), (3, 0), (4, 1)])
def test_a_snapshot_is_named_by_the_epoch_of_its_last_record(epoch: int, found: int) -> None:
    """Of the record as it was committed (M-6); before anybody has told that it was, nothing is said of it."""
    now, invariant = everything(), quorum.SnapshotAtLogStart()
    write_metadata_file(now, f"{7:020d}-{epoch:010d}.checkpoint")
    seen = QuorumNodeState(1, 1, 5, 8, 8, False)
    assert not list(invariant.on_quorum(now, seen, None))
    history = now.history(METADATA)
    history.view(1).batches = [
        BatchSummary(first, end, of_epoch, 0, -1, -1, -1) for first, end, of_epoch in ((0, 5, 2), (5, 7, 3), (7, 8, 4))
    ]
    assert history.commit(1, 8) is None
    assert len(list(invariant.on_quorum(now, seen, None))) == found


@pytest.mark.parametrize("start", [8, 9])
def test_a_snapshot_that_is_being_installed_is_known_by_where_the_log_starts(start: int) -> None:
    """Its event may be missing, of a node whose disk is full. A node's own snapshots end at its high watermark."""
    now, invariant = everything(), logs.MetadataLogMatching()
    now.history(METADATA).view(1).batches = [BatchSummary(0, 8, 3, 0, -1, -1, -1)]
    before = QuorumNodeState(1, 1, 3, 8, 8, False, 4)
    told = list(invariant.on_quorum(now, QuorumNodeState(1, 1, 3, 9, 9, False, start), before))
    assert bool(told) == (start == 8), told


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
    assert isr.MaximalIsrSuperset().is_asked(ReplicaChange(changes)) is bool(found)
