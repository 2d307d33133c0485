"""How a client talks with brokers: in the clear, or with TLS, and who it says that it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek_proto.values import Value

from odradek.shared.errors import ConfigError

if TYPE_CHECKING:
    from odradek_proto.transport.grpc_network import GrpcNetwork
    from odradek_proto.transport.grpc_options import GrpcOptions

PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL")


class Security(Value, frozen=True):
    """Settings of a client, with Kafka's names."""

    security_protocol: str = PLAINTEXT
    ssl_truststore_location: str = ""
    ssl_keystore_location: str = ""

    @property
    def tls(self) -> bool:
        return self.security_protocol.endswith("SSL")


def check_security(security: Security) -> None:
    """Raises `ConfigError`."""
    if security.security_protocol not in PROTOCOLS:
        raise ConfigError(f"security_protocol: {security.security_protocol!r} is none of {', '.join(PROTOCOLS)}")
    if not security.tls and (security.ssl_truststore_location or security.ssl_keystore_location):
        raise ConfigError(
            f"certificates are given, and security_protocol={security.security_protocol} uses none",
            hint='security_protocol="SSL"',
        )


def network_for(security: Security, options: GrpcOptions | None = None) -> GrpcNetwork:
    """A network of its own. Raises `ConfigError` for certificates that cannot be used."""
    from odradek_proto.security.tls import PemFiles, TlsError, TlsSource
    from odradek_proto.transport.grpc_network import GrpcNetwork  # loaded only where it is used

    if not security.tls:
        return GrpcNetwork(options)
    files = PemFiles(keystore=security.ssl_keystore_location, truststore=security.ssl_truststore_location)
    try:
        return GrpcNetwork(options, tls=TlsSource(files))
    except TlsError as error:
        raise ConfigError(str(error)) from None
