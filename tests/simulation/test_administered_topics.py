"""Topics that administrators make during the faults: what is owed to them, and that a seed takes such orders."""

from __future__ import annotations

import pytest
from odradek_broker.core.metadata.image import MetadataImage, PartitionRegistration, TopicImage
from odradek_chaos.worlds.simulated.faults.catalogue import BESIDE, CLASSES
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.run.expansion import expand
from odradek_chaos.worlds.simulated.run.run import run_seed
from odradek_chaos.worlds.simulated.world.administered import AdministeredTopic, AdministeredTopics, wrong_in

VALUES = [b"a1/0/%d" % number for number in range(6)]
LIVES = {1: 4, 2: 1, 3: 1}


def topic(*, retains_less: bool = False) -> AdministeredTopic:
    """Four records were acknowledged, of two more nobody knows; records were deleted up to 1, and asked to be to 2."""
    made = AdministeredTopic(partitions=1, is_owed=True, retains_less=retains_less)
    known = made.partition(0)
    known.sent = dict.fromkeys(VALUES)
    known.acknowledged = dict(enumerate(VALUES[:4]))
    known.asked_start, known.told_start, known.lives = 2, 1, LIVES
    return made


def judged(made: AdministeredTopic, found: list[tuple[int, bytes]], lives: dict[int, int]) -> list[str]:
    return list(wrong_in(made, 0, found, dict(enumerate(VALUES[:4])), lives))


@pytest.mark.parametrize(
    "found",
    [
        [(offset, VALUES[offset]) for offset in range(1, 4)],
        [(offset, VALUES[offset]) for offset in range(2, 6)],
        [(2, VALUES[2]), (3, VALUES[3]), (5, VALUES[5])],
    ],
)
def test_what_was_asked_for_may_be_gone_and_what_was_not_answered_may_be_there(found: list[tuple[int, bytes]]) -> None:
    """Deleting up to 2 was carried out or not; a record without an answer was written or not."""
    assert judged(topic(), found, LIVES) == []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ([(3, VALUES[3])], "was acknowledged at 2"),
        ([(2, VALUES[3]), (3, VALUES[2])], "was acknowledged at 2"),
        ([(0, VALUES[0]), (1, VALUES[1]), (2, VALUES[2]), (3, VALUES[3])], "everything below 1 was deleted"),
        ([(2, VALUES[2]), (3, VALUES[3]), (4, VALUES[3])], "is there twice"),
        ([(2, VALUES[2]), (3, VALUES[3]), (4, b"a1/0/77")], "was never sent"),
    ],
)
def test_what_was_answered_is_held_against_what_is_there(found: list[tuple[int, bytes]], says: str) -> None:
    """Lost, moved, back again, doubled, or of nobody."""
    assert any(says in sentence for sentence in judged(topic(), found, LIVES))


def test_an_acknowledgement_that_comes_while_all_is_read_is_not_looked_for() -> None:
    """A producer may still wait for it when the faults are over (seed 11610)."""
    made = topic()
    made.partition(0).acknowledged[4] = VALUES[4]
    assert judged(made, [(2, VALUES[2]), (3, VALUES[3])], LIVES) == []


def test_a_log_start_that_two_brokers_have_forgotten_may_go_back() -> None:
    """It is written down by the minute; one broker's death leaves another that knows it."""
    found = list(enumerate(VALUES[:4]))
    assert judged(topic(), found, LIVES | {1: 5}) != []
    assert judged(topic(), found, LIVES | {1: 5, 3: 2}) == []


def test_retention_may_take_the_head_and_nothing_in_between() -> None:
    """What is there begins anywhere, and has no hole."""
    assert judged(topic(retains_less=True), [(3, VALUES[3])], LIVES) == []
    assert judged(topic(retains_less=True), [], LIVES) == []
    assert judged(topic(retains_less=True), [(2, VALUES[2])], LIVES) != []


def test_a_topic_that_was_made_is_there_with_all_its_partitions() -> None:
    """But not one that somebody has asked to delete."""
    known = AdministeredTopics()
    known.topic("a1").is_owed, known.topic("a1").partitions = True, 2
    known.topic("a2").partitions = 1
    image = MetadataImage()
    assert list(known.missing(image)) == ["a1 was made, and is not there"]
    image.topics["a1"] = TopicImage("a1", b"1" * 16, {0: PartitionRegistration((1,), (1,), 1, 0, 0)})
    assert list(known.missing(image)) == ["a1 has 1 partitions, and was answered to have 2"]


def test_seeds_take_each_of_the_kinds_that_come_beside() -> None:
    """Unless kinds are named: then those alone strike."""
    taken: set[str] = set()
    for seed in range(60):
        plan = expand(SimLoop(seed).fork_rng("plan"), Options())
        taken |= {*plan.paces_ms} & {*BESIDE}
        assert [*expand(SimLoop(seed).fork_rng("plan"), Options(nemeses=("kill",))).paces_ms] == ["kill"]
    assert taken == {*BESIDE} == {name for name, kind in CLASSES.items() if kind.beside}


@pytest.mark.slow
def test_every_deed_is_done_and_costs_nothing_that_is_owed() -> None:
    """Each order meets kills and cuts in some seed; its topics keep what they were told to have."""
    done: set[str] = set()
    for seed in (1, 3):  # each order is given in one of them
        result = run_seed(seed, Options(faults_ms=4_000, nemeses=("topics", "kill", "cut")))
        assert not result.findings, result.report()
        done |= {injection.choice["do"] for injection in result.injections if injection.name == "topics"}
    assert done == {"make", "fill", "grow", "empty", "alter", "retain", "delete"}


def test_some_seeds_have_a_compacted_topic_leaders_that_alternate_or_voters_with_damage() -> None:
    """Where the faults are drawn, and not where they are named; whatever else is drawn stays the same."""
    drawn = [expand(SimLoop(seed).fork_rng("plan"), Options()) for seed in range(200)]
    named = [expand(SimLoop(seed).fork_rng("plan"), Options(nemeses=("kill",))) for seed in range(200)]
    beside = ("alternate-leaders", "flip-metadata")
    for found in ([plan.compaction for plan in drawn], *([kind in plan.paces_ms for plan in drawn] for kind in beside)):
        assert 20 <= sum(found) <= 40
    assert not any(plan.compaction or {*beside} & {*plan.paces_ms} for plan in named)
    assert expand(SimLoop(1).fork_rng("plan"), Options(nemeses=("kill",), compaction=True)).compaction
