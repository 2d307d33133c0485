"""Nodes of the metadata quorum in the simulated world, without what is built on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from odradek_broker.core.quorum.messages import Fetch, QuorumState, SendRequest, Vote
from odradek_broker.runtime.quorum.node import QuorumSettings
from odradek_broker.runtime.quorum.peers import MAX_WAITING, QuorumService
from odradek_broker.runtime.quorum.state_file import OtherVoters
from odradek_broker.runtime.quorum.wire import decode_answer, encode_request
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import CallContext

from tests.broker.quorum_core import NOW, core_with, of
from tests.broker.quorum_world import CLUSTER_ID, QuorumWorld
from tests.playing import plays

LOG = "/data/__cluster_metadata-0"
LACKS = "metadata_log_lacks_records"
OF_THREE = plays(lambda story: QuorumWorld().run(story))
ALONE = plays(lambda story: QuorumWorld(1).run(story))


def flip(quorum: QuorumWorld, node_id: int, record: bytes) -> None:
    """A bit of the last such record in a node's log is another one."""
    path, disk = f"{LOG}/00000000000000000000.log", quorum.machines[node_id].disk
    disk.flip(path, disk.read(path).rindex(record))


def service(submit: Callable[[object, object], None], forget: Callable[[object], None]) -> QuorumService:
    """That of node 2, which leads epoch 6."""
    settings = QuorumSettings(2, CLUSTER_ID, {1: "one:7001", 2: "two:7002", 3: "three:7003"})
    return QuorumService(settings, is_ready=lambda: True, submit=submit, forget=forget, known=lambda: (2, 6))


@OF_THREE
async def test_what_another_clusters_controller_knows_is_nothing_to_us(quorum: QuorumWorld) -> None:
    """Its machine has got the address of our third voter. It leads an epoch 1, too, and says so with its refusal."""
    quorum.start(3, voters=(3,), cluster_id="another-cluster")
    await quorum.clock.sleep(1_000)
    assert quorum.leaders() == [3]
    quorum.start(1, 2)
    await quorum.clock.sleep(20_000)
    (ours,) = (node_id for node_id in quorum.leaders() if node_id != 3)
    assert quorum.witnesses[ours].calls == ["leads 1"]


@plays(lambda story: QuorumWorld(2).run(story))
async def test_a_node_whose_voters_were_changed_does_not_start(quorum: QuorumWorld) -> None:
    """Its role was moved to another machine, without its disk: old and new voters could each elect a leader."""
    quorum.start(1, voters=(1,))
    await quorum.clock.sleep(1_000)
    assert quorum.leaders() == [1]
    quorum.machines[1].kill()
    await quorum.clock.sleep(1_000)
    quorum.start(1, voters=(2,))
    await quorum.clock.sleep(5_000)
    assert isinstance(quorum.machines[1].failure, OtherVoters)
    quorum.machines[1].failure = None


@ALONE
async def test_a_node_without_room_takes_no_part_until_there_is(quorum: QuorumWorld) -> None:
    """Not even as the only voter does it end: what it had promised is there, what found no room is in no log (R-86)."""
    quorum.start(1, voters=(1,))
    await quorum.clock.sleep(1_000)
    disk, node, witness = quorum.machines[1].disk, quorum.nodes[1], quorum.witnesses[1]
    quorum.append(1, b"one")
    await quorum.clock.sleep(1_000)
    disk.quota = disk.used + 10
    quorum.append(1, b"more than there is room for")
    await quorum.clock.sleep(60_000)
    assert (node.no_room, node.leader_id, witness.calls) == (True, -1, ["leads 1", "resigned 1"])
    disk.quota = None
    await quorum.clock.sleep(3_000)
    assert (node.no_room, quorum.leaders(), witness.records) == (False, [1], [b"one"])
    quorum.append(1, b"two")
    await quorum.clock.sleep(1_000)
    assert witness.records == [b"one", b"two"]
    disk.quota = disk.used
    quorum.append(1, b"more than there is room for")
    await quorum.clock.sleep(100)
    assert node.no_room
    await node.stop()
    disk.quota = None
    await quorum.clock.sleep(10_000)
    assert quorum.leaders() == [], "it was stopped meanwhile"


