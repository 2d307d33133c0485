"""Invariants of what goes over the wire: what brokers must refuse, and the ends of logs that clients are told."""

from __future__ import annotations

from odradek_chaos.worlds.simulated.checks.exchanges import (
    AnsweredRequest,
    EndOffsetReceived,
    EndOffsetSent,
    PartitionAltered,
)
from odradek_chaos.worlds.simulated.checks.invariant import Invariant, Violations
from odradek_chaos.worlds.simulated.checks.state import ClusterState


class OtherEpochsRefused(Invariant):
    """A request that names an older epoch than the broker's is refused: fetches of followers and consumers, offset
    requests, votes and all other requests between the nodes of the quorum, changes of an ISR. So are fetches and offset
    requests that name a newer one; in the others the sender may be ahead.
    """

    name = "other-epochs-refused"
    rules = "N12, R-110, R-111, R-213, R-54"

    def on_answered(self, now: ClusterState, answered: AnsweredRequest) -> Violations:
        asked = answered.asked
        if asked < 0 or answered.is_refused:
            return
        if asked < answered.known:
            sentence = f"accepted a {answered.request} of epoch {asked}, and knew epoch {answered.known} already"
            yield answered.broker_id, answered.partition, sentence
        elif asked > answered.known_then:
            sentence = f"accepted a {answered.request} of epoch {asked}, and knew only epoch {answered.known_then}"
            yield answered.broker_id, answered.partition, sentence


class StaleIncarnationRefused(Invariant):
    """A request of a broker's older incarnation is refused by a node that knows of a newer one: a follower's fetch, a
    change of an ISR, a heartbeat, a request for producer ids.
    """

    name = "stale-incarnation-refused"
    rules = "N15, R-38, R-54, KIP-903"

    def on_answered(self, now: ClusterState, answered: AnsweredRequest) -> Violations:
        if 0 <= answered.sender_epoch < answered.newest_epoch and not answered.is_refused:
            sentence = (
                f"accepted a {answered.request} of broker {answered.sender_id} with broker epoch "
                f"{answered.sender_epoch}, and knew of {answered.newest_epoch}"
            )
            yield answered.broker_id, answered.partition, sentence


class IsrChangedFromTheEpochNamed(Invariant):
    """An accepted AlterPartition changes the very state that it was made from: the partition epoch of the response is
    the one that the proposal named, if it changes nothing, or the next one.
    """

    name = "isr-changed-from-the-epoch-named"
    rules = "R-54, R-55, KIP-497"

    def on_partition_altered(self, now: ClusterState, altered: PartitionAltered) -> Violations:
        if altered.altered not in (altered.asked, altered.asked + 1):
            sentence = f"took an ISR proposed for partition epoch {altered.asked}, and answered {altered.altered}"
            yield altered.broker_id, altered.partition, sentence


class EndOffsetsNeverFall(Invariant):
    """The end of a log that clients get never falls: not from one leader epoch to the next, and not for any client that
    repeats the request.

    A leader whose high watermark has not reached the beginning of its epoch may carry it in answers to fetches as it is
    (R-25); to who asks for the end it must not tell it (R-26). A leader that does not know yet that it was replaced may
    tell less than the new one did, but not to a client that knows better: that one names the newer epoch. And an answer
    to a fetch that waited for a slow disk may be overtaken by others of its leader epoch.
    """

    name = "end-offsets-never-fall"
    rules = "N5, S-6, R-25, R-26, KIP-207"

    def __init__(self) -> None:
        self._largest: dict[str, int] = {}
        self._by_epoch: dict[str, dict[int, int]] = {}  # of each partition: leader epoch to the largest end

    def on_end_told(self, now: ClusterState, told: EndOffsetSent) -> Violations:
        partition, epoch, end = told.partition, told.leader_epoch, told.end
        by_epoch = self._by_epoch.setdefault(partition, {})
        if end >= self._largest.get(partition, 0):
            self._largest[partition] = by_epoch[epoch] = end
            return
        earlier = epoch - 1 if told.by_fetch else epoch
        before = max((known for of, known in by_epoch.items() if of <= earlier), default=0)
        if end >= before:
            by_epoch[epoch] = max(end, by_epoch.get(epoch, 0))
        elif not (told.by_fetch and end < told.epoch_start):
            how = "in an answer to a fetch" if told.by_fetch else "as the latest offset"
            sentence = f"tells {end} {how} in leader epoch {epoch}, which began at {told.epoch_start}"
            yield told.broker_id, partition, f"{sentence}; {before} was told before"

    def on_end_heard(self, now: ClusterState, heard: EndOffsetReceived) -> Violations:
        if heard.end < heard.floor and not (heard.by_fetch and heard.end < heard.epoch_start):
            sentence = f"{heard.client} is told the end {heard.end} by the leader of epoch {heard.leader_epoch}"
            yield 0, heard.partition, f"{sentence}; it knew of {heard.floor} when it asked"
