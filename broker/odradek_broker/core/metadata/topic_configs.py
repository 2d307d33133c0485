"""The settings of topics: Kafka's names, types and defaults (those of Kafka 4.1).

- A topic's value wins over that of the one broker, over the cluster-wide one, over the node's own configuration, over
  Kafka's default.
- Unlike Kafka, unsupported values are refused when they are set: preallocation, remote storage, a `compression.type`
  whose library is not installed, and batches that do not fit into a gRPC message.
- A setting without a broker's name has no other source than the topic.
- As in Kafka 4, `segment.bytes` is at least 1 MiB, since every segment costs each replica open files. Tests that need
  many segments set `internal.segment.bytes`, which wins over it and is in no list of settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from odradek_proto.compression import Codec, CodecUnavailable, compress

from odradek_broker.core.metadata.config_types import (
    INT_MAX,
    LONG_MAX,
    ConfigDefinition,
    ConfigType,
    anything,
    at_least,
    between,
    one_of,
    only,
)
from odradek_broker.core.metadata.image import MetadataImage

LARGEST_MESSAGE_BYTES: Final = 16 * 1024 * 1024 - 64 * 1024  # gRPC's 16 MiB less room for the header of a frame
CLUSTER_DEFAULT: Final = ""  # the broker resource that stands for all brokers
CLEANUP_POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"  # of its values: the newest record of each key stays
DELETE: Final = "delete"  # and the other one: records go by age and size
MIN_LAG: Final = "min.compaction.lag.ms"
MAX_LAG: Final = "max.compaction.lag.ms"
MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"  # of topics and of brokers

THROTTLED_RATE: Final = "{}.replication.throttled.rate"  # of the leader, of the follower (KIP-73)
THROTTLED_REPLICAS: Final = "{}.replication.throttled.replicas"
ALL_REPLICAS: Final = "*"
_REPLICA: Final = re.compile(r"([0-9]{1,9}:[0-9]{1,9})?")

TIMESTAMP_TYPES: Final = ("CreateTime", "LogAppendTime")
SMALLEST_SEGMENT: Final = 1 << 20  # KIP-1030
INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"

COMPRESSION_TYPE: Final = "compression.type"
PRODUCER: Final = "producer"  # of its values: as the producer has compressed
CODECS: Final = {
    "gzip": Codec.GZIP,
    "lz4": Codec.LZ4,
    "snappy": Codec.SNAPPY,
    "uncompressed": Codec.NONE,
    "zstd": Codec.ZSTD,
}


def _policy(value: object) -> str | None:
    assert isinstance(value, list)
    if set(value) <= {COMPACT, DELETE} and len(set(value)) == len(value):
        return None
    return "must be compact, delete, compact,delete, or empty"


def _compression(value: object) -> str | None:
    if value == PRODUCER:
        return None
    codec = CODECS.get(str(value))
    if codec is None:
        return f"must be one of {', '.join(sorted((*CODECS, PRODUCER)))}"
    try:
        compress(codec, b"")
    except CodecUnavailable as error:
        return str(error)
    return None


def _gzip_level(value: object) -> str | None:
    assert isinstance(value, int)
    return None if value == -1 or 1 <= value <= 9 else "must be between 1 and 9, or -1"


def _message_bytes(value: object) -> str | None:
    assert isinstance(value, int)
    if value > LARGEST_MESSAGE_BYTES:
        return f"must be at most {LARGEST_MESSAGE_BYTES}: a batch has to fit into one gRPC message of 16 MiB"
    return None if value >= 0 else "must be at least 0"


def _throttled_replicas(value: object) -> str | None:
    assert isinstance(value, list)
    if "".join(value) == ALL_REPLICAS or all(map(_REPLICA.fullmatch, value)):
        return None
    return f"must be {ALL_REPLICAS}, or a list of PARTITION:BROKER, for example 0:1,0:2"


def _define(
    name: str,
    kind: ConfigType,
    default: object,
    server_name: str,
    check: Callable[[object], str | None] = anything,
) -> tuple[str, ConfigDefinition]:
    return name, ConfigDefinition(name, kind, str(default), check, server_name)


_B, _I, _L, _S = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.STRING
_NO = "false"

TOPIC_CONFIGS: Final[Mapping[str, ConfigDefinition]] = dict(
    (
        _define(CLEANUP_POLICY, ConfigType.LIST, "delete", "log.cleanup.policy", _policy),
        _define("compression.gzip.level", _I, -1, "compression.gzip.level", _gzip_level),
        _define("compression.lz4.level", _I, 9, "compression.lz4.level", at_least(1, 17)),
        _define(COMPRESSION_TYPE, _S, PRODUCER, COMPRESSION_TYPE, _compression),
        _define("compression.zstd.level", _I, 3, "compression.zstd.level", at_least(-131_072, 22)),
        _define("delete.retention.ms", _L, 86_400_000, "log.cleaner.delete.retention.ms", at_least(0)),
        _define("file.delete.delay.ms", _L, 60_000, "log.segment.delete.delay.ms", at_least(0)),
        _define("flush.messages", _L, LONG_MAX, "log.flush.interval.messages", at_least(1)),
        _define("flush.ms", _L, LONG_MAX, "log.flush.interval.ms", at_least(0)),
        _define(THROTTLED_REPLICAS.format("follower"), ConfigType.LIST, "", "", _throttled_replicas),
        _define("index.interval.bytes", _I, 4096, "log.index.interval.bytes", at_least(0)),
        _define(THROTTLED_REPLICAS.format("leader"), ConfigType.LIST, "", "", _throttled_replicas),
        _define(MAX_LAG, _L, LONG_MAX, "log.cleaner.max.compaction.lag.ms", at_least(1)),
        _define("max.message.bytes", _I, 1_048_588, "message.max.bytes", _message_bytes),
        _define("message.timestamp.after.max.ms", _L, 3_600_000, "log.message.timestamp.after.max.ms", at_least(0)),
        _define("message.timestamp.before.max.ms", _L, LONG_MAX, "log.message.timestamp.before.max.ms", at_least(0)),
        _define("message.timestamp.type", _S, "CreateTime", "log.message.timestamp.type", one_of(*TIMESTAMP_TYPES)),
        _define(
            "min.cleanable.dirty.ratio", ConfigType.DOUBLE, 0.5, "log.cleaner.min.cleanable.ratio", between(0.0, 1.0)
        ),
        _define(MIN_LAG, _L, 0, "log.cleaner.min.compaction.lag.ms", at_least(0)),
        _define("min.insync.replicas", _I, 1, "min.insync.replicas", at_least(1)),
        _define("preallocate", _B, _NO, "log.preallocate", only(False, "files are never preallocated")),
        _define(
            "remote.storage.enable",
            _B,
            _NO,
            "remote.log.storage.system.enable",
            only(False, "there is no remote storage"),
        ),
        _define("retention.bytes", _L, -1, "log.retention.bytes"),
        _define("retention.ms", _L, 604_800_000, "log.retention.ms", at_least(-1)),
        _define("segment.bytes", _I, 1 << 30, "log.segment.bytes", at_least(SMALLEST_SEGMENT, INT_MAX)),
        _define("segment.index.bytes", _I, 10 * 1024 * 1024, "log.index.size.max.bytes", at_least(4)),
        _define("segment.jitter.ms", _L, 0, "log.roll.jitter.ms", at_least(0)),
        _define("segment.ms", _L, 604_800_000, "log.roll.ms", at_least(1)),
        _define("unclean.leader.election.enable", _B, _NO, "unclean.leader.election.enable"),
    )
)

# For tests alone: taken, and shown to nobody.
_INTERNAL: Final = dict(
    [_define(INTERNAL_SEGMENT_BYTES, _I, 0, INTERNAL_SEGMENT_BYTES, at_least(0, INT_MAX))]  # 0: `segment.bytes` counts
)
ALL_TOPIC_CONFIGS: Final = {**TOPIC_CONFIGS, **_INTERNAL}
_DEFAULTS: Final = {name: definition.default for name, definition in ALL_TOPIC_CONFIGS.items()}
_SERVER_NAMES: Final = tuple((name, definition.server_name) for name, definition in ALL_TOPIC_CONFIGS.items())

# Rates of brokers: as in Kafka set while they run and not in their files, and shown while they are set.
BROKER_RATES: Final = dict(
    (
        _define(THROTTLED_RATE.format("follower"), _L, LONG_MAX, "", at_least(0)),
        _define(THROTTLED_RATE.format("leader"), _L, LONG_MAX, "", at_least(0)),
        _define(
            "replica.alter.log.dirs.io.max.bytes.per.second",
            _L,
            LONG_MAX,
            "",
            only(LONG_MAX, "nothing moves between log directories: a broker has one"),
        ),
    )
)

# What may be set for brokers while they run: these, and the defaults of topics, by the broker's names.
BROKER_CONFIGS: Final[Mapping[str, ConfigDefinition]] = BROKER_RATES | {
    definition.server_name: ConfigDefinition(
        definition.server_name, definition.type, definition.default, definition.check, definition.server_name
    )
    for definition in TOPIC_CONFIGS.values()
    if definition.server_name
}


class EffectiveConfig(NamedTuple):
    """A setting's value and where it comes from: topic, broker, cluster, node, default."""

    value: str
    source: str


