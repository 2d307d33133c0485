"""`odradek cluster`: brokers as processes of this machine, and a look into any cluster.

Looking (`status`, `describe`, `quorum`, `health`) needs the client alone and lives there; starting and stopping needs
the broker too.
"""

from __future__ import annotations

import shlex
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from odradek.cli.clusters import commands as looking
from odradek.cli.terminal.failures import did_you_mean
from odradek.cli.terminal.grouping import SCREEN, CommandGroup, QuietScreen, ToScreen
from odradek.cli.terminal.options import DataDirectory, Settings, Yes, seconds
from odradek.cli.terminal.screen import Screen, first_of
from odradek_proto.command_line import FAILED, FINE, USAGE, CommandFailed, check_directory
from odradek_proto.words import noun

if TYPE_CHECKING:
    from odradek_broker.local.cluster import LocalCluster

app = CommandGroup("Start a cluster on this machine; look into any cluster.")
MOST_BROKERS = 9
SETTINGS_HINT = "`odradek docs configuration` lists all settings"
NODES_OF_ONES_OWN = "leave it out; `odradek server run` starts a broker for which you say all of that yourself"
SET_FOR_EACH = {  # what follows from where each broker is, and what to do instead
    "node.id": "leave it out: -n says how many brokers there are, and they are numbered from 1",
    "log.dirs": "leave it out: --data DIR says where the brokers keep their data",
    "cluster.id": NODES_OF_ONES_OWN,
    "process.roles": NODES_OF_ONES_OWN,
    "controller.quorum.voters": NODES_OF_ONES_OWN,
    "controller.listener.names": NODES_OF_ONES_OWN,
    "listeners": NODES_OF_ONES_OWN,
    "advertised.listeners": NODES_OF_ONES_OWN,
    "listener.security.protocol.map": NODES_OF_ONES_OWN,
    "inter.broker.listener.name": NODES_OF_ONES_OWN,
}


@app.command("up")
def up(
    brokers: Annotated[
        int | None, typer.Option("-n", "--count", min=1, max=MOST_BROKERS, help="How many. [default: 3]")
    ] = None,
    data: Annotated[
        str | None, typer.Option("--data", metavar="DIR", help="Keep the data here. Default: a temporary directory.")
    ] = None,
    new: Annotated[bool, typer.Option("--new", help="An empty cluster, also beside a stopped one.")] = False,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="TLS, a user admin with a password, and ACLs: DIR/client.properties has them."),
    ] = False,
    settings: Settings = None,
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="Return when the brokers are ready; `cluster stop` stops them.")
    ] = False,
    timeout: Annotated[float, seconds("--timeout", "How long to wait for them.")] = 60.0,
    screen: QuietScreen = SCREEN,
) -> None:
    """Start brokers as processes of this machine.

    Every broker is also a controller. Without --detach they run until Ctrl-C, also when nobody reads the output any
    more. A directory that holds a cluster already is started again with its data; without --data, the cluster that was
    stopped last, if it has topics.
    """
    from odradek.cli.clusters.current import writable_home

    from odradek_chaos.cli.up import LocalRun

    if new and data is not None:
        raise CommandFailed("--new is for a cluster without --data", hint="name an empty directory", exit_code=USAGE)
    writable_home()  # before a broker has been started that nobody could find
    cluster = _lay_out(data, new, brokers, checked_settings(settings or []), secure, screen)
    raise typer.Exit(LocalRun(cluster, screen, timeout_s=timeout).run(detach=detach))


def _lay_out(
    data: str | None, new: bool, brokers: int | None, settings: dict[str, str], secure: bool, screen: Screen
) -> LocalCluster:
    """A new cluster, or the one that is there."""
    from odradek_broker.local.cluster import LocalCluster

    from odradek_chaos.cli.places import find, refuse_inside_another, stopped_with_data
    from odradek_chaos.cli.room import room_needed

    if data is None:
        stopped = None if new else stopped_with_data()
        if stopped is None:
            return _temporary(brokers or 3, settings, secure)
        _check_size(stopped, brokers, "leave out -n, or add --new for another cluster")
        _check_security(stopped, secure)
        screen.say(f"found a stopped cluster with {_topics(stopped)}; --new starts an empty one instead")
        return _again(stopped, settings, screen)
    directory = check_directory("--data", data)
    if not LocalCluster.exists(directory):
        refuse_inside_another(directory)
        with room_needed(directory):
            return LocalCluster.create(
                directory, brokers=brokers or 3, settings=settings, fixed_ports=True, secure=secure
            )
    cluster = find(directory)
    _check_size(cluster, brokers, "leave out -n, or name another directory")
    if all(cluster.running(node_id) for node_id in cluster.nodes):
        raise CommandFailed(
            f"the cluster in {directory} runs already, at {cluster.bootstrap}",
            hint=f"`odradek cluster stop --data {shlex.quote(str(directory))}` stops it",
        )
    _check_security(cluster, secure)
    cluster.temporary = False  # who names a directory wants to keep it
    return _again(cluster, settings, screen)


