"""What a power loss may leave of a file and a directory, and nothing else (R-239, ALICE of OSDI'14)."""

from __future__ import annotations

import random
from collections.abc import Callable

from odradek_chaos.worlds.simulated.crash.explorer import Explorer
from odradek_chaos.worlds.simulated.crash.model import (
    EMPTY,
    GARBAGE,
    LOST,
    PRESENT,
    SHORT,
    ZEROS,
    DiskModel,
    leave,
)
from odradek_chaos.worlds.simulated.crash.states import crash_states
from odradek_chaos.worlds.simulated.crash.stories import told
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.disk.inodes import SECTOR
from odradek_chaos.worlds.simulated.disk.recording import FileTruncation, Operation, Recorder, Write, load, save
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.transport.ports import Files


def recorded(act: Callable[[Files], None]) -> list[Operation]:
    disk = SimDisk(random.Random(0))
    disk.recorder = Recorder(disk.root)
    act(SimFiles(disk, SimLoop(), random.Random(0)))
    return disk.recorder.operations


def outcomes(operations: list[Operation], path: str, limit: int = 500) -> set[bytes | None]:
    """What a power loss after the last operation may leave of a file."""
    model = DiskModel()
    for operation in operations:
        model.apply(operation)
    found: set[bytes | None] = set()
    for state in crash_states(model, random.Random(1), limit):
        there = dict(state.paths())
        found.add(state.contents[there[path]] if path in there else None)
    return found


def test_an_unflushed_rename_leaves_the_old_content_or_any_part_of_the_new() -> None:
    """Old, new, empty, zeros, garbage, as neither content nor directory was flushed. Flushed, it is new."""

    def write(files: Files) -> None:
        file = files.open("/x", create=True)
        file.pwritev([b"old"], 0)
        file.fsync()
        files.fsync_dir("/")
        file = files.open("/y", create=True)
        file.pwritev([b"new"], 0)
        files.rename("/y", "/x")

    def write_and_flush(files: Files) -> None:
        write(files)
        files.open("/x").fsync()
        files.fsync_dir("/")

    left = outcomes(recorded(write), "/x")
    assert {b"old", b"new", b"", bytes(3)} < left
    assert len(left) == 5, "and what lay in that sector before"
    assert None in outcomes(recorded(write), "/y")
    assert outcomes(recorded(write_and_flush), "/x") == {b"new"}


def test_sectors_are_old_or_new_as_a_whole() -> None:
    """A write that was lost keeps later ones out of its sector; a torn one ends where a sector ends."""
    rng = random.Random(3)
    first, second = Write(1, 0, b"a" * 300), Write(1, 300, b"b" * 900)
    assert leave(b"", [first, second], (PRESENT, PRESENT), rng) == b"a" * 300 + b"b" * 900
    assert leave(b"", [first, second], (PRESENT, LOST), rng) == b"a" * 300
    assert leave(b"", [first, second], (LOST, PRESENT), rng) == bytes(512) + b"b" * 688
    assert leave(b"", [first, second], (PRESENT, EMPTY), rng) == b"a" * 300 + bytes(900)
    short = leave(b"", [first, second], (PRESENT, SHORT), rng)
    assert len(short) in (512, 1024)
    assert (b"a" * 300 + b"b" * 900).startswith(short)
    zeros = leave(b"", [first, second], (PRESENT, ZEROS), rng)
    assert len(zeros) == 1200
    assert zeros.rstrip(b"\0") in (b"a" * 300 + b"b" * 212, b"a" * 300 + b"b" * 724)
    garbage = leave(b"", [first, second], (PRESENT, GARBAGE), rng)
    assert garbage[:512] == b"a" * 300 + b"b" * 212
    assert garbage[1024:] not in (b"b" * 176, bytes(176))
    old = b"o" * 1024
    kept = leave(old, [Write(1, 100, b"n" * 900)], (GARBAGE,), rng)
    assert kept == old[:100] + b"n" * 412 + old[512:]  # a sector that was there is old or new, never garbage
    assert (
        leave(old, [FileTruncation(1, 600), Write(1, 600, b"n")], (LOST, PRESENT), rng)
        == b"o" * 600 + b"n" + b"o" * 423
    )


def test_many_writes_have_all_extremes_and_stay_few() -> None:
    """Nothing, everything, each of the last ones missing; and not all of 4^40 combinations."""

    def write(files: Files) -> None:
        file = files.open("/x", create=True)
        files.fsync_dir("/")
        for place in range(40):
            file.pwritev([b"%02d" % place * 256], place * SECTOR)

    found = outcomes(recorded(write), "/x")
    whole = b"".join(b"%02d" % place * 256 for place in range(40))
    assert {b"", whole, whole[:-SECTOR], whole[: -2 * SECTOR] + bytes(SECTOR) + whole[-SECTOR:]} <= found
    assert len(found) < 100


def test_a_recording_can_be_saved_and_tried_again() -> None:
    """The same bytes, the same states."""
    driver = told("votes")
    again = load(save(driver.operations))
    assert again == driver.operations
    first, second = (Explorer(driver.bench, per_point=10).explore(each) for each in (driver.operations, again))
    assert first == second
