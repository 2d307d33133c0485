"""The brokers as one metadata image knows them."""

from __future__ import annotations

from collections.abc import Iterable

from odradek_broker.core.metadata.image import BrokerRegistration
from odradek_proto.topics import TopicPartition

ORDERS = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))


class Brokers:
    """Active, with a broker epoch of 100 plus their id, until changed."""

    def __init__(self, ids: Iterable[int] = range(3)) -> None:
        self._known = {number: BrokerRegistration(number, 100 + number, b"", {}, fenced=False) for number in ids}

    def broker(self, broker_id: int) -> BrokerRegistration | None:
        return self._known.get(broker_id)

    def take(self, others: Brokers) -> None:
        """Know what `others` know: newer metadata came."""
        self._known = dict(others.known)

    @property
    def known(self) -> dict[int, BrokerRegistration]:
        return self._known

    def change(self, broker_id: int, *, epoch: int | None = None, fenced: bool = False, stopping: bool = False) -> None:
        """Replace one broker's registration; without `epoch` it keeps its own."""
        old = self._known.get(broker_id)
        number = epoch if epoch is not None else (old.broker_epoch if old else 100 + broker_id)
        self._known[broker_id] = BrokerRegistration(
            broker_id, number, b"", {}, fenced=fenced, in_controlled_shutdown=stopping
        )
