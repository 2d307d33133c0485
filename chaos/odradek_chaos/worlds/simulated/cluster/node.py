"""A simulated machine and the process on it: started, paused, killed, cut from power, started again.

The order of a kill matters. Cancelling a task runs its `finally` blocks, which a kill -9 would not have run: so first
its network and files are cut off, and only then its tasks are cancelled.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.clock import Monotonic, SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.kernel.process import Process
from odradek_chaos.worlds.simulated.net.fabric import SimFabric
from odradek_chaos.worlds.simulated.net.network import SimNetwork

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodePorts:
    """All that a process gets from its world."""

    node: str
    incarnation: int
    clock: SimClock
    files: SimFiles
    network: SimNetwork


Main = Callable[[NodePorts], Coroutine[Any, Any, None]]


class SimNode:
    """One machine. `start` runs a new incarnation of a program on the disk that the last one left."""

    def __init__(
        self, name: str, loop: SimLoop, fabric: SimFabric, disk: SimDisk | None = None, skew_ms: int = 0
    ) -> None:
        self.name = name
        self.rng = loop.fork_rng(f"node {name}")
        self.disk = disk or SimDisk(loop.fork_rng(f"disk {name}"))
        self.skew_ms = skew_ms
        self.monotonic = Monotonic(loop)
        self.incarnation = 0
        self.failure: BaseException | None = None  # what the last incarnation died of by itself
        self._loop = loop
        self._fabric = fabric
        self._on_end: Callable[[], None] | None = None
        self._process: Process | None = None
        self._ports: NodePorts | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def is_paused(self) -> bool:
        return self._process is not None and self._process.paused

    @property
    def tasks(self) -> list[asyncio.Task[Any]]:
        """Of the process that runs; some may be done."""
        return [] if self._process is None else self._process.tasks

    @property
    def ports(self) -> NodePorts:
        """Of the incarnation that runs."""
        assert self._ports is not None, f"{self.name} does not run"
        return self._ports

    def start(
        self, main: Main, after_step: Callable[[], None] | None = None, on_end: Callable[[], None] | None = None
    ) -> NodePorts:
        """Run `main` as a new process. When it returns or raises, the process has exited.

        `after_step` is called after each of its callbacks, `on_end` when it has ended, by whatever cause.
        """
        assert self._process is None, f"{self.name} runs already"
        self._fabric.machine_on(self.name)
        self.incarnation += 1
        self.failure = None
        loop = self._loop
        rng = random.Random(self.rng.getrandbits(64))
        process = loop.new_process(f"{self.name}.{self.incarnation}")
        process.after_step = after_step
        self._on_end = on_end
        ports = NodePorts(
            self.name,
            self.incarnation,
            SimClock(loop, rng, self.skew_ms, self.monotonic),
            SimFiles(self.disk, loop, random.Random(self.rng.getrandbits(64))),
            SimNetwork(self._fabric, self.name),
        )
        loop.trace(f"start {process.name}")
        self._process, self._ports = process, ports
        self._task = loop.spawn(process, main(ports))
        self._task.add_done_callback(lambda task: self._exited(process, task), context=loop.context_of(None))
        return ports

    async def wait(self) -> None:
        """Return when the process that runs now has returned or raised; at once when none runs."""
        if self._process is not None and self._task is not None:
            await asyncio.wait((self._task,))

    def pause(self) -> None:
        """SIGSTOP: nothing of it runs, timers included, while its kernel goes on."""
        if self._process is not None:
            self._loop.trace(f"pause {self._process.name}")
            self._loop.pause(self._process)

    def resume(self) -> None:
        if self._process is not None:
            self._loop.trace(f"resume {self._process.name}")
            self._loop.resume(self._process)

    def kill(self) -> None:
        """SIGKILL: the page cache stays, the kernel closes the sockets."""
        self._end(power=True)

    def power_loss(self) -> None:
        """The whole machine stops in silence, and its disk forgets what was not flushed."""
        self._end(power=False)
        self._fabric.machine_off(self.name)
        self.disk.power_loss(self.rng)

    def _end(self, power: bool) -> None:
        process, ports = self._process, self._ports
        self._process = self._ports = None
        if process is None or ports is None:
            return
        self._loop.trace(f"{'kill' if power else 'power loss'} {process.name}")
        if power:
            ports.network.killed()
        else:
            ports.network.vanished()
        ports.files.detach()
        self._loop.kill(process)
        if self._on_end is not None:
            self._on_end()

    def _exited(self, process: Process, task: asyncio.Task[None]) -> None:
        if task.cancelled() or self._process is not process:
            return
        self.failure = task.exception()
        if self.failure is not None:
            logger.warning("%s exited by %r at %d us", process.name, self.failure, self._loop.now_us)
        self.kill()
