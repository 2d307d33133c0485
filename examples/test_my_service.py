"""How to test a service with a real cluster: `pytest examples/test_my_service.py`. The fixtures come with odradek.

The service counts orders per customer. Its tests need no container, no port and no waiting: the cluster is there in
a fraction of a second, and its brokers can be killed.
"""

from collections import Counter

from odradek.sync import Consumer, Producer
from odradek_broker.testing import Cluster


class OrderService:
    """What is tested. It knows nothing of odradek but the client."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic

    def place(self, customer: str, amount: int) -> int:
        """Write an order; returns its offset once it is on all in-sync replicas."""
        with Producer(self._bootstrap) as producer:
            return producer.send(self._topic, str(amount), key=customer).offset

    def orders_by_customer(self) -> Counter[str]:
        with Consumer(self._bootstrap, self._topic, auto_offset_reset="earliest") as consumer:
            return Counter((record.key or b"").decode() for record in consumer.records(until="end"))


def test_orders_are_counted(odradek_bootstrap: str, odradek_topic: str) -> None:
    """Two customers, three orders."""
    service = OrderService(odradek_bootstrap, odradek_topic)
    for customer in ("ada", "grace", "ada"):
        service.place(customer, 10)
    assert service.orders_by_customer() == {"ada": 2, "grace": 1}


def test_no_order_is_lost_with_a_broker(odradek_cluster: Cluster, odradek_topic: str) -> None:
    """The leader dies between two orders: the first one is still there, and the second one gets through."""
    service = OrderService(odradek_cluster.bootstrap, odradek_topic)
    service.place("ada", 10)
    odradek_cluster.kill(odradek_cluster.leader_of(odradek_topic))
    service.place("ada", 20)
    assert service.orders_by_customer() == {"ada": 2}
