"""Making a topic on a cluster that may be in the midst of an election.

An order whose answer was lost may have been carried out or not. Giving it again is the surest look: the controller
itself answers, while any other broker may not have heard yet of what is there.
"""

from __future__ import annotations

import asyncio

from odradek import Admin, NewTopic, OdradekError
from odradek.broker_errors import InvalidReplicationFactor, TopicAlreadyExists, UnknownTopicOrPartition

from odradek_chaos.harness.waiting import POLL_S


async def create_topic(admin: Admin, topic: NewTopic, *, timeout_s: float, may_exist: bool = False) -> int:
    """Create a topic, through elections and lost answers; returns how many partitions it has.

    That it is there already is an error, unless `may_exist`, or unless an answer was lost before. While too few brokers
    are registered for its replicas the order is given again, too. When the time is over the last error is raised.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while True:
        try:
            return (await admin.create_topics([topic]))[0].partitions
        except TopicAlreadyExists:
            if not may_exist:
                raise
            return await _partitions(admin, topic.name, deadline)
        except OdradekError as error:
            if not (error.retriable or isinstance(error, InvalidReplicationFactor)) or loop.time() >= deadline:
                raise
            may_exist = may_exist or error.retriable
        await asyncio.sleep(POLL_S)


async def _partitions(admin: Admin, topic: str, deadline: float) -> int:
    """How many there are, once a broker that is asked has heard of the topic."""
    while True:
        try:
            return len((await admin.describe_topics([topic]))[0].partitions)
        except UnknownTopicOrPartition:
            if asyncio.get_running_loop().time() >= deadline:
                raise
        await asyncio.sleep(POLL_S)
