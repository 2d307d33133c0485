"""Who may import whom, and what only the adapters may touch.

The rules are those of docs/architecture.md. Each is read from the sources, so that a line that crosses a border is
named with its file and number.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("architecture")  # in one process, so that each file is parsed once

ROOT = Path(__file__).parent.parent
PACKAGES = {
    "odradek_proto": ROOT / "proto/odradek_proto",
    "odradek": ROOT / "client/odradek",
    "odradek_broker": ROOT / "broker/odradek_broker",
    "odradek_pytest": ROOT / "broker/odradek_pytest",
    "odradek_chaos": ROOT / "chaos/odradek_chaos",
    "odradek_audit": ROOT / "audit/odradek_audit",
}
ALLOWED = {
    "odradek_proto": set(),
    "odradek": {"odradek_proto"},
    "odradek_broker": {"odradek_proto"},
    "odradek_pytest": {"odradek_broker"},
    "odradek_audit": {"odradek_proto"},
    "odradek_chaos": {"odradek_proto", "odradek", "odradek_broker", "odradek_audit"},
}
INSIDE_BROKER = {  # prefix of the importer -> prefixes that it must not import
    "odradek_broker.core": (
        "odradek_broker.storage",
        "odradek_broker.runtime",
        "odradek_broker.requests",
        "odradek_broker.rpc",
        "odradek_broker.kafka",
    ),
    "odradek_broker.storage": (
        "odradek_broker.runtime",
        "odradek_broker.requests",
        "odradek_broker.rpc",
        "odradek_broker.kafka",
    ),
    "odradek_broker.runtime": (
        "odradek_broker.requests",
        "odradek_broker.rpc",
        "odradek_broker.kafka",
        "odradek_broker.metrics",
    ),
    "odradek_broker.rpc": ("odradek_broker.kafka",),
    "odradek_broker.kafka": ("odradek_broker.rpc", "odradek_broker.process", "odradek_broker.metrics"),
    "odradek_broker.requests": (
        "odradek_broker.rpc",
        "odradek_broker.kafka",
        "odradek_broker.metrics",
        "odradek_broker.runtime.duplex",
        "odradek_proto.v1",
        "odradek_proto.transport.frames",
        "google.protobuf",
    ),
    "odradek_broker.metrics": ("odradek_broker.requests", "odradek_broker.rpc"),
}
WORLDLY = {"time", "os", "threading", "socket", "subprocess", "grpc", "secrets", "uuid", "datetime", "signal"}
PURE = {  # trees and files that may not touch the world at all, adapters and command lines aside
    "broker/odradek_broker/core": WORLDLY | {"asyncio"},
    "broker/odradek_broker/storage": WORLDLY | {"asyncio"},
    "broker/odradek_broker/runtime": WORLDLY,
    "broker/odradek_broker/requests": WORLDLY,
    "broker/odradek_broker/rpc": WORLDLY,
    "broker/odradek_broker/kafka": WORLDLY,
    **{
        f"broker/odradek_broker/metrics/{name}.py": WORLDLY
        for name in ("samples", "times", "replicas", "traffic", "cluster", "health")  # http and listener are adapters
    },
    "broker/odradek_broker/process/broker.py": WORLDLY,
    "broker/odradek_broker/process/node.py": WORLDLY,
    "client/odradek/core": WORLDLY | {"asyncio"},
    **{
        f"client/odradek/{room}": WORLDLY
        for room in ("shared", "cluster", "producing", "consuming", "administration", "__init__.py", "broker_errors.py")
    },
    "chaos/odradek_chaos/harness/workload.py": WORLDLY,
    "chaos/odradek_chaos/harness/verify.py": WORLDLY | {"asyncio"},
}


SPELLED_OUT = {"encode_batch", "report"}  # the fields of a batch's header, and those of a finding
MOST_FILES = 20  # of one folder, its __init__ aside
# What is not yet as the rules want it. A list only shrinks: what is mended has to leave it.
CIRCLES = (  # of files that import each other
)
MUTUAL: tuple[tuple[str, str], ...] = (  # folders that import each other
)


def sources(folder: Path) -> Iterator[Path]:
    """The hand-written modules of a folder, or the one file that was named."""
    for path in sorted(folder.rglob("*.py")) if folder.is_dir() else [folder]:
        if not path.name.endswith(("_pb2.py", "_pb2_grpc.py")):
            yield path


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Everything in a file; many tests ask, and parsing is most of their work."""
    return tuple(ast.walk(ast.parse(path.read_text())))


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line numbers and full names of what a file imports, wherever in the file."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module


