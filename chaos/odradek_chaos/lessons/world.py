"""One world of a lesson: two brokers under one truncation mode, a controller, a producer and a consumer.

The methods are the verbs of the stories. They are the same in every world; what comes of them is decided by the core.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from odradek_audit.inputs.history import ACK, DELIVER, SEND, Event
from odradek_broker.core.delayed import DelayedProduce
from odradek_broker.core.metadata.image import NO_LEADER, PartitionRegistration
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import IsrAnswer, TruncationMode
from odradek_broker.core.partition.policy import policy_for
from odradek_proto.errors import ErrorCode
from odradek_proto.records import PREFIX_SIZE, check_batch, encode_batch, stamped_prefix
from odradek_proto.values import replace

from odradek_chaos.lessons.network import Kind, Known, Network, values_in
from odradek_chaos.lessons.replica import ORDERS, PRODUCE, WALL_MS, Evidence, Replica

BROKERS = (1, 2)
PRODUCER, CONSUMER = "producer", "consumer"
ACKS_ALL, ACKS_LEADER = -1, 1
TIMEOUT_MS = 30_000
STEP_MS = 1_000
MOST_ROUNDS = 50  # a world that moves longer is stuck
QUIET_ROUNDS = 3  # a question about epochs and one about offsets change nothing by themselves


@dataclass(frozen=True)
class Acknowledged:
    """A record that its producer believes to be written."""

    value: str
    offset: int
    acks_all: bool


@dataclass(frozen=True)
class _Produced:
    """One batch: its producer, its records, and their first offset."""

    client: str
    values: tuple[str, ...]
    base_offset: int


class _Waiting(DelayedProduce, eq=False):
    """A batch with acks=all in the purgatory."""

    produced: _Produced
    acknowledge: Callable[[_Produced, ErrorCode], None]

    def complete(self, outcome: ErrorCode) -> None:
        self.acknowledge(self.produced, outcome)


class World(Network):
    """Broker 1 leads at first, in epoch 0; both are in the ISR; min.insync.replicas is 1."""

    def __init__(self, mode: TruncationMode) -> None:
        policy = policy_for(mode)
        super().__init__(tuple(Replica(number, policy, self._note) for number in BROKERS), Known(BROKERS))
        self.mode = mode
        self.registration = PartitionRegistration(BROKERS, BROKERS, BROKERS[0], 0, 0)
        self.acknowledged: list[Acknowledged] = []
        self.evidence: list[Evidence] = []
        self.history: list[Event] = []
        self._position = 0  # of the consumer
        with self.quiet():
            for replica in self.replicas.values():
                replica.boot()
                replica.take(self.registration, self.known, self.now_ms)

    def begin_step(self) -> None:
        """Time goes on, and what was said before belongs to another step."""
        self.now_ms += STEP_MS
        self.happenings = []

    def _note(self, evidence: Evidence) -> None:
        self.evidence.append(evidence)
        facts, broker = evidence.facts, evidence.broker
        if evidence.event == "truncated":
            self.say(Kind.CUT, f"broker {broker} cuts its log {facts['from']} → {facts['to']} ({evidence.rule})")
        elif evidence.event == "high_watermark_advanced" and broker == self.registration.leader:
            self.say(Kind.FACT, f"broker {broker} raises its HW {facts['from']} → {facts['to']}")
        elif evidence.event == "appended" and evidence.rule == "L-9":
            first, last, end = facts["base_offset"], facts["last_offset"], facts["log_end_offset"]
            self.say(Kind.CUT, f"broker {broker} appends {first} to {last} at {end} (L-9)")

    # --- Clients ---------------------------------------------------------------------------------------------------

    @property
    def leader(self) -> Replica:
        return self.replicas[self.registration.leader]

    def produce(self, *values: str, acks: int = ACKS_ALL) -> None:
        """One batch goes to the leader. What acks=1 sends comes each time from another producer: its records may be
        lost, and whoever writes on after that gets an offset that was given before."""
        leader = self.leader
        client = PRODUCER if acks == ACKS_ALL else f"{PRODUCER}-of-{values[0]}"
        self.history += [Event(SEND, ORDERS.topic, 0, value.encode(), client=client) for value in values]
        batch = encode_batch([(WALL_MS, None, value.encode(), ()) for value in values])
        decision = leader.leader.prepare_append(check_batch(batch), acks, self.now_ms, WALL_MS)
        assert decision.header is not None, decision
        header = decision.header
        prefix = stamped_prefix(header.base_offset, header.length, header.leader_epoch)
        leader.log.append((header,), (prefix, batch[PREFIX_SIZE:]), WALL_MS)
        effects = leader.leader.on_appended((header,), self.now_ms)
        self.say(Kind.FACT, f"broker {leader.number} appends {' '.join(values)} at {header.base_offset}")
        produced = _Produced(client, values, header.base_offset)
        if acks == ACKS_ALL:
            waiting = _Waiting(
                leader.leader,
                header.base_offset,
                produced,
                self._acknowledge,
                required=decision.required_offset,
                deadline_ms=self.now_ms + TIMEOUT_MS,
            )
            leader.purgatory.register(waiting, PRODUCE)
        else:
            self._tell_producer(produced, acks_all=False)
        leader.step(effects, self.now_ms)

    def _acknowledge(self, produced: _Produced, error: ErrorCode) -> None:
        if error == ErrorCode.NONE:
            self._tell_producer(produced, acks_all=True)
        else:
            self.say(Kind.REFUSED, f"{' '.join(produced.values)}: {error.name}")

    def _tell_producer(self, produced: _Produced, *, acks_all: bool) -> None:
        acks = "all" if acks_all else 1
        for offset, value in enumerate(produced.values, produced.base_offset):
            self.acknowledged.append(Acknowledged(value, offset, acks_all))
            self.history.append(Event(ACK, ORDERS.topic, 0, value.encode(), offset, acks, produced.client))
        self.say(Kind.ACKNOWLEDGED, f"{' '.join(produced.values)} acknowledged at {produced.base_offset} (acks={acks})")

    def consume(self) -> None:
        """The consumer reads on from its position, at the leader."""
        leader = self.leader
        decision = leader.leader.fetch_by_consumer(self._position, -1, -1, False, self.now_ms)
        if decision.error != ErrorCode.NONE:
            self.say(Kind.REFUSED, f"consumer at {self._position}: {decision.error.name}")
            return
        _, data = leader.read(self._position, decision.limit)
        found = values_in(data)
        self.say(Kind.FACT, f"consumer at {self._position}: {' '.join(value for _, value in found) or 'nothing new'}")
        for offset, value in found:
            self.history.append(Event(DELIVER, ORDERS.topic, 0, value.encode(), offset, client=CONSUMER))
            self._position = offset + 1

    # --- Brokers ---------------------------------------------------------------------------------------------------

    def flush(self, number: int) -> None:
        self.replicas[number].log.flush()
        self.say(Kind.FACT, f"broker {number} flushes its log")

    def checkpoint(self, number: int) -> None:
        """The periodic task writes the high watermark to its file."""
        self.replicas[number].directory.write_high_watermarks()
        self.say(Kind.FACT, f"broker {number} writes its HW to the file")

    def kill(self, number: int) -> None:
        self.replicas[number].kill()
        self.say(Kind.FACT, f"broker {number} is killed")

    def lose_power(self) -> None:
        """Both machines at once; what was not flushed is gone."""
        for replica in self.replicas.values():
            replica.kill(power=True)
        self.say(Kind.FACT, "power fails on both machines")

    def start(self, number: int, *, keeps_isr: bool = False) -> None:
        """Boot, register, unfence. Unless the session still lives (L-12) the broker leaves the ISR first (R-152)."""
        if not keeps_isr and self.known.is_active(number):
            self.fence(number)
        self.known.register(number)
        replica = self.replicas[number]
        replica.boot()
        state = replica.log.state
        self.say(Kind.FACT, f"broker {number} starts: LEO {state.log_end_offset}, HW {state.high_watermark}")
        replica.take(self.registration, self.known, self.now_ms)
        if self.registration.leader == NO_LEADER and number in self.registration.isr:
            self._change(leader=number)
        self._publish()

    def settle(self) -> None:
        """Everything runs until nothing moves; of the way there only acknowledgements and cuts are told."""
        quiet = 0
        with self.quiet():
            for _ in range(MOST_ROUNDS):
                before = self._fingerprint()
                self._round()
                quiet = quiet + 1 if before == self._fingerprint() else 0
                if quiet == QUIET_ROUNDS:
                    return
        raise AssertionError("the world does not settle")

    def _round(self) -> None:
        self.now_ms += STEP_MS
        for replica in self.replicas.values():
            if replica.role is not None and not isinstance(replica.role, LeaderPartition):
                self.fetch(replica.number)
        while self.leader.proposals:
            self._alter_partition()

    def _fingerprint(self) -> object:
        running = [replica for replica in self.replicas.values() if replica.role is not None]
        return (
            self.registration,
            [(each.log.state.log_end_offset, each.log.state.high_watermark, each.records()) for each in running],
        )

    # --- Controller ------------------------------------------------------------------------------------------------

    def fence(self, number: int) -> None:
        """The session ends: the broker leaves the ISR unless it is the last; a leader comes from the ISR (R-134)."""
        self.known.fence(number)
        old = self.registration
        isr = tuple(each for each in old.isr if each != number) or old.isr
        leader = old.leader
        if leader == number:
            leader = next((each for each in old.replicas if each in isr and self.known.is_active(each)), NO_LEADER)
        if (isr, leader) != (old.isr, old.leader):
            self._change(leader=leader, isr=isr)
        self._publish()

    def elect_uncleanly(self, number: int) -> None:
        """R-133: the new leader is the whole ISR."""
        self._change(leader=number, isr=(number,))
        with self.quiet():  # alone in the ISR it commits all that it has
            self._publish()

    def _change(self, *, leader: int | None = None, isr: tuple[int, ...] | None = None) -> None:
        """One record: partition epoch + 1, and leader epoch + 1 when the leader changes (R-55, R-56)."""
        old = self.registration
        new = replace(
            old,
            leader=old.leader if leader is None else leader,
            isr=old.isr if isr is None else isr,
            partition_epoch=old.partition_epoch + 1,
        )
        if new.leader != old.leader:
            new = replace(new, leader_epoch=old.leader_epoch + 1)
            who = "nobody" if new.leader == NO_LEADER else f"broker {new.leader}"
            members = ",".join(map(str, new.isr))
            self.say(Kind.FACT, f"{who} leads epoch {new.leader_epoch}, ISR {members}")
        self.registration = new

    def _publish(self) -> None:
        for replica in self.replicas.values():
            if replica.role is not None:
                replica.take(self.registration, self.known, self.now_ms)
        for replica in self.replicas.values():
            if isinstance(replica.role, LeaderPartition):
                replica.step(replica.role.on_brokers_changed(self.now_ms), self.now_ms)

    def _alter_partition(self) -> None:
        """Answer the leader's proposal; in a lesson it is always valid by now (R-54)."""
        leader = self.leader
        proposal = leader.proposals.pop(0)
        assert proposal.partition_epoch == self.registration.partition_epoch, proposal
        self._change(isr=tuple(member.broker_id for member in proposal.new_isr))
        new = self.registration
        answer = IsrAnswer(ErrorCode.NONE, new.leader, new.leader_epoch, new.partition_epoch, new.isr)
        leader.step(leader.leader.on_isr_answer(proposal, answer, self.now_ms), self.now_ms)
        self._publish()
