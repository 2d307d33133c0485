"""Settings from environment variables, as Kafka's container images read them.

    KAFKA_CFG_ | KAFKA_ | ODRADEK_   +   the setting, in capitals, with   . -> _    _ -> __    - -> ___

The prefixes are read in this order, the later winning. After ODRADEK_ a setting of odradek's own may go without its
`odradek.`: ODRADEK_FSYNC is `odradek.fsync`. CLUSTER_ID is `cluster.id`, and KAFKA_CREATE_TOPICS, which several images
know, is `odradek.create.topics`. Every other variable with such a prefix is ignored, and named, since it may be a slip.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from odradek_broker.config.settings import FIELD_BY_KEY, OWN_PREFIX
from odradek_broker.config.unsupported import known_to_kafka

PREFIXES = ("KAFKA_CFG_", "KAFKA_", "ODRADEK_")
OWN_VARIABLES = "ODRADEK_"
WHOLE_NAMES = {
    "CLUSTER_ID": "cluster.id",
    "KAFKA_CREATE_TOPICS": "odradek.create.topics",
    "KAFKA_CFG_CREATE_TOPICS": "odradek.create.topics",
}
NOT_FOR_BROKERS = frozenset(
    {"ODRADEK_BOOTSTRAP", "ODRADEK_COMMAND_CONFIG", "ODRADEK_HOME", "ODRADEK_DEBUG", "ODRADEK_KAFKA_PORT"}
)  # the command reads them, and hands its environment on to the brokers of `cluster up`


@dataclass(slots=True)
class Environment:
    """What an environment says about settings."""

    values: dict[str, str] = field(default_factory=dict)  # dotted name -> text
    variables: dict[str, str] = field(default_factory=dict)  # dotted name -> the variable that set it
    ignored: list[str] = field(default_factory=list)  # variables with a prefix of ours that are no settings


def from_environment(
    environment: Mapping[str, str], *, also: Callable[[str], bool] = lambda name: False
) -> Environment:
    """Read an environment. `also` knows names beside those of the settings, such as `log.retention.hours`."""
    found = Environment()
    for prefix in ("", *PREFIXES):
        for variable, text in sorted(environment.items()):
            if _prefix_of(variable) != prefix or variable in NOT_FOR_BROKERS:
                continue
            if not prefix and variable not in WHOLE_NAMES:
                continue
            name = setting_of(variable)
            if name in FIELD_BY_KEY or also(name) or known_to_kafka(name):
                found.values[name], found.variables[name] = text, variable
            elif prefix:
                found.ignored.append(variable)
    return found


def setting_of(variable: str) -> str:
    """The dotted name that a variable would set, whether there is such a setting or not."""
    if variable in WHOLE_NAMES:
        return WHOLE_NAMES[variable]
    prefix = _prefix_of(variable)
    name = variable[len(prefix) :].lower()
    name = name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
    own = OWN_PREFIX + name
    return own if prefix == OWN_VARIABLES and own in FIELD_BY_KEY else name


def _prefix_of(variable: str) -> str:
    """The longest prefix, or nothing."""
    return next((prefix for prefix in PREFIXES if variable.startswith(prefix)), "")
