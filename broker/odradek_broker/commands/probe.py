"""One question to a node's metrics listener, with a deadline for all of it, and nothing loaded that would take time.

    python -m odradek_broker.commands.probe [--live] [--url URL] [--timeout SECONDS]

A container asks every few seconds, for ever: so what a probe needs of HTTP, a status line and a body, is read here,
and `odradek server health`, which says the same, is for people. Exit codes: 0 yes, 1 no (the reasons on standard error,
a line each), 2 wrong usage, 4 nobody answers.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

FINE, NOT_SO, USAGE, UNREACHABLE = 0, 1, 2, 4
VARIABLE = "ODRADEK_METRICS_LISTENER"
DEFAULT_URL = "http://127.0.0.1:9404"
DEFAULT_TIMEOUT_S = 2.0
MOST_BYTES = 1 << 20  # of an answer that is read
DEFAULT_PORT = 80
ANY_HOST = {"0.0.0.0": "127.0.0.1", "[::]": "::1", "": "127.0.0.1"}


class NoAnswer(Exception):
    """Nobody listens there, or nobody answered in time, or not by HTTP."""


class ProbeAnswer(NamedTuple):
    status: int
    body: bytes


def split_address(url: str) -> tuple[str, int]:
    """Host and port of `http://host:port`, the listener's form `HTTP://host:port` included. Raises `ValueError`."""
    scheme, found, rest = url.strip().partition("://")
    host, colon, port = rest.rstrip("/").rpartition(":")
    if not found or scheme.lower() != "http":
        raise ValueError(f"a URL looks like http://127.0.0.1:9404, not {url!r}")
    if not colon:
        host, port = rest.rstrip("/"), str(DEFAULT_PORT)
    if not port.isdecimal() or not 0 < int(port) < 65536 or "/" in host:
        raise ValueError(f"a URL looks like http://127.0.0.1:9404, not {url!r}")
    return ANY_HOST.get(host, host.strip("[]")), int(port)


def ask(host: str, port: int, path: str, timeout_s: float) -> ProbeAnswer:
    """GET a path. Raises `NoAnswer`."""
    deadline = time.monotonic() + timeout_s
    request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.sendall(request)
            received = _read_all(connection, deadline)
    except OSError as error:
        raise NoAnswer(str(error.strerror or error or type(error).__name__)) from error
    head, _, body = received.partition(b"\r\n\r\n")
    words = head.split(b"\r\n", 1)[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise NoAnswer("whoever listens there does not speak HTTP")
    return ProbeAnswer(int(words[1]), body)


def _read_all(connection: socket.socket, deadline: float) -> bytes:
    received = bytearray()
    while len(received) < MOST_BYTES:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        connection.settimeout(left_s)
        data = connection.recv(65536)
        if not data:
            break
        received += data
    return bytes(received)


def reasons_in(answer: ProbeAnswer) -> list[str]:
    """Why not, none when the answer is yes; what the answer says as it is when it is not ours."""
    if answer.status == 200:
        return []
    import json  # a probe that finds all well needs none

    try:
        found = json.loads(answer.body)
        return [str(reason) for reason in found["reasons"]] or ["no reason was given"]
    except (ValueError, KeyError, TypeError):
        return [answer.body[:200].decode(errors="replace").strip() or f"status {answer.status}"]


def default_url() -> str:
    """The listener that this process's environment sets for its node, else the usual one."""
    return os.environ.get(VARIABLE) or DEFAULT_URL


def main(arguments: Sequence[str] | None = None) -> int:
    """Ask, say, and return the exit code."""
    import argparse

    parser = argparse.ArgumentParser(prog="probe", description="Ask a node whether it is ready.")
    parser.add_argument("--live", action="store_true", help="only whether the process works, ready or not")
    parser.add_argument("--url", default=default_url(), help=f"default: {VARIABLE}, else {DEFAULT_URL}")
    parser.add_argument("--timeout", type=float, default=DEFAULT_TIMEOUT_S, metavar="SECONDS", help="for all of it")
    options = parser.parse_args(arguments)
    word = "live" if options.live else "ready"
    try:
        reasons = reasons_in(ask(*split_address(options.url), f"/health/{word}", options.timeout))
    except (ValueError, NoAnswer) as error:
        print(f"{options.url}: {error}", file=sys.stderr)
        return USAGE if isinstance(error, ValueError) else UNREACHABLE
    for reason in reasons:
        print(f"not {word}: {reason}", file=sys.stderr)
    return NOT_SO if reasons else FINE


if __name__ == "__main__":
    sys.exit(main())
