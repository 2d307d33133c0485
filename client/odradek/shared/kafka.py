"""What people bring along from Kafka and its other clients: names of methods, names of settings, and what to say.

Rules of this module. A configuration that was written for Kafka must load, a misspelt one must not, and nothing that
somebody relies on is left out in silence: a setting that odradek has no use for is ignored with a warning, one that
asks for something that is not there (encryption, a transaction) is refused. A method that Kafka's clients have under
another name is answered with the name that it has here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from odradek.shared.errors import ConfigError, UnsupportedFeature

logger = logging.getLogger("odradek")

NO_TRANSACTIONS: Final = "transactions are not there yet"

PRODUCER_METHODS: Final = {
    "stop": "close()",
    "send_and_wait": "send(), which returns when the record is acknowledged",
    "send_batch": "enqueue_many()",
    "create_batch": "enqueue_many()",
    "produce": "enqueue(), which returns a Delivery: add_done_callback() on it is the delivery report",
    "poll": "nothing: callbacks of a Delivery run by themselves",
    "list_topics": "Admin.list_topics()",
    **dict.fromkeys(
        (
            "begin_transaction",
            "init_transactions",
            "commit_transaction",
            "abort_transaction",
            "transaction",
            "send_offsets_to_transaction",
        ),
        NO_TRANSACTIONS,
    ),
}
CONSUMER_METHODS: Final = {
    "stop": "close()",
    "getone": "poll(timeout, max_records=1), or `async for record in consumer`",
    "getmany": "poll(timeout), or batches()",
    "consume": "poll(timeout), or batches()",
    "partitions_for_topic": "partitions_for()",
    "topics": "Admin.list_topics()",
    "list_topics": "Admin.list_topics()",
    "highwater": "watermarks()",
    "last_stable_offset": "watermarks()",
    "get_watermark_offsets": "watermarks()",
    "store_offsets": "commit(offsets) with enable_auto_commit=False",
    "incremental_assign": "assign(), which keeps the positions of partitions that stay",
}
ADMIN_METHODS: Final = {
    "stop": "close()",
    "describe_topic": "describe_topics()",
    "list_offsets": "Consumer.beginning_offsets(), end_offsets() and offsets_for_times()",
}
METHODS: Final[Mapping[str, Mapping[str, str]]] = {
    "Producer": PRODUCER_METHODS,
    "Consumer": CONSUMER_METHODS,
    "Admin": ADMIN_METHODS,
}
CLASSES: Final = {
    **dict.fromkeys(("AIOKafkaProducer", "KafkaProducer", "SerializingProducer"), "Producer"),
    **dict.fromkeys(("AIOKafkaConsumer", "KafkaConsumer", "DeserializingConsumer"), "Consumer"),
    **dict.fromkeys(("AIOKafkaAdminClient", "KafkaAdminClient", "AdminClient"), "Admin"),
    **dict.fromkeys(("Record", "Message"), "ConsumerRecord"),
}

_UNUSED_NAMES = """
auto.include.jmx.reporter client.dns.lookup client.rack compression.gzip.level
compression.lz4.level compression.zstd.level connections.max.idle.ms enable.metrics.push
exclude.internal.topics group.protocol heartbeat.interval.ms key.deserializer key.serializer
metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms send.buffer.bytes session.timeout.ms
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms transaction.timeout.ms value.deserializer
value.serializer

api.version api.version.request broker.address.family broker.address.ttl consumer.timeout.ms debug enable.partition.eof
log.connection.close queue.buffering.max.kbytes queue.buffering.max.messages socket.keepalive.enable
socket.nagle.disable socket.timeout.ms statistics.interval.ms topic.metadata.refresh.interval.ms
"""  # of Kafka's own clients; below the empty line those of librdkafka, aiokafka and kafka-python
_UNUSED: Final = frozenset(_UNUSED_NAMES.split())
_REFUSED: Final = {
    "transactional.id": NO_TRANSACTIONS,
    "interceptor.classes": "interceptors are not there: wrap send() or the loop that reads",
    "partitioner.class": "the partitioner is Kafka's default one: give send() a partition of your own choice",
    "partitioner.ignore.keys": "the partitioner is Kafka's default one: leave the key out",
}
_SECURITY: Final = ("security.", "sasl.", "ssl.")
SAME: Final = {
    "ssl_ca_location": "ssl_truststore_location",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
}
"""What other clients call a setting of ours, both with underscores."""
_AS_IT_IS: Final = (
    ("ssl.endpoint.identification.algorithm", "https"),
    ("ssl.truststore.type", "PEM"),
    ("ssl.keystore.type", "PEM"),
)
_NOTHING_ASKED: Final[tuple[object, ...]] = (None, "", [], ())


def settle_foreign(name: str, value: Any, who: str) -> bool:
    """Whether `name` (dotted) is a setting of Kafka's that a client of odradek can do without.

    Raises `UnsupportedFeature` when it asks for something that is not there, `ConfigError` for a function where Kafka
    has the name of a class. `who` says whose configuration it is.
    """
    if name.startswith(_SECURITY):
        if value in _NOTHING_ASKED or (name, value) in _AS_IT_IS:
            return True
        raise UnsupportedFeature(
            f"{name}: not there; docs/security.md says which settings are", hint=f"leave {name} out"
        )
    if name in _REFUSED:
        if value in _NOTHING_ASKED:
            return True
        raise UnsupportedFeature(f"{name}: {_REFUSED[name]}", hint=f"leave {name} out")
    if name not in _UNUSED:
        return False
    elif callable(value):
        keyword = name.replace(".", "_")
        raise ConfigError(f"{name} is a function", hint=f"give it as an argument of its own: {keyword}=...")
    logger.warning("%s setting %s=%s is Kafka's; odradek does not use it and goes on without", who, name, value)
    return True


def missing(kind: str, name: str) -> AttributeError:
    """The error for an attribute that a client does not have, with what Kafka's clients call by that name."""
    here = METHODS[kind].get(name, "")
    why = f": {here}" if here == NO_TRANSACTIONS else f"; here it is {here}" if here else ""
    return AttributeError(f"{kind!r} object has no attribute {name!r}{why}", name=name)
