"""What a broker's log looks like, how it is bounded, and how its levels change."""

from __future__ import annotations

import json
import logging
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from odradek_broker.config.log_levels import (
    LOGGERS,
    QUORUM,
    REPLICA,
    ROOT,
    SERVER,
    STORAGE,
    levels,
    parse_levels,
    set_levels,
)
from odradek_broker.config.own_configs import OwnConfigs
from odradek_broker.config.settings import BrokerSettings
from odradek_broker.core.metadata.image import MetadataImage
from odradek_broker.process.logs import MOST_OF_A_SENTENCE, PERIOD_S, Repetitions, configured
from odradek_broker.runtime.event_lines import LINES, log_event
from odradek_broker.storage.directory import LogDirectory
from odradek_broker.storage.log import Log
from odradek_broker.storage.settings import LogSettings
from odradek_proto.errors import ErrorCode
from odradek_proto.records import read_header
from odradek_proto.topics import TopicPartition
from odradek_proto.transport.files import OsFiles
from odradek_proto.v1 import admin_messages
from odradek_proto.values import replace

from tests.broker.log_bench import batch
from tests.test_docs import events_on_page

ME = 3
SETTINGS = BrokerSettings(node_id=ME)


@pytest.fixture(autouse=True)
def levels_as_before() -> Iterator[None]:
    """Levels are the process's, and pytest's process has other tests to run."""
    loggers = [logging.getLogger(name) for name in (ROOT, *LOGGERS)]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


def fenced(broker: int) -> None:
    log_event("odradek.controller", "broker_fencing", ME, {"rule": "", "broker_id": broker, "reason": "dial refused"})


def test_a_line_has_its_time_level_broker_and_logger(tmp_path: Path) -> None:
    """As text, one line each."""
    file = tmp_path / "broker.log"
    with configured(replace(SETTINGS, odradek_log_file=str(file))):
        fenced(1)
        logging.getLogger(SERVER).warning("look at %s", "this")
        logging.getLogger(SERVER).debug("not this")
    first, second = file.read_text().splitlines()
    time, rest = first.split(" ", 1)
    assert rest == "INFO broker 3 odradek.controller: broker 1 is fenced: dial refused"
    assert (time[4], time[10], time[19], time[-1]) == ("-", "T", ".", "Z")
    assert second.endswith(" WARN broker 3 odradek.server: look at this")


def test_a_partition_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """Also where the error's own words begin with it."""
    set_levels({ROOT: "INFO"}, [REPLICA])
    log_event(REPLICA, "disk_full", ME, {"rule": "R-86", "partition": "t-2", "reason": "t-2: no room for an append"})
    assert caplog.messages == ["t-2: no room for an append; it is read-only until there is room"]


def test_json_has_the_event_and_its_facts(tmp_path: Path) -> None:
    """For whoever collects logs; a traceback is one of its texts."""
    file = tmp_path / "broker.log"
    with configured(replace(SETTINGS, odradek_log_file=str(file), odradek_log_format="json")):
        fenced(1)
        try:
            raise RuntimeError("broken")
        except RuntimeError:
            logging.getLogger(SERVER).exception("the flusher ended")
    event, failure = (json.loads(line) for line in file.read_text().splitlines())
    assert (event["level"], event["broker"], event["logger"]) == ("INFO", 3, "odradek.controller")
    assert event["message"] == "broker 1 is fenced: dial refused"
    assert (event["event"], event["facts"]["reason"]) == ("broker_fencing", "dial refused")
    assert "RuntimeError: broken" in failure["traceback"]


