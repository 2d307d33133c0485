"""Who decides at the product's chance points in a simulated run, and what a run has reached.

Each point is drawn by the seed and its own name, so that a new point does not shift the luck of the others. A point
that is drawn strikes with its probability while there are faults; cleanly none does, so that what is owed then is
owed by the product as it is.
"""

from __future__ import annotations

from collections import Counter
from random import Random

from odradek_chaos.worlds.simulated.kernel.loop import SimLoop

SHARE = 0.3  # of the points that strike in one run

POINTS = {
    "acknowledgement-lost": "a producer loses a response with its stream, and resends everything",
    "cache-forgets": "a log's recent batches leave memory at once; reads go to the disk",
    "clean-stop-disbelieved": "a start recovers a log although it was closed cleanly",
    "cleaner-map-small": "a round of the cleaner has room for a few keys only",
    "cold-read-late": "a read from the disk takes twice as long",
    "consumer-fetches-little": "a consumer requests one batch per response",
    "consumer-redials": "a consumer loses its stream, and the response on it",
    "fetch-answer-partial": "a response leaves out partitions that are ready",
    "fetch-answer-small": "a response holds one batch",
    "fetch-request-partial": "a follower's message names some of the partitions that it could name",
    "fetch-wait-ends-early": "a follower gets a new high watermark at once, instead of with the next data",
    "fetcher-redials": "a follower loses its stream to the leader, and the response on it",
    "flush-late": "a flush begins 50 ms after its request",
    "high-watermark-checkpoint-late": "a checkpoint of the high watermarks is skipped",
    "index-entry-early": "an index entry for a batch that needs none",
    "isr-check-late": "a check for lagging followers is skipped",
    "isr-proposal-late": "an AlterPartition request waits for 30 ms",
    "isr-proposals-one-by-one": "an AlterPartition request holds one partition",
    "produce-answers-partial": "acknowledgements that are ready are sent one by one",
    "produce-request-small": "a producer's message holds one batch",
    "produce-times-out-early": "acks=all times out after 1 ms; the record may still be committed",
    "quorum-flush-late": "a flush of the metadata log takes three times as long",
    "quorum-leader-resigns": "the leader of the quorum resigns, and an election follows",
    "recovery-point-checkpoint-late": "a checkpoint of the recovery points is skipped",
    "segment-rolls-early": "a new segment begins long before the old one is full",
    "session-redials": "a broker ends its session stream, and opens another",
}
BRANCHES = {
    "cold-read": "a reader was served from the disk",
    "core-phase": "one machine stayed broken while the others had to be healthy (L3)",
    "divergence-of-several-rounds": "a truncation needed more than one response (KIP-279)",
    "duplicate-answered": "a batch that was already in the log was acknowledged with its first offset",
    "fenced-by-epoch": "a request was refused for its leader epoch",
    "isr-proposal-pending-refused": "an AlterPartition was answered with an error",
    "isr-shrunk-to-one": "a leader was the whole ISR",
    "log-recovered": "a log was read through after an unclean stop",
    "no-leader": "a partition had no leader for a while",
    "producer-truncated-away": "a truncation took records of an idempotent producer",
    "quorum-election": "the quorum held another election after the first",
    "replica-offline": "a replica stopped serving because its disk failed",
    "session-gap": "a broker lost its session and had to register or reconnect",
    "snapshot-installed": "a node got its metadata from a snapshot",
    "truncated": "a follower truncated its log",
}


class Buggify:
    """`Chance` of one run. `mode` is `drawn`, `all` or `none`."""

    def __init__(self, loop: SimLoop, mode: str) -> None:
        self.points: Counter[str] = Counter()  # how often each struck
        self.branches: Counter[str] = Counter()
        self.fires_now = True
        self._loop = loop
        self._mode = mode
        self._rngs: dict[str, Random | None] = {}  # None: this point does not strike in this run

    def fires(self, point: str, probability: float) -> bool:
        try:
            rng = self._rngs[point]
        except KeyError:
            rng = self._rngs[point] = self._draw(point)
        if rng is None or not self.fires_now or rng.random() >= probability:
            return False
        self.points[point] += 1
        return True

    def reached(self, branch: str) -> None:
        self.branches[branch] += 1

    def drawn(self) -> list[str]:
        """The points that strike in this run, of all there are."""
        return [point for point in POINTS if self._draw(point) is not None]

    def _draw(self, point: str) -> Random | None:
        rng = self._loop.fork_rng(f"chance {point}")
        is_in = rng.random() < SHARE
        return rng if self._mode == "all" or (is_in and self._mode == "drawn") else None
