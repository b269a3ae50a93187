"""A base project is written to disk and changed in one place; the claim is whether the vertex's fingerprint moves."""

from __future__ import annotations

import ast
import base64
import hashlib
import importlib
import json
import os
import subprocess
import sys
import textwrap
import time
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, make_dataclass
from datetime import date
from enum import Enum
from functools import partial, wraps
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from expected_errors import fails_with

import airflow_recovery
from airflow_recovery import BLOCKING, Job, files, job
from airflow_recovery.job import package_files, vertex_fingerprint
from airflow_recovery.job.bound_values import BoundValues
from airflow_recovery.job.fingerprint import _FunctionCode, function_code, value_digest, vertex_code
from airflow_recovery.model.groups import region_fingerprint

JOB = '''
"""The jobs of the shop."""
import math
from functools import wraps

from airflow_recovery import job
from . import tables
from .helpers import twice as double, Scale
from .udfs import traced
import shop.rates
import shop.rates as r
from common.money import cents

flights = job("flights", packages=["common"])
LIMIT = 10
LIMITS = {"a": 1}
LIMITS["b"] = 2
UNUSED = 1

def inner(x):
    return x + LIMIT

def helper(x):
    return inner(x)

def unused(x):
    return x

@flights.source
def raw(spark):
    return spark.range(1)

@flights.vertex(params={"day": "x", "n": 1})
@traced
def cleaned(raw, day, n):
    """What it does."""
    from .late import late as on_time
    value = helper(n) + double(n) + shop.rates.vat(n) + r.fee + cents(n) + on_time(n)
    return raw.filter(value + Scale(3).of(LIMITS["a"]) + math.pi), tables

@flights.sink
def delays(cleaned):
    return cleaned
'''

FILES = {
    "shop/__init__.py": "",
    "shop/flights.py": JOB,
    "shop/tables.py": "from .deep import depth\nNAME = 'x'\ndef table():\n    return depth\n",
    "shop/deep.py": "depth = 1\nother = 1\n",
    "shop/helpers.py": (
        "FACTOR = 2\nOTHER = 3\n"
        "def twice(x):\n    return x * FACTOR\n"
        "def other(x):\n    return x * OTHER\n"
        "class Base:\n    step = 1\n"
        "class Scale(Base):\n    def __init__(self, by):\n        self.by = by\n    def of(self, x):\n"
        "        return x * self.by * self.step\n"
    ),
    "shop/udfs.py": (
        "import functools\n"
        "def mark(f):\n    return f\n"
        "def traced(f):\n    @functools.wraps(f)\n    def wrapper(*a, **k):\n        return mark(f)(*a, **k)\n"
        "    return wrapper\n"
    ),
    "shop/rates.py": "fee = 1\nrate = 0.2\ndef vat(x):\n    return x * rate\ndef nobody():\n    return 1\n",
    "shop/late.py": "def late(x):\n    return x\ndef early(x):\n    return x\n",
    "common/__init__.py": "",
    "common/money.py": (
        "from elsewhere.coins import coin\ndef cents(x):\n    return coin(x) * 100\ndef euros(x):\n    return x\n"
    ),
    "elsewhere/__init__.py": "",
    "elsewhere/coins.py": "def coin(x):\n    return x\n",
}
PACKAGES = ("shop", "common", "elsewhere")

Project = Callable[[Mapping[str, str]], ModuleType]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    """Writes a project to a folder of its own and imports its ``shop.flights`` afresh."""
    count = iter(range(1_000))

    def forget() -> None:
        for name in [module for module in sys.modules if module.partition(".")[0] in PACKAGES]:
            del sys.modules[name]

    def write(contents: Mapping[str, str]) -> ModuleType:
        root = tmp_path / str(next(count))
        for name, text in contents.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        forget()
        monkeypatch.syspath_prepend(str(root))
        return importlib.import_module("shop.flights")

    yield write
    forget()


def of_cleaned(module: ModuleType, params: dict[str, Any] | None = None) -> str:
    return vertex_fingerprint(module.flights, "cleaned", params or {"day": "x", "n": 1})


def changed(file: str, old: str, new: str) -> dict[str, str]:
    assert not old or FILES[file].count(old) == 1, f"{old!r} occurs {FILES[file].count(old)} times in {file}"
    return {**FILES, file: FILES[file].replace(old, new) if old else new}


