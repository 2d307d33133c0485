"""What several processes run and report after one collection (`--forks`)."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLUGIN = """
    import pytest
    from tests.forks import Forks
    def pytest_configure(config):
        config.pluginmanager.register(Forks(2, ("waits",)))
        config.addinivalue_line("markers", "waits: for other processes")
        config.addinivalue_line("markers", "xdist_group: in one process")
"""


def run(folder: Path, *options: str, **files: str) -> tuple[int, list[str]]:
    """The exit code and the lines of a run of these files with two forks."""
    for name, text in {"conftest": PLUGIN, **files}.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "--rootdir", str(folder), *options]
    ended = subprocess.run(
        command,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return ended.returncode, ended.stdout.splitlines()


def test_what_comes_of_tests_is_reported_as_without_forks(tmp_path: Path) -> None:
    """Passed, failed with its reason and what it printed, skipped, a broken fixture, a warning: each once."""
    test_one = """
        import pytest, warnings
        def test_passes(tmp_path): warnings.warn("beware")
        def test_fails(): print("said before"); assert 1 == 2
        @pytest.mark.skip(reason="not today")
        def test_is_skipped(): pass
        @pytest.fixture
        def broken(): raise ValueError("no such thing")
        def test_is_not_reached(broken): pass
    """
    code, lines = run(tmp_path, test_one=test_one, test_two="def test_other(): pass")
    assert (code, lines[-1].split(" in ")[0].strip("= ")) == (1, "1 failed, 2 passed, 1 skipped, 1 warning, 1 error")
    assert "said before" in lines
    for said in ("assert 1 == 2", "ValueError: no such thing", "UserWarning: beware"):
        assert any(said in line for line in lines), said


def test_a_file_and_a_group_share_a_process_and_its_fixtures(tmp_path: Path) -> None:
    """In their order; the fixtures of the session end with the process, and each process has directories of its own."""
    shared = """
        import os, pytest
        pytestmark = pytest.mark.xdist_group("shared")
        def test_{0}(session_pid, tmp_path):
            assert session_pid == os.getpid()
            with open(r"{1}", "a") as file: print("{0}", os.getpid(), tmp_path.parent.name, file=file)
    """
    conftest = textwrap.dedent(PLUGIN) + textwrap.dedent(f"""
        import os
        @pytest.fixture(scope="session")
        def session_pid():
            yield os.getpid()
            with open(r"{tmp_path / "ended"}", "a") as file: print(os.getpid(), file=file)
    """)
    seen = tmp_path / "seen"
    files = {f"test_{name}": shared.format(name, seen) for name in ("a", "b", "c")}
    assert run(tmp_path, conftest=conftest, **files)[0] == 0
    told = [line.split() for line in seen.read_text().splitlines()]
    assert [name for name, _, _ in told] == ["a", "b", "c"]
    [pid] = {pid for _, pid, _ in told}
    assert (tmp_path / "ended").read_text().split() == [pid]
    assert {place[:4] for _, _, place in told} == {"fork"}


def test_a_file_with_a_fixture_of_its_own_is_in_one_process_and_any_other_in_several(tmp_path: Path) -> None:
    """Each test runs once; what a module has is made once."""
    file = """
        import os, pytest
        @pytest.fixture(scope="{0}")
        def made():
            with open(r"{1}", "a") as file: print("made", file=file)
        @pytest.mark.parametrize("number", range(9))
        def test_it(made, number):
            with open(r"{1}", "a") as file: print(number, file=file)
    """
    seen = {scope: tmp_path / scope for scope in ("module", "function")}
    files = {f"test_{scope}": file.format(scope, path) for scope, path in seen.items()}
    assert run(tmp_path, **files)[0] == 0
    for scope, made in (("module", 1), ("function", 9)):
        lines = seen[scope].read_text().splitlines()
        assert lines.count("made") == made
        assert sorted(set(lines) - {"made"}) == [str(number) for number in range(9)]


def test_what_waits_and_what_computes_run_beside_each_other(tmp_path: Path) -> None:
    """Two tests that wait for each other, one of each kind, and others of its kind before the second."""
    os.mkfifo(tmp_path / "meeting")
    waiting = f"""
        import pytest
        @pytest.mark.waits
        def test_meets():
            with open(r"{tmp_path / "meeting"}") as file: assert file.read() == "here"
        @pytest.mark.parametrize("number", range(9))
        @pytest.mark.waits
        def test_waits(number): pass
    """
    computing = f"""
        def test_is_met():
            with open(r"{tmp_path / "meeting"}", "w") as file: file.write("here")
    """
    code, lines = run(tmp_path, test_a=waiting, test_b=computing)
    assert code == 0
    assert lines[-1].split(" in ")[0].strip("= ") == "11 passed"


def test_a_process_that_dies_fails_the_test_that_it_was_at(tmp_path: Path) -> None:
    """The others go on, and the run has failed."""
    dying = "import os\ndef test_dies(): os._exit(0)\ndef test_beside_it(): pass"
    code, lines = run(tmp_path, test_dying=dying, test_other="def test_other(): pass")
    assert code == 1
    assert any(line.startswith("FAILED test_dying.py::test_dies") for line in lines)
    assert any("it ended without a word" in line for line in lines)
    assert lines[-1].split(" in ")[0].strip("= ") == "1 failed, 2 passed"


def test_the_first_failure_can_be_the_end(tmp_path: Path) -> None:
    """With -x no further file is begun, and no process is waited for that goes on."""
    files = {f"test_{number}": "def test_it(): assert not True" for number in range(9)}
    code, lines = run(tmp_path, "-x", **files)
    assert code == 1
    assert any("stopping after 1 failures" in line for line in lines)