def validate_topic_config(name: str, value: str) -> None:
    """Raise `ValueError`, with a sentence for people, for an unknown name or a value that cannot be."""
    validate_config(ALL_TOPIC_CONFIGS, "topic", name, value)


def validate_lags(image: MetadataImage, values: Mapping[str, str], node_defaults: Mapping[str, str]) -> None:
    """The same for what a topic has of its own: nothing can be too young and too old to be compacted at once."""
    least, most = (
        int(values.get(name) or effective_config(image, "", name, node_defaults).value) for name in (MIN_LAG, MAX_LAG)
    )
    if least > most:
        raise ValueError(f"{MIN_LAG}={least} is above {MAX_LAG}={most}: lower the one or raise the other")


def validate_config(definitions: Mapping[str, ConfigDefinition], kind: str, name: str, value: str) -> None:
    """The same for any kind of resource, whose settings these are."""
    definition = definitions.get(name)
    if definition is None:
        raise ValueError(unknown_config(definitions, kind, name))
    definition.validate(value)


def unknown_config(definitions: Mapping[str, ConfigDefinition], kind: str, name: str) -> str:
    """A sentence about a setting that is not there, with the nearest name that is."""
    import difflib  # a broker that starts has no use for it

    near = difflib.get_close_matches(name, [each for each in definitions if each not in _INTERNAL], n=1)
    return f"there is no {kind} setting {name!r} that can be changed" + (f"; did you mean {near[0]!r}?" if near else "")


