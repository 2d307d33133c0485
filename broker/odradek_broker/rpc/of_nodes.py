"""Calls between nodes with TLS: whoever calls has shown a node's certificate, and speaks for that node alone.

Rules of this module. Every method of the listeners of brokers and controllers is in `SPEAKER`: a new one without a row
is refused to everybody. What cannot be read says nothing of a node, and goes on to its handler, which refuses it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from google.protobuf.message import DecodeError
from odradek_proto.security.identity import node_id_of, node_name
from odradek_proto.transport.ports import (
    CallContext,
    CallRejected,
    Handlers,
    NetworkError,
    Stream,
    StreamHandler,
    UnaryHandler,
)
from odradek_proto.v1 import broker_pb2, controller_messages, quorum_pb2

from odradek_broker.rpc.authentication import CheckedStream

logger = logging.getLogger(__name__)

Speaker = Callable[[bytes], int]  # the node that a message says it is of

SPEAKER: Final[Mapping[str, Speaker | None]] = {
    "/odradek.v1.Quorum/Vote": lambda data: quorum_pb2.VoteRequest.FromString(data).candidate_id,
    "/odradek.v1.Quorum/BeginQuorumEpoch": lambda data: quorum_pb2.BeginQuorumEpochRequest.FromString(data).leader_id,
    "/odradek.v1.Quorum/EndQuorumEpoch": lambda data: quorum_pb2.EndQuorumEpochRequest.FromString(data).leader_id,
    "/odradek.v1.Quorum/Fetch": lambda data: quorum_pb2.QuorumFetchRequest.FromString(data).replica_id,
    "/odradek.v1.Quorum/FetchSnapshot": lambda data: quorum_pb2.FetchSnapshotRequest.FromString(data).replica_id,
    "/odradek.v1.Controller/RegisterBroker": lambda data: (
        controller_messages.RegisterBrokerRequest.FromString(data).broker_id
    ),
    "/odradek.v1.Controller/AlterPartition": lambda data: (
        controller_messages.AlterPartitionRequest.FromString(data).broker_id
    ),
    "/odradek.v1.Controller/AllocateProducerIds": lambda data: (
        controller_messages.AllocateProducerIdsRequest.FromString(data).broker_id
    ),
    "/odradek.v1.Controller/Session": lambda data: controller_messages.Heartbeat.FromString(data).broker_id,
    "/odradek.v1.Controller/ForwardAdmin": None,  # any node passes requests on
    "/odradek.v1.Replication/ListOffsets": lambda data: broker_pb2.ListOffsetsRequest.FromString(data).replica_id,
    "/odradek.v1.Replication/OffsetsForLeaderEpoch": lambda data: (
        broker_pb2.OffsetsForLeaderEpochRequest.FromString(data).replica_id
    ),
    "/odradek.v1.Replication/FetchStream": None,  # fetch_session.py looks at each message itself
}


def of_nodes(handlers: Handlers) -> Handlers:
    """The same handlers, for nodes alone. `PERMISSION_DENIED` for everybody else, and for a node as another one."""
    return replace(
        handlers,
        unary={method: _unary(method, handler) for method, handler in handlers.unary.items()},
        streams={method: _streaming(method, handler) for method, handler in handlers.streams.items()},
    )


def _unary(method: str, handler: UnaryHandler) -> UnaryHandler:
    async def run(request: bytes, call: CallContext) -> bytes:
        _check(method, call, request)
        return await handler(request, call)

    return run


def _streaming(method: str, handler: StreamHandler) -> StreamHandler:
    async def run(stream: Stream, call: CallContext) -> None:
        _certified(method, call)
        await handler(stream if SPEAKER[method] is None else CheckedStream(stream, partial(_check, method, call)), call)

    return run


def _certified(method: str, call: CallContext) -> int:
    node_id = node_id_of(call.certificate)
    if node_id is None or method not in SPEAKER:
        shown = call.certificate.subject if call.certificate else "no certificate"
        raise _refused(method, call, f"{shown} is no node's: its common name or an alternative name is {node_name(1)}")
    return node_id


def _check(method: str, call: CallContext, message: bytes) -> None:
    """Raises `CallRejected`."""
    node_id = _certified(method, call)
    speaker = SPEAKER[method]
    try:
        said = node_id if speaker is None else speaker(message)
    except DecodeError:
        return
    if said != node_id:
        raise _refused(method, call, f"the certificate is that of node {node_id}, the message of node {said}")


def _refused(method: str, call: CallContext, reason: str) -> NetworkError:
    return CallRejected(f"{method} from {call.peer}: {reason}", status="PERMISSION_DENIED")
