"""The import direction, held by reading every module: the Spark driver has no Airflow, and decisions are pure."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest
from our_imports import imports_of, name_called

import airflow_recovery

ROOT = Path(airflow_recovery.__file__).parent
OURS = "airflow_recovery"

CORE = (
    "__init__", "errors", "checks", "model", "job", "topology", "failover", "journal", "shuffle", "source", "storage",
    "sinks", "execution", "runtime", "channel", "channel_io", "splits", "streaming",
)  # fmt: skip
AIRFLOW_SIDE = ("operators", "task", "sensors", "triggers", "hooks", "plugins", "notifications")
AIRFLOW = ("airflow", *AIRFLOW_SIDE)
CLI_IN_AIRFLOW = ("cli.definition", "cli.in_airflow")

# What each room may not know. Nothing of a run knows the command line, its own checker, or what is there for tests.
MAY_NOT_IMPORT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(CORE, (*AIRFLOW, "cli", "doctor", "testing", "verify", "view")),
    **dict.fromkeys(AIRFLOW_SIDE, ("cli", "testing", "verify")),
    # What can be looked at without Airflow; the command line and the operator look at the same.
    "doctor": (*AIRFLOW, "cli", "testing", "verify", "view"),
    # The checker must not believe what it checks.
    "verify": (*AIRFLOW, "cli", "testing", "view", *(each for each in CORE if each not in ("errors", "storage"))),
    # The command line and Airflow's pages tell of a run in the same words, with Airflow or without.
    "view": (*AIRFLOW, "cli", "testing", "verify"),
    # The commands work where no Airflow is installed; two modules put them into Airflow's own command line.
    **dict.fromkeys(("cli", "__main__"), (*AIRFLOW, *CLI_IN_AIRFLOW, "testing")),
    **dict.fromkeys(CLI_IN_AIRFLOW, ("testing",)),
    "testing": (*AIRFLOW, "cli"),
    # The crash kit lets the operators' own runner run.
    "testing.crash_kit.task_process": ("airflow", "cli"),
    # Read in every process of Airflow.
    "get_provider_info": ("airflow", OURS),
}

# What a pure module may import: parts of the standard library that neither see nor touch the world outside.
PURE_STDLIB = {
    "__future__", "abc", "bisect", "collections", "dataclasses", "difflib", "enum", "functools", "graphlib", "hashlib",
    "array", "heapq", "itertools", "json", "math", "operator", "re", "types", "typing", "zlib",
    "importlib",  # of our own code alone: `model.mode` imports a mode's package when a region needs it
}  # fmt: skip
# Failover judges what the journal says, so it knows the records and the fold over them; these are held pure as well.
PURE = (
    "errors", "checks", "model", "topology", "failover", "channel",
    "journal.run_state", "journal.codec", "storage.log",
    "source.split", "source.matching", "source.split_log", "source.assignment",
)  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "now", "utcnow", "today"}


def modules_of(*names: str) -> list[Path]:
    found: list[Path] = []
    for name in names:
        path = ROOT.joinpath(*name.split("."))
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    return found


def is_inside(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def room_of(path: Path) -> str:
    """The key in `MAY_NOT_IMPORT` of a module: its own name, else its room's."""
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name if name in MAY_NOT_IMPORT else name.partition(".")[0]


def forbidden_imports(source: str, package: str, room: str) -> list[str]:
    outside = ("airflow", OURS)
    forbidden = [each if each in outside else f"{OURS}.{each}" for each in MAY_NOT_IMPORT[room]]
    return [each for each in imports_of(source, package) if is_inside(each, *forbidden)]


