"""A broker's session: what it is told, what it does when the controller moves, and how it leaves."""

from __future__ import annotations

import asyncio

import pytest
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.runtime.membership.broker_session import BrokerSession, RegistrationRefused
from odradek_broker.runtime.membership.controller_channel import ControllerChannel, ControllerUnavailable
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_messages, controller_messages
from odradek_proto.v1.controller_messages import RegisterBrokerRequest
from odradek_proto.values import replace

from tests.broker.controller_cluster import CALLER, CLUSTER_ID, Cluster, in_cluster


@in_cluster()
async def test_controlled_shutdown_hands_over_every_leadership_first(cluster: Cluster) -> None:
    """R-142: the broker may stop once it leads nothing and the others have read so; it stays unfenced until then."""
    await cluster.begin(assignment=(3, 2, 1))
    leaving = cluster.members[3].session
    begun = cluster.now_ms
    assert await leaving.controlled_shutdown(5_000)
    assert cluster.now_ms - begun < 400
    assert (cluster.partition(1).leader, cluster.partition(1).isr) == (2, (2, 1))
    assert cluster.fenced(3, seen_by=1)
    names = [name for _, _, name, facts in cluster.events if facts.get("broker_id", 3) == 3]
    assert names.index("broker_leaving") < names.index("broker_fenced")
    await leaving.stop()
    await cluster.sleep(1_000)
    assert cluster.events_of("broker_fencing") == []


@in_cluster()
async def test_controlled_shutdown_without_leaderships_is_granted_at_once(cluster: Cluster) -> None:
    """R-153: fenced and told to stop with one heartbeat."""
    await cluster.begin(assignment=(1, 2, 3))
    begun = cluster.now_ms
    assert await cluster.members[3].session.controlled_shutdown(5_000)
    assert cluster.now_ms - begun < 30
    assert cluster.partition(1).isr == (1, 2)


@in_cluster()
async def test_controlled_shutdown_gives_up_when_no_controller_answers(cluster: Cluster) -> None:
    """The caller gets its answer within the time that it gave."""
    await cluster.begin()
    cluster.log.stalled = True
    begun = cluster.now_ms
    assert not await cluster.members[3].session.controlled_shutdown(700)
    assert cluster.now_ms - begun <= 701


@in_cluster()
async def test_the_session_follows_the_controller_at_once(cluster: Cluster) -> None:
    """A new stream within milliseconds of the announcement; nobody is fenced on the way."""
    await cluster.begin()
    for leader in (2, 3, 1, 3):
        cluster.log.elect(leader)
        await cluster.sleep(30)
        sessions = cluster.active.controller.term().sessions
        assert all(sessions.has_valid_session(node_id, cluster.now_ms) for node_id in (1, 2, 3))
    await cluster.sleep(15_000)
    assert cluster.events_of("broker_fencing") == []


@in_cluster()
async def test_the_session_leaves_a_controller_that_hangs(cluster: Cluster) -> None:
    """The old controller is frozen and ends no stream: the announcement of another one is enough."""
    await cluster.begin(assignment=())
    cluster.machines[1].pause()
    cluster.log.elect(2)
    sessions = cluster.members[2].controller
    await cluster.until(lambda: sessions.active)
    table = sessions.term().sessions
    assert await cluster.until(lambda: table.has_valid_session(3, cluster.now_ms)) < 20
    cluster.machines[1].resume()


@in_cluster()
async def test_a_broker_knows_for_how_long_no_controller_was_in_touch(cluster: Cluster) -> None:
    """R-112: zero while the session stands, growing from the moment when its stream ended."""
    await cluster.begin()
    session = cluster.members[3].session
    await cluster.sleep(8_000)
    assert session.stream_gone_for_ms(cluster.now_ms) == 0
    cluster.cut_off(3, 1)
    await cluster.sleep(500)
    assert 495 <= session.stream_gone_for_ms(cluster.now_ms) <= 500
    cluster.fabric.heal_all()
    await cluster.until(lambda: session.stream_gone_for_ms(cluster.now_ms) == 0, limit_ms=3_000)


@in_cluster()
async def test_a_stream_that_stands_in_silence_counts_after_the_session_timeout(cluster: Cluster) -> None:
    """The controller's machine hangs: its connections stay, and say nothing."""
    await cluster.begin()
    session = cluster.members[3].session
    cluster.machines[1].pause()
    await cluster.sleep(5_000)
    assert session.stream_gone_for_ms(cluster.now_ms) == 0
    await cluster.until(lambda: session.stream_gone_for_ms(cluster.now_ms) > 9_000, limit_ms=12_000)
    cluster.machines[1].resume()


