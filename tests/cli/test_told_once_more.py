"""Commands that write, told to stop once more than needed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

import odradek as client
import pytest
from odradek.broker_errors import NotEnoughReplicas
from odradek.cli.records import measures
from odradek.cli.records.measures import SendingNotices
from odradek.cli.terminal.screen import Screen
from odradek.cli.terminal.stopping import TELLING
from odradek.core.batches import ProducerBatch
from odradek.producing.delivery import Delivery
from odradek_audit.inputs.history import ACK, ERROR, SEND, read_events
from odradek_chaos.cli import write as writing_cli
from odradek_chaos.harness.workload import Ledger
from odradek_proto.command_line import FAILED, USAGE
from odradek_proto.output_places import check_output_file
from odradek_proto.transport.ports import Clock

from tests.cli.conftest import Run

K = TypeVar("K")
V = TypeVar("V")


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    """As a command in a terminal finds them, and afterwards as they were."""
    before = {number: signal.getsignal(number) for number in TELLING}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


async def ctrl_c() -> None:
    """Press it; the loop has heard of it when this returns."""
    signal.raise_signal(signal.SIGINT)
    for _ in range(5):  # it comes by way of a socket, and then as a callback
        await asyncio.sleep(0)


class ProducerWithoutAnswers(Generic[K, V]):
    """Takes records, of which nobody hears again, while somebody presses Ctrl-C: when the third is taken, when they are
    waited for, and when it is closed."""

    held_up_by = None
    taken = 0

    @classmethod
    def from_config(cls, config: object) -> Self:
        return cls()

    async def start(self) -> None:
        pass

    async def partitions_for(self, topic: str) -> list[int]:
        return [0]

    def _append(self, *record: object) -> None:
        """There is never room at once."""

    async def enqueue(self, topic: str, value: bytes, **settings: object) -> Any:
        self.taken += 1
        if self.taken == 3:
            await ctrl_c()
        return Delivery(ProducerBatch(cast(Any, None), self.taken, 0), 0)

    async def flush(self, timeout: float | None) -> None:
        await ctrl_c()
        await asyncio.get_running_loop().create_future()

    async def close(self, timeout: float) -> None:
        await ctrl_c()


def test_a_third_ctrl_c_keeps_produce_from_no_summary(odradek: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is unknown is counted, and the code is 1, although somebody is impatient while the producer is closed."""
    monkeypatch.setattr(client, "Producer", ProducerWithoutAnswers, raising=False)
    outcome = odradek("produce", "orders", "--count", "0", "-b", "127.0.0.1:1", code=FAILED)
    assert "stopping: 2 records are on their way" in outcome.err
    assert "3 records were not acknowledged yet; they may be written or not" in outcome.err
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # until the process has ended


class ProducerOfNobody(ProducerWithoutAnswers[K, V]):
    """The same for `chaos write`: while the third record is handed over somebody presses Ctrl-C twice, and once more
    while it is closed. What was taken fails then."""

    settings: ClassVar[dict[str, object]] = {}

    def __init__(self, servers: str, **settings: object) -> None:
        ProducerOfNobody.settings = settings
        self.given: list[asyncio.Future[None]] = []

    async def enqueue(self, topic: str, value: bytes, **settings: object) -> asyncio.Future[None]:
        if len(self.given) == 2:
            await ctrl_c()
            await ctrl_c()
        self.given.append(asyncio.get_running_loop().create_future())
        return self.given[-1]

    async def close(self, timeout: float) -> None:
        await ctrl_c()
        for given in self.given:
            given.set_exception(client.ClientClosed("closed"))


@pytest.fixture
def one_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    async def partitions(servers: str, topic: str, wanted: int) -> int:
        return 1

    monkeypatch.setattr(writing_cli, "_partitions", partitions)
    monkeypatch.setattr(client, "Producer", ProducerOfNobody, raising=False)


@pytest.mark.usefixtures("one_partition")
def test_a_write_that_is_given_up_sums_up(odradek: Run, tmp_path: Path) -> None:
    """Nobody acknowledges anything: it says what is on its way, and at its end that nobody knows what became of it."""
    history = tmp_path / "history"
    words = ("chaos", "write", "orders", "--history", str(history), "--timeout", "7", "-b", "127.0.0.1:1")
    outcome = odradek(*words, "--json", code=FAILED)
    assert (
        outcome.err
        == "stopping: 3 records are on their way, for --timeout at most; a second Ctrl-C does not wait for them\n"
    )
    facts = json.loads(outcome.out)
    assert (facts["sent"], facts["acknowledged"], facts["unknown"], facts["interrupted"]) == (3, 0, 3, True)
    assert [event.type for event in read_events(history)] == [SEND, SEND, SEND, ERROR, ERROR]
    assert ProducerOfNobody.settings["delivery_timeout_ms"] == 7_000
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN  # until the process has ended


