"""How `odradek audit live` talks with brokers: TLS and SASL with Kafka's names, from a file like `client.properties`.

TLS goes by PEM files. Mechanisms are PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. Other settings in the file are somebody
else's business; what cannot be used is refused and names the remedy.
"""

from __future__ import annotations

import re
import socket
import ssl
from pathlib import Path
from typing import NamedTuple

from odradek_proto.command_line import read_small
from odradek_proto.security.scram import MECHANISMS

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
PLAIN = "PLAIN"
JAAS = re.compile(r'(username|password)\s*=\s*"((?:[^"\\]|\\.)*)"')


class BadSettings(ValueError):
    """Settings that cannot be used; the message names them and the remedy."""


class LiveSecurity(NamedTuple):
    """Settings of a client. Empty is not given."""

    protocol: str = "PLAINTEXT"
    truststore: str = ""
    keystore: str = ""
    verify_names: bool = True
    mechanism: str = ""
    username: str = ""
    password: str = ""

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL")

    def context(self) -> ssl.SSLContext | None:
        """For connections with TLS. Raises `BadSettings`."""
        if not self.protocol.endswith("SSL"):
            return None
        try:
            context = ssl.create_default_context(cafile=self.truststore or None)
            if self.keystore:
                context.load_cert_chain(self.keystore)
        except OSError as error:
            files = ", ".join(file for file in (self.truststore, self.keystore) if file)
            raise BadSettings(f"{files}: {error.strerror or error}; PEM files are needed") from error
        context.check_hostname = self.verify_names
        return context


IN_THE_CLEAR = LiveSecurity()


def security_from(path: Path) -> LiveSecurity:
    """The settings of a file; paths in it may be relative to it. Raises `BadSettings`."""
    try:
        lines = [line.strip() for line in read_small(path).decode().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadSettings(f"{path}: cannot be read: {why}") from error
    pairs = [line.partition("=") for line in lines if line and line[0] not in "#!"]
    said = {name.strip(): value.strip() for name, _, value in pairs}
    user = {name: re.sub(r"\\(.)", r"\1", value) for name, value in JAAS.findall(said.get("sasl.jaas.config", ""))}
    store = {name: said.get(f"ssl.{name}.location", "") for name in ("truststore", "keystore")}
    for name in store:
        store[name] = str(path.absolute().parent / store[name]) if store[name] else ""
        if (kind := said.get(f"ssl.{name}.type", "PEM").upper()) != "PEM" and store[name]:
            raise BadSettings(
                f"{path}: ssl.{name}.type={kind} is not read here; `keytool -exportcert -rfc` or `openssl pkcs12` "
                f"makes PEM of it, and ssl.{name}.type=PEM says so"
            )
    found = LiveSecurity(
        said.get("security.protocol", "PLAINTEXT").upper(),
        store["truststore"],
        store["keystore"],
        said.get("ssl.endpoint.identification.algorithm", "https").lower() == "https",
        said.get("sasl.mechanism", "SCRAM-SHA-512"),
        said.get("sasl.username") or user.get("username", ""),
        said.get("sasl.password") or user.get("password", ""),
    )
    if found.protocol not in PROTOCOLS:
        raise BadSettings(f"{path}: security.protocol={found.protocol} is none of {', '.join(PROTOCOLS)}")
    if found.sasl and found.mechanism not in (PLAIN, *MECHANISMS):
        known = ", ".join(dict.fromkeys((PLAIN, *MECHANISMS)))
        raise BadSettings(f"{path}: sasl.mechanism={found.mechanism} is not spoken here; these are: {known}")
    if found.sasl and not (found.username and found.password):
        raise BadSettings(
            f"{path}: {found.protocol} needs a user: sasl.username and sasl.password, or sasl.jaas.config"
        )
    return found


def connected(address: tuple[str, int], timeout_s: float, context: ssl.SSLContext | None) -> socket.socket:
    """A connection, with TLS where there is a context. Raises `OSError`."""
    plain = socket.create_connection(address, timeout_s)
    if context is None:
        return plain
    try:
        return context.wrap_socket(plain, server_hostname=address[0])
    except OSError:
        plain.close()
        raise