SAME = {
    "comment": ("shop/flights.py", "LIMIT = 10", "LIMIT = 10  # at most"),
    "docstring of the vertex": ("shop/flights.py", '"""What it does."""', '"""Another text."""'),
    "docstring of the module": ("shop/flights.py", "The jobs of the shop.", "Jobs."),
    "docstring of a helper": ("shop/helpers.py", "    return x * FACTOR", "    'Twice.'\n    return x * FACTOR"),
    "layout": ("shop/flights.py", "    return x + LIMIT", "\n    return (\n        x\n        + LIMIT)"),
    "quotes": ("shop/tables.py", "'x'", '"x"'),
    "position in the file": ("shop/flights.py", "LIMIT = 10", "\n\n\n\nLIMIT = 10"),
    "another function": ("shop/flights.py", "def unused(x):\n    return x", "def unused(x):\n    return x + 1"),
    "another constant": ("shop/flights.py", "UNUSED = 1", "UNUSED = 2"),
    "an upstream vertex with the name of a parameter": ("shop/flights.py", "spark.range(1)", "spark.range(2)"),
    "a downstream vertex": ("shop/flights.py", "    return cleaned\n", "    return cleaned.limit(1)\n"),
    "another function of a helper module": ("shop/helpers.py", "x * OTHER", "x + OTHER"),
    "another function of a module used by attribute": ("shop/rates.py", "return 1", "return 2"),
    "another function of a declared package": ("common/money.py", "return x\n", "return x + 1\n"),
    "another function beside a late import": ("shop/late.py", "early(x):\n    return x", "early(x):\n    return -x"),
    "a package that is not the user's": ("elsewhere/coins.py", "return x", "return x + 1"),
    "what a whole module imports one name of": ("shop/deep.py", "other = 1", "other = 2"),
    "Spark settings": ("shop/flights.py", '"n": 1})', '"n": 1}, spark_conf={"spark.executor.memory": "1g"})'),
}

DIFFERENT = {
    "its own code": ("shop/flights.py", "helper(n) + double(n)", "helper(n) - double(n)"),
    "a helper": ("shop/flights.py", "return inner(x)", "return -inner(x)"),
    "a helper of a helper": ("shop/flights.py", "return x + LIMIT", "return x - LIMIT"),
    "a constant of a helper": ("shop/flights.py", "LIMIT = 10", "LIMIT = 11"),
    "an item of a constant": ("shop/flights.py", 'LIMITS["b"] = 2', 'LIMITS["b"] = 3'),
    "a helper in another module, under an alias": ("shop/helpers.py", "x * FACTOR", "x + FACTOR"),
    "a constant in another module": ("shop/helpers.py", "FACTOR = 2", "FACTOR = 3"),
    "a method": ("shop/helpers.py", "x * self.by", "x + self.by"),
    "a base class": ("shop/helpers.py", "step = 1", "step = 2"),
    "a decorator": ("shop/udfs.py", "return mark(f)(*a, **k)", "return mark(f)(*a)"),
    "a helper of a decorator": ("shop/udfs.py", "def mark(f):\n    return f", "def mark(f):\n    return print"),
    "a decorator taken away": ("shop/flights.py", "@traced\n", ""),
    "a function by its full module name": ("shop/rates.py", "return x * rate", "return x + rate"),
    "a constant by a module alias": ("shop/rates.py", "fee = 1", "fee = 2"),
    "a function imported late": ("shop/late.py", "late(x):\n    return x\ndef", "late(x):\n    return -x\ndef"),
    "a module used as a value": ("shop/tables.py", "'x'", "'y'"),
    "what a module used as a value imports": ("shop/deep.py", "depth = 1", "depth = 2"),
    "a declared package": ("common/money.py", "* 100", "* 1000"),
    "the name imported from a package that is not the user's": (
        "common/money.py",
        "coins import coin",
        "coins import x as coin",
    ),
    "result type": ("shop/flights.py", '"n": 1})', '"n": 1}, result="BLOCKING")'),
    "declared version": ("shop/flights.py", '"n": 1})', '"n": 1}, version="2")'),
    "version of the job": ("shop/flights.py", 'packages=["common"]', 'packages=["common"], version="2"'),
    "kind": (
        "shop/flights.py",
        '@flights.vertex(params={"day": "x", "n": 1})',
        '@flights.sink(params={"day": "x", "n": 1})',
    ),
}


SAME |= {
    "an import of the standard library that nothing uses": (
        "shop/flights.py",
        "import math",
        "import math\nimport csv",
    ),
    "a class that nothing uses": ("shop/helpers.py", "OTHER = 3", "OTHER = 3\nclass New:\n    size = 3"),
    "an import for a type checker": (
        "shop/flights.py",
        "import math",
        "import math\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .late import early",
    ),
    "a job's other declarations": ("shop/flights.py", "LIMIT = 10", "LIMIT = 10\nflights.co_locate('raw', 'cleaned')"),
}
DIFFERENT |= {
    "a branch at the top of its module": ("shop/flights.py", "LIMIT = 10", "LIMIT = 10\nif len('x'):\n    LIMIT = 11"),
    "an effect of an imported module": ("shop/rates.py", "fee = 1", "fee = 1\nprint()"),
    "an effect of a package": ("shop/__init__.py", "", "print()"),
    "a name that shadows another": ("shop/flights.py", "UNUSED = 1", "UNUSED = 1\nhelper = abs"),
}


