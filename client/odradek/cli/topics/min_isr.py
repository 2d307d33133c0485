"""A warning that Kafka does not give: min.insync.replicas above the number of replicas counts as that number (R-11).

So acks=all is acknowledged, against what the number says: by one copy where there is one, and where there are more only
while every one of them is in sync. It is no error, as in Kafka: whoever plans to add replicas may say so in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from odradek_proto.words import noun

if TYPE_CHECKING:
    from odradek import Admin

MIN_ISR: Final = "min.insync.replicas"
TOPIC_SOURCE: Final = "DYNAMIC_TOPIC_CONFIG"
NAMED_TOPICS: Final = 5
ASKED_TOPICS: Final = 100
PATIENCE_S: Final = 3.0
"""For what there is to say once the settings are changed."""


def min_isr_warning(topic: str, replicas: int, min_isr: str) -> str:
    """The warning for a topic of so many replicas; empty where there are enough."""
    if not min_isr.isdecimal() or int(min_isr) <= replicas:
        return ""
    has = f"{replicas} {noun(replicas, 'replica')}"
    means = (
        "acks=all stands on one copy"
        if replicas == 1
        else "acks=all is refused (NOT_ENOUGH_REPLICAS) while one of them is out of sync"
    )
    return f"warning: {topic} has {has}, so {MIN_ISR}={min_isr} counts as {replicas}: {means}"


async def default_min_isr(admin: Admin) -> str:
    """What holds for a topic that says nothing of its own, as one broker has it; empty where none can say it now."""
    from odradek.shared import errors

    try:
        brokers = [broker for broker in (await admin.describe_cluster()).brokers if not broker.fenced]
        entries = await admin.describe_configs("broker", str(brokers[0].broker_id)) if brokers else []
    except errors.OdradekError:  # a warning is not worth a failure
        return ""
    return next((entry.value for entry in entries if entry.name == MIN_ISR), "")


async def warnings_for_topic(admin: Admin, topic: str, settings: Mapping[str, str]) -> list[str]:
    """What to say of a topic that is there and gets these settings, one line or none."""
    said: list[str] = []
    if MIN_ISR in settings:
        import asyncio

        with _a_little_while():
            async with asyncio.timeout(PATIENCE_S):
                replicas = await _replicas(admin, [topic])
            said += filter(None, (min_isr_warning(name, replicas[name], settings[MIN_ISR]) for name in replicas))
    return said


async def warnings_for_brokers(admin: Admin, settings: Mapping[str, str]) -> list[str]:
    """What to say when brokers get these settings: topics with a value of their own are not concerned."""
    said: list[str] = []
    if MIN_ISR in settings:
        import asyncio

        with _a_little_while():
            async with asyncio.timeout(PATIENCE_S):
                await _look_at_all(admin, settings[MIN_ISR], said)
    return said


async def _look_at_all(admin: Admin, min_isr: str, said: list[str]) -> None:
    """Each topic that may be concerned is asked for, one after the other, until there is enough to say."""
    replicas = await _replicas(admin, await admin.list_topics())
    doubtful = {name: warning for name, count in replicas.items() if (warning := min_isr_warning(name, count, min_isr))}
    for asked, (name, warning) in enumerate(doubtful.items()):
        if asked == ASKED_TOPICS:
            left = len(doubtful) - asked
            what = noun(left, "topic with few replicas was", "topics with few replicas were")
            said.append(f"warning: {left} other {what} not looked at")
            return
        entries = await admin.describe_configs("topic", name)
        if any(entry.name == MIN_ISR and entry.source == TOPIC_SOURCE for entry in entries):
            continue
        if len(said) == NAMED_TOPICS:
            said.append("warning: and so it is with other topics")
            return
        said.append(warning)


@contextmanager
def _a_little_while() -> Iterator[None]:
    """The settings were changed already: a warning is worth neither a failure nor a long wait."""
    from odradek.shared import errors

    with suppress(errors.OdradekError, TimeoutError):
        yield


async def _replicas(admin: Admin, topics: Iterable[str]) -> dict[str, int]:
    """The fewest replicas that a partition has, by topic."""
    names = sorted(topics)
    described = await admin.describe_topics(names) if names else []
    return {
        topic.name: min(len(partition.replicas) for partition in topic.partitions)
        for topic in described
        if topic.partitions
    }
