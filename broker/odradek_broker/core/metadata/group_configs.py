"""The settings that a single group of KIP-848 may have: Kafka's names and types.

A group's value wins over what the brokers' configuration gives all groups, and must lie within the limits there:
`consumer.session.timeout.ms` from `group.consumer.min.session.timeout.ms` to `group.consumer.max.session.timeout.ms`.

Unlike Kafka, settings of share groups and streams groups are unknown: there are no such groups.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from odradek_broker.core.metadata.config_types import ConfigDefinition, ConfigType, at_least

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"


def define_group_configs(
    session_timeout_ms: tuple[int, int, int] = (45_000, 45_000, 60_000),
    heartbeat_interval_ms: tuple[int, int, int] = (5_000, 5_000, 15_000),
) -> Mapping[str, ConfigDefinition]:
    """By name. Of each: what groups without a value have, the least and the most; the defaults are Kafka's."""
    return {
        name: ConfigDefinition(name, ConfigType.INT, str(default), at_least(least, most), f"group.{name}")
        for name, (default, least, most) in (
            (HEARTBEAT_INTERVAL, heartbeat_interval_ms),
            (SESSION_TIMEOUT, session_timeout_ms),
        )
    }
