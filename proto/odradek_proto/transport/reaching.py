"""How far one gets towards an address: is its name known, does somebody listen, does the kernel say no.

`Network.dial` answers what a protocol must know; this one says what a person should mend. Nothing here outlasts its
deadline: names are looked up in a daemon thread of their own, since a resolver cannot be cancelled and an executor's
thread would hold up the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from enum import StrEnum
from ipaddress import ip_address
from typing import Any


class Reached(StrEnum):
    """How far it went."""

    LISTENING = "listening"
    NO_ADDRESS = "not host:port"
    UNRESOLVED = "name does not resolve"
    TOO_SHORT = "the time was over before an address was tried, which needs no resolving"
    REFUSED = "refused"
    NO_ROUTE = "no route"
    SILENT = "no answer"


def split_address(address: str) -> tuple[str, int] | None:
    """Host (without the brackets of IPv6) and port, or None for what is not `host:port`."""
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        return None
    return host, int(port)


async def reach(address: str, timeout_ms: float) -> Reached:
    """Connect and hang up. Of several addresses of a name one that listens is enough; else the last result counts."""
    split = split_address(address)
    if split is None:
        return Reached.NO_ADDRESS
    result = Reached.TOO_SHORT if _is_numeric(split[0]) else Reached.UNRESOLVED
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            for found in await _look_up(*split):
                result = Reached.SILENT  # unless it says something before the time is over
                result = await _connect(found)
                if result is Reached.LISTENING:
                    break
    except TimeoutError:
        pass
    except OSError:
        return Reached.UNRESOLVED
    return result


def _is_numeric(host: str) -> bool:
    """Whether it is an address already."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


async def _connect(found: tuple[Any, ...]) -> Reached:
    family, kind, protocol, _, where = found
    with socket.socket(family, kind, protocol) as probe:
        probe.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(probe, where)
        except ConnectionRefusedError:
            return Reached.REFUSED
        except OSError:
            return Reached.NO_ROUTE
    return Reached.LISTENING


async def _look_up(host: str, port: int) -> list[tuple[Any, ...]]:
    """`getaddrinfo` that may be abandoned. Raises `OSError`."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[tuple[Any, ...]]] = loop.create_future()

    def settle(found: list[tuple[Any, ...]] | None, error: OSError | None) -> None:
        if answer.done():
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(found or [])

    def work() -> None:
        found, problem = None, None
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as error:
            problem = error
        except UnicodeError as error:  # a label that is empty or too long
            problem = OSError(str(error))
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, found, problem)

    threading.Thread(target=work, name=f"look up {host}", daemon=True).start()
    return await answer
