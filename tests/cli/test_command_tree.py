"""The tree of commands: found by entry points, loaded late, described in the docs, each with --json; and `docs`."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from odradek.cli import docs
from odradek.cli.main import main
from odradek.cli.records.format import ESCAPES, PARTS
from odradek.cli.reference import page
from odradek.cli.tree import GROUP, SUMMARIES
from odradek_proto.command_line import USAGE

from tests.cli.conftest import Run
from tests.commands_of_odradek import tree

ROOT = Path(__file__).parents[2]
HEAVY = {"grpc", "pyspark", "pyarrow", "rich", "odradek_broker", "odradek_chaos", "odradek_audit"}


def imported_by(*words: str) -> set[str]:
    """The packages that a command line imports, by Python's own account."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "odradek.cli.main", *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip().split(".")[0] for line in lines}


def test_help_loads_nothing_heavy() -> None:
    """`odradek --help` is there before grpc, Spark or any subcommand could have been loaded."""
    found = imported_by("--help")
    assert "typer" in found
    assert not found & HEAVY


def test_the_version_is_an_option_too(odradek: Run) -> None:
    """`--version`, as of every other command, prints what `version` prints."""
    assert odradek("--version", code=0) == odradek("version", code=0)


ALL_HELP = """
import contextlib, io, json, sys
from odradek.cli.main import main
for words in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()):
        main([*words, "--help"])
    if loaded := {"asyncio", "grpc", "msgspec", "pyspark", "pyarrow"} & set(sys.modules):
        sys.exit(f"odradek {' '.join(words)} --help loads {sorted(loaded)}")
"""


