"""The evidence file, where a life of the process ended in the middle of a line."""

from __future__ import annotations

import json
import random

from odradek_broker.config.log_levels import CONTROLLER
from odradek_broker.runtime.events import EVENT_FILE, OLDER_SUFFIX, EventLog
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.clock import SimClock
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop


def test_the_first_event_after_a_torn_line_has_a_line_of_its_own() -> None:
    """A power loss has taken the end of one, or the disk was full in the middle of it; the next life's is whole."""
    loop = SimLoop()
    files = SimFiles(SimDisk(random.Random(0)), loop, random.Random(0))
    files.makedirs("/data")
    for life in range(3):
        events = EventLog(
            files=files, clock=SimClock(loop, random.Random(0)), directory="/data", broker_id=1, enabled=True
        )
        events.write("first", "", {"life": life})
        events.write("second", "", {"life": life})
        events.close()
        if life == 1:
            file = files.open(f"/data/{EVENT_FILE}")
            file.truncate(file.size() - 10)
    lines = files.open(f"/data/{EVENT_FILE}").pread(0, 1 << 20).splitlines()
    torn = lines.pop(3)
    assert not torn.endswith(b"}")
    assert [(each["event"], each["life"]) for each in map(json.loads, lines)] == [
        ("first", 0),
        ("second", 0),
        ("first", 1),
        ("first", 2),
        ("second", 2),
    ]


def test_a_file_that_has_grown_to_its_size_becomes_the_older_one() -> None:
    """Two files at most, however much there is to say; no line is torn, and the last ones are there."""
    loop = SimLoop()
    files = SimFiles(SimDisk(random.Random(0)), loop, random.Random(0))
    files.makedirs("/data")
    most = 1_000
    events = EventLog(
        files=files, clock=SimClock(loop, random.Random(0)), directory="/data", broker_id=1, max_bytes=most
    )
    said = 50
    record = events.recorder(CONTROLLER)
    for number in range(said):
        record("broker_unfenced", {"broker_id": number, "broker_epoch": number})
    events.close()
    assert files.list("/data") == [EVENT_FILE, EVENT_FILE + OLDER_SUFFIX]
    told = []
    for name in (EVENT_FILE + OLDER_SUFFIX, EVENT_FILE):
        content = files.open(f"/data/{name}").pread(0, 2 * most)
        assert len(content) <= most
        told += [json.loads(line)["broker_id"] for line in content.splitlines()]
    assert told == list(range(said - len(told), said))
    assert len(told) > most // 150