def _again(cluster: LocalCluster, settings: dict[str, str], screen: Screen) -> LocalCluster:
    """A cluster that is there, with addresses that are free, written down."""
    from odradek_chaos.cli.lost_disks import lost_disks
    from odradek_chaos.cli.room import room_needed

    screen.say_each(lost_disks(cluster, cluster.nodes))
    cluster.settings |= settings
    with room_needed(cluster.directory):
        cluster.place_metrics()
        if not any(cluster.running(node_id) for node_id in cluster.nodes):
            for address in cluster.renew_ports():
                screen.say(f"{address} is taken by another process now: the brokers get new addresses")
        cluster.save()
    return cluster


def _check_size(cluster: LocalCluster, brokers: int | None, hint: str) -> None:
    count = len(cluster.nodes)
    if brokers not in (None, count):
        raise CommandFailed(
            f"the cluster in {cluster.directory} has {count} {noun(count, 'broker')}, not {brokers}",
            hint=hint,
            exit_code=USAGE,
        )


def _check_security(cluster: LocalCluster, secure: bool) -> None:
    if secure and not cluster.secure:
        raise CommandFailed(
            f"the cluster in {cluster.directory} was made without --secure",
            hint="leave it out, or add --new or another --data for another cluster",
            exit_code=USAGE,
        )


def _topics(cluster: LocalCluster) -> str:
    """`topics orders, payments`."""
    topics = cluster.topics()
    return f"{noun(len(topics), 'topic')} {first_of(topics)}" if topics else "no topics"


def _temporary(brokers: int, settings: dict[str, str], secure: bool) -> LocalCluster:
    """A new cluster in a directory of its own, of which nothing stays when it cannot be laid out."""
    from odradek_broker.local.cluster import LocalCluster

    from odradek_chaos.cli.room import room_needed

    directory = Path(tempfile.mkdtemp(prefix="odradek-"))
    try:
        with room_needed(directory):
            return LocalCluster.create(
                directory, brokers=brokers, settings=settings, temporary=True, fixed_ports=True, secure=secure
            )
    except BaseException:
        shutil.rmtree(directory, ignore_errors=True)
        raise


def checked_settings(settings: list[str]) -> dict[str, str]:
    """Find wrong settings before three processes stumble over them."""
    from odradek_broker.config.settings import FIELD_BY_KEY
    from odradek_broker.config.sources import OTHER_NAMES, SettingError, load

    for name in (text.partition("=")[0].strip() for text in settings):
        if hint := SET_FOR_EACH.get(OTHER_NAMES.get(name, name)):
            said = f"-X {name}: `odradek cluster up` sets it for each broker"
            raise CommandFailed(said, hint=hint, exit_code=USAGE)
    try:
        unused = load(overrides=["node.id=1", *settings]).unused
    except SettingError as error:
        raise CommandFailed(str(error), hint=SETTINGS_HINT, exit_code=USAGE) from error
    for name in unused:
        near = did_you_mean(name, FIELD_BY_KEY)
        raise CommandFailed(f"-X {name}: odradek does not use this setting{near}", hint=SETTINGS_HINT, exit_code=USAGE)
    return {key.strip(): value.strip() for key, _, value in (text.partition("=") for text in settings)}


@app.command("stop")
def stop(data: DataDirectory = None, screen: QuietScreen = SCREEN) -> None:
    """Stop a cluster of this machine and keep its data.

    `odradek cluster up` starts it again, at the same addresses.
    """
    _end(data, screen, remove=False, down=False)


