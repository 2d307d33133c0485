"""What the metrics and the health pages see of a node.

A protocol, since the node starts its listener and must not be needed to describe it: `node.py` knows this package, this
package does not know `node.py`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from odradek_broker.broker import Broker
from odradek_broker.runtime.controller_node import ControllerNode
from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.metadata_feed import MetadataFeed
from odradek_broker.runtime.quorum_node import QuorumNode
from odradek_broker.settings import BrokerSettings


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
