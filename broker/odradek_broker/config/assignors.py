"""group.consumer.assignors: which assignors of KIP-848 members may choose from."""

from __future__ import annotations

from odradek_broker.config.settings import BrokerSettings, SettingError
from odradek_broker.core.groups.assignors import ASSIGNORS


def parse_assignors(settings: BrokerSettings) -> tuple[str, ...]:
    """By their names, or by those of Kafka's classes. Raises `SettingError`."""
    known = {name: name for name in ASSIGNORS}
    known |= {f"org.apache.kafka.coordinator.group.assignor.{name.capitalize()}Assignor": name for name in ASSIGNORS}
    named = [part.strip() for part in settings.group_consumer_assignors.split(",") if part.strip()]
    if wrong := next((name for name in named if name not in known), None):
        raise SettingError(f"group.consumer.assignors: there are {', '.join(ASSIGNORS)}, not {wrong!r}")
    if not named:
        raise SettingError(f"group.consumer.assignors is empty: name some of {', '.join(ASSIGNORS)}")
    return tuple(dict.fromkeys(known[name] for name in named))
