"""Requests that wait: each is completed once, by its condition, its deadline, or a failure of what it waits for."""

from __future__ import annotations

import random

import pytest
from odradek_broker.core.delayed import DelayedOperation, DelayedOperations, DelayedProduce
from odradek_proto.errors import ErrorCode

from tests.scripts.roles import append, fetch, leader, registration

FAILED = ErrorCode.NOT_LEADER_OR_FOLLOWER
LATE = ErrorCode.REQUEST_TIMED_OUT
DONE = ErrorCode.NONE
KEY = "orders-0"
Answers = list[tuple[str, ErrorCode]]


class Named(DelayedOperation, eq=False):
    """An operation whose condition the test sets."""

    name: str
    holds: bool = True

    def outcome(self) -> ErrorCode | None:
        return DONE if self.holds else None


class Batch(DelayedProduce, eq=False):
    name: str


def names(done: list[tuple[Named, ErrorCode]]) -> Answers:
    return [(each.name, outcome) for each, outcome in done]


def waiting(*operations: Named, keys: tuple[str, ...] = (KEY,)) -> DelayedOperations[str, Named]:
    delayed: DelayedOperations[str, Named] = DelayedOperations()
    for operation in operations:
        delayed.register(operation, *keys)
    return delayed


def test_progress_completes_exactly_what_is_reached() -> None:
    """A rise of the high watermark completes the writes below it, in order, once (R-14, R-124). (PU-03)"""
    partition = leader(metadata=registration(replicas=[0, 1]))
    delayed: DelayedOperations[str, Batch] = DelayedOperations()
    for end, name in ((2, "first"), (4, "second"), (6, "third")):
        append(partition, 2)
        delayed.register(Batch(partition, name, required=end, deadline_ms=1_000), KEY)
    assert delayed.check(KEY, partition.log.high_watermark) == []
    partition.fetch_by_follower(fetch(1, 5), 0)
    done = delayed.check(KEY, partition.log.high_watermark)
    assert [(each.name, outcome) for each, outcome in done] == [("first", DONE), ("second", DONE)]
    assert delayed.check(KEY, partition.log.high_watermark) == []
    assert [each.name for each in delayed.waiting(KEY)] == ["third"]


def test_what_is_reached_already_completes_at_the_next_look() -> None:
    """Try, register, try again: what became true in between is not overlooked (R-120). (PU-05)"""
    delayed = waiting(Named("done", required=2))
    assert names(delayed.check(KEY, 2)) == [("done", DONE)]


def test_a_deadline_comes_once_and_in_order() -> None:
    """At its deadline an operation is REQUEST_TIMED_OUT, and is gone (R-15). (PU-04)"""
    delayed = waiting(*(Named(name, deadline_ms=at) for name, at in (("late", 300), ("early", 200), ("late too", 300))))
    assert delayed.next_deadline_ms() == 200
    assert delayed.on_time(199) == []
    assert names(delayed.on_time(200)) == [("early", LATE)]
    assert delayed.next_deadline_ms() == 300
    assert names(delayed.on_time(1_000)) == [("late", LATE), ("late too", LATE)]
    assert (delayed.on_time(2_000), delayed.next_deadline_ms(), list(delayed.waiting(KEY))) == ([], None, [])


def test_a_deadline_may_be_set_while_it_waits() -> None:
    """A fetch has none before there is news (R-127)."""
    fetching = Named("fetch", holds=False)
    delayed = waiting(fetching, Named("write", deadline_ms=900))
    delayed.set_deadline(fetching, 400)
    assert delayed.next_deadline_ms() == 400
    assert names(delayed.on_time(400)) == [("fetch", LATE)]


def test_a_completed_operation_does_not_time_out() -> None:
    """One that was answered is not answered again at its deadline. (PU-03, PU-04)"""
    delayed = waiting(Named("done", required=1, deadline_ms=100), Named("waits", required=9, deadline_ms=500))
    delayed.check(KEY, 1)
    assert delayed.next_deadline_ms() == 500
    assert names(delayed.on_time(500)) == [("waits", LATE)]


