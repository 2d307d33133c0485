"""Settings from files, the environment and the command line, in this order, the later one winning.

Files are `.properties` as Kafka's, or `.toml` with the same dotted names. In the environment a prefix `KAFKA_`,
`KAFKA_CFG_` or `ODRADEK_` is taken off, `___` stands for `-`, `__` for `_` and `_` for `.`, as in Kafka's image. A
name that neither Kafka nor odradek knows is an error with the nearest known name; one that Kafka knows and odradek
does not use is reported once, so that real files load.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from odradek_broker.core.metadata.topic_configs import LARGEST_MESSAGE_BYTES, TOPIC_CONFIGS, validate_topic_config
from odradek_broker.kafka_settings import known_to_kafka
from odradek_broker.runtime.topic_settings import topic_defaults
from odradek_broker.settings import FIELD_BY_KEY, BrokerSettings

OWN_PREFIX = "odradek."
ANY_ADDRESS = "0.0.0.0"
RENAMED = {"log.dir": "log.dirs", "log.roll.hours": "log.roll.ms", "log.retention.hours": "log.retention.ms"}
HOURS = {"log.roll.hours", "log.retention.hours"}
MINUTES = {"log.retention.minutes": "log.retention.ms"}
_SIZES = {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIMES = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class ConfigError(ValueError):
    """A setting that cannot be: the message names it, its source, and the remedy."""


@dataclass(slots=True)
class LoadedConfig:
    """The settings and where each that was set came from."""

    settings: BrokerSettings
    sources: dict[str, str] = field(default_factory=dict)  # dotted name -> source
    unused: list[str] = field(default_factory=list)  # known to Kafka, not used here


def load(
    path: Path | None = None, *, environment: Mapping[str, str] | None = None, overrides: Iterable[str] = ()
) -> LoadedConfig:
    """Read all sources. `overrides` are `key=value` strings. Raises `ConfigError`."""
    values: dict[str, str] = {}
    sources: dict[str, str] = {}
    unused: list[str] = []

    def take(pairs: Mapping[str, str], source: str) -> None:
        for key, value in pairs.items():
            name, text = _canonical(key, value)
            if name in FIELD_BY_KEY:
                values[name], sources[name] = text, source
            elif name.startswith(OWN_PREFIX) or not known_to_kafka(name):
                raise ConfigError(f"{source}: unknown setting {key!r}{_did_you_mean(name)}")
            else:
                unused.append(name)

    if path is not None:
        take(read_file(path), str(path))
    take(from_environment(environment or {}), "environment")
    take(dict(_split_override(text) for text in overrides), "command line")
    parsed: dict[str, Any] = {FIELD_BY_KEY[name]: _parse(name, text, sources[name]) for name, text in values.items()}
    settings = BrokerSettings(**parsed)
    check(settings)
    return LoadedConfig(settings, sources, sorted(set(unused)))


def read_file(path: Path) -> dict[str, str]:
    """Dotted names and their text from a `.properties` or `.toml` file. Raises `ConfigError`."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text") from error
    if path.suffix == ".toml":
        import tomllib

        try:
            return _flatten(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{path}: {error}") from error
    return _properties(text, path)


def _properties(text: str, path: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    pending = ""
    for number, raw in enumerate(text.splitlines(), 1):
        line = pending + raw.strip()
        pending = ""
        if not line or line[0] in "#!":
            continue
        if line.endswith("\\") and not line.endswith("\\\\"):
            pending = line[:-1]
            continue
        match = re.match(r"([^=:\s]+)\s*[=:\s]\s*(.*)", line)
        if match is None:
            raise ConfigError(f"{path}, line {number}: expected name=value, found {line!r}")
        found[match[1]] = match[2]
    return found


def _flatten(table: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat.update(_flatten(value, f"{prefix}{key}."))
        elif isinstance(value, list):
            flat[prefix + key] = ",".join(str(item) for item in value)
        else:
            flat[prefix + key] = str(value).lower() if isinstance(value, bool) else str(value)
    return flat


def from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The settings in an environment; variables of other meanings (`KAFKA_HEAP_OPTS`, ...) are left alone."""
    found: dict[str, str] = {}
    if "CLUSTER_ID" in environment:
        found["cluster.id"] = environment["CLUSTER_ID"]
    for prefix in ("KAFKA_CFG_", "KAFKA_", "ODRADEK_"):
        for variable, value in environment.items():
            if not variable.startswith(prefix) or (prefix == "KAFKA_" and variable.startswith("KAFKA_CFG_")):
                continue
            name = variable[len(prefix) :].lower()
            name = name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
            own = OWN_PREFIX + name
            if prefix == "ODRADEK_" and own in FIELD_BY_KEY:
                found[own] = value
            elif name in FIELD_BY_KEY or name in RENAMED or name in MINUTES:
                found[name] = value
    return found


def _split_override(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"expected key=value, found {text!r}")
    return key.strip(), value.strip()


def _canonical(key: str, value: str) -> tuple[str, str]:
    """Kafka has several names for some settings; one of them is ours."""
    if key in HOURS:
        return RENAMED[key], f"{value}h"
    if key in MINUTES:
        return MINUTES[key], f"{value}min"
    return RENAMED.get(key, key), value


def _parse(name: str, text: str, source: str) -> object:
    kind = next(item.type for item in fields(BrokerSettings) if item.name == FIELD_BY_KEY[name])
    text = text.strip()
    try:
        if kind == "int":
            return parse_number(text)
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
    except (ValueError, KeyError) as error:
        wanted = "a whole number" if kind == "int" else "true or false"
        raise ConfigError(f"{source}: {name} must be {wanted}, not {text!r}") from error
    return text


def parse_number(text: str) -> int:
    """A plain number, or one with a unit: `30s`, `64MiB`. Raises `ValueError`."""
    match = re.fullmatch(r"(-?\d+)\s*([A-Za-z]*)", text)
    if match is None:
        raise ValueError(text)
    unit = match[2].lower()
    if not unit:
        return int(match[1])
    factor = _TIMES.get(unit) or _SIZES.get(unit)
    if factor is None:
        raise ValueError(text)
    return int(match[1]) * factor


def _did_you_mean(name: str) -> str:
    import difflib  # a broker that starts has no use for it

    near = difflib.get_close_matches(name, list(FIELD_BY_KEY), n=1, cutoff=0.7)
    return f"; did you mean {near[0]!r}?" if near else ""


CHOICES = {
    "odradek_truncation_mode": ("fetch", "epoch-request", "epoch-single-round", "high-watermark"),
    "odradek_fsync": ("never", "before-ack"),
    "message_timestamp_type": ("CreateTime",),
    "log_cleanup_policy": ("delete",),
}


def check(settings: BrokerSettings) -> None:
    """What no single value shows. Raises `ConfigError`."""
    for name, allowed in CHOICES.items():
        value = getattr(settings, name)
        if value not in allowed:
            key = next(key for key, field_name in FIELD_BY_KEY.items() if field_name == name)
            raise ConfigError(f"{key} must be one of {', '.join(allowed)}, not {value!r}")
    if settings.node_id < 0:
        raise ConfigError("node.id must be set to a number from 0 on; add node.id=1 to the file or -X node.id=1")
    if settings.message_max_bytes > LARGEST_MESSAGE_BYTES:
        raise ConfigError(
            f"message.max.bytes={settings.message_max_bytes} does not fit one message between brokers; "
            f"at most {LARGEST_MESSAGE_BYTES}"
        )
    if "," in settings.log_dirs:
        raise ConfigError(f"log.dirs={settings.log_dirs!r}: one log directory for each broker is all there is for now")
    if not set(roles(settings)) <= {"broker", "controller"} or not roles(settings):
        raise ConfigError(f"process.roles must name broker, controller or both, not {settings.process_roles!r}")
    for name, value in topic_defaults(settings).items():
        try:
            validate_topic_config(name, value)
        except ValueError as error:
            raise ConfigError(f"{TOPIC_CONFIGS[name].server_name}: {error}") from error
    _check_advertised(settings)
    if settings.controller_quorum_voters:
        parse_voters(settings.controller_quorum_voters)


def _check_advertised(settings: BrokerSettings) -> None:
    """What clients are told to dial must be an address of one machine."""
    hidden = {name.strip() for name in settings.controller_listener_names.split(",")}
    advertised = parse_listeners(settings.advertised_listeners)
    for name, address in {**parse_listeners(settings.listeners), **advertised}.items():
        if name not in hidden and address.startswith(f"{ANY_ADDRESS}:"):
            raise ConfigError(
                f"clients cannot dial {name}://{address}: "
                f"set advertised.listeners={name}://HOST:PORT to where they find this broker"
            )


def roles(settings: BrokerSettings) -> list[str]:
    return [role.strip() for role in settings.process_roles.split(",") if role.strip()]


def parse_listeners(text: str) -> dict[str, str]:
    """`GRPC://127.0.0.1:50051,CONTROLLER://...` as a mapping of names to addresses. Raises `ConfigError`."""
    found: dict[str, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"([A-Z][A-Z0-9_]*)://(\[[^\]]*\]|[^:/]*):(\d{1,5})", part)
        if match is None or int(match[3]) > 65535:
            raise ConfigError(f"a listener looks like GRPC://127.0.0.1:50051, not {part!r}")
        if match[1] in found:
            raise ConfigError(f"the listener {match[1]} is named twice in {text!r}")
        found[match[1]] = f"{match[2] or ANY_ADDRESS}:{match[3]}"
    return found


def parse_voters(text: str) -> dict[int, str]:
    """`1@127.0.0.1:50061,2@...` as a mapping of ids to addresses. Raises `ConfigError`."""
    found: dict[int, str] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        match = re.fullmatch(r"(\d+)@([^@]+:\d{1,5})", part)
        if match is None:
            raise ConfigError(f"controller.quorum.voters looks like 1@127.0.0.1:50061,2@..., not {part!r}")
        found[int(match[1])] = match[2]
    return found
