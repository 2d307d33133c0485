"""Chance points do nothing in a real process, and are decided by whoever runs a simulated one."""

from __future__ import annotations

from threading import Thread

import pytest
from odradek_proto.transport.chance import chance, decided_by, reached


class Always:
    """Strikes everywhere, and remembers where."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, float]] = []
        self.branches: list[str] = []

    def fires(self, point: str, probability: float) -> bool:
        self.asked.append((point, probability))
        return True

    def reached(self, branch: str) -> None:
        self.branches.append(branch)


def test_nothing_strikes_outside_of_a_simulated_run() -> None:
    """However likely a point is said to be."""
    reached("anything")
    assert not chance("anything", 1.0)


def test_a_simulated_run_decides_until_its_end() -> None:
    """Also when it ends by an error."""
    always = Always()

    def run() -> None:
        with decided_by(always):
            assert chance("point", 0.25)
            reached("branch")
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run()
    assert not chance("point", 1.0)
    assert (always.asked, always.branches) == ([("point", 0.25)], ["branch"])


def test_two_runs_do_not_share_a_process() -> None:
    """The luck of one would be drawn by the other."""
    with decided_by(Always()), pytest.raises(AssertionError), decided_by(Always()):
        pass


def test_brokers_on_another_thread_are_not_struck() -> None:
    """They are real, and what they ask must not shift what the run draws."""
    always, answers = Always(), list[bool]()

    def ask() -> None:
        answers.append(chance("point", 1.0))
        reached("branch")

    with decided_by(always):
        other = Thread(target=ask)
        other.start()
        other.join()
    assert (answers, always.asked, always.branches) == ([False], [], [])