@ALONE
async def test_what_a_node_cannot_serve_is_refused_by_name(
    quorum: QuorumWorld, caplog: pytest.LogCaptureFixture
) -> None:
    """One that has not started, and what a stranger from another cluster asks of one that runs. Either can be stopped:
    the start of a process ends so when one of its addresses is taken."""
    asked = Fetch(7, 0, 0, 0, 0, 0, 1024)
    method, data = encode_request(asked, "another-cluster")

    async def main(ports: NodePorts) -> None:
        for starts, error in ((False, ErrorCode.BROKER_NOT_AVAILABLE), (True, ErrorCode.INCONSISTENT_CLUSTER_ID)):
            node = quorum.new_node(QuorumSettings(1, CLUSTER_ID, quorum.addresses), ports)
            if starts:
                await node.start()
            answer = await node.handlers().unary[method](data, CallContext("stranger:1"))
            assert decode_answer(asked, answer).error is error
            await node.stop()

    quorum.machines[1].start(main)
    await quorum.machines[1].wait()  # a process that is killed before its end asserts nothing
    (line,) = [record.getMessage() for record in caplog.records if "INCONSISTENT_CLUSTER_ID" in record.getMessage()]
    assert line.endswith(f"this node is of cluster {CLUSTER_ID}: all voters need the same cluster.id")


@OF_THREE
async def test_the_others_go_on_without_a_leader_whose_disk_is_full(quorum: QuorumWorld) -> None:
    """And it has everything soon after there is room, but for what it wrote alone."""
    full = await quorum.begun()
    disk = quorum.machines[full].disk
    disk.quota = disk.used + 10
    quorum.append(full, b"more than there is room for")
    await quorum.clock.sleep(5_000)
    (leader,) = quorum.leaders()
    assert leader != full
    quorum.append(leader, b"a")
    await quorum.clock.sleep(1_000)
    assert quorum.witnesses[full].records == []
    disk.quota = None
    await quorum.clock.sleep(5_000)
    assert [witness.records for witness in quorum.witnesses.values()] == [[b"a"]] * 3
    assert quorum.leaders() == [leader]


@OF_THREE
async def test_a_metadata_log_that_was_cut_is_said_and_comes_back(quorum: QuorumWorld) -> None:
    """The node has it from the leader again; without a word nobody would know that its disk changes bytes."""
    leader = await quorum.begun()
    quorum.append(leader, b"a")
    await quorum.clock.sleep(1_000)
    node_id = min({1, 2, 3} - {leader})
    quorum.machines[node_id].kill()
    flip(quorum, node_id, b"a")
    quorum.start(node_id)
    await quorum.clock.sleep(5_000)
    (facts,) = (facts for who, event, facts in quorum.events if (who, event) == (node_id, "log_cut_in_recovery"))
    assert facts["leo"] == 1
    assert "the CRC is not" in str(facts["reason"])
    assert quorum.witnesses[node_id].records == [b"a"]


def test_what_a_stranger_sends_is_refused_with_a_line_of_log_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    """R-218: bytes that are no message, and an epoch that cannot be. Ten times as many make one more line."""

    async def story(quorum: QuorumWorld) -> None:
        await quorum.begun()
        before = {node_id: node.epoch for node_id, node in quorum.nodes.items()}
        forged = Vote(2**31 - 1, 3, 0, 0, pre_vote=False)
        method, data = encode_request(forged, CLUSTER_ID)
        serve = quorum.nodes[1].handlers().unary[method]
        for sent in (data, b"\xff" * 100, *([data] * 18)):
            answer = decode_answer(forged, await serve(sent, CallContext("stranger:1")))
            assert answer.error is ErrorCode.INVALID_REQUEST
        assert before == {node_id: node.epoch for node_id, node in quorum.nodes.items()}

    QuorumWorld().run(story)
    lines = [record.getMessage() for record in caplog.records if "stranger:1" in record.getMessage()]
    said = "Vote from stranger:1: refused, INVALID_REQUEST: Vote of epoch 2147483647, where the epoch is 1"
    assert [line.partition("Quorum/")[2] for line in lines] == [said, f"{said} (10 of these so far)"]


