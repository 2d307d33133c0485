"""Settings of the clients: Kafka's names, in snake_case as keyword arguments or dotted in a mapping.

Rules of this module. `linger_ms` and `linger.ms` are one setting, and the table between the two forms is a bijection.
An unknown name is `ConfigError` and says which one was probably meant. Defaults are Kafka's unless the comment beside
them says otherwise; the `*Settings` types are for editors and type checkers, the dataclasses are what counts.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, Final, Literal, TypedDict, TypeVar

from odradek_proto.compression import Codec, CodecUnavailable, compress

from odradek.shared.errors import ConfigError
from odradek.shared.kafka import SAME, settle_foreign
from odradek.shared.security import PLAINTEXT, SCRAM, Security, check_security

Acks = Literal["all", "0", "1", "-1", 0, 1, -1]
CompressionType = Literal["none", "gzip", "snappy", "lz4", "zstd"]
OffsetReset = Literal["earliest", "latest", "none"]
SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
BootstrapServers = str | Sequence[str]

ACKS_ALL: Final = -1
_HOST: Final = re.compile(r"[\w.-]+|\[[\da-fA-F:.]+(%[\w.-]+)?\]")  # a name or an address; of IPv6 in brackets
_BARE_IPV6: Final = re.compile(r"[\da-fA-F.]*:[\da-fA-F:.]*")
MAX_IN_FLIGHT_WITH_IDEMPOTENCE: Final = 5  # a broker remembers as many batches of a producer


class ClientSettings(TypedDict, total=False):
    """What all clients understand."""

    client_id: str
    request_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int
    bootstrap_timeout_ms: int
    security_protocol: SecurityProtocol
    ssl_truststore_location: str
    ssl_keystore_location: str
    sasl_mechanism: SaslMechanism
    sasl_username: str
    sasl_password: str


class ProducerSettings(ClientSettings, total=False):
    acks: Acks
    batch_size: int
    linger_ms: float
    compression_type: CompressionType
    enable_idempotence: bool
    max_in_flight_requests_per_connection: int
    delivery_timeout_ms: int
    retries: int
    max_block_ms: int
    buffer_memory: int
    max_request_size: int
    unknown_topic_timeout_ms: int
    allow_auto_create_topics: bool


class ConsumerSettings(ClientSettings, total=False):
    group_id: str
    group_instance_id: str
    group_remote_assignor: str
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_interval_ms: int
    auto_offset_reset: OffsetReset
    isolation_level: Literal["read_uncommitted", "read_committed"]
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    max_poll_records: int
    check_crcs: bool
    default_api_timeout_ms: int
    allow_auto_create_topics: bool


class AdminSettings(ClientSettings, total=False):
    default_api_timeout_ms: int


refusals_are_final: Final = ContextVar("refusals_are_final", default=False)
"""Of a command: where nobody listens at any address, a client says so at once. A program that starts together with its
brokers looks for them for `bootstrap.timeout.ms`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of every client. Times are milliseconds, sizes are bytes."""

    bootstrap_servers: tuple[str, ...]
    client_id: str = "odradek"
    request_timeout_ms: int = 30_000
    retry_backoff_ms: int = 20  # Kafka: 100. A new leader is there within some hundred ms: who asks late, waits longer
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000
    bootstrap_timeout_ms: int = 5_000  # ours: how long to look for a first broker before BootstrapError
    security_protocol: str = PLAINTEXT
    ssl_truststore_location: str = ""  # PEM; Kafka: JKS. Empty: the authorities that the system trusts
    ssl_keystore_location: str = ""  # PEM, with key and certificates; Kafka: JKS
    sasl_mechanism: str = SCRAM  # Kafka: GSSAPI
    sasl_username: str = ""  # as librdkafka; Java has both inside of sasl.jaas.config
    sasl_password: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if not self.bootstrap_servers:
            raise ConfigError("bootstrap_servers is empty", hint='give at least one "host:port"')
        for address in self.bootstrap_servers:
            if wrong := flaw(address):
                raise ConfigError(f"bootstrap_servers: {wrong}", hint='for example "localhost:50051"')
        _require_positive(self, "request_timeout_ms", "retry_backoff_ms", "retry_backoff_max_ms", "metadata_max_age_ms")
        check_security(self.security)

    @property
    def security(self) -> Security:
        return Security(*(getattr(self, name) for name in Security.__struct_fields__))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Settings of a producer. `acks` is 0, 1 or -1 for all."""

    acks: int = ACKS_ALL
    batch_size: int = 16_384
    linger_ms: float = 0  # Kafka before 4.0; see docs/client.md for when a batch goes
    compression_type: CompressionType = "none"
    enable_idempotence: bool = True
    max_in_flight_requests_per_connection: int = 5  # batches per partition
    delivery_timeout_ms: int = 120_000
    retries: int = 2_147_483_647
    max_block_ms: int = 60_000
    buffer_memory: int = 33_554_432
    max_request_size: int = 1_048_576
    unknown_topic_timeout_ms: int = 5_000  # ours: Kafka waits max.block.ms for a topic that does not exist
    allow_auto_create_topics: bool = True

    def __post_init__(self) -> None:
        # zero-argument super() does not survive the copy that slots=True makes of a class
        super(ProducerConfig, self).__post_init__()
        if self.acks not in (0, 1, ACKS_ALL):
            raise ConfigError(f"acks: {self.acks!r} is none of 0, 1, all")
        if self.compression_type not in ("none", "gzip", "snappy", "lz4", "zstd"):
            raise ConfigError(f"compression_type: {self.compression_type!r} is none of none, gzip, snappy, lz4, zstd")
        _require_codec(self.codec)
        if self.enable_idempotence and self.acks != ACKS_ALL:
            raise ConfigError("enable_idempotence needs acks=all", hint="drop acks, or set enable_idempotence=False")
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > MAX_IN_FLIGHT_WITH_IDEMPOTENCE:
            raise ConfigError("enable_idempotence allows at most 5 max_in_flight_requests_per_connection")
        if self.linger_ms < 0 or self.retries < 0 or self.batch_size < 0:
            raise ConfigError("linger_ms, retries and batch_size cannot be negative")
        _require_positive(
            self, "max_in_flight_requests_per_connection", "delivery_timeout_ms", "buffer_memory", "max_request_size"
        )

    @property
    def codec(self) -> Codec:
        return Codec[self.compression_type.upper()]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Settings of a consumer."""

    group_id: str = ""
    group_instance_id: str = ""  # Kafka: null
    group_remote_assignor: str = ""  # Kafka: null. The brokers': uniform
    enable_auto_commit: bool = True
    auto_commit_interval_ms: int = 5_000
    max_poll_interval_ms: int = 300_000
    auto_offset_reset: OffsetReset = "latest"
    isolation_level: str = "read_uncommitted"
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800  # also what is buffered per broker
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1_048_576
    max_poll_records: int = 500
    check_crcs: bool = True
    default_api_timeout_ms: int = 60_000
    allow_auto_create_topics: bool = (
        False  # Kafka: True. Reading what does not exist is a mistake more often than a wish
    )

    def __post_init__(self) -> None:
        super(ConsumerConfig, self).__post_init__()
        if self.group_instance_id and not self.group_id:
            raise ConfigError("group_instance_id needs group_id")
        if self.auto_offset_reset not in ("earliest", "latest", "none"):
            raise ConfigError(f"auto_offset_reset: {self.auto_offset_reset!r} is none of earliest, latest, none")
        if self.isolation_level not in ("read_uncommitted", "read_committed"):
            raise ConfigError(f"isolation_level: {self.isolation_level!r} is none of read_uncommitted, read_committed")
        _require_positive(self, "fetch_max_bytes", "max_partition_fetch_bytes", "max_poll_records")
        _require_positive(self, "auto_commit_interval_ms", "max_poll_interval_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """Settings of an admin client."""

    default_api_timeout_ms: int = 60_000


C = TypeVar("C", ProducerConfig, ConsumerConfig, AdminConfig)


def dotted(name: str) -> str:
    """`linger_ms` as Kafka writes it, `linger.ms`."""
    return name.replace("_", ".")


def build(kind: type[C], bootstrap_servers: BootstrapServers, settings: Mapping[str, Any]) -> C:
    """The settings of one client from keyword arguments. Raises `ConfigError`."""
    known: dict[str, Field[Any]] = {field.name: field for field in fields(kind)}
    values: dict[str, Any] = {"bootstrap_servers": addresses_of(bootstrap_servers)}
    for written, value in settings.items():
        name = SAME.get(written, written)
        if name not in known or name == "bootstrap_servers":
            if "." not in written and settle_foreign(written, value, _who(kind)):
                continue
            raise _unknown(kind, written, [*known])
        if name in values:
            raise ConfigError(f"{written} is given twice", hint=f"it is {name}")
        if value is None:
            continue  # aiokafka and kafka-python have it for what nobody has set
        default = known[name].default
        values[name] = _coerce(name, value, default if default is not MISSING else "")
    if kind is ProducerConfig and values.get("acks", ACKS_ALL) != ACKS_ALL:
        values.setdefault("enable_idempotence", False)  # as Kafka: acks that were asked for turn the default off
    return kind(**values)


def from_dotted(kind: type[C], config: Mapping[str, Any]) -> tuple[BootstrapServers, dict[str, Any]]:
    """Bootstrap servers and keyword arguments from Kafka's dotted names; underscores are taken too.

    Raises `ConfigError` for names that nobody knows; the values are checked by `build`. What only Kafka knows is
    settled by `odradek.shared.kafka`: left out with a warning, or `UnsupportedFeature`.
    """
    by_dotted: dict[str, str] = {dotted(field.name): field.name for field in fields(kind)}
    settings: dict[str, Any] = {}
    for name, value in config.items():
        field = by_dotted.get(dotted(SAME.get(name.replace(".", "_"), name)))
        if field is None:
            if settle_foreign(name, value, _who(kind)):
                continue
            raise _unknown(kind, name, [*by_dotted])
        if field in settings:
            raise ConfigError(f"{name} is given twice", hint=f"it is {dotted(field)}")
        settings[field] = value
    if "bootstrap_servers" not in settings:
        raise ConfigError("bootstrap.servers is missing", hint='for example {"bootstrap.servers": "localhost:50051"}')
    return settings.pop("bootstrap_servers"), settings


def flaw(address: str) -> str:
    """What is wrong with an address that nobody can dial, as a sentence; empty when nothing is."""
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()):
        return f"{address!r} is not host:port"
    if not 0 < int(port[:9]) < 65_536:
        return f"{address!r} has no port that can be: 1 to 65535"
    if _BARE_IPV6.fullmatch(host):
        return f"{address!r}: an address of IPv6 stands in brackets, [{host}]:{port}"
    return "" if _HOST.fullmatch(host) else f"{address!r} has no host that can be"


def addresses_of(servers: BootstrapServers) -> tuple[str, ...]:
    if isinstance(servers, Mapping):
        raise ConfigError("bootstrap_servers is a mapping", hint="from_config() takes one, with Kafka's dotted names")
    listed = servers.split(",") if isinstance(servers, str) else servers
    return tuple(address for address in (part.strip().removeprefix("grpc://") for part in listed) if address)


def _coerce(name: str, value: Any, default: Any) -> Any:
    """A value as the field's type, from that type or from text, as property files have it."""
    if name == "acks":
        return _acks(value)
    if isinstance(default, bool):
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise ConfigError(f"{name}: {value!r} is neither true nor false")
        return value
    if isinstance(default, int | float):
        return _number(name, value, float if name == "linger_ms" else int)
    if not isinstance(value, str):
        raise ConfigError(f"{name}: {value!r} is not text")
    return value


