"""The active controller in the simulated world: what the death and the silence of brokers cost."""

from __future__ import annotations

import pytest
from odradek_broker.core.controller import balance
from odradek_broker.process.node import NodeQuorumListener
from odradek_broker.rpc.services import merge
from odradek_broker.runtime.controller import node as controller_node
from odradek_broker.runtime.controller.service import ControllerService
from odradek_broker.runtime.membership.controller_channel import ControllerUnavailable
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.runtime.quorum.node import QuorumNode
from odradek_broker.runtime.quorum.settings import QuorumSettings
from odradek_chaos.worlds.simulated.cluster.node import NodePorts
from odradek_proto.errors import ErrorCode
from odradek_proto.v1 import admin_messages, controller_messages
from odradek_proto.values import replace

from tests.broker.controller_cluster import CLUSTER_ID, Cluster, Member, in_cluster


@in_cluster()
async def test_all_brokers_are_unfenced_soon_after_the_quorum_has_a_leader(cluster: Cluster) -> None:
    """Two commits of 4 ms and their messages: every step follows at once on the one before."""
    cluster.start_all()
    await cluster.sleep(100)
    cluster.log.elect(2)
    assert await cluster.all_unfenced() < 30


@in_cluster(min_insync_replicas=2)
async def test_the_minimum_of_the_first_controllers_file_becomes_the_clusters(cluster: Cluster) -> None:
    """R-139: before any broker could lead; and no later controller writes it again."""
    await cluster.begin()
    cluster.log.elect(2)
    await cluster.sleep(1_000)
    written = [record for batch in cluster.log.batches for record in batch.records if b"min.insync.replicas" in record]
    assert (len(written), written[0] in cluster.log.batches[0].records) == (1, True)
    assert all(
        member.feed.image.broker_configs == {"": {"min.insync.replicas": "2"}} for member in cluster.members.values()
    )


@in_cluster(nodes=2)
async def test_a_heartbeat_goes_out_as_soon_as_the_registration_has_arrived(cluster: Cluster) -> None:
    """R-150: a broker that hears of commits 20 ms later waits for these 20 ms, twice, and for nothing else."""
    cluster.start(1, leads=True)
    await cluster.until(lambda: cluster.unfenced(1))
    cluster.log.lag_ms[2] = 20
    cluster.start(2)
    assert 40 <= await cluster.until(lambda: cluster.unfenced(2)) < 65


@in_cluster(nodes=2)
async def test_a_broker_stays_fenced_until_its_logs_are_loaded(cluster: Cluster) -> None:
    """R-150: heartbeats want the fence until the broker is ready."""
    cluster.start(1, leads=True)
    cluster.start(2, ready=False)
    await cluster.sleep(5_000)
    session = cluster.members[2].session
    assert session.broker_epoch > 0
    assert session.fenced
    session.set_ready()
    assert await cluster.until(lambda: not session.fenced) < 30


@in_cluster()
async def test_a_killed_leader_is_replaced_within_milliseconds(cluster: Cluster) -> None:
    """The session stream ends, a dial is refused, one batch fences and elects."""
    await cluster.begin()
    cluster.kill(3)
    assert await cluster.until(lambda: cluster.partition(seen_by=2).leader == 2) < 50
    assert cluster.partition(seen_by=2).isr == (2, 1)
    assert cluster.fenced(3, seen_by=2)
    assert cluster.active.controller.early_fencings == 1


@in_cluster()
async def test_a_killed_controller_is_fenced_as_soon_as_the_next_one_dials_it(cluster: Cluster) -> None:
    """A new active controller dials every unfenced broker; a refusal fences at once."""
    await cluster.begin(assignment=(1, 2, 3))
    cluster.kill(1)
    await cluster.sleep(100)
    cluster.log.elect(2)
    assert await cluster.until(lambda: cluster.partition(seen_by=3).leader == 2) < 50
    await cluster.sleep(20_000)
    assert not cluster.fenced(3, seen_by=3)


@in_cluster()
async def test_a_frozen_broker_costs_the_session_timeout(cluster: Cluster) -> None:
    """Its stream stands and its listener accepts: only silence speaks, for nine seconds."""
    await cluster.begin()
    cluster.machines[3].pause()
    took = await cluster.until(lambda: cluster.fenced(3, seen_by=1))
    assert 7_000 < took <= 9_100
    assert cluster.active.controller.early_fencings == 0
    cluster.machines[3].resume()
    assert await cluster.until(lambda: not cluster.fenced(3, seen_by=1)) < 5_000


