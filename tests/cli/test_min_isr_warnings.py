"""Warnings of min.insync.replicas come after the change, and must not make it look failed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest
from odradek import Admin
from odradek.administration.descriptions import ConfigEntry, PartitionDescription, TopicDescription
from odradek.cli.topics import min_isr
from odradek.cli.topics.min_isr import (
    ASKED_TOPICS,
    MIN_ISR,
    NAMED_TOPICS,
    TOPIC_SOURCE,
    warnings_for_brokers,
    warnings_for_topic,
)
from odradek.shared.errors import RequestTimeout


class ManyTopics(Admin):
    """An admin client of a cluster with many topics of one replica, which stops answering after some questions."""

    def __init__(self, topics: int, *, own: int = 0, answers: int = 1_000_000, silent: bool = False) -> None:
        super().__init__("127.0.0.1:1")
        self.names = [f"t{place:04}" for place in range(topics)]
        self.own = set(self.names[:own])  # those that have a value of their own
        self.answers = answers
        self.silent = silent
        self.asked = 0

    async def _answer(self) -> None:
        self.asked += 1
        if self.asked > self.answers:
            if self.silent:
                await asyncio.Event().wait()
            raise RequestTimeout("not answered in time")

    async def list_topics(self) -> list[str]:
        await self._answer()
        return self.names

    async def describe_topics(self, topics: Iterable[str] | None = None) -> list[TopicDescription]:
        await self._answer()
        partition = PartitionDescription(0, 1, 0, 0, [1], [1], [])
        return [TopicDescription(name, "", False, [partition]) for name in topics or ()]

    async def describe_configs(self, resource_type: Any, resource_name: str) -> list[ConfigEntry]:
        await self._answer()
        source = TOPIC_SOURCE if resource_name in self.own else "DEFAULT_CONFIG"
        return [ConfigEntry(MIN_ISR, "2", source, False)]


def test_a_topic_that_cannot_be_described_is_no_failure() -> None:
    """The settings were changed before; nothing is said then."""
    assert asyncio.run(warnings_for_topic(ManyTopics(1, answers=0), "t0000", {MIN_ISR: "2"})) == []
    (said,) = asyncio.run(warnings_for_topic(ManyTopics(1), "t0000", {MIN_ISR: "2"}))
    assert said.startswith("warning: t0000 has 1 replica")


@pytest.mark.parametrize("silent", [False, True])
@pytest.mark.parametrize("answers", [0, 1, 2, 4])
def test_what_was_found_before_a_failure_is_said(monkeypatch: pytest.MonkeyPatch, answers: int, silent: bool) -> None:
    """A list and a description first, then each topic; also when no answer comes at all."""
    monkeypatch.setattr(min_isr, "PATIENCE_S", 0.05)
    admin = ManyTopics(50, answers=answers, silent=silent)
    said = asyncio.run(warnings_for_brokers(admin, {MIN_ISR: "2"}))
    assert [line.split()[1] for line in said] == admin.names[: max(0, answers - 2)]


def test_no_more_topics_are_asked_for_than_are_named() -> None:
    """One more, to know that there are others."""
    admin = ManyTopics(5_000, own=3)
    said = asyncio.run(warnings_for_brokers(admin, {MIN_ISR: "2"}))
    assert [line.split()[1] for line in said[:-1]] == admin.names[3 : 3 + NAMED_TOPICS]
    assert said[-1] == "warning: and so it is with other topics"
    assert admin.asked == 2 + 3 + NAMED_TOPICS + 1
    assert len(asyncio.run(warnings_for_brokers(ManyTopics(NAMED_TOPICS), {MIN_ISR: "2"}))) == NAMED_TOPICS


def test_topics_with_values_of_their_own_are_not_asked_for_without_end() -> None:
    """They have nothing to do with the default, but each costs a question."""
    admin = ManyTopics(5_000, own=5_000)
    said = asyncio.run(warnings_for_brokers(admin, {MIN_ISR: "2"}))
    assert said == [f"warning: {5_000 - ASKED_TOPICS} other topics with few replicas were not looked at"]
    assert admin.asked == 2 + ASKED_TOPICS
