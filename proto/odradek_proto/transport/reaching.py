"""How far one gets towards an address: is its name known, does somebody listen, and in which protocol does it answer.

`Network.dial` answers what a protocol must know; this one says what a person should mend. Nothing here outlasts its
deadline: names are looked up in a daemon thread of their own, since a resolver cannot be cancelled and an executor's
thread would hold up the end of the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from enum import StrEnum
from ipaddress import ip_address
from typing import Any, Final

API_VERSIONS: Final = struct.pack(">ihhihB", 11, 18, 0, CORRELATION := 0x0D2A, 1, ord("o"))
"""A request of Kafka's protocol that every broker answers: length, key, version, correlation id, client id."""
SETTINGS: Final = 4
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, SETTINGS, 0, 0, 0, 0, 0))
"""How a connection of HTTP/2 begins: the preface, and an empty frame of settings, which the other side sends, too."""


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


class Spoken(StrEnum):
    """What is spoken there."""

    KAFKA = "Kafka's protocol"
    GRPC = "gRPC"
    GRPC_IN_TLS = "gRPC, with TLS"
    UNKNOWN = "something else"


def which_protocol(address: str, timeout_s: float = 1.0) -> Spoken:
    """Ask in both, where a dial in one has failed: listeners hang up on bytes that they do not know.

    In the clear, then in TLS without looking at certificates: nothing but these questions is sent. Takes at most seven
    times the timeout. What cannot be reached speaks something else.
    """
    for tls in (None, _any_tls()):
        if _answers(address, timeout_s, API_VERSIONS, 8, lambda head: head[4:] == struct.pack(">i", CORRELATION), tls):
            return Spoken.KAFKA
    if _answers(address, timeout_s, PREFACE, 9, lambda head: head[3] == SETTINGS and not any(head[5:9])):
        return Spoken.GRPC
    return Spoken.GRPC_IN_TLS if _takes_http2(address, timeout_s) else Spoken.UNKNOWN


def _any_tls() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _takes_http2(address: str, timeout_s: float) -> bool:
    """Whether it agrees to HTTP/2 in TLS; one that wants a certificate hangs up later."""
    where, context = split_address(address), _any_tls()
    context.set_alpn_protocols(["h2"])
    if where is None:
        return False
    try:
        with socket.create_connection(where, timeout_s) as plain, context.wrap_socket(plain) as connection:
            return connection.selected_alpn_protocol() == "h2"
    except (OSError, UnicodeError):
        return False


def _answers(
    address: str,
    timeout_s: float,
    question: bytes,
    length: int,
    is_it: Callable[[bytes], bool],
    tls: ssl.SSLContext | None = None,
) -> bool:
    where = split_address(address)
    if where is None:
        return False
    head = b""
    try:
        with socket.create_connection(where, timeout_s) as plain, _in(tls, plain) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(question)
            while len(head) < length and (piece := connection.recv(length - len(head))):
                head += piece
    except (OSError, UnicodeError):
        return False
    return len(head) == length and is_it(head)


def _in(tls: ssl.SSLContext | None, plain: socket.socket) -> socket.socket:
    return plain if tls is None else tls.wrap_socket(plain)