@pytest.mark.parametrize("case", SAME)
def test_the_fingerprint_stays_for(case: str, project: Project) -> None:
    assert of_cleaned(project(changed(*SAME[case]))) == of_cleaned(project(FILES))


@pytest.mark.parametrize("case", DIFFERENT)
def test_the_fingerprint_moves_with(case: str, project: Project) -> None:
    change = changed(*DIFFERENT[case])
    # Somebody else's package is only named; the name that the change imports has to be there.
    change["elsewhere/coins.py"] += "x = coin\n"
    assert of_cleaned(project(change)) != of_cleaned(project(FILES))


def test_parameters_count_by_value_and_not_by_order(project: Project) -> None:
    module = project(FILES)
    base = of_cleaned(module, {"day": "2013-01-01", "n": 1})
    assert base == of_cleaned(module, {"n": 1, "day": "2013-01-01"})
    assert base != of_cleaned(module, {"day": "2013-01-02", "n": 1})


def test_the_module_may_have_another_name(project: Project) -> None:
    # Airflow imports a DAG file under a name made of its path; the driver imports it by its own.
    module = project({**FILES, "shop/again.py": FILES["shop/flights.py"]})
    again = importlib.import_module("shop.again")
    assert of_cleaned(again) == of_cleaned(module)


def test_a_compiled_module_counts_by_its_content_and_drops_nothing(project: Project) -> None:
    base = changed("shop/flights.py", "import shop.rates\n", "import shop.rates\nfrom . import fast\n")
    base["shop/flights.py"] = base["shop/flights.py"].replace("import shop.rates as r", "import shop.rates as r\nfast")
    base["shop/fast.py"] = "speed = 1\n"

    def of(files: Mapping[str, str], content: bytes) -> str:
        module = project(files)
        source = Path(module.__file__ or "").with_name("fast.py")
        source.unlink()
        library = source.with_suffix(EXTENSION_SUFFIXES[0])
        library.write_bytes(content)
        sys.modules["shop.fast"].__spec__.origin = str(library)
        return of_cleaned(module)

    before = of(base, b"1")
    assert before == of(base, b"1") != of(base, b"2")
    assert before != of({**base, "shop/rates.py": FILES["shop/rates.py"].replace("fee = 1", "fee = 2")}, b"1")


def test_a_compiled_module_has_the_hash_that_its_wheel_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package_files, "_RECORDED_FROM", 1)
    library, record = tmp_path / "shop" / "fast.so", tmp_path / "shop-1.dist-info" / "RECORD"
    library.parent.mkdir()
    library.write_bytes(b"code")
    content = hashlib.sha256(b"code").digest()
    other = hashlib.sha256(b"other").digest()
    record.parent.mkdir()
    record.write_text(f"shop/fast.so,sha256={base64.urlsafe_b64encode(other).decode().rstrip('=')},4\n")
    os.utime(library, ns=(1, 1))
    assert package_files.file_digest(str(library)) == other.hex()
    library.write_bytes(b"code!")  # edited since it was installed
    assert package_files.file_digest(str(library)) == hashlib.sha256(b"code!").hexdigest() != content.hex()


def test_a_generated_version_counts_only_if_code_uses_it(project: Project) -> None:
    def of(version: str, use: str) -> str:
        files = changed("shop/flights.py", "LIMIT = 10", f"from ._version import version as release\nLIMIT = {use}")
        files["shop/_version.py"] = f"# file generated by setuptools-scm\n__version__ = version = {version!r}\n"
        return of_cleaned(project(files))

    assert of("1", "10") == of("2", "10")
    assert of("1", "len(release)") != of("22", "len(release)")


def test_changes_in_what_is_ignored_do_not_count(project: Project) -> None:
    def of(rates: str, options: str) -> str:
        files = changed("shop/rates.py", "fee = 1", f"fee = {rates}")
        files["shop/flights.py"] = JOB.replace('"n": 1})', f'"n": 1}}, {options})')
        return of_cleaned(project(files))

    assert of("1", "ignore_changes_in=['shop.rates']") == of("2", "ignore_changes_in=['shop.rates']")
    assert of("1", "ignore_changes_in=['shop.rat']") != of("2", "ignore_changes_in=['shop.rat']")


def test_what_is_ignored_is_named_by_texts(project: Project) -> None:
    for ignored in ("shop.rates", [1], [""]):
        with fails_with("ignored-changes-unfit"):
            job("flights", ignore_changes_in=ignored)  # type: ignore[arg-type]
        with fails_with("ignored-changes-unfit"):
            job("flights").source(name="a", ignore_changes_in=ignored)(lambda spark: spark)  # type: ignore[arg-type]


def test_a_star_import_counts_as_a_whole_module(project: Project) -> None:
    star = {**FILES, "shop/flights.py": "from .stars import *\n" + JOB, "shop/stars.py": "__all__ = []\n"}
    before = of_cleaned(project(star))
    assert of_cleaned(project({**star, "shop/stars.py": "__all__ = []\nmore = 1\n"})) != before


