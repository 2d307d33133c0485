"""The state of a leader of the quorum: how far each replica is, which ones are alive, which fetches wait.

Rules of this module. Nothing counts as replicated before the voter, the leader included, has it on disk (R-207).
Nothing is below the high watermark before a record of the leader's own epoch is on a majority (R-206, Raft 5.4.2). The
high watermark of a leader never falls.
"""

from __future__ import annotations

from dataclasses import dataclass

from odradek_proto.values import Value

from odradek_broker.core.quorum.catching_up import CatchUpTracker
from odradek_broker.core.quorum.messages import Fetch, FetchSnapshot, QuorumConfig, Token
from odradek_broker.core.quorum.roles import earliest

UNKNOWN_OFFSET = -1
MAX_OBSERVERS = 1_000  # whose positions a leader keeps, and who may wait; more are answered at once
OBSERVER_SESSION_MS = 300_000  # Kafka's: an observer that is silent for so long is told of no more


@dataclass(slots=True)
class FetchProgress:
    """How far a replica was when it last fetched; `UNKNOWN_OFFSET` before it has. Times in ms, None: never."""

    end_offset: int = UNKNOWN_OFFSET
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None


class WaitingFetch(Value, frozen=True):
    fetch: Fetch
    deadline_ms: int


class Leader:
    """The leadership of one epoch, from the node's election to its end."""

    def __init__(
        self, config: QuorumConfig, epoch: int, epoch_start_offset: int, now_ms: int, electors: tuple[int, ...] = ()
    ) -> None:
        """`electors` are the voters whose votes counted."""
        self._config = config
        self.catch_ups = CatchUpTracker(config, electors, epoch_start_offset)
        self.leader_id = config.node_id
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        self.began_ms = now_ms
        self.high_watermark: int | None = None
        self.voters: dict[int, FetchProgress] = {voter: FetchProgress() for voter in config.other_voters}
        self.observers: dict[int, FetchProgress] = {}
        self.waiting: dict[Token, WaitingFetch] = {}
        self.answers_due = False  # there is news for one of these
        self.begin_at_ms: dict[int, int] = dict.fromkeys(config.other_voters, now_ms)

    # --- positions ---

    def record(self, fetch: Fetch, log_end_offset: int, now_ms: int) -> None:
        """A replica has said how far it is, and its log is a part of this one."""
        if fetch.replica_id not in self.voters:
            self.observers.setdefault(fetch.replica_id, FetchProgress())
        self.hear(fetch, log_end_offset, now_ms)
        self.catch_ups.reached(fetch)
        position = self.voters.get(fetch.replica_id) or self.observers[fetch.replica_id]
        position.end_offset = fetch.fetch_offset
        if fetch.fetch_offset >= log_end_offset:
            position.last_caught_up_ms = now_ms

    def hear(self, fetch: Fetch | FetchSnapshot, log_end_offset: int, now_ms: int) -> None:
        """A replica lives, however far it is: it fetches records or a snapshot (R-211)."""
        replica_id = fetch.replica_id
        self.catch_ups.heard(fetch, log_end_offset, now_ms)
        position = self.voters.get(replica_id) or self.observers.get(replica_id)
        if position is not None:
            position.last_fetch_ms = now_ms
        if replica_id in self.voters:
            self.begin_at_ms[replica_id] = now_ms + self._config.fetch_timeout_ms // 2

    def keeps(self, replica_id: int) -> bool:
        """Whether there is a position of this replica, or room for one. A negative id only looks, and has none."""
        known = replica_id in self.voters or replica_id in self.observers
        return known or (replica_id >= 0 and len(self.observers) < MAX_OBSERVERS)

    def forget_silent(self, now_ms: int) -> list[int]:
        """The observers that are forgotten now: nobody can check that there ever were such (R-214), so that a stranger
        takes the room of others for a fetch timeout after its last word.
        """
        silence_ms = self._config.fetch_timeout_ms if len(self.observers) >= MAX_OBSERVERS else OBSERVER_SESSION_MS
        silent = [
            replica_id
            for replica_id, position in self.observers.items()
            if position.last_fetch_ms is None or position.last_fetch_ms + silence_ms <= now_ms
        ]
        for replica_id in silent:
            del self.observers[replica_id]
        return silent

    def majority_offset(self, own_flushed_offset: int) -> int:
        """The offset that a majority of the voters has reached on its disk, without those that catch up (R-217)."""
        counted = self.catch_ups.counts
        others = [voter.end_offset if counted(each) else UNKNOWN_OFFSET for each, voter in self.voters.items()]
        offsets = sorted([own_flushed_offset, *others], reverse=True)
        return offsets[len(offsets) // 2]

    def advance(self, own_flushed_offset: int) -> bool:
        """Raise the high watermark as far as a majority is. Returns whether it moved.

        An offset that only covers older epochs does not count: a record of an older epoch can be on a majority and
        still be overwritten by a leader that never had it (Raft, figure 8). A voter that came back with less does not
        lower it.
        """
        reached = self.majority_offset(own_flushed_offset)
        if reached <= self.epoch_start_offset or (self.high_watermark is not None and reached <= self.high_watermark):
            return False
        self.high_watermark = reached
        return True

    # --- who lives ---

    def quorum_lost_at_ms(self) -> int | None:
        """When this leader has to resign, unless more voters fetch (check quorum, R-211). Never with a single voter.

        The leader counts itself, so it is enough that majority - 1 of the others have fetched within 1.5 fetch
        timeouts. Who catches up counts as if it had never fetched (R-217).
        """
        needed = self._config.majority - 1
        if not self.voters:
            return None
        counted, began_ms = self.catch_ups.counts, self.began_ms
        heard = [
            began_ms if each.last_fetch_ms is None or not counted(voter) else each.last_fetch_ms
            for voter, each in self.voters.items()
        ]
        heard.sort(reverse=True)
        return heard[needed - 1] + self._config.fetch_timeout_ms * 3 // 2

    def voters_to_tell(self, now_ms: int) -> list[int]:
        """The voters that have not fetched for half a fetch timeout; they may not know who leads (R-205)."""
        due = [voter for voter, at in self.begin_at_ms.items() if at <= now_ms]
        for voter in due:
            self.begin_at_ms[voter] = now_ms + self._config.fetch_timeout_ms // 2
        return due

    def successors(self) -> tuple[int, ...]:
        """The other voters, the one with the longest log first, and those last that could not win (R-212, R-217)."""
        return tuple(
            sorted(
                self.voters,
                key=lambda voter: (not self.catch_ups.counts(voter), -self.voters[voter].end_offset, voter),
            )
        )

    # --- waiting fetches ---

    def displace(self, replica_id: int) -> Token | None:
        """The older fetch that waits for the same replica. It has been given up over there, since one replica asks
        once at a time.
        """
        for token, waiting in self.waiting.items():
            if waiting.fetch.replica_id == replica_id:
                return token
        return None

    def expired(self, now_ms: int) -> list[Token]:
        return [token for token, waiting in self.waiting.items() if waiting.deadline_ms <= now_ms]

    def next_deadline_ms(self) -> int | None:
        fetches = [waiting.deadline_ms for waiting in self.waiting.values()]
        return earliest((self.quorum_lost_at_ms(), *self.begin_at_ms.values(), *fetches))
