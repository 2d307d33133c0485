"""The active controller of the cluster, on the node that leads the metadata quorum."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from odradek_proto.transport.ports import Clock, Handlers, Network

from odradek_broker.core.controller.settings import ControllerSettings
from odradek_broker.runtime.metadata_feed import MetadataFeed
from odradek_broker.runtime.quorum_node import QuorumNode

__all__ = ["ControllerNode", "ControllerSettings"]

OnEvent = Callable[[str, Mapping[str, object]], None]


class ControllerNode:
    """Wire up: the quorum's `on_leader`, `on_resigned` and `on_leader_changed` call the methods of the same names."""

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        clock: Clock,
        network: Network,
        quorum: QuorumNode,
        feed: MetadataFeed,
        on_event: OnEvent | None = None,
    ) -> None:
        self.active = False
        self.early_fencings = 0
        raise NotImplementedError

    def on_leader(self, epoch: int) -> None: ...

    def on_resigned(self, epoch: int) -> None: ...

    def on_leader_changed(self, leader_id: int, epoch: int) -> None: ...

    def handlers(self) -> Handlers:
        """The service `odradek.v1.Controller`, for the CONTROLLER listener."""
        raise NotImplementedError

    async def stop(self) -> None: ...