def test_names_passed_on_by_a_package_are_followed(project: Project) -> None:
    base = {
        **changed("shop/flights.py", "from .helpers import twice as double, Scale", "from .parts import double, Scale"),
        "shop/parts/__init__.py": "from . import numbers\nfrom .numbers import double\nfrom ..helpers import Scale\n",
        "shop/parts/numbers.py": "def double(x):\n    return x * 2\ndef triple(x):\n    return x * 3\n",
    }
    numbers = base["shop/parts/numbers.py"]
    before = of_cleaned(project(base))
    assert of_cleaned(project({**base, "shop/parts/numbers.py": numbers.replace("x * 3", "x + 3")})) == before
    assert of_cleaned(project({**base, "shop/parts/numbers.py": numbers.replace("x * 2", "x + 2")})) != before


def test_modules_that_import_each_other_come_to_an_end(project: Project) -> None:
    ring = {
        **FILES,
        "shop/late.py": "from . import early\ndef late(x):\n    return early.early(x)\n",
        "shop/early.py": (
            "from . import late\nfrom .late import missing\ndef early(x):\n    return late.late(x) or missing\n"
        ),
    }
    before = of_cleaned(project(ring))
    assert of_cleaned(project({**ring, "shop/early.py": ring["shop/early.py"] + "    return 1\n"})) != before


def test_a_package_used_as_a_namespace_is_followed_to_the_submodule(project: Project) -> None:
    base = {**FILES, "shop/flights.py": JOB.replace("from . import tables", "from . import helpers as tables")}
    base["shop/flights.py"] = base["shop/flights.py"].replace("math.pi), tables", "tables.other(1))")
    before = of_cleaned(project(base))
    assert (
        of_cleaned(project({**base, "shop/helpers.py": FILES["shop/helpers.py"].replace("OTHER = 3", "OTHER = 4")}))
        != before
    )


def test_no_user_module_is_imported_to_be_read(project: Project) -> None:
    module = project({**FILES, "shop/late.py": "raise SystemExit\n" + FILES["shop/late.py"]})
    of_cleaned(module)
    assert "shop.late" not in sys.modules


def test_an_edited_file_is_read_again(project: Project) -> None:
    module = project(FILES)
    before = of_cleaned(module)
    path = Path(module.__file__ or "").with_name("late.py")
    path.write_text(FILES["shop/late.py"].replace("return x\ndef", "return x + 1\ndef"))
    assert of_cleaned(module) != before


def make_job(step: Any, *, source: Any = None) -> Job:
    local = job("local")

    @local.source(splits=files("s3://lake/*.csv"), params={"n": 1})
    def raw(spark, splits, n):
        return spark, splits, n, step

    local.sink(name="out")(source or (lambda raw: raw))
    return local


def test_a_function_inside_a_function_counts_its_closure() -> None:
    params = {"n": 1}
    assert vertex_fingerprint(make_job(1), "raw", params) == vertex_fingerprint(make_job(1), "raw", params)
    assert vertex_fingerprint(make_job(1), "raw", params) != vertex_fingerprint(make_job(2), "raw", params)
    assert vertex_fingerprint(make_job({"a": [1]}), "raw", params) != vertex_fingerprint(
        make_job({"a": [2]}), "raw", params
    )


def test_a_function_in_a_closure_counts_with_its_own_closure() -> None:
    def plus(n: int) -> Callable[[int], int]:
        return lambda x: x + n

    fingerprints = {vertex_fingerprint(make_job(plus(n)), "raw", {"n": 1}) for n in (1, 1, 2)}
    assert len(fingerprints) == 2


