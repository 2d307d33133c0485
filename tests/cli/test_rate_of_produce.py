"""What `odradek produce` says of its own rate."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from odradek import Producer
from odradek.cli.records.outgoing import Portion
from odradek.cli.records.sending import Sending
from odradek.cli.terminal.screen import Screen

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
