"""The commands of a quorum's transcript: some voters, a network that obeys, and the words they exchange.

quorum voters=3 observers=0 seed=1     a new quorum; nodes count from 1, all down. For stories of snapshots:
    snapshot=300 retention=600 piece=100   bytes between two, of log and snapshots that are kept, and of one fetch
    checked=no        the story takes more from the quorum than it can bear, so its invariants are not asserted
start [1 2]       boot these nodes, or all that are down      crash 1       kill -9: what was written stays
power_loss 1      node 1's machine stops in silence, and its disk forgets what was not flushed
lose 1            node 1, which is down, loses its disk
part 1 [2]        cut these nodes off from the others         heal          all links work again
append 1 m1 m2    one batch, at node 1                        resign 1      a clean stop, as a leader resigns first
settle            run until one leader leads and everybody knows what it knows
leads [not 1]     run until a node leads (another one than node 1)
damage            the next piece of a snapshot arrives with a bit turned over
installs 2        run until node 2 has got a snapshot
fetches 2         run until node 2 has got the first piece of one
run 500           let so many milliseconds pass
stands 2          run until node 2 opens an epoch             fails 2       run until node 2 stops for good, by itself
hold 3 2 Vote     node 3's next answer to node 2 of this kind (PreVote, Vote, Fetch) stays on its way
deliver           it arrives, late
probe 2 3 epoch=1 [Vote Fetch]    node 2 is handed what node 3 would say, with its log, if it believed in that epoch;
                  without names everything that the quorum says. No link has to work, and node 3 hears no answer.

Said is what changes a node (transitions, high watermarks, leaders that it hears of), and who asks whom for a vote: `->`
arrives, `-x` is lost, `..` is an answer that is held; one that is lost is not said. A question that is asked again in
the same words, because nothing came back, is said once per command.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from odradek_broker.core.quorum.messages import (
    Answer,
    BeginEpoch,
    EndEpoch,
    Fetch,
    FetchSnapshot,
    FetchSnapshotAnswer,
    NotLeader,
    QuorumFetchAnswer,
    QuorumState,
    Request,
    SnapshotId,
    Vote,
    VoteAnswer,
)
from odradek_broker.runtime.quorum.node import NOWHERE, QuorumNode
from odradek_broker.runtime.quorum.settings import QuorumSettings
from odradek_broker.runtime.quorum.state_file import write_quorum_state
from odradek_broker.runtime.quorum.wire import decode_answer, decode_request, encode_answer, encode_request
from odradek_broker.storage.directory import METADATA_PARTITION
from odradek_chaos.stage.transcript import Transcript
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_chaos.worlds.simulated.net.links import uniform
from odradek_chaos.worlds.simulated.net.network import SimNetwork
from odradek_chaos.worlds.simulated.observe.tapped_network import TappedNetwork
from odradek_proto.transport.ports import DeadlineExceeded, Network
from odradek_proto.values import replace

from tests.broker.quorum_world import CLUSTER_ID, QuorumWorld

CONFIG = {"snapshot": "snapshot_max_bytes", "retention": "retention_bytes", "piece": "fetch_max_bytes"}
METADATA_DIRECTORY = f"/data/{METADATA_PARTITION}"
ARRIVES, IS_LOST, IS_HELD = "->", "-x", ".."
T = TypeVar("T")
LIMIT_MS = 30_000  # of a command that waits


def name_of(request: Request) -> str:
    """A pre-vote is a `Vote` as well."""
    return "PreVote" if isinstance(request, Vote) and request.pre_vote else type(request).__name__


class StageWorld(QuorumWorld):
    """Nodes whose events, high watermarks, leaders and votes are told to the stage."""

    def __init__(self, voters: int, observers: int, seed: int, stage: QuorumStage, **settings: int) -> None:
        super().__init__(voters, observers, seed=seed, segment_bytes=1, **settings)  # a batch is a segment
        self.fabric.default_delay = uniform(0, 3)
        self._stage = stage
        self._seen: dict[int, None] = {}  # nodes that have been started
        self._known: dict[int, int] = {}  # high watermark of each running node

    def new_node(self, settings: QuorumSettings, ports: NodePorts) -> QuorumNode:
        """The voters of a story have been in this quorum before: their votes count, but for one with a lost disk."""
        if settings.node_id not in self._seen:
            self._seen[settings.node_id] = None
            ports.files.makedirs(METADATA_DIRECTORY)
            write_quorum_state(ports.files, METADATA_DIRECTORY, QuorumState(), sorted(settings.voters))
        return super().new_node(settings, ports)

    def network_of(self, node_id: int, ports: NodePorts) -> Network:
        self._known.pop(node_id, None)
        return StageNetwork(ports.network, node_id, self, self._stage)

    def on_leader_changed(self, node_id: int, leader_id: int, epoch: int) -> None:
        super().on_leader_changed(node_id, leader_id, epoch)
        if leader_id == -1:
            self._say(node_id, f"n{node_id} knows no leader, epoch {epoch}")

    def _on_event(self, node_id: int, event: str, facts: Mapping[str, object]) -> None:
        told = " ".join(f"{key}={_plain(value)}" for key, value in facts.items() if key not in ("node", "rule"))
        self._say(node_id, f"n{node_id} {event} {told} [{facts['rule']}]")
        super()._on_event(node_id, event, facts)

    def _check(self, node_id: int) -> None:
        self._look(node_id)
        super()._check(node_id)

    def _say(self, node_id: int, text: str) -> None:
        self._look(node_id)
        self._stage.say(text)

    def _look(self, node_id: int) -> None:
        node = self.nodes.get(node_id)
        if node is not None and node.state_name != "resigned":
            before = self._known.setdefault(node_id, node.high_watermark)
            if node.high_watermark > before:
                self._known[node_id] = node.high_watermark
                self._stage.say(f"n{node_id} high watermark {before} => {node.high_watermark}")

    def look_at_all(self) -> None:
        for node_id in self.running:
            self._look(node_id)

    def is_lost(self, sender: int, receiver: int) -> bool:
        link = self.fabric.link(f"node{sender}", f"node{receiver}")
        return link.is_cut or receiver not in self.running

    def part(self, *node_ids: int, deaf: bool = True, mute: bool = True) -> None:
        """A message that is sent while a link is cut does not wait for it."""
        super().part(*node_ids, deaf=deaf, mute=mute)
        for link in self.fabric.links():
            link.lose_requests = link.lose_replies = float(link.is_cut)


class StageNetwork(TappedNetwork):
    """The calls of one node: the stage is told of each, and may hold or damage an answer."""

    def __init__(self, network: Network, node_id: int, world: StageWorld, stage: QuorumStage) -> None:
        super().__init__(network)
        self._node_id = node_id
        self._world = world
        self._stage = stage

    async def call(self, peer: str, method: str, request: bytes, timeout_ms: float) -> bytes:
        asked = decode_request(method, request).request
        peer_id = next(i for i, address in self._world.addresses.items() if address == peer)
        fate = IS_LOST if self._world.is_lost(self._node_id, peer_id) else ARRIVES
        self._stage.on_request(self._node_id, peer_id, asked, fate)
        end_ms = self._world.clock.now_ms() + timeout_ms
        data = await super().call(peer, method, request, timeout_ms)
        answer = decode_answer(asked, data)
        if isinstance(answer, FetchSnapshotAnswer) and answer.data and self._stage.damage:
            self._stage.damage = False
            return encode_answer(replace(answer, data=bytes([answer.data[0] ^ 1]) + answer.data[1:]))
        try:
            async with asyncio.timeout((end_ms - self._world.clock.now_ms()) / 1000):
                await self._stage.on_answer(self._node_id, peer_id, asked, answer)
        except TimeoutError:
            raise DeadlineExceeded(f"{peer} {method}: held") from None
        return data


class QuorumStage(Transcript):
    """One story's quorum. A node's state line has its role, epoch and log."""

    def __init__(self) -> None:
        super().__init__()
        self.damage = False
        self._fetching: dict[int, None] = {}  # nodes that have got a piece of a snapshot
        self._asked: dict[tuple[int, int], str] = {}  # the last vote request, by sender and receiver, unanswered
        self._to_hold: tuple[int, int, str] | None = None
        self._held: asyncio.Event | None = None
        self._world = StageWorld(3, 0, 0, self)

    def say(self, text: str) -> None:
        self.now_ms = self._world.clock.now_ms()
        super().say(text)

    def close(self) -> None:
        self._run(self._world.kill_all())
        self._world.loop.close()

    def settled(self) -> None:
        """No process has ended by itself, but for one that the story waits for (`fails`)."""
        assert (self._world.loop.unhandled, self._world.failures) == ([], {})
        for machine in self._world.machines.values():
            assert machine.failure is None, (machine.name, machine.failure)
        self._asked = {}
        self._world.look_at_all()

    def states(self) -> Iterator[tuple[str, str]]:
        """A node is shown as soon as it has an epoch."""
        for node_id in self._world.machines:
            node = self._world.nodes.get(node_id)
            if node_id not in self._world.running:
                if f"n{node_id}" in self._shown:
                    yield f"n{node_id}", "down"
            elif node is not None and (node.epoch or f"n{node_id}" in self._shown):
                yield f"n{node_id}", _state(node)

    def on_request(self, sender: int, receiver: int, request: Request, fate: str) -> None:
        if not isinstance(request, Vote):
            return
        text = f"{name_of(request)} epoch={request.epoch} last={request.last_epoch} end={request.end_offset}"
        if fate != IS_LOST or self._asked.get((sender, receiver)) != text:
            self.say(f"n{sender} {fate} n{receiver} {text}")
        self._asked[sender, receiver] = text

    async def on_answer(self, sender: int, receiver: int, request: Request, answer: Answer) -> None:
        """Report votes, and responses that are held or late."""
        self._asked.pop((sender, receiver), None)
        if isinstance(answer, FetchSnapshotAnswer) and answer.data:
            self._fetching[sender] = None
        text = f"{name_of(request)}Reply {_content(answer)}"
        if (receiver, sender, name_of(request)) == self._to_hold:
            self._to_hold, self._held = None, asyncio.Event()
            self.say(f"n{receiver} {IS_HELD} n{sender} {text}")
            await self._held.wait()
            self.say(f"n{receiver} {ARRIVES} n{sender} late {text}")
        elif isinstance(answer, VoteAnswer):
            self.say(f"n{receiver} {ARRIVES} n{sender} {text}")

    def _run(self, work: Awaitable[Any]) -> Any:
        async def main() -> Any:
            return await work

        return self._world.loop.run(main())

    async def _within(self, node_id: int, work: Callable[[], T]) -> T:
        """Do it in a node's process."""
        done = asyncio.get_running_loop().create_future()

        def do() -> None:
            try:
                done.set_result(work())
            except NotLeader as error:
                done.set_exception(error)

        self._world.within(node_id, do)
        return cast("T", await done)

    def _until(self, condition: Callable[[], object]) -> None:
        self._run(self._world.until(condition, LIMIT_MS))

    # --- commands ---

    def do_quorum(
        self, *, voters: str = "3", observers: str = "0", seed: str = "1", checked: str = "yes", **sizes: str
    ) -> None:
        config = {CONFIG[name]: int(value) for name, value in sizes.items()}
        self._world = StageWorld(int(voters), int(observers), int(seed), self, **config)
        self._world.is_checked = checked == "yes"

    def do_start(self, *node_ids: str) -> None:
        self._world.start(*map(int, node_ids))
        nodes = self._world.nodes
        self._until(lambda: all(i in nodes and nodes[i].quorum_status is not NOWHERE for i in self._world.running))

    def do_crash(self, node_id: str) -> None:
        self._world.machines[int(node_id)].kill()

    def do_power_loss(self, node_id: str) -> None:
        self._world.machines[int(node_id)].power_loss()

    def do_lose(self, node_id: str) -> None:
        self._world.lose_disk(int(node_id))

    def do_part(self, *node_ids: str) -> None:
        self._world.part(*map(int, node_ids))

    def do_heal(self) -> None:
        self._world.heal()

    def do_append(self, node_id: str, *records: str) -> None:
        try:
            values = tuple(record.encode() for record in records)
            offset = self._run(self._within(int(node_id), lambda: self._world.append_now(int(node_id), values)))
        except NotLeader as error:
            self.say(f"n{node_id} refuses: {error}")
        else:
            self.say(f"n{node_id} appended at {offset}")

    def do_resign(self, node_id: str) -> None:
        async def stop() -> None:
            await (await self._within(int(node_id), lambda: asyncio.create_task(node.stop())))

        node = self._world.nodes[int(node_id)]
        self._run(stop())
        self._world.machines[int(node_id)].kill()

    def do_settle(self) -> None:
        self._until(self._world.settled)

    def do_leads(self, *words: str) -> None:
        old = int(words[1]) if words else 0
        self._until(lambda: self._world.leader() not in (0, old))

    def do_damage(self) -> None:
        self.damage = True

    def do_installs(self, node_id: str) -> None:
        before = self._world.installed
        self._until(lambda: self._world.installed > before)

    def do_fetches(self, node_id: str) -> None:
        self._fetching.clear()
        self._until(lambda: int(node_id) in self._fetching)

    def do_run(self, duration_ms: str) -> None:
        self._run(self._world.clock.sleep(int(duration_ms)))

    def do_stands(self, node_id: str) -> None:
        node = self._world.nodes[int(node_id)]
        before = node.epoch
        self._until(lambda: node.state_name == "candidate" and node.epoch > before)

    def do_fails(self, node_id: str) -> None:
        self._until(lambda: int(node_id) in self._world.failures)
        self.say(f"n{node_id} stops for good: {self._world.failures.pop(int(node_id))}")

    def do_hold(self, sender: str, receiver: str, name: str) -> None:
        self._to_hold = int(sender), int(receiver), name

    def do_deliver(self) -> None:
        assert self._held is not None, "no answer is held"
        self._held.set()
        self._run(self._world.clock.sleep(0))

    def do_probe(self, receiver: str, sender: str, *names: str, epoch: str) -> None:
        stranger = SimNetwork(self._world.fabric, "stranger")
        requests = _requests(self._world, int(sender), int(epoch))
        for name in names or requests:
            method, data = encode_request(requests[name], CLUSTER_ID)
            found = self._run(stranger.call(self._world.addresses[int(receiver)], method, data, LIMIT_MS))
            self.say(f"n{receiver} answers {name} of n{sender}: {_told(decode_answer(requests[name], found))}")


