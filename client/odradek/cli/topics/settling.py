"""What a decision of the controller still needs on the brokers: a new partition has no leader before its log is made.

Rules of this module. The decision is made, so nothing here fails a command; whoever asks gives up after a time without
progress, and says what is left. One without the right to ask waits for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from odradek.cli.clusters.asking import ask
from odradek.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from odradek import Admin

POLL_S = 0.1
SAY_EVERY_S = 1.0
MANY = 20  # partitions: of fewer nobody wants to read how far they are


def wait_for_leaders(bootstrap: str | None, screen: Screen, partitions: Mapping[str, int], patience_s: float) -> None:
    """Return when so many partitions of each of these topics have a leader that answers for it; say how far it is.

    After `patience_s` seconds without one more, say how many have none.
    """
    if partitions:
        ask(bootstrap, None, partial(_follow, screen=screen, partitions=partitions, patience_s=patience_s))


async def _follow(admin: Admin, screen: Screen, partitions: Mapping[str, int], patience_s: float) -> None:
    import asyncio

    from odradek import OdradekError

    wanted = sum(partitions.values())
    now = asyncio.get_running_loop().time
    most, due, deadline = -1, now() + SAY_EVERY_S, now() + patience_s
    while True:
        try:
            led = await _led(admin, partitions)
        except OdradekError:  # nobody is there any more who could say so, or we may not ask
            return
        if led >= wanted:
            return
        if led > most:
            most, deadline = led, now() + patience_s
        if now() >= deadline:
            screen.say(f"{wanted - led} of {wanted} partitions have no leader yet: `odradek cluster health` says why")
            return
        if wanted >= MANY and now() >= due:
            screen.say(f"{led} of {wanted} partitions have their leader")
            due = now() + SAY_EVERY_S
        await asyncio.sleep(POLL_S)


async def _led(admin: Admin, topics: Iterable[str]) -> int:
    """For how many partitions the leader answers; none as long as the broker that is asked has not heard of a topic."""
    from odradek import broker_errors

    try:
        described = await admin.describe_topics(topics)
    except broker_errors.UnknownTopicOrPartition:
        return 0
    leaders = {
        (topic.name, partition.partition): partition.leader_id for topic in described for partition in topic.partitions
    }
    found = await admin.describe_replicas(topics, brokers={*leaders.values()})
    led = {(each.topic, each.partition, each.broker_id) for each in found.replicas if each.role == "leader"}
    return sum((*place, leader) in led for place, leader in leaders.items())