def test_a_leader_that_cannot_take_one_more_request_is_not_given_up() -> None:
    """As many wait as may, whoever sent them. Its followers ask again: nobody has said that it leads no more."""

    async def told() -> bytes:
        overloaded = service(lambda request, token: None, lambda token: None)
        method, data = encode_request(send.request, CLUSTER_ID)
        serve = overloaded.handlers().unary[method]
        waiting = [asyncio.ensure_future(serve(data, CallContext("anybody"))) for _ in range(MAX_WAITING)]
        await asyncio.sleep(0)
        answer = await serve(data, CallContext("one:1"))
        overloaded.close()
        await asyncio.wait(waiting)
        return answer

    core = core_with(QuorumState(6, leader_id=2), epochs=[(6, 0)], log_end_offset=8)
    (send,) = of(core.start(NOW), SendRequest)
    answer = asyncio.run(told())
    assert of(core.on_answer(send, decode_answer(send.request, answer), NOW), SendRequest) == []
    assert core.leader_id == 2
    assert of(core.on_time(NOW + 100), SendRequest) == [send]


def test_a_request_that_waits_ends_with_its_sender_or_with_the_node() -> None:
    """The core forgets it when its sender hangs up; when the node stops, the sender is told to ask elsewhere."""

    async def story() -> tuple[list[object], list[object], bytes]:
        submitted: list[object] = []
        forgotten: list[object] = []
        ends = service(lambda request, token: submitted.append(token), forgotten.append)
        method, data = encode_request(Fetch(3, 6, 8, 6, 0, 500, 1024), CLUSTER_ID)
        calls = [asyncio.ensure_future(ends.handlers().unary[method](data, CallContext("anybody"))) for _ in "ab"]
        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.wait(calls[:1])
        assert calls[0].cancelled()
        ends.close()
        return submitted, forgotten, await calls[1]

    submitted, forgotten, answer = asyncio.run(story())
    assert forgotten == submitted[:1]
    decoded = decode_answer(Fetch(3, 6, 8, 6, 0, 500, 1024), answer)
    assert (decoded.error, decoded.leader_id, decoded.epoch) == (ErrorCode.BROKER_NOT_AVAILABLE, 2, 6)


@OF_THREE
async def test_a_state_is_as_new_as_the_snapshot_that_would_be_taken_of_it(quorum: QuorumWorld) -> None:
    """Also when a leader's first record, which changes nothing, is the last one that is committed.

    A broker that had begun with such a snapshot was ahead of its controller, which did not unfence it.
    """
    first = await quorum.begun()
    quorum.machines[first].kill()
    await quorum.clock.sleep(5_000)
    assert len(quorum.leaders()) == 1
    for node_id in quorum.running:
        assert quorum.witnesses[node_id].next_offset == quorum.nodes[node_id].quorum_status.high_watermark >= 2


