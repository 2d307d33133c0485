"""Which node a certificate is of: it names itself `node-<id>`, as common name or alternative name."""

from __future__ import annotations

import re

from odradek_proto.security.tls import PeerCertificate

_NODE = re.compile(r"node-(0|[1-9][0-9]{0,9})")


def node_name(node_id: int) -> str:
    return f"node-{node_id}"


def node_id_of(certificate: PeerCertificate | None) -> int | None:
    """The one node that it is of; None: of none, or of several."""
    found = {int(match[1]) for name in (certificate.names if certificate else ()) if (match := _NODE.fullmatch(name))}
    return found.pop() if len(found) == 1 else None
