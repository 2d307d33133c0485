"""Scripts of the simulated world, as somebody edits them and plays them again."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from odradek.cli.main import main
from odradek_chaos.worlds.simulated.campaign.script_reading import read_script
from odradek_chaos.worlds.simulated.cluster.cluster import SimCluster
from odradek_chaos.worlds.simulated.faults.catalogue import TABLE
from odradek_chaos.worlds.simulated.kernel.loop import SimLoop
from odradek_chaos.worlds.simulated.plan.options import Options
from odradek_chaos.worlds.simulated.plan.script import Injection, Script, ScriptedRecord
from odradek_chaos.worlds.simulated.run.run import run_seed

FOUND, USAGE = 3, 2
SEED = 2  # its cluster has the usual shape
OLDEST = Options(faults_ms=3_500, truncation_mode="high-watermark", core="never")
SEEDS = 20  # most of them show it
KILL: tuple[int, str, dict[str, Any]] = (800_000, "kill", {"broker": 1, "down_ms": 20})


def scripted(file: Path, *injections: tuple[int, str, dict[str, Any]], **options: object) -> str:
    file.write_text(Script(tuple(Injection(*each) for each in injections), sends=(), seed=SEED).dump(options))
    return str(file)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command says that ends with the exit code of a wrong use, and without a traceback."""
    capsys.readouterr()
    assert main(["chaos", *words]) == USAGE
    out, said = capsys.readouterr()
    assert not out
    assert "Traceback" not in said
    return said


