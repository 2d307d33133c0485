"""The caller of a request, its listener (directly, or forwarded to the controller by a broker), and the permissions it
needs.
"""

from __future__ import annotations

from typing import Final

from odradek_proto.security.acl_words import Operation, ResourceType
from odradek_proto.security.tls import PeerCertificate
from odradek_proto.values import Value


class Principal(Value, frozen=True):
    """An authenticated identity. Its text, `User:alice`, is that of Kafka's KafkaPrincipal."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"

    @staticmethod
    def parse(text: str) -> Principal:
        """The principal of such a text. Raises `ValueError`."""
        kind, colon, name = text.partition(":")
        if not (kind and colon and name):
            raise ValueError(f"not a principal: {text!r}; `User:alice` is one")
        return Principal(kind, name)


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


def principal_of(certificate: PeerCertificate | None) -> Principal:
    """Of a connection with TLS, as Kafka without ssl.principal.mapping.rules: the certificate's whole subject."""
    return ANONYMOUS if certificate is None else Principal("User", certificate.subject)


class RequestContext(Value, frozen=True):
    """The caller. Made once for a connection or a stream where that is possible."""

    principal: Principal
    listener: str  # the name of the one on which the request came in; of the first broker, when it was forwarded
    client_id: str = ""
    peer: str = ""  # host:port
    node_id: int | None = None  # of the certificate of a node; None: it has shown none

    @property
    def client_host(self) -> str:
        """As Kafka's tools show it: Java writes an address with a slash before it."""
        return f"/{self.peer.rpartition(':')[0].strip('[]')}"


class RequiredPermission(Value, frozen=True):
    """What a caller must be allowed to do, with a resource of which type; which one it is, the request says."""

    operation: Operation
    kind: ResourceType = ResourceType.CLUSTER
