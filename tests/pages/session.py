"""One page's session: a directory and variables that last from block to block, and the things that blocks ask for."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from odradek_broker.local.cluster import LocalCluster

from tests.pages.reading import ROOT, Block
from tests.waiting import until

PATIENCE_S = 900  # for one command on a busy machine
HEALTH = re.compile(r"odradek (?:doctor|server health|cluster health)\b|python -m odradek_broker\.commands\.probe\b")
"""Commands that say how things are at their moment, and wait two or three seconds for an answer."""
FOR_KAFKA = "127.0.0.1:9092"
"""Where Kafka's clients find the first cluster of a machine; that of a page has a port of its own."""
EXPORT = re.compile(r"^export (\w+)=(\S*)$", re.MULTILINE)


class Typed(NamedTuple):
    """A command that was typed, and how it ended."""

    command: str
    code: int
    output: str


class Session:
    """Types commands into `bash`, each in a shell of its own, with the exports that earlier ones printed or made."""

    def __init__(self, directory: Path, log_directories: Path) -> None:
        self.directory = directory
        self._log_directories = log_directories
        self._variables: dict[str, str] = {}
        self._cluster = False
        self._for_kafka = FOR_KAFKA
        self._environment: Mapping[str, str] = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("ODRADEK_", "KAFKA_"))},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "ODRADEK_HOME": str(directory / "home"),
            "ODRADEK_KAFKA_PORT": "0",  # several pages at once, beside whatever runs on this machine
            "TERM": "dumb",
        }

    def prepare(self, block: Block) -> None:
        """Bring about what the notes of a block ask for."""
        if "over log directories" in block.notes and not (self.directory / "data").exists():
            shutil.copytree(self._log_directories, self.directory, dirs_exist_ok=True)
        if "beside a cluster" in block.notes and not self._cluster:
            self._cluster = True
            self._must("odradek cluster up -d --timeout 120 --data beside")
            [listed] = json.loads(self.type("odradek cluster list --json").output)
            self._for_kafka = listed["kafka_bootstrap"]
            for topic in ("orders -p 3", "payments -p 1"):  # again if its answer was lost
                order = f"odradek topic create --if-not-exists {topic}"
                until(partial(self.type, order), lambda typed: typed.code == 0)
            until(lambda: self.type("odradek cluster health"), lambda health: health.code == 0)

    def run(self, block: Block) -> list[Typed]:
        """All commands of a block, up to the first that fails, or its program."""
        if block.program:
            (self.directory / "program.py").write_text(block.program.replace(FOR_KAFKA, self._for_kafka))
            return [self.type("python program.py")]
        done = []
        directory = self.directory if "in the checkout" not in block.notes else ROOT
        for command in block.commands:
            if HEALTH.match(command) and block.exit_code == 0:  # a broker that had no turn for so long will have one
                done.append(until(partial(self.type, command, directory), lambda typed: typed.code == 0))
            else:
                done.append(self.type(command, directory))
            if done[-1].code != 0:
                break
        return done

    def type(self, command: str, directory: Path | None = None) -> Typed:
        """One command; assignments that it exports, or prints as `export NAME=VALUE`, hold for the next ones."""
        marker = self.directory / "environment"
        script = f"set -o pipefail\n{command}\ncode=$?\nexport -p > {marker}\nexit $code"
        try:
            done = subprocess.run(
                ["bash", "-c", script],
                cwd=directory or self.directory,
                env={**self._environment, **self._variables},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=PATIENCE_S,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            pytest.fail(f"`{command}` was not done after {PATIENCE_S} s: {error.stdout!r}")
        if marker.exists():
            self._variables.update(re.findall(r'^declare -x (\w+)="([^"\n]*)"$', marker.read_text(), re.MULTILINE))
        self._variables.update(EXPORT.findall(done.stdout))
        return Typed(command, done.returncode, done.stdout)

    def close(self) -> None:
        """End every cluster that the page left running."""
        for place in self.directory.rglob("cluster.json"):
            LocalCluster.load(place.parent).kill_all()
        remembered = self.directory / "home" / "current"
        for place in map(Path, remembered.read_text().splitlines() if remembered.exists() else ()):
            if LocalCluster.exists(place):
                LocalCluster.load(place).kill_all()
                shutil.rmtree(place, ignore_errors=True)

    def _must(self, command: str) -> None:
        done = self.type(command)
        assert done.code == 0, done
