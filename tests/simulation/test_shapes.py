"""Clusters of other shapes than three nodes with both roles."""

from __future__ import annotations

import pytest
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.expansion import DRAWN_SHAPES, expand
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_chaos.worlds.simulated.world.world import World

BOTH, BROKER, CONTROLLER = (True, True), (True, False), (False, True)  # replicas are hosted, votes are cast


@pytest.mark.parametrize(
    ("shape", "roles"),
    [
        pytest.param("combined", dict.fromkeys((1, 2, 3), BOTH), marks=pytest.mark.slow),
        pytest.param("observers", {1: BOTH, 2: BOTH, 3: BOTH, 4: BROKER, 5: BROKER}, marks=pytest.mark.slow),
        ("controllers", {**dict.fromkeys((1, 2, 3), BROKER), **dict.fromkeys((4, 5, 6), CONTROLLER)}),
    ],
)
def test_each_node_does_what_its_roles_say_and_nothing_that_is_owed_is_lost(
    shape: str, roles: dict[int, tuple[bool, bool]]
) -> None:
    """Amid kills of all nodes, cuts and the loss of the quorum; each broker hosts some replica of some topic."""
    worlds: list[World] = []
    options = Options(faults_ms=1_500, shape=shape, nemeses=("kill", "cut", "quorum-loss", "reassign"))
    result = run_seed(4, options, prepare=worlds.append)
    assert not result.findings, result.report()
    nodes = worlds[0].cluster.nodes
    assert {node_id: (node.broker is not None, node.controller is not None) for node_id, node in nodes.items()} == roles


def test_seeds_draw_each_shape_unless_one_is_named() -> None:
    """Where kinds of faults are named the cluster is the usual one, but for an option that says otherwise."""

    def drawn(options: Options) -> set[str]:
        return {expand(SimLoop(seed).fork_rng("plan"), options).shape for seed in range(40)}

    assert drawn(Options()) == {*DRAWN_SHAPES}
    assert drawn(Options(nemeses=("kill",))) == {"combined"}
    assert drawn(Options(shape="observers")) == drawn(Options(shape="observers", nemeses=("kill",))) == {"observers"}
