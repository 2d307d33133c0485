"""`odradek produce` and `consume` look for their topic: one that the cluster knows is waited for, and no other."""

from __future__ import annotations

import asyncio

import pytest
from odradek.cli.records import produce
from odradek.shared.errors import UnknownTopic
from odradek_proto.command_line import FAILED, CommandFailed


class Asked:
    """Brokers that have not heard of a topic the first times that they are asked."""

    def __init__(self, unaware: int) -> None:
        self.unaware = unaware
        self.times = 0

    async def __call__(self, topic: str) -> list[int]:
        self.times += 1
        if self.times <= self.unaware:
            raise UnknownTopic("not heard of", topic=topic)
        return [0]


def test_a_topic_that_the_cluster_knows_is_waited_for(odradek_bootstrap: str, odradek_topic: str) -> None:
    """It was just made, say, and not every broker knows of it; but nobody waits for ever."""
    late, never = Asked(2), Asked(1_000)
    assert asyncio.run(produce.partitions_of(odradek_bootstrap, odradek_topic, late)) == [0]
    assert late.times == 3
    with pytest.raises(CommandFailed, match="no answer about") as failed:
        asyncio.run(produce.partitions_of(odradek_bootstrap, odradek_topic, never))
    assert (failed.value.exit_code, never.times) == (FAILED, produce.KNOWN_TOPIC_TRIES)


def test_brokers_that_are_silent_for_a_while_prove_nothing(
    odradek_bootstrap: str, odradek_topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are asked again."""
    monkeypatch.setattr(produce, "UNKNOWN_TOPIC_MS", 50)
    answers = iter((asyncio.Event().wait, Asked(0)))

    async def ask(topic: str) -> list[int]:
        answer = next(answers)
        return await answer(topic) if isinstance(answer, Asked) else [await answer()]

    assert asyncio.run(produce.partitions_of(odradek_bootstrap, odradek_topic, ask)) == [0]


def test_a_topic_that_nobody_knows_is_an_error_at_once(odradek_bootstrap: str, odradek_topic: str) -> None:
    """With the nearest name that there is."""
    asked = Asked(1_000)
    with pytest.raises(CommandFailed, match=f"did you mean '{odradek_topic}'"):
        asyncio.run(produce.partitions_of(odradek_bootstrap, odradek_topic[:-1] + "x", asked))
    assert asked.times == 1