@in_cluster(early_fencing=False)
async def test_a_session_that_returns_without_a_fencing_is_told(cluster: Cluster) -> None:
    """R-112: what waited for the controller may go on when it answers again, fenced meanwhile or not."""
    await cluster.begin()
    session = cluster.members[3].session
    before = len(cluster.events_of("session_returned"))
    cluster.cut_off(3, 1)
    await cluster.sleep(1_500)
    cluster.fabric.heal_all()
    await cluster.until(lambda: session.stream_gone_for_ms(cluster.now_ms) == 0, limit_ms=3_000)
    assert cluster.events_of("broker_fenced") == []
    assert cluster.events_of("session_returned")[before:] == [{"broker_id": 3}]


@in_cluster()
async def test_a_silent_stream_that_speaks_again_is_told(cluster: Cluster) -> None:
    """R-112: the silence counted as a gap, although no stream ended."""
    await cluster.begin(assignment=())
    session = cluster.members[3].session
    cluster.machines[1].pause()
    await cluster.until(lambda: session.stream_gone_for_ms(cluster.now_ms) > 9_000, limit_ms=12_000)
    before = len(cluster.events_of("session_returned"))
    cluster.machines[1].resume()
    await cluster.until(lambda: session.stream_gone_for_ms(cluster.now_ms) == 0, limit_ms=3_000)
    told = [facts for facts in cluster.events_of("session_returned")[before:] if facts["broker_id"] == 3]
    assert told == [{"broker_id": 3}]


@in_cluster(nodes=1)
async def test_a_broker_of_another_cluster_is_refused_for_good(cluster: Cluster) -> None:
    """INCONSISTENT_CLUSTER_ID comes out of everything that waits for the registration."""
    cluster.start(1, leads=True)
    await cluster.until(lambda: 1 in cluster.members)
    member = cluster.members[1]
    stranger = BrokerSession(
        BrokerSettings(node_id=9),
        RegisterBrokerRequest(broker_id=9, cluster_id="another-cluster", previous_broker_epoch=-1),
        clock=member.ports.clock,
        channel=member.channel,
        network=member.ports.network,
        feed=member.feed,
        endpoints={"GRPC": "x:1"},
    )
    await stranger.start()
    with pytest.raises(RegistrationRefused, match="INCONSISTENT_CLUSTER_ID"):
        await stranger.wait_until_registered()
    with pytest.raises(RegistrationRefused):
        await stranger.wait_until_unfenced()
    assert not await stranger.controlled_shutdown(100)
    await stranger.stop()


@in_cluster()
async def test_a_superseded_broker_learns_that_its_epoch_is_stale(cluster: Cluster) -> None:
    """A heartbeat with an old broker epoch ends its stream with STALE_BROKER_EPOCH (R-111)."""
    await cluster.begin(assignment=())
    stream, beat = await cluster.session(2, broker_id=2)
    await stream.send(replace(beat, broker_epoch=beat.broker_epoch + 1).SerializeToString())
    answer = controller_messages.HeartbeatAnswer.FromString(await stream.recv())
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH


@in_cluster()
async def test_a_shutdown_that_somebody_else_asked_for_does_not_last(cluster: Cluster) -> None:
    """The broker takes part again, and its own shutdown later waits for its own permission."""
    await cluster.begin(assignment=(3, 2, 1))
    stream, beat = await cluster.session(3, broker_id=3)
    await stream.send(replace(beat, want_shut_down=True).SerializeToString())
    await cluster.until(lambda: cluster.fenced(3, seen_by=3))
    await cluster.until(lambda: not cluster.fenced(3, seen_by=3))
    cluster.log.stalled = True
    assert not await cluster.members[3].session.controlled_shutdown(700)


@in_cluster()
async def test_calls_find_the_controller_by_hints_alone(cluster: Cluster) -> None:
    """A node that knows no leader asks voters in turn and follows NOT_CONTROLLER's hint."""
    await cluster.begin(leader=3, assignment=())
    network = cluster.members[1].ports.network
    clock = cluster.members[1].ports.clock
    channel = ControllerChannel(clock=clock, network=network, voters=cluster.voters, leader=lambda: -1)
    request = controller_messages.AllocateProducerIdsRequest(broker_id=1, broker_epoch=-5)
    answer = await channel.call("AllocateProducerIds", request.SerializeToString(), 1_000)
    error = controller_messages.AllocateProducerIdsResponse.FromString(answer).error_code
    assert error == ErrorCode.STALE_BROKER_EPOCH
    assert channel.controller_address() == cluster.voters[3]


