"""A local cluster with everything on: TLS on every listener, SASL for clients, and ACLs.

Its directory holds `certificates` and `client.properties`, with the password of the one user that there is, `admin`,
who may do everything: for their owner alone. The password goes to the brokers by their environment, which others do not
see, unlike command lines.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from odradek_proto.command_line import CLIENT_SETTINGS

from odradek_broker.local.certificates import AUTHORITY, make_node

CERTIFICATES: Final = "certificates"
ADMIN: Final = "admin"
PASSWORD: Final = "sasl.password="


def make_secrets(directory: Path, node_ids: Iterable[int]) -> None:
    """Certificates and a password. Raises `CommandFailed` when the package for certificates is missing."""
    for node_id in node_ids:
        make_node(directory / CERTIFICATES, node_id)
    lines = [
        "security.protocol=SASL_SSL",
        f"ssl.truststore.location={CERTIFICATES}/{AUTHORITY}",
        "sasl.mechanism=SCRAM-SHA-512",
        f"sasl.username={ADMIN}",
        f"{PASSWORD}{secrets.token_urlsafe(18)}",
    ]
    path = directory / CLIENT_SETTINGS
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write("\n".join(lines) + "\n")


def remove_secrets(directory: Path) -> None:
    shutil.rmtree(directory / CERTIFICATES, ignore_errors=True)
    (directory / CLIENT_SETTINGS).unlink(missing_ok=True)


def secure_settings(directory: Path, node_id: int) -> dict[str, str]:
    certificates = directory / CERTIFICATES
    return {
        "listener.security.protocol.map": "GRPC:GRPC_SASL_SSL,KAFKA:SASL_SSL,REPLICATION:GRPC_SSL,CONTROLLER:GRPC_SSL",
        "ssl.keystore.location": str(make_node(certificates, node_id)),
        "ssl.truststore.location": str(certificates / AUTHORITY),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
    }


def secret_environment(directory: Path) -> dict[str, str]:
    lines = (directory / CLIENT_SETTINGS).read_text().splitlines()
    password = next(line.removeprefix(PASSWORD) for line in lines if line.startswith(PASSWORD))
    return {"ODRADEK_CREATE_USERS": f"{ADMIN}={password}"}
