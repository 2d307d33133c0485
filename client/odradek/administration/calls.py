"""What every part of the administrator's client stands on: questions and orders to the cluster.

Rules of this module. Any broker takes a question and passes it to the active controller. What only asks is repeated
while the cluster has nobody to answer; what changes something is repeated only when it surely did not happen, so
`NOT_CONTROLLER` and a refused connection are tried again and a lost answer is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from odradek_proto.errors import ErrorCode
from odradek_proto.transport.ports import Clock, Network
from odradek_proto.v1 import broker_pb2

from odradek.cluster.client import Client
from odradek.cluster.cluster import METADATA, Request, Response
from odradek.shared.config import AdminConfig, AdminSettings, BootstrapServers, build, from_dotted
from odradek.shared.errors import BrokerUnreachable, OdradekError, RequestTimeout, broker_error

ADMIN = "/odradek.v1.Admin/"
BROKER = "/odradek.v1.Broker/"

R = TypeVar("R", bound=Response)


class AdminCalls(Client):
    """The life of an administrator's client, and how it calls."""

    def __init__(
        self,
        bootstrap_servers: BootstrapServers,
        *,
        clock: Clock | None = None,
        network: Network | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        config = build(AdminConfig, bootstrap_servers, settings)
        super().__init__(config, clock, network)
        self._config = config

    @classmethod
    def from_config(
        cls, config: Mapping[str, Any], *, clock: Clock | None = None, network: Network | None = None
    ) -> Self:
        """The same from Kafka's dotted names."""
        bootstrap_servers, settings = from_dotted(AdminConfig, config)
        return cls(bootstrap_servers, clock=clock, network=network, **settings)

    async def start(self) -> None:
        """Find the cluster. Raises `BootstrapError`."""
        await self._open()

    async def close(self) -> None:
        await self._shut()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _timeout_ms(self, timeout: float | None) -> int:
        return self._config.request_timeout_ms if timeout is None else max(round(timeout * 1000), 1)

    async def _metadata(self, request: broker_pb2.MetadataRequest) -> broker_pb2.MetadataResponse:
        cluster = self._require_running()

        async def ask() -> broker_pb2.MetadataResponse:
            return await cluster.ask_any(
                METADATA, request, broker_pb2.MetadataResponse, self._config.request_timeout_ms
            )

        return await self._patiently("metadata", self._config.default_api_timeout_ms, ask)

    async def _ask(self, name: str, request: Request, kind: Callable[[], R]) -> R:
        """A question that changes nothing: repeated while there is hope."""
        cluster = self._require_running()

        async def ask() -> R:
            answer = await cluster.ask_any(ADMIN + name, request, kind, self._config.request_timeout_ms)
            _raise_if_nobody_is_in_charge(answer)
            return answer

        return await self._patiently(name, self._config.default_api_timeout_ms, ask)

    async def _change(self, name: str, request: Request, kind: Callable[[], R], timeout: float | None) -> R:
        """An order: repeated only when it surely was not carried out. A lost answer is `RequestTimeout`.

        A lost connection is `BrokerUnreachable`.
        """
        cluster = self._require_running()
        timeout_ms = self._timeout_ms(timeout)

        async def ask() -> R:
            try:
                answer = await cluster.call_any(ADMIN + name, request, kind, timeout_ms)
            except (BrokerUnreachable, RequestTimeout) as error:
                error.hint = error.hint or "whether the order was carried out is unknown: look before you repeat it"
                raise _Unknown(error) from None
            _raise_if_nobody_is_in_charge(answer)
            return answer

        try:
            return await self._patiently(name, max(timeout_ms, self._config.default_api_timeout_ms), ask)
        except _Unknown as unknown:
            raise unknown.error from None


class _Unknown(OdradekError):
    """Carries an error past those who would try again."""

    def __init__(self, error: OdradekError) -> None:
        super().__init__(error.message)
        self.error = error


def _raise_if_nobody_is_in_charge(answer: object) -> None:
    """NOT_CONTROLLER says that nothing was done, wherever it stands in the answer."""
    items: Sequence[object] = [answer, *getattr(answer, "topics", ())]
    if any(getattr(item, "error_code", 0) == ErrorCode.NOT_CONTROLLER for item in items):
        raise broker_error(ErrorCode.NOT_CONTROLLER, "no active controller")


def raise_first(results: Sequence[tuple[str, int, str]]) -> None:
    """Raise the first error of several results; the others become notes."""
    errors = [broker_error(code, message, where=name) for name, code, message in results if code]
    if errors:
        for other in errors[1:]:
            errors[0].add_note(str(other))
        raise errors[0]
