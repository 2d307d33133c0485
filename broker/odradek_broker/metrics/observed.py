"""What the metrics and the health pages see of a node.

Protocols, since the node starts the listener: process/ imports this package, which does not import process/.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.runtime.controller.node import ControllerNode
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.groups.coordinator import GroupCoordinator
from odradek_broker.runtime.membership.broker_session import BrokerSession
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.runtime.quorum.node import QuorumNode
from odradek_broker.runtime.replicas.manager import ReplicaManager


class ObservedBroker(Protocol):
    """The broker's part of a node."""

    caught_up: asyncio.Event
    recovered: bool
    replicas: ReplicaManager
    groups: GroupCoordinator
    session: BrokerSession
    settings: BrokerSettings


class ObservedNode(Protocol):
    """A node, and those of its parts that it has by now."""

    settings: BrokerSettings
    failed: asyncio.Future[None]
    counters: Counters
    feed: MetadataFeed
    controller: ControllerNode | None
    quorum: QuorumNode | None

    @property
    def broker(self) -> ObservedBroker | None: ...

    @property
    def stopping(self) -> bool: ...
