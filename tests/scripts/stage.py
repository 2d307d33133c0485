"""The commands of a transcript: a small cluster, a controller that follows A11, and a network that loses on command.

cluster brokers=2 mode=fetch min_isr=1 lag=10000 isr=0,1   a new cluster; b0 leads in epoch 0
produce 0 m1 m2+m3 acks=all timeout=30000    batches of one or more records, to broker 0
produce 0 m1 producer=7 epoch=1 sequence=4   of an idempotent producer, whose batches follow from that sequence on
fetch 1 [lose=request|reply] [hold] [wait]   one question of broker 1 and its answer; `wait` lets it wait for data
deliver 1                                    the held answer arrives
expire 1                                     the waiting fetch of broker 1 runs out
settle                                       fetches and ISR changes until nothing moves
controller [error=NAME] [lose=answer] [keep] the controller answers the next AlterPartition; `keep`: unseen by others
controller version=1 [leader_epoch=1]        it says yes, of these epochs, and changes nothing
publish                                      every running broker sees the metadata
touch                                        a change of the metadata that leaves leader and ISR, seen by all
crash 1 [power]                              kill; with `power` what was not flushed is lost
start 1 [keep]                               boot and unfence; with `keep` it never left the ISR (L-12)
fence 0, unfence 0                           the controller's view of a broker
elect 1 [only=0,2], unclean 1                elections; with `only`, just these brokers hear of it
flush 1, checkpoint 1                        the log to the disk; the high watermark to its file
time 5000                                    the clock goes on, timers run
read 0 from=2 [epoch=1], latest 0            a consumer's fetch; ListOffsets
probe 0 [epoch=1]                            every request that names a leader epoch, as of a reader who believes in it
stale 0                                      the metadata from before the last change arrive once more
"""

from __future__ import annotations

from collections.abc import Sequence

from odradek_broker.core.metadata.image import PartitionRegistration
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import (
    FollowerFetch,
    IsrAnswer,
    IsrMember,
    PartitionSettings,
    TruncationMode,
)
from odradek_broker.core.partition.policy import policy_for
from odradek_proto.errors import ErrorCode
from odradek_proto.values import replace

from tests.scripts.exchange import Exchange
from tests.scripts.in_memory import WALL_MS, Batch, Brokers, header
from tests.scripts.node import Node

LONGEST_SETTLE = 200  # rounds; a story that needs more is stuck


