"""Whom quotas of clients are about (KIP-546)."""

from __future__ import annotations

from odradek_proto.security.quota_words import CLIENT_ID, DEFAULT, USER
from odradek_proto.values import Value


class QuotaEntity(Value, frozen=True):
    """Whom a quota is about: a user, a client id, or one with the other. None: it is not about that."""

    user: str | None = None
    client_id: str | None = None

    def names(self) -> dict[str, str | None]:
        """By type, as they go over the wire: None is the default."""
        named = {USER: self.user, CLIENT_ID: self.client_id}
        return {kind: None if name == DEFAULT else name for kind, name in named.items() if name is not None}
