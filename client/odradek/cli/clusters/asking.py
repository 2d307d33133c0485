"""How a command asks a cluster: by an admin client of its own, within its time, and with the reason if it fails."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from odradek_proto.command_line import TIMED_OUT, CommandFailed

from odradek.cli.clusters.current import bootstrap_servers
from odradek.cli.terminal.grouping import OPTIONS, QUIET_OPTIONS
from odradek.cli.terminal.options import DEFAULT_TIMEOUT_S, Bootstrap, Timeout
from odradek.cli.terminal.running import run, within
from odradek.cli.terminal.screen import Screen

if TYPE_CHECKING:
    from odradek import Admin

R = TypeVar("R")
LOOKING_MOST_MS = 5_000  # bootstrap.timeout.ms, the client's default
LOOKING_SHARE = 0.9  # of --timeout, for finding a first broker


class ClusterScreen(Screen):
    """A screen of a command that asks a cluster, with what says which one and for how long."""

    def __init__(self, bootstrap: str | None = None, timeout: float = DEFAULT_TIMEOUT_S, **screen: Any) -> None:
        super().__init__(**screen)
        self.bootstrap = bootstrap
        self.timeout = timeout

    def ask(self, question: Callable[[Admin], Awaitable[R]]) -> R:
        return ask(self.bootstrap, self.timeout, question)


ASKING: Final = ClusterScreen()  # what a command's parameter is set to: `screen: ToAsking = ASKING`
TIMEOUT = {"timeout": (Timeout, DEFAULT_TIMEOUT_S)}
ToAsking = Annotated[ClusterScreen, {"bootstrap": (Bootstrap, None), **OPTIONS, **TIMEOUT}]
QuietAsking = Annotated[ClusterScreen, {"bootstrap": (Bootstrap, None), **QUIET_OPTIONS, **TIMEOUT}]


def ask(bootstrap: str | None, timeout: float | None, question: Callable[[Admin], Awaitable[R]]) -> R:
    """Run one question to the cluster with an admin client of its own.

    The client gives up before the deadline does: it can say why no broker was reached. Both begin when all is loaded.
    """
    servers = bootstrap_servers(bootstrap)
    from odradek import Admin
    from odradek.shared.security import network_for

    looking_ms = LOOKING_MOST_MS
    if timeout is not None:
        looking_ms = max(1, min(looking_ms, int(timeout * 1000 * LOOKING_SHARE)))

    async def work() -> R:
        network = network_for()
        try:
            async with Admin(servers, bootstrap_timeout_ms=looking_ms, network=network) as admin:
                return await question(admin)
        finally:
            await network.close()

    async def explained() -> R:
        try:
            return await within(work(), timeout)
        except CommandFailed as error:
            if error.exit_code != TIMED_OUT or looking_ms < LOOKING_MOST_MS:
                raise
            if not (known := await _who_is_silent(servers)):
                raise
            hint = "nothing is decided until a majority of the controllers runs: `odradek doctor` says which are down"
            raise CommandFailed(f"{error}: {known}", hint=hint, exit_code=TIMED_OUT) from None

    return run(explained())


async def _who_is_silent(servers: str) -> str:
    """What is known of the active controller, which an order waits for; "" if it answers, or if all are too busy."""
    import asyncio

    from odradek import Admin, OdradekError
    from odradek.cli.clusters.status import QUORUM_ANSWER_S, no_controller

    try:
        async with Admin(servers, bootstrap_timeout_ms=round(QUORUM_ANSWER_S * 1000)) as admin:
            await asyncio.wait_for(admin.describe_cluster(), QUORUM_ANSWER_S)
            try:
                await asyncio.wait_for(admin.describe_quorum(), QUORUM_ANSWER_S)
            except TimeoutError:
                cluster = await asyncio.wait_for(admin.describe_cluster(), QUORUM_ANSWER_S)  # not too busy for that
                return no_controller(cluster.controller_id, QUORUM_ANSWER_S)
    except (OdradekError, TimeoutError):
        pass
    return ""