@OF_THREE
async def test_a_voter_whose_log_was_damaged_below_what_it_had_flushed_elects_nobody_that_lacks_it(
    quorum: QuorumWorld,
) -> None:
    """Of three voters 3 never had the record, and 1 has it no more: those two are no majority for anything (R-217)."""
    await quorum.begun()
    quorum.machines[3].kill()
    await quorum.clock.sleep(5_000)
    (leader,) = (each for each in quorum.leaders() if each != 3)
    quorum.append(leader, b"one")
    await quorum.clock.sleep(1_000)
    assert quorum.witnesses[1].records == quorum.witnesses[2].records == [b"one"]
    for node_id in (1, 2):
        quorum.machines[node_id].kill()
    flip(quorum, 1, b"one")
    quorum.start(1)
    quorum.start(3)
    for _ in range(2):  # the second start of 1 finds no more than what is left, and remembers
        await quorum.clock.sleep(8_000)
        assert (quorum.nodes[1].is_leader, quorum.nodes[3].is_leader) == (False, False)
        quorum.machines[1].kill()
        await quorum.clock.sleep(100)
        quorum.start(1)
    await quorum.clock.sleep(5_000)
    ((said, facts),) = [(each, facts) for each, event, facts in quorum.events if event == LACKS]
    assert (said, facts["leo"], facts["promised"]) == (1, 2, 3)
    quorum.start(2)
    await quorum.clock.sleep(5_000)
    assert quorum.nodes[2].is_leader
    assert [each.records for each in quorum.witnesses.values()] == [[b"one"]] * 3
    assert [each for each, event, _ in quorum.events if event == "voter_caught_up"][-1] == 1
    quorum.machines[1].kill()
    await quorum.clock.sleep(100)
    quorum.start(1)
    await quorum.clock.sleep(5_000)
    assert sum(event == LACKS for _, event, _ in quorum.events) == 1, "it has everything, and says nothing more"


@OF_THREE
async def test_a_voter_that_truncated_what_others_never_had_lacks_nothing(quorum: QuorumWorld) -> None:
    """A deposed leader had flushed more than the log has now: what was cut on purpose is not missing (R-217)."""
    deposed = await quorum.begun()
    others = [each for each in quorum.running if each != deposed]
    for node_id in others:
        quorum.machines[node_id].kill()
    for number in range(5):
        quorum.append(deposed, b"alone %d" % number)
        await quorum.clock.sleep(50)
    flushed = quorum.nodes[deposed].log_end_offset
    quorum.machines[deposed].kill()
    for node_id in others:
        quorum.start(node_id)
    await quorum.clock.sleep(5_000)
    quorum.start(deposed)
    await quorum.clock.sleep(5_000)
    assert quorum.nodes[deposed].log_end_offset < flushed
    quorum.machines[deposed].kill()
    await quorum.clock.sleep(100)
    quorum.start(deposed)
    await quorum.clock.sleep(5_000)
    assert LACKS not in [event for _, event, _ in quorum.events]


@ALONE
async def test_a_single_voter_whose_log_was_damaged_leads_with_what_is_left_and_says_so(quorum: QuorumWorld) -> None:
    """Nobody has more. What is torn by a loss of power, and was never flushed, is not said."""
    quorum.start(1, voters=(1,))
    await quorum.clock.sleep(1_000)
    quorum.append(1, b"one")
    await quorum.clock.sleep(1_000)
    quorum.machines[1].kill()
    quorum.machines[1].disk.power_loss()
    quorum.start(1, voters=(1,))
    await quorum.clock.sleep(1_000)
    assert quorum.leaders() == [1]
    assert LACKS not in [event for _, event, _ in quorum.events]
    quorum.machines[1].kill()
    flip(quorum, 1, b"one")
    quorum.start(1, voters=(1,))
    await quorum.clock.sleep(1_000)
    assert quorum.leaders() == [1]
    assert LACKS in [event for _, event, _ in quorum.events]


@pytest.mark.parametrize("content", [b"", b"x\n", b"0\n1\n__cluster_metadata 0 9999\n"])
@OF_THREE
async def test_a_flushed_offset_that_is_wrong_costs_no_more_than_trust(quorum: QuorumWorld, content: bytes) -> None:
    """One that cannot be read says nothing, one that says too much makes the voter ask the others."""
    await quorum.begun()
    quorum.machines[1].kill()
    quorum.machines[1].disk.file(f"{LOG}/flushed-offset-checkpoint").data[:] = content
    quorum.start(1)
    await quorum.clock.sleep(5_000)
    lacks = [facts["promised"] for _, event, facts in quorum.events if event == LACKS]
    assert lacks == [9999] * (b"9999" in content)
    assert len({node.log_end_offset for node in quorum.nodes.values()}) == 1
    assert len(quorum.leaders()) == 1