def test_help_of_no_command_loads_what_runs() -> None:
    """A page needs none of what its command needs: asyncio alone is a tenth of its time. One process has them all."""
    pages = json.dumps([path[1:] for path in tree()])
    done = subprocess.run([sys.executable, "-c", ALL_HELP, pages], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_registered_command_has_a_line_on_the_first_page() -> None:
    """What an entry point registers stands in the summaries, under its own words."""
    listed = {name: summary for names in SUMMARIES.values() for name, summary in names.items()}
    firsts = {path[1]: command.help for path, command in tree().items() if len(path) == 2}
    assert {point.name for point in entry_points(group=GROUP)} == set(firsts)
    assert set(firsts) <= set(listed)
    for name in set(firsts) - {"audit"}:  # the auditor speaks for itself, and longer
        assert firsts[name].split("\n")[0] == listed[name]


def leaves() -> list[tuple[tuple[str, ...], Any]]:
    return [(path, leaf) for path, leaf in tree().items() if not hasattr(leaf, "commands")]


@pytest.mark.parametrize(
    ("path", "leaf"), leaves(), ids=lambda value: " ".join(value) if isinstance(value, tuple) else ""
)
def test_every_option_is_explained(path: tuple[str, ...], leaf: Any) -> None:
    """Each command says what it does, each option what it means."""
    assert leaf.help, path
    for parameter in leaf.params:
        assert getattr(parameter, "help", None), f"{' '.join(path)}: {parameter.name} has no help"


def test_lists_of_commands_cut_no_sentence() -> None:
    """On a terminal of 80 columns: a sentence goes on in the next line."""
    for path, group in tree().items():
        if hasattr(group, "commands") and len(path) > 1:  # the first page has lines of its own
            words = " ".join(group.get_help(group.context_class(group, info_name=path[-1])).split())
            for name, command in group.commands.items():
                assert f"{name} {command.get_short_help_str(1000)}" in words


def test_the_page_of_commands_is_current() -> None:
    """docs/commands.md is what the commands say of themselves."""
    written = (ROOT / "docs/commands.md").read_text()
    assert written == page(), "python -m odradek.cli.reference > docs/commands.md"


def test_every_exported_name_of_the_client_is_there() -> None:
    """The package loads its modules late; each name that it promises comes all the same, and no other."""
    import odradek

    assert all(getattr(odradek, name) is not None for name in odradek.__all__)
    assert set(dir(odradek)) == set(odradek.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Prodcer'"):
        vars(odradek)["__getattr__"]("Prodcer")


WITHOUT_JSON = {"server run": "it goes on until it is stopped, and what it says is its log"}


def acting() -> dict[str, Any]:
    """The commands that do something when they are called, by their words."""
    return {
        " ".join(path[1:]): command
        for path, command in tree().items()
        if not hasattr(command, "commands") or (command.invoke_without_command and not command.no_args_is_help)
    }


@pytest.mark.parametrize(("words", "command"), acting().items(), ids=lambda value: value if type(value) is str else "")
def test_every_command_answers_programs_or_says_why_not(words: str, command: Any) -> None:
    """A command takes the flag `--json`, or stands in the list; one that learned it leaves the list."""
    flags = [parameter for parameter in command.params if "--json" in parameter.opts]
    assert [flag.is_flag for flag in flags] == ([] if words in WITHOUT_JSON else [True])


def test_json_is_short_only_for_what_there_is() -> None:
    """A command without --output says itself what its --json prints."""
    for words, command in acting().items():
        options = [option for parameter in command.params for option in parameter.opts]
        for parameter in command.params:
            if "--json" in parameter.opts and "--output" not in options:
                assert "--output" not in parameter.help, words


def test_the_help_of_a_format_names_all_that_it_may_hold() -> None:
    """Whoever writes one looks there, and not at the error for a letter that means nothing."""
    told = next(each.help for each in acting()["consume"].params if "--format" in each.opts)
    assert set(re.findall(r"%(.)", told)) == {*PARTS, "%"}
    assert set(re.findall(r"\\(.)", told)) == set(ESCAPES)


def test_the_commands_without_json_exist() -> None:
    """The list names commands that there are, `demo` is seen beside its lessons, and groups without words are not."""
    assert set(WITHOUT_JSON) < set(acting())
    assert {"demo", "demo divergence"} < set(acting())
    assert not {"", "topic", "cluster", "audit"} & set(acting())


NO_TIMES = ("inf", "1e300", "nan", "-1")


def options_of_time() -> list[tuple[tuple[str, ...], str]]:
    """Command lines that are complete without an option in seconds, and that option."""
    found = []
    for path, command in tree().items():
        arguments = ["1" for each in command.params if each.param_type_name == "argument" and each.required]
        for each in command.params:
            if each.metavar == "SECONDS":
                found.append(((*path[1:], *arguments), each.opts[0]))
    return found


def test_what_is_no_time_is_refused(odradek: Run) -> None:
    """Code 2 and the name of the option, before anything is done; endless seconds ended in an OverflowError.

    All options of a kind share their limits, so each is tried with one value in turn, and the first with all.
    """
    options = options_of_time()
    assert {(("produce", "1"), "--timeout"), (("chaos", "run"), "--faults")} <= {*options}
    tried = [*itertools.product(options[:1], NO_TIMES), *zip(options, itertools.cycle(NO_TIMES), strict=False)]
    for (words, option), value in tried:
        outcome = odradek(*words, option, value)
        assert (outcome.code, outcome.out, option in outcome.err) == (USAGE, "", True), (words, option, value, outcome)


def test_every_page_and_program_is_listed_and_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """The list names each with its title; a name prints the file, with or without folder and ending."""
    assert main(["docs", "--json"]) == 0
    listed = {row["name"]: row for row in json.loads(capfd.readouterr().out)}
    written = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert set(listed) == written | {f"examples/{path.name}" for path in (ROOT / "examples").glob("*.py")}
    assert listed["lessons"]["title"] == "Lessons: replication, step by step"
    for name in ("lessons", "docs/lessons.md"):
        assert main(["docs", name]) == 0
        assert capfd.readouterr().out == (ROOT / "docs/lessons.md").read_text()


def test_a_wheel_has_the_folders_where_the_command_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """What pyproject.toml puts beside the package is found there, also when no checkout is around."""
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    for source, target in wheel["force-include"].items():
        (tmp_path / target).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / target).symlink_to(ROOT / source)
    monkeypatch.setattr(docs, "__file__", str(tmp_path / "odradek" / "cli" / "docs.py"))
    assert main(["docs", "tutorial"]) == 0
    assert capfd.readouterr().out == (ROOT / "docs/tutorial.md").read_text()
    assert set(docs.FOLDERS) == set(wheel["force-include"])


PAGES = ("README.md", "docs/architecture.md", "docs/differences.md", "docs/checks.md", "docs/client.md")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
IN_BLOCK = re.compile(r"(?:^|\| )(?:\$ )?(odradek [a-z-][^|#\n]*)", re.MULTILINE)
IN_TEXT = re.compile(r"`(odradek [a-z-][^`]*)`")
TREE = tree()


def mentioned() -> list[tuple[str, str]]:
    found = []
    for name in PAGES:
        text = (ROOT / name).read_text()
        lines = [line for block in FENCED.findall(text) for line in IN_BLOCK.findall(block)]
        found += [(name, line.strip()) for line in lines + IN_TEXT.findall(FENCED.sub("", text))]
    return found


def test_the_pages_show_commands() -> None:
    """The pattern finds what the pages show, so that the next test has something to do."""
    assert len(mentioned()) > 15


def test_the_short_door_comes_first() -> None:
    """The first block installs the package alone and runs the demo; `make`, which installs every tool, comes later."""
    first = FENCED.findall((ROOT / "README.md").read_text())[0]
    assert 0 < first.index("pip install . ") < first.index("odradek demo")
    assert "make" not in first


@pytest.mark.parametrize(("page", "line"), mentioned(), ids=lambda value: value)
def test_a_command_in_the_docs_exists(page: str, line: str) -> None:
    """Names and options of a command line in the docs are those of the command."""
    words = shlex.split(line)
    path: tuple[str, ...] = ("odradek",)
    while len(words) > len(path) and (*path, words[len(path)]) in TREE:
        path = (*path, words[len(path)])
    assert len(path) > 1 or words[1].startswith("-"), f"{page}: {line}"
    command = TREE[path]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    used = {word.split("=")[0] for word in words if re.fullmatch(r"--?[a-zA-Z][a-z-]*(=.*)?", word)}
    assert used <= known, f"{page}: {line}"


def test_the_first_page_has_no_line_that_a_terminal_folds() -> None:
    """Tables, too."""
    assert [line for line in (ROOT / "README.md").read_text().splitlines() if len(line) > 120] == []
