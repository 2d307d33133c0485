"""Whoever cannot authenticate, at the listeners of a secured broker: it costs little, and honest writes go on."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from odradek.shared.properties import security_from
from odradek.shared.security import UNSAID, talk_by_default
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.local.cluster import LocalCluster
from odradek_proto.command_line import CLIENT_SETTINGS
from odradek_proto.v1 import broker_pb2 as pb

from tests.cluster.hostile import (
    BYTES_PER_CONNECTION,
    CONNECT_S,
    CONNECTIONS,
    KIB,
    Broker,
    attack,
    fill,
    write_honestly,
)
from tests.cluster.test_hostile_clients import TLS_HELLO, call, message, opening
from tests.kafka.raw import API_VERSIONS, METADATA, framed, header
from tests.seeds import unless_torture

pytestmark = [pytest.mark.slow, pytest.mark.cluster]

# TLS takes 256 KiB of a connection at a time, which stay while its proof is looked at.
LARGER = {"a wrong proof, with more behind it": 512 * KIB}
KINDS = unless_torture(4, 1)  # that attack one broker together: its start is most of what a test costs
HANDSHAKE, AUTHENTICATE = 17, 36
MECHANISM = b"SCRAM-SHA-512"
LARGEST = BrokerSettings().sasl_server_max_receive_size
MORE = framed(header(API_VERSIONS, 0, 1)) * 18_000  # 300 KB, more than TLS takes of a connection at a time
CONVERSATION = framed(header(HANDSHAKE, 1, 1) + struct.pack(">h", len(MECHANISM)) + MECHANISM)
WRONG_PROOF = framed(header(AUTHENTICATE, 0, 2) + struct.pack(">i", 5) + b"wrong")
ASKED = pb.AuthenticateRequest(mechanism=MECHANISM.decode(), data=bytes(60_000)).SerializeToString()


def half_a_proof(size: int) -> bytes:
    """A frame that claims so many bytes."""
    return struct.pack(">i", size) + header(AUTHENTICATE, 0, 2) + struct.pack(">i", size - 100) + bytes(size // 2)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[tuple[Broker, LocalCluster]]:
    """With TLS, SASL and ACLs; clients of this process get in."""
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=1, secure=True)
    talk_by_default(security_from(cluster.directory / CLIENT_SETTINGS))
    try:
        cluster.start_all()
        asyncio.run(fill(cluster.bootstrap))
        yield Broker(cluster), cluster
    finally:
        talk_by_default(UNSAID)
        cluster.stop_all()


def attack_by_tls(address: str, connections: contextlib.ExitStack, data: bytes, alpn: str = "") -> None:
    """Connections that get through with TLS and say this; one that was cut is as good as one more."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols([alpn])
    host, _, port = address.rpartition(":")
    for _ in range(CONNECTIONS):
        plain = socket.create_connection((host, int(port)), timeout=CONNECT_S)
        with contextlib.suppress(OSError):
            connection = connections.enter_context(context.wrap_socket(plain))
            connection.setblocking(False)
            connection.send(data)


ABUSES: dict[str, Callable[[LocalCluster, contextlib.ExitStack], None]] = {
    "silent": lambda cluster, found: attack(cluster.kafka_bootstrap, found, CONNECTIONS, lambda _: b""),
    "half a hello": lambda cluster, found: attack(cluster.kafka_bootstrap, found, CONNECTIONS, lambda _: TLS_HELLO),
    "half a hello over gRPC": lambda cluster, found: attack(cluster.bootstrap, found, CONNECTIONS, lambda _: TLS_HELLO),
    "TLS and nothing more": lambda cluster, found: attack_by_tls(cluster.kafka_bootstrap, found, b""),
    "half a conversation": lambda cluster, found: attack_by_tls(cluster.kafka_bootstrap, found, CONVERSATION),
    "half a proof": lambda cluster, found: attack_by_tls(
        cluster.kafka_bootstrap, found, CONVERSATION + half_a_proof(LARGEST)
    ),
    "half a proof, too large": lambda cluster, found: attack_by_tls(
        cluster.kafka_bootstrap, found, CONVERSATION + half_a_proof(8 * LARGEST)
    ),
    "another API, with more behind it": lambda cluster, found: attack_by_tls(
        cluster.kafka_bootstrap, found, framed(header(METADATA, 1, 1) + struct.pack(">i", -1)) + MORE
    ),
    "a wrong proof, with more behind it": lambda cluster, found: attack_by_tls(
        cluster.kafka_bootstrap, found, CONVERSATION + WRONG_PROOF + MORE
    ),
    "TLS and nothing more over gRPC": lambda cluster, found: attack_by_tls(cluster.bootstrap, found, b"", "h2"),
    "half a conversation over gRPC": lambda cluster, found: attack_by_tls(
        cluster.bootstrap,
        found,
        opening() + call("Authenticate").replace(b"Broker", b"Authentication") + message(ASKED, claims=8 * LARGEST),
        "h2",
    ),
}


@pytest.mark.parametrize("kinds", [list(ABUSES)[first : first + KINDS] for first in range(0, len(ABUSES), KINDS)])
def test_many_strangers_cost_little(secured: tuple[Broker, LocalCluster], kinds: list[str]) -> None:
    """Less than 256 KiB each, or what TLS takes, and acknowledged writes go on."""
    broker, cluster = secured
    too_large: dict[str, int] = {}
    with contextlib.ExitStack() as connections:
        for kind in kinds:
            before = broker.resident_bytes()
            ABUSES[kind](cluster, connections)
            most = broker.resident_bytes()
            for _ in range(3):
                asyncio.run(write_honestly(broker))
                most = max(most, broker.resident_bytes())
            if most - before >= CONNECTIONS * LARGER.get(kind, BYTES_PER_CONNECTION):
                too_large[kind] = (most - before) // CONNECTIONS // KIB
    assert too_large == {}
