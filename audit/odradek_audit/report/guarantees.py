"""What was owed to clients: the rows of docs/guarantees.md that the cluster's configuration selects.

The configuration is what whoever started the audit said (`--setting NAME=VALUE`); the log directories do not hold it.
What was not said leaves all of its rows standing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

ACKS, MIN_ISR, FSYNC = "acks", "min.insync.replicas", "odradek.fsync"
UNCLEAN, TRUNCATION = "unclean.leader.election.enable", "odradek.truncation.mode"


KNOWN: Mapping[str, tuple[str, ...]] = {
    ACKS: ("all", "-1", "1", "0"),
    MIN_ISR: (),
    FSYNC: ("never", "before-ack"),
    UNCLEAN: ("true", "false"),
    TRUNCATION: ("fetch", "epoch-request", "epoch-single-round", "high-watermark"),
}
"""Settings on which hangs what was owed, and their values; none are listed where it is a number from 1 on."""
_FROM_ONE = re.compile(r"[1-9][0-9]{0,8}", re.ASCII)


@dataclass(frozen=True)
class ConfigurationGuarantee:
    """One configuration, and whether acknowledged records may be lost by kills, one power loss, several."""

    acks: str
    min_isr: str
    fsync: str
    kills: str
    one_power_loss: str
    several: str


ROWS = (
    ConfigurationGuarantee(
        "0", "any", "any", "nothing was acknowledged", "nothing was acknowledged", "nothing was acknowledged"
    ),
    ConfigurationGuarantee("1", "any", "any", "may be lost at a change of leader", "may be lost", "may be lost"),
    ConfigurationGuarantee(
        "all", "1", "never", "kept", "kept if the ISR had two members at the acknowledgement", "may be lost"
    ),
    ConfigurationGuarantee("all", "2", "never", "kept", "kept", "may be lost"),
    ConfigurationGuarantee("all", "2", "before-ack", "kept", "kept", "kept"),
)


def parse_settings(entries: Sequence[str]) -> dict[str, str]:
    """`NAME=VALUE` entries as a mapping. Raises `ValueError` that says what is known, for anything else: a setting that
    is read past would be promised in the report and judged by nothing."""
    settings: dict[str, str] = {}
    for entry in entries:
        key, equals, value = (part.strip() for part in entry.partition("="))
        if not key or not equals or not value:
            raise ValueError(f"{entry}: give NAME=VALUE, such as min.insync.replicas=2")
        if key not in KNOWN:
            raise ValueError(f"{entry}: the audit knows {', '.join(KNOWN)}; it judges by nothing else")
        values = KNOWN[key]
        if value not in values and (values or not _FROM_ONE.fullmatch(value)):
            raise ValueError(f"{entry}: give {_one_of(values) if values else 'a number from 1 on'}")
        if settings.setdefault(key, value) != value:
            raise ValueError(f"{entry}: {key} is given twice, and first as {settings[key]}")
    return settings


def _one_of(values: Sequence[str]) -> str:
    return f"{', '.join(values[:-1])} or {values[-1]}"


def rows_for(configuration: Mapping[str, str]) -> list[ConfigurationGuarantee]:
    """The rows that fit what is known. More than two in-sync replicas owe what two do."""
    wanted = {
        "acks": {"-1": "all"}.get(configuration.get(ACKS, ""), configuration.get(ACKS, "")),
        "min_isr": configuration.get(MIN_ISR, ""),
        "fsync": configuration.get(FSYNC, ""),
    }
    if wanted["min_isr"].isdecimal() and int(wanted["min_isr"]) > 2:
        wanted["min_isr"] = "2"
    return [
        row
        for row in ROWS
        if all(getattr(row, field) in (value, "any") or not value for field, value in wanted.items())
    ]


def exceptions(configuration: Mapping[str, str]) -> list[str]:
    """What takes promises back."""
    said = []
    if configuration.get(UNCLEAN, "false").lower() == "true":
        said.append(
            "Unclean elections were allowed: any acknowledged record may be lost in an election that the metadata log "
            "marks as unclean."
        )
    if configuration.get(TRUNCATION) == "high-watermark":
        said.append(
            "Replicas truncated to their high watermark, as Kafka did before KIP-101: neither equal replicas nor "
            "acknowledged records were promised."
        )
    return said
