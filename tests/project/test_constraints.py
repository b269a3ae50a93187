"""The pins, the Makefile and CI's entry."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10
    import tomli as tomllib  # type: ignore[import-not-found,no-redef]

REPOSITORY = Path(__file__).resolve().parents[2]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")


def constraints() -> list[Requirement]:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    return [Requirement(line) for line in lines]


def pins(name: str, python: str) -> list[str]:
    """The versions that the constraints give a package on one Python (on Linux)."""
    environment = {
        "python_version": python,
        "python_full_version": f"{python}.1",
        "sys_platform": "linux",
        "platform_system": "Linux",
        "platform_machine": "x86_64",
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    return [
        str(constraint.specifier)
        for constraint in constraints()
        if canonicalize_name(constraint.name) == canonicalize_name(name)
        and (constraint.marker is None or constraint.marker.evaluate(environment))
    ]


def project() -> dict[str, object]:
    return tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


def direct_dependencies() -> list[Requirement]:
    found = project()
    extras = found["optional-dependencies"]
    assert isinstance(extras, dict)
    return [Requirement(each) for group in (found["dependencies"], *extras.values()) for each in group]


def test_constraints_are_pins_without_urls_or_options() -> None:
    text = (REPOSITORY / "constraints.txt").read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-|@)", text, re.MULTILINE)
    assert [
        str(constraint) for constraint in constraints() if not re.fullmatch(r"==[^*,]+", str(constraint.specifier))
    ] == []


@pytest.mark.parametrize("python", PYTHONS)
def test_every_direct_dependency_has_one_pin_that_it_allows(python: str) -> None:
    for dependency in direct_dependencies():
        found = pins(dependency.name, python)
        assert len(found) == 1, f"{dependency.name} on {python}: {found}"
        assert dependency.specifier.contains(Version(found[0].removeprefix("=="))), f"{dependency} on {python}: {found}"


@pytest.mark.parametrize("python", PYTHONS)
def test_both_pysparks_are_of_one_version_since_they_share_their_files(python: str) -> None:
    assert pins("pyspark", python) == pins("pyspark-client", python) == ["==4.2.0"]


def test_the_makefile_has_the_targets_that_the_readme_names() -> None:
    listed = subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    targets = re.findall(r"^make ([\w-]+)", listed, re.MULTILINE)
    assert targets == [
        "help", "setup", "demo", "demo-approximate", "lint", "test", "test-all", "drill", "matrix", "soak",
        "faults", "docs", "bench", "vendor", "clean"
    ]  # fmt: skip


def test_make_demo_passes_keep_on_and_off() -> None:
    def recipe(*arguments: str) -> str:
        command = ["make", "--dry-run", "demo", *arguments]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout

    assert "--keep" in recipe("KEEP=1")
    assert "--keep" not in recipe()
    assert "--keep" not in recipe("KEEP=0")


def test_ci_runs_make_test_and_a_skipped_test_is_a_failure() -> None:
    script = REPOSITORY / ".ci" / "run"
    assert os.access(script, os.X_OK)
    text = script.read_text()
    assert "set -euo pipefail" in text
    calls = re.findall(r'make --no-print-directory (\S+) PYTEST_ARGS="--fail-on-skip (.*)\$\{PYTEST_ARGS:-\}"', text)
    assert calls == [("test", ""), ("test-rest", "--until $UNTIL ")]


def test_set_up_is_executable_and_refuses_unknown_arguments_before_it_does_anything() -> None:
    script = REPOSITORY / "scripts" / "setup.sh"
    done = subprocess.run([script, "--nonsense"], cwd="/", capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "setup: error: unknown argument --nonsense; expected nothing, --s3a, --dev, --test, --all or --drill"
    ]


def test_set_up_names_a_python_that_does_not_fit(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "scripts").mkdir(parents=True)
    for name in ("pyproject.toml", "constraints.txt", "scripts/setup.sh"):
        (project / name).write_bytes((REPOSITORY / name).read_bytes())
    environment = {**os.environ, "PYTHON": "/bin/false"}
    command = ["bash", "scripts/setup.sh"]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "PYTHON=/bin/false does not run or is not Python 3.10 to 3.13" in line


def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    names = listed.stdout.splitlines() if listed.returncode == 0 else ["pyproject.toml", "constraints.txt", "Makefile"]
    option, home = "index" + "-url", "/ro" + "ot/"
    wrong = [
        name
        for name in names
        if (path := REPOSITORY / name).is_file()
        and path.suffix in (".py", ".toml", ".txt", ".yaml", ".sh", ".md", "")
        and (option in (text := path.read_text(errors="replace")) or home in text)
    ]
    assert wrong == []
