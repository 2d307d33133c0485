"""How a leader treats voters that may have lost their disk (R-217).

Such a voter has forgotten its epoch as well as its records, so it follows the first leader that calls, and that may be
one that a majority has left already: with the votes of this very voter, before it lost its disk.

Rules of this module. A voter that reports that it is catching up counts for nothing: not for the high watermark, not
for check-quorum. It counts again once the leader has confirmed to it that it caught up, and the leader confirms that
only when a majority without any such voter has confirmed, later than its first fetch, that it still knows no newer
epoch. That is a read index (Raft, 6.4): a newer leader that had the lost vote would have needed one of them. A voter
that has not confirmed it may be a candidate with the lost vote, and is waited for as long as it can keep that. One that
catches up itself proves nothing about past elections, but it can confirm that it is no candidate now.

A forged fetch can claim it in a voter's name (R-218). A voter that never reported it fetches on without it, and proves
itself by records that this leader appended only after the claim: a fetch from before a lost disk cannot have them.

One exception, so that a new quorum can begin: a voter that gave the vote that made this leader, as a vote that counts,
and has not forgotten it, has thereby proved that it knew no newer epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek_broker.core.quorum.messages import Fetch, FetchSnapshot, QuorumConfig, SendRequest


@dataclass(slots=True)
class CatchingUpVoter:
    """One voter that catches up. `asked` has the newest question to each other voter."""

    since_ms: int
    ask_at_ms: int
    end_offset: int  # of the leader's log when the voter last said that it catches up
    asked: dict[int, SendRequest] = field(default_factory=dict)
    confirmed: dict[int, None] = field(default_factory=dict)
    acknowledged: bool = False  # that it has caught up


class CatchUpTracker:
    """The voters of one leadership that may lack what they have once acknowledged."""

    def __init__(self, config: QuorumConfig, electors: tuple[int, ...], epoch_start_offset: int) -> None:
        """`electors` are those whose votes counted when this leader was elected. With an empty log every vote does,
        the late ones, too: where nobody has a record, none can be provisional.
        """
        self._config = config
        self._electors = config.other_voters if epoch_start_offset == 0 else electors
        self._catching_up: dict[int, CatchingUpVoter] = {}
        self._heard: dict[int, None] = {}  # voters that have fetched in this epoch
        # How long a candidate keeps the votes that it has got: its timeout, and the back-off of a lost election.
        self._candidacy_ms = 2 * config.election_timeout_ms + config.election_backoff_max_ms

    def heard(self, fetch: Fetch | FetchSnapshot, log_end_offset: int, now_ms: int) -> None:
        """A voter has fetched, and said what it knows of itself."""
        voter, voter_state = fetch.replica_id, self._catching_up.get(fetch.replica_id)
        if voter not in self._config.voters:
            return
        if voter not in self._heard:
            self._heard[voter] = None
            for other in self._catching_up.values():
                other.ask_at_ms = now_ms  # it can confirm from now on, and nobody should wait for it
        if fetch.catching_up and not (fetch.voted and voter in self._electors):
            if voter_state is not None and not voter_state.acknowledged:
                voter_state.end_offset = log_end_offset
            else:  # what it was told did not reach it, or it has lost its disk again
                self._catching_up[voter] = CatchingUpVoter(now_ms, now_ms, log_end_offset)
        elif voter_state is not None and voter_state.acknowledged and not fetch.catching_up:
            del self._catching_up[voter]  # without being told, it would be words from before the loss that came late

    def reached(self, fetch: Fetch) -> None:
        """A voter has what the leader has below its offset. Above the end of then, it is no word from before a loss."""
        voter_state = self._catching_up.get(fetch.replica_id)
        if voter_state is not None and not fetch.catching_up and fetch.fetch_offset > voter_state.end_offset:
            del self._catching_up[fetch.replica_id]

    def counts(self, voter: int) -> bool:
        return voter not in self._catching_up

    # --- the read index ---

    def to_ask(self, now_ms: int) -> list[tuple[int, int]]:
        """Voters that catch up, each with another one that has to be asked for its sake whether this leader leads."""
        questions: list[tuple[int, int]] = []
        for voter, voter_state in self._catching_up.items():
            if now_ms < voter_state.ask_at_ms:
                continue
            able = [each for each in self._config.other_voters if each in self._heard and each != voter]
            missing = [(voter, each) for each in able if each not in voter_state.confirmed]
            if missing:
                voter_state.ask_at_ms = now_ms + self._config.fetch_max_wait_ms  # about when it fetches again
            questions += missing
        return questions

    def asked(self, voter: int, send: SendRequest) -> None:
        self._catching_up[voter].asked[send.peer_id] = send

    def confirm(self, send: SendRequest) -> None:
        """The peer has answered this question: it knows of no newer epoch."""
        for voter_state in self._catching_up.values():
            if voter_state.asked.get(send.peer_id) is send:
                voter_state.confirmed[send.peer_id] = None

    def _is_confirmed(self, voter_state: CatchingUpVoter, now_ms: int) -> bool:
        trusted = 1 + sum(self.counts(voter) for voter in voter_state.confirmed)
        everybody = len(voter_state.confirmed) == len(self._config.other_voters) - 1
        return trusted >= self._config.majority and (everybody or now_ms >= voter_state.since_ms + self._candidacy_ms)

    def has_caught_up(self, fetch: Fetch, high_watermark: int | None, now_ms: int) -> bool:
        """Whether the sender has everything that was ever committed and may count as any other; then it is told so."""
        if high_watermark is None or fetch.fetch_offset < high_watermark:
            return False
        voter_state = self._catching_up.get(fetch.replica_id)
        if voter_state is None:
            return True
        voter_state.acknowledged = self._is_confirmed(voter_state, now_ms)
        return voter_state.acknowledged
