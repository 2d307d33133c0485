"""What a campaign says of itself to people."""

from __future__ import annotations

from collections import Counter

from odradek_chaos.worlds.simulated.campaign import Campaign
from odradek_chaos.worlds.simulated.options import Options


def test_what_was_reached_is_listed_and_what_was_not_stands_in_one_line() -> None:
    """Nothing is listed with a count of zero; JSON has all names with their counts."""
    campaign = Campaign(Options(nemeses=("kill", "pause", "cut")))
    campaign.faults = Counter({"pause": 3, "machine-gone": 1})
    lines = [*campaign.lines()]
    assert "4 faults: 3 pause, 1 machine-gone" in lines
    assert "0 chance points" in lines
    assert "0 rare branches" in lines
    (missed,) = [line for line in lines if line.startswith("NOT REACHED: ")]
    assert missed.startswith("NOT REACHED: kill, cut, ")
    assert campaign.reach()["faults"] == {"kill": 0, "pause": 3, "cut": 0, "machine-gone": 1}
