"""`cluster.json`, in which `cluster up` describes a cluster: its addresses, and what is wrong with a broken one.

Rule of this module. Whoever meets a broken file is told which it is, what is wrong with it, and one thing to try.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from pathlib import Path

from odradek_proto.command_line import STATE_FILE, CommandFailed, read_small


def exists(directory: Path) -> bool:
    """Whether a cluster was laid out there, as far as we may look."""
    try:
        return (directory / STATE_FILE).exists()
    except OSError:
        return False


def addresses(file: Path) -> list[str]:
    """Where its brokers listen. Raises `OSError`, or `CommandFailed` for a file that says no addresses."""
    content = read_small(file)
    try:
        found = [node["grpc"] for node in json.loads(content)["nodes"]]
        if found and all(isinstance(address, str) and ":" in address for address in found):
            return found
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    raise CommandFailed(
        f"{file} {flaw(content, needed=['grpc'])}",
        hint="put it back from a copy, or name a broker with -b HOST:PORT: the broker-N.log files beside it tell where"
        " they listen; `odradek cluster up` starts another cluster",
    )


def addresses_at_work(directory: Path) -> set[str]:
    """Those of brokers of the cluster there whose processes run, though perhaps they do not listen yet.

    A number that another process has by now only makes somebody wait who need not.
    """
    try:
        nodes = json.loads(read_small(directory / STATE_FILE))["nodes"]
        return {node["grpc"] for node in nodes if _is_process(node["pid"])}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return set()


def _is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return pid > 0


def unreadable(file: Path, error: OSError) -> CommandFailed:
    """What to say of a file that is there and cannot be read."""
    return CommandFailed(
        f"{file} cannot be read: {error.strerror or error}", hint="make it readable for you, or put a copy there"
    )


def flaw(content: bytes, needed: Collection[str], known: Collection[str] = ()) -> str:
    """What is wrong with the content of a file that describes no cluster, to follow the file's name.

    `needed` has to be said of each broker, and with `known` nothing that is not in there.
    """
    try:
        state = json.loads(content.decode())
    except UnicodeDecodeError:
        return "is no UTF-8 text"
    except json.JSONDecodeError as error:
        return f"is no JSON (line {error.lineno}, column {error.colno}: {error.msg})"
    except RecursionError:
        return "is no JSON that is read: too deep"
    except ValueError:  # what remains: Python makes no number of thousands of digits
        return "is no JSON that is read: a number is too long"
    if not isinstance(state, dict):
        return "is not the JSON object that `odradek cluster up` writes"
    nodes = state.get("nodes")
    if not isinstance(nodes, list) or not nodes:
        return "has no 'nodes', the list of its brokers"
    for node in nodes:
        if not isinstance(node, dict):
            return "names brokers that are no JSON objects in 'nodes'"
        if lacking := [name for name in needed if name not in node]:
            return f"lacks {_quoted(lacking)} of a broker in 'nodes'"
        if unknown := [name for name in node if known and name not in known]:
            return f"says {_quoted(unknown)} of a broker in 'nodes', which odradek does not know"
    if lacking := [name for name in ("cluster_id", "settings") if name not in state]:
        return f"lacks {_quoted(lacking)}"
    return "has a value of a wrong kind"


def _quoted(names: list[str]) -> str:
    return ", ".join(map(repr, names))
