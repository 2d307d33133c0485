"""Processes that die, stop, freeze and come back, one at a time or many."""

from __future__ import annotations

import asyncio
from functools import partial

from odradek_chaos.worlds.simulated.faults.choices import (
    BROKER,
    DOWN,
    MS,
    ORDER,
    PARTITION,
    ROLLING,
    SOME_MS,
    arguments,
)
from odradek_chaos.worlds.simulated.faults.nemesis import Choice, Nemesis


class Kill(Nemesis):
    name = "kill"
    does = "kill -9 of a leader, follower, controller or any broker; up to 3 s down"
    deadly = True
    takes = DOWN

    def choose(self) -> Choice:
        return {"broker": self.target(), "down_ms": self.a_while_ms(1, 3_000)}

    async def act(self, choice: Choice) -> None:
        self.world.faults.kill(choice["broker"], choice["down_ms"], self.name)


class DoubleKill(Nemesis):
    """Kill a leader, and its successor as soon as it leads: what B2b needs, by chance instead of by script.

    Before the first blow the leader's answers may be held up, so that its followers lag behind in what they know of
    the high watermark.
    """

    name = "kill-leader-and-successor"
    does = "kills a leader, and its successor as soon as it leads"
    deadly = True
    takes = arguments(**DOWN, partition=PARTITION, held_ms=MS, wait_ms=MS, second_down_ms=MS)

    def choose(self) -> Choice | None:
        tp = self.rng.choice(self.world.partitions)
        first = self.cluster.leader_of(tp)
        if first <= 0:
            return None
        return {
            "partition": tp.partition,
            "broker": first,
            "held_ms": round(self.rng.uniform(5, 60)) if self.rng.random() < 0.5 else 0,
            "down_ms": self.a_while_ms(1, 1_500),
            "wait_ms": self.rng.choice((0, 2, 20)),
            "second_down_ms": self.a_while_ms(1, 1_500),
        }

    async def act(self, choice: Choice) -> None:
        first, held_ms = choice["broker"], choice["held_ms"]
        tp = self.world.partitions[choice["partition"]]
        if held_ms:
            self.world.faults.fault("hold-answers", first, held_ms=held_ms)
            for broker_id, other in self.cluster.machines.items():
                if broker_id != first:
                    self.cluster.fabric.stall(self.machine(first), other.name, held_ms + 1)
            await asyncio.sleep(held_ms / 1000)
        self.world.faults.kill(first, choice["down_ms"], self.name)
        for _ in range(1_000):
            await asyncio.sleep(0.001)
            second = self.cluster.leader_of(tp)
            if not self.world.faults.faulty:
                return
            if second > 0 and second != first:
                await asyncio.sleep(choice["wait_ms"] / 1000)
                self.world.faults.kill(second, choice["second_down_ms"], self.name)
                return


STOP_LOOKS, STOP_LOOK_S = 500, 0.01  # how long a broker's end is waited for


async def stop_unheard(nemesis: Nemesis, broker_id: int, held_ms: int, down_ms: int) -> None:
    """A graceful shutdown at a moment at which clients wait for answers, the last of which they never hear.

    So they repeat what was written, several batches each, once the broker is back. 0 ms hold nothing up.
    """
    faults, fabric = nemesis.world.faults, nemesis.cluster.fabric
    name, clients = nemesis.machine(broker_id), [client.name for client in nemesis.cluster.clients]
    if held_ms:
        for client in clients:
            fabric.cut(name, client, both_ways=False)
        await asyncio.sleep(held_ms / 1000)
        if not faults.faulty:
            return
    stopped = nemesis.cluster.machines[broker_id].incarnation
    faults.stop(broker_id, down_ms, nemesis.name)
    if held_ms:
        await _until_ended(nemesis, broker_id, stopped)
        for client in clients if faults.faulty else ():
            fabric.reset(name, client)
            fabric.heal(name, client, both_ways=False)


async def _until_ended(nemesis: Nemesis, broker_id: int, incarnation: int) -> None:
    machine = nemesis.cluster.machines[broker_id]
    for _ in range(STOP_LOOKS):
        if not machine.is_running or machine.incarnation != incarnation or not nemesis.world.faults.faulty:
            return
        await asyncio.sleep(STOP_LOOK_S)


def held_up(nemesis: Nemesis) -> int:
    """For how long clients hear no answers before a stop."""
    return nemesis.rng.choice((0, nemesis.rng.randint(30, 500)))


class Stop(Nemesis):
    """A graceful shutdown (SIGTERM) and a restart."""

    name = "stop"
    does = "shuts a broker down cleanly and restarts it"
    deadly = True
    takes = DOWN

    def choose(self) -> Choice:
        return {"broker": self.target(), "down_ms": self.a_while_ms(1, 3_000)}

    async def act(self, choice: Choice) -> None:
        self.world.faults.stop(choice["broker"], choice["down_ms"], self.name)


