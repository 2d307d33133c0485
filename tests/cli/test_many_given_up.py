"""`odradek produce` when thousands of records are given up at the same time."""

from __future__ import annotations

import time
from array import array
from typing import Any

from odradek import DeliveryTimeout, Producer
from odradek.cli.records.sending import OnTheWay, Sending
from odradek.cli.terminal.screen import Screen

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
