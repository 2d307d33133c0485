"""The file of `--command-config`: how a command talks with brokers, as Kafka's `client.properties` says it."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Final

from odradek_proto.command_line import read_small

from odradek.shared.config import AdminConfig, ConsumerConfig, ProducerConfig, nearest
from odradek.shared.errors import ConfigError, UnsupportedFeature
from odradek.shared.kafka import SAME, settle_foreign
from odradek.shared.security import Security, check_security

_OF_CLIENTS: Final = frozenset(
    field.name for kind in (AdminConfig, ConsumerConfig, ProducerConfig) for field in fields(kind)
)


def security_from(path: Path) -> Security:
    """TLS and user; paths may be relative to the file. Settings of producers and consumers are passed over.

    Raises `ConfigError`, also for a name that nobody knows: a misspelt `ssl.` setting would be a connection without.
    """
    try:
        lines = [line.strip() for line in read_small(path).decode().splitlines()]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    found: dict[str, str] = {}
    for written, _, text in (line.partition("=") for line in lines if line and line[0] not in "#!"):
        value, dotted = text.strip(), written.strip().replace("_", ".")
        name = dotted.replace(".", "_")
        name = SAME.get(name, name)
        if name in Security.__struct_fields__:
            found[name] = value
        elif name not in _OF_CLIENTS:
            _judge(path, dotted, value)
    for name in ("ssl_truststore_location", "ssl_keystore_location"):
        if found.get(name):
            found[name] = str(path.absolute().parent / found[name])
    security = Security(**found)
    check_security(security)
    return security


def _judge(path: Path, name: str, value: str) -> None:
    """Raises `ConfigError` for what is misspelt, or not there."""
    mine = [each.replace("_", ".") for each in Security.__struct_fields__]
    if meant := nearest(name, mine):
        raise ConfigError(f"{path}: unknown setting {name!r}", hint=f"did you mean {meant!r}?")
    try:
        is_known = settle_foreign(name, value, str(path))
    except UnsupportedFeature as error:
        raise ConfigError(f"{path}: {error.message}", hint=error.hint) from None
    if not is_known:
        raise ConfigError(
            f"{path}: unknown setting {name!r}",
            hint=f"it takes {', '.join(mine)}, and passes over other settings of Kafka's clients",
        )