@pytest.mark.usefixtures("one_partition")
def test_a_write_tells_people_what_is_unknown(odradek: Run) -> None:
    """In a sentence below the sum."""
    outcome = odradek("chaos", "write", "orders", "-b", "127.0.0.1:1")
    assert outcome.out.startswith(
        "0 of 3 records acknowledged in topic orders, the longest silence of a partition was "
    )
    assert outcome.out.endswith("\nof 3 records nobody knows: they may be written or not\n")


def test_a_history_that_cannot_be_written_is_refused_at_once(odradek: Run, tmp_path: Path) -> None:
    """Before a cluster is looked for, by its name, with what to do."""
    outcome = odradek("chaos", "write", "orders", "--history", str(tmp_path), "-b", "127.0.0.1:1", code=USAGE)
    assert outcome.err == f"odradek: --history {tmp_path}: Is a directory\n  try: give a file that can be written\n"


def test_a_pipe_is_not_tried(tmp_path: Path) -> None:
    """Its reader would see an end before anything was written."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_output_file("--history", pipe)
        looking = select.poll()
        looking.register(reader)
        assert looking.poll(0) == []
    finally:
        os.close(reader)


class Hands:
    """A clock that is set by hand."""

    ms = 0

    def now_ms(self) -> int:
        return self.ms


def test_a_silence_is_waiting_of_any_kind() -> None:
    """For the first acknowledgement, between two, for an error, for what still waits; not after the last one."""
    clock = Hands()
    ledger = Ledger(cast(Clock, clock))

    def at(ms: int, partition: int, number: int, outcome: str) -> int:
        clock.ms, value = ms, b"%d" % number
        if outcome == SEND:
            ledger.send("t", partition, value, "w", "all")
        elif outcome == ACK:
            ledger.ack("t", partition, value, "w", "all", number)
        else:
            ledger.error("t", partition, value, "w", definite=False)
        return ledger.longest_silence_ms()

    assert at(100, 0, 0, SEND) == 0
    assert at(150, 0, 1, SEND) == 50  # the first one waits
    assert at(200, 0, 0, ACK) == 100  # for the first
    assert at(350, 0, 1, ACK) == 150  # between two
    assert at(900, 1, 0, SEND) == 150  # nothing waited since the last
    assert at(1_100, 1, 0, ERROR) == 200  # given up
    assert at(1_200, 1, 1, SEND) == 300  # it has acknowledged nothing since its first record
    clock.ms = 2_000
    assert ledger.longest_silence_ms() == 1_100


def test_what_holds_records_up_is_told_once(capfd: pytest.CaptureFixture[str]) -> None:
    """When it has lasted, again when it is something else, and with what to try; what passes by itself is not told."""
    notices, refused = SendingNotices(Screen()), client.BrokerUnreachable("broker 1 at here:1: connection refused")
    for moment, trouble in ((100, None), (101, refused), (102, None), (103, refused)):
        notices.look(trouble, moment)
    assert capfd.readouterr().err == ""
    too_few = NotEnoughReplicas("in-sync replicas [1] are fewer", where="orders-0")
    for moment in range(104, 120):
        notices.look(too_few if moment < 110 or moment % 2 else refused, moment)
    first, hint, second, _ = capfd.readouterr().err.splitlines()
    assert first == "held up: orders-0: NOT_ENOUGH_REPLICAS: in-sync replicas [1] are fewer; waiting"
    assert hint.startswith("  try: ")
    assert "`odradek cluster health`" in hint
    assert second == "held up: broker 1 at here:1: connection refused; waiting"
    for moment in (120, 121):
        notices.look(None, moment)
    assert capfd.readouterr().err == "records are acknowledged again\n"


def test_what_holds_records_up_from_the_start_is_told_when_it_has_lasted(capfd: pytest.CaptureFixture[str]) -> None:
    """Whatever the clock shows at the first look."""
    notices, refused = SendingNotices(Screen()), client.BrokerUnreachable("broker 1 at here:1: connection refused")
    for moment in (100.0, 101.9):
        notices.look(refused, moment)
    assert capfd.readouterr().err == ""
    notices.look(refused, 102.0)
    assert capfd.readouterr().err.startswith("held up: broker 1 at here:1: connection refused; waiting\n")


def test_news_that_are_none_are_not_told(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The count of records has a line when it has changed."""
    counts = iter((0, 0, 0, 7, 7, 8))

    async def follow() -> None:
        with contextlib.suppress(StopIteration, RuntimeError):
            await measures.tell(Screen(), "orders", 0, lambda: (next(counts), "acknowledged"), lambda: "at some pace")

    monkeypatch.setattr(measures, "NEWS_EVERY_S", 0)
    asyncio.run(follow())
    assert [line.split()[0] for line in capfd.readouterr().err.splitlines()] == ["0", "7", "8"]
