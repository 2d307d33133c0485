"""What is heard of requests and answers: who knew which epoch, and when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from odradek_chaos.worlds.simulated.checks.exchanges import Answered
from odradek_chaos.worlds.simulated.checks.requests import OtherEpochsRefused
from odradek_chaos.worlds.simulated.checks.state import ClusterState
from odradek_chaos.worlds.simulated.observe.taps import QuorumTap
from odradek_proto.v1 import quorum_pb2


@pytest.mark.parametrize(("asked", "known_then", "found"), [(36, 0, 0), (36, 36, 0), (37, 36, 1), (35, 36, 1)])
def test_a_node_that_ends_while_it_answers_has_known_its_epoch(asked: int, known_then: int, found: int) -> None:
    """A fetch that waited until then is no request of an epoch that nobody knew; others still are."""
    heard: list[Answered] = []
    taps: Any = SimpleNamespace(broker_id=1, quorum_epoch=36, watcher=SimpleNamespace(answered=heard.append))
    tap = QuorumTap(taps, "Fetch")
    tap.asked(quorum_pb2.QuorumFetchRequest(current_leader_epoch=asked).SerializeToString())
    taps.quorum_epoch = known_then
    tap.answered(quorum_pb2.QuorumFetchResponse().SerializeToString())
    (answered,) = heard
    assert len(list(OtherEpochsRefused().on_answered(ClusterState(), answered))) == found
