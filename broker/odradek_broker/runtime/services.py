"""What the parts of one node share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from odradek_proto.transport.ports import Clock, Files, Network
from odradek_proto.values import Value

from odradek_broker.runtime.counters import Counters
from odradek_broker.runtime.events import EventLog
from odradek_broker.storage.directory import LogDirectory

Spawn = Callable[[Coroutine[object, object, None]], "asyncio.Task[None]"]


class NodeServices(Value, frozen=True):
    """The ports, the log directory, and where it is noted what happens."""

    clock: Clock
    files: Files
    network: Network
    directory: LogDirectory
    events: EventLog
    counters: Counters
    spawn: Spawn  # a task that ends with the node
    say: Callable[[str], None]  # a line for whoever started the node
