"""A broker raises its own limit of open files, and says what it got."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from odradek.cli.checkup.machine import open_files
from odradek_broker.local.cluster import LocalCluster
from odradek_broker.process.server import FEW_OPEN_FILES, MOST_OPEN_FILES, raise_open_files_limit

from tests.cli.conftest import Run

resource = pytest.importorskip("resource")
HARD = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
ALLOWED = MOST_OPEN_FILES if HARD == resource.RLIM_INFINITY else HARD
ENOUGH = pytest.mark.skipif(
    ALLOWED < FEW_OPEN_FILES, reason=f"the hard limit here is {HARD}, below {FEW_OPEN_FILES}: a broker would warn"
)
RAISE = """
import resource, sys
from odradek_broker.process.server import raise_open_files_limit
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
print(raise_open_files_limit())
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(
    ("soft", "hard", "then", "said"),
    [
        (256, 8192, 8192, "may open 8192 files and connections, not 256: the hard limit"),
        (8192, 8192, 8192, ""),
        (256, 300, 300, "warning: no more than 300 files and connections may be open (the hard limit, ulimit -Hn): "
                        "too few for many partitions"),
        (300, 300, 300, "warning: no more than 300 files and connections may be open (the hard limit, ulimit -Hn): "
                        "too few for many partitions"),
    ],
)  # fmt: skip
def test_the_soft_limit_becomes_the_hard_one(soft: int, hard: int, then: int, said: str) -> None:
    """A process of its own: a hard limit that was lowered stays low."""
    if hard > ALLOWED:
        pytest.skip(f"the hard limit here is {HARD}, below {hard}: it cannot be raised")
    done = subprocess.run(
        [sys.executable, "-c", RAISE, str(soft), str(hard)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [said, f"{then} {hard}"]


@pytest.mark.parametrize(
    ("soft", "most", "then", "said"),
    [
        (256, 10_240, 10_240, "may open 10240 files and connections, not 256: the system refuses 1048576"),
        (256, 256, 256, "warning: no more than 256 files and connections may be open (the system refuses 10240): "
                        "too few for many partitions"),
        (8192, 8192, 8192, ""),
        (10_240, 10_240, 10_240, ""),
    ],
)  # fmt: skip
def test_a_system_that_refuses_its_hard_limit_is_asked_for_less(
    monkeypatch: pytest.MonkeyPatch, soft: int, most: int, then: int, said: str
) -> None:
    """macOS says that there is no limit, and refuses more than OPEN_MAX; the hard limit is not to blame then."""
    limits = [soft, resource.RLIM_INFINITY]

    def refuse(_: int, wanted: tuple[int, int]) -> None:
        if wanted[0] > most:
            raise ValueError("current limit exceeds maximum limit")
        limits[:] = wanted

    monkeypatch.setattr(resource, "getrlimit", lambda _: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert raise_open_files_limit() == said
    assert limits == [then, resource.RLIM_INFINITY]


@pytest.mark.slow
@pytest.mark.cluster
@ENOUGH
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="this system does not tell another process's limits")
def test_a_broker_raises_its_limit_at_its_start(shell: Run, place: Path) -> None:
    """Started by a shell with a low soft limit, as most have; its log says what it did."""
    wanted = min(ALLOWED, MOST_OPEN_FILES)
    shell(f"ulimit -Sn 512; odradek cluster up -d -n 1 --timeout 90 --data {place}", code=0)
    pid = LocalCluster.load(place).nodes[1].pid
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (wanted, HARD)
    assert f"odradek.server: may open {wanted} files and connections, not 512: the hard limit" in "".join(
        log.read_text() for log in place.glob("*.log")
    )


@pytest.mark.slow
@ENOUGH
def test_the_doctor_looks_at_the_limit_that_a_broker_gets(shell: Run) -> None:
    """A low soft limit is no finding any more, a low hard one is."""
    assert "open-files" not in shell("ulimit -Sn 512; odradek doctor --timeout 0.1").out
    assert "open-files" in shell("ulimit -Sn 512; ulimit -Hn 512; odradek doctor --timeout 0.1").out
    (finding,) = open_files(512)
    assert "hard limit" in finding.remedy
