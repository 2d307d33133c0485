"""The commands of the stage: a small cluster, a controller that follows A11, and a network that loses on command.

cluster brokers=2 mode=fetch min_isr=1 lag=10000 isr=0,1 elr=off   a new cluster, the first broker leads in epoch 0;
                                             `brokers=1,2` names them
produce 0 m1 m2+m3 acks=all timeout=30000    batches of one or more records, to broker 0
produce 0 m1 producer=7 epoch=1 sequence=4   of an idempotent producer, whose batches follow from that sequence on
produce 0 m1 lose=answer                     its producer never hears of it
fetch 1 [lose=request|reply] [hold|late] [wait]   one question of broker 1 and its answer; `hold`: the answer is held
                                             on the way, `late`: the question is; `wait` lets it wait for data
fetch 1 last=9                               the same, and it says that its newest epoch is 9
deliver 1 [hold]                             what is held arrives; `hold`: the answer to it is held
settle                                       fetches and ISR changes until nothing moves
controller [0] [error=NAME] [lose=answer] [keep]   the controller answers broker 0 (the leader), whose AlterPartition
                                             waits; `keep`: the others do not see the change
controller whole=NAME                        it refuses the request as a whole
controller version=1 [leader_epoch=1]        it says yes, of these epochs, and changes nothing
publish                                      every running broker sees the metadata
touch                                        a change of the metadata that leaves leader and ISR, seen by all
crash 1 [power]                              kill, also several: `1,2`; with `power` what was not flushed is lost
start 1 [keep|clean] [only=1]                boot and unfence; with `keep` it never left the ISR (L-12), with `clean` it
                                             was stopped cleanly (R-141)
fence 0, unfence 0                           the controller believes that a broker is dead, or alive again
elect 1 [only=0,2], unclean 1                who is to lead; with `only`, just these brokers hear of it
flush 1, checkpoint 1 [lost]                 the log to the disk; the high watermark to its file, or the file is lost
time 5000                                    the clock goes on, timers run
read 0 from=2 [epoch=1] [min=40] [wait=500]  a consumer's fetch, of so many bytes at least, that waits so long; sizes
                                             are those on the disk
latest 0                                     ListOffsets
delete 0 2 [timeout=30000]                   DeleteRecords up to offset 2
probe 0 [replica=2] [epoch=1]                each request with a leader epoch, of one who believes in it
stale 0                                      the metadata from before the last change arrive once more

What brokers say and do comes from their own code (`node`, `exchange`, `clients`), and so does what the controller
makes of an AlterPartition and of a broker that comes or goes. When it does so, and `elect` and `unclean`, are up to the
story; controller/ has the stories of the real ones.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Sequence

from odradek_broker.core.controller.alter_partition import alter_partition
from odradek_broker.core.controller.partitions import elect_leaderless, remove_broker
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from odradek_broker.core.metadata.records import MetadataRecord, apply
from odradek_broker.core.partition.leader import LeaderPartition
from odradek_broker.core.partition.messages import PartitionSettings, TruncationMode
from odradek_broker.core.partition.policy import policy_for
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable
from odradek_broker.storage.settings import LogSettings
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import controller_messages
from odradek_proto.values import replace

from odradek_chaos.stage.clients import Clients
from odradek_chaos.stage.disk import StageDisk
from odradek_chaos.stage.metadata import ORDERS, TOPIC_ID, Brokers
from odradek_chaos.stage.node import StageNode
from odradek_chaos.stage.said import (
    CONTROLLER,
    BatchAnswered,
    Evidence,
    FollowerFailed,
    LeaderElected,
    MessageFate,
    MessageSent,
    StateChanged,
    TranscriptLine,
    ids,
)
from odradek_chaos.stage.transcript import numbers, options

START_MS = 1_000  # the time at which a story begins
TURNS = 8  # of the loop, after which all messages of a step have arrived
LONGEST_SETTLE = 200  # rounds; a story that needs more is stuck


class Stage(Clients):
    """One story's cluster. `run` executes a command and returns its events."""

    def __init__(self) -> None:
        super().__init__()
        self._shown: dict[int, str] = {}
        self._next_broker_epoch = 200
        self._before: PartitionRegistration | None = None
        self._settings = ControllerSettings(node_id=0, cluster_id="", elr_enable=False)
        self._loop.run(self._clock.sleep(START_MS))

    def run(self, line: str) -> list[TranscriptLine]:
        """Execute one command; afterwards every broker whose state line is new is shown."""
        self._said = []
        self._loop.run(self._execute(line))
        assert not self._loop.unhandled, self._loop.unhandled
        self._show()
        return self._said

    async def _execute(self, line: str) -> None:
        name, *words = line.split()
        plain, named = options(words)
        done: Awaitable[None] | None = getattr(self, f"do_{name}")(*plain, **named)
        if inspect.isawaitable(done):
            await done
        await self._turn()

    @property
    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def _turn(self) -> None:
        """Deliver all messages."""
        for _ in range(TURNS):
            await asyncio.sleep(0)
        self._answer_woken()

    def _show(self) -> None:
        for node in self.nodes.values():
            line = node.describe()
            if self._shown.get(node.number) != line:
                self._shown[node.number] = line
                self._say(StateChanged(line))

    # --- Cluster ---------------------------------------------------------------------------------------------------

    def do_cluster(
        self,
        *,
        brokers: str = "2",
        mode: str = "fetch",
        min_isr: str = "1",
        lag: str = "10000",
        isr: str = "",
        elr: str = "off",
    ) -> None:
        replicas = numbers(brokers) if "," in brokers else tuple(range(int(brokers)))
        members = numbers(isr) or replicas
        settings = PartitionSettings(min_insync_replicas=int(min_isr), replica_lag_time_max_ms=int(lag))
        policy = policy_for(TruncationMode(mode))
        self._settings = replace(self._settings, elr_enable=elr == "on", min_insync_replicas=int(min_isr))
        log_settings = LogSettings(accept_straddling=policy.appends_straddling_batch)
        self.brokers = Brokers(replicas)
        self.registration = PartitionRegistration(replicas, members, replicas[0], 0, 0)
        for number in replicas:
            disk = StageDisk(number, log_settings, self._loop)
            self.nodes[number] = StageNode(number, settings, policy, self._clock, disk, self._say)
        self._publish()

    def _publish(self, *, only: Sequence[int] = ()) -> None:
        """Every running broker, or just these, sees the metadata; at the beginning all are started."""
        first = not self._shown
        for node in self.nodes.values():
            if (node.running or first) and (not only or node.number in only):
                node.take(self.registration, self.brokers)
        for node in self.nodes.values():
            if node.running and (not only or node.number in only):
                node.here.on_brokers_changed()

    def _change(self, **changes: object) -> None:
        """One change of the metadata: partition epoch + 1, and leader epoch + 1 with a new leader (R-55, R-56)."""
        old = self.registration
        new = replace(old, partition_epoch=old.partition_epoch + 1, **changes)
        if new.leader != old.leader:
            new = replace(new, leader_epoch=old.leader_epoch + 1)
        self._become(new)

    def _image(self) -> MetadataImage:
        """The controller's metadata, for its own code to decide by."""
        topic = TopicImage(ORDERS.topic, TOPIC_ID, {ORDERS.partition: self.registration})
        brokers, names = dict(self.brokers.known), {TOPIC_ID: ORDERS.topic}
        return MetadataImage(brokers=brokers, topics={ORDERS.topic: topic}, topic_names=names)

    def _apply(self, records: Sequence[MetadataRecord]) -> None:
        """The controller's records are committed, and not published yet."""
        image = self._image()
        for record in records:
            apply(image, record, image.offset, image.epoch)
        new = image.partition(ORDERS)
        assert new is not None, records
        if new != self.registration:
            self._become(new)

    def _become(self, new: PartitionRegistration) -> None:
        old = self.registration
        if (new.leader, new.eligible) != (old.leader, old.eligible):
            eligible = tuple(new.eligible) if self._settings.elr_enable else None
            self._say(LeaderElected(new.leader, new.leader_epoch, tuple(new.isr), eligible, new.leader == old.leader))
        self.registration, self._before = new, old

    def do_crash(self, brokers: str, power: str = "") -> None:
        for number in numbers(brokers):
            node = self.nodes[number]
            self._hang_up(node)
            said = list(self._said)
            node.stop()
            self._said[:] = said  # a dead broker does not respond
            if power:
                node.disk.lose_power()

    def do_start(self, number: str, *words: str, only: str = "") -> None:
        """A new process with a new broker epoch. Without `keep` it leaves the ISR first (R-152)."""
        who = int(number)
        self._next_broker_epoch += 1
        if "keep" not in words:
            unclean = () if "clean" in words else (who,)
            self._apply(remove_broker(self._image(), self._settings, who, unclean))
            self.brokers.change(who, fenced=True)
            self._publish()
        self.brokers.change(who, epoch=self._next_broker_epoch, fenced=False)
        self.nodes[who].broker_epoch = self._next_broker_epoch
        self.nodes[who].take(self.registration, self.brokers)
        self._apply(elect_leaderless(self._image(), self._settings, unfenced=who))
        self._publish(only=numbers(only))

    def do_fence(self, number: str) -> None:
        """R-134, R-135."""
        who = int(number)
        self._apply(remove_broker(self._image(), self._settings, who))
        self.brokers.change(who, fenced=True)
        self._publish()

    def do_unfence(self, number: str) -> None:
        """R-136."""
        who = int(number)
        self._apply(elect_leaderless(self._image(), self._settings, unfenced=who))
        self.brokers.change(who, fenced=False)
        self._publish()

    def do_elect(self, number: str, *, only: str = "") -> None:
        """A clean election; with `only`, just these brokers get the metadata."""
        assert int(number) in self.registration.isr, (number, self.registration)
        self._change(leader=int(number))
        self._publish(only=numbers(only))

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
        self.nodes[int(number)].take(self._before, self.brokers)

    # --- AlterPartition --------------------------------------------------------------------------------------------

    async def do_controller(
        self,
        *words: str,
        error: str = "",
        whole: str = "",
        lose: str = "",
        version: str = "",
        leader_epoch: str = "",
    ) -> None:
        """Answer the AlterPartition of a broker: as the controller decides, or as the story wants it."""
        node = self._asking(next((int(word) for word in words if word.isdigit()), None))
        request, answer = node.controller.requests.pop(0)
        if whole:
            response = controller_messages.AlterPartitionResponse(error_code=ErrorCode[whole])
        elif error or version:
            response = self._forced(request.partitions[0], error, version, leader_epoch)
        else:
            response = self._decide(request)
        said = _answer_text(response, epochs=bool(version))
        fate = MessageFate.LOST if lose else MessageFate.ARRIVES
        self._say(
            MessageSent(CONTROLLER, f"b{node.number}", f"AlterPartition {said}", fate, said.replace("isr=", "ISR "))
        )
        if lose:
            answer.set_exception(ControllerUnavailable("the answer is lost"))
        else:
            answer.set_result(response.SerializeToString())
        await self._turn()
        if "keep" not in words:
            self._publish()

    def _asking(self, number: int | None) -> StageNode:
        """The broker to respond to: that of the number, or the leader, or any with a pending request."""
        asking = [node for node in self.nodes.values() if node.controller.requests]
        wanted = self.registration.leader if number is None else number
        found = next((node for node in asking if node.number == wanted), None)
        if found is None and number is None and asking:
            found = asking[0]
        assert found is not None, f"no AlterPartition waits; asking are {[node.number for node in asking]}"
        return found

    def _decide(self, request: controller_messages.AlterPartitionRequest) -> controller_messages.AlterPartitionResponse:
        """The controller's decision by the current metadata (R-54, R-55); its records are applied."""
        decision = alter_partition(self._image(), self._settings, request)
        self._apply(decision.records)
        return decision.answer

    def _forced(
        self, item: controller_messages.AlterPartitionItem, error: str, version: str, leader_epoch: str
    ) -> controller_messages.AlterPartitionResponse:
        altered = controller_messages.AlteredPartition(topic_id=item.topic_id, partition=item.partition)
        if error:
            altered = replace(altered, error_code=ErrorCode[error])
        else:
            wished = [member.broker_id for member in item.new_isr]
            altered = replace(
                altered,
                leader_epoch=int(leader_epoch) if leader_epoch else item.leader_epoch,
                partition_epoch=int(version),
                isr=self.registration.isr if int(version) == item.partition_epoch else wished,
            )
        return controller_messages.AlterPartitionResponse(partitions=[altered])

    # --- Disks and time --------------------------------------------------------------------------------------------

    async def do_time(self, passed: str) -> None:
        """Timers run when their time comes, and then every leader looks at its ISR once."""
        await self._clock.sleep(int(passed))
        for node in self.nodes.values():
            if node.running:
                node.here.on_time()

    async def do_settle(self) -> None:
        """Run until nothing changes; only the end is reported."""
        said, self._said[:] = list(self._said), []
        quiet = 0
        for _ in range(LONGEST_SETTLE):
            before = [node.describe() for node in self.nodes.values()]
            await self._clock.sleep(1_000)
            for node in self.nodes.values():
                if node.running and not isinstance(node.role, LeaderPartition) and node.follower.in_flight is None:
                    self.do_fetch(str(node.number))
            await self._turn()
            while any(node.proposals for node in self.nodes.values()):
                await self.do_controller()
            quiet = quiet + 1 if before == [node.describe() for node in self.nodes.values()] else 0
            if quiet == 3:  # a question about epochs and one about offsets change nothing by themselves
                break
        else:
            raise AssertionError("the cluster does not settle")
        told = [each for each in self._said if _is_told_of_settling(each)]
        self._said[:] = said + told

    def do_flush(self, number: str) -> None:
        self.nodes[int(number)].disk.log.flush()

    def do_checkpoint(self, number: str, lost: str = "") -> None:
        self.nodes[int(number)].disk.checkpoint(lost=bool(lost))


def _is_told_of_settling(said: TranscriptLine) -> bool:
    acknowledged = isinstance(said, BatchAnswered) and said.error is ErrorCode.NONE
    cut = isinstance(said, Evidence) and said.event == "truncated"
    return acknowledged or cut or isinstance(said, FollowerFailed)


def _answer_text(response: controller_messages.AlterPartitionResponse, *, epochs: bool) -> str:
    if response.error_code:
        return f"{ErrorCode(response.error_code).name}, the whole request"
    (item,) = response.partitions
    if item.error_code:
        return ErrorCode(item.error_code).name
    said = f"isr={ids(item.isr)}"
    return said + (f" leader_epoch={item.leader_epoch} partition_epoch={item.partition_epoch}" if epochs else "")