@in_cluster()
async def test_a_broken_stream_of_a_living_broker_fences_nobody(cluster: Cluster) -> None:
    """The same incarnation opens another one within the grace."""
    await cluster.begin()
    for _ in range(5):
        cluster.fabric.reset("node1", "node3")
        await cluster.sleep(400)
    assert cluster.events_of("broker_fencing") == []
    assert cluster.partition(seen_by=1).leader == 3


@in_cluster()
async def test_a_broker_that_ends_and_stays_silent_is_fenced_after_the_grace(cluster: Cluster) -> None:
    """No dial is refused, but no stream of the same incarnation comes within 300 ms."""
    await cluster.begin()
    cluster.cut_off(3, 1)
    took = await cluster.until(lambda: cluster.fenced(3, seen_by=1))
    assert 295 <= took < 330
    assert cluster.partition(seen_by=1).leader == 2
    cluster.fabric.heal_all()
    assert await cluster.until(lambda: not cluster.fenced(3, seen_by=1)) < 5_000


@in_cluster()
async def test_a_controller_that_loses_most_brokers_at_once_suspects_itself(cluster: Cluster) -> None:
    """More than half fell silent within one grace without proof: the session timeout decides."""
    await cluster.begin()
    cluster.cut_off(1, 2, 3)
    await cluster.sleep(5_000)
    assert cluster.events_of("broker_fencing") == []
    assert len(cluster.events_of("controller_suspects_itself")) == 2
    await cluster.sleep(5_000)
    assert cluster.fenced(2, seen_by=1)
    assert cluster.fenced(3, seen_by=1)
    assert cluster.active.controller.early_fencings == 0


@in_cluster()
async def test_a_restarted_broker_is_back_at_once_and_out_of_the_isr(cluster: Cluster) -> None:
    """R-152: the new incarnation's registration takes the old one out of every ISR and leadership."""
    await cluster.begin()
    before = cluster.members[3].session.broker_epoch
    cluster.kill(3)
    cluster.start(3)
    assert await cluster.until(lambda: cluster.unfenced(3)) < 150
    assert cluster.members[3].session.broker_epoch > before
    assert cluster.partition(seen_by=1).isr == (2, 1)
    assert cluster.partition(seen_by=1).leader == 2


@in_cluster(fast_restart_keeps_isr=True)
async def test_a_fast_restart_keeps_its_place_in_the_old_protocol(cluster: Cluster) -> None:
    """L-12: the new incarnation leads on in the same epoch, with whatever its disk kept."""
    await cluster.begin()
    cluster.kill(3)
    await cluster.sleep(1_000)
    cluster.start(3)
    assert await cluster.until(lambda: cluster.unfenced(3)) < 100
    partition = cluster.partition(seen_by=3)
    assert (partition.leader, partition.leader_epoch, partition.isr) == (3, 0, (3, 2, 1))


@in_cluster()
async def test_all_killed_at_once_come_back_without_waiting(cluster: Cluster) -> None:
    """No session of a former life is waited for; the last one in the ISR leads again (R-135)."""
    await cluster.begin()
    for node_id in (1, 2, 3):
        cluster.kill(node_id)
    cluster.log.leader_id = -1
    await cluster.sleep(1_000)
    cluster.start_all()
    cluster.log.elect(3)
    assert await cluster.all_unfenced() < 300
    assert await cluster.until(lambda: cluster.partition(seen_by=1).leader != -1) < 100


@in_cluster()
async def test_a_second_process_with_the_same_id_waits_while_the_first_is_in_session(cluster: Cluster) -> None:
    """CO-17: DUPLICATE_BROKER_REGISTRATION while the stream stands."""
    await cluster.begin(assignment=())
    request = controller_messages.RegisterBrokerRequest(
        broker_id=3, cluster_id=CLUSTER_ID, incarnation_id=b"2" * 16, endpoints={"GRPC": "x:1"}
    )
    member = cluster.members[2]
    answer = await member.channel.call("RegisterBroker", request.SerializeToString(), 5_000)
    error = controller_messages.RegisterBrokerResponse.FromString(answer).error_code
    assert error == ErrorCode.DUPLICATE_BROKER_REGISTRATION


