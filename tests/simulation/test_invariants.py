"""Each invariant of the simulated world fires on the smallest hand-made violation, and not on its near miss."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.core.partition.producers import CachedBatch, ProducerEntry, ProducerStates
from odradek_chaos.worlds.simulated.checks import catalogue, isr, leaders, logs, quorum, requests, watermarks
from odradek_chaos.worlds.simulated.checks.exchanges import AnsweredRequest, EndOffsetSent, PartitionAltered
from odradek_chaos.worlds.simulated.checks.history import BatchSummary
from odradek_chaos.worlds.simulated.checks.invariant import Invariant, Violation
from odradek_chaos.worlds.simulated.checks.state import METADATA, RemoteState
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
    TAKEN_OUT,
    T,
    everything,
    fill,
    image,
    moment,
    told,
    write_metadata_file,
)

Case = Callable[[bool], list[Violation]]
CASES: dict[type[Invariant], Case] = {}


def case(kind: type[Invariant]) -> Callable[[Case], Case]:
    """The function makes the violation when it is given true, and the near miss when it is given false."""

    def keep(function: Case) -> Case:
        CASES[kind] = function
        return function

    return keep


@case(logs.LogMatching)
def log_matching(broken: bool) -> list[Violation]:
    """A log end without the bytes; nothing at all is an empty log."""
    return told(logs.LogMatching(), everything(), replace(FOLLOWER, log_end_offset=3 if broken else 0), None)


@case(logs.CommittedPrefixImmutable)
def committed_prefix(broken: bool) -> list[Violation]:
    now = everything()
    fill(now, 2, 8, epoch=4 if broken else 5)
    return told(logs.CommittedPrefixImmutable(), now, FOLLOWER, replace(FOLLOWER, high_watermark=0))


@case(logs.ProducerTableEqualsLog)
def producer_table(broken: bool) -> list[Violation]:
    now, states = everything(), ProducerStates()
    view = now.history(T).view(2)
    view.batches.append(BatchSummary(8, 10, 5, 0, 77, 0, 4))
    view.producers[77] = (0, 4)
    if not broken:
        states.restore([ProducerEntry(77, 0, [])])
        entry = states.get(77)
        assert entry is not None
        entry.batches.append(CachedBatch(4, 4, 9, 0))
    return told(logs.ProducerTableEqualsLog(), now, replace(FOLLOWER, producers=states), None)


@case(logs.MetadataLogMatching)
def metadata_log(broken: bool) -> list[Violation]:
    """A node that calls committed what is not on its disk."""
    now = everything()
    now.history(METADATA).view(1).batches = [BatchSummary(0, 8 if not broken else 7, 3, 0, -1, -1, -1)]
    return list(logs.MetadataLogMatching().on_quorum(now, QUORUM_LEADER, QUORUM_LEADER))


@case(watermarks.HighWatermarkNeverFalls)
def high_watermark_falls(broken: bool) -> list[Violation]:
    before = replace(LEADER, high_watermark=9, leader_epoch=5 if broken else 4)
    return told(watermarks.HighWatermarkNeverFalls(), everything(), LEADER, before)


@case(watermarks.HighWatermarkHeldUnderMinIsr)
def high_watermark_rises_alone(broken: bool) -> list[Violation]:
    invariant, before = (
        watermarks.HighWatermarkHeldUnderMinIsr(),
        replace(LEADER, isr=(1,), min_isr=2, high_watermark=7),
    )
    in_between = replace(before, high_watermark=8, partition_epoch=before.partition_epoch + 2)
    assert not told(invariant, everything(), in_between, before)
    return told(invariant, everything(), replace(before, high_watermark=8, isr=(1,) if broken else (1, 2)), before)


@case(watermarks.FollowerHighWatermarkBound)
def follower_bound(broken: bool) -> list[Violation]:
    invariant, now = watermarks.FollowerHighWatermarkBound(), everything()
    assert not told(invariant, now, LEADER, None)
    return told(invariant, now, replace(FOLLOWER, high_watermark=9 if broken else 8), None)


@case(watermarks.HighWatermarkOnEveryIsrMember)
def isr_member_lags(broken: bool) -> list[Violation]:
    now = everything(LEADER, replace(FOLLOWER, log_end_offset=7 if broken else 8))
    return told(watermarks.HighWatermarkOnEveryIsrMember(), now, LEADER, None)


@case(watermarks.DurableOnEveryIsrMember)
def not_flushed(broken: bool) -> list[Violation]:
    now = everything(LEADER, FOLLOWER)
    files = SimFiles(now.disks[2], SimLoop(1), random.Random(2))
    file = files.open("/log", create=True)
    file.pwritev([bytes(8)], 0)
    if not broken:
        file.fsync()
    fill(now, 2, 8, segment=now.disks[2].file("/log"))
    return told(watermarks.DurableOnEveryIsrMember(), now, LEADER, None)


@case(watermarks.TruncateSafe)
def truncates(broken: bool) -> list[Violation]:
    return list(watermarks.TruncateSafe().on_event(everything(), moment("truncated", 2, to=7 if broken else 8)))


@case(watermarks.AcknowledgedBelowHighWatermark)
def acknowledged(broken: bool) -> list[Violation]:
    return list(watermarks.AcknowledgedBelowHighWatermark().on_acknowledged(everything(), T, 8 if broken else 7))


@case(watermarks.ReadBelowHighWatermark)
def delivered(broken: bool) -> list[Violation]:
    return list(watermarks.ReadBelowHighWatermark().on_delivered(everything(), T, 8 if broken else 7))


@case(leaders.OneLeaderPerEpoch)
def two_leaders(broken: bool) -> list[Violation]:
    invariant, now = leaders.OneLeaderPerEpoch(), everything()
    assert not told(invariant, now, LEADER, None)
    return told(invariant, now, replace(LEADER, broker_id=2, leader_epoch=5 if broken else 6), None)


@case(leaders.EpochsNeverFall)
def epoch_falls(broken: bool) -> list[Violation]:
    return told(leaders.EpochsNeverFall(), everything(), FOLLOWER, replace(FOLLOWER, leader_epoch=6 if broken else 4))


@case(leaders.EpochPersistedBeforeUse)
def epoch_not_persisted(broken: bool) -> list[Violation]:
    now = everything()
    write_metadata_file(now, "quorum-state", b'{"leaderEpoch": 3}', flushed=not broken)
    return list(leaders.EpochPersistedBeforeUse().on_quorum(now, QUORUM_LEADER, None))


@case(leaders.LeaderCompleteness)
def incomplete_leader(broken: bool) -> list[Violation]:
    seen = replace(LEADER, leader_epoch=6, log_end_offset=7 if broken else 8)
    return told(leaders.LeaderCompleteness(), everything(), seen, FOLLOWER)


@case(leaders.OlderEpochNeverAccepted)
def older_epoch(broken: bool) -> list[Violation]:
    invariant, now = leaders.OlderEpochNeverAccepted(), everything()
    assert not told(invariant, now, replace(FOLLOWER, leader_epoch=4 if broken else 5), None)
    before = replace(LEADER, remotes={2: RemoteState(8, 1)})
    return told(invariant, now, replace(LEADER, remotes={2: RemoteState(9, 1)}), before)


@case(leaders.StaleIncarnationNeverCounts)
def stale_incarnation(broken: bool) -> list[Violation]:
    before = replace(LEADER, remotes={2: RemoteState(8, 11)})
    seen = replace(LEADER, remotes={2: RemoteState(9, 10 if broken else 12)})
    now = everything()
    now.images[1] = image(REGISTRATION, broker_epoch=11)
    return told(leaders.StaleIncarnationNeverCounts(), now, seen, before)


@case(isr.IsrWithinReplicas)
def fenced_member(broken: bool) -> list[Violation]:
    """A last member may be fenced, when nobody leads."""
    of = REGISTRATION if broken else BEHIND_A_LAST_MEMBER
    return list(isr.IsrWithinReplicas().on_image(everything(), 1, image(of, 2), MetadataImage()))


@case(isr.UncleanExclusion)
def rejoins_by_registering(broken: bool) -> list[Violation]:
    stays, leaves = REGISTRATION, TAKEN_OUT
    before = image(stays)
    return list(
        isr.UncleanExclusion().on_image(
            everything(), 1, image(stays if broken else leaves, incarnation=b"b", offset=10), before
        )
    )


@case(isr.MaximalIsrSuperset)
def forgets_a_member(broken: bool) -> list[Violation]:
    seen = replace(LEADER, maximal_isr=(1,) if broken else (1, 2, 3), is_proposing=True)
    return told(isr.MaximalIsrSuperset(), everything(), seen, None)


@case(isr.CandidateCompleteness)
def incomplete_candidate(broken: bool) -> list[Violation]:
    seen = replace(FOLLOWER, log_end_offset=7 if broken else 8)
    return told(isr.CandidateCompleteness(), everything(seen), seen, None)


@case(isr.StrongIsr)
def isr_differs(broken: bool) -> list[Violation]:
    now = everything(LEADER, FOLLOWER)
    fill(now, 2, 8, epoch=4 if broken else 5)
    return told(isr.StrongIsr(), now, LEADER, None)


@case(quorum.MajorityReachedHighWatermark)
def minority(broken: bool) -> list[Violation]:
    now = everything()
    now.voter_ends = {1: 10, 2: 7 if broken else 8, 3: 0}
    return list(quorum.MajorityReachedHighWatermark().on_quorum(now, QUORUM_LEADER, None))


@case(quorum.MetadataHighWatermarkNeverFalls)
def metadata_falls(broken: bool) -> list[Violation]:
    before = QUORUM_LEADER._replace(high_watermark=9 if broken else 7)
    return list(quorum.MetadataHighWatermarkNeverFalls().on_quorum(everything(), QUORUM_LEADER, before))


@case(quorum.MetadataImagesEqual)
def images_differ(broken: bool) -> list[Violation]:
    invariant, now = quorum.MetadataImagesEqual(), everything()
    assert not list(invariant.on_image(now, 1, image(REGISTRATION), MetadataImage()))
    other = image(ALONE if broken else REGISTRATION)
    return list(invariant.on_image(now, 2, other, MetadataImage()))


@case(quorum.SnapshotAtLogStart)
def no_snapshot(broken: bool) -> list[Violation]:
    now = everything()
    write_metadata_file(now, f"{7:020d}.log")
    if not broken:
        write_metadata_file(now, f"{7:020d}-{3:010d}.checkpoint")
    return list(quorum.SnapshotAtLogStart().on_quorum(now, QUORUM_LEADER, None))


OF_ITS_EPOCH = AnsweredRequest(1, T, "FetchStream", 5, 5, 5, is_refused=False)


@case(requests.OtherEpochsRefused)
def other_epoch(broken: bool) -> list[Violation]:
    """Of an older epoch than the broker's, or of a newer one; what became old while it waited was not."""
    invariant, now = requests.OtherEpochsRefused(), everything()
    for fine in (replace(OF_ITS_EPOCH, asked=-1), replace(OF_ITS_EPOCH, known_then=6)):
        assert not list(invariant.on_answered(now, fine))
    old, new = replace(OF_ITS_EPOCH, asked=4, is_refused=not broken), replace(OF_ITS_EPOCH, asked=6, known_then=6)
    found = list(invariant.on_answered(now, old))
    assert bool(found) == bool(list(invariant.on_answered(now, replace(new, known_then=5 if broken else 6))))
    return found


