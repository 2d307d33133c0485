"""How far apart the wall clocks of brokers are, as exactly as round trips from this machine allow."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from google.protobuf.message import DecodeError
from odradek_proto.transport.ports import Network, NetworkError
from odradek_proto.v1 import broker_pb2 as pb

from odradek.cli.checkup.addresses import CLOCK_TOLERANCE_MS
from odradek.cli.checkup.dialling import ask_for_metadata


class Ahead(NamedTuple):
    """Of this machine's clock, and by how much that may be wrong either way."""

    ms: float
    error_ms: float


async def ask_for_clocks(network: Network, addresses: Mapping[int, str], timeout_ms: float) -> dict[int, Ahead]:
    """By broker; those that do not answer in time say nothing, and one alone is not asked."""

    async def ask(address: str) -> Ahead | None:
        try:
            timed = await ask_for_metadata(network, address, pb.MetadataRequest(), timeout_ms)
        except (NetworkError, DecodeError):
            return None
        return None if timed.ahead_ms is None else Ahead(timed.ahead_ms, timed.took_ms / 2)

    if len(addresses) < 2:
        return {}
    found = await asyncio.gather(*map(ask, addresses.values()))
    return {broker: clock for broker, clock in zip(addresses, found, strict=True) if clock is not None}


def says_apart(clocks: Mapping[int, Ahead]) -> list[str]:
    """The finding in a sentence, about the two that are furthest apart; none while it may be the round trips' doing."""
    if len(clocks) < 2:
        return []
    first, last = min(clocks, key=lambda broker: clocks[broker].ms), max(clocks, key=lambda broker: clocks[broker].ms)
    apart_ms = clocks[last].ms - clocks[first].ms
    if apart_ms - clocks[last].error_ms - clocks[first].error_ms <= CLOCK_TOLERANCE_MS:
        return []
    says = f"the clock of broker {last} is {apart_ms / 1000:.1f} s ahead of that of broker {first}"
    return [f"{says}: set both by NTP, record timestamps and retention go by clocks"]
