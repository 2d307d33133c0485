"""How a synchronous client is made of an asynchronous one: each method runs on the background loop, and is waited for.

Rules of this module. A client starts with its first use, as those of kafka-python and librdkafka do; `start` and `with`
only say when. What needs no cluster does not start it. A synchronous class names each method of its twin once, by the
form that it has there; parameters, types and docstrings are the twin's own, for people (`help`), for `inspect` and for
type checkers.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from functools import update_wrapper
from types import MethodType, TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NoReturn, ParamSpec, Self, TypeVar, overload

from odradek_proto.transport.background import BackgroundLoop, background_loop

from odradek.shared.kafka import missing
from odradek.sync.unclosed import is_held

P = ParamSpec("P")
R = TypeVar("R")


class _Derived(Generic[P, R]):
    """A method of a `Facade` that stands for a method of the asynchronous client."""

    def __init__(self, method: Callable[..., Any], *, starts: bool) -> None:
        self._name = method.__name__
        self._starts = starts
        update_wrapper(self, method)

    def _of(self, facade: Facade) -> Callable[..., Any]:
        """The method of the client that is behind a facade, started if it has to be."""
        if self._starts:
            facade.start()
        method: Callable[..., Any] = getattr(facade._client, self._name)
        return method

    @overload
    def __get__(self, facade: None, kind: type[Any]) -> Self: ...

    @overload
    def __get__(self, facade: object, kind: type[Any]) -> Callable[P, R]: ...

    def __get__(self, facade: object | None, kind: type[Any]) -> Any:
        return self if facade is None else MethodType(self, facade)

    def __call__(self, facade: Facade, /, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


class blocking(_Derived[P, R]):
    """Of a coroutine method: returns when it has returned. Only `close` does not start the client."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, R]]) -> None:
        super().__init__(method, starts=method.__name__ != "close")

    def __call__(self, facade: Facade, /, *args: Any, **kwargs: Any) -> Any:
        return facade._loop.run(self._of(facade)(*args, **kwargs))


class calling(_Derived[P, R]):
    """Of an ordinary method, which may only be called on the loop. `starts`: it needs the client to run."""

    def __init__(self, method: Callable[Concatenate[Any, P], R], *, starts: bool = False) -> None:
        super().__init__(method, starts=starts)

    def __call__(self, facade: Facade, /, *args: Any, **kwargs: Any) -> Any:
        method = self._of(facade)
        return facade._loop.call(lambda: method(*args, **kwargs))


class iterating(_Derived[P, Iterator[R]], Generic[P, R]):
    """Of a method that gives an asynchronous iterator."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncIterator[R]]) -> None:
        super().__init__(method, starts=True)

    def __call__(self, facade: Facade, /, *args: Any, **kwargs: Any) -> Any:
        return facade._loop.iterate(self._of(facade)(*args, **kwargs))


class Facade:
    """A client that lives on the background loop."""

    _client: Any = None  # until it is made: its settings may be refused

    def __init__(self, client: Any) -> None:
        self._loop: BackgroundLoop = background_loop()
        self._client = client
        self._starting = asyncio.Lock()  # held on the loop alone: a thread that waited for it could be the loop's own
        self._is_started = False

    def __del__(self, warn: Callable[..., None] = warnings.warn) -> None:  # `warnings` may be gone by then
        if is_held(self._client):
            warn(f"unclosed {type(self).__name__}: {self._client.unclosed}", ResourceWarning, source=self)

    if not TYPE_CHECKING:  # type checkers shall complain about unknown names themselves

        def __getattr__(self, name: str) -> NoReturn:
            raise missing(type(self).__name__, name)

    @classmethod
    def _around(cls, client: Any) -> Self:
        """Another instance, of a client that is there already."""
        made = cls.__new__(cls)
        Facade.__init__(made, client)
        return made

    def start(self) -> None:
        """Find the cluster, if that has not been done: the first use does it, too. Raises `BootstrapError`."""
        if not self._is_running:
            self._loop.run(self._start())

    @property
    def _is_running(self) -> bool:
        return self._is_started and not self._client._closed

    async def _start(self) -> None:
        async with self._starting:  # threads that share a client begin together
            if not self._is_running:
                await self._client.start()  # which refuses one that was closed
                self._is_started = True

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._loop.is_gone:  # a generator that is left open calls this when the interpreter has ended
            self._loop.run(self._client.__aexit__(kind, error, trace))
