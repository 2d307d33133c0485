"""The settings of a node of the metadata quorum, and its callbacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from odradek_proto.values import Value

from odradek_broker.core.quorum.messages import QuorumConfig
from odradek_broker.storage.settings import LogSettings


class QuorumSettings(Value, frozen=True):
    """Who the node is and how long it waits. A `node_id` that is no voter makes an observer. Times in milliseconds."""

    node_id: int
    cluster_id: str
    voters: Mapping[int, str]  # node id -> host:port of its CONTROLLER listener
    election_timeout_ms: int = 1_000  # controller.quorum.election.timeout.ms, Kafka's default
    fetch_timeout_ms: int = 2_000  # controller.quorum.fetch.timeout.ms
    election_backoff_max_ms: int = 1_000  # controller.quorum.election.backoff.max.ms
    request_timeout_ms: int = 2_000  # controller.quorum.request.timeout.ms
    retry_backoff_ms: int = 20  # controller.quorum.retry.backoff.ms; a refused voter is asked again after this
    fetch_max_wait_ms: int = 500  # Kafka's MAX_FETCH_WAIT_MS
    fetch_max_bytes: int = 1_048_576
    snapshot_max_bytes: int = 20_971_520  # metadata.log.max.record.bytes.between.snapshots
    snapshot_max_interval_ms: int = 3_600_000  # metadata.log.max.snapshot.interval.ms
    retention_bytes: int = 104_857_600  # metadata.max.retention.bytes
    retention_ms: int = 604_800_000  # metadata.max.retention.ms
    segment_bytes: int = 1_073_741_824  # metadata.log.segment.bytes
    segment_ms: int = 604_800_000  # metadata.log.segment.ms

    def core(self) -> QuorumConfig:
        """What the core needs of it. Raises `ValueError` without voters."""
        if not self.voters:
            raise ValueError("a quorum needs at least one voter")
        shared = {name: getattr(self, name) for name in QuorumConfig.__struct_fields__}
        return QuorumConfig(**shared | {"voters": tuple(sorted(self.voters))})

    def log(self) -> LogSettings:
        """How the metadata log is kept. Retention is not by segments here: it follows the snapshots."""
        return LogSettings(segment_bytes=self.segment_bytes, segment_ms=self.segment_ms, retention_ms=-1)


class QuorumListener(Protocol):
    """What is built on the log: a state that follows from the committed records.

    All calls are synchronous; `QuorumNode.append` may be called inside those whose names begin with "on".
    """

    def freeze(self) -> Callable[[], Iterator[bytes]]:
        """The state as it is now, as records that make it. Quick; what it returns is called and read in a thread."""

    def load(self, end_offset: int, epoch: int, records: Iterator[bytes]) -> object:
        """The state that the records of a snapshot make; nothing changes yet. Called in a thread.

        `records` raise `ValueError` when the snapshot is damaged, and so does this method.
        """

    def on_snapshot(self, end_offset: int, epoch: int, state: object) -> None:
        """The state is this one now, which `load` returned. Batches from `end_offset` on follow."""

    def on_commit(self, base_offset: int, epoch: int, records: Sequence[bytes]) -> None:
        """The records of one batch below the high watermark, in order, each once per life of the process.

        Control records are left out, but they take offsets: `base_offset` may jump.
        """

    def on_control(self, end_offset: int, epoch: int) -> None:
        """Control records below the high watermark end here: the state is the same, and as new as a snapshot of it."""

    def on_leader(self, epoch: int) -> None:
        """This node leads, and everything in front of its epoch has been handed to `on_commit`."""

    def on_resigned(self, epoch: int) -> None:
        """The leadership that `on_leader` announced is over.

        What it appended and did not commit is for others to decide (R-216).
        """

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        """On every node: who leads, as far as this node knows; -1 for nobody."""
