"""Runs one node as a process until it is told to stop.

SIGTERM and SIGINT mean a controlled shutdown; a second one means now. What the node says goes to its log, one event a
line: that it listens, that it is ready, which means unfenced, and that it has stopped.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Final

from odradek_proto.security.tls import TlsError, TlsSource
from odradek_proto.transport.clock import LoopClock
from odradek_proto.transport.files import OsFiles
from odradek_proto.transport.grpc_network import GrpcNetwork
from odradek_proto.values import replace

from odradek_broker.config.listeners import (
    beyond_loopback,
    controller_listeners,
    dialable,
    kind_of,
    parse_listeners,
    protocol_of,
    tls_files,
)
from odradek_broker.config.log_levels import SERVER
from odradek_broker.config.settings import BrokerSettings, SettingError
from odradek_broker.config.sources import LoadedConfig
from odradek_broker.process import slow
from odradek_broker.process.logs import LogFileUnusable, configured
from odradek_broker.process.node import Node
from odradek_broker.storage.errors import StorageError

logger = logging.getLogger(SERVER)

OK, FAILED = 0, 1
WARNING = "warning: "
GC_THRESHOLDS = (50_000, 20, 50)  # batches and frames are many and have no cycles: look for garbage seldom


def default_log_directory(settings: BrokerSettings) -> BrokerSettings:
    """An absolute `log.dirs`, `./data/<node.id>` when none is set (never under /tmp, unlike Kafka)."""
    path = settings.log_dirs.split(",")[0].strip() or f"data/{settings.node_id}"
    return replace(settings, log_dirs=str(Path(path).absolute()))


def single_node_defaults(settings: BrokerSettings) -> BrokerSettings:
    """A node that names no voters is a quorum of its own, at its CONTROLLER listener."""
    if settings.controller_quorum_voters:
        return settings
    names = controller_listeners(settings)
    for name, address in parse_listeners(settings.listeners).items():
        if name in names:
            if address.endswith(":0"):
                raise SettingError(
                    "without controller.quorum.voters the CONTROLLER listener needs a port of its own, not 0; "
                    "for example -X listeners=GRPC://127.0.0.1:50051,REPLICATION://127.0.0.1:50052,CONTROLLER://127.0.0.1:50061"
                )
            return replace(settings, controller_quorum_voters=f"{settings.node_id}@{dialable(address)}")
    raise SettingError("controller.quorum.voters is not set, and no listener is a CONTROLLER")


def run(loaded: LoadedConfig, *, while_stdin_is_open: bool = False) -> int:
    """Run a node until it is stopped; returns the exit code. Uses uvloop if it is installed. Raises `SettingError`."""
    settings = single_node_defaults(default_log_directory(loaded.settings))
    try:
        with configured(settings):
            for line in (*loaded.set_by(), *loaded.unheard(), *warnings(settings), raise_open_files_limit()):
                if line:
                    say(line)
            try:
                import uvloop
            except ImportError:
                return asyncio.run(serve(settings, while_stdin_is_open))
            return int(uvloop.run(serve(settings, while_stdin_is_open)))
    except LogFileUnusable as error:
        raise SettingError(str(error)) from error


def secured(settings: BrokerSettings) -> Callable[[str], GrpcNetwork]:
    """Networks with TLS, by their ssl.client.auth; certificates are read when the first is asked for."""
    source: TlsSource | None = None

    def network(client_auth: str) -> GrpcNetwork:
        nonlocal source
        source = source or TlsSource(tls_files(settings))
        return GrpcNetwork(tls=source, client_auth=client_auth)

    return network


def say(line: str) -> None:
    """A sentence of the log; what begins with `warning: ` is one."""
    text = line.removeprefix(WARNING)
    logger.log(logging.INFO if text == line else logging.WARNING, text)


def warnings(settings: BrokerSettings) -> list[str]:
    """What whoever starts this node should know: which listeners others reach, and what protects them not, and what
    was given for nothing."""
    by_lack: dict[str, list[str]] = {}
    for name, address in beyond_loopback(settings).items():
        lack = _lack(name, settings)
        if lack:
            by_lack.setdefault(lack, []).append(f"{name}://{address}")
    said = [f"{', '.join(names)}: reachable beyond this machine, without {lack}" for lack, names in by_lack.items()]
    if settings.super_users and not settings.authorizer_class_name:
        said.append(
            f"super.users={settings.super_users} means nothing while authorizer.class.name is not set: all may do all"
        )
    return [WARNING + line for line in said]


def _lack(name: str, settings: BrokerSettings) -> str:
    """What a listener is without, and what comes of it."""
    everything = "whoever reaches it may read, write and delete everything"
    if name not in parse_listeners(settings.listeners):  # that of the metrics
        return f"TLS or authentication: {everything}"
    protocol = protocol_of(name, settings)
    of_nodes = not kind_of(name, settings).for_clients
    if not (protocol.sasl or (protocol.tls and (of_nodes or settings.ssl_client_auth == "required"))):
        known = "the ACLs of User:ANONYMOUS say what anybody may" if settings.authorizer_class_name else everything
        return f"authentication: {known}" if protocol.tls else f"TLS or authentication: {known}"
    if not protocol.tls:
        return "TLS: whoever is on the way reads along and can speak in others' names"
    if not (of_nodes or settings.authorizer_class_name):
        return "ACLs: whoever can authenticate may read, write and delete everything"
    return ""


async def serve(settings: BrokerSettings, while_stdin_is_open: bool = False) -> int:
    """The life of the process. Returns the exit code."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    impatient = asyncio.Event()

    files = OsFiles()
    clock = LoopClock(random.Random())
    try:
        node = Node(settings, clock=clock, files=files, network=GrpcNetwork(), secured=secured(settings), say=say)
    except TlsError as error:
        return _cannot_start(settings, error)

    def on_signal() -> None:
        if stop.is_set():
            impatient.set()
        stop.set()
        node.leave()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)

    def on_stdin() -> None:
        if not os.read(0, 1):
            loop.remove_reader(0)
            on_signal()

    if while_stdin_is_open:
        loop.add_reader(0, on_stdin)
    try:
        await node.start()
        loop.add_signal_handler(signal.SIGCONT, _look_how_slow, node)
        _look_how_slow(node)
    except (OSError, ValueError, RuntimeError, StorageError) as error:
        return _cannot_start(settings, error)
    if not stop.is_set():
        _announce_addresses(node)
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    code = await _until_stopped(node, stop, impatient)
    files.close()
    return code


