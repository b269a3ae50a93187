"""What tests/conftest.py makes of a run: which S3 servers, which suite, what a skip is, and who runs what."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import DeadlineExceeded

SAMPLE = '''
import pathlib
import pytest

def once(name):
    """Fails at its first call."""
    path = pathlib.Path(name)
    assert path.exists() or path.touch()

def test_skipped(): pytest.skip("why")
def test_server(s3_server): pass
def test_pure_fails(): once("pure")
@pytest.mark.spark
def test_real_fails(): once("real")
'''
OF_EACH_SUITE = """
import pytest

def test_pure(): pass
@pytest.mark.slow
def test_pure_and_slow(): pass
@pytest.mark.spark
def test_of_a_spark(): pass
@pytest.mark.spark
@pytest.mark.smoke
def test_of_a_way_in(): pass
@pytest.mark.drill
def test_of_the_drill(): pass
def test_fault_1_control_without_it(): pass
def test_controller(): pass
"""
FAST = {"test_pure", "test_of_a_way_in", "test_fault_1_control_without_it", "test_controller"}
REST = {"test_pure_and_slow", "test_of_a_spark"}
TESTS = Path(__file__).parents[1]
MOTO = "--s3-server=moto"


def run_pytest(
    folder: Path, *arguments: str, source: str = SAMPLE, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Our conftest over ``source``."""
    shutil.copy(TESTS / "conftest.py", folder / "conftest.py")
    (folder / "test_it.py").write_text(source)
    marks = "".join(f"    {mark}: x\n" for mark in ("s3", "spark", "smoke", "slow", "drill", "control"))
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{marks}addopts = -ra\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments, str(folder / "test_it.py")]
    path = os.pathsep.join([str(TESTS.parent), str(TESTS / "support")])
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, **environment},
        cwd=folder,
        check=False,
    )


def test_how_long_a_drawn_example_takes_fails_no_test() -> None:
    assert settings.default is not None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
    assert settings.default.derandomize == ("CI" in os.environ)
    own = [
        path.name
        for path in TESTS.rglob("*.py")
        if path != Path(__file__) and re.search(r"@settings\([^)]*(deadline|suppress_health_check)=", path.read_text())
    ]
    assert own == [], "one profile for the suite: tests/conftest.py"


@pytest.mark.parametrize("profile", ["no deadline", "Hypothesis' own"])
def test_control_by_hypothesis_own_profile_a_slow_example_fails(profile: str) -> None:
    chosen = settings.default if profile == "no deadline" else settings(deadline=1, database=None)
    assert chosen is not None

    @settings(chosen, max_examples=3)
    @given(st.integers())
    def slow(_: int) -> None:
        until = time.perf_counter() + 0.01
        while time.perf_counter() < until:
            pass

    if profile == "no deadline":
        slow()
    else:
        with pytest.raises(DeadlineExceeded):
            slow()


@pytest.mark.slow
def test_a_skipped_test_fails_the_run_only_where_asked(tmp_path: Path) -> None:
    assert run_pytest(tmp_path, MOTO, "-k", "skipped").returncode == 0
    answer = run_pytest(tmp_path, MOTO, "-k", "skipped", "--fail-on-skip")
    assert answer.returncode == 1
    assert "a test was skipped" in answer.stdout


def test_without_versitygw_moto_is_used_but_not_in_ci(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    monkeypatch.setattr(conftest, "find_versitygw", lambda: None)
    every = Mock(getoption=lambda _: "all")
    monkeypatch.delenv("CI", raising=False)
    assert conftest.server_names(every) == ["moto"]
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.UsageError, match="go install"):
        conftest.server_names(every)
    assert conftest.server_names(Mock(getoption=lambda _: "moto")) == ["moto"]


