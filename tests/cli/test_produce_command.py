"""`odradek produce` and `bench`: rates, records given up, and the topic that is looked for (as `consume` does)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from array import array
from collections.abc import AsyncIterator
from typing import Any

import pytest
from odradek import DeliveryTimeout, Producer
from odradek.cli.records import produce
from odradek.cli.records.outgoing import Portion
from odradek.cli.records.sending import InFlightBatch, Sending
from odradek.cli.terminal.screen import Screen
from odradek.shared.errors import UnknownTopic
from odradek_proto.command_line import FAILED, CommandFailed

from tests.cli.conftest import Run
from tests.waiting import until

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
        sending._on_way[number] = InFlightBatch(delivery, array("d", [time.perf_counter()]), 1)
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


SHARES = ("p50_ms", "p95_ms", "p99_ms", "p999_ms", "max_ms")


def test_all_that_is_written_is_read_and_both_are_measured(odradek: Run, bootstrap: str, odradek_topic: str) -> None:
    """Records, bytes and rates agree; of percentiles none is above a later one; reading has none without --live."""
    wrote = json.loads(odradek("bench", "produce", odradek_topic, "--count", "2000", "--size", "50", "--json").out)
    read = json.loads(odradek("bench", "consume", odradek_topic, "--json").out)
    assert [(facts["records"], facts["bytes"]) for facts in (wrote, read)] == [(2000, 100_000)] * 2
    shares = [wrote[name] for name in SHARES]
    assert shares == sorted(shares)
    assert shares[0] > 0
    assert [read[name] for name in SHARES] == [None] * len(SHARES)
    for facts in (wrote, read):
        assert facts["records_per_second"] == pytest.approx(facts["records"] / facts["seconds"], rel=0.05)
    some = odradek("bench", "consume", odradek_topic, "--count", "700")
    assert some.out.startswith("700 records read, 34.2 KiB in ")


def test_a_time_limit_ends_writing(odradek: Run, bootstrap: str, odradek_topic: str) -> None:
    """Without --count there is no other one; what was taken is waited for."""
    facts = json.loads(odradek("bench", "produce", odradek_topic, "--seconds", "0.2", "--json").out)
    assert facts["records"] > 0
    assert (facts["unknown"], facts["interrupted"]) == (0, False)


@pytest.mark.slow
def test_how_late_records_come_is_measured_live(odradek: Run, bootstrap: str, odradek_topic: str) -> None:
    """A reader of what is written from now on says how old records were when it had them."""
    words = [sys.executable, "-m", "odradek.cli.main", "bench", "consume", odradek_topic, "--live", "--count", "5"]
    reader = subprocess.Popen([*words, "--json"], stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        until(
            lambda: (odradek("produce", odradek_topic, "--count", "1", "-q"), reader.poll()), lambda told: told[1] == 0
        )
        assert reader.stdout is not None
        facts = json.loads(reader.stdout.read())
    finally:
        reader.kill()
        reader.communicate()
    assert facts["records"] == 5
    assert 0 <= facts["p50_ms"] <= facts["max_ms"] <= facts["seconds"] * 1000
    assert facts["max_ms"] > 0


def test_a_topic_that_is_not_there_is_named(odradek: Run, bootstrap: str, odradek_topic: str) -> None:
    """By both, with the nearest name."""
    for word in ("produce", "consume"):
        outcome = odradek("bench", word, odradek_topic + "x", "--count", "1")
        assert (outcome.code, f"did you mean '{odradek_topic}'?" in outcome.err) == (1, True), outcome
