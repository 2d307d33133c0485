"""`odradek chaos rounds`: brokers of a new cluster are killed again and again while they are written to.

Exit codes: 0 every promise was kept, 3 a record was lost, duplicated or reordered, 1 the cluster did not recover in
time, 2 usage, 130 interrupted: then the rounds that were over kept every promise, or there was none.
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from odradek.cli.clusters.current import talk_as_told
from odradek.cli.terminal.options import Settings
from odradek.cli.terminal.screen import Screen
from odradek.cli.terminal.stopping import told_to_stop
from odradek_proto.command_line import FAILED, FINE, INTERRUPTED, CommandFailed

from odradek_chaos.cli.cluster import checked_settings
from odradek_chaos.cli.interrupting import terminable
from odradek_chaos.cli.simulation import FOUND

if TYPE_CHECKING:
    from odradek_broker.local.cluster import LocalCluster

    from odradek_chaos.harness.kills import KillHarness, KillsOutcome


class WriterAcks(StrEnum):
    ALL = "all"
    ONE = "1"


class TargetKind(StrEnum):
    """Who is struck; `any` takes leader, follower and controller equally often, `rolling` all, one after the other."""

    LEADER = "leader"
    FOLLOWER = "follower"
    CONTROLLER = "controller"
    ALL = "all"
    ROLLING = "rolling"
    ANY = "any"


class FaultKind(StrEnum):
    """What is done to it, by the names of `odradek_chaos.worlds.real.FAULTS`."""

    KILL = "kill"
    STOP = "stop"
    PAUSE = "pause"


def rounds(
    *,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How many faults, one after the other.")] = 50,
    seed: Annotated[int, typer.Option("--seed", help="What decides about targets and moments.")] = 1,
    acks: Annotated[WriterAcks, typer.Option("--acks", help="What the writers wait for.")] = WriterAcks.ALL,
    target: Annotated[TargetKind, typer.Option("--target", help="Who is struck.")] = TargetKind.ANY,
    fault: Annotated[FaultKind, typer.Option("--fault", help="kill -9, SIGTERM or SIGSTOP.")] = FaultKind.KILL,
    stall_others: Annotated[
        int, typer.Option("--stall-others", metavar="MS", min=0, help="SIGSTOP the others for so long before.")
    ] = 0,
    data: Annotated[str | None, typer.Option("--data", metavar="DIR", help="Keep the cluster here.")] = None,
    secure: Annotated[bool, typer.Option("--secure", help="With TLS, SASL and ACLs.")] = False,
    settings: Settings = None,
    screen: Screen,
) -> None:
    """Start three brokers, kill one in each round while they are written to, and read everything back.

    Each round waits until the cluster has recovered: acknowledgements on every partition, full ISRs. After Ctrl-C the
    round under way is the last one; a second Ctrl-C ends it, without a verdict.
    """
    from odradek_broker.local.cluster import LocalCluster

    from odradek_chaos.cli.places import place_for_another
    from odradek_chaos.harness.kills import TARGETS, KillHarness, KillsPlan, NotRecovered, report
    from odradek_chaos.worlds.processes import ProcessesWorld

    place = None if data is None else place_for_another(data)
    targets = TARGETS if target is TargetKind.ANY else (target.value,)
    plan = KillsPlan(rounds, seed, acks.value, targets, fault=fault.value, stall_others_ms=stall_others)
    with tempfile.TemporaryDirectory(prefix="odradek-rounds-") as temporary, terminable():
        directory = place or Path(temporary) / "cluster"
        cluster = LocalCluster.create(directory, brokers=3, settings=checked_settings(settings or []), secure=secure)
        cluster.ends_with_parent = True
        talk_as_told(cluster.directory)
        harness = KillHarness(ProcessesWorld(cluster), plan, directory / "history.jsonl", say=screen.say)
        try:
            outcome = _played(cluster, harness, screen)
        except NotRecovered as error:
            kept = f"the brokers' own words are in {directory}/broker-*.log"
            hint = kept if place is not None else "--data DIR keeps the brokers' logs, which say more"
            raise CommandFailed(f"not recovered: {error}", hint=hint, exit_code=FAILED) from error
        finally:
            cluster.stop_all()
    screen.show(asdict(outcome), lambda: report(outcome))
    raise typer.Exit(FOUND if not outcome.read_back.sound else INTERRUPTED if outcome.interrupted else FINE)


def _played(cluster: LocalCluster, harness: KillHarness, screen: Screen) -> KillsOutcome:
    """Until its rounds are over, or it is told to stop. Raises `KeyboardInterrupt` without a verdict."""
    import asyncio

    from odradek_chaos.harness.kills import RECOVERY_TIMEOUT_S
    from odradek_chaos.harness.starting import start_on_free_ports
    from odradek_chaos.harness.waiting import wait_until_ready

    async def start_and_run() -> KillsOutcome:
        await start_on_free_ports(cluster, partial(wait_until_ready, cluster, timeout_s=RECOVERY_TIMEOUT_S), screen.say)
        return await harness.run()

    async def run() -> KillsOutcome | None:
        running = asyncio.create_task(start_and_run())
        told = 0

        def on_told() -> None:
            nonlocal told
            told += 1
            if told > 1 or not harness.stop():
                running.cancel()
            else:
                screen.say("stopping: after this round, with a verdict; a second Ctrl-C does not wait for them")

        with told_to_stop(on_told):
            try:
                return await running
            except asyncio.CancelledError:
                return None

    outcome = asyncio.run(run())
    if outcome is None:
        raise KeyboardInterrupt
    return outcome