class Pause(Nemesis):
    name = "pause"
    does = "freezes a process for up to 6 s; its timers and messages pile up"
    takes = arguments(broker=BROKER, pause_ms=MS)

    def choose(self) -> Choice:
        return {"broker": self.target(), "pause_ms": self.a_while_ms(20, 6_000)}

    async def act(self, choice: Choice) -> None:
        broker_id: int = choice["broker"]
        self.world.faults.fault(self.name, broker_id, pause_ms=choice["pause_ms"])
        self.cluster.machines[broker_id].pause()
        self.world.faults.mend(choice["pause_ms"], partial(self.world.faults.resume, broker_id))


class Rolling(Nemesis):
    """All brokers one after the other, each when the one before is back."""

    name = "rolling"
    does = "restarts all brokers one after the other, cleanly; clients may not receive their last responses"
    deadly = True
    heavy = True
    takes = ROLLING

    def choose(self) -> Choice:
        order = list(self.cluster.machines)
        self.rng.shuffle(order)
        times = {"down_ms": self.a_while_ms(1, 800), "between_ms": self.a_while_ms(50, 1_500)}
        return {"order": order, **times, "held_ms": held_up(self)}

    async def act(self, choice: Choice) -> None:
        for broker_id in choice["order"]:
            if not self.world.faults.faulty:
                return
            await self.take_down(broker_id, choice)
            await asyncio.sleep((choice["down_ms"] + choice["between_ms"]) / 1000)

    async def take_down(self, broker_id: int, choice: Choice) -> None:
        await stop_unheard(self, broker_id, choice["held_ms"], choice["down_ms"])


class RollingHard(Rolling):
    name = "rolling-hard"
    does = "the same with kill -9"

    async def take_down(self, broker_id: int, choice: Choice) -> None:
        self.world.faults.kill(broker_id, choice["down_ms"], self.name)


class CrashAll(Nemesis):
    """Everything at once, and a cold start in any order."""

    name = "crash-all"
    does = "kills all processes, restarts them in any order"
    deadly = True
    heavy = True
    takes = arguments(down_ms=SOME_MS)

    def choose(self) -> Choice:
        return {"down_ms": {str(broker_id): self.a_while_ms(1, 2_500) for broker_id in self.cluster.machines}}

    async def act(self, choice: Choice) -> None:
        for broker_id, down_ms in choice["down_ms"].items():
            self.world.faults.kill(int(broker_id), down_ms, self.name)


class StopAll(CrashAll):
    """The same cleanly, as when somebody stops a cluster and starts it again, or starts another version of it."""

    name = "stop-all"
    does = "the same with a clean shutdown; clients may not receive the last responses"
    takes = arguments(down_ms=SOME_MS, held_ms=MS)

    def choose(self) -> Choice:
        return {**super().choose(), "held_ms": held_up(self)}

    async def act(self, choice: Choice) -> None:
        down_ms = {int(broker_id): ms for broker_id, ms in choice["down_ms"].items()}
        await asyncio.gather(*(stop_unheard(self, each, choice["held_ms"], ms) for each, ms in down_ms.items()))


class QuorumLoss(Nemesis):
    """A majority of the voters is away: leaders that stand go on, nothing about the metadata can change."""

    name = "quorum-loss"
    does = "keeps a majority of the voters down for a while"
    deadly = True
    heavy = True
    takes = arguments(brokers=ORDER, down_ms=MS)

    def choose(self) -> Choice:
        voters = self.rng.sample(self.cluster.shape.voters, 2)
        return {"brokers": voters, "down_ms": self.a_while_ms(200, 3_000)}

    async def act(self, choice: Choice) -> None:
        for broker_id in choice["brokers"]:
            self.world.faults.kill(broker_id, choice["down_ms"], self.name)


class ControllerBounce(Nemesis):
    """A broker dies, and the active controller while it deals with that."""

    name = "controller-bounce"
    does = "kills a broker, and the controller while it handles that"
    deadly = True
    takes = arguments(**DOWN, wait_ms=MS, controller=BROKER, controller_down_ms=MS)

    def choose(self) -> Choice | None:
        controller = self.cluster.controller()
        others = [broker_id for broker_id in self.cluster.machines if broker_id != controller]
        if controller < 0:
            return None
        return {
            "broker": self.rng.choice(others),
            "down_ms": self.a_while_ms(100, 2_500),
            "wait_ms": self.rng.choice((0, 1, 5, 20, 300)),
            "controller": controller,
            "controller_down_ms": self.a_while_ms(1, 1_500),
        }

    async def act(self, choice: Choice) -> None:
        self.world.faults.kill(choice["broker"], choice["down_ms"], self.name)
        await asyncio.sleep(choice["wait_ms"] / 1000)
        if self.world.faults.faulty:
            self.world.faults.kill(choice["controller"], choice["controller_down_ms"], self.name)
