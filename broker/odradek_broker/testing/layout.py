"""Where a cluster's brokers keep their logs, which ports are theirs, and their settings.

Rules of this module. A directory holds one cluster, whose id and size are written in it: it can be started again, with
as many brokers as before. A temporary one holds a lock besides, as long as its process lives: those that a killed
process has left are removed before the next process makes its first. A port is held from the cluster's start to its
end, also while its broker is down, so that nobody else is given the address of a dead broker.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import socket
import stat
import sys
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import IO

from odradek_proto.transport.lock_holders import take_lock
from odradek_proto.values import replace

from odradek_broker.config import sources as config
from odradek_broker.config.settings import BrokerSettings, SettingError
from odradek_broker.config.sources import LoadedConfig
from odradek_broker.local.cluster import REBALANCE_DELAY_MS, ClusterError
from odradek_broker.local.processes import HOST, IN_PROCESS_PORTS
from odradek_broker.testing.arguments import as_text

IDENTITY_FILE = "cluster-identity.json"
TEMPORARY_PREFIX = "odradek-"
IN_USE_FILE = "in-use.lock"  # of a temporary directory
SHARED_MEMORY = "/dev/shm"
ENOUGH_BYTES = 1024 * 1024 * 1024  # containers have 64 MiB there unless told otherwise
OF_GROUPS = {
    "group.initial.rebalance.delay.ms": REBALANCE_DELAY_MS,
    "group.consumer.heartbeat.interval.ms": "200",  # 5 s: partitions would change hands in ten
    "group.consumer.min.heartbeat.interval.ms": "1",
    "group.consumer.min.session.timeout.ms": "1",
}
_PORT = re.compile(r":\d+(?=,|$)")
OWN_SETTINGS = ("node.id", "cluster.id", "listeners", "controller.quorum.voters", "log.dirs", "process.roles")


def _each_port() -> Iterator[int]:
    """All of them in turn, without end, from anywhere: processes seldom begin at the same."""
    begin = random.choice(IN_PROCESS_PORTS)
    while True:
        yield from range(begin, IN_PROCESS_PORTS.stop)
        begin = IN_PROCESS_PORTS.start


_ports = _each_port()


class HeldPort:
    """A port of 127.0.0.1 that no cluster of this process had before. Nobody listens on it before its broker does.

    Below the ports that the system gives to whoever connects. A client that an earlier test has forgotten goes on
    knocking: it must not be let into a later test's cluster.
    """

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        for port in itertools.islice(_ports, len(IN_PROCESS_PORTS)):
            held = socket.socket()
            try:
                held.bind((HOST, port))  # without SO_REUSEADDR: one that another process merely holds is not free
            except OSError:
                held.close()
                continue
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket = held
            self.address = f"{HOST}:{port}"
            return
        raise ClusterError(f"no port from {IN_PROCESS_PORTS.start} to {IN_PROCESS_PORTS.stop - 1} is free")

    def make_way(self) -> None:
        """Its broker is about to listen. Only Linux lets one socket listen on what another one merely holds."""
        if not sys.platform.startswith("linux"):
            self.release()

    def release(self) -> None:
        held, self._socket = self._socket, None
        if held is not None:
            held.close()


class ClusterLayout:
    """The directory of one cluster: temporary unless one is given. Raises `ClusterError` for one of another size."""

    def __init__(self, brokers: int, directory: Path | None) -> None:
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._in_use: IO[bytes] | None = None
        if directory is None:
            place = _in_memory() or tempfile.gettempdir()
            _remove_abandoned(place)
            self._temporary = tempfile.TemporaryDirectory(
                prefix=TEMPORARY_PREFIX, dir=place, ignore_cleanup_errors=True
            )
            directory = Path(self._temporary.name)
            self._in_use = _mark_as_used(directory)
        self.path = directory.absolute()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError) as error:
            raise ClusterError(f"{error.filename} is no directory", hint="name another place, or none") from None
        except OSError as error:
            raise ClusterError(
                f"cannot make {self.path}: {error.strerror}", hint="name another place, or none"
            ) from None
        self.cluster_id = self._settle_identity(brokers)

    @property
    def is_temporary(self) -> bool:
        return self._temporary is not None

    def log_directory(self, broker: int) -> Path:
        return self.path / f"broker-{broker}"

    def remove_temporary(self) -> None:
        """Remove the directory if we made it. Blocking."""
        if self._temporary is not None:
            self._temporary.cleanup()
        if self._in_use is not None:
            self._in_use.close()

    def _settle_identity(self, brokers: int) -> str:
        file = self.path / IDENTITY_FILE
        if file.exists():
            identity = json.loads(file.read_text())
            if identity["brokers"] != brokers:
                raise ClusterError(
                    f"{self.path} holds a cluster of another size: brokers={identity['brokers']}, not {brokers}",
                    hint="the voters of a quorum are fixed: use the same number, or another directory",
                )
            return str(identity["cluster_id"])
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        file.write_text(json.dumps({"cluster_id": cluster_id, "brokers": brokers}) + "\n")
        return cluster_id


def _mark_as_used(directory: Path) -> IO[bytes]:
    """Lock the file before it has its name: nobody finds it without its lock while we live."""
    unnamed = directory / "new.lock"
    lock = take_lock(unnamed)
    assert lock is not None, unnamed
    unnamed.rename(directory / IN_USE_FILE)
    return lock


@cache
def _remove_abandoned(place: str) -> None:
    """Once in a process: remove temporary directories whose processes were killed.

    Anybody may make such names there: other users' directories and what is no file are not touched, nor opened.
    """
    for found in Path(place).glob(f"{TEMPORARY_PREFIX}*/{IN_USE_FILE}"):
        try:
            if found.parent.lstat().st_uid != os.geteuid() or not stat.S_ISREG(found.lstat().st_mode):
                continue
            if (lock := take_lock(found)) is not None:
                shutil.rmtree(found.parent, ignore_errors=True)
                lock.close()
        except OSError:  # somebody else has just removed it
            continue


def _in_memory() -> str | None:
    """A file system in memory that has room, if the user named no place: files come and go there in microseconds."""
    if "TMPDIR" in os.environ or not os.access(SHARED_MEMORY, os.W_OK):
        return None
    room = os.statvfs(SHARED_MEMORY)
    return SHARED_MEMORY if room.f_bavail * room.f_frsize >= ENOUGH_BYTES else None


def check_settings(settings: object) -> dict[str, str]:
    """Kafka's dotted names and their values as text.

    Raises `SettingError` for what is unknown or malformed, `ClusterError` for what the cluster itself sets and, unlike
    a server, for what only Kafka would use: a test that sets it would test nothing.
    """
    values = as_text("settings", settings)
    taken = sorted(set(values) & set(OWN_SETTINGS))
    if taken:
        raise ClusterError(f"{', '.join(taken)}: the cluster itself sets this for each broker")
    unused = unused_settings(values)
    if unused:
        raise ClusterError(f"odradek does not use {', '.join(unused)}")
    return values


def unused_settings(values: Mapping[str, str]) -> Sequence[str]:
    """Those that only Kafka would use. Raises `SettingError` for what is unknown or malformed."""
    try:
        return _loaded(("node.id=1", *_overrides({**OF_GROUPS, **values}))).unused
    except SettingError as error:  # its source is the caller's dictionary, and no command line
        raise SettingError(str(error).removeprefix(f"{config.COMMAND_LINE}: ")) from None


def _overrides(values: Mapping[str, str]) -> list[str]:
    return [f"{name}={value}" for name, value in values.items()]


@lru_cache(maxsize=64)  # a session of tests has many clusters, and few kinds of them
def _loaded(overrides: tuple[str, ...]) -> LoadedConfig:
    return config.load(overrides=overrides)


def broker_settings(
    broker: int, layout: ClusterLayout, voters: Sequence[str], listeners: str, settings: Mapping[str, str]
) -> BrokerSettings:
    """One broker's settings: what tests want by default, then what the user said. Raises `SettingError`."""
    values = {
        "default.replication.factor": str(min(3, len(voters))),
        "min.insync.replicas": "2" if len(voters) >= 3 else "1",
        **OF_GROUPS,
        "offsets.topic.num.partitions": "4",  # 50 take three seconds, of three brokers on one loop
        **settings,
        "node.id": str(broker),
        "listeners": _PORT.sub(":0", listeners),
        "controller.quorum.voters": ",".join(voters),
    }
    checked = _loaded(tuple(_overrides(values))).settings
    own = str(layout.log_directory(broker))
    return replace(checked, cluster_id=layout.cluster_id, listeners=listeners, log_dirs=own)