@pytest.mark.parametrize("committed", [False, True])
@in_cluster()
async def test_what_a_resigned_controller_had_written_may_be_done(cluster: Cluster, committed: bool) -> None:
    """R-216: nobody knows whether the quorum commits it. So the caller is told that; were it NOT_CONTROLLER, its broker
    would ask the next controller, and the caller would hear that a topic exists which is its own."""
    await cluster.begin(assignment=())
    old = cluster.active
    cluster.log.stalled = True
    creating = cluster.loop.create_task(cluster.create_topic("orders"))
    await cluster.sleep(50)
    assert old.controller.active
    assert "orders" in old.controller.term().ahead.topics
    assert "orders" not in old.feed.image.topics
    if committed:
        cluster.log.committed = len(cluster.log.batches)
    cluster.log.stalled = False
    cluster.log.elect(2)
    with pytest.raises(ControllerUnavailable, match="REQUEST_TIMED_OUT: the controller resigned before this was"):
        await creating
    await cluster.sleep(1_000)
    assert not old.controller.active
    assert ["orders" in member.feed.image.topics for member in cluster.members.values()] == [committed] * 3
    assert len(cluster.events_of("topic_created")) == 1


@in_cluster()
async def test_a_refusal_waits_for_the_uncommitted_state_that_it_speaks_of(cluster: Cluster) -> None:
    """R-216: TOPIC_ALREADY_EXISTS is not said of a topic that may still be rolled back."""
    await cluster.begin(assignment=())
    cluster.log.stalled = True
    request = admin_messages.CreateTopicsRequest(
        topics=[admin_messages.NewTopic(name="orders", partitions=1, replication_factor=1)]
    )
    first = cluster.loop.create_task(cluster.admin("CreateTopics", request))
    await cluster.sleep(20)
    second = cluster.loop.create_task(cluster.admin("CreateTopics", request))
    await cluster.sleep(200)
    assert not second.done()
    cluster.log.stalled = False
    cluster.log.commit(len(cluster.log.batches))
    errors = [
        admin_messages.CreateTopicsResponse.FromString(await task).topics[0].error_code for task in (first, second)
    ]
    assert errors == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


@in_cluster()
async def test_producer_ids_are_never_given_twice(cluster: Cluster) -> None:
    """R-250: blocks of 1000, across controllers."""
    await cluster.begin(assignment=())
    firsts = []
    for leader in (1, 2, 3):
        cluster.log.elect(leader)
        for member in cluster.members.values():
            request = controller_messages.AllocateProducerIdsRequest(
                broker_id=member.session._broker_id, broker_epoch=member.session.broker_epoch
            )
            answer = await member.channel.call("AllocateProducerIds", request.SerializeToString(), 5_000)
            block = controller_messages.AllocateProducerIdsResponse.FromString(answer)
            assert (block.error_code, block.count) == (ErrorCode.NONE, 1000)
            firsts.append(block.first_producer_id)
    assert firsts == [1000 * i for i in range(9)]


@in_cluster(leader_imbalance_check_interval_s=10)
async def test_preferred_leaders_come_back_by_themselves(cluster: Cluster) -> None:
    """R-138: at the check interval, once the preferred replica is in sync again."""
    await cluster.begin(assignment=(3, 2, 1))
    cluster.fabric.cut("node3", "node1")
    cluster.fabric.reset("node3", "node1")
    await cluster.until(lambda: cluster.partition(seen_by=2).leader == 2)
    cluster.fabric.heal_all()
    await cluster.until(lambda: not cluster.fenced(3, seen_by=2))  # it has been, though it did not hear so
    await cluster.join_isr(leader=2, members=(2, 1, 3))
    assert cluster.partition(seen_by=2).leader == 2
    assert await cluster.until(lambda: cluster.partition(seen_by=2).leader == 3) <= 10_100


@in_cluster(leader_imbalance_check_interval_s=10, auto_leader_rebalance=False)
async def test_leaders_stay_where_they_are_without_the_balance(cluster: Cluster) -> None:
    """R-138: auto.leader.rebalance.enable=false, and nobody but an administrator moves a leader back."""
    await cluster.begin(assignment=(3, 2, 1))
    cluster.kill(3)
    await cluster.until(lambda: cluster.partition(seen_by=1).leader == 2)
    cluster.start(3)
    await cluster.until(lambda: cluster.unfenced(3))
    await cluster.join_isr(leader=2, members=(2, 1, 3))
    await cluster.sleep(25_000)
    assert cluster.partition(seen_by=1).leader == 2


