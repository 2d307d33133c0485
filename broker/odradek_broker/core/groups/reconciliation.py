"""From a member's current assignment to its target: revoke first, then take free partitions (K-59).

A member that must give partitions up keeps its epoch and is UNREVOKED until it confirms that it no longer owns them.
Only then it moves to the epoch of the target assignment, with the available part of it: partitions that another member
still owns come later, and until then it is UNRELEASED.
"""

from __future__ import annotations

from collections.abc import Callable

from odradek_broker.core.groups.consumer_records import CurrentAssignment, MemberState
from odradek_broker.core.groups.messages import Assignment


def reconcile(
    current: CurrentAssignment,
    target_epoch: int,
    target: Assignment,
    is_owned: Callable[[bytes, int], bool],
    owned: Assignment | None,
) -> CurrentAssignment:
    """The next assignment of one member; the same object where nothing moves.

    `is_owned` tells whether any member owns a partition; `owned` is what this member says that it owns, None for
    nothing said.
    """
    epoch = current.epoch
    if current.state == MemberState.STABLE and epoch == target_epoch:
        return current
    if current.state == MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, current.to_revoke):
            return current
        epoch += 1
    kept = _where(current.assigned, lambda topic_id, partition: partition in target.get(topic_id, ()))
    to_revoke = minus(current.assigned, kept)
    if to_revoke and _owns_any(owned, to_revoke):
        return _moved(current, epoch, MemberState.UNREVOKED_PARTITIONS, kept, to_revoke)
    added = minus(target, kept)
    # What this member itself has just given up is free for others, not for itself: it is not in its target.
    free = _where(added, lambda topic_id, partition: not is_owned(topic_id, partition))
    state = MemberState.STABLE if free == added else MemberState.UNRELEASED_PARTITIONS
    return _moved(current, target_epoch, state, _union(kept, free), {})


def _moved(
    current: CurrentAssignment, epoch: int, state: MemberState, assigned: Assignment, to_revoke: Assignment
) -> CurrentAssignment:
    # As Kafka's: a member that moved twice may not come with the epoch before the last any more.
    moved = CurrentAssignment(epoch, current.epoch, state, assigned, to_revoke)
    return current if moved == current else moved


def _owns_any(owned: Assignment | None, wanted: Assignment) -> bool:
    """Whether the member may still own any of these; nothing said means yes."""
    if owned is None:
        return True
    return any(not set(wanted.get(topic_id, ())).isdisjoint(partitions) for topic_id, partitions in owned.items())


def contains(assignment: Assignment, part: Assignment) -> bool:
    return all(set(partitions) <= set(assignment.get(topic_id, ())) for topic_id, partitions in part.items())


def minus(left: Assignment, right: Assignment) -> Assignment:
    return _where(left, lambda topic_id, partition: partition not in right.get(topic_id, ()))


def _union(left: Assignment, right: Assignment) -> Assignment:
    merged = {topic_id: {*left.get(topic_id, ()), *right.get(topic_id, ())} for topic_id in (*left, *right)}
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in merged.items()}


def _where(source: Assignment, keep: Callable[[bytes, int], bool]) -> Assignment:
    chosen = {
        topic_id: tuple(partition for partition in partitions if keep(topic_id, partition))
        for topic_id, partitions in source.items()
    }
    return {topic_id: partitions for topic_id, partitions in chosen.items() if partitions}