def effective_config(
    image: MetadataImage, topic: str, name: str, node_defaults: Mapping[str, str], broker_id: int | None = None
) -> EffectiveConfig:
    """What holds for a topic on a broker. `node_defaults` have the topic's names. Raises `KeyError` for no setting."""
    definition = ALL_TOPIC_CONFIGS[name]
    value = image.topic_configs.get(topic, {}).get(name)
    if value is not None:
        return EffectiveConfig(value, "topic")
    resources = (CLUSTER_DEFAULT,) if broker_id is None else (str(broker_id), CLUSTER_DEFAULT)
    for resource in resources:
        value = image.broker_configs.get(resource, {}).get(definition.server_name)
        if value is not None:
            return EffectiveConfig(value, "broker" if resource else "cluster")
    if name in node_defaults:
        return EffectiveConfig(node_defaults[name], "node")
    return EffectiveConfig(definition.default, "default")


def effective_configs(
    image: MetadataImage, topic: str, node_defaults: Mapping[str, str], broker_id: int
) -> Mapping[str, str]:
    """The values of all settings at once, as `effective_config` finds each."""
    of_brokers = [image.broker_configs.get(resource, {}) for resource in (CLUSTER_DEFAULT, str(broker_id))]
    changed = [(name, found[key]) for found in of_brokers if found for name, key in _SERVER_NAMES if key in found]
    return {**_DEFAULTS, **node_defaults, **dict(changed), **image.topic_configs.get(topic, {})}
