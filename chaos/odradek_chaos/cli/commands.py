"""`odradek chaos`: strike the brokers of a cluster, by what they do.

A broker is chosen by its role at this moment (the leader or a follower of a partition, the active controller) or by
its number. The worlds are `processes`, which `odradek cluster up` started on this machine, and `compose`, containers of
a compose project. Signals go only to processes whose start time is still the same, Docker is only asked to touch
containers with the project's label.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from odradek.cli.terminal.grouping import SCREEN, CommandGroup, QuietScreen
from odradek.cli.terminal.options import DEFAULT_TIMEOUT_S, DataDirectory, seconds
from odradek.cli.terminal.parsing import parse_partition
from odradek.cli.terminal.screen import Screen
from odradek_proto.command_line import USAGE, CommandFailed

from odradek_chaos.cli import campaigns as campaigns_cli
from odradek_chaos.cli import coverage as coverage_cli
from odradek_chaos.cli import crash_states as crash_states_cli
from odradek_chaos.cli import determinism as pairs_cli
from odradek_chaos.cli import rounds as rounds_cli
from odradek_chaos.cli import trace as trace_cli
from odradek_chaos.cli import write as writing_cli
from odradek_chaos.cli.simulation import simulates
from odradek_chaos.worlds.real import SLOW_DELAY_MS, SLOW_FOR_MS, SLOW_MOST_S

if TYPE_CHECKING:
    from odradek_chaos.cli.selecting import SelectedBroker
    from odradek_chaos.harness.waiting import NotReadyInTime
    from odradek_chaos.worlds.real import Fault, RealWorld

app = CommandGroup("Kill, freeze, cut off and restart brokers; run campaigns of seeded faults.")


class WorldKind(StrEnum):
    """Where the brokers run."""

    PROCESSES = "processes"
    COMPOSE = "compose"


Leader = Annotated[str | None, typer.Option("--leader", metavar="TOPIC-PARTITION", help="The leader of a partition.")]
Follower = Annotated[
    str | None, typer.Option("--follower", metavar="TOPIC-PARTITION", help="A follower of a partition, in sync if any.")
]
Controller = Annotated[bool, typer.Option("--controller", help="The active controller.")]
Broker = Annotated[int | None, typer.Option("--broker", metavar="N", help="The broker with this number.")]
Where = Annotated[WorldKind, typer.Option("--world", help="Processes of this machine, or containers.")]
Project = Annotated[
    str | None,
    typer.Option(
        "--project", metavar="NAME", help="The compose project. Default: COMPOSE_PROJECT_NAME, or this directory's."
    ),
]
FAULT_COMMANDS = {
    "kill": "Kill a broker (kill -9). It stays down until `restart`.",
    "pause": "Freeze a broker (SIGSTOP, or Docker's pause): it holds its connections and says nothing.",
    "cut": "Take a container's network away, both ways: whoever talks to it hears nothing any more.",
}
REPAIRS = {
    "resume": (("pause",), "Resume a paused broker, or all paused brokers if none is named."),
    "heal": (
        ("cut", "slow"),
        "Give a container its network back; let a slow follower fetch as before. Without a choice: all of them.",
    ),
}


class BrokerChoice(NamedTuple):
    """How a broker is named on the command line: by one of these."""

    leader: str | None
    follower: str | None
    controller: bool
    broker: int | None

    @property
    def given(self) -> int:
        return sum(each is not None and each is not False for each in self)

    def check(self, *, optional: bool) -> None:
        """Raise `CommandFailed` unless it names one broker, or none where that is allowed."""
        if self.given != 1 and not (optional and self.given == 0):
            raise CommandFailed(
                "say which broker: one of --leader, --follower, --controller, --broker",
                hint="for example --leader orders-0",
                exit_code=USAGE,
            )
        for text in (self.leader, self.follower):
            if text is not None:
                parse_partition(text)


class WorldChoice(NamedTuple):
    """Which world, as the command line named it."""

    world: WorldKind
    data: str | None
    project: str | None

    def arguments(self) -> str:
        """The same for another subcommand: a hint that leaves it out would act on another cluster."""
        said = [] if self.world is WorldKind.PROCESSES else ["--world", self.world.value]
        said += [] if self.data is None else ["--data", self.data]
        said += [] if self.project is None else ["--project", self.project]
        return "".join(f" {shlex.quote(word)}" for word in said)


class CompletedFault(NamedTuple):
    """What was done, in the past tense, and to whom."""

    verb: str
    target: SelectedBroker


Act = Callable[["RealWorld", BrokerChoice, Screen, WorldChoice], None]


def _command(name: str, help_text: str, act: Act, *, choice_optional: bool) -> None:
    """Add a subcommand that finds the world and acts on a broker of it that is chosen by its role or number."""

    def command(
        leader: Leader = None,
        follower: Follower = None,
        controller: Controller = False,
        broker: Broker = None,
        world: Where = WorldKind.PROCESSES,
        data: DataDirectory = None,
        project: Project = None,
        screen: QuietScreen = SCREEN,
    ) -> None:
        choice = BrokerChoice(leader, follower, controller, broker)
        choice.check(optional=choice_optional)
        act(_world(world, data, project), choice, screen, WorldChoice(world, data, project))

    app.command(name, help=help_text)(command)


def _striking(name: str) -> Act:
    def inject(world: RealWorld, choice: BrokerChoice, screen: Screen, place: WorldChoice) -> None:
        fault = _fault(name)
        target = _chosen(world, choice)
        if fault.suffers(world, target.broker):
            screen.say(
                f"broker {target.broker} {fault.was.replace('was', 'is')} already: {_remedy(fault, target, place)}"
            )
            _tell([], screen)
            return
        fault.inject(world, target.broker)
        _tell_struck(fault, target, screen, place)

    return inject


def _tell_struck(fault: Fault, target: SelectedBroker, screen: Screen, place: WorldChoice, how: str = "") -> None:
    _tell([CompletedFault(fault.done, target)], screen)
    if screen.for_people and how:
        screen.say(how)
    if screen.for_people:
        screen.say(_remedy(fault, target, place))


def _remedy(fault: Fault, target: SelectedBroker, place: WorldChoice) -> str:
    return f"`odradek chaos {fault.remedy}{place.arguments()} --broker {target.broker}` {fault.remedied}"


def _repairing(names: Sequence[str]) -> Act:
    def repair(world: RealWorld, choice: BrokerChoice, screen: Screen, place: WorldChoice) -> None:
        from odradek_chaos.cli.selecting import SelectedBroker

        chosen = _chosen(world, choice) if choice.given else None
        looked_at = [chosen.broker] if chosen is not None else world.nodes
        suffering = [
            (fault, node_id) for fault in map(_fault, names) for node_id in looked_at if fault.suffers(world, node_id)
        ]
        if chosen is not None and not suffering:
            well = " and ".join(_fault(name).was.replace("was ", "was not ") for name in names)
            screen.say(f"broker {chosen.broker} {well}")
        for fault, node_id in suffering:
            fault.repair(world, node_id)
        _tell(
            [
                CompletedFault(fault.undone, chosen or SelectedBroker(node_id, fault.was, world.place(node_id)))
                for fault, node_id in suffering
            ],
            screen,
        )

    return repair


@app.command("slow")
def slow(
    leader: Leader = None,
    follower: Follower = None,
    controller: Controller = False,
    broker: Broker = None,
    delay: Annotated[
        float, seconds("--delay", "How late each fetch from a leader is.", most=SLOW_MOST_S)
    ] = SLOW_DELAY_MS / 1000,
    for_seconds: Annotated[float, seconds("--for", "How long; it ends by itself.", most=SLOW_MOST_S)] = SLOW_FOR_MS
    / 1000,
    world: Where = WorldKind.PROCESSES,
    data: DataDirectory = None,
    project: Project = None,
    screen: QuietScreen = SCREEN,
) -> None:
    """Let a broker fetch late from leaders, as a follower on a slow machine does; its session goes on.

    Where its leaders are written to, a follower that is late by more than replica.lag.time.max.ms leaves the ISR. It
    comes back when --for is over, or by `heal`. The broker reads the order from a file in its log directory.
    """
    choice = BrokerChoice(leader, follower, controller, broker)
    choice.check(optional=False)
    found, place = _world(world, data, project), WorldChoice(world, data, project)
    target = _chosen(found, choice)
    found.slow(target.broker, round(delay * 1000), round(for_seconds * 1000))
    how = f"each of its fetches from a leader is {delay:g} s late, for {for_seconds:g} s"
    _tell_struck(_fault("slow"), target, screen, place, how)


for _name, _help in FAULT_COMMANDS.items():
    _command(_name, _help, _striking(_name), choice_optional=False)
for _name, (_of, _help) in REPAIRS.items():
    _command(_name, _help, _repairing(_of), choice_optional=True)


@app.command("restart")
def restart(
    broker: Broker = None,
    world: Where = WorldKind.PROCESSES,
    data: DataDirectory = None,
    project: Project = None,
    wait: Annotated[bool, typer.Option("--wait", help="Until they are ready again.")] = False,
    timeout: Annotated[float, seconds("--timeout", "How long to wait for them.")] = 60.0,
    screen: QuietScreen = SCREEN,
) -> None:
    """Start stopped brokers. With --broker, restart that one (with a controlled shutdown if it is running).

    Without --broker, --wait waits for all brokers of the cluster; with it, for this one, whoever else is down.
    """
    from odradek_chaos.cli.selecting import SelectedBroker

    found = _world(world, data, project)
    because = "was not running"
    if broker is not None:
        because = "was stopped cleanly before" if found.running(broker) else because
        found.stop(broker)
    chosen = [broker] if broker is not None else [node_id for node_id in found.nodes if not found.running(node_id)]
    screen.say_each(_lost_disks(found, chosen))
    for node_id in chosen:
        found.start(node_id)
    done = [CompletedFault("started", SelectedBroker(node_id, because, found.place(node_id))) for node_id in chosen]
    if wait:
        import asyncio

        from odradek_chaos.harness.waiting import NotReadyInTime, wait_until_ready

        try:
            asyncio.run(wait_until_ready(found, only=None if broker is None else chosen, timeout_s=timeout))
        except NotReadyInTime as error:
            raise _with_frozen(error, found, WorldChoice(world, data, project)) from None
    _tell(done, screen)
    if screen.for_people:
        _tell_down(found, screen, WorldChoice(world, data, project))


def _with_frozen(late: NotReadyInTime, world: RealWorld, place: WorldChoice) -> NotReadyInTime:
    """The same error, or one that names the brokers that are paused, which no wait makes ready."""
    frozen = [node_id for node_id in world.nodes if world.paused(node_id)]
    if not frozen:
        return late
    pids = {node_id: world.place(node_id).get("pid", "unknown") for node_id in frozen}
    who = ", ".join(f"broker {node_id} (pid {pid}) is frozen" for node_id, pid in pids.items())
    thaws = ", ".join(f"`odradek chaos resume{place.arguments()} --broker {node_id}`" for node_id in frozen)
    return type(late)(f"{late}; {who}", hint=f"{thaws}, which ends it")


def _lost_disks(world: RealWorld, starting: list[int]) -> list[str]:
    """What is to be said before these start. Raises `CommandFailed`."""
    from odradek_chaos.cli.lost_disks import lost_disks
    from odradek_chaos.worlds.processes import ProcessesWorld

    return lost_disks(world.cluster, starting) if isinstance(world, ProcessesWorld) else []


def _world(world: WorldKind, data: str | None, project: str | None) -> RealWorld:
    from odradek.cli.clusters.current import data_directory, talk_as_told

    if world is WorldKind.COMPOSE:
        from odradek_chaos.worlds.compose import ComposeWorld, project_name

        if data is not None:
            raise CommandFailed("--data is of processes", hint="containers: --project NAME", exit_code=USAGE)
        talk_as_told(None)
        return ComposeWorld(project_name(project, os.environ, Path.cwd()))
    if project is not None:
        raise CommandFailed("--project is of containers", hint="add --world compose", exit_code=USAGE)
    from odradek_chaos.cli.places import find
    from odradek_chaos.worlds.processes import ProcessesWorld

    return ProcessesWorld(find(data_directory(data)))


def _fault(name: str) -> Fault:
    from odradek_chaos.worlds.real import FAULTS

    return FAULTS[name]


def _chosen(world: RealWorld, choice: BrokerChoice) -> SelectedBroker:
    """The one broker that was chosen, and what it was doing."""
    from odradek.cli.terminal.running import run

    from odradek_chaos.cli.selecting import select

    return run(select(world, *choice), DEFAULT_TIMEOUT_S)


def _tell(done: list[CompletedFault], screen: Screen) -> None:
    if not screen.for_people:
        rows = [{"action": verb, "broker": to.broker, **to.place, "because": to.because} for verb, to in done]
        screen.show_rows(rows, {})
        return
    for verb, target in done:
        place = ", ".join(f"{kind} {name}" for kind, name in target.place.items())
        screen.say(f"{verb} broker {target.broker} ({place}): {target.because}")
    if not done:
        screen.say("nothing to do")


def _tell_down(world: RealWorld, screen: Screen, place: WorldChoice) -> None:
    """Who was not asked for and does not run."""
    for node_id in world.nodes:
        if not world.running(node_id):
            starts = f"`odradek chaos restart{place.arguments()} --broker {node_id}` starts it"
            screen.say(f"broker {node_id} is down since before; {starts}")


app.command("write")(writing_cli.write)
app.command("run")(campaigns_cli.run)
app.command("trace")(trace_cli.trace)
app.command("crash-states")(simulates(crash_states_cli.crash_states))
app.command("rounds")(simulates(rounds_cli.rounds))
app.command("coverage")(simulates(coverage_cli.coverage))
app.command("pairs")(simulates(pairs_cli.pairs, faults_s=pairs_cli.FAULTS_S))
