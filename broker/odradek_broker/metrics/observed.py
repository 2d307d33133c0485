"""What the metrics and the health pages see of a node.

A protocol, since the node starts its listener and must not be needed to describe it: `node.py` knows this package, this
package does not know `node.py`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from odradek_broker.config.settings import BrokerSettings
from odradek_broker.process.broker import Broker
from odradek_broker.runtime.controller.node import ControllerNode
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.membership.metadata_feed import MetadataFeed
from odradek_broker.runtime.quorum.node import QuorumNode


class ObservedNode(Protocol):
    """A node, and those of its parts that it has by now."""

    settings: BrokerSettings
    failed: asyncio.Future[None]
    counters: Counters
    feed: MetadataFeed
    broker: Broker | None
    controller: ControllerNode | None
    quorum: QuorumNode | None

    @property
    def stopping(self) -> bool: ...