def test_a_repeated_batch_does_not_wait_behind_later_ones() -> None:
    """A duplicate requires a lower offset than those before it, and completes with it (R-16)."""
    delayed = waiting(Named("later", required=9), Named("repeated", required=3))
    assert names(delayed.check(KEY, 3)) == [("repeated", DONE)]


def test_one_whose_condition_does_not_hold_lets_the_others_pass() -> None:
    """Conditions of different requests have nothing to do with each other; who stays keeps its place."""
    first, second = Named("first", holds=False), Named("second")
    delayed = waiting(first, second, Named("third", holds=False))
    assert names(delayed.check(KEY)) == [("second", DONE)]
    first.holds = True
    assert names(delayed.check(KEY)) == [("first", DONE)]
    assert [each.name for each in delayed.waiting(KEY)] == ["third"]


@pytest.mark.parametrize("ends", ["check", "fail", "time", "cancel"])
def test_whatever_ends_it_ends_it_under_all_keys(ends: str) -> None:
    """A fetch of two partitions waits for both, and is answered once. (PA-36)"""
    operation = Named("both", deadline_ms=100)
    delayed = waiting(operation, keys=("a", "b"))
    answers: Answers = []
    if ends == "check":
        answers = names(delayed.check("b"))
    elif ends == "fail":
        answers = names(delayed.fail("b", FAILED))
    elif ends == "time":
        answers = names(delayed.on_time(100))
    else:
        delayed.cancel(operation)
    assert [outcome for _, outcome in answers] == {"check": [DONE], "fail": [FAILED], "time": [LATE]}.get(ends, [])
    assert delayed.check("a") == delayed.check("b") == delayed.fail("a", FAILED) == delayed.on_time(1_000) == []


def test_an_operation_under_one_key_twice_is_completed_once() -> None:
    """As a Fetch that names a partition twice."""
    delayed = waiting(Named("twice"), keys=("a", "a"))
    assert names(delayed.fail("a", FAILED)) == [("twice", FAILED)]


def test_what_is_over_does_not_pile_up() -> None:
    """At a partition where nothing happens, and behind one that waits for ever, entries of the past are dropped."""
    delayed = waiting(Named("patient", holds=False, deadline_ms=1 << 40))
    for number in range(10_000):
        delayed.register(Named(str(number), holds=False, deadline_ms=number), KEY)
        delayed.on_time(number)
    assert len(delayed._watched[KEY].operations) < 100
    assert len(delayed._by_deadline) < 100
    assert [each.name for each in delayed.waiting(KEY)] == ["patient"]


def test_every_operation_is_completed_once_in_any_order() -> None:
    """Against a list that is searched: the same outcomes, whatever comes first."""
    rng = random.Random(7)
    for _ in range(200):
        delayed: DelayedOperations[str, Named] = DelayedOperations()
        naive: dict[str, tuple[Named, tuple[str, ...]]] = {}
        for number in range(40):
            choice, key, now_ms = rng.random(), rng.choice("abc"), number * 10
            if choice < 0.5:
                keys = tuple(rng.sample("abc", rng.randint(1, 3)))
                each = Named(str(number), required=rng.randint(0, 20), deadline_ms=now_ms + rng.randint(1, 200))
                delayed.register(each, *keys)
                naive[each.name] = each, keys
                continue
            if choice < 0.8:
                reached = rng.randint(0, 20)
                done = delayed.check(key, reached)
                expected = {name for name, (each, keys) in naive.items() if key in keys and each.required <= reached}
            elif choice < 0.9:
                done = delayed.on_time(now_ms)
                expected = {name for name, (each, _) in naive.items() if (each.deadline_ms or 0) <= now_ms}
            else:
                done = delayed.fail(key, FAILED)
                expected = {name for name, (_, keys) in naive.items() if key in keys}
            found = [each.name for each, _ in done]
            assert len(found) == len(set(found))
            assert set(found) == expected
            for name in found:
                del naive[name]
