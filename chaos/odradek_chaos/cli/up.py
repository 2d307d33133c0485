"""The life of `odradek cluster up`: start, wait, say where it is, watch, stop."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import shutil
import sys
import time
from collections.abc import Collection
from pathlib import Path

from odradek.cli.clusters.current import forget, remember, step_back, talk_as_told
from odradek.cli.terminal.screen import Screen, drop_output, first_of
from odradek_broker.local.cluster import ClusterError, LocalCluster
from odradek_proto.command_line import CLIENT_SETTINGS, FAILED, FINE, INTERRUPTED, CommandFailed
from odradek_proto.words import noun

from odradek_chaos.cli.interrupting import terminable, uninterrupted
from odradek_chaos.cli.places import remove_unless_named, runs
from odradek_chaos.cli.room import room_needed, without_room
from odradek_chaos.harness.killing import kill_all
from odradek_chaos.harness.starting import start_on_free_ports

WATCH_S = 0.2


class LocalRun:
    """Runs a cluster of local processes for one command."""

    def __init__(self, cluster: LocalCluster, screen: Screen, *, timeout_s: float) -> None:
        self._cluster = cluster
        self._screen = screen
        self._timeout_s = timeout_s
        self._started = time.monotonic()
        self._detached = False
        self._watching = False
        self._ran = {node_id for node_id in cluster.nodes if cluster.running(node_id)}
        self._former: Path | None = None  # the default until now, which runs on

    def run(self, *, detach: bool) -> int:
        """Returns the exit code. Raises `ClusterError` when the brokers do not come up; then none stays behind that did
        not run before.

        Ctrl-C is how a cluster that is watched ends. Before that it takes a start back, with code 130.
        Brokers do not depend on whether somebody reads what is printed: as with any server, a pipe whose reader is gone
        stops nothing, and only Ctrl-C, SIGTERM, a closed terminal or `cluster stop` do.
        """
        self._detached = detach
        with terminable():
            try:
                self._start()
                self._former = remember(self._cluster.directory, runs)
                if not detach:
                    self._watching = True
                    self._print_what_is_watched()
                    self._say_what_is_next()
                    self._watch()
            except KeyboardInterrupt:
                code = self._stop()
                return code if self._watching else INTERRUPTED
            except Exception as error:
                said = without_room(self._cluster, error) if isinstance(error, ClusterError) else error
                raise self._given_up(said) from error
            except BaseException:
                self._kill()
                raise
        if detach:
            self._print_what_stays()
            self._say_what_is_next()
        return FINE

    def _given_up(self, said: Exception) -> Exception:
        """Kill the brokers; what they said stays where the error names the files. Returns the error."""
        with uninterrupted():
            self._kill()
            return said if self._watching or self._ran else remove_unless_named(self._cluster, said)

    def _kill(self) -> None:
        kill_all(self._cluster, self._spared())

    def _spared(self) -> Collection[int]:
        """None of a cluster that is watched; before, what this command has not started."""
        return () if self._watching else self._ran

    def _print_what_stays(self) -> None:
        try:
            self._print_address()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CommandFailed(
                f"the brokers run, but that could not be printed: {error.strerror}",
                hint="`odradek cluster status` shows them, `odradek cluster stop` stops them",
            ) from error

    def _print_what_is_watched(self) -> None:
        try:
            self._print_address()
        except OSError as error:
            drop_output(sys.stdout)
            if not isinstance(error, BrokenPipeError):
                self._talk(f"where the brokers are could not be printed: {error.strerror}")

    def _talk(self, text: str = "") -> None:
        """Say how it goes, if anybody still listens."""
        with contextlib.suppress(OSError):
            self._screen.say(text)

    def _start(self) -> None:
        """Raises `ClusterError`."""
        asyncio.run(start_on_free_ports(self._cluster, self._ready, self._talk, start=self._start_once))

    def _start_once(self) -> None:
        cluster = self._cluster
        self._talk(f"starting {len(cluster.nodes)} {noun(len(cluster.nodes), 'broker')} in {cluster.directory}")
        with uninterrupted(), room_needed(cluster.directory):
            cluster.start_all()
        talk_as_told(cluster.directory)

    async def _ready(self) -> None:
        cluster = self._cluster
        from odradek_chaos.harness.waiting import wait_until_ready  # while the brokers start, this process loads grpc

        seen = 0

        def on_progress(ready: int) -> None:
            nonlocal seen
            if ready > seen:
                seen = ready
                self._talk(f"  {ready} of {len(cluster.nodes)} ready after {time.monotonic() - self._started:.1f} s")

        await wait_until_ready(cluster, timeout_s=self._timeout_s, on_progress=on_progress)

    def _print_address(self) -> None:
        """At once, for a program that reads it. Raises `OSError`."""
        cluster = self._cluster
        nodes = [
            {
                "broker": node.node_id,
                "address": node.grpc,
                "kafka": node.kafka,
                "pid": node.pid,
                "log_directory": node.log_directory,
                **({"metrics": f"http://{node.metrics}/metrics"} if node.metrics else {}),
            }
            for node in cluster.nodes.values()
        ]
        facts = {
            "bootstrap": cluster.bootstrap,
            "kafka_bootstrap": cluster.kafka_bootstrap,
            "directory": str(cluster.directory),
            "cluster_id": cluster.cluster_id,
            "temporary": cluster.temporary,
            "seconds": round(time.monotonic() - self._started, 3),
            "brokers": nodes,
        }
        self._screen.show(facts, lambda: f"export ODRADEK_BOOTSTRAP={cluster.bootstrap}")
        sys.stdout.flush()

    def _say_what_is_next(self) -> None:
        cluster, say = self._cluster, self._talk
        for node in cluster.nodes.values():
            metrics = f"  http://{node.metrics}/metrics" if node.metrics else ""
            say(f"  broker {node.node_id}  {node.grpc}  pid {node.pid}{metrics}")
        say(f"  for Kafka's clients  {cluster.kafka_bootstrap}")
        if cluster.secure:
            say(f"  TLS, and the user admin: {cluster.directory / CLIENT_SETTINGS}")
        say()
        if self._former is not None:
            say(f"The cluster in {self._former} runs on and is the default no longer:")
            say(f"-b {LocalCluster.load(self._former).bootstrap} names it,")
            say(f"`odradek cluster stop --data {shlex.quote(str(self._former))}` stops it.")
        say("This cluster is the default now, in every terminal of yours. Next:")
        if "orders" not in cluster.topics():
            say("  odradek topic create orders -p 3 -r " + str(min(3, len(cluster.nodes))))
        say("  echo hello | odradek produce orders")
        say("  odradek consume orders -o beginning -e")
        say("  odradek cluster status")
        say("  odradek chaos kill --leader orders-0")
        say("  odradek cluster stop     # keeps the data" if self._detached else "Ctrl-C stops it.")

    def _watch(self) -> None:
        """Until Ctrl-C. Brokers may be killed and restarted from elsewhere; whoever ends is named once."""
        cluster = self._cluster
        gone: set[int] = set()
        while True:
            time.sleep(WATCH_S)
            cluster.refresh()
            for node_id in cluster.nodes:
                if cluster.running(node_id):
                    if node_id in gone:
                        gone.discard(node_id)
                        self._talk(f"broker {node_id} runs again")
                elif node_id not in gone:
                    gone.add(node_id)
                    from odradek_chaos.harness.waiting import obituary

                    self._talk(obituary(cluster, node_id))
                    self._talk(f"`odradek chaos restart --broker {node_id}` starts it again")

    def _stop(self) -> int:
        """Cleanly; told again, at once. Further Ctrl-C waits until no broker and no temporary data is left."""
        try:
            self._talk(
                "\nstopping the brokers that this command has started" if self._spared() else "\nstopping the brokers"
            )
            with contextlib.suppress(ClusterError):
                self._cluster.refresh()
            killed = self._cluster.stop_all(spared=self._spared())
        except KeyboardInterrupt:
            with uninterrupted():
                self._talk("killing them")
                self._kill()
                return self._tidy([])
        with uninterrupted():
            return self._tidy(killed)

    def _tidy(self, killed: list[int]) -> int:
        cluster, place = self._cluster, self._cluster.directory
        for node_id in killed:
            self._talk(f"broker {node_id} did not stop in time and was killed")
        if spared := sorted(self._spared()):
            self._talk(f"stopped; running before, and still: {noun(len(spared), 'broker')} {first_of(spared)}")
            return FAILED if killed else FINE
        empty = cluster.temporary and not cluster.topics()
        again = forget(place, runs) if empty else step_back(place, runs)
        if empty:
            shutil.rmtree(place, ignore_errors=True)
            self._talk("stopped; it had no topics, and its directory is removed")
        else:
            self._talk(f"stopped; the data is in {place}")
            if cluster.temporary:
                self._talk("`odradek cluster up` starts it again, `odradek cluster down` removes it")
        if again is not None:
            self._talk(f"the cluster in {again} is the default again")
        return FAILED if killed else FINE
