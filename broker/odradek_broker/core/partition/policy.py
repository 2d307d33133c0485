"""The effect of `odradek.truncation.mode` on the rules, as one table with a column per rule and a row per mode.

`fetch` is the current protocol. The three others restore its predecessors, to demonstrate the failures that each step
repaired: `epoch-request` uses OffsetsForLeaderEpoch in rounds (KIP-101 with KIP-279), `epoch-single-round` uses it once
(KIP-101 alone, which loses agreement after fast unclean elections), and `high-watermark` is the protocol before 0.11,
in which no decision reads an epoch (L-1 to L-11).

Rule of this module: roles query the policy for a rule by its name; no other code looks at the mode.
"""

from __future__ import annotations

from odradek_proto.values import Value

from odradek_broker.core.partition.messages import TruncationMode


class ReplicaPolicy(Value, frozen=True):
    """The rules in which the modes differ. Every field reads as "this replica ..."."""

    mode: TruncationMode
    fences_by_leader_epoch: bool = True  # compares the leader epoch of requests; L-5: there was none
    checks_divergence_on_fetch: bool = True  # as leader, looks at lastFetchedEpoch; L-5: there was none
    sends_last_fetched_epoch: bool = True  # as follower, lets the leader find the divergence in a fetch
    asks_for_epoch_end: bool = False  # as follower, asks OffsetsForLeaderEpoch before it fetches
    answers_epoch_of_end: bool = (
        True  # as leader, says which epoch an end offset belongs to (KIP-279); B5: only the end
    )
    truncates_to_high_watermark: bool = False  # as follower, cuts at its own high watermark, asking nobody (L-1)
    writes_epoch_when_elected: bool = True  # as leader, notes where its epoch begins; L-7: not
    freezes_under_min_isr: bool = True  # as leader, holds the high watermark below min.insync.replicas; L-4: not
    counts_maximal_isr: bool = True  # as leader, waits for proposed members too; L-4: not
    counts_only_eligible: bool = True  # as leader, waits only for outsiders that may join; L-4: for all
    expands_from_epoch_start: bool = (
        True  # as leader, adds nobody that lacks the start of its epoch; L-6: it does
    )
    appends_straddling_batch: bool = False  # as follower, takes a batch that begins below its log's end (L-9)
    hides_offsets_after_election: bool = True  # as leader, KIP-207; L-10: not


_POLICIES = {
    TruncationMode.FETCH: ReplicaPolicy(TruncationMode.FETCH),
    TruncationMode.EPOCH_REQUEST: ReplicaPolicy(
        TruncationMode.EPOCH_REQUEST, sends_last_fetched_epoch=False, asks_for_epoch_end=True
    ),
    TruncationMode.EPOCH_SINGLE_ROUND: ReplicaPolicy(
        TruncationMode.EPOCH_SINGLE_ROUND,
        sends_last_fetched_epoch=False,
        asks_for_epoch_end=True,
        answers_epoch_of_end=False,
    ),
    TruncationMode.HIGH_WATERMARK: ReplicaPolicy(
        TruncationMode.HIGH_WATERMARK,
        fences_by_leader_epoch=False,
        checks_divergence_on_fetch=False,
        sends_last_fetched_epoch=False,
        truncates_to_high_watermark=True,
        writes_epoch_when_elected=False,
        freezes_under_min_isr=False,
        counts_maximal_isr=False,
        counts_only_eligible=False,
        expands_from_epoch_start=False,
        appends_straddling_batch=True,
        hides_offsets_after_election=False,
    ),
}


def policy_for(mode: TruncationMode) -> ReplicaPolicy:
    """The rules of a mode."""
    return _POLICIES[mode]