def _cannot_start(settings: BrokerSettings, error: Exception) -> int:
    logger.error("node %d cannot start: %s", settings.node_id, error)
    return FAILED


def _look_how_slow(node: Node) -> None:
    """Whether somebody has ordered, or taken back, that this broker fetches late."""
    place = Path(node.settings.log_dirs)
    try:
        order = slow.read(place)
    except (OSError, ValueError) as error:
        say(f"{WARNING}{place / slow.FILE} is not obeyed: {error}")
        return
    if order != slow.NOTHING:
        say(f"{WARNING}fetches from leaders are {order.delay_ms} ms late for {order.left_ms} ms, as {slow.FILE} orders")
    node.slow_fetches(*order)


def _announce_addresses(node: Node) -> None:
    listening = ", ".join(f"{name}://{address}" for name, address in sorted(node.addresses().items()))
    if node.metrics_address:
        listening += f", HTTP://{node.metrics_address}"
    say(f"node {node.settings.node_id} listens on {listening}")


async def _until_stopped(node: Node, stop: asyncio.Event, impatient: asyncio.Event) -> int:
    ready = asyncio.ensure_future(_announce_ready(node))
    stopping = asyncio.ensure_future(_wait_for(stop))
    await asyncio.wait([stopping, node.failed], return_when=asyncio.FIRST_COMPLETED)
    ready.cancel()
    if node.failed.done():
        logger.error("node %d failed: %r", node.settings.node_id, node.failed.exception())
        stopping.cancel()
        await node.kill()
        return FAILED
    shutdown = asyncio.ensure_future(node.stop())
    now = asyncio.ensure_future(_wait_for(impatient))
    await asyncio.wait([shutdown, now], return_when=asyncio.FIRST_COMPLETED)
    if not shutdown.done():
        shutdown.cancel()
        await asyncio.gather(shutdown, return_exceptions=True)
        return FAILED
    now.cancel()
    try:
        await shutdown
    except (OSError, StorageError) as error:
        logger.error("node %d did not stop cleanly: %s", node.settings.node_id, error)
        return FAILED
    if node.failed.done():  # while it handed over what it led
        logger.error("node %d failed: %r", node.settings.node_id, node.failed.exception())
        return FAILED
    say(f"node {node.settings.node_id} has stopped")
    return OK


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


async def _announce_ready(node: Node) -> None:
    await node.wait_until_ready()
    say(f"node {node.settings.node_id} is ready")


# --- How many files and connections a broker may have open -----------------------------------------------------------
# A broker holds three to five files for each partition, and one for each connection. Shells and service managers start
# processes with a soft limit of 1,024, for the sake of programs that use `select`, and leave the hard limit for those
# that need more: a server raises the one to the other by itself. Nobody but root may go beyond that.


MOST_OPEN_FILES: Final = 1_048_576
"""Never asked for more, also where there is no hard limit: the kernel sizes tables by it, and some refuse more."""
OPEN_MAX: Final = 10_240
"""What macOS allows at most, whatever its hard limit says; asked for where more was refused."""
FEW_OPEN_FILES: Final = 4_096
"""Below this a broker says so at its start: it is reached with about a thousand partitions."""


def raise_open_files_limit() -> str:
    """Raise this process's soft limit to its hard one. Returns what to say of it; empty when nothing was to be done."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return ""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    limit, why = soft, "the hard limit, ulimit -Hn"
    if soft != resource.RLIM_INFINITY:
        for asked in (wanted, min(wanted, OPEN_MAX)):
            if asked <= soft:
                break
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (asked, hard))
            except (OSError, ValueError):  # some systems have a lower limit that they do not tell
                why = f"the system refuses {asked}"
            else:
                limit = asked
                break
    if limit != resource.RLIM_INFINITY and limit < FEW_OPEN_FILES:
        return f"warning: no more than {limit} files and connections may be open ({why}): too few for many partitions"
    return f"may open {limit} files and connections, not {soft}: {why.partition(',')[0]}" if limit != soft else ""
