"""What a hosted replica and its surroundings owe each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from odradek_proto.transport.ports import Clock

from odradek_broker.core.partition.messages import IsrProposal
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.events import EventLog

if TYPE_CHECKING:
    from odradek_broker.runtime.replicas.replica import Replica


class FetchWaiter(Protocol):
    """A fetch session that waits for something to say about a partition."""

    def wake(self, replica: Replica) -> None:
        """There may be more to read, or the role changed."""
        ...

    def note_high_watermark(self, replica: Replica) -> None:
        """The high watermark moved; a waiting follower hears of it with the next data or when its wait ends (R-127)."""
        ...


class ReplicaServices(Protocol):
    """What a hosted replica needs of its broker."""

    clock: Clock
    events: EventLog
    counters: Counters

    def propose_isr(self, replica: Replica, proposal: IsrProposal) -> None: ...

    def request_ready(self, replica: Replica) -> None: ...

    def after_append(self, replica: Replica) -> None:
        """Bytes were appended: the flusher may have work."""
        ...

    def may_acknowledge_alone(self) -> bool:
        """Whether a leader that is its whole ISR may answer acks=all (R-112: not while its session is gone)."""
        ...

    def storage_failed(self, replica: Replica, error: Exception) -> None: ...