def filtered(limit: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def wrapper(*given: Any, **named: Any) -> Any:
            return function(*given, **named), limit

        return wrapper

    return decorate


def plain(raw):
    return raw


def by_default(limit: int) -> Callable[..., Any]:
    def sink(raw, limit=limit):
        return raw, limit

    return sink


def by_keyword_default(limit: int) -> Callable[..., Any]:
    def sink(raw, *, limit=limit + 1):
        return raw, limit

    return sink


def by_loop(limit: int) -> Callable[..., Any]:
    for most in [limit]:

        def sink(raw, most=most):
            return raw, most

    return sink


def by_default_in_a_helper(limit: int) -> Callable[..., Any]:
    (step,) = (lambda frame, each=each: (frame, each) for each in [limit])

    def sink(raw):
        return step(raw)

    return sink


def by_decorator(limit: int) -> Callable[..., Any]:
    @filtered(limit)
    def sink(raw):
        return raw

    return sink


def by_two_decorators(limit: int) -> Callable[..., Any]:
    return filtered(0)(filtered(limit)(plain))


HOLDS_A_VALUE = (by_default, by_keyword_default, by_loop, by_default_in_a_helper, by_decorator, by_two_decorators)


@pytest.mark.parametrize("made", HOLDS_A_VALUE, ids=lambda made: made.__name__)
def test_a_value_that_a_function_around_has_bound_counts(made: Callable[[int], Callable[..., Any]]) -> None:
    def of(limit: int) -> str:
        local = job("local")
        local.source(name="raw")(lambda spark: spark)
        local.sink(name="top")(made(limit))
        return vertex_fingerprint(local, "top", {})

    assert of(10) == of(10) != of(11)


def test_a_default_that_cannot_be_compared_needs_a_version() -> None:
    local = job("local")
    local.source(name="raw")(lambda spark: spark)
    local.sink(name="top")(by_default(object()))  # type: ignore[arg-type]
    with fails_with("value-unreadable", label="sink().limit", where="job 'local', vertex 'top'"):
        vertex_fingerprint(local, "top", {})


def test_what_stands_at_the_top_of_a_module_is_told_once(project: Project) -> None:
    """The code of a decorator is found by its name: a fingerprint of before this rule stays as it is."""
    names = {name for _, name, _ in vertex_code(project(FILES).flights, "cleaned")}
    assert "traced" in names
    assert not {name for name in names if name.startswith("cleaned().")}


def test_a_value_in_a_closure_that_cannot_be_compared_needs_a_version() -> None:
    with fails_with("value-unreadable", label="raw().step", where="job 'local', vertex 'raw'"):
        vertex_fingerprint(make_job(object()), "raw", {"n": 1})


def test_a_closure_variable_without_a_value_needs_a_version() -> None:
    early = job("early")

    @early.source
    def raw(spark: Any) -> Any:
        return spark, later

    with fails_with("closure-without-value", found="later"):
        vertex_fingerprint(early, "raw", {})
    later = 1
    assert vertex_fingerprint(early, "raw", {})


@dataclass
class Rules:
    lands: set[str]

    def has(self, land: str) -> bool:
        return land in self.lands


class Colour(Enum):
    RED = 1


def negate(x: Any) -> Any:
    return -x


def double(x: Any) -> Any:
    return 2 * x


DIFFERENT_VALUES = {
    "a function that is bound twice": ((double, negate, double), (double, negate, negate)),
    "the type of a key": ({1: "x"}, {"1": "x"}),
    "the order of columns": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "a list and a tuple": ([1], (1,)),
    "a number and a truth": (1, True),
    "a whole and a real number": (1, 1.0),
    "a text and bytes": ("a", b"a"),
    "a member and its value": (Colour.RED, 1),
    "an object's attribute": (Rules({"de"}), Rules({"fr"})),
    "arguments of a partial": (partial(double, 1), partial(double, 2)),
    "the object of a method": (Rules({"de"}).has, Rules({"fr"}).has),
    "a day": (date(2013, 1, 1), date(2013, 1, 2)),
    "two lambdas of a line": tuple(lambda x, n=n: x + n for n in (1, 2)),
}


@pytest.mark.parametrize("case", DIFFERENT_VALUES)
def test_a_bound_value_counts_with_its_type_and_its_order(case: str) -> None:
    one, other = DIFFERENT_VALUES[case]
    assert vertex_fingerprint(make_job(one), "raw", {"n": 1}) != vertex_fingerprint(make_job(other), "raw", {"n": 1})
    assert vertex_fingerprint(make_job(one), "raw", {"n": 1}) == vertex_fingerprint(make_job(one), "raw", {"n": 1})


@pytest.mark.parametrize("case", ["the type of a key", "the order of columns", "a list and a tuple"])
def test_control_values_as_sorted_json_are_taken_for_equal(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BoundValues, "describe", lambda self, value: json.dumps(value, sort_keys=True))
    one, other = DIFFERENT_VALUES[case]
    assert vertex_fingerprint(make_job(one), "raw", {"n": 1}) == vertex_fingerprint(make_job(other), "raw", {"n": 1})


def local_class(n: int) -> type:
    class Rules:
        least = n

    return Rules


def local_dataclass(n: int) -> type:
    @dataclass
    class Rules:
        least: int = n

    return Rules


def row_of_one(n: int) -> Any:
    make: Any = namedtuple
    return make("Row", [f"column_{n}"])(7)


def class_below(n: int) -> type:
    return type("Below", (type("Above", (), {"least": n}),), {})


MADE_BY_CALLS: dict[str, Callable[[int], Any]] = {
    "a member of an enumeration": lambda n: Enum("Level", {"high": n}).high,  # type: ignore[attr-defined]
    "an enumeration": lambda n: Enum("Level", {"high": n}),
    "a named tuple": lambda n: namedtuple("Row", [f"column_{n}"]),
    "a row of one": row_of_one,
    "a dataclass": lambda n: make_dataclass("Rules", [("least", int, n)]),
    "a class": lambda n: type("Limits", (), {"least": n}),
    "a method": lambda n: type("Limits", (), {"least": lambda self: n}),
    "a class above": class_below,
    "a class in a function": local_class,
    "a dataclass in a function": local_dataclass,
}


@pytest.mark.parametrize("made", MADE_BY_CALLS.values(), ids=list(MADE_BY_CALLS))
def test_a_class_that_a_call_has_made_counts_by_its_attributes(made: Callable[[int], Any]) -> None:
    assert value_digest(made(1)) == value_digest(made(1))
    assert value_digest(made(1)) != value_digest(made(2))


def test_control_by_its_name_such_a_class_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_FunctionCode, "_is_told", lambda *_: True)
    made = MADE_BY_CALLS["a named tuple"]
    assert value_digest(made(1)) == value_digest(made(2))


