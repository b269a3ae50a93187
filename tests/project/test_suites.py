"""Which suite runs a test, and what happens to tests for which no time is left."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SAMPLE = """
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


def run_pytest(folder: Path, *arguments: str, source: str = SAMPLE) -> subprocess.CompletedProcess[str]:
    """Run our conftest over ``source``."""
    shutil.copy(TESTS / "conftest.py", folder / "conftest.py")
    (folder / "test_it.py").write_text(source)
    marks = "".join(f"    {mark}: x\n" for mark in ("s3", "spark", "smoke", "slow", "drill", "control"))
    (folder / "pytest.ini").write_text(f"[pytest]\nmarkers =\n{marks}")
    options = ["-p", "no:cacheprovider", "--s3-server=moto", "-v"]
    path = os.pathsep.join([str(TESTS.parent), str(TESTS / "support")])
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments, str(folder / "test_it.py")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        cwd=folder,
        check=False,
    )


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
    assert passed(run_pytest(tmp_path, *arguments)) == run


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_test_for_which_no_time_is_left_is_listed_and_fails_nothing(processes: str, tmp_path: Path) -> None:
    fails = "def test_a(): assert False\ndef test_b(): assert False\n"

    late = run_pytest(tmp_path, "-n", processes, "--until", "1", source=fails)

    assert late.returncode == 0, late.stdout
    *_, listed, _ = late.stdout.splitlines()
    assert listed == "NOT RUN test_it.py: 2 tests"
    # Control: in time, both fail.
    assert run_pytest(tmp_path, "-n", processes, "--until", "99999999999", source=fails).returncode == 1
