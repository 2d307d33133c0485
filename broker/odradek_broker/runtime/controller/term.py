"""One term as the active controller: the state that begins with it and must not outlive it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from odradek_proto.transport.ports import TimerHandle

from odradek_broker.core.controller.sessions import SessionTable
from odradek_broker.core.metadata.image import MetadataImage


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
