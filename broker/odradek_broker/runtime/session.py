"""A broker's life in the cluster: registration, session stream with heartbeats, unfencing, controlled shutdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from odradek_proto.transport.ports import Clock, Network

from odradek_broker.runtime.controller_channel import ControllerChannel
from odradek_broker.runtime.metadata_feed import MetadataFeed


class RegistrationRefused(Exception):
    """The controller will never take this broker as it is: wrong cluster, invalid registration."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Times in milliseconds."""

    heartbeat_interval_ms: int = 2_000  # broker.heartbeat.interval.ms
    session_timeout_ms: int = 9_000  # broker.session.timeout.ms
    session_grace_ms: int = 300  # odradek.session.grace.ms


class BrokerSession:
    broker_epoch: int  # -1 until registered
    incarnation_id: bytes

    def __init__(
        self,
        *,
        settings: SessionSettings,
        clock: Clock,
        channel: ControllerChannel,
        network: Network,
        feed: MetadataFeed,
        broker_id: int,
        cluster_id: str,
        endpoints: Mapping[str, str],  # listener name -> advertised host:port
        rack: str = "",
        previous_broker_epoch: int = -1,
        log_directory_id: bytes = b"",
        on_unfenced: Callable[[], None] | None = None,
        on_fenced: Callable[[], None] | None = None,
        on_event: Callable[[str, Mapping[str, object]], None] | None = None,
    ) -> None:
        raise NotImplementedError

    async def start(self) -> None:
        """Begin to register and to hold a session, in the background; returns at once."""

    async def wait_until_registered(self) -> int:
        """The broker epoch, as soon as the controller has given one. Raises `RegistrationRefused`."""
        raise NotImplementedError

    async def wait_until_unfenced(self) -> None:
        """Raises `RegistrationRefused`."""

    def set_ready(self) -> None:
        """The logs are loaded: ask to be unfenced from now on."""

    def on_leader_changed(self, leader_id: int, epoch: int) -> None:
        """Wire up with the quorum's listener, after the channel's: the stream moves to the new controller at once."""

    @property
    def fenced(self) -> bool:
        """As this broker's own committed metadata says; true before the registration."""
        raise NotImplementedError

    def stream_gone_for_ms(self, now_ms: int) -> int:
        """For how long no controller has been in touch; 0 while the session stands (R-112)."""
        raise NotImplementedError

    async def controlled_shutdown(self, timeout_ms: float) -> bool:
        """Hand over all leaderships; true when the controller said that this broker may stop (R-142)."""
        raise NotImplementedError

    async def stop(self) -> None: ...
