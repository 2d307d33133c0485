"""A broker raises its own limit of open files, and says what it got."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from odradek.cli.checkup.machine import open_files
from odradek_broker.local_cluster import LocalCluster
from odradek_broker.open_files import MOST_OPEN_FILES

resource = pytest.importorskip("resource")
Run = Callable[..., Any]
RAISE = """
import resource, sys
from odradek_broker.open_files import raise_open_files_limit
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
    done = subprocess.run(
        [sys.executable, "-c", RAISE, str(soft), str(hard)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == [said, f"{then} {hard}"]


@pytest.mark.cluster
@pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="this system does not tell another process's limits")
def test_a_broker_raises_its_limit_at_its_start(shell: Run, place: Path) -> None:
    """Started by a shell with a low soft limit, as most have; its log says what it did."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    outcome = shell(f"ulimit -Sn 512; odradek cluster up -d -n 1 --data {place}")
    assert outcome.code == 0, outcome
    pid = LocalCluster.load(place).nodes[1].pid
    assert resource.prlimit(pid, resource.RLIMIT_NOFILE) == (wanted, hard)
    assert f"odradek: may open {wanted} files and connections, not 512: the hard limit" in "".join(
        log.read_text() for log in place.glob("*.log")
    )


def test_the_doctor_looks_at_the_limit_that_a_broker_gets(shell: Run) -> None:
    """A low soft limit is no finding any more, a low hard one is."""
    assert "open-files" not in shell("ulimit -Sn 512; odradek doctor --timeout 0.1").out
    assert "open-files" in shell("ulimit -Sn 512; ulimit -Hn 512; odradek doctor --timeout 0.1").out
    (finding,) = open_files(512)
    assert "hard limit" in finding.remedy