@app.command("down")
def down(
    data: DataDirectory = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the data of a directory that was named.")] = False,
    yes: Yes = False,
    screen: QuietScreen = SCREEN,
) -> None:
    """Stop a cluster of this machine and forget it.

    Its data is removed if its directory was never named to `cluster up` with --data, or with --remove. Where topics
    would be lost it asks first; elsewhere than on a terminal it needs --yes. A cluster that was started before it and
    still runs is the default again.
    """
    _end(data, screen, remove=remove, down=True, yes=yes)


def _end(data: str | None, screen: Screen, *, remove: bool, down: bool, yes: bool = False) -> NoReturn:
    from odradek.cli.clusters.current import data_directory, forget, step_back
    from odradek.cli.terminal.options import confirm

    from odradek_chaos.cli.places import find, runs

    cluster = find(data_directory(data))
    removed = down and (remove or cluster.temporary)
    place = shlex.quote(str(cluster.directory))
    if removed and not yes and cluster.topics():
        confirm(
            f"removing {cluster.directory} with {_topics(cluster)}",
            f"removes {cluster.directory} with {_topics(cluster)}",
            "yes",
            hint=f"add --yes; `odradek cluster stop` keeps the data, `odradek audit run --data {place}` then reads it",
        )
    live = [node_id for node_id in cluster.nodes if cluster.running(node_id)]
    killed = cluster.stop_all()
    again = (forget if down else step_back)(cluster.directory, runs)
    if removed:
        cluster.remove()
    facts = {"directory": str(cluster.directory), "stopped": live, "killed": killed, "removed": removed}

    def text() -> str:
        what = f"stopped {len(live)} {noun(len(live), 'broker')}" if live else "no broker ran"
        if killed:
            what += f", of which {', '.join(map(str, killed))} did not stop in time and were killed"
        return (
            f"{what}; the data in {cluster.directory} was removed"
            if removed
            else f"{what}; the data is in {cluster.directory}"
        )

    screen.show(facts, text)
    if not removed:
        screen.say(f"`odradek cluster up{'' if not down and data is None else ' --data ' + place}` starts it again")
        if down:
            screen.say(
                f"its directory was named with --data: `odradek cluster down --data {place} --remove` removes it"
            )
    if again is not None:
        screen.say(f"the cluster in {again} is the default again")
    raise typer.Exit(FAILED if killed else FINE)


@app.command("list")
def list_clusters(screen: ToScreen = SCREEN) -> None:
    """List the clusters of this machine, also stopped ones, the default first.

    DOWN: whether `odradek cluster down` removes its data, or keeps it.
    """
    from odradek_chaos.cli.places import known_clusters

    rows: list[dict[str, Any]] = []
    for cluster in known_clusters():
        live = [node_id for node_id in cluster.nodes if cluster.running(node_id)]
        frozen = [node_id for node_id in live if cluster.paused(node_id)]  # by SIGSTOP: nobody has to be asked
        well = len(live) - len(frozen) == len(cluster.nodes)
        rows.append(
            {
                "directory": str(cluster.directory),
                "state": "stopped" if not live else "up" if well else "partly up",
                "brokers": len(cluster.nodes),
                "running": live,
                "frozen": frozen,
                "topics": cluster.topics(),
                "bootstrap": cluster.bootstrap,
                "kafka_bootstrap": cluster.kafka_bootstrap,
                "temporary": cluster.temporary,
            }
        )
    if not screen.for_people or not rows:
        screen.show_rows(rows, {})
        screen.say(
            ""
            if rows
            else "no cluster is remembered here: `odradek cluster up` starts one, --data DIR one that is there"
        )
        return
    for row in rows:
        stuck = f", {len(row['frozen'])} frozen" if row["frozen"] else ""
        row |= {"topics": first_of(row["topics"], 3), "running": f"{len(row['running'])} of {row['brokers']}{stuck}"}
        row["down"] = "removes" if row["temporary"] else "keeps"
    screen.show_rows(rows, {"directory": "DIRECTORY", "state": "STATE", "running": "RUNNING", "topics": "TOPICS",
                            "down": "DOWN", "bootstrap": "ADDRESSES", "kafka_bootstrap": "KAFKA"})  # fmt: skip


app.command("status")(looking.status)
app.command("describe")(looking.describe)
app.command("quorum")(looking.quorum)
app.command("health")(looking.health)
app.command("unregister")(looking.unregister)
