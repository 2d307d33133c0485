"""`KafkaContainer` with the interface of testcontainers, without a container: a cluster inside this process.

    from odradek_broker.testing import KafkaContainer      # was: from testcontainers.kafka import KafkaContainer

    with KafkaContainer() as kafka:
        producer = KafkaProducer(bootstrap_servers=kafka.get_bootstrap_server())

Three brokers that replicate where the image has one, ready in some 20 ms; `cluster` has their faults. What only an
image could mean (its name, its JVM) is taken and has no effect; a `KAFKA_` variable that has none is warned of.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from odradek_broker.config.settings import SettingError
from odradek_broker.local.cluster import ClusterError
from odradek_broker.testing.arguments import as_text, check
from odradek_broker.testing.cluster import Cluster
from odradek_broker.testing.layout import OWN_SETTINGS, unused_settings

KAFKA = "KAFKA_"
PORT = 9093  # inside of the image
PLAINTEXT = "PLAINTEXT"
OF_THE_JVM = re.compile("KAFKA_(OPTS|.*_OPTS|.*LOG4J_.*)")
OF_THE_IMAGE = (  # beside those that a cluster sets itself: its listeners have other names
    "advertised.listeners",
    "controller.listener.names",
    "inter.broker.listener.name",
    "listener.security.protocol.map",
)


class KafkaContainer:
    """A cluster of `brokers` brokers from `start` to `stop`, new each time. The other parameters are testcontainers'.

    Raises `ClusterError` for another `security_protocol` than PLAINTEXT.
    """

    def __init__(
        self,
        image: str = "",
        port: int = PORT,
        wait_strategy_check_string: str = "",
        listener_name: str = PLAINTEXT,
        security_protocol: str = PLAINTEXT,
        *,
        brokers: int = 3,
        env: Mapping[str, object] | None = None,
        **_: object,
    ) -> None:
        check("security_protocol", security_protocol, security_protocol == PLAINTEXT, f"{PLAINTEXT!r}")
        self.image = image
        self.port = port
        self._brokers = brokers
        self._settings: dict[str, object] = {}
        self._cluster: Cluster | None = None
        self.with_envs(**env or {})

    # --- What is to be ----------------------------------------------------------------------------------------------

    def with_env(self, key: str, value: object) -> Self:
        """A setting, as Kafka's images name it: KAFKA_NUM_PARTITIONS for num.partitions. Raises `SettingError`."""
        name = key.removeprefix(KAFKA).lower().replace("_", ".")
        if not key.startswith(KAFKA) or OF_THE_JVM.fullmatch(key):
            return self
        try:
            has_effect = name not in (*OWN_SETTINGS, *OF_THE_IMAGE) and not unused_settings({name: str(value)})
        except SettingError as error:
            raise SettingError(f"{key}: {error}") from None
        if not has_effect:
            warnings.warn(f"{key} has no effect in odradek", stacklevel=2)
        else:
            self._settings |= as_text("env", {name: value})
        return self

    def with_envs(self, **variables: object) -> Self:
        for key, value in variables.items():
            self.with_env(key, value)
        return self

    def with_kraft(self) -> Self:
        """There is nothing else."""
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        """Each cluster has an id of its own."""
        warnings.warn("with_cluster_id has no effect in odradek", stacklevel=2)
        return self

    # --- Life -------------------------------------------------------------------------------------------------------

    def start(self, timeout: float = 30) -> Self:
        """Returns when it takes writes. Raises `ClusterError`."""
        cluster = Cluster(self._brokers, settings=self._settings)
        cluster.open(timeout=timeout)
        self._cluster = cluster
        return self

    def stop(self, force: bool = True, delete_volume: bool = True) -> None:
        """Nothing of it is left."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- What there is ----------------------------------------------------------------------------------------------

    @property
    def cluster(self) -> Cluster:
        """The cluster that runs, with its faults. Raises `ClusterError` before `start` and after `stop`."""
        if self._cluster is None:
            raise ClusterError("the container has not been started", hint="use `with KafkaContainer() as kafka:`")
        return self._cluster

    def get_bootstrap_server(self) -> str:
        """`host:port` of the first broker; clients learn of the others from it."""
        return self.cluster.kafka_addresses[1]

    def get_container_host_ip(self) -> str:
        return self.get_bootstrap_server().rpartition(":")[0]

    def get_exposed_port(self, port: int = PORT) -> int:
        """Where the first broker listens for Kafka's clients."""
        if port != self.port:
            raise ClusterError(f"port {port} is not exposed", hint=f"the port for Kafka's clients is {self.port}")
        return int(self.get_bootstrap_server().rpartition(":")[2])
