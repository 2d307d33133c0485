"""Which cluster is meant when nobody says: the one that was started last on this machine.

`odradek cluster up` writes the directory of its cluster into `~/.odradek/current`; ODRADEK_HOME names another place
than `~/.odradek`. The directory holds `cluster.json` with the addresses. Further lines of the file name the clusters
that were started before and are still there: when the last one ends, the first of them that runs is meant again. One
that is stopped is found by `odradek cluster up` and `odradek cluster list`, and is meant by no other command: the first
line is empty then.
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from odradek_proto.command_line import (
    CLIENT_SETTINGS,
    COMMAND_CONFIG,
    CURRENT,
    HOW_TO_NAME,
    STATE_FILE,
    UNREACHABLE,
    USAGE,
    CommandFailed,
    check_directory,
    cluster_directories,
    current_directory,
    home,
)

from odradek.cli.clusters import file as cluster_file

LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|\[::1\]", re.IGNORECASE)
StillRuns = Callable[[Path], bool]


def writable_home() -> Path:
    """The place, made if it is not there. Raises `CommandFailed` when nothing can be written there."""
    place = home()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place) as file:
            file.write(b"\n")  # a full disk takes a file, and nothing into it
            file.flush()
            return place
    except OSError as error:
        name = f"ODRADEK_HOME, {place}" if os.environ.get("ODRADEK_HOME") else str(place)
        raise CommandFailed(
            f"cannot write to {name}: {error.strerror or error}",
            hint="set ODRADEK_HOME to a directory of yours: which cluster is the default is kept there",
        ) from error


def remember(directory: Path, still_runs: StillRuns = lambda _: False) -> Path | None:
    """Make a cluster the one that is meant when nobody says. Raises `CommandFailed`.

    Those before it are kept while they are there. Returns the newest of them that runs.
    """
    place = writable_home()
    others = [each for each in cluster_directories() if each != directory and cluster_file.exists(each)]
    _write(place, [directory, *others])
    return next(filter(still_runs, others), None)


def step_back(directory: Path, still_runs: StillRuns) -> Path | None:
    """A cluster was stopped and can be started again. Returns the one that is the default in its place, if one runs."""
    before, default = cluster_directories(), current_directory()
    if directory not in before:
        return None
    running = [each for each in before if each != directory and still_runs(each)]
    others = [each for each in before if each not in (directory, *running)]
    _write(home(), [*running, directory, *others], default=bool(running) or default is not None)
    return running[0] if running and before[0] == directory else None


def forget(directory: Path, still_runs: StillRuns) -> Path | None:
    """A cluster went down for good. Returns as `step_back`."""
    default = current_directory()
    again = step_back(directory, still_runs)
    left = [each for each in cluster_directories() if each != directory]
    if left:
        _write(home(), left, default=again is not None or default not in (None, directory))
    else:
        (home() / CURRENT).unlink(missing_ok=True)
    return again


def _write(place: Path, directories: Sequence[Path], *, default: bool = True) -> None:
    temporary = place / f"{CURRENT}.{os.getpid()}"
    lines = [os.fsencode(each) + b"\n" for each in directories]
    temporary.write_bytes(b"".join(lines if default else [b"\n", *lines]))
    temporary.replace(place / CURRENT)


def data_directory(given: str | None) -> Path:
    """The directory of the cluster on this machine that is meant. Raises `CommandFailed` when none is there.

    As everywhere, a path that was named is wrong usage (2), and no cluster to talk to is a cluster unreachable (4).
    """
    directory = current_directory() if given is None else check_directory("--data", given)
    if directory is None:
        known = "; `odradek cluster list` names those that are stopped" if cluster_directories() else ""
        hint = f"odradek cluster up, or --data DIR{known}"
        raise CommandFailed(
            "no cluster of this machine was named, and none is the default", hint=hint, exit_code=UNREACHABLE
        )
    try:
        (directory / STATE_FILE).stat()
    except (FileNotFoundError, NotADirectoryError) as error:
        if given is None:
            raise _gone(directory, "`odradek cluster up` starts a cluster; --data DIR names one") from error
        start = f"odradek cluster up --data {shlex.quote(str(directory))}"
        raise CommandFailed(
            f"there is no cluster in {directory}", hint=f"`{start}` starts one", exit_code=USAGE
        ) from error
    except OSError as error:
        raise cluster_file.unreadable(directory / STATE_FILE, error) from error
    return directory


def _gone(directory: Path, hint: str) -> CommandFailed:
    return CommandFailed(
        f"the cluster that was started last, in {directory}, is gone", hint=hint, exit_code=UNREACHABLE
    )


def talk_as_told(directory: Path | None) -> None:
    """Use TLS and a user as `--command-config` says, or as the cluster there wants it. Raises `ConfigError`."""
    named = os.environ.get(COMMAND_CONFIG)
    file = Path(named) if named else directory / CLIENT_SETTINGS if directory else None
    from odradek.shared.properties import security_from
    from odradek.shared.security import UNSAID, talk_by_default

    talk_by_default(security_from(file) if file is not None and (named or file.exists()) else UNSAID)


def bootstrap_servers(given: str | None) -> str:
    """Addresses to begin with. Raises `CommandFailed` when none was given and no cluster is remembered (4), and for
    what cannot be an address (2)."""
    if given is not None:
        if not given.strip(" ,"):
            raise CommandFailed("-b: the address is empty", hint=HOW_TO_NAME, exit_code=USAGE)
        from odradek.shared.config import addresses_of, flaw

        if wrong := next(filter(None, map(flaw, addresses_of(given))), ""):
            named = "ODRADEK_BOOTSTRAP" if given == os.environ.get("ODRADEK_BOOTSTRAP") else "-b"
            raise CommandFailed(f"{named}: {wrong}", hint="-b HOST:PORT, several with commas between", exit_code=USAGE)
        talk_as_told(None)
        set_refusals_final(addresses_of(given))
        return given
    directory = current_directory()
    if directory is None:
        raise CommandFailed("no cluster was named", hint=HOW_TO_NAME, exit_code=UNREACHABLE)
    talk_as_told(directory)
    file = directory / STATE_FILE
    try:
        found = cluster_file.addresses(file)
        set_refusals_final(found)
        return ",".join(found)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _gone(directory, HOW_TO_NAME) from error
    except OSError as error:
        raise cluster_file.unreadable(file, error) from error


def set_refusals_final(addresses: Iterable[str]) -> None:
    """A refused connection ends the search at once, unless a broker of this machine is about to listen there."""
    from odradek.shared.config import refusals_are_final

    at_work = {address for directory in cluster_directories() for address in cluster_file.addresses_at_work(directory)}
    refusals_are_final.set({*map(_with_one_loopback, at_work)}.isdisjoint(map(_with_one_loopback, addresses)))


def _with_one_loopback(address: str) -> str:
    """The same address, in which this machine has one name."""
    host, _, port = address.rpartition(":")
    return f"localhost:{int(port)}" if LOOPBACK.fullmatch(host) and port.isdecimal() else address
