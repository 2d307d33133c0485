"""The commands of a quorum's transcript: some voters, a network that obeys, and the words they exchange.

quorum voters=3 observers=0 seed=1     a new quorum; nodes count from 1, all down. For stories of snapshots:
    snapshot=300 retention=600 piece=100   bytes between two, of log and snapshots that are kept, and of one fetch
start [1 2]       boot these nodes, or all that are down      crash 1       kill -9
lose 1            node 1, which is down, loses its disk
part 1 [2]        cut these nodes off from the others         heal          all links work again
append 1 m1 m2    one batch, at node 1                        resign 1      give up the leadership
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
arrives, `-x` is lost, `..` is held. A question that is asked again in the same words, because nothing came back, is
said once per command.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from odradek_broker.core.partition.messages import Transition
from odradek_broker.core.quorum.leader import Leader
from odradek_broker.core.quorum.messages import (
    Answer,
    BeginEpoch,
    Effect,
    EndEpoch,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    HighWatermarkAdvanced,
    LeaderChanged,
    NotLeader,
    Reply,
    ReplyRecords,
    Request,
    Send,
    SnapshotId,
    Vote,
    VoteAnswer,
)
from odradek_broker.core.quorum.roles import Candidate
from odradek_chaos.stage.transcript import Transcript

from tests.scripts.quorum.node import Node, QuorumFault
from tests.scripts.quorum.world import ARRIVES, IS_HELD, IS_LATE, IS_LOST, Call, QuorumWorld, name_of

CONFIG = {"snapshot": "snapshot_max_bytes", "retention": "retention_bytes", "piece": "fetch_max_bytes"}


class QuorumStage(Transcript):
    """One story's quorum. A node's state line has its role, epoch and log."""

    def __init__(self) -> None:
        super().__init__()
        self._world = self._new_world(3, 0, 0, {})
        self._asked: dict[
            tuple[int, int], str
        ] = {}  # the last vote request, by sender and receiver, without a response
        self._probe: Call | None = None
        self._answer: Answer | None = None  # to the probe

    def say(self, text: str) -> None:
        self.now_ms = self._world.now_ms
        super().say(text)

    def settled(self) -> None:
        self._asked = {}

    def states(self) -> Iterator[tuple[str, str]]:
        """A node is shown as soon as it has an epoch."""
        for node_id, node in self._world.nodes.items():
            epoch = node.disk.state.epoch if node.core is None else node.core.state.epoch
            if epoch or f"n{node_id}" in self._shown:
                yield f"n{node_id}", f"{_role(node)} epoch={epoch} {_log(node)}"

    def _saw(self, node: Node, effect: Effect) -> None:
        who = f"n{node.node_id}"
        match effect:
            case Transition():
                facts = " ".join(f"{key}={_plain(value)}" for key, value in effect.facts.items() if key != "node")
                self.say(f"{who} {effect.event} {facts} [{effect.rule}]")
            case HighWatermarkAdvanced():
                self.say(f"{who} high watermark {effect.old} => {effect.new}")
            case LeaderChanged(leader_id=-1):
                self.say(f"{who} knows no leader, epoch {effect.epoch}")
            case Reply() | ReplyRecords() if effect.token is self._probe:
                self._answer = effect.answer

    def _heard(self, call: Call, answer: Answer | None, fate: str) -> None:
        """Report votes, and responses that are held or late."""
        asks, answers = call.sender.node_id, call.send.peer_id
        request = call.send.request
        if answer is None:
            if isinstance(request, Vote):
                self._ask(asks, answers, request, fate)
            return
        self._asked.pop((asks, answers), None)
        if isinstance(answer, VoteAnswer) or fate in (IS_HELD, IS_LATE):
            arrow, late = (ARRIVES, "late ") if fate == IS_LATE else (fate, "")
            text = f"{late}{name_of(request)}Reply {_content(answer)}"
            self.say(f"n{answers} {arrow} n{asks} {text}")

    def _ask(self, asks: int, answers: int, vote: Vote, fate: str) -> None:
        text = f"{name_of(vote)} epoch={vote.epoch} last={vote.last_epoch} end={vote.end_offset}"
        arrow = f"n{asks} {fate} n{answers} "
        if fate != IS_LOST or self._asked.get((asks, answers)) != text:
            self.say(arrow + text)
        self._asked[asks, answers] = text

    def _new_world(self, voters: int, observers: int, seed: int, config: dict[str, int]) -> QuorumWorld:
        world = QuorumWorld(voters, observers, seed=seed, config=config, listener=self._heard)
        world.on_effect = self._saw
        return world

    # --- commands ---

    def do_quorum(self, *, voters: str = "3", observers: str = "0", seed: str = "1", **sizes: str) -> None:
        config = {CONFIG[name]: int(value) for name, value in sizes.items()}
        self._world = self._new_world(int(voters), int(observers), int(seed), config)

    def do_start(self, *node_ids: str) -> None:
        self._world.start(*map(int, node_ids))

    def do_crash(self, node_id: str) -> None:
        self._world.crash(int(node_id))

    def do_lose(self, node_id: str) -> None:
        self._world.lose_disk(int(node_id))

    def do_part(self, *node_ids: str) -> None:
        self._world.part(*map(int, node_ids))

    def do_heal(self) -> None:
        self._world.heal()

    def do_append(self, node_id: str, *records: str) -> None:
        try:
            offset = self._world.append(int(node_id), *(record.encode() for record in records))
        except NotLeader as error:
            self.say(f"n{node_id} refuses: {error}")
        else:
            self.say(f"n{node_id} appended at {offset}")

    def do_resign(self, node_id: str) -> None:
        self._world.resign(int(node_id))

    def do_settle(self) -> None:
        self._world.run_until(self._world.settled)

    def do_leads(self, *words: str) -> None:
        old = self._world.nodes[int(words[1])] if words else None
        if old is None:
            self._world.run_until(lambda: self._world.leader() is not None)
        else:
            self._world.run_until(self._world.replaced(old))

    def do_damage(self) -> None:
        self._world.damage = True

    def do_installs(self, node_id: str) -> None:
        node = self._world.nodes[int(node_id)]
        before = node.disk.start
        self._world.run_until(lambda: node.disk.start > before)

    def do_fetches(self, node_id: str) -> None:
        node = self._world.nodes[int(node_id)]
        self._world.run_until(lambda: len(node.disk.part) > 0)

    def do_run(self, duration_ms: str) -> None:
        self._world.run_for(int(duration_ms))

    def do_stands(self, node_id: str) -> None:
        core = self._world.nodes[int(node_id)].core
        assert core is not None, f"n{node_id} is down"
        before = core.role
        self._world.run_until(lambda: isinstance(core.role, Candidate) and core.role is not before)

    def do_fails(self, node_id: str) -> None:
        with pytest.raises(QuorumFault, match=f"^node {node_id}: ") as found:
            self._world.run_until(lambda: False)
        reason = str(found.value).removeprefix(f"node {node_id}: ")
        self.say(f"n{node_id} stops for good: {reason}")
        self._world.crash(int(node_id))

    def do_hold(self, sender: str, receiver: str, name: str) -> None:
        self._world.hold(int(sender), int(receiver), name)

    def do_deliver(self) -> None:
        self._world.deliver()

    def do_probe(self, receiver: str, sender: str, *names: str, epoch: str) -> None:
        node, other = self._world.nodes[int(receiver)], self._world.nodes[int(sender)]
        requests = _requests(other, int(epoch))
        for name in names or requests:
            request = requests[name]
            # Over from the beginning, so that the response changes no node.
            self._probe, self._answer = Call(other, other.life, Send(node.node_id, request), over=True), None
            assert node.core is not None, f"n{receiver} is down"
            node.carry_out(node.core.on_request(request, self._probe, self._world.now_ms))
            self._world.run_until(lambda: self._answer is not None)  # a vote is durable before its response
            self.say(f"n{receiver} answers {name} of n{sender}: {_told(self._answer)}")


def _role(node: Node) -> str:
    return "down" if node.core is None else type(node.core.role).__name__.lower()


def _log(node: Node) -> str:
    if node.core is None:
        return f"leo={node.disk.end_offset}"
    role, log = node.core.role, node.core.log
    known = role.high_watermark if isinstance(role, Leader) else log.high_watermark
    kept = ",".join(str(each.end_offset) for each in node.disk.snapshots)
    cut = f" start={log.log_start_offset} snapshots={kept}" if kept else ""
    return f"leo={log.log_end_offset} hw={'none' if known is None else known}{cut}"


def _requests(sender: Node, epoch: int) -> dict[str, Request]:
    """Every request of a node in an epoch. A log cannot have records of a future epoch."""
    assert sender.core is not None, f"n{sender.node_id} is down"
    who, log = sender.node_id, sender.core.log
    end, last = log.log_end_offset, max(log.epochs.latest_epoch, 0)
    others = tuple(voter for voter in sender.config.voters if voter != who)
    return {
        "PreVote": Vote(epoch, who, min(last, epoch), end, pre_vote=True),
        "Vote": Vote(epoch, who, min(last, epoch - 1), end, pre_vote=False),
        "BeginQuorumEpoch": BeginEpoch(who, epoch),
        "EndQuorumEpoch": EndEpoch(who, epoch, others),
        "Fetch": Fetch(who, epoch, end, min(last, epoch), log.high_watermark, 0, 1_048_576),
        "FetchSnapshot": FetchSnapshot(who, epoch, SnapshotId(1, 1), 0, 1_048_576),
    }


def _content(answer: Answer) -> str:
    """An answer on its way. A leader that is named is the reason of a refusal, if there is one."""
    if isinstance(answer, VoteAnswer) and not answer.error:
        leader = "" if answer.leader_id < 0 or answer.granted else f" leader=n{answer.leader_id}"
        said = "granted provisionally" if answer.provisional else "granted" if answer.granted else "refused"
        return f"{said} epoch={answer.epoch}{leader}"
    if isinstance(answer, FetchAnswer) and not answer.error:
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
