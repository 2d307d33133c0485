"""What a simulated disk keeps and what it may forget."""

from __future__ import annotations

import asyncio
import errno
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from odradek_chaos.worlds.simulated.disk.disk import SimDisk
from odradek_chaos.worlds.simulated.disk.files import SimFiles
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_proto.transport.ports import File


def process_on(disk: SimDisk) -> SimFiles:
    return SimFiles(disk, SimLoop(), random.Random(0))


def fresh(seed: int = 0, quota: int | None = None) -> tuple[SimDisk, SimFiles]:
    disk = SimDisk(random.Random(seed), quota)
    files = process_on(disk)
    files.makedirs("/data")
    files.fsync_dir("/")
    return disk, files


def durable_file(files: SimFiles, path: str, content: bytes) -> File:
    file = files.open(path, create=True)
    file.pwritev([content], 0)
    file.fsync()
    files.fsync_dir("/data")
    return file


def after_power_loss(disk: SimDisk, files: SimFiles) -> SimFiles:
    files.detach()
    disk.power_loss()
    return process_on(disk)


def test_kill_keeps_the_page_cache() -> None:
    """SIGKILL loses nothing that was written; what the dead process still writes goes nowhere."""
    disk, files = fresh()
    file = files.open("/data/log", create=True)
    file.pwritev([b"written"], 0)
    files.detach()
    assert file.pwritev([b"zombie"], 0) == 6
    assert file.pread(0, 9) == b"zombien"
    files.open("/data/ghost", create=True)
    files.rename("/data/log", "/data/moved")
    files.remove("/data/log")
    files.remove_tree("/data")
    again = process_on(disk)
    assert again.list("/data") == ["log"]
    assert again.open("/data/log").pread(0, 9) == b"written"
    assert disk.used == 7


def test_power_loss_spares_what_was_flushed() -> None:
    """Over many power losses: flushed bytes always stay, and every amount of the unflushed tail is lost sometimes."""
    sizes, torn = set(), 0
    for seed in range(300):
        disk, files = fresh(seed)
        file = durable_file(files, "/data/log", b"d" * 1000)
        file.pwritev([b"n" * 3000], 1000)
        content = after_power_loss(disk, files).open("/data/log").pread(0, 9999)
        assert content[:1000] == b"d" * 1000
        assert len(content) <= 4000
        sizes.add(len(content))
        torn += content[1000:].strip(b"n") != b""
    assert {1000, 4000} < sizes
    assert torn > 10


def test_power_loss_may_undo_overwrites_and_truncation_in_part() -> None:
    """An overwritten sector is old or new; a truncation may not have happened."""
    seen = set()
    for seed in range(200):
        disk, files = fresh(seed)
        file = durable_file(files, "/data/index", b"o" * 2048)
        file.pwritev([b"n" * 1024], 512)
        file.truncate(1800)
        content = after_power_loss(disk, files).open("/data/index").pread(0, 9999)
        assert 1800 <= len(content) <= 2048
        for sector in range(4):
            kinds = set(content[sector * 512 : sector * 512 + 512])
            assert kinds == {ord("o")} or (sector in (1, 2) and kinds == {ord("n")})
        seen.add((len(content), content.count(b"n")))
    assert {(1800, 1024), (2048, 0)} < seen


def test_names_are_durable_only_after_a_directory_fsync() -> None:
    """Creation, rename and removal may each be undone until then, and not afterwards; a rename is never torn."""
    outcomes = set()
    for seed in range(100):
        disk, files = fresh(seed)
        durable_file(files, "/data/checkpoint", b"old")
        new = files.open("/data/checkpoint.tmp", create=True)
        new.pwritev([b"new"], 0)
        new.fsync()
        files.rename("/data/checkpoint.tmp", "/data/checkpoint")
        if seed % 2:
            files.fsync_dir("/data")
        again = after_power_loss(disk, files)
        content = again.open("/data/checkpoint").pread(0, 9)
        outcomes.add((seed % 2, content, tuple(again.list("/data"))))
    assert outcomes == {
        (0, b"old", ("checkpoint",)),
        (0, b"old", ("checkpoint", "checkpoint.tmp")),
        (0, b"new", ("checkpoint",)),
        (1, b"new", ("checkpoint",)),
    }


