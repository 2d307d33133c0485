"""The commands of a controller's transcript: the core of the controller, with its time and its streams in our hands.

cluster brokers=1,2,3 [early=no] [old=yes] [elr=yes] [grace=2000]   registered and unfenced, streams open; `old`: a fast
                                restart keeps the ISR; `elr`: eligible leader replicas; `grace`: not the default of 300
topic orders 1,2,3 / 2,3,1 [min=2]      partitions by their replicas, all in sync, the first leads
end 2 [3 ...] [older]   session streams end, `older`: of the process before     stream 2 [older]        one is opened
dialled 2 refused|listening|silent [older]         what a dial found
beat 2 [shutdown] [fence] [full] [epoch=99] [orders-0=4:50] [orders-0=4:16!] [unreachable=1,3]   a heartbeat; it has
                                read all metadata, and says of its copies their last epochs and ends, `!` for one that
                                is damaged (`4:-1!`: it cannot be opened), `@2` for another leader epoch; which leaders
                                do not answer it, and whether its disk is full
register 2 [previous=101]       a new process of the broker asks for a registration
register 2 again [port=9192]    the process that is registered asks once more, or somebody in its name, with an address
unregister 2            an administrator takes the broker for gone for good
balance                 leaders go back to the first replicas
takeover                another controller takes over: it knows the metadata, and no streams
isr orders 0 1,2,3 [by=2] [broker_epoch=99] [epoch=0] [version=0] [member_epoch=99]   the leader, or another broker,
                                proposes an ISR, with these epochs instead of the right ones (of all members the last)
elect orders 0 preferred|unclean       an administrator asks for an election
reassign orders 0 4,5   an administrator wants these replicas; `cancel orders 0` takes that back
allow_unclean orders    unclean.leader.election.enable=true for the topic
set_min orders 1        an administrator sets the topic's min.insync.replicas
time 300                so much later; deadlines on the way are kept
sleep 20000             so much later, and the controller was asleep: it looks at nothing before it wakes up
"""

from __future__ import annotations

from odradek_broker.core.controller.alter_partition import alter_partition
from odradek_broker.core.controller.balance import balance_leaders, elect_leaders
from odradek_broker.core.controller.configs import alter_configs
from odradek_broker.core.controller.heartbeats import process_heartbeat
from odradek_broker.core.controller.reassignment import alter_partition_reassignments
from odradek_broker.core.controller.registration import fence_broker, register_broker, unregister_broker
from odradek_broker.core.controller.sessions import DialBroker, Fence, SessionEffect, SessionTable, SuspectSelf
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.controller.unfit_leaders import unfit_brokers
from odradek_broker.core.metadata.image import BrokerRegistration, MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.core.metadata.records import apply
from odradek_chaos.stage.transcript import Transcript, numbers
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_messages, controller_messages, metadata_messages
from odradek_proto.values import replace

CLUSTER = "c"


def endpoints(broker_id: int, port: str = "9092") -> dict[str, str]:
    return {"GRPC": f"b{broker_id}:{port}"}


