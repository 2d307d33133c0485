"""Events in the log: one table from each event to a logger, a level and a sentence.

Rules of this module. Nothing is logged twice: code that writes an event does not log as well. WARNING is for what
requires action, ERROR for damage and failures. Events of every partition in a failover are INFO once, on the side that
an operator would look at, and DEBUG elsewhere; DEBUG is also for events that only the event log needs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

from odradek_proto.values import Value

from odradek_broker.config.log_levels import CONTROLLER, QUORUM, REPLICA, SESSION

Facts = Mapping[str, object]

NOBODY = -1
NODES = ("leader", "replica", "candidate")  # facts that name a broker or a voter by its id


def never(facts: Facts) -> bool:
    return False


class EventLine(Value, frozen=True):
    """A level, a sentence as logging takes it, and when it is a WARNING all the same."""

    level: int
    sentence: str
    alarming: Callable[[Facts], bool] = never


def _line(level: int, sentence: str, alarming: Callable[[Facts], bool] = never) -> EventLine:
    return EventLine(level, sentence.replace("{", "%(").replace("}", ")s"), alarming)


_debug, _info = partial(_line, logging.DEBUG), partial(_line, logging.INFO)
_warning, _error = partial(_line, logging.WARNING), partial(_line, logging.ERROR)


def _leaderless_or_unclean(facts: Facts) -> bool:
    return facts.get("leader") == NOBODY or bool(facts.get("unclean"))


def _not_just_fenced(facts: Facts) -> bool:
    return facts.get("rule") != "R-91"  # harmless, and usual in a failover: new metadata are on their way


LINES: Mapping[str, Mapping[str, EventLine]] = {
    REPLICA: {
        "leader_elected": _info(
            "{partition}: leads in leader epoch {leader_epoch} from offset {epoch_start_offset} on, ISR {isr}"
        ),
        "became_follower": _info(
            "{partition}: follows {leader} in leader epoch {leader_epoch} from offset {log_end_offset} on"
        ),
        "progress": _debug("log ends and high watermarks: {offsets}"),
        "truncated": _info("{partition}: truncated to {to} from {from} ({rule})"),
        "log_restarted": _info("{partition}: log dropped at {log_end_offset}, begun anew at {to} ({rule})"),
        "isr_proposed": _debug("{partition}: asks the controller for the ISR {to} instead of {from}"),
        "isr_changed": _info("{partition}: ISR {to} instead of {from}"),
        "isr_refused": _debug("{partition}: the controller refused another ISR: {error}"),
        "fenced": _debug("{partition}: a request was refused for its epoch: {error}"),
        "replica_failed": _debug("{partition}: not replicated: {reason}", _not_just_fenced),
        "replica_offline": _error("{partition}: offline: {reason}"),
        "disk_full": _error("{partition}: {reason}; it is read-only until there is room"),
        "disk_has_room": _info("{partition}: {reason}"),
        "corruption_found": _error("{partition}: {reason}; `odradek log verify` says more"),
        "log_cut_in_recovery": _info("{partition}: log cut at {log_end_offset}, {bytes} bytes dropped: {reason}"),
        "log_lacks_records": _error(
            "{partition}: the log ends at offset {log_end_offset} and had records up to {promised} once; it leads "
            "nothing while another replica may have more, and fetches from the leader what it lacks"
        ),
        "log_cleaned": _info(
            "{partition}: compacted from offset {from} to {to}: {bytes_after} instead of {bytes_before} bytes"
        ),
        "log_not_cleaned": _warning("{partition}: not compacted: {reason}"),
        "replica_mended": _info("{partition}: no records are missing here any more, the log ends at {log_end_offset}"),
        "leader_unreachable": _warning("{leader}, which leads partitions that are followed here, does not answer"),
        "leader_reachable": _info("{leader} answers again"),
        "replica_deleted": _info("{partition}: no replica here any more, its log will be removed"),
        "stray_log_set_aside": _info("{partition}: the metadata know nothing of this log; it is set aside as *-stray"),
    },
    SESSION: {
        "registered": _info("registered with the controller, broker epoch {broker_epoch}"),
        "registration_refused": _warning("the controller refuses to register this broker: {error}: {message}"),
        "session_refused": _info("the controller does not know this session ({error}): registering again"),
        "unfenced": _info("unfenced: this broker takes part"),
        "fenced": _info("fenced: the controller counts this broker out"),
    },
    CONTROLLER: {
        "controller_activated": _info("this node is the active controller, in quorum epoch {epoch}"),
        "controller_resigned": _info(
            "this node is the active controller no more (quorum epoch {epoch}); records not committed: {uncommitted}"
        ),
        "controller_write_refused": _debug("not written, since this node leads no more: {records} records"),
        "controller_failed": _error("the controller failed: {error}"),
        "controller_suspects_itself": _warning(
            "{silent} of {unfenced} brokers fell silent at once: broker {broker_id} is left to its session timeout"
        ),
        "broker_unreachable": _warning(
            "broker {broker_id} does not answer other brokers: the balance gives it no leadership"
        ),
        "broker_reachable": _info("broker {broker_id} answers other brokers again"),
        "broker_full": _warning(
            "the disk of broker {broker_id} is full: other in-sync replicas lead what it leads, until it has room"
        ),
        "broker_has_room": _info("the disk of broker {broker_id} has room again"),
        "broker_registered": _info("broker {broker_id} has registered, broker epoch {broker_epoch}"),
        "broker_unregistered": _info("broker {broker_id} was unregistered by an administrator"),
        "broker_fencing": _info("broker {broker_id} is fenced: {reason}"),
        "broker_fenced": _debug("broker {broker_id} is fenced, broker epoch {broker_epoch}"),
        "broker_unfenced": _info("broker {broker_id} is unfenced"),
        "broker_leaving": _info("broker {broker_id} shuts down"),
        "topic_created": _info("topic {topic} created, id {topic_id}"),
        "topic_deleted": _info("topic deleted, id {topic_id}"),
        "leader_chosen": _info(
            "{topic}-{partition}: {leader} leads in leader epoch {leader_epoch}, ISR {isr}", _leaderless_or_unclean
        ),
        "replicas_decided": _info("{topic}-{partition}: replicas {replicas}, adding {adding}, removing {removing}"),
        "isr_decided": _debug("{topic}-{partition}: ISR {isr}, partition epoch {partition_epoch}"),
    },
    QUORUM: {
        "became_candidate": _info("asks for votes in quorum epoch {epoch}"),
        "vote_granted": _debug("voted for {candidate} in quorum epoch {epoch}"),
        "voter_caught_up": _info("has all committed metadata: its votes count again"),
        "leader_elected": _info("elected in quorum epoch {epoch} by {granted}"),
        "leadership_began": _debug("quorum epoch {epoch}: first record committed after {after_ms} ms"),
        "became_follower": _info("follows {leader} in quorum epoch {epoch}"),
        "leader_lost": _info("{leader}, leader of quorum epoch {epoch}, is lost: {reason}"),
        "resigned": _info("leads the quorum no more (quorum epoch {epoch})"),
        "disk_full": _error("no room for the metadata log: {reason}; this node takes no part until there is room"),
        "disk_has_room": _info("metadata log: {reason}; this node takes part again"),
        "truncated": _info("metadata log truncated to {to} from {leo}: {reason}"),
        "snapshot_taken": _info("snapshot of the metadata at {end_offset}, {bytes} bytes"),
        "metadata_log_start_moved": _debug("metadata log starts at {to} now"),
        "log_cut_in_recovery": _info("metadata log cut at {leo}, {bytes} bytes dropped: {reason}"),
        "metadata_log_lacks_records": _error(
            "the metadata log ends at {leo} and had records up to {promised} once: this voter elects nobody without "
            "the votes of all others, until it has fetched everything that is committed"
        ),
        "snapshot_set_aside": _warning("snapshot of the metadata at {end_offset} set aside: {reason}"),
        "snapshot_fetch_began": _info("fetches the snapshot of the metadata at {end_offset} from {leader}"),
        "snapshot_fetch_failed": _info("snapshot at {end_offset} of {leader} given up: {reason}"),
        "snapshot_installed": _info("goes on from the snapshot of the metadata at {end_offset}, {bytes} bytes"),
    },
}
"""By logger, since parts of a broker share some names."""


_logger = cache(logging.getLogger)


def log_event(logger_name: str, event: str, broker_id: int, facts: Facts) -> None:
    """Say an event in the log, if it has a line there. `facts` are those of the file, the rule among them."""
    line = LINES[logger_name].get(event)
    if line is None:
        return
    logger = _logger(logger_name)
    level = logging.WARNING if line.level < logging.WARNING and line.alarming(facts) else line.level
    if logger.isEnabledFor(level):
        noun = "node" if logger_name == QUORUM else "broker"
        words = _Words((name, _worded(name, value, noun)) for name, value in facts.items())
        if "reason" in words:  # an error may name the partition by itself
            words["reason"] = str(words["reason"]).removeprefix(f"{facts.get('partition')}: ")
        said = {"broker": broker_id, "event": event, "facts": dict(facts)}
        logger.log(level, line.sentence, words, extra=said)


class _Words(dict[str, Any]):
    """Facts in words; one that is missing is told as a question mark: a line must not stop the work it speaks of."""

    def __missing__(self, name: str) -> str:
        return "?"


def _worded(name: str, value: object, noun: str) -> object:
    if name in NODES and isinstance(value, int):
        return "nobody" if value == NOBODY else f"{noun} {value}"
    if isinstance(value, list | tuple):
        return ",".join(map(str, value)) or "none"
    return value
