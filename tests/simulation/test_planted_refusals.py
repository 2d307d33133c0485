"""Whole runs of a product from which a refusal was taken: what listens to the wire finds it."""

from __future__ import annotations

import pytest
from odradek_broker.core.partition import bounds, fencing
from odradek_broker.core.partition.bounds import ClientBounds
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_proto.errors import ErrorCode

SEEDS = range(1, 61)  # one in a few shows it; the first one ends the search


def found_in_some_seed(check: str, likely: int) -> bool:
    """Seeds until one shows it, beginning with one that did; most do not meet the moment."""
    seeds = sorted(SEEDS, key=lambda seed: seed != likely)
    return any(check in {finding.check for finding in run_seed(seed, Options()).findings} for seed in seeds)


@pytest.mark.slow
def test_a_leader_that_answers_for_the_end_before_its_epoch_has_begun_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """KIP-207 taken away: the old leader has told more than the new one knows."""

    def latest(self: ClientBounds, current_leader_epoch: int, *, replica: bool) -> tuple[ErrorCode, int]:
        error = fencing.check_leader_epoch(current_leader_epoch, self.leader_epoch)
        return error, self.log.log_end_offset if replica else self.log.high_watermark

    monkeypatch.setattr(ClientBounds, "latest", latest)
    assert found_in_some_seed("end-offsets-never-fall", likely=1)


def test_a_broker_that_compares_no_leader_epochs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """R-110 taken away: a request of an older epoch is answered as if nothing had happened."""

    def equal(current_leader_epoch: int, leader_epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    for module in (fencing, bounds):
        monkeypatch.setattr(module, "check_leader_epoch", equal)
    assert found_in_some_seed("other-epochs-refused", likely=4)
