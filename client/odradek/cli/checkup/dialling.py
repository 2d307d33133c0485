"""Dials an address and finds out who is there.

Rule of this module: every step has a deadline, and nothing is an exception: what a dial ran into is its result.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from google.protobuf.message import DecodeError
from odradek_proto.transport.ports import CallRejected, DeadlineExceeded, Network, NetworkError, NotAuthenticated
from odradek_proto.transport.reaching import Reached, Spoken, reach, which_protocol
from odradek_proto.v1 import broker_pb2 as pb

METADATA = "/odradek.v1.Broker/Metadata"
HEALTH = "/grpc.health.v1.Health/Check"
CLIENTS = "odradek.v1.Broker"
LEAST_MS = 100  # a broker that is well may need as long
NOT_SERVING = b"\x08\x02"  # HealthCheckResponse{status: NOT_SERVING}


class DialOutcome(StrEnum):
    """What answers at an address."""

    BROKER = "broker"
    NO_ADDRESS = "not host:port"
    UNRESOLVED = "name does not resolve"
    TOO_SHORT = "the timeout is too short"
    REFUSED = "refused"
    NO_ROUTE = "no route"
    SILENT = "no answer"
    MUTE = "connects, then silence"
    STARTING = "broker, not ready"
    CONTROLLER = "controllers' listener"
    REPLICATION = "brokers' listener"
    STRANGER = "gRPC, not odradek"
    KAFKA = "Kafka's protocol"
    NOT_LET_IN = "does not let us in"
    NOT_GRPC = "not gRPC"


@dataclass(frozen=True, slots=True)
class DialReport:
    """`clock_ms`: how far the broker's clock is ahead of this machine's, as exactly as the round trip allows."""

    address: str
    outcome: DialOutcome
    latency_ms: float | None = None
    clock_ms: int | None = None
    answer: pb.MetadataResponse | None = None


class TimedMetadata(NamedTuple):
    """A broker's metadata. `ahead_ms`: its clock of this machine's, within half of `took_ms`; None if it says none."""

    answer: pb.MetadataResponse
    took_ms: float
    ahead_ms: float | None


BY_SERVICE = {"odradek.v1.Quorum": DialOutcome.CONTROLLER, "odradek.v1.Replication": DialOutcome.REPLICATION}
BY_PROTOCOL = {Spoken.KAFKA: DialOutcome.KAFKA, Spoken.GRPC_IN_TLS: DialOutcome.NOT_LET_IN}
BY_REACH = {
    Reached.NO_ADDRESS: DialOutcome.NO_ADDRESS,
    Reached.UNRESOLVED: DialOutcome.UNRESOLVED,
    Reached.TOO_SHORT: DialOutcome.TOO_SHORT,
    Reached.REFUSED: DialOutcome.REFUSED,
    Reached.NO_ROUTE: DialOutcome.NO_ROUTE,
    Reached.SILENT: DialOutcome.SILENT,
}


async def ask_for_metadata(
    network: Network, address: str, request: pb.MetadataRequest, timeout_ms: float
) -> TimedMetadata:
    """Raises `NetworkError` and `DecodeError`."""
    started, wall_ms = time.perf_counter(), time.time() * 1000
    raw = await network.call(address, METADATA, request.SerializeToString(), timeout_ms)
    answer = pb.MetadataResponse.FromString(raw)
    took_ms = (time.perf_counter() - started) * 1000
    return TimedMetadata(answer, took_ms, answer.wall_ms - (wall_ms + took_ms / 2) if answer.wall_ms else None)


async def dial(network: Network, address: str, timeout_ms: float) -> DialReport:
    """Reach, then ask for metadata. Takes at most ten times the timeout."""
    reached = await reach(address, timeout_ms)
    if reached is not Reached.LISTENING:
        return DialReport(address, BY_REACH[reached])
    request = pb.MetadataRequest(all_topics=True, all_listeners=True)
    try:
        answer, took_ms, ahead_ms = await ask_for_metadata(network, address, request, timeout_ms)
    except DeadlineExceeded:
        if timeout_ms < LEAST_MS:
            return DialReport(address, DialOutcome.TOO_SHORT)
        return DialReport(address, await _why_mute(network, address, timeout_ms))
    except CallRejected as error:
        unknown_method = error.status == "UNIMPLEMENTED"
        return DialReport(
            address, await _which_grpc(network, address, timeout_ms) if unknown_method else DialOutcome.STRANGER
        )
    except NotAuthenticated:
        return DialReport(address, DialOutcome.NOT_LET_IN)
    except NetworkError:
        spoken = await asyncio.to_thread(which_protocol, address, timeout_ms / 1000)
        return DialReport(address, BY_PROTOCOL.get(spoken, DialOutcome.NOT_GRPC))
    except DecodeError:
        return DialReport(address, DialOutcome.STRANGER)
    clock_ms = None if ahead_ms is None else round(ahead_ms)
    return DialReport(address, DialOutcome.BROKER, round(took_ms, 1), clock_ms, answer)


async def _why_mute(network: Network, address: str, timeout_ms: float) -> DialOutcome:
    """A broker that has not caught up with the metadata answers for its health and for nothing else."""
    return (
        DialOutcome.STARTING
        if await _health(network, address, CLIENTS, timeout_ms) == NOT_SERVING
        else DialOutcome.MUTE
    )


async def _which_grpc(network: Network, address: str, timeout_ms: float) -> DialOutcome:
    for service, outcome in BY_SERVICE.items():
        if await _health(network, address, service, timeout_ms) is not None:
            return outcome
    return DialOutcome.STRANGER


async def _health(network: Network, address: str, service: str, timeout_ms: float) -> bytes | None:
    """The answer of the health service; None when there is none, or it does not know the service."""
    name = service.encode()
    try:
        return await network.call(address, HEALTH, bytes((0x0A, len(name))) + name, timeout_ms)
    except NetworkError:
        return None