def played(capsys: pytest.CaptureFixture[str], code: int, *words: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["chaos", "trace", str(SEED), *words, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


# --- options beside a script


@pytest.mark.slow
def test_the_same_faults_under_todays_protocol(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What brokers are set to is as the command line says, the injections are the script's, and both modes are told."""
    file = tmp_path / "loses.json"
    for seed in range(1, SEEDS):
        injections = run_seed(seed, OLDEST).injections
        script = Script(injections, seed=seed)
        if run_seed(seed, OLDEST, script=script).findings:
            break
    else:
        pytest.fail(f"no script of {SEEDS} seeds shows what the oldest protocol loses")
    file.write_text(script.dump(asdict(OLDEST)))
    words = ("chaos", "trace", str(seed), "--script", str(file))
    assert main([*words, "--json"]) == FOUND
    assert json.loads(capsys.readouterr().out)["instead_of_script"] == {}
    assert main([*words, "--truncation", "fetch", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["instead_of_script"] == {"truncation_mode": {"script": "high-watermark", "run": "fetch"}}
    assert sum(found["faults"].values()) >= len(injections) > 0
    assert main([*words, "--truncation", "fetch"]) == 0
    assert "\ntruncation_mode = fetch (the script says high-watermark)\n" in capsys.readouterr().err


@pytest.mark.slow
def test_an_option_that_says_what_the_script_says_changes_nothing(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Nor does one that is left out: its usual value is no wish."""
    file = scripted(tmp_path / "small.json", KILL, faults_ms=1_000, core="never", acks="1", chance="none")
    plain = played(capsys, 0, "--script", file)
    same = played(capsys, 0, "--script", file, "--acks", "1", "--chance", "none")
    assert (same["trace_hash"], same["instead_of_script"]) == (plain["trace_hash"], {})
    other = played(capsys, 0, "--script", file, "--fast-restart-keeps-isr", "--acks", "all", "--checks", "phantom")
    assert other["instead_of_script"] == {
        "acks": {"script": "1", "run": "all"},
        "checks": {"script": [], "run": ["phantom"]},
        "fast_restart_keeps_isr": {"script": False, "run": True},
    }


def test_a_script_of_fast_restarts_is_played_without_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A flag that the script has set can be taken back."""
    file = scripted(tmp_path / "small.json", KILL, faults_ms=1_000, core="never", fast_restart_keeps_isr=True)
    found = played(capsys, 0, "--script", file, "--no-fast-restart-keeps-isr")
    assert found["instead_of_script"] == {"fast_restart_keeps_isr": {"script": True, "run": False}}


@pytest.mark.parametrize("words", [("--faults", "8"), ("--nemeses", "kill"), ("--shrink", "smaller.json")])
def test_what_a_script_says_by_itself_is_refused_beside_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, str]
) -> None:
    """Both options are named, also when the value is the usual one."""
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, "trace", str(SEED), "--script", scripted(tmp_path / "small.json", KILL), *words)
    assert f"{words[0]} does not go with --script" in said
    assert not Path("smaller.json").exists()


def test_shrinking_does_not_go_to_the_end(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """It ends each run at its first finding, so the option would do nothing."""
    said = refused(capsys, "trace", str(SEED), "--to-the-end", "--shrink", str(tmp_path / "small.json"))
    assert "--to-the-end does not go with --shrink" in said


# --- scripts that were edited


@pytest.mark.parametrize(
    ("injection", "wrong"),
    [
        ((9, "kil", {"broker": 1}), "no nemesis is called 'kil'; there are kill, kill-leader-and-successor,"),
        ((9, "kill", {"broker": 1}), "kill says no 'down_ms'; it takes broker, down_ms"),
        ((9, "kill", {"broker": 1, "down_ms": 5, "up": 1}), "kill has no 'up'; it takes broker, down_ms"),
        ((9, "kill", {"broker": 9, "down_ms": 5}), "broker of kill must be a broker (1, 2, 3), not 9"),
        ((9, "kill", {"broker": True, "down_ms": 5}), "broker of kill must be a broker (1, 2, 3), not True"),
        ((9, "kill", {"broker": 1, "down_ms": -5}), "down_ms of kill must be milliseconds, not negative, not -5"),
        ((9, "kill", {"broker": 1, "down_ms": "5"}), "down_ms of kill must be milliseconds, not negative, not '5'"),
        ((-9, "kill", {"broker": 1, "down_ms": 5}), "kill strikes at -9, before the start"),
        (
            (9, "stall", {"source": "b1", "target": "b4", "stall_ms": 5}),
            "target of stall must be a machine (b1, b2, b3,",
        ),
        ((9, "client-crash", {"client": "b1", "down_ms": 5}), "client of client-crash must be a client (w1, w2, r1)"),
        ((9, "ring", {"kind": "ring", "ways": [["b1"]], "cut_ms": 5}), "ways of ring must be a list of pairs"),
        ((9, "reassign", {"partition": 3, "target": [1]}), "partition of reassign must be a partition (0 to 2), not 3"),
        (
            (9, "swap-disks", {"brokers": [1, 1], "wrong_ms": 5, "down_ms": 5}),
            "brokers of swap-disks must be two different brokers",
        ),
        ((9, "crash-all", {"down_ms": {"4": 5}}), "down_ms of crash-all must be milliseconds by broker"),
        ((9, "wipe", {"broker": 1, "down_ms": 5, "places": [0.5]}), "places of wipe must be 6 fractions"),
    ],
)
def test_a_strike_that_cannot_be_carried_out_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, injection: tuple[int, str, dict[str, Any]], wrong: str
) -> None:
    """With its number, its name, what is wrong and what is known, before anything runs."""
    said = refused(capsys, "trace", str(SEED), "--script", scripted(tmp_path / "small.json", KILL, injection))
    assert f"injection 2 of the script: {wrong}" in said


@pytest.mark.parametrize(
    ("options", "machines"),
    [({"members": 2}, ["g1", "c1", "g2", "c2", "p1"]), ({"compaction": True}, ["k1"])],
)
def test_machines_that_an_option_adds_may_be_named_with_it(options: dict[str, object], machines: list[str]) -> None:
    """Members of groups and what writes beside them, and the writer of the compacted topic."""
    stalls = [[9, "stall", {"source": "b1", "target": name, "stall_ms": 5}] for name in machines]
    text = {"options": options, "salt": 0, "injections": stalls, "sends": None}
    assert len(read_script(json.dumps(text))[0].injections) == len(machines)
    with pytest.raises(ValueError, match=f"not '{machines[0]}'"):
        read_script(json.dumps(text | {"options": {}}))


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"truncation": "fetch"}, "'truncation' is none; there are faults_ms, partitions"),
        ({"faults_ms": "8"}, "faults_ms must be a whole number, 1 or more, not '8'"),
        ({"faults_ms": 0}, "faults_ms must be a whole number, 1 or more, not 0"),
        ({"min_insync_replicas": 4}, "min_insync_replicas must be a whole number, 1 to 3, not 4"),
        ({"strict": 1}, "strict must be true or false, not 1"),
        ({"nemeses": "kill"}, "nemeses must be a list of names, not 'kill'"),
        ({"fsync": None}, "fsync must be a text, not None"),
        ({"acks": "2"}, "acks must be all, 1 or 0, not '2'"),
    ],
)
def test_options_of_a_script_that_there_are_not_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: dict[str, object], wrong: str
) -> None:
    """As a wrong truncation mode is."""
    said = refused(capsys, "trace", str(SEED), "--script", scripted(tmp_path / "small.json", KILL, **options))
    assert wrong in said


