"""Every mistake is answered with what happened, why, and what to do; with its own exit code and no traceback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from odradek import Admin
from odradek.cli.clusters import asking
from odradek.cli.clusters.current import remember
from odradek.cluster.cluster import ClusterClient, _stays_so
from odradek_broker.local.cluster import LocalCluster
from odradek_proto import command_line

from tests.cli.conftest import Run

SLOW = pytest.mark.slow  # each is a process or two


@pytest.mark.parametrize(
    ("setting", "remedy"),
    [
        ("node.id=9", "-n says how many brokers there are"),
        ("node.id=nine", "-n says how many brokers there are"),
        ("log.dirs=/tmp/elsewhere", "--data DIR"),
        ("log.dir = /tmp/elsewhere", "--data DIR"),  # its other name
        ("cluster.id=another", "`odradek server run`"),
        ("process.roles=broker", "`odradek server run`"),
        ("controller.quorum.voters=1@127.0.0.1:1", "`odradek server run`"),
        ("listeners=GRPC://127.0.0.1:0", "`odradek server run`"),
        ("advertised.listeners=GRPC://here:9092", "`odradek server run`"),
        ("controller.listener.names=HIDDEN", "`odradek server run`"),
        ("inter.broker.listener.name=INSIDE", "`odradek server run`"),
        ("listener.security.protocol.map=INSIDE:GRPC", "`odradek server run`"),
    ],
)
def test_what_a_cluster_sets_for_each_broker_is_refused(
    odradek: Run, nothing_starts: None, places: Path, setting: str, remedy: str
) -> None:
    """Given to all of them alike no controller is ever elected: no start that fails after a minute, but code 2."""
    outcome = odradek("cluster", "up", "-X", setting, code=command_line.USAGE)
    sentence, hint = outcome.err.splitlines()
    assert f"-X {setting.partition('=')[0].strip()}: `odradek cluster up` sets it for each broker" in sentence
    assert remedy in hint
    assert not list(places.iterdir())


ASKS_THE_CLUSTER_OF_THIS_MACHINE = [
    "chaos kill --broker 1", "chaos pause --broker 1", "chaos resume", "chaos restart", "cluster down",
]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    ["topic list", "consume orders", "produce orders --count 1", "cluster status", *ASKS_THE_CLUSTER_OF_THIS_MACHINE],
)
def test_no_cluster_is_known(odradek: Run, words: str) -> None:
    """Without an address and without a remembered cluster, a command says how to get one."""
    outcome = odradek(*words.split(), code=command_line.UNREACHABLE)
    assert "odradek cluster up" in outcome.err


def test_a_remembered_cluster_that_is_gone_is_named(odradek: Run, home: Path) -> None:
    """The pointer to a directory that was removed is told apart from an address where nobody listens."""
    home.mkdir()
    (home / "current").write_text("/nowhere/at/all\n")
    for words in ("topic list", "cluster down", "chaos restart"):
        outcome = odradek(*words.split(), code=command_line.UNREACHABLE)
        assert "odradek: the cluster that was started last, in /nowhere/at/all, is gone\n" in outcome.err


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff", "is no UTF-8 text"),
        (b"[]", "is not the JSON object that `odradek cluster up` writes"),
        (b"{}", "has no 'nodes', the list of its brokers"),
        (b'{"nodes": [{"node_id": 1}]}', "lacks 'grpc' of a broker in 'nodes'"),
        (b'{"nodes": [{"grpc": 5}], "cluster_id": "x", "settings": {}}', "has a value of a wrong kind"),
        (b'{"nodes": [{"grpc": "here"}], "cluster_id": "x", "settings": {}}', "has a value of a wrong kind"),
        pytest.param(b"[" * 200_000, "is no JSON that is read: too deep", id="deep"),
    ],
)
def test_a_broken_file_of_the_remembered_cluster_is_explained(
    odradek: Run, home: Path, tmp_path: Path, content: bytes, said: str
) -> None:
    """The file, what is wrong with it, and what can be done: the cluster itself may run all the same."""
    remember(tmp_path)
    (file := tmp_path / "cluster.json").write_bytes(content)
    for words in ("topic list", "consume orders", "cluster health") if content == b"{}" else ("topic list",):
        outcome = odradek(*words.split(), code=command_line.FAILED)
        message, remedy = outcome.err.splitlines()
        assert message == f"odradek: {file} {said}"
        assert remedy.startswith("  try: put it back from a copy, or name a broker with -b HOST:PORT")


def test_a_file_of_the_remembered_cluster_that_cannot_be_read_is_explained(
    odradek: Run, home: Path, tmp_path: Path
) -> None:
    """It is there, so the cluster is not called gone."""
    remember(tmp_path)
    (file := tmp_path / "cluster.json").mkdir()
    outcome = odradek("topic", "list", code=command_line.FAILED)
    assert outcome.err.startswith(f"odradek: {file} cannot be read: Is a directory\n  try: make it readable")


def test_a_pointer_of_any_bytes_ends_no_command_in_a_traceback(odradek: Run, home: Path) -> None:
    """What is no path is passed over; a path that is no text is a path."""
    home.mkdir()
    (home / "current").write_bytes(b"a\0b\n/nowhere/\xff\n")
    outcome = odradek("topic", "list", code=command_line.UNREACHABLE)
    assert outcome.err.startswith("odradek: the cluster that was started last, in /nowhere/")
    assert "is gone\n" in outcome.err


def test_a_deadline_ends_with_its_own_code(odradek: Run, deaf: str) -> None:
    """--timeout that is over ends with code 5 and says so."""
    outcome = odradek("topic", "list", "-b", deaf, "--timeout", "0.3", code=command_line.TIMED_OUT)
    assert "0.3 seconds" in outcome.err


def test_a_deadline_does_not_hide_that_nobody_listens(
    odradek: Run, nobody: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With less time than the client would look for a broker, the reason is still told, with its own code.

    The client is given a small share of a long time, not most of a short one: whoever is late by seconds tells it, too.
    """
    monkeypatch.setattr(asking, "LOOKING_MOST_MS", 600_000)
    monkeypatch.setattr(asking, "LOOKING_SHARE", 0.01)
    outcome = odradek("topic", "list", "-b", nobody, "--timeout", "60", code=command_line.UNREACHABLE)
    assert f"{nobody}: connection refused" in outcome.err


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[ClusterClient]:
    """Grows with each time that a client looks for a broker."""
    found: list[ClusterClient] = []
    look = ClusterClient._refresh

    async def counted(self: ClusterClient) -> bool:
        found.append(self)
        return await look(self)

    monkeypatch.setattr(ClusterClient, "_refresh", counted)
    return found