@case(requests.StaleIncarnationRefused)
def stale_sender(broken: bool) -> list[Violation]:
    invariant, now = requests.StaleIncarnationRefused(), everything()
    from_now = replace(OF_ITS_EPOCH, sender_id=2, sender_epoch=11, newest_epoch=11)
    for fine in (from_now, replace(from_now, sender_epoch=-1), replace(from_now, sender_epoch=12)):
        assert not list(invariant.on_answered(now, fine))
    return list(invariant.on_answered(now, replace(from_now, sender_epoch=10, is_refused=not broken)))


@case(requests.IsrChangedFromTheEpochNamed)
def isr_of_an_older_epoch(broken: bool) -> list[Violation]:
    """Whoever changes nothing answers with the epoch that it was asked for, and who does with the next one."""
    invariant, now = requests.IsrChangedFromTheEpochNamed(), everything()
    for altered in (7, 8):
        assert not list(invariant.on_partition_altered(now, PartitionAltered(1, T, 7, altered)))
    return list(invariant.on_partition_altered(now, PartitionAltered(1, T, 6 if broken else 7, 8)))


@case(requests.EndOffsetsNeverFall)
def end_falls(broken: bool) -> list[Violation]:
    """By the next leader, when it is asked for the end; its fetches may carry less until its epoch has begun."""
    invariant, now = requests.EndOffsetsNeverFall(), everything()
    assert not list(invariant.on_end_told(now, EndOffsetSent(1, T, 5, 9, 3, by_fetch=True)))
    return list(invariant.on_end_told(now, EndOffsetSent(2, T, 6, 8, 9, by_fetch=not broken)))


@pytest.mark.parametrize("kind", catalogue.CLASSES, ids=lambda kind: kind.name)
def test_an_invariant_fires_on_the_smallest_violation(kind: type[Invariant]) -> None:
    """One violation, said with numbers; the near miss beside it says nothing."""
    found = CASES[kind](True)
    assert found
    assert all(sentence for _, _, sentence in found)
    assert not CASES[kind](False)


def test_the_names_are_different_and_every_one_names_its_rules() -> None:
    """A finding's name leads to one section of the documentation and to the rule that it stands for."""
    names = [kind.name for kind in catalogue.CLASSES]
    assert len(set(names)) == len(names)
    assert all(kind.rules for kind in catalogue.CLASSES)
