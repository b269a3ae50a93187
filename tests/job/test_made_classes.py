"""Classes and functions that their statement does not tell: the name is bound again, or something adds to a class."""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_recovery.job import fingerprint
from airflow_recovery.job.fingerprint import class_code, function_code, value_digest

BEGIN = """
import abc, dataclasses, enum, os, typing
from collections import namedtuple
from dataclasses import dataclass, make_dataclass
from enum import Enum
N = int(os.environ["MADE_OF"])
"""
MADE = {
    "a call after the statement": """
        class Made(Enum):
            high = 0
        Made = Enum("Made", {"high": N})
    """,
    "a call before the statement, taken by another name": """
        Made = Enum("Made", {"high": N})
        Bound = Made
        class Made(Enum):
            high = 0
    """,
    "a call in one branch": """
        if os.environ["MADE_OF"]:
            Made = namedtuple("Made", [f"column_{N}"])
        else:
            class Made: pass
    """,
    "one of two statements": """
        if N == 1:
            class Made:
                least = 1
        else:
            class Made:
                least = 2
    """,
    "a call if an import fails": """
        try:
            from no_such_module import Made
        except ImportError:
            Made = make_dataclass("Made", [("least", int, N)])
        else:
            class Made: pass
    """,
    "a call in a loop": """
        class Made: pass
        for each in (N,):
            Made = type("Made", (), {"least": each})
    """,
    "a call in a function that declares the name global": """
        class Made: pass
        def rebind():
            global Made
            Made = type("Made", (), {"least": N})
        rebind()
    """,
    "a name that is set by globals()": """
        class Made: pass
        globals()["Made"] = type("Made", (), {"least": N})
    """,
    "a call elsewhere that gives the name": """
        class Made:
            least = 0
        Bound = type("Made", (), {"least": N})
    """,
    "a call that gives the name to a method": """
        class Made:
            def least(self): return 0
        def returning(n): return lambda self: n
        Bound = type("Made", (), {"least": returning(N)})
    """,
    "a named tuple of typing": """
        class Made(typing.NamedTuple):
            least: int
        Made = typing.NamedTuple("Made", [(f"column_{N}", int)])
    """,
    "a decorator that returns another class": """
        def with_least(cls):
            return type(cls.__name__, (cls,), {"least": N})
        @with_least
        class Made: pass
    """,
    "a decorator that adds to it": """
        def with_least(cls):
            cls.least = N
            return cls
        @with_least
        class Made: pass
    """,
    "a decorator of an object": """
        class Registry:
            def __call__(self, cls):
                cls.least = N
                return cls
        registry = Registry()
        @registry
        class Made:
            least = 0
    """,
    "a metaclass that adds to it": """
        class Meta(type):
            def __new__(meta, name, bases, body):
                return super().__new__(meta, name, bases, body | {"least": N})
        class Made(metaclass=Meta): pass
    """,
    "a base class that adds to it": """
        class Base:
            def __init_subclass__(cls):
                cls.least = N
        class Made(Base): pass
    """,
    "an attribute that is assigned later": """
        class Made: pass
        Made.least = N
    """,
    "an attribute that is replaced later": """
        class Made:
            least = 0
        setattr(Made, "least", N)
    """,
    "a method that is replaced later": """
        class Made:
            def least(self): return 0
        def returning(n): return lambda self: n
        Made.least = returning(N)
    """,
    "a class inside a class": """
        class Outer:
            class Made:
                least = 0
            Made = type("Made", (), {"least": N, "__qualname__": "Outer.Made"})
        Bound = Outer.Made
    """,
    "an attribute in a branch of the body": """
        class Made:
            if N == 1:
                least = 1
            else:
                least = 2
    """,
    "a function that is made from a text": """
        def made(x): return x
        space = {"__name__": __name__}
        exec(f"def made(x): return x * {N}", space)
        Bound = space["made"]
    """,
    "a lambda that is made from a text": """
        Bound = eval(f"lambda x: x * {N}")
    """,
    "a class above it": """
        class Above: pass
        Above = type("Above", (), {"least": N})
        class Made(Above): pass
    """,
}
WRITTEN = {
    "plain": "class Made:\n    least = 0\n    def run(self): return self.least\n",
    "an attribute that is computed": "class Made:\n    least = N\n",
    "private": "class Made:\n    __least = 0\n    _cache: dict = {}\n    def __run(self): pass\n",
    "methods of all kinds": """
        class Made:
            @property
            def a(self): return 0
            @a.setter
            def a(self, value): pass
            @staticmethod
            def b(): pass
            @classmethod
            def c(cls): pass
            async def d(self): pass
    """,
    "abstract": "class Made(abc.ABC):\n    @abc.abstractmethod\n    def run(self): ...\n",
    "an enumeration": """
        class Made(Enum):
            low = 1
            high = enum.auto()
            @property
            def x(self): return 1
    """,
    "a flag": "class Made(enum.IntFlag):\n    a = 1\n    b = 2\n    c = a | b\n",
    "an enumeration with values of its own": """
        class Made(Enum):
            low = (1, "l")
            def __init__(self, n, letter): self.n = n
    """,
    "a dataclass": """
        @dataclass
        class Made:
            a: int
            b: int = 3
            c: list = dataclasses.field(default_factory=list)
    """,
    "a dataclass with slots": "@dataclass(frozen=True, slots=True)\nclass Made:\n    a: int = 3\n",
    "a named tuple": "class Made(typing.NamedTuple):\n    a: int\n    b: int = 2\n    def both(self): return self.a\n",
    "a protocol": "class Made(typing.Protocol):\n    a: int\n    def run(self): ...\n",
    "a typed dictionary": "class Made(typing.TypedDict):\n    a: int\n",
    "generic": "T = typing.TypeVar('T')\nclass Made(typing.Generic[T]):\n    a: T\n",
    "inside another": "class Outer:\n    class Made:\n        least = [1, {2: 'x'}]\nBound = Outer.Made\n",
    "a body in a loop": "class Made:\n    for each in (1, 2):\n        pass\n",
}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, int], Any]]:
    """Runs a module with its N, and returns the class."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def run(source: str, number: int) -> Any:
        monkeypatch.setenv("MADE_OF", str(number))
        path = tmp_path / "made_of.py"
        text = BEGIN + textwrap.dedent(source)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)
            importlib.invalidate_caches()
        sys.modules.pop("made_of", None)
        module = importlib.import_module("made_of")
        return getattr(module, "Bound", None) or module.Made

    yield run
    sys.modules.pop("made_of", None)


@pytest.mark.parametrize("source", MADE.values(), ids=list(MADE))
def test_fault_356_a_class_that_its_statement_does_not_tell_counts_by_its_attributes(
    source: str, load: Callable[[str, int], Any]
) -> None:
    one, again, two = (value_digest(load(source, number)) for number in (1, 1, 2))
    assert one == again
    assert one != two


@pytest.mark.control
def test_fault_356_control_by_the_statement_of_its_name_such_a_class_stays_the_same(
    load: Callable[[str, int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint._FunctionCode, "_is_told", lambda *_: True)
    source = MADE["a call after the statement"]
    assert value_digest(load(source, 1)) == value_digest(load(source, 2))


@pytest.mark.parametrize("source", WRITTEN.values(), ids=list(WRITTEN))
def test_a_class_that_its_statement_tells_counts_by_its_code_alone(
    source: str, load: Callable[[str, int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    described: list[type] = []
    monkeypatch.setattr(fingerprint, "_attributes_of", lambda value: described.append(value) or [])
    value_digest(load(source, 1))
    assert described == []


def test_a_class_that_runs_may_change_its_own_attributes(load: Callable[[str, int], Any]) -> None:
    """As an operator that counts its calls: what is bound in no value counts by its code."""
    source = """
        class Base:
            def __init__(self): pass
        class Made(Base):
            calls = 0
            def __init__(self): super().__init__()
    """
    made = load(source, 1)
    before = class_code(made), function_code(made.__init__, made)
    made.calls += 1
    assert (class_code(made), function_code(made.__init__, made)) == before
    assert value_digest(made) != value_digest(load(source, 1))
