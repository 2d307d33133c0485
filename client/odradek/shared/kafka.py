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

_OF_ALL: Final = {
    "stop": "close()",
    "cluster_id": "Admin.describe_cluster(), whose cluster_id it is",
    "set_sasl_credentials": "nothing: a client keeps its credentials, make a new one",
}
_OF_BOTH: Final = _OF_ALL | {
    "list_topics": "Admin.list_topics()",
    "metrics": "nothing: brokers measure (`odradek docs metrics`), held_up_by says what is in the way",
    "bootstrap_connected": "nothing: start() returns when the cluster was found",
}

PRODUCER_METHODS: Final = _OF_BOTH | {
    "purge": "close(0), which gives up what is on its way",
    "send_and_wait": "send(), which returns when the record is acknowledged",
    **dict.fromkeys(("produce_batch", "send_batch", "create_batch"), "enqueue_many()"),
    "produce": "enqueue(), which returns a Delivery: add_done_callback() on it is the delivery report",
    "poll": "nothing: callbacks of a Delivery run by themselves",
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
CONSUMER_METHODS: Final = _OF_BOTH | {
    "getone": "poll(seconds, max_records=1), or `async for record in consumer`",
    **dict.fromkeys(("getmany", "consume"), "poll(seconds), or batches()"),
    "partitions_for_topic": "partitions_for()",
    "topics": "Admin.list_topics()",
    **dict.fromkeys(("highwater", "last_stable_offset", "get_watermark_offsets"), "watermarks()"),
    "store_offsets": "commit(offsets) with enable_auto_commit=False",
    "commit_async": "commit(), which returns when it is done",
    "unassign": "unsubscribe()",
    "memberid": "Admin.describe_consumer_groups(), which lists the members",
    **dict.fromkeys(
        ("incremental_assign", "incremental_unassign"), "assign(), which keeps the positions of partitions that stay"
    ),
    **dict.fromkeys(("group_metadata", "consumer_group_metadata"), NO_TRANSACTIONS),
}
ADMIN_METHODS: Final = _OF_ALL | {
    "describe_metadata_quorum": "describe_quorum()",
    "list_groups": "list_consumer_groups()",
    **dict.fromkeys(("find_coordinator", "describe_groups"), "describe_consumer_groups()"),
    "remove_group_members": "nothing: members leave by close(), or when their session ends",
    "delete_groups": "delete_consumer_groups()",
    "list_group_offsets": "list_consumer_group_offsets()",
    "delete_group_offsets": "delete_consumer_group_offsets()",
    "reset_configs": "incremental_alter_configs()",
    "alter_user_scram_credentials": "upsert_user_scram_credentials() and delete_user_scram_credentials()",
    "wait_for_topics": "describe_topics(), which says who leads",
    **dict.fromkeys(("alter_group_offsets", "reset_group_offsets"), "alter_consumer_group_offsets()"),
    **dict.fromkeys(("describe_topic", "describe_topic_partitions"), "describe_topics()"),
    **dict.fromkeys(
        ("list_offsets", "list_partition_offsets"),
        "Consumer.beginning_offsets(), end_offsets() and offsets_for_times()",
    ),
    **dict.fromkeys(("list_transactions", "describe_transactions", "abort_transaction"), NO_TRANSACTIONS),
}
DELIVERY_METHODS: Final = {
    "get": "result()",
    "add_callback": "add_done_callback()",
    "add_errback": "add_done_callback()",
    "succeeded": "exception(), which is None",
    "failed": "exception()",
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
    **dict.fromkeys(("KafkaError", "KafkaException"), "OdradekError"),
}

_UNUSED_NAMES = """
auto.include.jmx.reporter client.dns.lookup client.rack compression.gzip.level config.providers
compression.lz4.level compression.zstd.level connections.max.idle.ms enable.metrics.push
exclude.internal.topics group.protocol heartbeat.interval.ms key.deserializer key.serializer
metadata.max.idle.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms partition.assignment.strategy
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms receive.buffer.bytes
reconnect.backoff.max.ms reconnect.backoff.ms send.buffer.bytes session.timeout.ms
socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms transaction.timeout.ms value.deserializer
value.serializer

api.version api.version.auto.timeout.ms api.version.fallback.ms api.version.request api.version.request.timeout.ms
batch.num.messages broker.address.family broker.address.ttl broker.version.fallback builtin.features
compression.level consume.callback.max.messages coordinator.query.interval.ms debug delivery.report.only.error
enable.gapless.guarantee enabled.events enable.incremental.fetch.sessions enable.partition.eof enable.random.seed
enable.sparse.connections fetch.error.backoff.ms fetch.queue.backoff.ms group.protocol.type https.ca.location
https.ca.pem internal.termination.signal kafka.client log.connection.close log.level log.queue log.thread.name loop
message.copy.max.bytes metadata.request.timeout.ms metric.group.prefix metrics.enabled offset.store.method
offset.store.path offset.store.sync.interval.ms plugin.library.paths produce.offset.report
queue.buffering.backpressure.threshold queue.buffering.max.kbytes queue.buffering.max.messages
queued.max.messages.kbytes queued.min.messages queuing.strategy receive.message.max.bytes
reconnect.backoff.jitter.ms selector socket.blocking.max.ms socket.keepalive.enable socket.max.fails
socket.nagle.disable socket.options socket.receive.buffer.bytes socket.send.buffer.bytes socket.timeout.ms
statistics.interval.ms sticky.partitioning.linger.ms topic.metadata.propagation.max.ms
topic.metadata.refresh.fast.cnt topic.metadata.refresh.fast.interval.ms
topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
"""  # of Kafka's own clients; below the empty line those of librdkafka, aiokafka and kafka-python
_UNUSED: Final = frozenset(_UNUSED_NAMES.split())
_PARTITIONER: Final = "the partitioner is Kafka's default one (murmur2): give send() a partition of your own choice"
_REPORT: Final = "a delivery report is Delivery.add_done_callback(), of what enqueue() returns"
_COMMITTED: Final = "commit() returns what it has committed, or raises why not"
_KEYSTORE: Final = "key and certificate are in one PEM file, which ssl_keystore_location names"
_INTERCEPTORS: Final = "interceptors are not there: wrap send() or the loop that reads"
_CONNECTIONS: Final = (
    "connections and files are the client's own affair; it takes a `network` as an argument, as tests do"
)
_OAUTH: Final = "`odradek docs security` says which mechanisms there are"
_REFUSED: Final = {
    **dict.fromkeys(("transactional.id", "transaction.two.phase.commit.enable"), NO_TRANSACTIONS),
    "share.acknowledgement.mode": "share groups are not there",
    **dict.fromkeys(("interceptor.classes", "interceptors"), _INTERCEPTORS),
    "topic.blacklist": "subscribe() to the topics that are wanted, or to an expression",
    **dict.fromkeys(("partitioner", "partitioner.class", "partitioner.cb"), _PARTITIONER),
    "partitioner.ignore.keys": "the partitioner is Kafka's default one: leave the key out",
    "consumer.timeout.ms": 'no iteration ends by time: records(until="end") ends where the partitions end now, '
    "poll(seconds) waits so long, batches(max_wait=seconds) gives an empty list then",
    "rebalance.timeout.ms": "it is max_poll_interval_ms, as in Java",
    "enable.auto.offset.store": "commit(offsets) with enable_auto_commit=False commits what you have stored",
    **dict.fromkeys(("default.topic.config", "default.topic.conf"), "its settings belong beside the others"),
    **dict.fromkeys(("dr.cb", "dr.msg.cb", "on.delivery"), _REPORT),
    **dict.fromkeys(("on.commit", "offset.commit.cb", "default.offset.commit.callback"), _COMMITTED),
    "rebalance.cb": "subscribe() takes on_assigned, on_revoked and on_lost",
    "error.cb": "errors are raised by the call that meets them, and outages logged to the logger 'odradek'",
    **dict.fromkeys(("log.cb", "logger"), "the logger is called 'odradek'"),
    "stats.cb": "nothing is called with statistics; `odradek docs metrics` says what brokers measure",
    "throttle.cb": "nothing is called when a broker throttles",
    **dict.fromkeys(("socket.cb", "connect.cb", "closesocket.cb", "open.cb", "resolve.cb"), _CONNECTIONS),
    "opaque": "nothing is called with it: a callback that needs more closes over it",
    "background.event.cb": "no poll() is needed: callbacks run by themselves, and errors are raised",
    "consume.cb": "`for record in consumer`, or batches(), hands records out",
    "msg.order.cmp": "records of a partition keep their order",
    **dict.fromkeys(("oauth.cb", "oauthbearer.token.refresh.cb", "enable.sasl.oauthbearer.unsecure.jwt"), _OAUTH),
    "enable.ssl.certificate.verification": "certificates are always verified",
    "ssl.check.hostname": "host names are always verified",
    **dict.fromkeys(("ssl.certfile", "ssl.keyfile", "ssl.certificate.location", "ssl.key.location"), _KEYSTORE),
    "ssl.context": "ssl_truststore_location and ssl_keystore_location name PEM files",
    **dict.fromkeys(("proxy.url", "socks5.proxy"), "connections go through no proxy"),
}
_SECURITY: Final = ("security.", "sasl.", "ssl.")
SAME: Final = {
    "ssl_ca_location": "ssl_truststore_location",
    "ssl_cafile": "ssl_truststore_location",
    "sasl_mechanisms": "sasl_mechanism",
    "sasl_plain_username": "sasl_username",
    "sasl_plain_password": "sasl_password",
    "metadata_broker_list": "bootstrap_servers",
    "max_in_flight": "max_in_flight_requests_per_connection",
    "request_required_acks": "acks",
    "message_timeout_ms": "delivery_timeout_ms",
    "message_max_bytes": "max_request_size",
    "message_send_max_retries": "retries",
    "queue_buffering_max_ms": "linger_ms",
    "max_batch_size": "batch_size",
    "compression_codec": "compression_type",
    "fetch_message_max_bytes": "max_partition_fetch_bytes",
    "fetch_wait_max_ms": "fetch_max_wait_ms",
    "auto_commit_enable": "enable_auto_commit",
}
"""What other clients call a setting of ours, both with underscores; units and values are the same."""
_AS_IT_IS: Final = {
    "transaction.two.phase.commit.enable": ("false",),
    "ssl.endpoint.identification.algorithm": ("https",),
    "ssl.truststore.type": ("pem",),
    "ssl.keystore.type": ("pem",),
    "ssl.check.hostname": ("true",),
    "enable.ssl.certificate.verification": ("true",),
    "enable.auto.offset.store": ("true",),
    "partitioner": ("murmur2_random",),
}
"""What may be asked for, since it is so; in small letters."""
_NOTHING_ASKED: Final[tuple[object, ...]] = (None, "", [], (), float("inf"))


def settle_foreign(written: str, value: Any, who: str) -> bool:
    """Whether `written`, in either form, is a setting of Kafka's clients that one of odradek can do without.

    Raises `UnsupportedFeature` when it asks for something that is not there, `ConfigError` for a function where Kafka
    has the name of a class. `who` says whose configuration it is.
    """
    name = written.replace("_", ".")
    if name in _REFUSED or name.startswith(_SECURITY):
        if value in _NOTHING_ASKED or str(value).lower() in _AS_IT_IS.get(name, ()):
            return True
        why = _REFUSED.get(name, "not there; `odradek docs security` says which settings are")
        raise UnsupportedFeature(f"{written}: {why}", hint=f"leave {written} out")
    if name not in _UNUSED:
        return False
    if callable(value) and name.endswith("serializer"):
        keyword = name.replace(".", "_")
        raise ConfigError(f"{written} is a function", hint=f"give it as an argument of its own: {keyword}=...")
    logger.warning(
        "%s setting %s=%s is of Kafka's clients; odradek does not use it and goes on without", who, written, value
    )
    return True


def missing(kind: str, name: str) -> AttributeError:
    """The error for an attribute that a client does not have, with what Kafka's clients call by that name."""
    here = (DELIVERY_METHODS if kind == "Delivery" else METHODS[kind]).get(name, "")
    why = f": {here}" if here == NO_TRANSACTIONS else f"; here it is {here}" if here else ""
    return AttributeError(f"{kind!r} object has no attribute {name!r}{why}", name=name)