@pytest.mark.parametrize(
    "words", ["topic list", "topic create a", "consume a", "produce a --count 1", "chaos write a", "cluster status -w"]
)
def test_one_look_is_enough_where_all_addresses_refuse(
    odradek: Run, nobody: str, looks: list[ClusterClient], words: str
) -> None:
    """Nothing is waited for."""
    outcome = odradek(*words.split(), "-b", nobody, code=command_line.UNREACHABLE)
    assert f"{nobody}: connection refused" in outcome.err
    assert len(looks) == 1


@pytest.mark.parametrize(
    ("cause", "stays"),
    [
        ("not reachable: unknown host nobody.invalid", True),
        ("not reachable: nobody.invalid cannot be resolved: Timeout while contacting DNS servers", False),
        ("not reachable: it takes the connection and says nothing", False),
        ("not reachable: Socket closed", False),
    ],
)
def test_what_is_not_there_is_told_from_what_is_busy(cause: str, stays: bool) -> None:
    """A name that nobody knows will not be known soon; who hangs up or says nothing may be starting."""
    assert _stays_so(cause) is stays


def test_a_broker_of_this_machine_that_is_starting_is_waited_for(
    odradek: Run, home: Path, tmp_path: Path, nobody: str, looks: list[ClusterClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process runs, and does not listen yet; whether or not its address is named, and by which name of the host."""
    monkeypatch.setattr(asking, "LOOKING_MOST_MS", 1_000)
    cluster = LocalCluster.create(tmp_path / "cluster", brokers=1)
    node = cluster.nodes[1]
    node.grpc, node.pid = nobody, os.getpid()
    cluster.save()
    remember(cluster.directory)
    named = [nobody.replace("127.0.0.1", host) for host in ("127.0.0.1", "localhost", "LOCALHOST")]
    for words in (("topic", "list"), *(("topic", "list", "-b", address) for address in named)):
        looks.clear()
        odradek(*words, code=command_line.UNREACHABLE)
        assert len(looks) > 1
    node.pid = 0
    cluster.save()
    looks.clear()
    odradek("topic", "list", code=command_line.UNREACHABLE)
    odradek("chaos", "kill", "--controller", code=command_line.UNREACHABLE)
    assert len(looks) == 2


def test_debug_shows_where_an_error_came_from(odradek: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """ODRADEK_DEBUG=1 adds the traceback."""
    monkeypatch.setenv("ODRADEK_DEBUG", "1")
    assert "Traceback" in odradek("topic", "list").err


def test_a_taken_port_stops_a_node_with_a_sentence(odradek: Run, tmp_path: Path) -> None:
    """A node whose port somebody has ends with code 1 and names the address."""
    with socket.socket() as taken, socket.socket() as free:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        free.bind(("127.0.0.1", 0))
        mine, other = (f"127.0.0.1:{each.getsockname()[1]}" for each in (taken, free))
        free.close()
        outcome = odradek(
            "server", "run", "-X", "node.id=1", "-X", f"log.dirs={tmp_path / 'data'}",
            "-X", f"listeners=GRPC://{mine},REPLICATION://127.0.0.1:0,CONTROLLER://{other}",
        )  # fmt: skip
    assert outcome.code == command_line.FAILED, outcome
    assert mine in outcome.err
    assert "Traceback" not in outcome.err


def test_a_hint_can_be_pasted_into_a_shell(odradek: Run, tmp_path: Path) -> None:
    """A directory with a space in its name stands in quotes."""
    outcome = odradek("cluster", "down", "--data", str(tmp_path / "my data"))
    assert f"`odradek cluster up --data '{tmp_path / 'my data'}'` starts one" in outcome.err


@pytest.mark.slow
@pytest.mark.cluster
def test_a_start_that_fails_leaves_the_logs_that_it_names(
    odradek_process: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those of a temporary directory, with how to remove it; the brokers do not stay."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    outcome = odradek_process("cluster", "up", "-d", "-n", "1", "--timeout", "0.001", code=command_line.TIMED_OUT)
    said, _, removal = outcome.err.rpartition("; ")
    named = Path(said.rpartition("what they say: ")[2])
    assert named.is_file(), outcome.err
    assert not LocalCluster.load(named.parent).running(1)
    assert removal == f"`odradek cluster down --data {named.parent} --remove` removes what it left\n"


def test_a_home_that_cannot_be_written_is_named_before_a_broker_starts(
    odradek: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers whose place nobody could remember are not started; the variable and the remedy are named."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ODRADEK_HOME", str(tmp_path / "file" / "home"))
    outcome = odradek("cluster", "up", "-d", "--data", str(tmp_path / "cluster"), code=command_line.FAILED)
    assert "cannot write to ODRADEK_HOME, " in outcome.err
    assert "set ODRADEK_HOME to a directory of yours" in outcome.err
    assert not (tmp_path / "cluster").exists()


ASKS_A_CLUSTER = [
    "cluster status", "cluster describe", "cluster quorum", "cluster health", "topic list", "topic create x",
    "topic describe", "topic describe x", "topic delete x --yes", "topic alter x --config a=1", "topic elect",
    "config describe --topic x", "consume x", "produce x --count 1", "chaos write x", "doctor",
]  # fmt: skip


FORKS = """
import json, os, sys

import odradek.administration.admin, odradek.consuming.consumer, odradek.producing.producer, odradek_chaos.cli.write
import odradek_proto.transport.grpc_network
from odradek.cli.main import command_tree, main
from odradek.cli.reference import commands

loaded = list(commands(command_tree(), ("odradek",)))
running = {}
for words in json.loads(sys.argv[1]):
    running[words] = os.fork()
    if not running[words]:
        os.dup2(os.open(f"{sys.argv[2]}/{words.replace(' ', '-')}", os.O_WRONLY | os.O_CREAT), 2)
        os._exit(main([*words.split(), "-b", sys.argv[3]]))
print(json.dumps({words: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for words, pid in running.items()}))
"""


@pytest.mark.slow
def test_nobody_listens(home: Path, nobody: str, tmp_path: Path) -> None:
    """Every command that asks a cluster ends with the same code when none can be reached, and names the address.

    Each waits for seconds, so all run at the same time: forks of one process that has loaded all that they need.
    """
    command = [sys.executable, "-c", FORKS, json.dumps(ASKS_A_CLUSTER), str(tmp_path), nobody]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=True)
    said = {words: (tmp_path / words.replace(" ", "-")).read_text() for words in ASKS_A_CLUSTER}
    assert json.loads(done.stdout.splitlines()[-1]) == dict.fromkeys(ASKS_A_CLUSTER, command_line.UNREACHABLE), said
    assert not [words for words, lines in said.items() if "Traceback" in lines]
    assert all(nobody in lines for words, lines in said.items() if words != "doctor"), said  # it says so in its table


def hang_up(listener: socket.socket) -> None:
    """Read a little of each connection and close it, until the listener is gone."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(10)


@pytest.mark.parametrize(("closes", "said"), [
    (False, "it takes the connection and says nothing\n  try: is the process frozen, or the machine too busy?"),
    (True, "it closes the connection: a server of another kind?\n  try: check host names and ports"),
])  # fmt: skip
def test_what_listens_and_is_no_broker_is_told_in_plain_words(odradek: Run, closes: bool, said: str) -> None:
    """Not in gRPC's, which were six hundred characters for three frozen brokers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        thread = threading.Thread(target=hang_up, args=(listener,), daemon=True)
        if closes:
            thread.start()
        outcome = odradek("topic", "list", "-b", address)
        listener.shutdown(socket.SHUT_RDWR)
    assert outcome.code == command_line.UNREACHABLE
    assert outcome.err.startswith(f"odradek: no broker could be reached: {address}: not reachable: {said}")
    assert len(outcome.err) < 250


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize(
    "words",
    ["version", *(pytest.param(each, marks=SLOW) for each in ("--help", "topic create --help", "chaos --help"))],
)
def test_a_full_disk_is_named(home: Path, words: str) -> None:
    """Output that cannot be written is one sentence and code 1, at the end of the process too."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "odradek.cli.main", *words.split()],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == command_line.FAILED
    assert done.stderr.splitlines()[0] == "odradek: cannot write: No space left on device"
    assert len(done.stderr.splitlines()) == 2


@SLOW
@pytest.mark.parametrize("words", ["version --json", "topic create --help", "version", "--help"])
@pytest.mark.parametrize("rest", [">&-", "2>&-", "<&-", "| true", "2>&1 | true"])
def test_a_closed_output_is_no_failure(shell: Run, words: str, rest: str) -> None:
    """Whoever closes the output, or has read enough of it, gets no error and no traceback."""
    done = shell(f"odradek {words} {rest}")
    assert (done.code, done.err) == (command_line.FINE, "")


def test_a_closed_output_hides_no_error(shell: Run) -> None:
    """A command that fails says so on standard error, and by its code, also without a standard output."""
    done = shell("odradek topic list >&-", code=command_line.UNREACHABLE)
    assert "no cluster was named" in done.err
    assert "Traceback" not in done.err


def test_why_there_was_no_answer_in_time_is_asked_on_the_same_loop(
    odradek_bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """gRPC's poller speaks to the loop before it, when there is a second one, and a traceback is printed."""
    monkeypatch.setattr(asking, "LOOKING_MOST_MS", 1)
    loops: list[object] = []
    asked: list[str] = []
    who = asking._who_is_silent

    async def never(admin: Admin) -> None:
        loops.append(asyncio.get_running_loop())
        await asyncio.Event().wait()

    async def who_is_silent(servers: str) -> str:
        loops.append(asyncio.get_running_loop())
        asked.append(await who(servers))
        return "somebody"

    monkeypatch.setattr(asking, "_who_is_silent", who_is_silent)
    with pytest.raises(command_line.CommandFailed, match=r"not done after 0\.2 seconds: somebody"):
        asking.ask(odradek_bootstrap, 0.2, never)
    assert (asked, len(set(loops))) == ([""], 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("doctor -b localhost:1 --config", command_line.UNREACHABLE),
        ("server run --config", command_line.USAGE),
        ("user set u -b localhost:1 --password-file", command_line.USAGE),
        ("topic reassign -b localhost:1 --file", command_line.USAGE),
        ("audit live -b localhost:1 --command-config", command_line.USAGE),
        ("audit run --replica 1=. --replica 2=.. --history", command_line.USAGE),
    ],
)
def test_no_file_is_waited_for_that_never_ends(odradek: Run, tmp_path: Path, words: str, code: int) -> None:
    """A pipe into which nobody writes, and a device without end."""
    os.mkfifo(pipe := tmp_path / "pipe")
    for endless in (pipe, "/dev/zero"):
        outcome = odradek(*words.split(), str(endless), code=code)
        said = outcome.out + outcome.err
        assert str(endless) in said
        assert "try: " in said
        assert "unexpected" not in said


def test_a_pipe_that_is_written_is_read_to_its_end(tmp_path: Path) -> None:
    """As of `<(command)`, also before the first byte is there."""
    os.mkfifo(pipe := tmp_path / "pipe")
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # without one nobody can open it to write
    with open(pipe, "wb") as writer:
        data = b"a=1\n" * 50_000  # more than a pipe holds

        def write() -> None:
            with writer:
                writer.write(data)

        with ThreadPoolExecutor() as pool:
            reading = pool.submit(command_line.read_small, pipe)
            pool.submit(write).result()
            assert reading.result() == data
    os.close(reader)


def test_a_link_to_itself_is_no_replica(odradek: Run, tmp_path: Path) -> None:
    """And an archive without a place, or with a package that is not there, is told what to try."""
    (loop := tmp_path / "loop").symlink_to(loop)
    outcome = odradek("log", "diff", str(loop), str(tmp_path))
    assert (outcome.code, outcome.err.splitlines()[0]) == (command_line.USAGE, f"odradek: there is nothing at {loop}")
    for code, *words in ((2, "--out", "/dev/null"), (1, "--out", str(tmp_path / "out"), "--with", "not-there")):
        outcome = odradek("audit", "package", *words, code=code)
        assert "Errno" not in outcome.err
        assert "  try: " in outcome.err
