"""Ctrl-C while `odradek` is being loaded: it ends at once, with the code of what is interrupted, and says nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from odradek_proto.command_line import INTERRUPTED

from tests.signals import sigint_of_children

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
ENTRY = "odradek.cli.__main__"
AS_INSTALLED = f"import sys; from {ENTRY} import main; sys.exit(main())"  # what the script says that pip makes
CODES = (INTERRUPTED, -signal.SIGINT)  # the same for a shell; CPython chooses the second one inside of an exec()
PATIENCE_S = 300


@pytest.mark.slow
@pytest.mark.parametrize(
    "loaded", ["the first module", "typer", "odradek.cli.tree", "odradek.cli.topics.alter", "asyncio", "grpc"]
)
def test_an_interrupted_start_is_quiet(home: Path, deaf: str, loaded: str) -> None:
    """Wherever it is in loading what it needs; Python's own account of that says where it is."""
    words = ["topic", "list", "-b", deaf, "--timeout", str(PATIENCE_S)]
    with sigint_of_children():
        process = subprocess.Popen(
            [sys.executable, "-X", "importtime", "-c", AS_INSTALLED, *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "ODRADEK_HOME": str(home)},
        )
    assert process.stderr is not None
    begun = False
    for line in process.stderr:
        module = line.rpartition("|")[2].strip()
        if begun and loaded in (module, "the first module"):
            break
        begun = begun or module == ENTRY
    else:
        pytest.fail(f"{loaded} was not loaded")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE_S)
    said = [line for line in err.splitlines() if not line.startswith("import time:")]
    assert (out, said) == ("", [])
    assert process.returncode in CODES


IN_A_CALLBACK = """
import signal, sys, weakref
from importlib.abc import MetaPathFinder

class Interrupting(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "odradek.cli.tree":
            dropped = type("Dropped", (), {})()
            callback = weakref.ref(dropped, lambda _: signal.raise_signal(signal.SIGINT))
            del dropped

sys.meta_path.insert(0, Interrupting())
"""


def test_an_interrupt_where_python_drops_exceptions_still_ends_the_command(home: Path) -> None:
    """The import system's own callbacks of weak references are such places."""
    with sigint_of_children():
        ended = subprocess.run(
            [sys.executable, "-c", IN_A_CALLBACK + AS_INSTALLED, "--help"], capture_output=True, text=True
        )
    assert (ended.returncode, ended.stdout, ended.stderr) == (INTERRUPTED, "", "")


def test_the_command_begins_there() -> None:
    """The script that pip makes loads the entry module, which leads to the command."""
    entry = tomllib.loads(PYPROJECT.read_text())["project"]["scripts"]["odradek"]
    assert entry == f"{ENTRY}:main"
    assert callable(import_module(ENTRY).main)
