"""What was owed to clients: the rows of docs/guarantees.md that the cluster's configuration selects.

The configuration is what whoever started the audit said (`--setting NAME=VALUE`); the log directories do not hold it.
What was not said leaves all of its rows standing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ACKS, MIN_ISR, FSYNC = "acks", "min.insync.replicas", "odradek.fsync"
UNCLEAN, TRUNCATION = "unclean.leader.election.enable", "odradek.truncation.mode"


@dataclass(frozen=True)
class Owed:
    """One configuration, and whether acknowledged records may be lost by kills, one power loss, several."""

    acks: str
    min_isr: str
    fsync: str
    kills: str
    one_power_loss: str
    several: str


ROWS = (
    Owed("0", "any", "any", "nothing was acknowledged", "nothing was acknowledged", "nothing was acknowledged"),
    Owed("1", "any", "any", "may be lost at a change of leader", "may be lost", "may be lost"),
    Owed("all", "1", "never", "kept", "kept if the ISR had two members at the acknowledgement", "may be lost"),
    Owed("all", "2", "never", "kept", "kept", "may be lost"),
    Owed("all", "2", "before-ack", "kept", "kept", "kept"),
)


def rows_for(configuration: Mapping[str, str]) -> list[Owed]:
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