def impurities(source: str, package: str) -> list[str]:
    allowed = tuple(f"{OURS}.{each}" for each in PURE)
    found = []
    for module in imports_of(source, package):
        if is_inside(module, OURS):
            # `from airflow_recovery.journal import run_state` yields the package and the module: the latter decides.
            if not is_inside(module, *allowed) and not any(is_inside(each, module) for each in allowed):
                found.append(module)
        elif module.partition(".")[0] not in PURE_STDLIB:
            found.append(module)
    calls = (name_called(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return found + [f"{called}()" for called in calls if called in IMPURE_CALLS]


def package_of(path: Path) -> str:
    return ".".join((OURS, *path.parent.relative_to(ROOT).parts))


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_imports_what_its_room_may_not_know(path: Path) -> None:
    assert room_of(path) in MAY_NOT_IMPORT, "a new room: say in MAY_NOT_IMPORT what it may not know"
    assert forbidden_imports(path.read_text(), package_of(path), room_of(path)) == []


@pytest.mark.parametrize("path", modules_of(*PURE), ids=lambda path: str(path.relative_to(ROOT)))
def test_decisions_touch_nothing_outside(path: Path) -> None:
    assert impurities(path.read_text(), package_of(path)) == []


@pytest.mark.parametrize(
    "code",
    [
        "import airflow",
        "def f():\n    from airflow.sdk import DAG",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import airflow.models as m",
        "from airflow_recovery.operators import SparkJobTaskGroup",
        "from airflow_recovery import hooks",
        "from ..hooks.doors import Door",
        "from .. import triggers",
        "import importlib\nimportlib.import_module('airflow.sdk')",
    ],
)
def test_an_import_of_airflow_would_be_seen(code: str) -> None:
    assert forbidden_imports(code, f"{OURS}.job", "job")


@pytest.mark.parametrize(
    ("room", "code"),
    [
        ("cli", "def f():\n    from airflow_recovery.hooks.stores import open_stores"),
        ("cli", "from airflow_recovery.console.in_airflow import open_in_airflow"),
        ("cli.in_airflow", "from airflow_recovery.testing import MotoServer"),
        ("execution", "from airflow_recovery.console.deployment import Deployment"),
        ("execution", "from airflow_recovery.story.run_view import RunView"),
        ("view", "from airflow_recovery.console.user import user_name"),
        ("view", "from airflow_recovery.api_server.compare_and_clear import observe"),
        ("operators", "from ..testing import FaultyStore"),
        ("testing", "import airflow"),
        ("verify", "from airflow_recovery.journal.codec import outcome_from_json"),
        ("get_provider_info", "from airflow_recovery.errors import RecoveryError"),
    ],
)
def test_an_import_from_the_wrong_room_would_be_seen(room: str, code: str) -> None:
    assert forbidden_imports(code, f"{OURS}.{room.partition('.')[0]}", room)


@pytest.mark.parametrize(
    "code",
    [
        *(f"import {name}" for name in ("os", "time", "random", "uuid", "boto3", "pathlib", "socket", "threading")),
        "from datetime import datetime",
        "from airflow_recovery.store import object_store",
        "from airflow_recovery.journal import journal",
        "from ..storage.s3 import S3Store",
        "def f(clock):\n    return clock.now()",
        "def f(path):\n    return open(path)",
    ],
)
def test_an_impure_module_would_be_seen(code: str) -> None:
    assert impurities(code, f"{OURS}.topology")


@pytest.mark.parametrize("code", ["from airflow_recovery.journal import run_state", "from ..errors import InputLost"])
def test_pure_modules_may_know_each_other(code: str) -> None:
    assert impurities(code, f"{OURS}.failover") == []


@pytest.mark.parametrize("room", ["", ".job", ".sinks", ".topology", ".failover", ".channel", ".errors"])
def test_what_a_dag_file_imports_is_light(room: str) -> None:
    module = f"{OURS}{room}"
    script = f"import sys, {module}; print(*sorted(name.partition('.')[0] for name in sys.modules))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"airflow", "boto3", "botocore", "jinja2", "numpy", "pandas", "pendulum", "pyarrow", "pyspark"}
    assert heavy.isdisjoint(answer.stdout.split())
