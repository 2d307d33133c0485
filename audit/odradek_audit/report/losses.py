"""What is said before anything else when acknowledged records are gone: how many, where, and that nobody has them."""

from __future__ import annotations

from collections.abc import Sequence

from odradek_audit.checks.facts import Loss
from odradek_audit.report.markup import count, plain, plural

NAMED_LOSSES = 3
"""Losses told one by one; the others are one number."""

LEADER_ONLY = "acks=1 promises only the leader's copy, so no promise was broken."


def loss_sentences(losses: Sequence[Loss]) -> list[str]:
    """One sentence for each of the largest losses, and what they add up to; empty when nothing is gone."""
    ordered = sorted(losses, key=lambda loss: (-loss.records, loss.topic, loss.partition, loss.acks))
    said = [_sentence(loss) for loss in ordered[:NAMED_LOSSES]]
    if rest := ordered[NAMED_LOSSES:]:
        places = len({(loss.topic, loss.partition) for loss in rest})
        more = plural(sum(loss.records for loss in rest), "more record")
        said.append(f"{more} of {plural(places, 'other partition')} are on no replica either.")
    if losses and all(loss.acks != "all" for loss in losses):
        said.append(LEADER_ONLY)
    return said


def lost_records(losses: Sequence[Loss]) -> int:
    """How many acknowledged records are gone from every replica."""
    return sum(loss.records for loss in losses)


def _sentence(loss: Loss) -> str:
    one = loss.records == 1
    what = f"{count(loss.records)} {'record' if one else 'records'} of {plain(loss.topic, 80)}-{loss.partition}"
    told = f"that {'was' if one else 'were'} acknowledged with acks={loss.acks}"
    return f"{what} {told} {'is' if one else 'are'} gone{_where(loss)}: no replica has {'it' if one else 'them'}."


def _where(loss: Loss) -> str:
    if loss.first_offset < 0:
        return ""
    if loss.end_offset - loss.first_offset == 1:
        return f", offset {loss.first_offset}"
    return f", from offset {loss.first_offset} to {loss.end_offset - 1}"
