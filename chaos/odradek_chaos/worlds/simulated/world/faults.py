"""What nemeses do to a cluster, and how it ends: kills, stops, power losses, outages, and whatever has to be mended.

Who strikes when, and at whom, is the nemeses' business (`faults/`); here a fault is noted, counted and ended in time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.cluster.timeline import Timeline
from odradek_chaos.worlds.simulated.net.links import Delay
from odradek_chaos.worlds.simulated.plan.script import Injection
from odradek_chaos.worlds.simulated.world.unavailability import Unavailability

STOP_POLL_MS = 20


class Faults:
    """Of one run. `faulty` is true while nemeses may strike; `pending` counts faults that began and have not ended."""

    def __init__(self, cluster: SimCluster, timeline: Timeline, usual_delay: Delay) -> None:
        self.faulty = False
        self.pending = 0
        self.counts: Counter[str] = Counter()
        self.injected: list[Injection] = []
        self.unavailability = Unavailability()
        self.usual_delay = usual_delay  # of links without a fault, in milliseconds
        self.client_names: list[str] = []  # of those that may be crashed
        self.on_client_crash: Callable[[str, int], None] = lambda name, down_ms: None
        self.on_fault: Callable[[], None] = lambda: None  # called before a fault is noted
        self._cluster = cluster
        self._loop = cluster.loop
        self._timeline = timeline
        self._kept: dict[int, None] = {}  # brokers that stay dead, or frozen, as they are
        self._when_healed: list[Callable[[], None]] = []
        self._outages: Counter[int] = Counter()  # brokers that nobody but the holder of the outage may start

    # --- what is noted

    def fault(self, name: str, broker_id: int = 0, /, **facts: object) -> None:
        """Note a fault that is about to strike."""
        self.on_fault()
        self.counts[name] += 1
        self.unavailability.struck(self._loop.now_us, name)
        self._loop.trace(f"fault {name} {broker_id}")
        self._timeline.note(f"!{name}", broker_id, **facts)

    def take_back(self, name: str) -> None:
        """An injection of this kind found nothing to strike at, or not yet: it is not counted as one."""
        self.counts -= Counter((name,))

    def count(self, name: str) -> None:
        """What was taken back has found it."""
        self.counts[name] += 1

    # --- time

    def later(self, delay_ms: float, act: Callable[[], object]) -> None:
        self._loop.call_world_at(self._loop.now_us + int(delay_ms * 1000), act)

    def mend(self, delay_ms: float, act: Callable[[], object]) -> None:
        """End a fault after a while; until then it is pending."""
        self.pending += 1

        def end() -> None:
            self.pending -= 1
            act()

        self.later(delay_ms, end)

    # --- processes and machines

    def kill(self, broker_id: int, down_ms: float, name: str) -> None:
        """SIGKILL, and a new process after `down_ms`."""
        self.fault(name, broker_id, down_ms=round(down_ms))
        self._cluster.machines[broker_id].kill()
        self.mend(down_ms, partial(self.start, broker_id))

    def stop(self, broker_id: int, down_ms: float, name: str) -> None:
        """SIGTERM, and a new process `down_ms` after the old one has ended."""
        self.fault(name, broker_id, down_ms=round(down_ms))
        machine = self._cluster.machines[broker_id]
        stopped = machine.incarnation
        self._cluster.stop(broker_id)

        def start_again() -> None:
            if not machine.is_running:
                self.mend(down_ms, partial(self.start, broker_id))
            elif machine.incarnation == stopped:
                self.mend(STOP_POLL_MS, start_again)

        start_again()

    def power_loss(self, broker_id: int, dark_ms: float, name: str) -> None:
        """A machine without power for a while."""
        self.fault(name, broker_id, dark_ms=round(dark_ms))
        self.power_off(broker_id)
        self.mend(dark_ms, partial(self.start, broker_id))

    def power_off(self, broker_id: int) -> None:
        self._cluster.machines[broker_id].power_loss()

    def start(self, broker_id: int) -> None:
        is_barred = self._outages[broker_id] or broker_id in self._kept
        if not self._cluster.machines[broker_id].is_running and not is_barred:
            self._timeline.note("!start", broker_id)
            self._cluster.start(broker_id)

    def begin_outage(self, broker_id: int) -> None:
        """Kill a broker; nobody starts it until `end_outage`."""
        self._outages[broker_id] += 1
        self._timeline.hidden[broker_id] = None
        self._cluster.machines[broker_id].kill()

    def end_outage(self, broker_id: int, down_ms: float) -> None:
        self._outages[broker_id] -= 1
        self._timeline.hidden.pop(broker_id, None)
        self.mend(down_ms, partial(self.start, broker_id))

    def keep(self, broker_id: int) -> None:
        """Nobody starts or thaws this broker before the next `heal`: faults that began earlier end meanwhile."""
        self._kept[broker_id] = None

    def fill(self, broker_id: int, left_bytes: int, emptied: Callable[[], None]) -> Callable[[], None]:
        """Leave a broker's disk few bytes. Returns what ends it, unless another fault has filled the disk since."""
        disk = self._cluster.machines[broker_id].disk
        filled = disk.quota = disk.used + left_bytes

        def empty() -> None:
            if disk.quota == filled:
                disk.quota = None
            emptied()

        return empty

    def fill_until_healed(self, broker_id: int, left_bytes: int, emptied: Callable[[], None]) -> None:
        self._when_healed.append(self.fill(broker_id, left_bytes, emptied))

    def resume(self, broker_id: int) -> None:
        """End the freezing of a broker."""
        if broker_id not in self._kept:
            self._cluster.machines[broker_id].resume()

    def crash_client(self, name: str, down_ms: int) -> None:
        self.on_client_crash(name, down_ms)

    def heal(self, besides: int = 0) -> None:
        """End all faults: links work, everybody runs, disks are sound. One machine may be left as it is."""
        self.faulty = False
        self._timeline.note("!heal")
        self._kept.clear()
        when_healed, self._when_healed = self._when_healed, []
        for end in when_healed:
            end()
        fabric = self._cluster.fabric
        for link in fabric.links():
            link.delay = self.usual_delay
            link.lose_requests = link.lose_replies = link.duplicate_requests = 0.0
        fabric.held.clear()
        fabric.heal_all()
        for client in self._cluster.clients:
            client.resume()
        for broker_id, machine in self._cluster.machines.items():
            machine.disk.heal()
            machine.monotonic.go_at(1.0)
            if broker_id != besides:
                machine.resume()
                self.start(broker_id)