@in_cluster(leader_imbalance_check_interval_s=10)
async def test_the_balance_goes_on_until_all_preferred_leaders_are_back(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R-138: a batch is bounded, and the next one does not wait for the next check."""
    for module in (balance, controller_node):
        monkeypatch.setattr(module, "MAX_ELECTIONS_PER_BATCH", 1)
    topics = ("orders", "bills", "letters")
    await cluster.begin(assignment=(3, 2))
    for topic in topics[1:]:
        await cluster.create_topic(topic, (3, 2))
    cluster.kill(3)
    await cluster.until(lambda: all(cluster.partition(1, topic).leader == 2 for topic in topics))
    cluster.start(3)
    await cluster.until(lambda: cluster.unfenced(3))
    for topic in topics:
        await cluster.join_isr(leader=2, members=(2, 3), topic=topic)
    await cluster.until(lambda: any(cluster.partition(1, topic).leader == 3 for topic in topics))
    assert await cluster.until(lambda: all(cluster.partition(1, topic).leader == 3 for topic in topics)) < 100


@in_cluster(unclean_election_check_interval_s=10)
async def test_leaderless_partitions_are_looked_at_from_time_to_time(cluster: Cluster) -> None:
    """R-137: the next controller's file allows what the one before did not; nothing else makes it look."""
    await cluster.begin(assignment=(3, 2))
    cluster.kill(2)
    await cluster.until(lambda: cluster.partition(seen_by=1).isr == (3,))
    cluster.settings["unclean_leader_election_enable"] = True
    cluster.start(2)
    await cluster.until(lambda: cluster.unfenced(2))
    cluster.kill(3)
    await cluster.until(lambda: cluster.partition(seen_by=1).leader == -1)
    cluster.log.elect(2)
    assert 9_900 < await cluster.until(lambda: cluster.partition(seen_by=1).leader == 2) <= 10_100
    partition = cluster.partition(seen_by=1)
    assert (partition.isr, partition.recovering) == ((2,), True)
    assert cluster.active.controller.unclean_elections == 1


@in_cluster()
async def test_a_heartbeat_that_waited_behind_another_for_a_whole_session_moves_nothing(cluster: Cluster) -> None:
    """R-154: the one before took so long since the controller slept. What this one asks for may be out of date."""
    await cluster.begin()
    stream, beat = await cluster.session(3, broker_id=2)
    cluster.kill(2)
    await cluster.until(lambda: cluster.fenced(2, seen_by=1))
    cluster.log.stalled = True
    for want_fence in (False, True):
        await stream.send(replace(beat, want_fence=want_fence).SerializeToString())
    await cluster.sleep(50)
    cluster.machines[1].pause()
    await cluster.sleep(10_000)
    cluster.machines[1].resume()
    cluster.log.stalled = False
    cluster.log.commit(len(cluster.log.batches))
    answers = [controller_messages.HeartbeatAnswer.FromString(await stream.recv()) for _ in range(2)]
    assert [(answer.error_code, answer.is_fenced) for answer in answers] == [(ErrorCode.NONE, False)] * 2
    await stream.send(replace(beat, want_fence=True).SerializeToString())
    assert controller_messages.HeartbeatAnswer.FromString(await stream.recv()).is_fenced


@in_cluster()
async def test_a_controller_that_stops_waits_for_no_duty(cluster: Cluster) -> None:
    """R-216: what runs for its term ends with it, and not minutes later."""
    await cluster.begin()
    begun_ms = cluster.now_ms
    await cluster.members[1].controller.stop()
    assert cluster.now_ms - begun_ms < 10


@in_cluster()
async def test_a_refused_write_is_not_tried_again_and_again(cluster: Cluster) -> None:
    """The quorum leads no more and cannot say so yet: its disk is still busy with it. Its controller waits for that.

    Seed 494 of the simulated world found it: fencings were refused and due again in the same instant, for ever.
    """
    await cluster.begin()
    cluster.log.leader_id, cluster.log.epoch = -1, cluster.log.epoch + 1
    cluster.kill(3)
    await cluster.sleep(3_000)
    refused = [facts for _, node_id, event, facts in cluster.events if event == "controller_write_refused"]
    assert len(refused) == 1
    assert cluster.members[1].controller.early_fencings == 0
    cluster.log.nodes[1].tell(cluster.log.nodes[1].resigned)
    cluster.log.elect(2)
    await cluster.until(lambda: cluster.fenced(3, seen_by=1))
    assert cluster.partition(seen_by=2).leader == 2


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_tells_the_same_story(seed: int) -> None:
    """Nothing here asks a wall clock or iterates over what has no order."""

    def digest() -> str:
        async def story(cluster: Cluster) -> None:
            await cluster.begin()
            cluster.kill(3)
            cluster.start(3)
            await cluster.all_unfenced()

        cluster = Cluster(seed=seed)
        cluster.run(story)
        return cluster.loop.trace_digest()

    assert digest() == digest()


# --- Controllers and sessions over the real metadata quorum, three voters, in the simulated world --------------------


class QuorumCluster(Cluster):
    async def _main(self, node_id: int, ports: NodePorts, ready: bool) -> None:
        feed = MetadataFeed()
        listener = NodeQuorumListener(feed)
        settings = QuorumSettings(node_id=node_id, cluster_id=CLUSTER_ID, voters=self.voters)
        ports.files.makedirs("/data")
        quorum = QuorumNode(
            settings,
            clock=ports.clock,
            network=ports.network,
            files=ports.files,
            log_directory="/data",
            listener=listener,
        )
        member = self._assemble(node_id, ports, quorum, feed)
        listener.controller = member.controller
        listener.followers += [member.channel.on_leader_changed, member.session.on_leader_changed]
        handlers = merge(ControllerService(member.controller).handlers(), quorum.handlers())
        await ports.network.serve(self.voters[node_id], handlers)
        await quorum.start()
        await self._live(member, ready, [quorum.failed])

    def controllers(self) -> list[int]:
        return [node_id for node_id, member in self.members.items() if member.controller.active]

    @property
    def active(self) -> Member:
        (node_id,) = self.controllers()
        return self.members[node_id]


async def kill_and_revive_the_controller(cluster: QuorumCluster) -> None:
    """It is fenced, and led over, in less than a second; afterwards everybody is in sync again."""
    (target,) = cluster.controllers()
    survivor = next(iter(cluster.machines.keys() - {target}))
    cluster.kill(target)
    assert await cluster.until(lambda: cluster.fenced(target, seen_by=survivor)) < 1_000
    leader = cluster.partition(survivor).leader
    assert leader not in (target, -1)
    cluster.start(target)
    await cluster.all_unfenced()
    answer = await cluster.join_isr(leader, [leader, *(i for i in cluster.machines if i != leader)])
    assert answer.error == 0
    await cluster.until(lambda: all(len(cluster.partition(i).isr) == 3 for i in cluster.machines))


@pytest.mark.parametrize("seed", range(5))
def test_a_cluster_starts_and_survives_the_death_of_each_controller(seed: int) -> None:
    """From nothing to unfenced, then each active controller is killed in turn and comes back; leaders move in time."""

    async def story(cluster: Cluster) -> None:
        assert isinstance(cluster, QuorumCluster)
        cluster.start_all()
        await cluster.until(lambda: len(cluster.controllers()) == 1, limit_ms=3_000)
        assert await cluster.all_unfenced() < 300
        await cluster.create_topic("orders", (1, 2, 3))
        for _ in range(4):
            await kill_and_revive_the_controller(cluster)

    QuorumCluster(seed=seed).run(story)


def test_all_killed_at_once_come_back_on_their_disks() -> None:
    """The metadata log survives; topics are there again, and a leader within the time of an election."""

    async def story(cluster: Cluster) -> None:
        assert isinstance(cluster, QuorumCluster)
        cluster.start_all()
        await cluster.all_unfenced()
        topic_id = await cluster.create_topic("orders", (3, 2, 1))
        for node_id in cluster.machines:
            cluster.kill(node_id)
        await cluster.sleep(500)
        cluster.start_all()
        await cluster.all_unfenced()
        await cluster.until(lambda: cluster.partition(1).leader != -1, limit_ms=1_000)
        assert cluster.members[1].feed.image.topics["orders"].topic_id == topic_id

    QuorumCluster(seed=3).run(story)
