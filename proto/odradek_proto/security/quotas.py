"""Quotas of clients, in Kafka's words (KIP-546)."""

from __future__ import annotations

from typing import Final

from odradek_proto.values import Value

DEFAULT: Final = "<default>"  # in place of a name: everybody who has no quota by name
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"  # of the time of a broker's one loop
KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
USER, CLIENT_ID = TYPES = ("user", "client-id")
EXACT, OF_DEFAULT, ANY = 0, 1, 2  # how a filter fits: Kafka's match types


class QuotaEntity(Value, frozen=True):
    """Whom a quota is about: a user, a client id, or one with the other. None: it is not about that."""

    user: str | None = None
    client_id: str | None = None

    def names(self) -> dict[str, str | None]:
        """By type, as they go over the wire: None is the default."""
        named = {USER: self.user, CLIENT_ID: self.client_id}
        return {kind: None if name == DEFAULT else name for kind, name in named.items() if name is not None}
