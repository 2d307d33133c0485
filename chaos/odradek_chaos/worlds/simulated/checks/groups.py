"""What members of a consumer group are told, held to what has to be true of it (K-64).

Each answer is judged by what everybody had been told before its question left: answers may come late, but a question
cannot be answered by what was over before it was asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from odradek_proto.errors import ErrorCode

from odradek_chaos.worlds.simulated.checks.committed_groups import CommittedGroup

ONE_OWNER, GENERATION_FELL, OFFSET_FELL = "group-one-owner", "group-generation-rises", "group-offset-monotone"
OVER, UNCOMMITTED = "group-over-is-refused", "group-visible-committed"
DELIVERED = "group-delivered-once-per-commit"


class GroupHistory:
    """Of one group. Generations and offsets count from answers alone: what nobody was told may be lost.

    And what somebody was told is committed by then, so that no failover takes it back.
    """

    def __init__(self, report: Callable[[str, str], None], committed: CommittedGroup | None = None) -> None:
        self._report = report
        self._committed = committed
        self.generation_id = -1  # the newest that a member has synced in
        self.offsets: dict[int, int] = {}  # by partition: the largest that was acknowledged or read
        self.commits = 0
        self._owners: dict[tuple[int, int], str] = {}  # by generation and partition
        self._processed: set[tuple[int, int]] = set()  # partitions and offsets

    def on_synced(self, member: str, generation_id: int, owned: tuple[int, ...], newest_asked: int) -> None:
        """`newest_asked` is the newest generation when it asked. A member is who it was when it joined."""
        if generation_id < newest_asked:
            self._report(GENERATION_FELL, f"{member} synced in {generation_id}, others in {newest_asked} before")
        if generation_id > self.generation_id:
            self.generation_id = generation_id
            committed = None if self._committed is None else self._committed.generation()
            if committed is not None and committed < generation_id:
                self._report(UNCOMMITTED, f"{member} synced in {generation_id}, and {committed} is committed")
        for partition in owned:
            owner = self._owners.setdefault((generation_id, partition), member)
            if owner != member:
                self._report(ONE_OWNER, f"{owner} and {member} own partition {partition} in generation {generation_id}")

    def on_committed(self, partition: int, offset: int) -> None:
        self.commits += 1
        self._on_offset(partition, offset)

    def on_late_commit(self, member: str, error: ErrorCode) -> None:
        """What was said to a commit of a generation that is over, or of a process that was replaced (K-50)."""
        if error is ErrorCode.NONE:
            self._report(OVER, f"a commit was taken from {member}, whose generation was over when it asked")

    def on_fetched(self, member: str, partition: int, offset: int, least: int) -> None:
        """`least` is the largest that anybody had been told of when it asked."""
        if offset < least:
            self._report(OFFSET_FELL, f"{member} reads offset {offset} of partition {partition}, it was {least} before")
        self._on_offset(partition, offset)

    def _on_offset(self, partition: int, offset: int) -> None:
        if offset > self.offsets.get(partition, -1):
            self.offsets[partition] = offset
            committed = None if self._committed is None else self._committed.offset(partition)
            if committed is not None and committed < offset:
                self._report(UNCOMMITTED, f"offset {offset} of partition {partition} is told, {committed} committed")

    # --- records, of members that read them before they commit ------------------------------------------------------

    def on_processed(self, member: str, partition: int, offset: int, least: int = -1) -> None:
        """`least`: of the first record since a partition was assigned, what anybody was told is committed by then."""
        self._processed.add((partition, offset))
        if offset < least:
            sentence = f"{member} begins at offset {offset} of partition {partition}, {least} was committed before"
            self._report(DELIVERED, sentence)

    def judge(self, records: Iterable[tuple[int, int]]) -> None:
        """Partitions and offsets of all records that are left at the end: those before a commit were processed."""
        for partition, offset in records:
            committed = self.offsets.get(partition, -1)
            if offset < committed and (partition, offset) not in self._processed:
                sentence = f"nobody processed offset {offset} of partition {partition}, and {committed} is committed"
                self._report(DELIVERED, sentence)