class Stage(Exchange):
    """One story's cluster. `run` executes a command and returns what was said."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[int, str] = {}
        self._next_broker_epoch = 200
        self._before: PartitionRegistration | None = None

    def run(self, line: str) -> list[str]:
        """Execute one command; afterwards every broker whose state line is new is shown."""
        name, *words = line.split()
        plain = [word for word in words if "=" not in word]
        named = dict(word.split("=", 1) for word in words if "=" in word)
        self._said = []
        getattr(self, f"do_{name}")(*plain, **named)
        self._show()
        return self._said

    def _show(self) -> None:
        for node in self.nodes:
            line = node.describe()
            if self._shown.get(node.number) != line:
                self._shown[node.number] = line
                self._say(line)

    # --- Cluster ---------------------------------------------------------------------------------------------------

    def do_cluster(
        self, *, brokers: str = "2", mode: str = "fetch", min_isr: str = "1", lag: str = "10000", isr: str = ""
    ) -> None:
        ids = tuple(range(int(brokers)))
        members = tuple(int(each) for each in isr.split(",")) if isr else ids
        settings = PartitionSettings(min_insync_replicas=int(min_isr), replica_lag_time_max_ms=int(lag))
        policy = policy_for(TruncationMode(mode))
        self.brokers = Brokers(len(ids))
        self.registration = PartitionRegistration(ids, members, 0, 0, 0)
        self.nodes = [Node(number, settings, policy, self._say) for number in ids]
        self._publish()

    def _publish(self, *, only: Sequence[int] | None = None) -> None:
        """Every running broker sees the metadata; at the beginning all are started."""
        first = not self._shown
        for node in self.nodes:
            if (node.running or first) and (only is None or node.number in only):
                node.take(self.registration, self.brokers, self.now_ms)
        for node in self.nodes:
            if isinstance(node.role, LeaderPartition):
                node.step(node.role.on_brokers_changed(self.now_ms), self.now_ms)

    def _change(self, **changes: object) -> None:
        """One change of the metadata: partition epoch + 1, and leader epoch + 1 with a new leader (R-55, R-56)."""
        old = self.registration
        new = replace(old, partition_epoch=old.partition_epoch + 1, **changes)
        if new.leader != old.leader:
            new = replace(new, leader_epoch=old.leader_epoch + 1)
            who = "no leader" if new.leader < 0 else f"leader b{new.leader}"
            isr = ",".join(str(each) for each in new.isr)
            self._say(f"controller: {who} epoch={new.leader_epoch} isr={isr}")
        self.registration, self._before = new, old

    def _active(self, number: int) -> bool:
        broker = self.brokers.broker(number)
        return broker is not None and broker.active

    def _may_join(self, member: IsrMember) -> bool:
        """Active, and the incarnation that the leader heard (KIP-903)."""
        broker = self.brokers.broker(member.broker_id)
        return broker is not None and broker.active and member.broker_epoch in (broker.broker_epoch, -1)

    def do_crash(self, number: str, power: str = "") -> None:
        node = self.nodes[int(number)]
        node.stop()
        if power:
            node.disk.lose_power()

    def do_start(self, number: str, keep: str = "") -> None:
        """A new process with a new broker epoch. Without `keep` it leaves the ISR first (R-152)."""
        who = int(number)
        self._next_broker_epoch += 1
        if not keep and self._active(who):
            self.do_fence(number)
        self.brokers.change(who, epoch=self._next_broker_epoch, fenced=False)
        self.nodes[who].take(self.registration, self.brokers, self.now_ms)
        if self.registration.leader < 0 and who in self.registration.isr:
            self._change(leader=who)
        self._publish()

    def do_fence(self, number: str) -> None:
        """It leaves the ISR unless it is the last one; leaders come from the ISR, in replica order (R-134)."""
        who = int(number)
        self.brokers.change(who, fenced=True)
        old = self.registration
        isr = tuple(each for each in old.isr if each != who) or old.isr
        leader = old.leader
        if leader == who:
            leader = next((each for each in old.replicas if each in isr and self._active(each)), -1)
        if (isr, leader) != (old.isr, old.leader):
            self._change(isr=isr, leader=leader)
        self._publish()

    def do_unfence(self, number: str) -> None:
        self.brokers.change(int(number), fenced=False)
        self._publish()

    def do_elect(self, number: str, *, only: str = "") -> None:
        """A clean election; with `only`, just these brokers hear of it."""
        assert int(number) in self.registration.isr, (number, self.registration)
        self._change(leader=int(number))
        self._publish(only=[int(each) for each in only.split(",")] if only else None)

    def do_unclean(self, number: str) -> None:
        """R-133: the new leader is the whole ISR."""
        self._change(leader=int(number), isr=(int(number),))
        self._publish()

    def do_publish(self) -> None:
        self._publish()

    def do_touch(self) -> None:
        """As when a reassignment begins: a new partition epoch, and nothing else that matters here."""
        self._change()
        self._publish()

    def do_stale(self, number: str) -> None:
        """A broker is shown metadata that it has left behind (R-100)."""
        assert self._before is not None, "nothing has changed yet"
        self.nodes[int(number)].take(self._before, self.brokers, self.now_ms)

    def do_controller(
        self, keep: str = "", *, error: str = "", lose: str = "", version: str = "", leader_epoch: str = ""
    ) -> None:
        """Answer the oldest proposal of the leader: with an error, or by the record that it asks for (R-54, R-55)."""
        node = self._leader()
        proposal = node.proposals.pop(0)
        if error:
            answer = IsrAnswer(ErrorCode[error])
        elif version:
            epoch = int(leader_epoch) if leader_epoch else proposal.leader_epoch
            wished = tuple(member.broker_id for member in proposal.new_isr)
            isr = self.registration.isr if int(version) == proposal.partition_epoch else wished
            answer = IsrAnswer(ErrorCode.NONE, node.number, epoch, int(version), isr)
        elif proposal.partition_epoch < self.registration.partition_epoch:
            answer = IsrAnswer(ErrorCode.INVALID_UPDATE_VERSION)
        elif not all(self._may_join(member) for member in proposal.new_isr):
            answer = IsrAnswer(ErrorCode.INELIGIBLE_REPLICA)
        else:
            self._change(isr=tuple(member.broker_id for member in proposal.new_isr))
            new = self.registration
            answer = IsrAnswer(ErrorCode.NONE, new.leader, new.leader_epoch, new.partition_epoch, new.isr)
        said = f"{answer.error.name}" if answer.error else f"isr={','.join(map(str, answer.isr))}"
        if version:
            said += f" leader_epoch={answer.leader_epoch} partition_epoch={answer.partition_epoch}"
        self._say(f"controller {'-x' if lose else '->'} b{node.number} AlterPartition {said}")
        if lose:
            node.proposals.insert(0, proposal)  # it is sent again
        else:
            node.step(node.leader.on_isr_answer(proposal, answer, self.now_ms), self.now_ms)
        if not keep:
            self._publish()

    def do_time(self, passed: str) -> None:
        self.now_ms += int(passed)
        for node in self.nodes:
            if isinstance(node.role, LeaderPartition):
                node.step(node.role.on_time(self.now_ms), self.now_ms)
                node.answer(node.purgatory.on_time(self.now_ms))

    # --- Clients ---------------------------------------------------------------------------------------------------

    def _leader(self) -> Node:
        return next(
            node
            for node in self.nodes
            if isinstance(node.role, LeaderPartition) and node.number == self.registration.leader
        )

    def do_produce(
        self,
        number: str,
        *values: str,
        acks: str = "all",
        timeout: str = "30000",
        producer: str = "-1",
        epoch: str = "-1",
        sequence: str = "-1",
    ) -> None:
        node = self.nodes[int(number)]
        leader = node.leader
        following = int(sequence)
        for value in values:
            records = tuple(value.split("+"))
            sent = header(count=len(records), producer_id=int(producer), producer_epoch=int(epoch), sequence=following)
            following += len(records) if int(producer) >= 0 else 0
            wanted = -1 if acks == "all" else int(acks)
            decision = leader.prepare_append(sent, wanted, self.now_ms, WALL_MS)
            if decision.error != ErrorCode.NONE:
                self._say(f"{value} {decision.error.name}: {decision.message}")
                continue
            effects = []
            if decision.header is None:
                self._say(f"{value} repeats offset {decision.base_offset}")
            else:
                node.disk.append([Batch(decision.header, records)])
                effects = leader.on_appended([decision.header], self.now_ms)
            if wanted == -1:
                node.purgatory.add(decision.required_offset, self.now_ms + int(timeout), value)
            elif wanted == 1:
                self._say(f"{value} acknowledged")
            node.step(effects, self.now_ms)
            node.answer(node.purgatory.on_progress(leader))
            self._answer_waiting(node)

    def do_read(self, number: str, *, epoch: str = "-1", **named: str) -> None:
        """A consumer's fetch from an offset (`from=2`)."""
        node = self.nodes[int(number)]
        assert node.role is not None, f"b{number} is down"
        offset = int(named["from"])
        decision = node.role.fetch_by_consumer(offset, int(epoch), -1, False, self.now_ms)
        if decision.error != ErrorCode.NONE:
            self._say(f"consumer at {offset}: {decision.error.name}")
            return
        batches = node.disk.read(offset, decision.limit)
        self._say(f"consumer at {offset}: {' '.join(map(str, batches)) or 'nothing yet'}")

    def do_latest(self, number: str) -> None:
        error, offset = self.nodes[int(number)].leader.offset_bound(-1, replica=False, read_committed=False)
        self._say(f"latest: {offset if error == ErrorCode.NONE else error.name}")

    def do_probe(self, number: str, *, epoch: str = "-1") -> None:
        """Fetch of a replica and of a consumer, ListOffsets and OffsetsForLeaderEpoch, one line each (R-111)."""
        node, believed = self.nodes[int(number)], int(epoch)
        role, replica = node.role, next(each.number for each in self.nodes if each is not node)
        assert role is not None, f"b{number} is down"
        if isinstance(role, LeaderPartition):
            fetch = FollowerFetch(replica, -1, role.log.log_end_offset, believed, -1, 0)
            answers = {
                f"fetch of b{replica}": role.read_for_follower(fetch).error,
                "fetch of a consumer": role.fetch_by_consumer(0, believed, -1, False, self.now_ms).error,
                "ListOffsets": role.offset_bound(believed, replica=True, read_committed=False)[0],
                "OffsetsForLeaderEpoch": role.end_offset_for_epoch(believed, 0)[0],
            }
        else:
            answers = dict.fromkeys(("fetch of a consumer", "every other"), role.refusal(believed))
        for request, error in answers.items():
            self._say(f"b{number} answers {request}: {error.name}")

    # --- Disks and time --------------------------------------------------------------------------------------------

    def do_settle(self) -> None:
        """Let everything run until nothing moves; only the end is told, not the way."""
        said, self._said[:] = list(self._said), []
        quiet = 0
        for _ in range(LONGEST_SETTLE):
            before = [node.describe() for node in self.nodes]
            self.now_ms += 1_000
            for node in self.nodes:
                if node.running and not isinstance(node.role, LeaderPartition) and node.follower.in_flight is None:
                    self.do_fetch(str(node.number))
            while self._leader().proposals:
                self.do_controller()
            quiet = quiet + 1 if before == [node.describe() for node in self.nodes] else 0
            if quiet == 3:  # a question about epochs and one about offsets change nothing by themselves
                break
        else:
            raise AssertionError("the cluster does not settle")
        told = [line for line in self._said if "acknowledged" in line or "truncated" in line or "failed" in line]
        self._said[:] = said + told

    def do_flush(self, number: str) -> None:
        disk = self.nodes[int(number)].disk
        disk.flushed = len(disk.batches)

    def do_checkpoint(self, number: str) -> None:
        node = self.nodes[int(number)]
        node.disk.high_watermark_checkpoint = node.open_log.high_watermark