def test_without_the_clouds_servers_they_are_left_out_but_not_in_ci(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    monkeypatch.setattr(conftest, "installed_cloud_servers", list)
    every = Mock(getoption=lambda _: "all")
    monkeypatch.delenv("CI", raising=False)
    assert conftest.cloud_names(every) == []
    monkeypatch.setenv("CI", "1")
    with pytest.raises(pytest.UsageError, match=r"azurite, fake-gcs-server.*setup\.sh --all"):
        conftest.cloud_names(every)
    assert conftest.cloud_names(Mock(getoption=lambda _: "moto")) == []


def test_each_server_is_held_to_the_contract_and_all_else_runs_on_a_real_one(pytestconfig: pytest.Config) -> None:
    servers_for = pytestconfig.pluginmanager.get_plugin(str(TESTS / "conftest.py")).servers_for
    both = ["moto", "versitygw"]
    assert servers_for(TESTS / "store" / "test_contract.py", both) == both
    assert servers_for(TESTS / "testing" / "test_s3_server.py", both) == both
    assert servers_for(TESTS / "results" / "test_sweep.py", both) == ["versitygw"]
    assert servers_for(TESTS / "results" / "test_sweep.py", ["moto"]) == ["moto"]


@pytest.mark.slow
@pytest.mark.parametrize("ci", ["", "1"])
def test_what_fails_is_not_run_again(tmp_path: Path, ci: str) -> None:
    answer = run_pytest(tmp_path, MOTO, "-k", "fails", CI=ci)
    assert answer.returncode == 1
    assert "2 failed, 2 deselected" in answer.stdout


def test_no_two_modules_of_the_tests_have_the_same_name() -> None:
    """pytest, and the tests themselves, import each by its bare name."""
    elsewhere = {"conftest.py", "dags"}
    paths = [path for path in TESTS.rglob("*.py") if elsewhere.isdisjoint(path.parts)]
    names = Counter(path.name for path in paths if not (path.parent / "__init__.py").exists())
    assert [name for name, times in names.items() if times > 1] == []


SESSIONS = {"spark", "cluster", "connect"}
"""The fixtures of `spark_fixtures`."""


def asks_for_a_session(source: str) -> bool:
    """Does a test or a fixture take one of them, which the file does not make itself?"""
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    named = {arg.arg for node in functions for arg in node.args.args if is_run_by_pytest(node)}
    return bool(named & SESSIONS - {node.name for node in functions})


def is_run_by_pytest(node: ast.FunctionDef) -> bool:
    is_fixture = any("pytest.fixture" in ast.unparse(decorator) for decorator in node.decorator_list)
    return is_fixture or node.name.startswith("test_")


@pytest.mark.slow
def test_whoever_asks_for_a_spark_of_the_session_is_run_by_the_one_worker_that_has_it(
    pytestconfig: pytest.Config,
) -> None:
    folder, *files = pytestconfig.pluginmanager.get_plugin(str(TESTS / "conftest.py")).SHARE_A_SPARK
    paths = {path.relative_to(TESTS.parent).as_posix(): path for path in TESTS.rglob("test_*.py")}
    asking = [name for name, path in paths.items() if asks_for_a_session(path.read_text(encoding="utf-8"))]
    assert sorted(name for name in asking if not name.startswith(folder)) == files


def test_a_vertex_that_takes_a_spark_asks_for_no_session() -> None:
    assert asks_for_a_session("def test_it(spark): pass")
    assert asks_for_a_session("@pytest.fixture\ndef rows(connect): pass")
    assert not asks_for_a_session("def raw(spark): pass")
    assert not asks_for_a_session("@pytest.fixture\ndef cluster(): pass\ndef test_it(cluster): pass")


def test_the_longest_units_are_begun_first_and_what_forks_often_before_all(pytestconfig: pytest.Config) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(TESTS / "conftest.py"))
    pure, real, forking = "tests/job/test_batches.py", "tests/tab/test_tab.py", "tests/testing/test_crash_kit.py"
    units = [pure, real, conftest.LONG[0], forking, conftest.ONE_SPARK]
    assert all((TESTS.parent / name).exists() for name in (*conftest.FORK_OFTEN, *conftest.LONG))
    assert not any(conftest.work_unit(name) == conftest.ONE_SPARK for name in conftest.LONG)
    by_rank = sorted(units, key=lambda unit: conftest.rank(unit, {real, conftest.LONG[0]}))
    assert by_rank == [forking, conftest.ONE_SPARK, conftest.LONG[0], real, pure]


def passed(done: subprocess.CompletedProcess[str]) -> set[str]:
    assert done.returncode == 0, done.stdout
    return set(re.findall(r"::(\w+) PASSED", done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "run"),
    [
        (["--suite", "fast"], FAST),
        (["--suite", "rest"], REST),
        ([], FAST | REST),
        (["--drill", "1"], {*FAST, *REST, "test_of_the_drill"}),
        (["-m", "control"], {"test_fault_1_control_without_it"}),
    ],
)
def test_the_options_select_the_expected_tests(arguments: list[str], run: set[str], tmp_path: Path) -> None:
    assert passed(run_pytest(tmp_path, MOTO, "-v", *arguments, source=OF_EACH_SUITE)) == run


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_test_for_which_no_time_is_left_is_listed_and_fails_nothing(processes: str, tmp_path: Path) -> None:
    fails = "def test_a(): assert False\ndef test_b(): assert False\n"

    late = run_pytest(tmp_path, MOTO, "-n", processes, "--until", "1", source=fails)

    assert late.returncode == 0, late.stdout
    *_, listed, _ = late.stdout.splitlines()
    assert listed == "NOT RUN test_it.py: 2 tests"
    # Control: in time, both fail.
    assert run_pytest(tmp_path, MOTO, "-n", processes, "--until", "99999999999", source=fails).returncode == 1
