"""One node of the metadata quorum: a voter, or an observer that only follows (A13; KIP-595, KIP-996, KIP-1166).

Rules of this module. The core in `core/quorum` decides; here its effects are carried out one after the other, disk before words:
what must be durable is, before the next effect begins. Nothing is swallowed: an exception that nobody expected stops the node and
comes out of `failed`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from odradek_proto.transport.ports import Clock, Files, Handlers, Network
from odradek_proto.v1 import admin_pb2


class NotLeader(Exception):
    """This node does not lead the quorum (any more). `leader_id` is the leader it knows, -1 for none."""

    def __init__(self, leader_id: int, epoch: int) -> None:
        super().__init__(f"not the leader of the quorum: leader {leader_id}, epoch {epoch}")
        self.leader_id = leader_id
        self.epoch = epoch


@dataclass(frozen=True, slots=True)
class QuorumSettings:
    """Who the node is and how long it waits. A `node_id` that is no voter makes an observer. Times in milliseconds."""

    node_id: int
    cluster_id: str
    voters: Mapping[int, str]  # node id -> host:port of its CONTROLLER listener
    election_timeout_ms: int = 1_000  # quorum.election.timeout.ms, Kafka's default
    fetch_timeout_ms: int = 2_000  # quorum.fetch.timeout.ms
    election_backoff_max_ms: int = 1_000  # quorum.election.backoff.max.ms
    request_timeout_ms: int = 2_000  # quorum.request.timeout.ms
    retry_backoff_ms: int = 20  # quorum.retry.backoff.ms; a refused voter is asked again after this
    fetch_max_wait_ms: int = 500
    fetch_max_bytes: int = 1_048_576


class QuorumListener(Protocol):
    """What is built on the log. All calls are synchronous, on the event loop; `QuorumNode.append` may be called inside them."""

    def on_commit(self, base_offset: int, epoch: int, records: Sequence[bytes]) -> None:
        """The records of one batch below the high watermark, in order, each once per life of the process.

        Control records are left out, but they take offsets: `base_offset` may jump.
        """

    def on_leader(self, epoch: int) -> None:
        """This node leads, and everything in front of its epoch has been handed to `on_commit`."""

    def on_resigned(self, epoch: int) -> None:
        """The leadership that `on_leader` announced is over; what it appended and did not commit is for others to decide (R-216)."""

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        """On every node: who leads, as far as this node knows; -1 for nobody."""


class QuorumNode:
    """A voter or observer of the quorum, its log and its durable state, from `start` to `stop`."""

    failed: asyncio.Future[None]  # made by `start`; ends with the error that stopped the node, if one does

    def __init__(
        self,
        settings: QuorumSettings,
        *,
        clock: Clock,
        network: Network,
        files: Files,
        log_directory: str,
        listener: QuorumListener,
        on_event: Callable[[str, Mapping[str, object]], None] | None = None,
    ) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Open the log `__cluster_metadata-0` and its `quorum-state` in the log directory, and take part until `stop`."""

    async def stop(self, graceful: bool = True) -> None:
        """Leave. A graceful leader first resigns and tells the voters who should follow (R-212)."""

    @property
    def leader_id(self) -> int:
        """The leader that this node knows, -1 for none."""
        raise NotImplementedError

    @property
    def epoch(self) -> int:
        raise NotImplementedError

    @property
    def is_leader(self) -> bool:
        raise NotImplementedError

    @property
    def high_watermark(self) -> int:
        raise NotImplementedError

    @property
    def log_end_offset(self) -> int:
        raise NotImplementedError

    def append(self, records: Sequence[bytes], *, epoch: int | None = None) -> int:
        """Append the records as one atomic batch; returns the offset of the first. Written at once, flushed soon.

        With `epoch`, only as the leader of that epoch. Raises `NotLeader`, and `ValueError` for no records.
        """
        raise NotImplementedError

    async def wait_committed(self, offset: int) -> None:
        """Wait until the record at `offset` lies below the high watermark. Raises `NotLeader` when the leadership ends before."""

    def handlers(self) -> Handlers:
        """The service `odradek.v1.Quorum`, for the CONTROLLER listener. Before `start` and after `stop` it says BROKER_NOT_AVAILABLE."""
        raise NotImplementedError

    def describe(self) -> admin_pb2.DescribeQuorumResponse:
        """Voters and observers as the leader sees them; NOT_LEADER_OR_FOLLOWER with the known leader elsewhere."""
        raise NotImplementedError