def module_name(path: Path, package: str) -> str:
    relative = path.relative_to(PACKAGES[package].parent).with_suffix("")
    return ".".join(relative.parts)


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_packages_import_in_one_direction(package: str) -> None:
    """An import of one of our packages is one that the importer may make."""
    crossings = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources(PACKAGES[package])
        for line, name in imports(path)
        if (top := name.split(".")[0]) in PACKAGES and top != package and top not in ALLOWED[package]
    ]
    assert not crossings, "\n".join(crossings)


def test_chaos_borrows_only_the_checks_of_the_audit() -> None:
    """The simulated world shares the pure checks with the audit, nothing of its engines."""
    allowed = (
        "odradek_audit.catalogue",
        "odradek_audit.findings",
        "odradek_audit.inputs.history",
        "odradek_audit.engine.local",
        "odradek_audit.report",
    )
    crossings = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources(PACKAGES["odradek_chaos"])
        for line, name in imports(path)
        if name.startswith("odradek_audit") and not name.startswith(allowed)
    ]
    assert not crossings, "\n".join(crossings)


@pytest.mark.parametrize("importer", sorted(INSIDE_BROKER))
def test_layers_of_the_broker_import_downwards(importer: str) -> None:
    """core knows nobody, storage core's types, runtime both, requests no protocol, rpc and kafka one each."""
    crossings = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources(PACKAGES["odradek_broker"])
        if module_name(path, "odradek_broker").startswith(importer)
        for line, name in imports(path)
        if name.startswith(INSIDE_BROKER[importer])
    ]
    assert not crossings, "\n".join(crossings)


@pytest.mark.parametrize("folder", sorted(PURE))
def test_only_adapters_touch_the_world(folder: str) -> None:
    """Clocks, chance, processes, threads and sockets are behind the ports."""
    touches = [
        f"{path.relative_to(ROOT)}:{line} imports {name}"
        for path in sources(ROOT / folder)
        for line, name in imports(path)
        if name.split(".")[0] in PURE[folder]
    ]
    assert not touches, "\n".join(touches)


@pytest.mark.parametrize("folder", sorted(PURE))
def test_chance_and_pauses_come_from_the_clock(folder: str) -> None:
    """`random.Random` is a type here, never a source; nobody calls the module's functions or asyncio.sleep.

    Nor asyncio.wait_for: it takes other steps from Python 3.12 on, and a seed would tell another story there.
    """
    found = []
    for path in sources(ROOT / folder):
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                name = f"{node.value.id}.{node.attr}"
                chance = node.value.id == "random" and node.attr != "Random"
                if chance or name in ("asyncio.sleep", "asyncio.wait_for"):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} uses {name}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("core", ["broker/odradek_broker/core", "client/odradek/core"])
