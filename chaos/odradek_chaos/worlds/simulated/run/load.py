"""The clients of a run: writers with the product's producer, a reader that reads along, and the last full read.

Each client has a machine of its own, whose links can be cut as those of brokers. The clients are the product's,
unchanged; what they were told goes into one ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal

from odradek import Admin, Consumer, Producer
from odradek.administration.descriptions import NewTopic
from odradek.core.sender import SEQUENCE_GAP_ERRORS
from odradek.shared.errors import BootstrapError, BrokerError, CorruptRecords, OdradekError
from odradek_audit.inputs.history import READ_UNCOMMITTED
from odradek_proto.topics import TopicPartition

from odradek_chaos.harness.workload import Ledger, WorkloadWriter
from odradek_chaos.worlds.simulated.checks.committed_groups import CommittedGroup
from odradek_chaos.worlds.simulated.checks.groups import ONE_OWNER, GroupHistory
from odradek_chaos.worlds.simulated.cluster.cluster import KAFKA_PORT
from odradek_chaos.worlds.simulated.cluster.node import NodePorts, SimNode
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.observe.tapped_network import Observers
from odradek_chaos.worlds.simulated.plan.script import ScriptedRecord
from odradek_chaos.worlds.simulated.run.compacted import CompactedStates
from odradek_chaos.worlds.simulated.run.consumers import GROUP as OF_CONSUMERS
from odradek_chaos.worlds.simulated.run.consumers import GroupConsumer
from odradek_chaos.worlds.simulated.run.kafka_writer import KAFKA_WRITER, KafkaWriter
from odradek_chaos.worlds.simulated.run.members import GROUP, MemberProcess
from odradek_chaos.worlds.simulated.world.world import TOPIC, World

RETRY_MS = 50
ASK_EVERY_MS = 50
SCRIPT_POLL_MS = 100
METADATA_MAX_AGE_MS = 5_000  # a reader that waits for a machine without power hears of the next leader by this alone
Record = tuple[str, int, int, bytes]  # topic, partition, offset, value
Program = Callable[[NodePorts], Coroutine[Any, Any, None]]


class ClusterLoad:
    """Everybody who uses the cluster of one world."""

    def __init__(self, world: World, observers: Observers) -> None:
        self.world = world
        self.observers = observers
        self.ledger = Ledger(SimClock(world.loop, world.loop.fork_rng("ledger")))
        self.ledger.on_ack = self._acknowledged
        self.writers: list[WorkloadWriter | KafkaWriter] = []
        self.positions: dict[int, int] = {}  # of the reader: partition to the next offset
        self.script: tuple[ScriptedRecord, ...] | None = None
        self.sends: list[ScriptedRecord] = []  # as they were handed to a producer
        self.ended = False  # the writers are told to stop: nobody begins anew
        self._machines: dict[str, SimNode] = {}
        self._programs: dict[str, Program] = {}  # of machines
        self._members: dict[str, MemberProcess] = {}
        self._consumers: dict[str, GroupConsumer] = {}
        self.group, self.consumers = (_history_of(world, group_id) for group_id in (GROUP, OF_CONSUMERS))
        self._lives: Counter[str] = Counter()  # of clients that were crashed
        world.faults.on_client_crash = self.crash
        self.states = CompactedStates(world, self._start)

    # --- programs

    async def create_topic(self) -> None:
        """Returns when the topic is there; first all brokers must have come up."""

        async def program(ports: NodePorts) -> None:
            while not self._everybody_is_up():
                await ports.clock.sleep(RETRY_MS)
            async with Admin(self.world.cluster.bootstrap, clock=ports.clock, network=ports.network) as admin:
                topic = NewTopic(TOPIC, partitions=self.world.plan.options.partitions, replication_factor=3)
                await admin.create_topics([topic])

        await self._run("admin", program)

    def start_writers(self, script: tuple[ScriptedRecord, ...] | None = None) -> None:
        """Writers that write as the plan says, or exactly the records of a script."""
        self.script = script
        for number in range(1, self.world.plan.options.writers + 1):
            self._start(f"w{number}", self._write)
            self.world.faults.client_names.append(f"w{number}")

    def start_reader(self) -> None:
        self._start("r1", self._read_along)
        self.world.faults.client_names.append("r1")

    def crash(self, name: str, down_ms: int) -> None:
        """Kill a client. What takes its place has another name, so that its records are told apart."""
        machine, program = self._machines[name], self._programs[name]
        machine.kill()
        self.ledger.gone(self._client_of(name))
        self.writers = [writer for writer in self.writers if writer.name.partition(".")[0] != name]

        def begin() -> None:
            if name in self._machines and not machine.is_running and not (self.ended and not name.startswith("r")):
                self._lives[name] += 1
                self._start(name, program)

        self.world.faults.mend(down_ms, begin)

    def start_members(self) -> None:
        for number in range(1, self.world.plan.options.members + 1):
            for name, program in ((f"g{number}", self._take_part), (f"c{number}", self._consume)):
                self._start(name, program)
                self.world.faults.client_names.append(name)

    def start_kafka_writer(self) -> None:
        """Where there is a listener for it."""
        if self.world.plan.options.members:
            self._start(KAFKA_WRITER, self._write_as_kafka)
            self.world.faults.client_names.append(KAFKA_WRITER)

    def end_one_member_of_each_group(self) -> None:
        """For good and without a word: its session ends, whoever coordinates it by then, and others own what it had."""
        if (number := self.world.plan.options.members) > 1:
            for name in (f"g{number}", f"c{number}"):
                self._machines.pop(name).kill()
                self._consumers.pop(name, None)
                self.world.faults.client_names.remove(name)

    def groups_are_stable(self) -> bool:
        """All classic members are in the newest generation; the members of each group together own everything, once."""
        everything = list(range(self.world.plan.options.partitions))
        consumed = sorted(number for each in self._consumers.values() for number in each.owned)
        return not self._consumers or (consumed == everything and self._classic_is_stable())

    def _classic_is_stable(self) -> bool:
        names = [name for name in self._machines if name.startswith("g")]
        owned: list[int] = []
        for name in names:
            member = self._members.get(name)
            if member is None or member.owned is None or member.generation_id != self.group.generation_id:
                return False
            owned += member.owned
        return not names or sorted(owned) == list(range(self.world.plan.options.partitions))

    def stop_members(self) -> None:
        self.ended = True
        for name, machine in self._machines.items():
            if name.startswith(("g", "c")):
                machine.kill()

    async def stop_writers(self) -> None:
        """Returns when nothing is on its way any more."""
        self.ended = True
        await self.states.stop()
        for writer in self.writers:
            writer.stop()
        for name, machine in self._machines.items():
            if name.startswith(("w", "p")):
                await machine.wait()

    async def read_everything(self) -> list[Record]:
        """All records up to the ends, by a client that has seen nothing before."""
        return await self.read_to_the_end(self.world.partitions)

    async def read_to_the_end(self, partitions: Sequence[TopicPartition]) -> list[Record]:
        """All records of these partitions up to the ends, by such a client."""
        records: list[Record] = []

        async def program(ports: NodePorts) -> None:
            async with Consumer(
                self.world.cluster.bootstrap,
                auto_offset_reset="earliest",
                clock=ports.clock,
                network=self.observers.wire_taps.network_of_client(ports),
            ) as consumer:
                consumer.assign(partitions)
                async for batch in consumer.batches(until="end"):
                    for record in batch:
                        assert record.value is not None, record
                        records.append((record.topic, record.partition, record.offset, record.value))

        await self._run("last", program)
        return records

    async def _write(self, ports: NodePorts) -> None:
        plan = self.world.plan
        acks: Literal["all", 0, 1] = "all" if plan.options.acks == "all" else 1 if plan.options.acks == "1" else 0
        async with Producer[bytes, bytes](
            self.world.cluster.bootstrap,
            clock=ports.clock,
            network=ports.network,
            acks=acks,
            batch_size=plan.batch_bytes,
            request_timeout_ms=2_000,
            delivery_timeout_ms=60_000,
            max_in_flight_requests_per_connection=5,
        ) as producer:
            writer = WorkloadWriter(
                producer,
                self.ledger,
                ports.clock,
                TOPIC,
                plan.options.partitions,
                self._client_of(ports.node),
                acks=acks,
                in_flight=plan.in_flight,
                pause_ms=self._pause_ms,
            )
            self.writers.append(writer)
            if self.ended:  # it came up too late to be told
                writer.stop()
            writer.on_send = self._note_send
            writer.on_error = self._note_error
            await (writer.run() if self.script is None else self._follow_script(writer))

    async def _write_as_kafka(self, ports: NodePorts) -> None:
        writer = KafkaWriter(
            ports,
            self.ledger,
            self._client_of(ports.node),
            self._kafka_addresses(),
            acks="all" if self.world.plan.options.acks == "all" else 1,
            pause_ms=self._pause_ms,
            on_send=self._note_wait,
        )
        self.writers.append(writer)
        if self.ended:
            writer.stop()
        await writer.run(self.world.partitions)

    def _kafka_addresses(self) -> list[str]:
        cluster = self.world.cluster
        return [f"{cluster.machines[broker_id].name}:{KAFKA_PORT}" for broker_id in cluster.shape.brokers]

    async def _take_part(self, ports: NodePorts) -> None:
        member = self._members[ports.node] = MemberProcess(
            ports, self.group, self.world.partitions, self._kafka_addresses(), lambda: self.world.faults.faulty
        )
        await member.run()

    async def _consume(self, ports: NodePorts) -> None:
        consumer = self._consumers[ports.node] = GroupConsumer(
            ports, self.consumers, TOPIC, self.world.cluster.bootstrap, lambda: self.world.faults.faulty
        )
        await consumer.run()

    def _pause_ms(self) -> float:
        return self.world.plan.pause_ms(self.world.loop.now_us)

    def _acknowledged(self, topic: str, partition: int, offset: int) -> None:
        self.world.faults.unavailability.acknowledged(self.world.loop.now_us, topic, partition)
        if self.world.plan.options.acks == "all":
            self.observers.watcher.acknowledged(f"{topic}-{partition}", offset)

    def _note_send(self, name: str, partition: int) -> None:
        number = int(name.partition(".")[0][1:])
        self.sends.append(ScriptedRecord(self.world.loop.now_us, number, partition))
        self._note_wait(TopicPartition(TOPIC, partition))

    def _note_wait(self, tp: TopicPartition) -> None:
        if not self.ledger.in_flight.get((tp.topic, tp.partition)):
            self.world.faults.unavailability.awaited(self.world.loop.now_us, tp.topic, tp.partition)

    def _note_error(self, error: OdradekError) -> None:
        """A leader knows every batch that may come again, and takes none of them for one that came too early."""
        if isinstance(error, BrokerError) and error.code in SEQUENCE_GAP_ERRORS:
            self.world.findings.report("forgotten-producer", str(error))

    async def _follow_script(self, writer: WorkloadWriter) -> None:
        """The records of the script that are this writer's and not in the past, each at its time.

        A partition waits for no other one, as when the writer writes by itself.
        """
        assert self.script is not None
        number = int(writer.name.partition(".")[0][1:])
        sends = [send for send in self.script if send.writer == number and send.at_us >= self.world.loop.now_us]
        partitions = sorted({send.partition for send in sends})
        await asyncio.gather(
            *(
                self._write_at_their_times(writer, [each for each in sends if each.partition == one])
                for one in partitions
            )
        )
        while not self.ended:
            await writer.clock.sleep(SCRIPT_POLL_MS)
        await writer.settle()

    async def _write_at_their_times(self, writer: WorkloadWriter, sends: Sequence[ScriptedRecord]) -> None:
        for send in sends:
            await writer.clock.sleep(max(0, send.at_us - self.world.loop.now_us) / 1000)
            await writer.write_one(send.partition)

    async def _read_along(self, ports: NodePorts) -> None:
        async with Consumer(
            self.world.cluster.bootstrap,
            clock=ports.clock,
            network=self.observers.wire_taps.network_of_client(ports),
            fetch_max_wait_ms=200,
            metadata_max_age_ms=METADATA_MAX_AGE_MS,
            isolation_level=READ_UNCOMMITTED,
        ) as consumer:
            partitions = [TopicPartition(TOPIC, number) for number in range(self.world.plan.options.partitions)]
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0)
                self.positions[partition.partition] = 0
            async with asyncio.TaskGroup() as group:
                group.create_task(self._ask_for_ends(consumer, partitions, ports))
                async for batch in consumer.batches():
                    for record in batch:
                        assert record.value is not None, record
                        self._take(record.partition, record.offset)
                        given = (TOPIC, record.partition, record.value, ports.node, record.offset)
                        self.ledger.deliver(*given, isolation=READ_UNCOMMITTED)

    async def _ask_for_ends(
        self, consumer: Consumer[bytes | None, bytes | None], partitions: list[TopicPartition], ports: NodePorts
    ) -> None:
        """Ask where the logs end, as soon as there are other leaders: that is when an end could fall (R-26)."""
        asked: dict[str, int] = {}
        while True:
            epochs = self.world.state.newest_epochs
            if epochs != asked:
                asked = dict(epochs)
                with contextlib.suppress(OdradekError):  # nobody leads for a while
                    await consumer.end_offsets(partitions)
            await ports.clock.sleep(ASK_EVERY_MS)

    def _take(self, partition: int, offset: int) -> None:
        expected = self.positions[partition]
        if offset != expected:
            sentence = f"the reader was given offset {offset} after {expected - 1}"
            self.world.findings.report("skipped", sentence, partition=f"{TOPIC}-{partition}")
        self.positions[partition] = offset + 1
        self.observers.watcher.delivered(f"{TOPIC}-{partition}", offset)

    def _everybody_is_up(self) -> bool:
        brokers = self.world.cluster.newest_image().brokers
        return len(brokers) == len(self.world.cluster.shape.brokers) and not any(b.fenced for b in brokers.values())

    def _client_of(self, name: str) -> str:
        """What the ledger calls the client that lives now on a machine."""
        lives = self._lives[name]
        return f"{name}.{lives}" if lives else name

    # --- running them

    def _start(self, name: str, program: Program) -> SimNode:
        self._programs[name] = program
        machine = self._machines.get(name)
        if machine is None:
            machine = self._machines[name] = self.world.cluster.client(name)

        async def main(ports: NodePorts) -> None:
            try:
                await self._keep_trying(program, ports)
            except (OdradekError, ExceptionGroup) as error:
                self.world.findings.report("client-failed", f"{name}: {error!r}", partition=name)

        machine.start(main)
        return machine

    async def _keep_trying(self, program: Program, ports: NodePorts) -> None:
        """As a supervisor would: begin anew if there was no broker at the start, or only a copy that was damaged."""
        while True:
            try:
                await program(ports)
            except BootstrapError:
                await ports.clock.sleep(RETRY_MS)
            except (CorruptRecords, ExceptionGroup) as error:
                if not self.world.exemptions.bytes_were_damaged or not _is_of_damage(error):
                    raise
                await ports.clock.sleep(RETRY_MS)
            else:
                return

    async def _run(self, name: str, program: Program) -> None:
        await self._start(name, program).wait()


def _history_of(world: World, group_id: str) -> GroupHistory:
    def report(check: str, sentence: str) -> None:
        world.findings.report(check, sentence, partition=group_id)

    committed = CommittedGroup(world.state, group_id, lambda sentence: report(ONE_OWNER, sentence))
    return GroupHistory(report, committed)


def _is_of_damage(error: Exception) -> bool:
    return isinstance(error, CorruptRecords) or (
        isinstance(error, ExceptionGroup) and error.split(CorruptRecords)[1] is None
    )
