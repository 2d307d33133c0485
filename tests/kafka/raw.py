"""Bytes by hand to a listener for Kafka's clients, and what comes back."""

from __future__ import annotations

import socket
import struct
from typing import Self

API_VERSIONS, METADATA, PRODUCE, FETCH, LIST_OFFSETS = 18, 3, 0, 1, 2
SILENCE_S = 60  # nothing that is waited for takes so long


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def header(
    key: int, version: int, correlation_id: int, *, flexible: bool = False, client: bytes | None = b"raw"
) -> bytes:
    """A request's header, of version 1 or 2."""
    name = struct.pack(">h", -1) if client is None else struct.pack(">h", len(client)) + client
    return struct.pack(">hhi", key, version, correlation_id) + name + (b"\0" if flexible else b"")


def string(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


class Raw:
    """A connection."""

    def __init__(self, address: str, silence_s: float = SILENCE_S) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=silence_s)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes | None:
        """The next answer, without its size; None when the connection was closed instead."""
        try:
            size = self._exactly(4)
            return None if size is None else self._exactly(int.from_bytes(size))
        except ConnectionError:
            return None

    def ask(self, body: bytes) -> bytes | None:
        self.send(framed(body))
        return self.receive()

    def _exactly(self, size: int) -> bytes | None:
        found = b""
        while len(found) < size:
            piece = self._socket.recv(size - len(found))
            if not piece:
                return None
            found += piece
        return found
