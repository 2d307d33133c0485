"""What administrators do to a cluster while it suffers: their orders meet every other fault.

An order goes out from a machine of its own, by the product's client. It may be refused, get lost, or be carried out and
its answer lost, since the next order ends the program that waits for it: all of that is allowed. What was answered
is owed.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import Final

from odradek import Admin, Producer
from odradek.administration.descriptions import NewTopic
from odradek.shared.errors import OdradekError
from odradek_proto.topics import TopicPartition

from odradek_chaos.worlds.simulated.cluster.node import NodePorts, SimNode
from odradek_chaos.worlds.simulated.faults.choices import COUNT, MS, ORDER, PARTITION, TOPIC_OPERATION, arguments
from odradek_chaos.worlds.simulated.faults.nemesis import Choice, Nemesis
from odradek_chaos.worlds.simulated.world.administered import PREFIX, AdministeredPartition

CANCELS = 0.25  # of the orders
FEWEST = 2  # replicas: with one alone a lost disk would cost records, and nobody promised otherwise
PATIENCE_MS = 2_000
MACHINE = "op"
ORDERS_MS = 300  # what six orders take, a little more


class Administration(Nemesis):
    """Orders of one kind."""

    @abstractmethod
    async def order(self, admin: Admin, ports: NodePorts, choice: Choice) -> None:
        """Give the order that `choose` has chosen, and take the answer."""

    async def act(self, choice: Choice) -> None:
        self.world.faults.fault(self.name, **choice)
        machine = self._machine()
        machine.kill()

        async def program(ports: NodePorts) -> None:
            try:
                async with Admin(
                    self.cluster.bootstrap,
                    clock=ports.clock,
                    network=ports.network,
                    bootstrap_timeout_ms=PATIENCE_MS,
                    default_api_timeout_ms=PATIENCE_MS,
                    request_timeout_ms=PATIENCE_MS,
                ) as admin:
                    await self.order(admin, ports, choice)
            except (OdradekError, ExceptionGroup) as error:
                self.world.timeline.note("!not-ordered", 0, self.name, error=type(error).__name__)

        machine.start(program)

    def _machine(self) -> SimNode:
        """One for all orders."""
        found = [client for client in self.cluster.clients if client.name == MACHINE]
        return found[0] if found else self.cluster.client(MACHINE)


class Reassign(Administration):
    """A partition gets other replicas, more or fewer, in another order; or what is on its way is cancelled."""

    name = "reassign"
    does = "moves partitions to other replicas, cancels reassignments"
    copies = True
    takes = arguments(partition=PARTITION, target=ORDER)

    def choose(self) -> Choice:
        brokers = list(self.cluster.shape.brokers)
        count = self.rng.randint(min(FEWEST, len(brokers)), len(brokers))
        target = self.rng.sample(brokers, count)
        cancels = self.rng.random() < CANCELS
        return {"partition": self.rng.randrange(len(self.world.partitions)), "target": [] if cancels else target}

    async def order(self, admin: Admin, ports: NodePorts, choice: Choice) -> None:
        await admin.alter_partition_reassignments(
            {self.world.partitions[choice["partition"]]: choice["target"] or None}
        )


class Elect(Administration):
    """The first replica is to lead again, by command."""

    name = "elect"
    does = "elects preferred leaders by command"
    takes = arguments(partition=PARTITION)
    drawn = False
    beside = True

    def choose(self) -> Choice:
        return {"partition": self.rng.randrange(len(self.world.partitions))}

    async def order(self, admin: Admin, ports: NodePorts, choice: Choice) -> None:
        await admin.elect_leaders("preferred", [self.world.partitions[choice["partition"]]])


class AlternateLeaders(Administration):
    """Two replicas that do not reach each other lead in turns, by command, and both stay in the ISR.

    Each has records of its own epochs, which cannot be committed. Once they reach each other again the follower's log
    differs from the leader's in several epochs, and one response does not find where they part (KIP-279). The machine
    of the active controller is neither of them: a voter or broker that does not reach it is soon not in sync either.
    """

    name = "alternate-leaders"
    does = "has two replicas that do not reach each other lead in turns, by command"
    takes = arguments(partition=PARTITION, order=ORDER, led_ms=MS, cut_ms=MS)
    drawn = False
    share = 0.15

    def choose(self) -> Choice | None:
        number = self.rng.randrange(len(self.world.partitions))
        led_ms = self.a_while_ms(60, 700)
        found = self.cluster.newest_image().partition(self.world.partitions[number])
        pair = [] if found is None else [each for each in found.isr if each != self.cluster.controller()]
        if found is None or len(pair) < len(found.replicas) - 1:
            return None
        self.rng.shuffle(pair)
        order = [*pair[:2], *[each for each in found.replicas if each not in pair[:2]]]
        return {"partition": number, "order": order, "led_ms": led_ms, "cut_ms": 3 * led_ms + ORDERS_MS}

    async def act(self, choice: Choice) -> None:
        one, other = (self.machine(each) for each in choice["order"][:2])
        self.cluster.fabric.cut(one, other)
        self.world.faults.mend(choice["cut_ms"], lambda: self.cluster.fabric.heal(one, other))
        await super().act(choice)
        await asyncio.sleep(choice["cut_ms"] / 1000)  # the next order would end this program

    async def order(self, admin: Admin, ports: NodePorts, choice: Choice) -> None:
        partition, (one, other, *rest) = self.world.partitions[choice["partition"]], choice["order"]
        for first, second in ((one, other), (other, one), (one, other)):
            await admin.alter_partition_reassignments({partition: [first, second, *rest]})
            await admin.elect_leaders("preferred", [partition])
            await ports.clock.sleep(choice["led_ms"])


HARMLESS: Final = (  # settings under which the topic of the invariants keeps everything
    ("flush.messages", "1"),
    ("index.interval.bytes", "50"),
    ("internal.segment.bytes", "5000"),
    ("retention.ms", "-1"),
    ("max.message.bytes", "200000"),
    ("unclean.leader.election.enable", "false"),
    ("message.timestamp.type", "LogAppendTime"),
)


class AlterSettings(Administration):
    """Settings of the topic are changed and taken back while it is written to."""

    name = "settings"
    does = "changes settings of a topic under load, reverts them"
    takes = arguments(setting=COUNT, unset=COUNT)
    drawn = False
    beside = True

    def choose(self) -> Choice:
        return {"setting": self.rng.randrange(len(HARMLESS)), "unset": self.rng.randrange(2)}

    async def order(self, admin: Admin, ports: NodePorts, choice: Choice) -> None:
        name, value = HARMLESS[choice["setting"] % len(HARMLESS)]
        topic = self.world.partitions[0].topic
        if choice["unset"]:
            await admin.incremental_alter_configs("topic", topic, unset=[name])
        else:
            await admin.incremental_alter_configs("topic", topic, set={name: value})


MOST_TOPICS, MOST_PARTITIONS, MOST_RECORDS = 6, 3, 30
SMALL_SEGMENTS: Final = {"internal.segment.bytes": "900", "file.delete.delay.ms": "200"}
RETENTION: Final = ({"retention.bytes": "1500"}, {"retention.ms": "300"})
OTHER_SETTINGS: Final = (
    {"min.insync.replicas": "3"},
    {"internal.segment.bytes": "500"},
    {"flush.messages": "1"},
    {"message.timestamp.type": "LogAppendTime"},
    {"max.message.bytes": "5000"},
)


class Topics(Administration):
    """Topics beside the one that all checks look at: made, filled by idempotent producers, grown, altered, emptied,
    left to retention, deleted. `world/administered.py` knows what is owed to them."""

    name = "topics"
    does = "creates topics, fills, extends, alters, empties and deletes them"
    takes = arguments(do=TOPIC_OPERATION, topic=COUNT, partition=COUNT, value=COUNT)
    drawn = False
    beside = True

    def choose(self) -> Choice:
        known, rng = self.world.administered, self.rng
        owed = sorted(known.owed())
        operation = rng.choice(("make", "fill", "fill", "fill", "grow", "empty", "empty", "alter", "retain", "delete"))
        if not owed or (operation == "make" and len(owed) < MOST_TOPICS):
            return {"do": "make", "topic": known.count + 1, "partition": 0, "value": rng.randint(1, 2)}
        name = rng.choice(owed)
        topic = known.topic(name)
        partition = rng.randrange(topic.partitions)
        value = {
            "grow": min(topic.partitions + 1, MOST_PARTITIONS),
            "empty": self._somewhere(topic.partition(partition)),
            "alter": rng.randrange(len(OTHER_SETTINGS)),
            "retain": rng.randrange(len(RETENTION)),
        }.get(operation, rng.randint(1, MOST_RECORDS))
        operation = "fill" if operation == "make" else operation
        return {"do": operation, "topic": int(name.removeprefix(PREFIX)), "partition": partition, "value": value}

    def _somewhere(self, known: AdministeredPartition) -> int:
        """An offset that records may be deleted up to, the end of what was acknowledged at most."""
        return self.rng.randint(known.told_start, max(known.told_start, max(known.acknowledged, default=-1) + 1))

    async def order(self, admin: Admin, ports: NodePorts, choice: Choice) -> None:
        name, number, value = f"{PREFIX}{choice['topic']}", choice["partition"], choice["value"]
        topic = self.world.administered.topic(name)
        match choice["do"]:
            case "make":
                await admin.create_topics([NewTopic(name, value, 3, SMALL_SEGMENTS)])
                topic.is_owed, topic.partitions = True, value
            case "fill":
                await self._fill(ports, name, number, value)
            case "grow":
                await admin.create_partitions(name, value)
                topic.partitions = max(topic.partitions, value)
            case "empty":
                known = topic.partition(number)
                known.asked_start = max(known.asked_start, value)
                told = await admin.delete_records({TopicPartition(name, number): value})
                known.told_start = max(known.told_start, *told.values())
                known.lives = self.world.cluster.incarnations
            case "alter":
                await admin.incremental_alter_configs("topic", name, set=OTHER_SETTINGS[value % len(OTHER_SETTINGS)])
            case "retain":
                topic.retains_less = True
                await admin.incremental_alter_configs("topic", name, set=RETENTION[value % len(RETENTION)])
            case "delete":
                topic.is_owed = False
                await admin.delete_topics([name])

    async def _fill(self, ports: NodePorts, name: str, number: int, count: int) -> None:
        known = self.world.administered.topic(name).partition(number)
        async with Producer[bytes, bytes](
            self.cluster.bootstrap,
            clock=ports.clock,
            network=ports.network,
            batch_size=1,
            request_timeout_ms=PATIENCE_MS,
            delivery_timeout_ms=2 * PATIENCE_MS,
        ) as producer:

            async def write(value: bytes) -> None:
                known.sent[value] = None
                try:
                    told = await producer.send(name, value, partition=number)
                except OdradekError:
                    return
                known.acknowledged[told.offset] = value

            first = len(known.sent)
            await asyncio.gather(*(write(b"%s/%d/%d" % (name.encode(), number, first + i)) for i in range(count)))
