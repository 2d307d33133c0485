"""`odradek chaos`: strike the brokers of a cluster on this machine, by what they do.

A broker is chosen by its role at this moment (the leader or a follower of a partition, the active controller) or by
its number. Signals go only to processes that `odradek cluster up` started and whose start time is still the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer
from odradek.cli.failures import USAGE, CommandFailed
from odradek.cli.options import DEFAULT_TIMEOUT_S, DataDirectory, Json, Output, OutputFormat, Quiet
from odradek.cli.screen import Screen

from odradek_chaos import campaigns_cli

if TYPE_CHECKING:
    from odradek_broker.local_cluster import LocalCluster

    from odradek_chaos.selecting import Victim

app = typer.Typer(
    help="Kill, freeze and restart brokers; run campaigns of seeded faults.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Leader = Annotated[str | None, typer.Option("--leader", metavar="TOPIC/PARTITION", help="The leader of a partition.")]
Follower = Annotated[
    str | None, typer.Option("--follower", metavar="TOPIC/PARTITION", help="A follower of a partition, in sync if any.")
]
Controller = Annotated[bool, typer.Option("--controller", help="The active controller.")]
Broker = Annotated[int | None, typer.Option("--broker", metavar="N", help="The broker with this number.")]


@app.command("kill")
def kill(
    leader: Leader = None,
    follower: Follower = None,
    controller: Controller = False,
    broker: Broker = None,
    data: DataDirectory = None,
    output: Output = OutputFormat.TABLE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Kill a broker (kill -9)."""
    from odradek_broker.local_cluster import LocalCluster

    _strike("killed", LocalCluster.kill, (leader, follower, controller, broker), data, Screen(output, as_json, quiet))


@app.command("pause")
def pause(
    leader: Leader = None,
    follower: Follower = None,
    controller: Controller = False,
    broker: Broker = None,
    data: DataDirectory = None,
    output: Output = OutputFormat.TABLE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Freeze a broker (SIGSTOP): it holds its connections and says nothing."""
    from odradek_broker.local_cluster import LocalCluster

    _strike("froze", LocalCluster.pause, (leader, follower, controller, broker), data, Screen(output, as_json, quiet))


@app.command("resume")
def resume(
    leader: Leader = None,
    follower: Follower = None,
    controller: Controller = False,
    broker: Broker = None,
    data: DataDirectory = None,
    output: Output = OutputFormat.TABLE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Thaw a frozen broker (SIGCONT). Without a choice: all that are frozen."""
    from odradek_broker.local_cluster import LocalCluster

    from odradek_chaos.selecting import Victim

    screen = Screen(output, as_json, quiet)
    choice = (leader, follower, controller, broker)
    if any(choice):
        _strike("thawed", LocalCluster.resume, choice, data, screen)
        return
    cluster = _cluster(data)
    frozen = [node_id for node_id in cluster.nodes if cluster.paused(node_id)]
    for node_id in frozen:
        cluster.resume(node_id)
    _tell("thawed", [Victim(node_id, "was frozen", cluster.nodes[node_id].pid) for node_id in frozen], screen)


@app.command("restart")
def restart(
    broker: Broker = None,
    data: DataDirectory = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until all brokers are ready again.")] = False,
    output: Output = OutputFormat.TABLE,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Start brokers again that do not run. With --broker: this one, stopped in peace first if it runs."""
    from odradek_chaos.selecting import Victim

    cluster = _cluster(data)
    because = "did not run"
    if broker is not None:
        because = "was stopped in peace before" if cluster.running(broker) else because
        cluster.stop(broker)
    chosen = [broker] if broker is not None else [node_id for node_id in cluster.nodes if not cluster.running(node_id)]
    victims = [Victim(node_id, because, cluster.start(node_id).pid) for node_id in chosen]
    if wait:
        import asyncio

        from odradek_chaos.waiting import wait_until_ready

        asyncio.run(wait_until_ready(cluster))
    _tell("started", victims, Screen(output, as_json, quiet))


def _cluster(data: str | None) -> LocalCluster:
    from odradek.cli.current import data_directory
    from odradek_broker.local_cluster import LocalCluster

    return LocalCluster.load(data_directory(data))


def _strike(
    verb: str,
    act: Callable[[LocalCluster, int], None],
    choice: tuple[str | None, str | None, bool, int | None],
    data: str | None,
    screen: Screen,
) -> None:
    """Find the one that was chosen, act, and say what it was doing."""
    if sum(each is not None and each is not False for each in choice) != 1:
        raise CommandFailed(
            "say which broker: one of --leader, --follower, --controller, --broker",
            hint="for example --leader orders/0",
            exit_code=USAGE,
        )
    from odradek.cli.running import run

    from odradek_chaos.selecting import select

    cluster = _cluster(data)
    victim = run(select(cluster, *choice), DEFAULT_TIMEOUT_S)
    act(cluster, victim.broker)
    _tell(verb, [victim], screen)


def _tell(verb: str, victims: list[Victim], screen: Screen) -> None:
    rows = [
        {"action": verb, "broker": victim.broker, "pid": victim.pid, "because": victim.because} for victim in victims
    ]
    if not screen.for_people:
        screen.show_rows(rows, {})
        return
    for victim in victims:
        screen.say(f"{verb} broker {victim.broker} (pid {victim.pid}): {victim.because}")
        if verb == "killed":
            screen.say(f"`odradek chaos restart --broker {victim.broker}` starts it again")
    if not victims:
        screen.say("nothing to do")


app.command("run")(campaigns_cli.run)
app.command("trace")(campaigns_cli.trace)
