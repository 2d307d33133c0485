"""TLS in gRPC's words."""

from __future__ import annotations

from typing import Any, Final

import grpc

from odradek_proto.security.tls import NO_CLIENT_AUTH, Credentials, TlsSource

TOKEN_KEY: Final = "odradek-token"  # of a call's metadata: what a caller was given when it authenticated


def channel_credentials(source: TlsSource) -> grpc.ChannelCredentials:
    """For a channel that is made now."""
    found = source.current()
    return grpc.ssl_channel_credentials(found.trusted or None, found.key or None, found.chain or None)


def server_credentials(source: TlsSource, client_auth: str) -> grpc.ServerCredentials:
    """For a server: each handshake is made with the credentials of its moment."""
    assert client_auth in (NO_CLIENT_AUTH, "required"), client_auth  # gRPC asks for none, or insists on one
    given = source.current()

    def newest() -> Any:  # None: nothing new, which the stubs do not know
        nonlocal given
        found = source.current()
        if found is given:
            return None
        given = found
        return _configuration(found)

    return grpc.dynamic_ssl_server_credentials(_configuration(given), newest, client_auth != NO_CLIENT_AUTH)


def _configuration(credentials: Credentials) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(credentials.key, credentials.chain)], credentials.trusted or None
    )
