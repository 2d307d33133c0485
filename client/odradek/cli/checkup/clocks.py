"""How far apart the wall clocks of brokers are, as exactly as round trips from this machine allow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import NamedTuple

from google.protobuf.message import DecodeError
from odradek_proto.transport.ports import Network, NetworkError
from odradek_proto.v1 import broker_pb2 as pb

from odradek.cli.checkup.addresses import CLOCK_TOLERANCE_MS
from odradek.cli.checkup.dialling import METADATA


class Ahead(NamedTuple):
    """Of this machine's clock, and by how much that may be wrong either way."""

    ms: float
    error_ms: float


async def ask_for_clocks(network: Network, addresses: Mapping[int, str], timeout_ms: float) -> dict[int, Ahead]:
    """By broker; those that do not answer in time say nothing, and one alone is not asked."""

    async def ask(address: str) -> Ahead | None:
        started, wall_ms = time.perf_counter(), time.time() * 1000
        try:
            raw = await network.call(address, METADATA, pb.MetadataRequest().SerializeToString(), timeout_ms)
            answer = pb.MetadataResponse.FromString(raw)
        except (NetworkError, DecodeError):
            return None
        half_ms = (time.perf_counter() - started) * 500
        return Ahead(answer.wall_ms - (wall_ms + half_ms), half_ms) if answer.wall_ms else None

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