@pytest.mark.parametrize(
    ("send", "wrong"),
    [
        ([9, 3, 0], "writers are 1 to 2, not 3"),
        ([9, 1, 3], "partitions are 0 to 2, not 3"),
        ([-1, 1, 0], "it is handed over at -1, before the start"),
        ([10**18, 1, 0], "it is handed over at 10{18}, after the end: with these options at 38000000 at the latest"),
    ],
)
def test_a_record_of_nobody_or_to_nowhere_or_never_is_refused(send: list[int], wrong: str) -> None:
    """A writer that there is not would write nothing, without a word; one that waits for years is called stuck."""
    text = json.dumps({"options": {"core": "never"}, "salt": 0, "injections": [], "sends": [send]})
    with pytest.raises(ValueError, match=f"send 1 of the script: {wrong}"):
        read_script(text)


def test_the_latest_record_that_is_taken_is_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What is let through can be carried out: a writer that waits for it is not called stuck."""
    file = tmp_path / "late.json"
    options = {"faults_ms": 300, "core": "never"}
    file.write_text(Script((), (ScriptedRecord(30_300_000, 1, 0),), seed=SEED).dump(options))
    assert played(capsys, 0, "--script", str(file))["records_acknowledged"] == 1


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ('{"options": [], "salt": 0, "injections": [], "sends": null}', "options must be an object, not a list"),
        (
            '{"options": {}, "salt": 0, "injections": [[9, "kill", [["broker", 1], ["down_ms", 5]]]], "sends": null}',
            "what kill chooses must be an object, not a list",
        ),
        ("[" * 200_000, "it is too deep to be read"),
    ],
    ids=["options", "choice", "deep"],
)
def test_what_is_no_script_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, wrong: str
) -> None:
    """With the file and what is wrong in it."""
    file = tmp_path / "small.json"
    file.write_text(text)
    said = refused(capsys, "trace", str(SEED), "--script", str(file))
    assert f"{file}: not a script of a simulated run: {wrong}\n" in said


def test_a_script_that_says_nothing_of_options_has_the_usual_ones() -> None:
    """Files of before have fewer."""
    script, options = read_script('{"options": {"acks": "1"}, "salt": 0, "injections": [], "sends": null}')
    assert (script.injections, options) == ((), Options(acks="1"))


@pytest.mark.parametrize(("shape", "last"), [("combined", 3), ("observers", 5), ("controllers", 6)])
def test_scripts_may_name_the_nodes_that_there_are(shape: str, last: int) -> None:
    """Of the cluster that the seed or the option has; and every kind of injection takes something."""

    def script(broker_id: int) -> str:
        injections = [[1_000_000, "pause", {"broker": broker_id, "pause_ms": 10}]]
        options = {"shape": shape}
        return json.dumps({"options": options, "salt": 0, "seed": 1, "injections": injections, "sends": None})

    loop = SimLoop(1)
    assert [*SimCluster(loop, shape=shape).machines] == [*range(1, last + 1)]
    loop.close()
    read_script(script(last))
    with pytest.raises(ValueError, match=f"not {last + 1}"):
        read_script(script(last + 1))
    assert all(kind.takes for kind in TABLE)


# --- files that are written at the end


@pytest.mark.parametrize(
    "words",
    [("trace", "1", "--shrink"), ("run", "--seeds", "1..1000", "--shrink")],
)
def test_a_file_that_cannot_be_written_is_refused_at_the_start(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: tuple[str, ...]
) -> None:
    """Not after all the work."""
    file = tmp_path / "nowhere" / "file"
    said = refused(capsys, *words, str(file))
    assert f"{words[-1]} {file}: No such file or directory" in said
    assert "Is a directory" in refused(capsys, *words, str(tmp_path))


def test_a_file_that_can_be_written_is_left_as_it_is(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A seed that finds nothing writes nothing, and takes nothing away."""
    kept, other = tmp_path / "kept.json", tmp_path / "other.json"
    kept.write_text("kept")
    for file in (kept, other):
        assert main(["chaos", "trace", "1", "--faults", "0.3", "--shrink", str(file)]) == 0
    assert kept.read_text() == "kept"
    assert not other.exists()
