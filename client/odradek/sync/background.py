"""What the synchronous clients have in common: a facade before an asynchronous client on the background loop."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from odradek_proto.transport.background import BackgroundLoop, background_loop

__all__ = ["BackgroundLoop", "Facade", "background_loop"]


class Facade:
    """A client that lives on the background loop."""

    _loop: BackgroundLoop
    _client: Any

    def start(self) -> None:
        """Find the cluster. Raises `BootstrapError`."""
        self._loop.run(self._client.start())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.run(self._client.__aexit__(kind, error, trace))