def values_in_process(seed: str) -> str:
    script = (
        "from dataclasses import dataclass; from airflow_recovery.job.fingerprint import value_digest\n"
        "@dataclass\nclass Rules:\n    lands: set\n    by: dict\n"
        "lands = {str(n) for n in range(40)}\n"
        "print(value_digest([Rules(lands, {'x': frozenset(lands)}), object(), lambda x: x]))"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(airflow_recovery.__file__).parents[1]),
        "PYTHONHASHSEED": seed,
    }
    answer = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return answer.stdout.strip()


def test_an_object_with_a_set_is_described_alike_in_every_process() -> None:
    assert values_in_process("1") == values_in_process("2")


def compiled(version: str | None) -> Job:
    namespace: dict[str, Any] = {"__name__": "not_a_module_anywhere"}
    exec("def raw(spark):\n    return spark\n", namespace)
    unreadable = job("unreadable")
    unreadable.source(version=version)(namespace["raw"])
    return unreadable


def test_code_without_source_needs_a_version() -> None:
    with fails_with("module-without-source", where="job 'unreadable', vertex 'raw'"):
        vertex_fingerprint(compiled(None), "raw", {})
    assert vertex_fingerprint(compiled("1"), "raw", {}) != vertex_fingerprint(compiled("2"), "raw", {})


def test_an_unknown_vertex_is_refused() -> None:
    with fails_with("vertex-unknown", found="rwa"):
        vertex_fingerprint(make_job(1), "rwa", {})


def test_input_names_files_and_result_type_count() -> None:
    def build(**options: Any) -> str:
        built = job("j")
        built.source(name="a")(lambda spark: spark)
        built.source(name="b")(lambda spark: spark)
        built.vertex(name="c", **options)(joined)
        return vertex_fingerprint(built, "c", {})

    base = build(inputs={"left": "a", "right": "b"})
    assert base != build(inputs={"left": "b", "right": "a"})
    assert base != build(inputs={"left": "a", "right": "b"}, result=BLOCKING)


def joined(left: Any, right: Any) -> Any:
    return left, right


def test_the_pattern_of_the_files_counts() -> None:
    def build(pattern: str) -> str:
        built = job("j")
        built.source(splits=files(pattern), name="a")(reads)
        return vertex_fingerprint(built, "a", {})

    assert build("s3://lake/a/*") != build("s3://lake/b/*")


def reads(splits: Any) -> Any:
    return splits


def test_a_job_decorator_is_no_code_but_another_object_with_such_a_method_is(project: Project) -> None:
    other = {
        "shop/__init__.py": "",
        "shop/flights.py": textwrap.dedent(
            """
            from airflow_recovery import job
            flights = job("flights")
            class Registry:
                def source(self, text):
                    return lambda f: f
            registry = Registry()
            @flights.source(name="a", spark_conf={"spark.executor.memory": "1g"})
            @registry.source("one")
            def a(spark):
                return spark
            """
        ),
    }
    text = other["shop/flights.py"]
    before = vertex_fingerprint(project(other).flights, "a", {})
    tuned = {**other, "shop/flights.py": text.replace("1g", "2g")}
    assert vertex_fingerprint(project(tuned).flights, "a", {}) == before
    other_registry = {**other, "shop/flights.py": text.replace('"one"', '"two"')}
    assert vertex_fingerprint(project(other_registry).flights, "a", {}) != before


def test_a_table_at_the_top_of_a_module_counts_with_the_functions_that_it_names(project: Project) -> None:
    text = (
        "from airflow_recovery import job\nflights = job('flights')\n"
        "def first(x):\n    return x + 1\ndef second(x):\n    return x + 1\n"
        "STEPS = {'first': first}\nSTEPS['second'] = second\n"
        "@flights.source\ndef a(spark):\n    return STEPS[spark]\n"
    )
    texts = (
        text,
        *(
            text.replace(f"{name}(x):\n    return x + 1", f"{name}(x):\n    return x + 2")
            for name in ("first", "second")
        ),
    )
    modules = (project({"shop/__init__.py": "", "shop/flights.py": each}) for each in texts)
    assert len({vertex_fingerprint(module.flights, "a", {}) for module in modules}) == 3


