"""The roles of a node that does not lead: one class each, with the state of that role. The leader's is in `leader.py`.

A change of role makes a new object, so a response meant for an old role has no effect: requests in flight are kept by
the role that sent them. Deadlines are absolute, in milliseconds; `None` is never.

    Unattached   knows the epoch but no live leader; may have voted. An observer looks for the leader here.
    Prospective  checks whether it would win, before it disturbs other nodes (KIP-996)
    Candidate    has voted for itself in a new epoch and requests the others' votes
    Follower     fetches from a leader
    Resigned     led this epoch, in this run of the process or the last one, and never will again (R-202)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from odradek_broker.core.quorum.messages import NO_NODE, SendRequest, SnapshotId


def earliest(deadlines: Iterable[int | None]) -> int | None:
    """The first of some deadlines; None when there is none."""
    first: int | None = None
    for deadline in deadlines:  # after every step of a node: `min` of a generator takes three times as long
        if deadline is not None and (first is None or deadline < first):
            first = deadline
    return first


class Retries:
    """Requests to peers, each repeated until it is answered: which are due, which are in flight and when to retry."""

    def __init__(self, peers: Iterable[int], now_ms: int) -> None:
        self._due: dict[int, int] = dict.fromkeys(peers, now_ms)
        self._asked: dict[int, SendRequest] = {}

    def due(self, now_ms: int) -> list[int]:
        return [peer for peer, at in self._due.items() if at <= now_ms]

    def asked(self, send: SendRequest) -> None:
        del self._due[send.peer_id]
        self._asked[send.peer_id] = send

    def is_waiting_for(self, send: SendRequest) -> bool:
        return self._asked.get(send.peer_id) is send

    def waiting_for(self) -> list[int]:
        return list(self._asked)

    def again(self, peer: int, at_ms: int) -> None:
        """The request got lost; retry at this time."""
        self._asked.pop(peer, None)
        self._due[peer] = at_ms

    def done(self, peer: int) -> None:
        self._asked.pop(peer, None)
        self._due.pop(peer, None)

    @property
    def pending(self) -> bool:
        return bool(self._due or self._asked)

    def next_deadline_ms(self) -> int | None:
        return earliest(self._due.values())


class Ballot:
    """The votes of one election, or of its rehearsal. The node's own vote is there from the start.

    A vote is provisional when its voter may have lost its disk (R-217): such votes count only together with those of
    all voters. Then nobody has more than the candidate, and nothing that still exists is lost.
    """

    def __init__(self, node_id: int, voters: Sequence[int], now_ms: int, provisional: bool = False) -> None:
        self._majority = len(voters) // 2 + 1
        self.granted: list[int] = [node_id]
        self._provisional: list[int] = [node_id] if provisional else []
        self._refused: list[int] = []
        self._unreachable: dict[int, None] = {}
        self._voters = len(voters)
        self.disbelieved = 0  # refusals for a leader that is known to be gone; their voters are asked again
        self.retries = Retries((voter for voter in voters if voter != node_id), now_ms)

    def grant(self, voter: int, now_ms: int, provisional: bool = False) -> None:
        """After a provisional vote the others are asked again: they may have granted theirs before that voter lost its
        disk, and have elected another leader with its vote since.
        """
        self.retries.done(voter)
        self._unreachable.pop(voter, None)
        self.granted.append(voter)
        if provisional:
            self._provisional.append(voter)
            sound = [each for each in self.granted[1:] if each not in self._provisional]
            self.granted = [each for each in self.granted if each not in sound]
            for each in (*sound, *self.retries.waiting_for()):
                self.retries.again(each, now_ms)

    def refuse(self, voter: int) -> None:
        self.retries.done(voter)
        self._unreachable.pop(voter, None)
        self._refused.append(voter)

    def unreachable(self, voter: int, retry_at_ms: int) -> None:
        """No process listens there: the vote may still come, but is not waited for."""
        self._unreachable[voter] = None
        self.retries.again(voter, retry_at_ms)

    @property
    def won(self) -> bool:
        return len(self.granted) - len(self._provisional) >= self._majority or len(self.granted) == self._voters

    @property
    def electors(self) -> tuple[int, ...]:
        """Whose votes counted when it was won."""
        everybody = len(self.granted) == self._voters
        return tuple(voter for voter in self.granted if everybody or voter not in self._provisional)

    @property
    def lost(self) -> bool:
        """Whether the votes that may still come are too few. An unreachable voter is not waited for."""
        missing = len(self._refused) + len(self._unreachable)
        return missing > 0 and self._voters - missing - len(self._provisional) < self._majority


@dataclass(slots=True)
class Search:
    """An observer's search for the leader: it tries one voter after the other with a fetch (R-214)."""

    voters: list[int]
    at_ms: int
    asked: int = 0  # voters asked so far
    in_flight: SendRequest | None = None

    def may_ask(self, now_ms: int) -> bool:
        return self.in_flight is None and now_ms >= self.at_ms

    def next_voter(self) -> int:
        return self.voters[self.asked % len(self.voters)]