def test_decisions_are_made_without_protobuf(core: str) -> None:
    """A core's words are plain values (odradek_proto.messages); how they are encoded is the rim's affair."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources(ROOT / core)
        for node in nodes(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
        and ("_pb2" in (names := ast.unparse(node)) or "google.protobuf" in names)
    ]
    assert found == []


def test_no_test_sleeps() -> None:
    """Tests await a condition or run under virtual time."""
    found = []
    for path in sources(ROOT / "tests"):
        for node in nodes(path) if "sleep" in path.read_text() else ():
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and isinstance(node.func.value, ast.Name)
                and node.func.attr == "sleep"
                and node.func.value.id in ("time", "asyncio")
                and not (node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value == 0)
            ):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found, "\n".join(found)


def functions() -> Iterator[tuple[Path, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for folder in PACKAGES.values():
        for path in sources(folder):
            for node in nodes(path):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    yield path.relative_to(ROOT), node


def test_no_function_outgrows_seventy_lines() -> None:
    """A function that long has two subjects."""
    found = []
    for path, node in functions():
        lines = (node.end_lineno or node.lineno) - node.lineno + 1
        if lines > 70:
            found.append(f"{path}:{node.lineno} {node.name} has {lines} lines")
    assert not found, "\n".join(found)


def test_no_function_takes_more_than_eight_parameters() -> None:
    """What belongs together is one value. A command's parameters are its options."""
    found = []
    for path, node in functions():
        names = [each.arg for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
        count = len(names) - (names[:1] in (["self"], ["cls"]))
        if count > 8 and "cli" not in path.parts and node.name not in SPELLED_OUT:
            found.append(f"{path}:{node.lineno} {node.name} takes {count} parameters")
    assert not found, "\n".join(found)


def test_no_two_public_classes_share_a_name() -> None:
    """Two things never share a word. A message may be named as what it carries, the answer as what the client makes of
    it, and the blocking client as the one it wraps."""
    places: dict[str, list[str]] = {}
    for package, folder in PACKAGES.items():
        for path in sources(folder):
            name = module_name(path, package)
            if name.startswith(("odradek_proto.v1", "odradek_broker.requests", "odradek.sync")):
                continue
            for node in next(iter(nodes(path))).body:  # type: ignore[attr-defined]
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places.setdefault(node.name, []).append(name)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


# --- rooms -------------------------------------------------------------------------------------------------------


@cache
def modules() -> dict[str, Path]:
    """Every hand-written module of the packages by its full name; packages themselves are not among them."""
    return {
        module_name(path, package): path
        for package, folder in PACKAGES.items()
        for path in sources(folder)
        if path.name != "__init__.py"
    }


@cache
def imported_modules() -> dict[str, set[str]]:
    """Which modules each module imports, for types alone (`TYPE_CHECKING`) included."""
    found: dict[str, set[str]] = {}
    for name, path in modules().items():
        wanted = {each for _, each in imports(path)}
        wanted |= {
            f"{node.module}.{alias.name}"
            for node in nodes(path)
            if isinstance(node, ast.ImportFrom) and node.module and not node.level
            for alias in node.names
        }
        found[name] = (wanted & modules().keys()) - {name}
    return found


def circles() -> set[frozenset[str]]:
    """The sets of modules in which each module reaches each other one through imports."""
    edges = imported_modules()

    @cache
    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            new = edges[waiting.pop()] - seen
            seen |= new
            waiting.extend(new)
        return seen

    return {
        frozenset(other for other in reached(name) if name in reached(other)) for name in edges if name in reached(name)
    }


def folder_of(module: str) -> str:
    return str(modules()[module].parent.relative_to(ROOT))


def differences(found: Iterable[Collection[str]], known: Iterable[Collection[str]]) -> str:
    """What is there and not listed, and what is listed and not there any more; empty when neither is."""
    there, listed = ({", ".join(sorted(each)) for each in some} for some in (found, known))
    new = [f"not allowed: {each}" for each in sorted(there - listed)]
    return "\n".join([*new, *(f"mended, take it off the list: {each}" for each in sorted(listed - there))])


def test_no_files_import_each_other_in_a_circle() -> None:
    """What is in a circle can only be read, tested and changed together."""
    different = differences(circles(), CIRCLES)
    assert not different, different


def test_no_two_folders_import_each_other() -> None:
    """Of two folders one is above the other."""
    pairs = {(folder_of(name), folder_of(other)) for name, others in imported_modules().items() for other in others}
    mutual = {frozenset(pair) for pair in pairs if pair[0] != pair[1] and (pair[1], pair[0]) in pairs}
    different = differences(mutual, MUTUAL)
    assert not different, different


def test_no_folder_is_crowded() -> None:
    """The names in a folder can be read at a glance."""
    sizes = Counter(map(folder_of, modules()))
    crowded = {folder: size for folder, size in sizes.items() if size > MOST_FILES}
    assert not crowded, crowded
