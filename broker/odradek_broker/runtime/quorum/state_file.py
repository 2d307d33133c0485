"""`quorum-state`: what a node of the quorum must not forget, as JSON with Kafka's field names (R-201).

    {"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}

Of a voter that is new, or has lost its disk, it has `"catchingUp":true` besides, until it has everything that was
committed (R-217).

Rules of this module. The file is replaced whole and flushed, with its directory, before `write` returns. A file that
cannot be read stops the node: to guess here would be to vote twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from odradek_proto.transport.ports import Files

from odradek_broker.core.quorum.messages import QuorumState
from odradek_broker.storage.atomic import read_file, replace_file
from odradek_broker.storage.errors import StorageError

QUORUM_STATE = "quorum-state"
DATA_VERSION = 0


REMEDY = (
    "restore the file from a backup, or, while the other controllers are a majority of all, remove its directory as a"
    " whole: the node then joins as one with an empty disk and gets everything from them"
)


class UnreadableQuorumState(StorageError):
    """The file is there and does not say what a node has voted."""


def read_quorum_state(files: Files, directory: str) -> QuorumState:
    """The state as it was last written; without a file that of a node that may have forgotten everything. Blocking.

    Raises `UnreadableQuorumState`.
    """
    path = f"{directory}/{QUORUM_STATE}"
    content = read_file(files, path)
    if content is None:
        return QuorumState(catching_up=True)
    try:
        fields: dict[str, Any] = json.loads(content)
        version = fields["data_version"]
        epoch, leader, voted = fields["leaderEpoch"], fields["leaderId"], fields["votedId"]
    except (ValueError, KeyError, TypeError) as error:
        raise UnreadableQuorumState(f"{path} cannot be read ({error!r}): {REMEDY}") from error
    if version != DATA_VERSION or not all(type(number) is int for number in (epoch, leader, voted)) or epoch < 0:
        wrong = f"version {version}, epoch {epoch}, leader {leader}, voted {voted}"
        raise UnreadableQuorumState(f"{path} is of no use ({wrong}): {REMEDY}")
    return QuorumState(epoch, leader, voted, fields.get("catchingUp") is True)


def write_quorum_state(files: Files, directory: str, state: QuorumState, voters: Sequence[int]) -> None:
    """Make `state` durable. Raises `OSError`. Blocking."""
    fields = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in voters],
        "data_version": DATA_VERSION,
    }
    if state.catching_up:
        fields["catchingUp"] = True
    content = json.dumps(fields, separators=(",", ":")).encode()
    replace_file(files, directory, QUORUM_STATE, content, durable=True)
