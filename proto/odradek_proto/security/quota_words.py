"""The words of quotas, as Kafka has them (KIP-546). No values: a page of help may load them."""

from __future__ import annotations

from typing import Final

DEFAULT: Final = "<default>"  # in place of a name: everybody who has no quota by name
PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"  # of the time of a broker's one loop
KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE)
USER, CLIENT_ID = TYPES = ("user", "client-id")
IP: Final = "ip"  # of connections, for which there are no quotas here
EXACT, OF_DEFAULT, ANY = 0, 1, 2  # how a filter fits: Kafka's match types