def _acks(value: Any) -> int:
    try:
        return ACKS_ALL if value == "all" else int(_number("acks", value, int))
    except ConfigError:
        raise ConfigError(f"acks: {value!r} is none of 0, 1, all") from None


def _number(name: str, value: Any, kind: type[int] | type[float]) -> int | float:
    try:
        if isinstance(value, bool):
            raise ValueError
        number = kind(value)
        if number != float(value):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{name}: {value!r} is not {'a whole number' if kind is int else 'a number'}") from None
    return number


def _require_positive(config: ClientConfig, *names: str) -> None:
    for name in names:
        if getattr(config, name) <= 0:
            raise ConfigError(f"{name}: {getattr(config, name)} is not above 0")


def _require_codec(codec: Codec) -> None:
    """A missing library is noticed before there is a record that cannot be sent."""
    try:
        compress(codec, b"")
    except CodecUnavailable as error:
        raise ConfigError(f"compression_type: {error.reason}", hint=error.remedy) from None


def _unknown(kind: type[ClientConfig], name: str, names: Sequence[str]) -> ConfigError:
    """The error for a name that is none of `names`, always with a hint: nobody knows all settings by heart."""
    here = dotted(SAME.get(name.replace(".", "_"), name))
    owners = [owner for owner, other in _OWNERS.items() if here in map(dotted, _names_of(other))]
    if owners and here not in map(dotted, names):  # else it is the right name in the other form
        hint = f"{here if '.' in name else here.replace('.', '_')!r} is a setting of {' and '.join(owners)}"
    else:
        meant = nearest(name, names) if here == dotted(name) else SAME[name.replace(".", "_")]
        hint = f"did you mean {meant!r}?" if meant else "`odradek docs client` lists all settings"
    return ConfigError(f"unknown {_who(kind)} setting {name!r}", hint=hint)


def _who(kind: type[ClientConfig]) -> str:
    return kind.__name__.removesuffix("Config").lower()


def _names_of(kind: type[ClientConfig]) -> list[str]:
    return [field.name for field in fields(kind)]


def nearest(name: str, names: Sequence[str]) -> str:
    """The name that looks most like this one, or the shortest that has it inside; empty when there is neither."""
    close = difflib.get_close_matches(name, names, n=1)
    longer = sorted((other for other in names if dotted(name) in dotted(other)), key=len)
    return next(iter(close or longer), "")


_OWNERS: Final[dict[str, type[ClientConfig]]] = {"producers": ProducerConfig, "consumers": ConsumerConfig}
"""Whose setting a name may be; what admin clients have, the others have too."""
