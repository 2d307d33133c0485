"""Which rare branches a run took, read from the events that the brokers write down."""

from __future__ import annotations

from collections.abc import Callable

from odradek_chaos.worlds.simulated.checks.state import ClusterState
from odradek_chaos.worlds.simulated.cluster.timeline import TimelineEvent


class BranchCoverage:
    """Is told of every event."""

    def __init__(self, state: ClusterState, reached: Callable[[str], None]) -> None:
        self._state = state
        self._reached = reached

    def on_event(self, moment: TimelineEvent) -> None:
        look = _LOOKS.get(moment.event)
        if look is not None:
            for branch in look(moment):
                self._reached(branch)
        if moment.event == "truncated" and self._takes_idempotent_records(moment):
            self._reached("producer-truncated-away")

    def _takes_idempotent_records(self, moment: TimelineEvent) -> bool:
        view = self._state.history(moment.partition).view(moment.broker_id)
        to = int(moment.facts["to"])
        return any(batch.producer_id >= 0 for batch in view.batches if batch.next_offset > to)


def _truncated(moment: TimelineEvent) -> list[str]:
    several = moment.facts.get("complete") is False
    return ["truncated", *(["divergence-of-several-rounds"] if several else [])]


def _fenced(moment: TimelineEvent) -> list[str]:
    return ["fenced-by-epoch"] if "EPOCH" in str(moment.facts.get("error", "")) else []


def _leader_chosen(moment: TimelineEvent) -> list[str]:
    return ["no-leader"] if moment.facts.get("leader") == -1 else _isr_decided(moment)


def _isr_decided(moment: TimelineEvent) -> list[str]:
    return ["isr-shrunk-to-one"] if len(moment.facts.get("isr", ())) == 1 else []


def _elected(moment: TimelineEvent) -> list[str]:
    return ["quorum-election"] if "node" in moment.facts and int(moment.facts.get("epoch", 0)) > 1 else []


def always(branch: str) -> Callable[[TimelineEvent], list[str]]:
    return lambda moment: [branch]


_LOOKS: dict[str, Callable[[TimelineEvent], list[str]]] = {
    "truncated": _truncated,
    "fenced": _fenced,
    "leader_chosen": _leader_chosen,
    "isr_decided": _isr_decided,
    "leader_elected": _elected,
    "isr_refused": always("isr-proposal-pending-refused"),
    "replica_offline": always("replica-offline"),
    "session_refused": always("session-gap"),
    "registration_refused": always("session-gap"),
    "snapshot_installed": always("snapshot-installed"),
}
