"""Which ports a cluster of this machine gets: the same ones each time, so that what names them elsewhere stays true.

Rules of this module. The first cluster has Kafka's port and those after it, the next cluster the next row of ten that
is free; rows of stopped clusters that have topics are kept for them. Whoever takes a row claims it by a lock until its
brokers listen: two clusters of a user that start at the same moment get different ones. `ODRADEK_KAFKA_PORT` names
the ports for Kafka's clients, and then these or none; 0 is any port: `processes.free_ports` claims those, as
long as its process has the cluster.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Container
from typing import IO, NamedTuple

from odradek_broker.local.processes import HOST, is_free, lock_of_ports

KAFKA_PORT_VARIABLE = "ODRADEK_KAFKA_PORT"  # the first broker's for Kafka's clients; 0: any
FIRST_KAFKA_PORT = 9092
FIRST_PORTS = {"kafka": FIRST_KAFKA_PORT, "grpc": 19_092, "replication": 20_092, "controller": 21_092}
ROW, ROWS = 10, 50  # ports of a listener in a row, so many brokers a cluster has at most; rows that are tried


class PortError(ValueError):
    """The ports that were asked for cannot be had: a sentence, and in `hint` what to try."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Claim(NamedTuple):
    """Addresses of each listener by its name, a broker after the other, ours while the lock is open."""

    addresses: dict[str, list[str]]
    lock: IO[bytes]


def asked_for(brokers: int) -> int | None:
    """The first port for Kafka's clients that the environment names; None without it. Raises `PortError`."""
    text = os.environ.get(KAFKA_PORT_VARIABLE)
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and int(text) + brokers - 1 <= 65_535:
        return int(text)
    raise PortError(
        f"{KAFKA_PORT_VARIABLE}={text}: no port for {brokers} brokers",
        hint=f"a number from 1 to {65_536 - brokers}, the port of the first one; 0 is any",
    )


def kafka_row(first: int, brokers: int) -> list[str]:
    """These very addresses for Kafka's clients. Raises `PortError` when one of them is taken."""
    wanted = _addresses(first, brokers)
    for address in wanted:
        if not is_free(address):
            port = address.rpartition(":")[2]
            raise PortError(
                f"{KAFKA_PORT_VARIABLE}={first}: port {port} is taken by another process",
                hint=f"`ss -ltnp 'sport = :{port}'` names it; end it, name another first port, or leave the variable"
                " out for the next free ones",
            )
    return wanted


def claim_row(brokers: int, kept: Container[str] = ()) -> Claim | None:
    """The first row of which nobody has or keeps a port and that no cluster is about to take; None without one."""
    for row in range(ROWS if brokers <= ROW else 0):
        addresses = {name: _addresses(first + row * ROW, brokers) for name, first in FIRST_PORTS.items()}
        if any(each in kept or not is_free(each) for listener in addresses.values() for each in listener):
            continue
        with contextlib.suppress(OSError):  # no place for a lock
            lock = lock_of_ports(str(row))
            if lock is not None:
                return Claim(addresses, lock)
    return None


def _addresses(first: int, brokers: int) -> list[str]:
    return [f"{HOST}:{first + index}" for index in range(brokers)]
