"""All invariants, in the order in which they are told: the first reads the logs for all others."""

from __future__ import annotations

from odradek_chaos.worlds.simulated.checks.invariant import Invariant
from odradek_chaos.worlds.simulated.checks.isr import (
    CandidateCompleteness,
    IsrWithinReplicas,
    MaximalIsrSuperset,
    StrongIsr,
    UncleanExclusion,
)
from odradek_chaos.worlds.simulated.checks.leaders import (
    EpochPersistedBeforeUse,
    EpochsNeverFall,
    LeaderCompleteness,
    OlderEpochNeverAccepted,
    OneLeaderPerEpoch,
    StaleIncarnationNeverCounts,
)
from odradek_chaos.worlds.simulated.checks.logs import (
    CommittedPrefixImmutable,
    LogMatching,
    MetadataLogMatching,
    ProducerTableEqualsLog,
)
from odradek_chaos.worlds.simulated.checks.quorum import (
    MajorityReachedHighWatermark,
    MetadataHighWatermarkNeverFalls,
    MetadataImagesEqual,
    SnapshotAtLogStart,
)
from odradek_chaos.worlds.simulated.checks.requests import (
    EndOffsetsNeverFall,
    IsrChangedFromTheEpochNamed,
    OtherEpochsRefused,
    StaleIncarnationRefused,
)
from odradek_chaos.worlds.simulated.checks.watermarks import (
    AcknowledgedBelowHighWatermark,
    DurableOnEveryIsrMember,
    FollowerHighWatermarkBound,
    HighWatermarkHeldUnderMinIsr,
    HighWatermarkNeverFalls,
    HighWatermarkOnEveryIsrMember,
    ReadBelowHighWatermark,
    TruncateSafe,
)

CLASSES: tuple[type[Invariant], ...] = (
    LogMatching,
    CommittedPrefixImmutable,
    ProducerTableEqualsLog,
    MetadataLogMatching,
    HighWatermarkNeverFalls,
    HighWatermarkHeldUnderMinIsr,
    FollowerHighWatermarkBound,
    HighWatermarkOnEveryIsrMember,
    DurableOnEveryIsrMember,
    TruncateSafe,
    AcknowledgedBelowHighWatermark,
    ReadBelowHighWatermark,
    OneLeaderPerEpoch,
    EpochsNeverFall,
    EpochPersistedBeforeUse,
    LeaderCompleteness,
    OlderEpochNeverAccepted,
    StaleIncarnationNeverCounts,
    IsrWithinReplicas,
    UncleanExclusion,
    MaximalIsrSuperset,
    CandidateCompleteness,
    StrongIsr,
    MajorityReachedHighWatermark,
    MetadataHighWatermarkNeverFalls,
    MetadataImagesEqual,
    SnapshotAtLogStart,
    OtherEpochsRefused,
    StaleIncarnationRefused,
    IsrChangedFromTheEpochNamed,
    EndOffsetsNeverFall,
)


def all_invariants() -> list[Invariant]:
    return [kind() for kind in CLASSES]
