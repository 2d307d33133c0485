"""Settings from files, the environment and the command line, in this order, the later one winning.

Files are `.properties` as Kafka's, or `.toml` with the same dotted names; the environment is read as Kafka's container
images do. A name that neither Kafka nor odradek knows is an error with the nearest known name, or a warning when it
comes from the environment, where other programs' variables are; one that Kafka knows and odradek does not use is
reported once, so that real files load.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odradek_proto.command_line import read_small

from odradek_broker.config.assignors import parse_assignors
from odradek_broker.config.environment import from_environment, setting_of
from odradek_broker.config.listeners import check_listeners
from odradek_broker.config.log_levels import parse_levels
from odradek_broker.config.ranges import check_ranges
from odradek_broker.config.settings import FIELD_BY_KEY, FIELDS, OWN_PREFIX, BrokerSettings, shown
from odradek_broker.config.settings import SettingError as SettingError
from odradek_broker.config.startup_topics import parse_topics
from odradek_broker.config.startup_users import authorizer, enabled_mechanisms, parse_users
from odradek_broker.config.topic_settings import topic_defaults
from odradek_broker.config.unsupported import known_to_kafka
from odradek_broker.core.metadata.topic_configs import (
    ALL_TOPIC_CONFIGS,
    LARGEST_MESSAGE_BYTES,
    TIMESTAMP_TYPES,
    validate_topic_config,
)

ENVIRONMENT, COMMAND_LINE = "environment", "command line"
OTHER_NAMES = {
    "log.dir": "log.dirs",
    "log.roll.hours": "log.roll.ms",
    "log.retention.minutes": "log.retention.ms",
    "log.retention.hours": "log.retention.ms",
}
"""Kafka has several names for some settings; one of them is ours. Within one source our name wins, then the one that
stands first here, in whatever order the source has them: milliseconds before minutes before hours."""
OTHER_UNITS = {"hours": 3_600_000, "minutes": 60_000}
"""Milliseconds in what a setting of another name counts, by the last word of that name."""
_SIZES = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIMES = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
UNITS = {"ms": ("milliseconds", _TIMES), "bytes": ("bytes", _SIZES)}
"""What a setting counts by the last word of its name, and what else its value may be given in."""
_TYPES = {item.name: item.type for item in FIELDS}


@dataclass(slots=True, frozen=True)
class WrittenSetting:
    """What a source says of a setting, and by which of its names."""

    key: str
    text: str
    source: str


@dataclass(slots=True)
class LoadedConfig:
    """The settings and where each that was set came from."""

    settings: BrokerSettings
    sources: dict[str, str] = field(default_factory=dict)  # dotted name -> source
    unused: list[str] = field(default_factory=list)  # known to Kafka, not used here
    ignored: list[str] = field(default_factory=list)  # variables that look like settings and are none

    def set_by(self) -> list[str]:
        """Which source set what, a line for each."""
        by_source: dict[str, list[str]] = {}
        for name, source in self.sources.items():
            if source == COMMAND_LINE or source.startswith(f"{ENVIRONMENT} "):
                source = f"the {COMMAND_LINE if source == COMMAND_LINE else ENVIRONMENT}"
            by_source.setdefault(source, []).append(f"{name}={shown(self.settings, FIELD_BY_KEY[name])}")
        return [f"settings from {source}: {', '.join(pairs)}" for source, pairs in by_source.items()]

    def unheard(self) -> list[str]:
        """What was said and has no effect, a line for each kind."""
        lines = []
        if self.unused:
            lines.append(f"settings of Kafka that odradek does not use: {', '.join(self.unused)}")
        if self.ignored:
            lines.append(f"warning: variables that are no settings: {', '.join(map(_with_nearest, self.ignored))}")
        return lines


def load(
    path: Path | None = None, *, environment: Mapping[str, str] | None = None, overrides: Iterable[str] = ()
) -> LoadedConfig:
    """Read all sources. `overrides` are `key=value` strings. Raises `SettingError`."""
    values: dict[str, WrittenSetting] = {}
    unused: list[str] = []

    def take(pairs: Iterable[tuple[str, str]], source_of: Callable[[str], str]) -> None:
        """Take all of one source."""
        found: dict[str, WrittenSetting] = {}
        for key, text in pairs:
            name = OTHER_NAMES.get(key, key)
            if name in FIELD_BY_KEY:
                if name not in found or _rank(key) <= _rank(found[name].key):
                    found[name] = WrittenSetting(key, text, source_of(key))
            elif name.startswith(OWN_PREFIX) or not known_to_kafka(name):
                raise SettingError(f"{source_of(key)}: unknown setting {key!r}{_did_you_mean(name)}")
            else:
                unused.append(name)
        values.update(found)

    take((read_file(path) if path is not None else {}).items(), lambda _: str(path))
    variables = from_environment(environment or {}, also=OTHER_NAMES.__contains__)
    take(variables.values.items(), lambda key: f"{ENVIRONMENT} {variables.variables[key]}")
    take(map(_split_override, overrides), lambda _: COMMAND_LINE)
    settings = BrokerSettings(**{FIELD_BY_KEY[name]: _parse(name, written) for name, written in values.items()})
    check(settings, {name: f"{each.key}={each.text}" for name, each in values.items() if each.key != name})
    sources = {name: written.source for name, written in values.items()}
    return LoadedConfig(settings, sources, sorted(set(unused)), variables.ignored)


def read_file(path: Path) -> dict[str, str]:
    """Dotted names and their text from a `.properties` or `.toml` file. Raises `SettingError`."""
    try:
        text = read_small(path).decode()
    except OSError as error:
        raise SettingError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"{path} is not UTF-8 text") from error
    if path.suffix == ".toml":
        import tomllib

        try:
            return _flatten(tomllib.loads(text))
        except tomllib.TOMLDecodeError as error:
            raise SettingError(f"{path}: {error}") from error
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
            raise SettingError(f"{path}, line {number}: expected name=value, found {line!r}")
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


def _split_override(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise SettingError(f"expected key=value, found {text!r}")
    return key.strip(), value.strip()


def _rank(key: str) -> int:
    """Of two names of a setting in one source the smaller one wins."""
    return list(OTHER_NAMES).index(key) + 1 if key in OTHER_NAMES else 0


def _parse(name: str, written: WrittenSetting) -> Any:
    kind = _TYPES[FIELD_BY_KEY[name]]
    text = written.text.strip()
    try:
        if kind == "int":
            number = parse_number(text, written.key)
            return number if number == -1 else number * OTHER_UNITS.get(_last_word(written.key), 1)  # -1: unlimited
        if kind == "float":
            return parse_rate(text)
        if kind == "bool":
            return {"true": True, "false": False}[text.lower()]
    except (ValueError, KeyError) as error:
        wanted = f"a whole number{_units_of(written.key)}" if kind == "int" else "true or false"
        wanted = "a number above 0" if kind == "float" else wanted
        raise SettingError(f"{written.source}: {written.key} must be {wanted}, not {text!r}") from error
    return text


def parse_rate(text: str) -> float:
    """A number above 0. Raises `ValueError`."""
    rate = float(text)
    if not 0 < rate < float("inf"):
        raise ValueError(text)
    return rate


def parse_number(text: str, name: str) -> int:
    """A plain number, or one with a unit that the setting of this name may have: `30s` of a time in `.ms`, `64MiB` of
    a size in `.bytes`. Raises `ValueError`."""
    match = re.fullmatch(r"(-?\d+)\s*([A-Za-z]*)", text)
    if match is None:
        raise ValueError(text)
    if not match[2]:
        return int(match[1])
    _, units = UNITS.get(_last_word(name), ("", {}))
    factor = next((factor for unit, factor in units.items() if unit.lower() == match[2].lower()), None)
    if factor is None:
        raise ValueError(text)
    return int(match[1]) * factor


def _last_word(name: str) -> str:
    return name.rpartition(".")[2]


def _units_of(name: str) -> str:
    if _last_word(name) in OTHER_UNITS:
        return f" of {_last_word(name)}"
    counted, units = UNITS.get(_last_word(name), ("", {}))
    return f" ({counted}, or with {', '.join(units)})" if counted else ""


def _nearest(name: str, cutoff: float) -> str:
    import difflib  # a broker that starts has no use for it

    return next(iter(difflib.get_close_matches(name, list(FIELD_BY_KEY), n=1, cutoff=cutoff)), "")


def _did_you_mean(name: str) -> str:
    near = _nearest(name, 0.7)
    return f"; did you mean {near!r}?" if near else ""


def _with_nearest(variable: str) -> str:
    near = _nearest(setting_of(variable), 0.85)
    return f"{variable} (did you mean {near}?)" if near else variable


CHOICES = {
    "odradek_truncation_mode": ("fetch", "epoch-request", "epoch-single-round", "high-watermark"),
    "odradek_fsync": ("never", "before-ack"),
    "odradek_log_format": ("text", "json"),
    "message_timestamp_type": TIMESTAMP_TYPES,
    "group_consumer_migration_policy": ("bidirectional", "upgrade", "downgrade", "disabled"),
}


def check(settings: BrokerSettings, written: Mapping[str, str] | None = None) -> None:
    """What no single value shows. `written` are the settings that were given by another name, as they were given, for
    the messages. Raises `SettingError`."""
    for name, allowed in CHOICES.items():
        value = getattr(settings, name)
        if value not in allowed:
            key = next(key for key, field_name in FIELD_BY_KEY.items() if field_name == name)
            raise SettingError(f"{key} must be one of {', '.join(allowed)}, not {value!r}")
    if settings.node_id < 0:
        raise SettingError("node.id must be set to a number from 0 on; add node.id=1 to the file or -X node.id=1")
    check_ranges(settings)
    if settings.message_max_bytes > LARGEST_MESSAGE_BYTES:
        raise SettingError(
            f"message.max.bytes={settings.message_max_bytes} does not fit one message between brokers; "
            f"at most {LARGEST_MESSAGE_BYTES}"
        )
    if "," in settings.log_dirs:
        one = next((part.strip() for part in settings.log_dirs.split(",") if part.strip()), "DIRECTORY")
        raise SettingError(
            f"log.dirs={settings.log_dirs!r}: a broker has one log directory, several are not supported; "
            f"give one, log.dirs={one} (in the environment KAFKA_LOG_DIRS={one})"
        )
    if not set(roles(settings)) <= {"broker", "controller"} or not roles(settings):
        raise SettingError(f"process.roles must name broker, controller or both, not {settings.process_roles!r}")
    for name, value in topic_defaults(settings).items():
        try:
            validate_topic_config(name, value)
        except ValueError as error:
            key = ALL_TOPIC_CONFIGS[name].server_name
            raise SettingError(f"{(written or {}).get(key, key)}: {error}") from error
    try:
        parse_levels(settings.odradek_log_level)
    except ValueError as error:
        raise SettingError(f"odradek.log.level={settings.odradek_log_level}: {error}") from error
    check_listeners(settings)
    parse_topics(settings.odradek_create_topics)
    parse_users(settings.odradek_create_users)
    enabled_mechanisms(settings)
    parse_assignors(settings)
    authorizer(settings)


def roles(settings: BrokerSettings) -> list[str]:
    return [role.strip() for role in settings.process_roles.split(",") if role.strip()]
