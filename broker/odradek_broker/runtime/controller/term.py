"""One term as the active controller: the state that begins with it and must not outlive it, and its queries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from odradek_proto.transport.ports import Clock, TimerHandle

from odradek_broker.core.controller.decision import Decision
from odradek_broker.core.controller.sessions import SessionTable
from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.runtime.quorum.node import QuorumNode

Answer = TypeVar("Answer")


class NotActive(Exception):
    """This node is not the active controller, or ceased to be while the call waited."""


class OutcomeUnknown(NotActive):
    """It ceased to be when a change of this call was written and not committed: the quorum may commit it yet."""


@dataclass(slots=True)
class Term:
    """What belongs to one time as the active controller, and ends with it."""

    epoch: int
    ahead: MetadataImage
    sessions: SessionTable
    waiting: list[tuple[int, asyncio.Future[None]]] = field(default_factory=list)  # offset that must be applied
    tasks: dict[asyncio.Task[None], None] = field(default_factory=dict)
    timer: TimerHandle | None = None
    refused: bool = False  # the quorum took a write no more: the term is over, and will be told so
    unclean: list[int] = field(default_factory=list)  # offsets of unclean elections that are not committed yet
    unreachable: list[int] = field(default_factory=list)  # brokers of which events have said so
    full: list[int] = field(default_factory=list)  # the same of full disks


class ActiveController(Protocol):
    """The active controller as its services see it. Everything raises `NotActive` once the term is over."""

    settings: ControllerSettings
    clock: Clock
    feed: MetadataFeed
    quorum: QuorumNode

    @property
    def leader_id(self) -> int:
        """Whom to ask instead, -1 when unknown."""
        ...

    async def wait_until_active(self) -> Term: ...

    async def carry_through(self, term: Term, decide: Callable[[MetadataImage], Decision[Answer]]) -> Answer:
        """Decide, write, wait for the commit, answer. Raises `OutcomeUnknown` if something was written."""
        ...

    def decide(self, term: Term, decide: Callable[[MetadataImage], Decision[Answer]]) -> Answer:
        """Decide and write, in one step. The answer holds only once it is committed."""
        ...

    async def until_committed(self, term: Term, offset: int) -> None: ...

    def step_sessions(self) -> None: ...

    def on_term_end(self, ended: Callable[[], None]) -> None:
        """`ended` is called when a term is over, when all who waited in it have been told."""
        ...
