"""Which broker is meant: by role at this moment, or by number."""

from __future__ import annotations

from typing import NamedTuple

from odradek import Admin, PartitionDescription
from odradek.cli.clusters.current import set_refusals_final
from odradek.cli.terminal.failures import no_such_topic
from odradek.cli.terminal.parsing import parse_partition
from odradek_broker.local.cluster import ClusterError, NoSuchBroker
from odradek_proto.command_line import CommandFailed

from odradek_chaos.worlds.real import Place, RealWorld


class SelectedBroker(NamedTuple):
    """A broker of a cluster, why it was chosen, and where it runs."""

    broker: int
    because: str
    place: Place


async def select(
    world: RealWorld, leader: str | None, follower: str | None, controller: bool, broker: int | None
) -> SelectedBroker:
    """The one broker that is meant. Raises `ClusterError`, `CommandFailed`, and what the client raises."""
    if broker is not None:
        if broker not in world.nodes:
            raise NoSuchBroker(broker, world.nodes)
        return _target(world, broker, "chosen by its number")
    bootstrap = world.bootstrap
    set_refusals_final(bootstrap.split(","))
    async with Admin(bootstrap) as admin:
        if controller:
            found = (await admin.describe_cluster()).controller_id
            if found < 0:
                raise ClusterError("there is no active controller now", hint="`odradek cluster status --watch`")
            return _target(world, found, "the active controller")
        text = leader or follower or ""
        partition = await _partition(admin, text)
        led_by = partition.leader_id
        if led_by < 0:
            raise ClusterError(f"{text} has no leader now", hint="`odradek cluster status --watch`")
        if leader:
            return _target(world, led_by, f"leader of {text} in leader epoch {partition.leader_epoch}")
    others = [replica for replica in partition.replicas if replica != led_by and world.running(replica)]
    in_sync = [replica for replica in others if replica in partition.isr]
    if not others:
        hint = "`odradek cluster status` shows its replicas, `odradek chaos restart` starts those that are down"
        raise ClusterError(f"{text} has no follower that runs", hint=hint)
    chosen = (in_sync or others)[0]
    state = "in sync" if in_sync else "not in sync"
    return _target(world, chosen, f"follower of {text}, {state}; broker {led_by} leads")


def _target(world: RealWorld, broker: int, because: str) -> SelectedBroker:
    return SelectedBroker(broker, because, world.place(broker))


async def _partition(admin: Admin, text: str) -> PartitionDescription:
    wanted = parse_partition(text)
    known = await admin.list_topics(internal=True)
    if wanted.topic not in known:
        raise no_such_topic(wanted.topic, known)
    topic = (await admin.describe_topics([wanted.topic]))[0]
    for partition in topic.partitions:
        if partition.partition == wanted.partition:
            return partition
    raise CommandFailed(
        f"{wanted.topic} has no partition {wanted.partition}; it has {len(topic.partitions)}, from 0 on",
        hint=f"`odradek topic describe {wanted.topic}` shows its partitions",
    )
