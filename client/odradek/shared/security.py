"""How a client talks with brokers: in the clear, or with TLS, and who it says that it is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from odradek_proto.security.scram import MECHANISMS
from odradek_proto.values import Value

from odradek.shared.errors import ConfigError

if TYPE_CHECKING:
    from odradek_proto.transport.grpc_network import GrpcNetwork
    from odradek_proto.transport.grpc_options import GrpcOptions

SCRAM: Final = "SCRAM-SHA-512"
PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class Security(Value, frozen=True):
    """Settings of a client, with Kafka's names."""

    security_protocol: str = PLAINTEXT
    ssl_truststore_location: str = ""
    ssl_keystore_location: str = ""
    sasl_mechanism: str = SCRAM
    sasl_username: str = ""
    sasl_password: str = ""

    @property
    def sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")

    @property
    def tls(self) -> bool:
        return self.security_protocol.endswith("SSL")


UNSAID: Final = Security()


def check_security(security: Security) -> None:
    """Raises `ConfigError`."""
    if security.security_protocol not in PROTOCOLS:
        raise ConfigError(f"security_protocol: {security.security_protocol!r} is none of {', '.join(PROTOCOLS)}")
    if not security.tls and (security.ssl_truststore_location or security.ssl_keystore_location):
        raise ConfigError(
            f"certificates are given, and security_protocol={security.security_protocol} uses none",
            hint='security_protocol="SSL" or "SASL_SSL"',
        )
    if security.sasl_mechanism not in MECHANISMS:
        raise ConfigError(f"sasl_mechanism: {security.sasl_mechanism!r} is none of {', '.join(MECHANISMS)}")
    if security.sasl and not (security.sasl_username and security.sasl_password):
        raise ConfigError(
            f"security_protocol={security.security_protocol} without a name or a password",
            hint="sasl_username and sasl_password",
        )
    if not security.sasl and (security.sasl_username or security.sasl_password):
        raise ConfigError(
            f"a user is given, and security_protocol={security.security_protocol} names none to the broker",
            hint='security_protocol="SASL_SSL", or "SASL_PLAINTEXT" on a network that you trust',
        )


_by_default = Security()


def talk_by_default(security: Security) -> None:
    """For a process that talks with one cluster, such as a command: for clients that have no settings of their own."""
    global _by_default
    _by_default = security


def default_security() -> Security:
    """What `talk_by_default` said last."""
    return _by_default


def network_for(security: Security = UNSAID, options: GrpcOptions | None = None) -> GrpcNetwork:
    """A network of its own. Raises `ConfigError` for certificates that cannot be used."""
    security = _by_default if security == UNSAID else security
    from odradek_proto.security.tls import PemFiles, TlsError, TlsSource
    from odradek_proto.transport.grpc_login import Login
    from odradek_proto.transport.grpc_network import GrpcNetwork  # loaded only where it is used

    login = Login(security.sasl_mechanism, security.sasl_username, security.sasl_password) if security.sasl else None
    if not security.tls:
        return GrpcNetwork(options, login=login)
    files = PemFiles(keystore=security.ssl_keystore_location, truststore=security.ssl_truststore_location)
    try:
        return GrpcNetwork(options, tls=TlsSource(files), login=login)
    except TlsError as error:
        raise ConfigError(str(error)) from None
