"""`quorum-state`: what a node of the quorum must not forget, as JSON with Kafka's field names (R-201).

    {"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}

For a voter that is new, or has lost its disk, it also has `"catchingUp":true`, until the voter has everything that was
committed (R-217).

Rules of this module. The file is replaced whole and flushed, with its directory, before `write` returns. An unreadable
file stops the node: guessing here could mean voting twice.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from odradek_proto.transport.ports import Files

from odradek_broker.core.quorum.messages import FIRST_EPOCH, LAST_EPOCH, NO_NODE, QuorumState
from odradek_broker.storage.atomic import read_file, replace_file
from odradek_broker.storage.errors import StorageError

QUORUM_STATE = "quorum-state"
DATA_VERSION = 0


REMEDY = (
    "restore the file from a backup, or, while the other controllers are a majority of all, remove its directory as a"
    " whole: the node then joins as one with an empty disk and gets everything from them. Where no majority is left,"
    ' see "The quorum-state of a controller is of no use" in docs/troubleshooting.md'
)
LARGEST_ID = 2**31 - 1  # node ids are Kafka's int32


_encode = json.JSONEncoder(separators=(",", ":")).encode


class UnreadableQuorumState(StorageError):
    """The file is there and does not say what a node has voted."""


class OtherVoters(StorageError):
    """The file was written among other voters than the configured ones: two majorities could be made of them."""


def read_quorum_state(files: Files, directory: str, voters: Sequence[int] = ()) -> QuorumState:
    """The state as it was last written; without a file that of a node that may have forgotten everything. `voters`
    are the configured ones; without any they are not compared. Blocking.

    Raises `UnreadableQuorumState` and `OtherVoters`.
    """
    path = f"{directory}/{QUORUM_STATE}"
    content = read_file(files, path)
    if content is None:
        return QuorumState(catching_up=True)
    try:
        fields: dict[str, Any] = json.loads(content)
        version = fields["data_version"]
        state = QuorumState(
            fields["leaderEpoch"], fields["leaderId"], fields["votedId"], fields.get("catchingUp") is True
        )
        written_for = [voter["voterId"] for voter in fields.get("currentVoters") or ()]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else "it is not the JSON of such a file"
        raise UnreadableQuorumState(f"{path} cannot be read ({why}): {REMEDY}") from error
    if version != DATA_VERSION or not _can_be(state):
        wrong = f"version {version}, epoch {state.epoch}, leader {state.leader_id}, voted {state.voted_id}"
        raise UnreadableQuorumState(f"{path} is of no use ({wrong}): {REMEDY}")
    if voters and written_for and written_for != sorted(voters):
        raise OtherVoters(
            f"controller.quorum.voters names the voters {sorted(voters)}, and {path} was written among {written_for}:"
            " voters cannot be changed, since the old and the new ones could elect two leaders; correct the setting"
        )
    return state


def _can_be(state: QuorumState) -> bool:
    """Whether every field is a number that a node can have written."""
    ids = (state.leader_id, state.voted_id)
    return (
        all(type(number) is int for number in (state.epoch, *ids))
        and FIRST_EPOCH <= state.epoch <= LAST_EPOCH
        and all(NO_NODE <= node_id <= LARGEST_ID for node_id in ids)
    )


def write_quorum_state(files: Files, directory: str, state: QuorumState, voters: Sequence[int]) -> None:
    """Make `state` durable. Raises `OSError`, and `ValueError` for what could not be read again. Blocking."""
    if not _can_be(state):
        raise ValueError(f"{directory}/{QUORUM_STATE} stays as it is: {state} could not be read again")
    fields = {
        "clusterId": "",
        "leaderId": state.leader_id,
        "leaderEpoch": state.epoch,
        "votedId": state.voted_id,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": voter} for voter in sorted(voters)],
        "data_version": DATA_VERSION,
    }
    if state.catching_up:
        fields["catchingUp"] = True
    content = _encode(fields).encode()
    replace_file(files, directory, QUORUM_STATE, content, durable=True)
