"""Who imports whom, held by reading every module against the one table of rooms (`airflow_recovery.rooms`).

Also: no two files import each other in a circle, decisions are pure, and what a DAG file imports is light.
"""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest
from our_imports import imports_of, name_called

import airflow_recovery
from airflow_recovery import airflow_compat
from airflow_recovery.rooms import ANNEX_ROOMS, ELSEWHERE, IN_AIRFLOW, ROOMS, reachable

ROOT = Path(airflow_recovery.__file__).parent
OURS = "airflow_recovery"

# What Airflow promises to keep; of its providers, their own modules.
PUBLIC_OF_AIRFLOW = {"airflow.sdk", "airflow.sdk.exceptions", "airflow.triggers.base", "airflow.plugins_manager"}
# What a pure module may import: parts of the standard library that neither see nor touch the world outside.
PURE_STDLIB = {
    "__future__", "abc", "bisect", "collections", "copy", "dataclasses", "difflib", "enum", "functools", "graphlib",
    "array", "hashlib", "heapq", "ipaddress", "itertools", "json", "math", "operator", "re", "types", "typing", "zlib",
    "importlib",  # of our own code alone: `model.mode` imports a mode's package when a region needs it
}  # fmt: skip
# Besides the rooms that are pure: what they know of others, and the pure part of the modes.
PURE = (
    *(name for name, room in ROOMS.items() if room.is_pure),
    "journal.run_state", "journal.codec", "store.log", "store.allowed",
    "splits.log", "splits.mode",
    "streaming.mode", "streaming.channel_graph", "streaming.preview",
    "streaming.restart", "streaming.restart_plan", "streaming.planning", "splits.planning", "streaming.appending",
    "streaming.channel_records", "streaming.channel_state", "streaming.channel_folding", "streaming.channel_codec",
    "streaming.channel_retention", "streaming.producing", "streaming.consuming", "streaming.ledger",
    "streaming.ranges", "streaming.refusals",
)  # fmt: skip
IMPURE_CALLS = {"open", "print", "input", "exec", "eval", "__import__", "now", "utcnow", "today"}


def name_of(path: Path) -> str:
    """``planning.plan``; of a room's own ``__init__.py`` the room."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted(ROOT.rglob("*.py"))}


def offenders(found: Mapping[str, Collection[str]]) -> dict[str, Collection[str]]:
    """The modules that break a rule, each with what breaks it."""
    return {name: wrong for name, wrong in found.items() if wrong}


def is_inside(module: str, *packages: str) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def package_of(path: Path) -> str:
    return ".".join((OURS, *path.parent.relative_to(ROOT).parts))


def our_imports(source: str, package: str) -> Iterator[str]:
    """The modules of ours that it imports, without the package's name; ``__init__`` of the package itself."""
    for module in imports_of(source, package):
        rest = module.removeprefix(OURS + ".")
        if rest != module and rest.partition(".")[0] in ROOMS:
            yield rest
        elif rest != module:
            yield "__init__"


def forbidden_imports(source: str, package: str, name: str) -> list[str]:
    """What the module ``name`` imports that the table does not allow."""
    room, _, module = name.partition(".")
    runs_in_airflow = module in ROOMS[room].in_airflow
    knows_airflow = ROOMS[room].knows_airflow or runs_in_airflow
    allowed = {room, *ROOMS[room].may_import, ELSEWHERE.get(name, room)}
    allowed |= {"airflow_compat"} if knows_airflow else set()
    allowed |= {*IN_AIRFLOW} if runs_in_airflow else set()
    wrong = [module for module in our_imports(source, package) if module.partition(".")[0] not in allowed]
    return wrong + [
        module for module in imports_of(source, package) if is_inside(module, "airflow") and not knows_airflow
    ]


