"""`odradek chaos write --rate --seconds`: how fast it writes, and how long."""

from __future__ import annotations

import json
from typing import cast

import pytest
from odradek.cli.main import main
from odradek_chaos.harness.workload import Pace
from odradek_proto.transport.ports import Clock


class ClockByHand:
    """It stands at `ms`."""

    ms = 1_000

    def now_ms(self) -> int:
        return self.ms


def test_partitions_take_turns_at_the_rate_of_all_of_them() -> None:
    """Four records a second over two partitions; the time in which nobody could write is not made up for."""
    clock = ClockByHand()
    pace = Pace(cast(Clock, clock), 4)
    assert [pace(), pace()] == [250, 500]
    clock.ms = 1_250
    assert pace() == 500
    clock.ms = 61_000
    assert [pace(), pace()] == [250, 500]


@pytest.mark.parametrize("rate", ["1", "100000"])
def test_a_writer_with_a_time_limit_needs_no_count(
    rate: str, odradek_bootstrap: str, odradek_topic: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """It ends by itself, and not as one that was interrupted; all that it sent was acknowledged."""
    words = f"chaos write {odradek_topic} --seconds 0.2 --rate {rate} --json -b {odradek_bootstrap}"
    assert main(words.split()) == 0
    facts = json.loads(capfd.readouterr().out)
    assert facts["sent"] == facts["acknowledged"] > 0
    assert not facts["interrupted"]