class ControllerStage(Transcript):
    """One story. Brokers and partitions have state lines."""

    def __init__(self) -> None:
        super().__init__()
        self.settings = ControllerSettings(node_id=1, cluster_id=CLUSTER)
        self.image = MetadataImage(offset=200, epoch=1, cluster_id=CLUSTER)
        self.table = SessionTable(self.settings)
        self.lives: dict[int, int] = {}
        self.reassigns = False  # the story is about replica lists

    def settled(self) -> None:
        self.look()

    def states(self) -> list[tuple[str, str]]:
        lines = []
        for broker_id, known in sorted(self.image.brokers.items()):
            state = "fenced" if known.fenced else "leaving" if known.in_controlled_shutdown else "unfenced"
            moved = known.endpoints != endpoints(broker_id)
            at = f" at {known.endpoints['GRPC']}" if moved else ""
            lines.append((f"b{broker_id}", f"{state} epoch={known.broker_epoch}{at}"))
        for topic in self.image.topics.values():
            for number, partition in topic.partitions.items():
                leader = "none" if partition.leader < 0 else f"{partition.leader}"
                isr = ",".join(map(str, partition.isr)) or "nobody"
                epochs = f"epoch={partition.leader_epoch} version={partition.partition_epoch}"
                state = f"leader={leader} {epochs} isr={isr}{self.replicas(partition)}{self.eligible(partition)}"
                lines.append((f"{topic.name}-{number}", state))
        return lines

    def replicas(self, partition: PartitionRegistration) -> str:
        """The replica list, in a story about it: `+` comes, `-` goes."""
        if not self.reassigns:
            return ""
        signs = dict.fromkeys(partition.adding, "+") | dict.fromkeys(partition.removing, "-")
        return " replicas=" + ",".join(f"{signs.get(replica, '')}{replica}" for replica in partition.replicas)

    def eligible(self, partition: PartitionRegistration) -> str:
        """Who may lead without being in sync, in a story about that (KIP-966)."""
        if not self.settings.elr_enable:
            return ""
        known = "".join(f" last_known={each}" for each in partition.last_known_eligible)
        return " eligible=" + (",".join(map(str, partition.eligible)) or "nobody") + known

    def incarnation(self, broker_id: int, whose: str = "") -> bytes:
        """The incarnation id of the last process that registered; `older`: of the process before it."""
        life = self.lives.setdefault(broker_id, 0) - (whose == "older")
        assert life >= 0, f"b{broker_id} has had one process only"
        return bytes([broker_id, life]) * 8

    def write(self, records: object) -> None:
        assert isinstance(records, (list, tuple)), records
        if records:
            self._said.append(f"batch of {len(records)}")
        for record in records:
            apply(self.image, record, self.image.offset, self.image.epoch)

    def look(self) -> None:
        """Carry out the session table's due effects until there are none."""
        while effects := self.table.on_time(self.image, self.now_ms):
            self.carry_out(effects)
        self.table.next_deadline_ms(self.image, self.now_ms)

    def carry_out(self, effects: list[SessionEffect]) -> None:
        for effect in effects:
            match effect:
                case DialBroker(broker_id, _):
                    self.say(f"dial b{broker_id}")
                case Fence(broker_id, reason):
                    self.say(f"fence b{broker_id}: {reason.value}")
                    self.write(fence_broker(self.image, self.settings, broker_id).records)
                case SuspectSelf(broker_id, silent, unfenced):
                    self.say(f"suspects itself: b{broker_id} among {silent} of {unfenced} silent")

    def do_cluster(self, *, brokers: str, early: str = "", old: str = "", elr: str = "", grace: str = "") -> None:
        self.settings = ControllerSettings(
            node_id=1,
            cluster_id=CLUSTER,
            early_fencing=early != "no",
            fast_restart_keeps_isr=old == "yes",
            elr_enable=elr == "yes",
            session_grace_ms=int(grace or self.settings.session_grace_ms),
        )
        for broker_id in numbers(brokers):
            incarnation, at = self.incarnation(broker_id), endpoints(broker_id)
            self.image.brokers[broker_id] = BrokerRegistration(
                broker_id, 100 + broker_id, incarnation, at, fenced=False
            )
        self.table = SessionTable(self.settings)
        self.table.take_over(self.image, 0)
        for broker_id in self.image.brokers:
            self.do_stream(str(broker_id))

    def do_topic(self, name: str, *words: str, min: str = "") -> None:
        topic = self.image.topics[name] = TopicImage(name, name.encode().ljust(16))
        self.image.topic_names[topic.topic_id] = name
        if min:
            self.image.topic_configs[name] = {"min.insync.replicas": min}
        for number, replicas in enumerate(numbers(word) for word in words if word != "/"):
            topic.partitions[number] = PartitionRegistration(replicas, replicas, replicas[0], 0, 0)

    def do_stream(self, broker: str, whose: str = "") -> None:
        self.table.stream_opened(int(broker), self.incarnation(int(broker), whose), self.now_ms)

    def do_end(self, *words: str) -> None:
        whose = "older" if words[-1] == "older" else ""
        for broker in words[: len(words) - bool(whose)]:
            self.table.stream_ended(int(broker), self.incarnation(int(broker), whose), self.now_ms)

    def do_dialled(self, broker: str, found: str, whose: str = "") -> None:
        dial = DialBroker(int(broker), self.incarnation(int(broker), whose))
        self.carry_out(self.table.dial_answered(self.image, dial, found == "refused", self.now_ms))

    def do_beat(self, broker: str, *wishes: str, epoch: str = "", unreachable: str = "", **copies: str) -> None:
        known = self.image.brokers[int(broker)]
        heartbeat = controller_messages.Heartbeat(
            broker_id=known.broker_id,
            broker_epoch=int(epoch or known.broker_epoch),
            incarnation_id=self.incarnation(known.broker_id),
            current_metadata_offset=self.image.offset,
            want_fence="fence" in wishes,
            want_shut_down="shutdown" in wishes,
            replicas=[self.report(copy, said) for copy, said in copies.items()],
            unreachable=numbers(unreachable),
            disk_full="full" in wishes,
        )
        decision = process_heartbeat(self.image, self.settings, self.table, heartbeat, self.now_ms)
        answer = decision.answer
        said = [ErrorCode(answer.error_code).name] if answer.error_code else []
        said += ["may stop"] if answer.should_shut_down else []
        self._said.append(f"answer to b{broker}: {', '.join(said) or 'fine'}")
        self.write(decision.records)

    def report(self, copy: str, said: str) -> controller_messages.ReplicaReport:
        """Of `orders-0` and `4:16!@2`: last epoch 4, log end offset 16, damaged, in leader epoch 2."""
        topic, _, partition = copy.rpartition("-")
        said, _, leader_epoch = said.partition("@")
        last_epoch, end = said.rstrip("!").split(":")
        current = self.image.topics[topic].partitions[int(partition)]
        return controller_messages.ReplicaReport(
            topic_id=self.image.topics[topic].topic_id,
            partition=int(partition),
            leader_epoch=int(leader_epoch or current.leader_epoch),
            last_epoch=int(last_epoch),
            log_end_offset=int(end),
            damaged=said.endswith("!"),
        )

    def do_register(self, broker: str, *words: str, previous: str = "-1", port: str = "9092") -> None:
        broker_id, again = int(broker), "again" in words
        valid = self.table.has_valid_session(broker_id, self.now_ms)
        self.lives[broker_id] += not again
        request = controller_messages.RegisterBrokerRequest(
            broker_id=broker_id,
            cluster_id=CLUSTER,
            incarnation_id=self.incarnation(broker_id),
            endpoints=endpoints(broker_id, port),
            previous_broker_epoch=int(previous),
        )
        decision = register_broker(self.image, self.settings, request, session_valid=valid)
        if decision.answer.error_code:
            self._said.append(f"refused: {ErrorCode(decision.answer.error_code).name}")
            self.lives[broker_id] -= not again
            return
        if again:  # a new epoch is the offset of its record, and stands in the state line
            self._said.append(f"answer to b{broker}: epoch={decision.answer.broker_epoch}")
        self.write(decision.records)
        self.table.registered(self.image.brokers[broker_id], self.now_ms)

    def do_takeover(self) -> None:
        self.image.epoch += 1
        self.table.take_over(self.image, self.now_ms)

    def do_isr(self, topic: str, number: str, members: str, **instead: str) -> None:
        partition = self.image.topics[topic].partitions[int(number)]
        said = {name: int(value) for name, value in instead.items()}
        sender = said.get("by", partition.leader)
        epochs = {i: known.broker_epoch for i, known in self.image.brokers.items()}
        asked = [controller_messages.IsrMember(broker_id=i, broker_epoch=epochs[i]) for i in numbers(members)]
        if "member_epoch" in said:
            asked[-1] = replace(asked[-1], broker_epoch=said["member_epoch"])
        item = controller_messages.AlterPartitionItem(
            topic_id=self.image.topics[topic].topic_id,
            partition=int(number),
            leader_epoch=said.get("epoch", partition.leader_epoch),
            partition_epoch=said.get("version", partition.partition_epoch),
            new_isr=asked,
        )
        request = controller_messages.AlterPartitionRequest(
            broker_id=sender, broker_epoch=said.get("broker_epoch", epochs[sender]), partitions=[item]
        )
        answer = (decision := alter_partition(self.image, self.settings, request)).answer
        error = answer.error_code or answer.partitions[0].error_code
        self._said.append(f"answer to b{sender}: {ErrorCode(error).name}")
        self.write(decision.records)

    def do_elect(self, topic: str, number: str, kind: str) -> None:
        named = [admin_messages.ElectPartition(topic=topic, partition=int(number))]
        request = admin_messages.ElectLeadersRequest(election_type=kind, partitions=named)
        decision = elect_leaders(self.image, self.settings, request, unfit_brokers(self.image, self.table))
        self._said += [f"{kind} election: {ErrorCode(each.error_code).name}" for each in decision.answer.partitions]
        self.write(decision.records)

    def do_unregister(self, broker: str) -> None:
        decision = unregister_broker(self.image, int(broker))
        answer = decision.answer
        self._said.append(f"answer: {ErrorCode(answer.error_code).name} {answer.error_message}".rstrip())
        self.write(decision.records)

    def do_balance(self) -> None:
        self.write(balance_leaders(self.image, self.settings, unfit_brokers(self.image, self.table)).records)

    def do_reassign(self, topic: str, number: str, replicas: str = "") -> None:
        self.reassigns = True
        item = admin_messages.ReassignedPartition(topic=topic, partition=int(number), replicas=numbers(replicas))
        request = admin_messages.AlterPartitionReassignmentsRequest(partitions=[item])
        decision = alter_partition_reassignments(self.image, self.settings, request)
        (result,) = decision.answer.partitions
        if result.error_code:
            self._said.append(f"refused: {ErrorCode(result.error_code).name}: {result.error_message}")
        self.write(decision.records)

    def do_cancel(self, topic: str, number: str) -> None:
        self.do_reassign(topic, number)

    def do_allow_unclean(self, topic: str) -> None:
        config = metadata_messages.ConfigRecord(
            resource_type="topic", resource_name=topic, name="unclean.leader.election.enable", value="true"
        )
        self.write([config])

    def do_set_min(self, topic: str, count: str) -> None:
        request = admin_messages.AlterConfigsRequest(
            resource_type="topic", resource_name=topic, set={"min.insync.replicas": count}
        )
        self.write(alter_configs(self.image, self.settings, request).records)

    def do_time(self, duration_ms: str) -> None:
        until_ms = self.now_ms + int(duration_ms)
        while True:
            self.look()
            following = self.table.next_deadline_ms(self.image, self.now_ms)
            if following > until_ms:
                break
            self.now_ms = max(following, self.now_ms)
            if following == until_ms:
                self.look()
                break
        self.now_ms = until_ms

    def do_sleep(self, duration_ms: str) -> None:
        self.now_ms += int(duration_ms)