def test_what_only_the_declaration_uses_is_no_code(project: Project) -> None:
    base = changed("shop/flights.py", '"n": 1})', '"n": UNUSED})')
    before = of_cleaned(project(base))
    assert (
        of_cleaned(project({**base, "shop/flights.py": base["shop/flights.py"].replace("UNUSED = 1", "UNUSED = 2")}))
        == before
    )


def test_what_the_declaration_and_the_code_use_is_code(project: Project) -> None:
    base = changed("shop/flights.py", '"n": 1})', '"n": LIMIT})')
    base["shop/flights.py"] = base["shop/flights.py"].replace("helper(n) + ", "LIMIT + ")
    before = of_cleaned(project(base))
    assert (
        of_cleaned(project({**base, "shop/flights.py": base["shop/flights.py"].replace("LIMIT = 10", "LIMIT = 11")}))
        != before
    )


def test_every_process_finds_the_same_fingerprint(project: Project) -> None:
    module = project(FILES)
    root = Path(module.__file__ or "").parents[1]
    script = (
        "import shop.flights as m; from airflow_recovery.job import vertex_fingerprint;"
        "print(vertex_fingerprint(m.flights, 'cleaned', {'day': 'x', 'n': 1}))"
    )
    package = str(Path(airflow_recovery.__file__).parents[1])
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), package]), "PYTHONHASHSEED": seed}
        answer = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        assert answer.stdout.strip() == of_cleaned(module)


def test_a_module_inside_a_zip_is_read_too(tmp_path: Path, project: Project) -> None:
    import zipfile

    module = project(FILES)
    archive = tmp_path / "code.zip"
    with zipfile.ZipFile(archive, "w") as file:
        for name, text in FILES.items():
            file.writestr(name, text)
    script = (
        "import shop.flights as m; from airflow_recovery.job import vertex_fingerprint;"
        "print(vertex_fingerprint(m.flights, 'cleaned', {'day': 'x', 'n': 1}))"
    )
    package = str(Path(airflow_recovery.__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(archive), package])}
    answer = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == of_cleaned(module)


def test_the_normal_form_does_not_depend_on_the_python_version(project: Project) -> None:
    # A golden value: the same on 3.10 to 3.13, f-strings and all. A change of it runs every user's vertices again.
    text = textwrap.dedent(
        """
        from airflow_recovery import job
        flights = job("flights")
        @flights.source
        def raw(spark, x=b"a", *, y=1.5, z=...):
            match x:
                case {"a": [1, *rest], **more}:
                    return f"{x!r:>{y}} {'a' + str(z)}", rest, more
            async def later():
                return [i async for i in x if (j := i)], lambda a, /, b: (a, b), x[1:2, ::3]
            try:
                return spark.sql(u'select "a"') if x else None
            except (ValueError, TypeError) as error:
                raise KeyError from error
        """
    )
    module = project({"shop/__init__.py": "", "shop/flights.py": text})
    assert vertex_fingerprint(module.flights, "raw", {}) == "33c026990a540edf520bd57373589f4d"


def test_a_region_counts_its_vertices_what_it_registers_and_its_subtask() -> None:
    vertices = [("a", "1"), ("b", "2")]
    base = region_fingerprint(vertices, ("b",))
    assert base == region_fingerprint(tuple(vertices), ["b"])
    others = [
        region_fingerprint([("a", "1"), ("b", "3")], ("b",)),
        region_fingerprint(vertices, ("a", "b")),
        region_fingerprint(vertices, ("b",), "1"),
        region_fingerprint(vertices, ("b",), "2"),
    ]
    assert len({base, *others}) == 5


def test_100_vertices_take_well_under_a_second(project: Project) -> None:
    body = "".join(
        f"\n@flights.vertex(inputs={{'raw': 'v{n - 1}'}} if {n} else {{}})\n"
        f"def v{n}(raw):\n    return helper(raw), {n}\n"
        for n in range(100)
    )
    module = project({**FILES, "shop/flights.py": JOB + body})
    began = time.process_time()
    fingerprints = {vertex_fingerprint(module.flights, f"v{n}", {}) for n in range(100)}
    assert time.process_time() - began < 1.0
    assert len(fingerprints) == 100


def nodes_looked_at(project: Project, monkeypatch: pytest.MonkeyPatch, count: int) -> int:
    """For the fingerprints of so many vertices inside one function, whose defaults and decorators it binds."""
    body = "".join(
        f"\n    @flights.vertex(inputs={{'raw': {f'v{n - 1}'!r}}} if {n} else {{}})\n"
        f"    @scaled(by)\n"
        f"    def v{n}(raw, factor=by):\n        return helper(raw), factor, {n}\n"
        for n in range(count)
    )
    scaled = (
        "\ndef scaled(by):\n    def wrap(f):\n        @wraps(f)\n        def inner(*args, **kwargs):\n"
        "            return f(*args, **kwargs), by\n        return inner\n    return wrap\n"
    )
    module = project({**FILES, "shop/flights.py": f"{JOB}{scaled}\ndef declare(by):{body}\ndeclare({count})\n"})
    looked_at: list[ast.AST] = []
    iter_fields = ast.iter_fields
    with monkeypatch.context() as patch:
        patch.setattr(ast, "iter_fields", lambda node: looked_at.append(node) or iter_fields(node))
        fingerprints = {vertex_fingerprint(module.flights, f"v{n}", {}) for n in range(count)}
    assert len(fingerprints) == count
    return len(looked_at)