def test_lost_directory_takes_its_files_along() -> None:
    """A file that was flushed, in a directory whose own name was not, may be gone."""
    found = set()
    for seed in range(40):
        disk, files = fresh(seed)
        files.makedirs("/data/topic-0")
        files.open("/data/topic-0/log", create=True).fsync()
        files.fsync_dir("/data/topic-0")
        again = after_power_loss(disk, files)
        found.add(again.exists("/data/topic-0/log"))
        assert again.exists("/data/topic-0/log") == again.exists("/data/topic-0")
    assert found == {True, False}


def test_full_disk_may_write_a_part_and_recovers_when_space_returns() -> None:
    """ENOSPC, never more than the quota, and writing goes on once something was removed."""
    disk, files = fresh(quota=1000)
    log = files.open("/data/log", create=True)
    other = files.open("/data/other", create=True)
    other.pwritev([bytes(600)], 0)
    log.pwritev([bytes(300)], 0)
    with pytest.raises(OSError) as full:
        log.pwritev([bytes(200)], 300)
    assert full.value.errno == errno.ENOSPC
    assert 300 <= log.size() <= 400
    assert disk.used == 600 + log.size()
    log.truncate(300)
    assert files.free_bytes("/data") == 100
    files.remove("/data/other")
    assert log.pwritev([bytes(200)], 300) == 200
    assert disk.used == 500


def test_injected_errors_hit_the_named_operation() -> None:
    """EIO where and as often as asked for."""
    disk, files = fresh()
    log = durable_file(files, "/data/log", b"abc")
    disk.inject("read", "/data/log", times=2)
    disk.inject("write", "/other")
    for _ in range(2):
        with pytest.raises(OSError) as failed:
            log.pread(0, 3)
        assert failed.value.errno == errno.EIO
    assert log.pread(0, 3) == b"abc"
    assert log.pwritev([b"d"], 3) == 1


def test_failed_fsync_is_never_made_good_by_another() -> None:
    """As on Linux: the next fsync succeeds, and the bytes may be gone all the same."""
    lost = 0
    for seed in range(50):
        disk, files = fresh(seed)
        log = durable_file(files, "/data/log", b"abc")
        log.pwritev([b"def"], 3)
        disk.inject("fsync", "/data/log")
        with pytest.raises(OSError):
            log.fsync()
        log.fsync()
        lost += after_power_loss(disk, files).open("/data/log").pread(0, 9) != b"abcdef"
    assert lost


def test_lying_fsync_flushes_nothing() -> None:
    """A disk that lies loses what it said was safe."""
    lost = 0
    for seed in range(50):
        disk, files = fresh(seed)
        log = durable_file(files, "/data/log", b"abc")
        disk.lying = True
        log.pwritev([b"def"], 3)
        log.fsync()
        lost += after_power_loss(disk, files).open("/data/log").pread(0, 9) != b"abcdef"
    assert lost


def test_flipped_bit_stays_flipped() -> None:
    """A bit that rotted on the medium is wrong before and after a power loss."""
    disk, files = fresh()
    log = durable_file(files, "/data/log", b"abc")
    disk.flip("/data/log", 1, bit=3)
    assert log.pread(0, 3) == b"ajc"
    assert after_power_loss(disk, files).open("/data/log").pread(0, 3) == b"ajc"


def test_locks_die_with_their_process() -> None:
    """The next incarnation takes the lock of a killed one."""
    disk, files = fresh()
    files.lock("/data/.lock")
    with pytest.raises(BlockingIOError):
        process_on(disk).lock("/data/.lock")
    files.detach()
    process_on(disk).lock("/data/.lock")


def test_offload_takes_virtual_time_on_both_sides_of_the_work() -> None:
    """A flush is done neither at once nor in the instant in which its caller hears of it."""
    loop = SimLoop(3)
    files = SimFiles(SimDisk(random.Random(0)), loop, random.Random(0), offload_ms=(10, 10))

    async def story() -> int:
        asyncio.get_running_loop()
        return await files.offload(lambda: loop.now_us)

    assert loop.run(story()) == 5_000
    assert loop.now_us == 10_000


NAMES = st.sampled_from(["a", "b", "c"])


