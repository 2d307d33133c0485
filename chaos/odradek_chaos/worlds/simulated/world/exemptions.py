"""Which findings a fault exempts, limited to the broker that it hit, to what a disk can raise, and to a time.

A broker whose disk fails may end by itself and may log errors, by what a disk raises and nothing else: from the fault
until the first start after it is over. A mistake of the product is exempt under damaged bytes alone, or where no
recovery is owed. One that was started on the wrong disk is exempt for that incarnation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from odradek_broker.storage.errors import StorageError

from odradek_chaos.worlds.simulated.cluster.cluster import Crash, SimCluster

FROM_A_DISK = (OSError, StorageError)
ANYBODY = 0


class Exemptions:
    """Of one run. `damaged` and `tolerated` are written by the faults themselves."""

    def __init__(self, cluster: SimCluster, *, recovers: bool) -> None:
        # (broker, partition) whose bytes a fault changed, and the last incarnation before the copy was replaced, or -1
        self.damaged: dict[tuple[int, str], int] = {}
        # (check, broker or `ANYBODY`): what a fault did and the product need not undo is what the check says
        self.tolerated: dict[tuple[str, int], None] = {}
        self.bytes_were_damaged = False
        self._cluster = cluster
        self._recovers = recovers
        self._failing: Counter[int] = Counter()  # faults of a broker's disk that are not over
        self._exempt: dict[int, int] = {}  # brokers whose disk failed once, and the last incarnation that it concerned
        self._foreign: dict[tuple[int, int], None] = {}  # (broker, incarnation) on the disk of somebody else
        self._owners: dict[int, int] = {}  # of disks that stand in the machine of another broker now, by that broker

    def tampered_with(self, broker_id: int) -> Callable[[], None]:
        """The disk in this broker's machine fails; if it is another's, that one has it back later.

        Returns what to call when that fault is over, wherever the disk is then. What it left in a process goes with
        that process.
        """
        concerned = {broker_id, self._owners.get(broker_id, broker_id)}
        for each in sorted(concerned):
            self._failing[each] += 1
            self._exempt.setdefault(each, 0)

        def mended() -> None:
            for each in sorted(concerned):
                self._failing[each] -= 1
                self._exempt[each] = self._cluster.machines[each].incarnation

        return mended

    def swapped(self, one: int, other: int) -> None:
        """The disks of two machines change places, or go back to their own."""
        owners = self._owners
        owners[one], owners[other] = owners.get(other, other), owners.get(one, one)

    def has_foreign_disk(self, broker_id: int) -> bool:
        return self._owners.get(broker_id, broker_id) != broker_id

    def foreign_disk(self, broker_id: int) -> None:
        """The incarnation that was started just now runs on the disk of another broker."""
        self._foreign[broker_id, self._cluster.machines[broker_id].incarnation] = None

    def damaged_bytes(self, broker_id: int, partition: str) -> None:
        """Bytes of this copy were changed behind its broker's back."""
        self.tampered_with(broker_id)
        self.damaged[broker_id, partition] = -1
        self.bytes_were_damaged = True

    def tolerate(self, check: str, broker_id: int = ANYBODY) -> None:
        self.tolerated[check, broker_id] = None

    # --- what is exempt

    def has_disk(self, broker_id: int) -> bool:
        """Whether its disk was ever tampered with."""
        return broker_id in self._exempt

    def is_finding_exempt(self, check: str, broker_id: int, partition: str) -> bool:
        if (broker_id, partition) in self.damaged:
            return True
        return (check, broker_id) in self.tolerated or (check, ANYBODY) in self.tolerated

    def is_crash_exempt(self, crash: Crash) -> bool:
        """Whether a broker that ended by itself did so because of its disk."""
        return self._may_raise(crash.broker_id, crash.incarnation, crash.error)

    def is_log_exempt(self, error: BaseException | None) -> bool:
        """Whether the process whose callback runs now may log an error, by its words alone when there is no `error`."""
        speaker = self._cluster.loop.current_process().name
        for broker_id, machine in self._cluster.machines.items():
            if speaker.rpartition(".")[0] == machine.name:
                return self._may_raise(broker_id, int(speaker.rpartition(".")[2]), error)
        return False

    def _may_raise(self, broker_id: int, incarnation: int, error: BaseException | None) -> bool:
        is_foreign = (broker_id, incarnation) in self._foreign
        is_failing = self._failing[broker_id] > 0 or incarnation <= self._exempt.get(broker_id, 0)
        if not is_foreign and not is_failing:
            return False
        is_damaged = any(damaged == broker_id for damaged, _ in self.damaged)
        return is_damaged or not self._recovers or error is None or _is_from_a_disk(error)


def _is_from_a_disk(error: BaseException) -> bool:
    """Whether it is what a disk makes a broker raise, or was raised from that, with all that a group holds."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_from_a_disk, error.exceptions))
    return isinstance(error, FROM_A_DISK) or (error.__cause__ is not None and _is_from_a_disk(error.__cause__))
