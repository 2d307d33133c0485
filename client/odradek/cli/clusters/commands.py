"""Looking into a cluster: `odradek cluster status|describe|quorum|health`, and `unregister`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from odradek_proto.command_line import FINDINGS, FINE

from odradek.cli.clusters.asking import ASKING, QuietAsking, ToAsking
from odradek.cli.clusters.current import bootstrap_servers
from odradek.cli.terminal.options import LARGEST_INT32
from odradek.cli.terminal.running import run
from odradek.cli.terminal.screen import Screen, as_line, can_move_cursor

if TYPE_CHECKING:
    from odradek import Admin

WATCH_PAUSE_S = 0.5
SAMPLE_S = 0.8  # of one look while somebody watches: he hears within a second that nobody answers


def status(
    topics: Annotated[list[str] | None, typer.Argument(metavar="[TOPIC]...", help="Only these topics.")] = None,
    watch: Annotated[
        bool, typer.Option("-w", "--watch", help="Keep showing it until Ctrl-C; --json: an object a line.")
    ] = False,
    screen: ToAsking = ASKING,
) -> None:
    """Show leaders, in-sync replicas, log ends.

    Who controls, who leads, who is in sync, and where each replica's log and high watermark end. Exit code 3: no
    active controller answers. Internal topics that are well have one line; name one to see its partitions.
    """
    from odradek.cli.clusters.status import gather_status
    from odradek.cli.clusters.view import status_text

    if watch:
        run(_watch(bootstrap_servers(screen.bootstrap), topics, screen))
        return
    found = screen.ask(lambda admin: gather_status(admin, topics))
    screen.show(found.as_json(), lambda: status_text(found, every_partition=bool(topics)))
    raise typer.Exit(FINE if found.decides else FINDINGS)


async def _watch(servers: str, topics: list[str] | None, screen: Screen) -> None:
    """Show the status again and again: a screen of its own on a terminal, else one block or line after the other."""
    import asyncio

    from odradek import Admin, OdradekError
    from odradek.cli.clusters.status import gather_status
    from odradek.cli.clusters.view import status_text

    async def shown(admin: Admin) -> str:
        try:
            async with asyncio.timeout(SAMPLE_S):
                status = await gather_status(admin, topics, watched=True)
        except (OdradekError, TimeoutError) as error:
            said = str(error) or f"no broker has said within {SAMPLE_S:g} s what there is"
            return said if screen.for_people else as_line({"error": {"message": said}})
        every = bool(topics)
        return status_text(status, every_partition=every) if screen.for_people else as_line(status.as_json())

    async with Admin(servers) as admin:
        if not screen.for_people:
            while True:
                print(await shown(admin), flush=True)
                await asyncio.sleep(WATCH_PAUSE_S)
        if not can_move_cursor():
            while True:
                print(await shown(admin), end="\n\n", flush=True)
                await asyncio.sleep(WATCH_PAUSE_S)
        from rich.live import Live
        from rich.text import Text

        with Live(screen=True, auto_refresh=False) as live:
            while True:
                live.update(Text(await shown(admin)), refresh=True)
                await asyncio.sleep(WATCH_PAUSE_S)


def describe(screen: ToAsking = ASKING) -> None:
    """List the brokers: addresses, epochs, state."""
    found = screen.ask(lambda admin: admin.describe_cluster())
    rows = [
        {
            "broker": broker.broker_id,
            "address": ",".join(broker.endpoints.values()),
            "rack": broker.rack or None,
            "fenced": broker.fenced,
            "broker_epoch": broker.broker_epoch,
            "controller": broker.broker_id == found.controller_id,
        }
        for broker in sorted(found.brokers, key=lambda broker: broker.broker_id)
    ]
    headings = {"broker": "BROKER", "address": "ADDRESS", "rack": "RACK", "fenced": "FENCED",
                "broker_epoch": "EPOCH", "controller": "CONTROLLER"}  # fmt: skip
    screen.show_rows(rows, headings)


def quorum(screen: ToAsking = ASKING) -> None:
    """Show the metadata quorum.

    Its leader and epoch, and how far voters and observers are.
    """
    found = screen.ask(lambda admin: admin.describe_quorum())
    members = [
        {
            "node": member.node_id,
            "role": "leader" if member.node_id == found.leader_id else role,
            "log_end_offset": member.log_end_offset,
            "last_fetch_ms": member.last_fetch_ms,
            "last_caught_up_ms": member.last_caught_up_ms,
        }
        for role, group in (("voter", found.voters), ("observer", found.observers))
        for member in group
    ]
    facts = {
        "leader": found.leader_id,
        "leader_epoch": found.leader_epoch,
        "high_watermark": found.high_watermark,
        "log_start_offset": found.log_start_offset,
        "snapshot_end_offset": found.snapshot_end_offset,
        "members": members,
    }
    if not screen.for_people:
        screen.show(facts, str)
        return
    print(f"leader {found.leader_id}, epoch {found.leader_epoch}, high watermark {found.high_watermark}")
    if found.snapshot_end_offset is not None:
        print(f"log start offset {found.log_start_offset}, newest snapshot at {found.snapshot_end_offset}")
    print()
    headings = {"node": "NODE", "role": "ROLE", "log_end_offset": "LEO", "last_fetch_ms": "FETCHED (MS AGO)",
                "last_caught_up_ms": "CAUGHT UP (MS AGO)"}  # fmt: skip
    screen.show_rows(members, headings)


def health(screen: QuietAsking = ASKING) -> None:
    """Check that all is replicated (exit 3 if not).

    Every broker must be up, every partition led and fully replicated. Shows how quickly each broker answers.
    """
    from odradek.cli.clusters.health import check_health

    found: dict[str, Any] = screen.ask(check_health)
    if screen.for_people:
        if not screen.quiet:
            screen.show_rows(found["brokers"], {"broker": "BROKER", "address": "ADDRESS", "state": "STATE",
                                                "latency_ms": "LATENCY (MS)"})  # fmt: skip
            print()
        print("healthy" if found["healthy"] else "\n".join(found["problems"]))
    else:
        screen.show(found, str)
    raise typer.Exit(FINE if found["healthy"] else FINDINGS)


def unregister(
    broker: Annotated[int, typer.Argument(metavar="BROKER", min=0, max=LARGEST_INT32, help="Its id.")],
    screen: QuietAsking = ASKING,
) -> None:
    """Forget a broker that is gone for good.

    It must have stopped, and its replicas must be elsewhere (`odradek topic reassign`). Should it start again, it
    registers as a new one.
    """
    screen.ask(lambda admin: admin.unregister_broker(broker))
    screen.show({"broker": broker, "unregistered": True}, lambda: f"broker {broker} unregistered")