def _state(node: QuorumNode) -> str:
    log = f"leo={node.log_end_offset} hw={node.high_watermark}"
    snapshot = node.latest_snapshot
    kept = f" start={node.log_start_offset} snapshot={snapshot.end_offset}" if snapshot is not None else ""
    return f"{node.state_name} epoch={node.epoch} {log}{kept}"


def _requests(world: StageWorld, who: int, epoch: int) -> dict[str, Request]:
    """Every request of a node in an epoch. A log cannot have records of a future epoch."""
    node = world.nodes[who]
    assert who in world.running, f"n{who} is down"
    end, last = node.log_end_offset, world.witnesses[who].epoch  # its log holds what is committed
    others = tuple(voter for voter in world.addresses if voter != who)
    return {
        "PreVote": Vote(epoch, who, min(last, epoch), end, pre_vote=True),
        "Vote": Vote(epoch, who, min(last, epoch - 1), end, pre_vote=False),
        "BeginQuorumEpoch": BeginEpoch(who, epoch),
        "EndQuorumEpoch": EndEpoch(who, epoch, others),
        "Fetch": Fetch(who, epoch, end, min(last, epoch), node.high_watermark, 0, 1_048_576),
        "FetchSnapshot": FetchSnapshot(who, epoch, SnapshotId(1, 1), 0, 1_048_576),
    }


def _content(answer: Answer) -> str:
    """An answer on its way. A leader that is named is the reason of a refusal, if there is one."""
    if isinstance(answer, VoteAnswer) and not answer.error:
        leader = "" if answer.leader_id < 0 or answer.granted else f" leader=n{answer.leader_id}"
        said = "granted provisionally" if answer.provisional else "granted" if answer.granted else "refused"
        return f"{said} epoch={answer.epoch}{leader}"
    if isinstance(answer, QuorumFetchAnswer) and not answer.error:
        return f"batches={len(answer.headers)} hw={answer.high_watermark} epoch={answer.epoch}"
    return _told(answer)


def _told(answer: Answer | None) -> str:
    """A response: the error, or its content, and its leader and epoch."""
    assert answer is not None
    said = answer.error.name
    if isinstance(answer, VoteAnswer) and not answer.error:
        said = "granted" if answer.granted else "refused"
    leader = "none" if answer.leader_id < 0 else f"n{answer.leader_id}"
    return f"{said} leader={leader} epoch={answer.epoch}"


def _plain(value: object) -> str:
    """A fact without blanks."""
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "none"
    return str(value).replace(" ", "_")