def test_a_log_that_grows_keeps_one_older_file(tmp_path: Path) -> None:
    """However much is said."""
    file = tmp_path / "broker.log"
    with configured(replace(SETTINGS, odradek_log_file=str(file), odradek_log_file_max_bytes=65_536)):
        logger = logging.getLogger("somebody.else")
        for number in range(2_000):
            logger.warning(f"{number} {'x' * 100}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["broker.log", "broker.log.1"]
    assert all(path.stat().st_size <= 65_536 for path in tmp_path.iterdir())
    assert file.read_text().splitlines()[-1].endswith(f"1999 {'x' * 100}")


def record(seconds: float, sentence: str, *words: object, level: int = logging.WARNING) -> logging.LogRecord:
    made = logging.LogRecord(REPLICA, level, "", 0, sentence, words, None)
    made.created = seconds
    return made


def test_what_is_said_again_within_a_minute_is_left_out_and_counted() -> None:
    """The same alarm once, a sentence no more often than it may; the next says how many there were."""
    filtering = Repetitions()
    assert filtering.filter(record(0, "%s: no room", "orders-0"))
    assert not any(filtering.filter(record(second, "%s: no room", "orders-0")) for second in range(1, 10))
    others = [filtering.filter(record(11, "%s: no room", f"orders-{each}")) for each in range(1, 40)]
    assert others.count(True) == MOST_OF_A_SENTENCE - 1
    assert filtering.filter(record(12, "another sentence"))
    assert all(filtering.filter(record(13, "%s: leads", "orders-0", level=logging.INFO)) for _ in range(2))
    again = record(PERIOD_S + 1, "%s: no room", "orders-0")
    assert filtering.filter(again)
    assert vars(again)["left_out"] == 39 - (MOST_OF_A_SENTENCE - 1)  # the first nine were told of with orders-1


def test_arguments_that_do_not_fit_stop_nobody() -> None:
    """The handler reports such a record; the filter must not raise where it was logged."""
    record = logging.LogRecord("odradek.server", logging.WARNING, "", 0, "%d brokers", ("three",), None)
    assert Repetitions().filter(record)


def test_levels_have_names_and_only_loggers_that_there_are_have_levels() -> None:
    """Kafka's names; all or nothing."""
    assert parse_levels("WARN, odradek.quorum=debug") == {ROOT: "WARN", QUORUM: "debug"}
    for wrong, said in (("LOUD", "LOUD"), ("odradek.quorun=DEBUG", "there is no logger"), (f"{QUORUM}=LOUD", "LOUD")):
        with pytest.raises(ValueError, match=said):
            parse_levels(wrong)
    set_levels({ROOT: "INFO"}, [QUORUM])
    with pytest.raises(ValueError, match="LOUD"):
        set_levels({QUORUM: "DEBUG", REPLICA: "LOUD"})
    assert levels()[QUORUM] == "INFO"


def test_a_running_broker_changes_its_levels_and_tells_them() -> None:
    """Kafka's BROKER_LOGGER: by the broker itself, never by another one."""
    set_levels({ROOT: "INFO"}, LOGGERS)
    own = OwnConfigs(SETTINGS, MetadataImage)

    def altered(broker: str, **changes: Any) -> int:
        request = admin_messages.AlterConfigsRequest(resource_type="broker-logger", resource_name=broker, **changes)
        answer = own.alter(request)
        assert answer is not None
        return answer.error_code

    def told() -> dict[str, tuple[str, str]]:
        request = admin_messages.DescribeConfigsRequest(resource_type="broker-logger", resource_name=str(ME))
        answer = own.describe(request)
        assert answer is not None
        return {entry.name: (entry.value, entry.source) for entry in answer.entries}

    assert altered("3", set={QUORUM: "DEBUG"}) == 0
    assert told()[QUORUM] == ("DEBUG", "broker-logger")
    assert told()[REPLICA] == ("INFO", "default")
    assert logging.getLogger(QUORUM).isEnabledFor(logging.DEBUG)
    assert altered("3", set={QUORUM: "LOUD"}) == ErrorCode.INVALID_CONFIG
    assert altered("3", unset=[QUORUM]) == 0
    assert told()[QUORUM] == ("INFO", "default")
    assert altered("2", set={QUORUM: "DEBUG"}) == ErrorCode.INVALID_REQUEST
    assert own.alter(admin_messages.AlterConfigsRequest(resource_type="broker", resource_name="3")) is None


def test_every_event_has_a_line_and_no_line_is_without_an_event() -> None:
    """Who reads the log hears of each kind of event, or can by DEBUG."""
    assert {event for lines in LINES.values() for event in lines} == set(events_on_page())


def test_a_line_names_only_facts_that_its_event_has(caplog: pytest.LogCaptureFixture) -> None:
    """Each fact in a sentence is one of those in the event's row of docs/events.md; no noun stands twice."""
    set_levels({ROOT: "DEBUG"})
    known = events_on_page()
    for logger, lines in LINES.items():
        for event in lines:
            log_event(logger, event, ME, {"rule": "R-1", **dict.fromkeys(known[event], 1)})
    assert len(caplog.records) == sum(map(len, LINES.values()))
    assert [entry.getMessage() for entry in caplog.records if "?" in entry.getMessage()] == []
    assert [entry.getMessage() for entry in caplog.records if re.search(r"\b(\w+) \1\b", entry.getMessage())] == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("replication-offset-checkpoint", "is bad and ignored"),
        ("recovery-point-offset-checkpoint", "is bad and ignored"),
        ("log-start-offset-checkpoint", "is bad and ignored"),
        (".kafka_cleanshutdown", "is bad and ignored"),
        ("orders-0/leader-epoch-checkpoint", "is bad and rebuilt from the log"),
        ("orders-0/00000000000000000000.index", "is bad and rebuilt from the log"),
        ("orders-0/00000000000000000000.timeindex", "is bad and rebuilt from the log"),
        ("orders-0/00000000000000000003.snapshot", "is bad and ignored"),
    ],
)
def test_a_bad_file_is_told_of_and_nothing_is_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, said: str
) -> None:
    """Garbage in a file that says nothing that the log does not say: one line at the next start, and all records."""
    set_levels({ROOT: "INFO"}, [STORAGE])
    files, partition = OsFiles(), TopicPartition("orders", 0)

    def opened() -> tuple[LogDirectory, Log]:
        found = LogDirectory.open(files, str(tmp_path), node_id=ME, cluster_id="c", wall_ms=0, rng=random.Random(1))
        return found, found.open_log(partition, b"t" * 16, LogSettings(), wall_ms=0)

    directory, log = opened()
    for offset in range(3):
        made = batch(offset)
        log.write_epochs(log.state.epochs.entries)
        log.append([read_header(made)], [made])
    directory.close(clean=True)
    assert caplog.messages == []
    (tmp_path / name).write_bytes(b"\xff garbage")
    directory, log = opened()
    assert (directory.clean, log.end_offset) == (name.startswith("orders"), 3)
    directory.close(clean=True)
    files.close()
    assert [message for message in caplog.messages if said in message]
