"""Certificates and settings of nodes with TLS, as an operator would have them."""

from __future__ import annotations

from pathlib import Path

from odradek_broker.local.certificates import AUTHORITY, make_client, make_node

EVERYWHERE = "GRPC:GRPC_SSL,KAFKA:SSL,REPLICATION:GRPC_SSL,CONTROLLER:GRPC_SSL"


def node_settings(directory: Path, node_id: int, protocols: str = EVERYWHERE) -> dict[str, str]:
    """Settings that give this node TLS on every listener, with a certificate of its own."""
    return {
        "listener.security.protocol.map": protocols,
        "ssl.keystore.location": str(make_node(directory, node_id)),
        "ssl.truststore.location": str(directory / AUTHORITY),
    }


def client_settings(directory: Path, user: str = "") -> dict[str, str]:
    """Keyword arguments of a client that trusts the authority, with a certificate of this user's."""
    keystore = {"ssl_keystore_location": str(make_client(directory, user))} if user else {}
    return {"security_protocol": "SSL", "ssl_truststore_location": str(directory / AUTHORITY), **keystore}