@in_cluster(nodes=1)
async def test_calls_end_when_their_time_is_over(cluster: Cluster) -> None:
    """Without any controller `ControllerUnavailable` comes in time and says what was tried last."""
    cluster.start(1)
    await cluster.until(lambda: 1 in cluster.members)
    begun = cluster.now_ms
    with pytest.raises(ControllerUnavailable, match="ForwardAdmin"):
        await cluster.members[1].channel.forward_admin(CALLER, "CreateTopics", b"", 600, at_most_once=True)
    assert 600 <= cluster.now_ms - begun <= 601


@in_cluster()
async def test_an_order_that_takes_its_time_is_given_once(cluster: Cluster) -> None:
    """A CreateTopics that commits after more than one attempt's time is answered with success."""
    await cluster.begin(assignment=())
    cluster.log.stalled = True
    created = asyncio.ensure_future(cluster.create_topic("orders"))
    await cluster.sleep(3_000)
    assert not created.done()
    cluster.log.stalled = False
    cluster.log.commit(len(cluster.log.batches))
    assert len(await created) == 16


@in_cluster()
async def test_an_order_whose_answer_is_lost_is_not_given_again(cluster: Cluster) -> None:
    """Nobody can say whether it was carried out, and the caller is told so."""
    await cluster.begin(assignment=())
    cluster.log.stalled = True
    request = admin_messages.CreateTopicsRequest(
        topics=[admin_messages.NewTopic(name="orders", partitions=1, replication_factor=1)]
    )
    forwarded = cluster.members[2].channel.forward_admin(
        CALLER, "CreateTopics", request.SerializeToString(), 8_000, at_most_once=True
    )
    answer = asyncio.ensure_future(forwarded)
    await cluster.sleep(500)
    begun = cluster.now_ms
    cluster.kill(1)
    with pytest.raises(ControllerUnavailable):
        await answer
    assert cluster.now_ms - begun < 100


@in_cluster()
async def test_an_unknown_admin_request_is_refused_by_name(cluster: Cluster) -> None:
    """The forwarding broker gets INVALID_REQUEST with the name, not a broken stream."""
    await cluster.begin(assignment=())
    with pytest.raises(ControllerUnavailable, match=r"no admin request '.*Explode'"):
        await cluster.members[2].channel.forward_admin(CALLER, "Explode", b"", 600, at_most_once=True)


@in_cluster()
async def test_the_incarnation_is_new_with_each_process(cluster: Cluster) -> None:
    """R-150: 16 random bytes."""
    await cluster.begin(assignment=())
    first = cluster.members[2].session.incarnation_id
    cluster.kill(2)
    cluster.start(2)
    await cluster.until(lambda: cluster.unfenced(2))
    second = cluster.members[2].session.incarnation_id
    assert len(first) == len(second) == 16
    assert first != second
    assert cluster.members[1].feed.image.cluster_id == CLUSTER_ID


def test_an_attempt_to_reach_the_old_controller_ends_when_another_is_elected() -> None:
    """The old controller's machine is silent: a dial to it must not use up the session timeout with the new one."""

    async def story(cluster: Cluster) -> None:
        await cluster.begin(leader=1)
        for node_id in (2, 3):
            cluster.cut_off(1, node_id)  # their streams break, and a new one is asked for in vain
        await cluster.sleep(300)
        begun_ms = cluster.now_ms
        cluster.log.elect(2)
        await cluster.until(lambda: all(gone_for(cluster, node_id) == 0 for node_id in (2, 3)))
        assert cluster.now_ms - begun_ms < 100

    def gone_for(cluster: Cluster, node_id: int) -> int:
        return cluster.members[node_id].session.stream_gone_for_ms(cluster.now_ms)

    Cluster().run(story)


@in_cluster()
async def test_a_broker_that_finds_no_controller_says_whom_it_cannot_reach(cluster: Cluster) -> None:
    """After some seconds in one line with the voters that are silent, and then once a minute."""
    cluster.start(1)
    await cluster.sleep(4_000)
    assert cluster.events_of("said") == []
    await cluster.sleep(55_000)
    silent = f"2 at {cluster.voters[2]}, 3 at {cluster.voters[3]}"
    line = f"node 1 waits for a controller: cannot reach the voters {silent}"
    assert [facts["line"] for _, _, name, facts in cluster.events if name == "said"] == [line]
    cluster.start(2)
    cluster.start(3)
    await cluster.sleep(10_000)
    lines = [str(facts["line"]) for _, node_id, name, facts in cluster.events if (node_id, name) == (1, "said")]
    assert lines[1:] == ["node 1 waits for a controller: the voters answer, and have not elected a controller"]