class DiskAgainstModel(RuleBasedStateMachine):
    """A naive model that keeps every byte twice: what is there, and what must survive."""

    @initialize(seed=st.integers(0, 2**32))
    def begin(self, seed: int) -> None:
        self.disk, self.files = fresh(seed)
        self.now: dict[str, bytes] = {}  # contents as a process sees them
        self.flushed: dict[str, bytes] = {}  # contents at the file's last fsync, if its name was made durable since
        self.unnamed: dict[str, bytes] = {}  # flushed contents under a name that is not durable yet
        self.appended_only: dict[str, bool] = {}  # whether the flushed bytes have been left alone since
        self.dirty_names: set[str] = set()

    def path(self, name: str) -> str:
        return f"/data/{name}"

    @rule(name=NAMES, offset=st.integers(0, 1500), data=st.binary(min_size=1, max_size=900))
    def write(self, name: str, offset: int, data: bytes) -> None:
        old = self.now.get(name)
        if old is None:
            self.dirty_names.add(name)
            old = b""
        self.files.open(self.path(name), create=True).pwritev([data[:5], data[5:]], offset)
        self.now[name] = old[:offset].ljust(offset, b"\0") + data + old[offset + len(data) :]
        if offset < len(self.flushed.get(name, b"")):
            self.appended_only[name] = False

    @rule(name=NAMES, data=st.binary(min_size=1, max_size=3000))
    def append(self, name: str, data: bytes) -> None:
        if name in self.now:
            self.write(name=name, offset=len(self.now[name]), data=data)

    @rule(name=NAMES, size=st.integers(0, 2500))
    def truncate(self, name: str, size: int) -> None:
        if name in self.now:
            self.files.open(self.path(name)).truncate(size)
            self.now[name] = self.now[name][:size].ljust(size, b"\0")
            if size < len(self.flushed.get(name, b"")):
                self.appended_only[name] = False

    @rule(name=NAMES)
    def fsync(self, name: str) -> None:
        if name in self.now:
            self.files.open(self.path(name)).fsync()
            self.appended_only[name] = True
            (self.unnamed if name in self.dirty_names else self.flushed)[name] = self.now[name]

    @rule()
    def fsync_dir(self) -> None:
        self.files.fsync_dir("/data")
        self.flushed = {name: content for name, content in self.flushed.items() if name in self.now}
        self.flushed.update(self.unnamed)
        self.unnamed.clear()
        self.dirty_names.clear()

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        if old in self.now and old != new:
            self.files.rename(self.path(old), self.path(new))
            self.now[new] = self.now.pop(old)
            self.forget_promises(old, new)

    @rule(name=NAMES)
    def remove(self, name: str) -> None:
        if name in self.now:
            self.files.remove(self.path(name))
            del self.now[name]
            self.forget_promises(name)

    @rule()
    def kill(self) -> None:
        self.files.detach()
        self.files = process_on(self.disk)

    @rule()
    def power_loss(self) -> None:
        self.files = after_power_loss(self.disk, self.files)
        left = {name: self.files.open(self.path(name)).pread(0, 1 << 20) for name in self.files.list("/data")}
        for name, content in self.flushed.items():
            assert name in left, name
            if self.appended_only[name]:
                assert left[name][: len(content)] == content
        self.now = left
        self.flushed = dict(left)  # what was found after the power came back is on the medium
        self.appended_only = dict.fromkeys(left, True)
        self.unnamed.clear()
        self.dirty_names.clear()

    def forget_promises(self, *names: str) -> None:
        for name in names:
            self.flushed.pop(name, None)
            self.unnamed.pop(name, None)
            self.dirty_names.add(name)

    @invariant()
    def shows_what_was_written(self) -> None:
        if not hasattr(self, "now"):
            return
        assert self.files.list("/data") == sorted(self.now)
        for name, content in self.now.items():
            assert self.files.open(self.path(name)).pread(0, 1 << 20) == content
        assert self.disk.used == sum(map(len, self.now.values()))


TestDiskAgainstModel: Any = DiskAgainstModel.TestCase
TestDiskAgainstModel.settings = settings(stateful_step_count=40, suppress_health_check=list(HealthCheck))
