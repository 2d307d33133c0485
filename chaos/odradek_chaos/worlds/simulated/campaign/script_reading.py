"""Reads a script that somebody may have edited: what cannot be carried out is refused before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from odradek_chaos.worlds.simulated.cluster.cluster import SHAPES
from odradek_chaos.worlds.simulated.faults.catalogue import what_is_wrong
from odradek_chaos.worlds.simulated.faults.choices import Participants, is_int
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.plan.script import Script, ScriptedRecord
from odradek_chaos.worlds.simulated.run.evidence import REACH_END_MS
from odradek_chaos.worlds.simulated.run.expansion import check, expand
from odradek_chaos.worlds.simulated.run.liveness import LIVENESS_MS

LEAST = {
    "faults_ms": 1,
    "partitions": 1,
    "writers": 1,
    "members": 0,
    "min_insync_replicas": 1,
}  # of the options that are numbers
MOST = {"partitions": 100, "writers": 100, "members": 100, "min_insync_replicas": 3}


def read_script(text: str) -> tuple[Script, Options]:
    """A script and the options of its run. Raises `ValueError` with what is wrong, where, and what is known."""
    script, given = Script.load(text)
    options = options_of_script(given)
    cast = participants_of(options, script.seed)
    for number, injection in enumerate(script.injections, 1):
        wrong = what_is_wrong(injection, cast)
        if wrong:
            raise ValueError(f"injection {number} of the script: {wrong}")
        if injection.at_us < 0:
            raise ValueError(
                f"injection {number} of the script: {injection.name} strikes at {injection.at_us}, before the start"
            )
    for number, send in enumerate(script.sends or (), 1):
        wrong = _what_is_wrong_with(send, cast, _latest_us(options))
        if wrong:
            raise ValueError(f"send {number} of the script: {wrong}")
    return script, options


def participants_of(options: Options, seed: int | None) -> Participants:
    """Whom a script may name. Each cluster has the nodes of three combined ones, which is all that is known without a
    seed."""
    shape, compaction = "combined", options.compaction
    if seed is not None:
        plan = expand(SimLoop(seed).fork_rng("plan"), options)
        shape, compaction = plan.shape, plan.compaction
    return Participants(options.partitions, options.writers, SHAPES[shape].nodes, options.members, compaction)


def _what_is_wrong_with(send: ScriptedRecord, cast: Participants, latest_us: int) -> str:
    if not 1 <= send.writer <= cast.writers:
        return f"writers are 1 to {cast.writers}, not {send.writer}"
    if not 0 <= send.partition < cast.partitions:
        return f"partitions are 0 to {cast.partitions - 1}, not {send.partition}"
    if send.at_us < 0:
        return f"it is handed over at {send.at_us}, before the start"
    if send.at_us > latest_us:
        return f"it is handed over at {send.at_us}, after the end: with these options at {latest_us} at the latest"
    return ""


def _latest_us(options: Options) -> int:
    """Of a send. Whoever waits for a later one, when the faults are over, is called stuck; no whole run has one."""
    core_ms = 0 if options.core == "never" else LIVENESS_MS
    return (options.faults_ms + core_ms + REACH_END_MS) * 1000


def options_of_script(given: Mapping[str, Any]) -> Options:
    """What a script says of them; the rest is as always. Raises `ValueError`."""
    known = {item.name: item.default for item in fields(Options)}
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"options of the script: {name!r} is none; there are {', '.join(known)}")
        values[name] = _value(name, value, known[name])
    return check(Options(**values))


def _value(name: str, value: Any, usual: object) -> object:
    if isinstance(usual, bool):
        wanted, fits = "true or false", isinstance(value, bool)
    elif isinstance(usual, int):
        least, most = LEAST[name], MOST.get(name)
        wanted = f"a whole number, {least} or more" if most is None else f"a whole number, {least} to {most}"
        fits = is_int(value) and value >= least and (most is None or value <= most)
    elif isinstance(usual, tuple):
        wanted = "a list of names"
        fits = isinstance(value, list) and all(isinstance(each, str) for each in value)
    else:
        wanted, fits = "a text", isinstance(value, str)
    if not fits:
        raise ValueError(f"options of the script: {name} must be {wanted}, not {value!r}")
    return tuple(value) if isinstance(value, list) else value