def test_vertices_inside_one_function_take_as_long_each_however_many_they_are(project: Project, monkeypatch) -> None:
    """By counting: each looks at its own code, and all of them share one walk of the module."""
    few, many = (nodes_looked_at(project, monkeypatch, count) for count in (10, 40))
    assert many < 4.5 * few, many / few


@pytest.mark.parametrize("walk", ["names_bound_around", "_functions_of"])
def test_control_where_each_of_them_walks_the_module_they_take_ever_longer(project: Project, monkeypatch, walk) -> None:
    fingerprint = sys.modules[vertex_code.__module__]
    monkeypatch.setattr(fingerprint, walk, getattr(fingerprint, walk).__wrapped__)
    few, many = (nodes_looked_at(project, monkeypatch, count) for count in (10, 40))
    assert many > 6 * few, many / few


def test_fingerprints_are_short_hex(project: Project) -> None:
    fingerprint = of_cleaned(project(FILES))
    assert len(fingerprint) == 32
    assert json.loads(f'"{fingerprint}"') == fingerprint
    int(fingerprint, 16)


# --- files of a package that a function reads, in other places --------------------------------------------------------

READS = "import os\nHERE = os.path.dirname(__file__)\ndef read(name):\n    return open(os.path.join(HERE, name))\n"
ELSEWHERE: dict[str, tuple[str, str, str]] = {
    "behind a link": ("reads('data/rates.csv')", "shared/rates.csv", "data"),
    "in a package behind a link": ("from .data import rules; return rules.N", "shared/rules.py", "data"),
    "behind a link to a link": ("reads('data/more/rates.csv')", "deep/rates.csv", "data"),
    "with a hidden name": ("reads('.rates.csv')", "linked/.rates.csv", ""),
}


def code_of_linked() -> list[list[str]]:
    """The code of a function whose package has a link to a folder beside it."""
    for name in [module for module in sys.modules if module.partition(".")[0] == "linked"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    return function_code(importlib.import_module("linked.job").run)


@pytest.mark.parametrize("case", ELSEWHERE)
def test_fault_359_a_file_behind_a_link_or_with_a_hidden_name_counts(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use, changed_file, link = ELSEWHERE[case]
    for folder in ("linked", "shared", "deep"):
        (tmp_path / folder).mkdir()
    (tmp_path / "linked" / "__init__.py").touch()
    (tmp_path / "linked" / "job.py").write_text(f"from .files import read as reads\ndef run():\n    {use}\n")
    (tmp_path / "linked" / "files.py").write_text(READS)
    (tmp_path / "shared" / "__init__.py").touch()
    if link:
        (tmp_path / "linked" / link).symlink_to("../shared")
        (tmp_path / "shared" / "more").symlink_to("../deep")
        (tmp_path / "shared" / "back").symlink_to("../linked")
    (tmp_path / changed_file).write_text("N = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = code_of_linked()
    assert code_of_linked() == before
    (tmp_path / "linked" / ".editor.swp").write_text("1")
    assert code_of_linked() == before
    (tmp_path / changed_file).write_text("N = 2\n")
    assert code_of_linked() != before


@pytest.mark.control
def test_fault_359_control_without_the_link_the_change_is_not_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(package_files, "_leads_to_data", lambda *_: False)
    (tmp_path / "shared").mkdir()
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "data").symlink_to("../shared")
    (tmp_path / "linked" / "job.py").write_text(f"{READS}def run():\n    read('data/rates.csv')\n")
    (tmp_path / "linked" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "shared" / "rates.csv").write_text("1")
    before = code_of_linked()
    (tmp_path / "shared" / "rates.csv").write_text("2")
    assert code_of_linked() == before


def test_a_link_to_another_place_or_to_a_parent_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "deployed" / "linked").mkdir(parents=True)
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "large.csv").write_text("1")
    (tmp_path / "deployed" / "linked" / "lake").symlink_to(tmp_path / "lake")
    (tmp_path / "deployed" / "linked" / "self").symlink_to(".")
    (tmp_path / "deployed" / "linked" / "rates.csv").write_text("1")
    assert [name for name, _ in package_files._in_folder(str(tmp_path / "deployed" / "linked"))] == ["rates.csv"]


def test_what_a_future_import_changes_counts(project: Project) -> None:
    before = of_cleaned(project(FILES))
    future = {**FILES, "shop/deep.py": f"from __future__ import annotations\n{FILES['shop/deep.py']}"}
    assert of_cleaned(project(future)) != before
