"""`odradek produce`: its rate, records that are given up, and the topic that it looks for (as `consume` does)."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import AsyncIterator
from typing import Any

import pytest
from odradek import DeliveryTimeout, Producer
from odradek.cli.records import produce
from odradek.cli.records.outgoing import Portion
from odradek.cli.records.sending import OnTheWay, Sending
from odradek.cli.terminal.screen import Screen
from odradek.shared.errors import UnknownTopic
from odradek_proto.command_line import FAILED, CommandFailed

LONG_AGO_S = -1_000_000.0


async def nothing() -> AsyncIterator[Portion]:
    """A source that has ended."""
    no_portions: tuple[Portion, ...] = ()
    for portion in no_portions:
        yield portion


def test_the_time_before_the_first_record_is_no_part_of_the_rate() -> None:
    """The command asks for the partitions of the topic first, which a busy cluster may take seconds for."""
    producer: Producer[Any, Any] = Producer("127.0.0.1:1")
    sending = Sending(producer, "orders", Screen(quiet=True))
    sending.sent.started = LONG_AGO_S
    asyncio.run(sending.run(nothing()))
    assert sending.sent.started > LONG_AGO_S


RECORDS = 2_000


class GivenUp:
    """What is known of a record that was not acknowledged in time, and how often somebody asked."""

    asked = 0

    def done(self) -> bool:
        return True

    def exception(self) -> DeliveryTimeout:
        GivenUp.asked += 1
        return DeliveryTimeout("orders-0: not acknowledged within 1000 ms", maybe_written=True)


def test_the_others_are_not_looked_at_for_each_of_them() -> None:
    """With a hundred thousand on their way it took minutes, in which neither Ctrl-C nor SIGTERM was heard."""
    producer: Producer[Any, Any] = Producer("127.0.0.1:1")
    sending: Any = Sending(producer, "orders", Screen(quiet=True))
    delivery: Any = GivenUp()
    for number in range(RECORDS):  # each in a batch of its own
        sending._on_way[number] = OnTheWay(delivery, array("d", [time.perf_counter()]), 1)
    sending._count_done()
    assert sending.sent.failed == sending.sent.maybe_written == RECORDS
    assert sending._hopeless is not None
    assert RECORDS <= GivenUp.asked <= 3 * RECORDS


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
