"""The pytest plugin, run by pytest; where a process of its own shows more, in one, as its users run it.

Below it the pages that show tests: their programs run as they stand there, and docs/testing.md leaves no method out.
"""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from pathlib import Path

import pytest
from odradek_broker.testing import AsyncCluster, Cluster, plugin

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parents[2]
PLUGIN = "odradek_pytest"
HEAVY = (
    "grpc",
    "google.protobuf",
    "odradek_proto",
    "odradek_broker.process.node",
    "odradek_broker.testing.cluster",
    "odradek",
)


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """pytest with this plugin and no other, whatever is installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeini("[pytest]\naddopts = --strict-markers")
    return pytester


def passes(pytester: pytest.Pytester, source: str, **outcomes: int) -> pytest.RunResult:
    pytester.makepyfile(source)
    result = pytester.runpytest_inprocess("-p", PLUGIN)
    result.assert_outcomes(**outcomes)
    return result


def test_the_project_offers_the_plugin() -> None:
    """The entry point names a module that is there."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pytest11"] == {"odradek": PLUGIN}
    offered = importlib.import_module(PLUGIN)
    assert set(offered.__all__) == {name for name in vars(plugin) if re.match(r"(kafka|odradek|pytest)_", name)}
    assert all(getattr(offered, name) is getattr(plugin, name) for name in offered.__all__)


def test_every_test_has_a_fresh_cluster(run: pytest.Pytester) -> None:
    """Topics, ids and failures of one test are not there in the next; what is asked for as shared is shared."""
    passes(
        run,
        """
        import pytest
        from odradek.sync import Admin, Producer

        seen = []

        @pytest.mark.parametrize("value", ["a b", "c"])
        def test_topics(odradek_cluster, odradek_bootstrap, odradek_topic, value):
            with Admin(odradek_bootstrap) as admin:
                assert admin.list_topics() == [odradek_topic]
                cluster_id = admin.describe_cluster().cluster_id
            with Producer(odradek_bootstrap) as producer:
                assert producer.send(odradek_topic, value).offset == 0
            odradek_cluster.kill(1)
            odradek_cluster.freeze(2)
            assert not {cluster_id, *odradek_bootstrap.split(",")} & set(seen)
            seen.extend((cluster_id, *odradek_bootstrap.split(",")))

        def test_faults_end(odradek_cluster, odradek_topic):
            assert odradek_topic == "test_faults_end"
            assert odradek_cluster.running == odradek_cluster.brokers == [1, 2, 3]
            assert sorted(odradek_cluster.isr_of(odradek_topic)) == [1, 2, 3]

        @pytest.mark.odradek(brokers=1, settings={"num.partitions": 5})
        def test_marker(odradek_cluster, odradek_topic):
            assert odradek_cluster.brokers == [1]
            odradek_cluster.create_topic("by-default", -1)
            with Admin(odradek_cluster.bootstrap) as admin:
                [topic] = admin.describe_topics(["by-default"])
            assert len(topic.partitions) == 5

        @pytest.mark.odradek(brokers=1)
        class TestMarkedClass:
            def test_inherits(self, odradek_cluster, odradek_clusters):
                assert odradek_cluster.brokers == [1]
                shared = odradek_clusters.get(brokers=1)
                assert shared is not odradek_cluster
                shared.kill(1)
                assert odradek_clusters.get(brokers=1) is shared
                assert shared.running == [1]
        """,
        passed=5,
    )


def test_nothing_heavy_is_imported_before_a_fixture_is_used(run: pytest.Pytester) -> None:
    """A test session that wants no cluster does not pay for one."""
    run.makepyfile(
        f"""
        import sys

        def test_imports(request):
            assert request.config.pluginmanager.has_plugin("{PLUGIN}")
            heavy = {HEAVY!r}
            assert [name for name in sys.modules if name in heavy] == []
        """
    )
    run.runpytest_subprocess("-p", PLUGIN).assert_outcomes(passed=1)


WRONG_MARKERS = {  # and what is said of them
    "nodes=1": "*test_0: {marker}: got an*nodes*",
    "settings=['num.partitions']": "*test_1: {marker}: settings is a dictionary *, not*",
    "brokers='3'": "*brokers is a number from 1 to 9, not '3'*",
    "settings={'min.insync.replcas': 2}": (
        "*test_3: {marker}: unknown setting 'min.insync.replcas'; did you mean 'min.insync.replicas'*"
    ),
    "settings={'odradek.fsync': 'sometimes'}": (
        "*test_4: {marker}: odradek.fsync must be one of never, before-ack, not 'sometimes'"
    ),
    "settings={'node.id': 7}": "*test_5: {marker}: node.id: the cluster itself sets this for each broker",
}


def test_a_wrong_marker_is_explained(run: pytest.Pytester) -> None:
    """An argument that the marker does not know names the test and what would be right."""
    test = "@pytest.mark.odradek({})\ndef test_{}(odradek_cluster): pass\n"
    tests = [test.format(arguments, number) for number, arguments in enumerate(WRONG_MARKERS)]
    result = passes(run, "\n".join(["import pytest", *tests]), errors=len(tests))
    marker = "@pytest.mark.odradek(brokers=3, settings={})"
    result.stdout.fnmatch_lines_random([line.replace("{marker}", marker) for line in WRONG_MARKERS.values()])
    result.stdout.no_fnmatch_line("*During handling*")
    result.stdout.no_fnmatch_line("*plugin.py:*")


@pytest.mark.slow
def test_the_example_passes(run: pytest.Pytester) -> None:
    """examples/test_my_service.py, as its first line says."""
    run.makepyfile(test_my_service=(ROOT / "examples/test_my_service.py").read_text())
    run.runpytest_subprocess("-p", PLUGIN).assert_outcomes(passed=2)


PAGE = ROOT / "docs" / "testing.md"
PAGES = ("README.md", "docs/tutorial.md", "docs/ci.md", "docs/testing.md")
PROGRAM = re.compile(r"^```python\n# (test_\w+)\.py\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", [PAGES[-1], *(pytest.param(page, marks=pytest.mark.slow) for page in PAGES[:-1])])
def test_the_programs_of_a_page_pass(page: str, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a complete file; pytest runs them all with the plugin."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    text = (ROOT / page).read_text()
    programs = dict(PROGRAM.findall(text))
    assert programs
    assert len(programs) == text.count("```python\n# test_")
    pytester.makepyfile(**programs)
    result = pytester.runpytest_inprocess("-p", "odradek_broker.testing.plugin")
    result.assert_outcomes(passed=sum(source.count("def test_") for source in programs.values()))


def test_the_page_names_every_method() -> None:
    """What `Cluster` offers stands in the table."""
    text = PAGE.read_text()
    offered = [name for name in dir(Cluster) if not name.startswith("_") and name not in ("open", "close")]
    assert [name for name in offered if f"`{name}" not in text and f"cluster.{name}" not in text] == []


def test_the_page_names_what_is_no_coroutine() -> None:
    """The asynchronous cluster has the methods of the other one, and what is awaited in vain stands on the page."""
    [named] = re.findall(r"as coroutines \((.*?) only tell", PAGE.read_text(), flags=re.DOTALL)
    offered = [name for name in dir(AsyncCluster) if not name.startswith("_")]
    ordinary = [name for name in offered if not inspect.iscoroutinefunction(getattr(AsyncCluster, name))]
    assert sorted(re.findall(r"`(\w+)", named)) == ordinary
    assert {*offered} == {name for name in dir(Cluster) if not name.startswith("_")}