@dataclass(slots=True)
class Unattached:
    election_at_ms: int | None  # of a voter
    search: Search | None = None  # of an observer
    leader_id: int = NO_NODE

    def next_deadline_ms(self) -> int | None:
        if self.search is None:
            return self.election_at_ms
        return self.search.at_ms if self.search.in_flight is None else None


@dataclass(slots=True)
class Prospective:
    ballot: Ballot
    timeout_at_ms: int
    leader_id: int = NO_NODE

    def next_deadline_ms(self) -> int | None:
        return earliest((self.timeout_at_ms, self.ballot.retries.next_deadline_ms()))


@dataclass(slots=True)
class Candidate:
    ballot: Ballot
    timeout_at_ms: int  # also the end of the back-off, once the election is lost
    backing_off: bool = False
    leader_id: int = NO_NODE

    def next_deadline_ms(self) -> int | None:
        if self.backing_off:
            return self.timeout_at_ms
        return earliest((self.timeout_at_ms, self.ballot.retries.next_deadline_ms()))


@dataclass(slots=True)
class Download:
    """A snapshot being fetched from the leader, with the number of bytes received."""

    snapshot: SnapshotId
    position: int = 0
    size: int | None = None  # of the whole file, once the leader has said it
    checking: bool = False  # it is whole, and being read to its end


@dataclass(slots=True)
class Follower:
    """`timeout_at_ms` is when the leader counts as lost. One fetch is in flight at most; `fetch_at_ms` is when the
    next may go.
    """

    leader_id: int
    timeout_at_ms: int
    fetch_at_ms: int
    heard_at_ms: int | None = None  # when the leader last spoke to us, in this role
    in_flight: SendRequest | None = None
    dialling: bool = False  # no fetch goes before it is known whether anybody listens
    looking: bool = False  # the same is asked beside a fetch, since another voter knows no leader
    failures: int = 0  # fetches without an answer, one after the other
    flushed: bool = True  # all that was appended is on the disk: a fetch may say so
    download: Download | None = None  # what is fetched instead of records
    failed_downloads: int = 0  # one after the other; unlike `failures`, although the leader answers all the time

    def hears(self, now_ms: int) -> bool:
        """Whether a leader is known to live: then a pre-vote is refused (R-215)."""
        return self.heard_at_ms is not None and now_ms < self.timeout_at_ms

    def heard(self, now_ms: int, fetch_timeout_ms: int) -> None:
        """The leader has responded, and may be asked again."""
        self.heard_at_ms = self.fetch_at_ms = now_ms
        self.timeout_at_ms = now_ms + fetch_timeout_ms
        self.failures = 0

    @property
    def checking(self) -> bool:
        """Whether this node itself is delaying the fetches: nothing is requested, and no peer is given up."""
        return self.download is not None and self.download.checking

    @property
    def _idle(self) -> bool:
        return self.in_flight is None and not self.dialling and self.flushed and not self.checking

    def may_fetch(self, now_ms: int) -> bool:
        return self._idle and now_ms >= self.fetch_at_ms

    def timed_out(self, now_ms: int) -> bool:
        return now_ms >= self.timeout_at_ms and not self.checking

    def next_deadline_ms(self) -> int | None:
        if self.checking:
            return None
        return earliest((self.timeout_at_ms, self.fetch_at_ms if self._idle else None))


@dataclass(slots=True)
class Resigned:
    successors: tuple[int, ...]
    election_at_ms: int
    retries: Retries  # the voters that have not heard of it
    leader_id: int = field(default=NO_NODE)

    def next_deadline_ms(self) -> int | None:
        return earliest((self.election_at_ms, self.retries.next_deadline_ms()))