def impurities(source: str, package: str) -> list[str]:
    allowed = tuple(f"{OURS}.{name}" for name in PURE)
    wrong = []
    for module in imports_of(source, package):
        if is_inside(module, OURS):
            # `from airflow_recovery.journal import run_state` yields the package and the module: the latter decides.
            if not is_inside(module, *allowed) and not any(is_inside(name, module) for name in allowed):
                wrong.append(module)
        elif module.partition(".")[0] not in PURE_STDLIB:
            wrong.append(module)
    calls = (name_called(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return wrong + [f"{called}()" for called in calls if called in IMPURE_CALLS]


def files_imported(name: str) -> set[str]:
    """The modules of ours that ``name`` imports anywhere, each as the file that is read."""
    path = MODULES[name]
    found = set()
    for module in imports_of(path.read_text(), package_of(path)):
        inside = module.removeprefix(OURS + ".")
        if inside in MODULES and not any(module.startswith(inside + ".") for module in MODULES):
            found.add(inside)
    return found - {name}


def circles(imports: dict[str, set[str]]) -> set[tuple[str, ...]]:
    """Groups of files each of which leads to each other one, by name."""
    reached: dict[str, set[str]] = {}
    for name in imports:
        seen: set[str] = set()
        wanted = list(imports[name])
        while wanted:
            module = wanted.pop()
            if module not in seen:
                seen.add(module)
                wanted += imports[module]
        reached[name] = seen
    groups = {
        tuple(sorted({name} | {each for each in seen if name in reached[each]}))
        for name, seen in reached.items()
        if name in seen
    }
    return groups


def test_the_table_has_no_two_rooms_that_import_each_other() -> None:
    arrows = {name: set(room.may_import) for name, room in ROOMS.items()}
    assert list(graphlib.TopologicalSorter(arrows).static_order())
    assert all(set(room.may_import) <= ROOMS.keys() for room in ROOMS.values())


def test_every_room_is_in_the_table_and_there() -> None:
    assert {name.partition(".")[0] for name in MODULES} == ROOMS.keys()


def test_no_module_imports_what_its_room_may_not_know() -> None:
    found = {name: forbidden_imports(path.read_text(), package_of(path), name) for name, path in MODULES.items()}
    assert offenders(found) == {}


def airflows_own(source: str) -> set[str]:
    """The modules beyond Airflow's public interface that are imported."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
        elif isinstance(node, ast.Import):
            modules.update(alias.name for alias in node.names)
    airflow = {module for module in modules if is_inside(module, "airflow")}
    return {module for module in airflow - PUBLIC_OF_AIRFLOW if not is_inside(module, "airflow.providers")}


def test_what_is_not_public_of_airflow_is_imported_in_one_file() -> None:
    others = [name for name in MODULES if not is_inside(name, "testing", "airflow_compat")]
    assert offenders({name: airflows_own(MODULES[name].read_text()) for name in others}) == {}


def test_a_name_of_airflow_that_is_not_public_would_be_seen() -> None:
    assert airflows_own("def f():\n    from airflow.models.dagrun import DagRun") == {"airflow.models.dagrun"}


def test_every_name_of_the_one_file_is_there() -> None:
    """With the Airflow that is installed; and a type checker sees the same names as are looked up."""
    source = ast.parse(MODULES["airflow_compat"].read_text())
    typed = {
        alias.name: node.module
        for node in ast.walk(source)
        if isinstance(node, ast.ImportFrom) and is_inside(node.module or "", "airflow")
        for alias in node.names
        if alias.asname
    }
    assert typed == vars(airflow_compat)["_MODULE_OF"]


def test_no_two_files_import_each_other_in_a_circle() -> None:
    assert circles({name: files_imported(name) for name in MODULES}) == set()


def test_a_circle_of_files_would_be_seen() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}) == {("a", "b", "c")}


def test_benchmarks_use_scripts_and_not_the_other_way_round() -> None:
    files = sorted((Path(__file__).parents[1] / "scripts").rglob("*.py"))
    assert [
        path.name
        for path in files
        if any(is_inside(each, "benchmarks") for each in imports_of(path.read_text(), "scripts"))
    ] == []
    assert any(is_inside(each, "benchmarks") for each in imports_of("from benchmarks.plot import svg", "scripts"))


ONLY_IN_A_CHECKOUT = ("benchmarks", "channel_simulation", "reference", "scripts", "simulation", "tests")


def of_a_checkout(source: str, package: str) -> list[str]:
    """What it imports that the wheel does not have."""
    return [module for module in imports_of(source, package) if is_inside(module, *ONLY_IN_A_CHECKOUT)]


def test_the_package_imports_nothing_that_only_a_checkout_has() -> None:
    found = {name: of_a_checkout(path.read_text(), package_of(path)) for name, path in MODULES.items()}
    assert offenders(found) == {}


def test_control_an_import_of_the_tests_would_be_seen() -> None:
    assert of_a_checkout("def f():\n    from simulation.dag_job import DagJob", f"{OURS}.testing") != []
    assert of_a_checkout("from airflow_recovery.testing.simulation import jobs", f"{OURS}.testing") == []


def test_the_core_does_not_know_the_annexes() -> None:
    core = reachable("attempt", "driver", "story", "planning", "__init__")
    assert core.isdisjoint(ANNEX_ROOMS)
    assert "testing" not in core


def test_decisions_touch_nothing_outside() -> None:
    pure = [name for name in MODULES if is_inside(name, *PURE)]
    found = {name: impurities(MODULES[name].read_text(), package_of(MODULES[name])) for name in pure}
    assert offenders(found) == {}


@pytest.mark.parametrize(
    "code",
    [
        "import airflow",
        "def f():\n    from airflow.sdk import DAG",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import airflow.models as m",
        "from airflow_recovery.operators import SparkJobTaskGroup",
        "from airflow_recovery import hooks",
        "from ..hooks.clear_clients import RestClient",
        "from .. import triggers",
        "import importlib\nimportlib.import_module('airflow.sdk')",
    ],
)
def test_an_import_of_airflow_would_be_seen(code: str) -> None:
    assert forbidden_imports(code, f"{OURS}.job", "job.declaration")


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("console.plan", "def f():\n    from airflow_recovery.testing.s3_server import MotoServer"),
        ("planning.plan", "from airflow_recovery.streaming.options import Streaming"),
        ("console.in_airflow", "from airflow_recovery.testing import MotoServer"),
        ("attempt.run", "from airflow_recovery.console.deployment import Deployment"),
        ("attempt.run", "from airflow_recovery.story.run_view import RunView"),
        ("story.run_view", "from airflow_recovery.console.user import user_name"),
        ("story.run_view", "from airflow_recovery.api_server.compare_and_clear import observe"),
        ("operators.region", "from ..testing import FaultyStore"),
        ("testing.s3_server", "import airflow"),
        ("verify.checker", "from airflow_recovery.journal.codec import outcome_from_json"),
        ("get_provider_info", "from airflow_recovery.errors import RecoveryError"),
    ],
)
def test_an_import_from_the_wrong_room_would_be_seen(name: str, code: str) -> None:
    assert forbidden_imports(code, f"{OURS}.{name.partition('.')[0]}", name)


@pytest.mark.parametrize(
    "code",
    [
        *(f"import {name}" for name in ("os", "time", "random", "uuid", "boto3", "pathlib", "socket", "threading")),
        "from datetime import datetime",
        "from airflow_recovery.store import object_store",
        "from airflow_recovery.journal import journal",
        "from ..store.s3 import S3Store",
        "def f(clock):\n    return clock.now()",
        "def f(path):\n    return open(path)",
    ],
)
def test_an_impure_module_would_be_seen(code: str) -> None:
    assert impurities(code, f"{OURS}.planning")


@pytest.mark.parametrize("code", ["from airflow_recovery.journal import run_state", "from ..errors import InputLost"])
def test_pure_modules_may_know_each_other(code: str) -> None:
    assert impurities(code, f"{OURS}.planning") == []


@pytest.mark.parametrize("room", ["", ".job", ".streaming", ".sinks", ".model", ".planning", ".errors"])
def test_what_a_dag_file_imports_is_light(room: str) -> None:
    module = f"{OURS}{room}"
    script = f"import sys, {module}; print(*sorted(name.partition('.')[0] for name in sys.modules))"
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    heavy = {"airflow", "boto3", "botocore", "jinja2", "numpy", "pandas", "pendulum", "pyarrow", "pyspark"}
    assert heavy.isdisjoint(answer.stdout.split())
