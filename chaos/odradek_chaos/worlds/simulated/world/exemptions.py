"""Which findings a fault exempts, limited to the broker that it hit.

A broker whose disk was tampered with may end by itself and may log errors; a broken assertion, or what else a mistake
in the product raises, is excused by damaged bytes alone, or where no recovery is owed. One that was started on the
wrong disk is excused for that life. Nobody is excused for what was done to another one.
"""

from __future__ import annotations

from odradek_chaos.worlds.simulated.cluster.cluster import Crash, SimCluster

MISTAKES = (AssertionError, ArithmeticError, AttributeError, LookupError, NameError, TypeError)  # no disk raises these
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
        self._disks: dict[int, None] = {}  # brokers whose disk was tampered with
        self._lives: dict[tuple[int, int], None] = {}  # (broker, incarnation) on the disk of somebody else
        self._owners: dict[int, int] = {}  # of disks that stand in the machine of another broker now, by that broker

    def tampered_with(self, broker_id: int) -> None:
        """The disk in this broker's machine was tampered with; if it is another's, he has it back later."""
        self._disks[broker_id] = None
        if broker_id in self._owners:
            self._disks[self._owners[broker_id]] = None

    def swapped(self, one: int, other: int) -> None:
        """The disks of two machines change places, or go back to their own."""
        owners = self._owners
        owners[one], owners[other] = owners.get(other, other), owners.get(one, one)

    def foreign_disk(self, broker_id: int) -> None:
        """The incarnation that was started just now runs on the disk of another broker."""
        self._lives[broker_id, self._cluster.machines[broker_id].incarnation] = None

    def damaged_bytes(self, broker_id: int, partition: str) -> None:
        """Bytes of this copy were changed behind its broker's back."""
        self.tampered_with(broker_id)
        self.damaged[broker_id, partition] = -1
        self.bytes_were_damaged = True

    def tolerate(self, check: str, broker_id: int = ANYBODY) -> None:
        self.tolerated[check, broker_id] = None

    # --- what is excused

    def has_disk(self, broker_id: int) -> bool:
        return broker_id in self._disks

    def is_finding_exempt(self, check: str, broker_id: int, partition: str) -> bool:
        if (broker_id, partition) in self.damaged:
            return True
        return (check, broker_id) in self.tolerated or (check, ANYBODY) in self.tolerated

    def is_crash_exempt(self, crash: Crash) -> bool:
        """Whether a broker that ended by itself did so because of its disk."""
        if (crash.broker_id, crash.incarnation) not in self._lives and not self.has_disk(crash.broker_id):
            return False
        is_damaged = any(broker_id == crash.broker_id for broker_id, _ in self.damaged)
        return is_damaged or not self._recovers or not _is_mistake(crash.error)

    def is_log_exempt(self) -> bool:
        """Whether the process whose callback runs now may log errors: its disk failed it."""
        speaker = self._cluster.loop.current_process().name
        for broker_id, machine in self._cluster.machines.items():
            if speaker.rpartition(".")[0] == machine.name:
                life = int(speaker.rpartition(".")[2])
                return self.has_disk(broker_id) or (broker_id, life) in self._lives
        return False


def _is_mistake(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return error.split(MISTAKES)[0] is not None
    return isinstance(error, MISTAKES)
