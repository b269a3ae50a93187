"""Ways in which Python hides what a vertex uses: each change alters its fingerprint, or does not alter its rows.

Each case was tried by an outsider who did not know the code of fingerprints. See also `test_code_changes.py`.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from airflow_recovery.job import code_closure, code_pieces
from airflow_recovery.job.code_closure import CodeClosure
from airflow_recovery.job.fingerprint import vertex_fingerprint

JOB = """
import json, os, sys
from pathlib import Path
from airflow_recovery import job
flights = job("flights")
{top}
@flights.source
def raw(spark):
    return [1, 2, 3]
@flights.vertex
def v(raw):
    {body}
@flights.vertex
def w(raw):
    return [x * 7 for x in raw]
"""
Case = tuple[str, str, dict[str, str], tuple[str, str, str]]
"""The top of the module, the body of the vertex, other files, and the change: file, text, new text."""
DIFFERENT: dict[str, Case] = {
    "partial keyword": (
        "from functools import partial\nfrom .h import scale\nf = partial(scale, by=2)",
        "return [f(x) for x in raw]",
        {"h.py": "def scale(x, by): return x*by\n"},
        ("flights.py", "by=2", "by=3"),
    ),
    "base class attr elsewhere": (
        "from .c import C",
        "return [C().rate for x in raw]",
        {"c.py": "from .base import Base\nclass C(Base): pass\n", "base.py": "class Base:\n    rate = 2\n"},
        ("base.py", "= 2", "= 3"),
    ),
    "dataclass default": (
        "from .c import Cfg",
        "return [Cfg().rate for x in raw]",
        {"c.py": "from dataclasses import dataclass\n@dataclass\nclass Cfg:\n    rate: int = 2\n"},
        ("c.py", "= 2", "= 3"),
    ),
    "enum member": (
        "from .c import Lvl",
        "return [Lvl.A.value for x in raw]",
        {"c.py": "from enum import Enum\nclass Lvl(Enum):\n    A = 2\n"},
        ("c.py", "= 2", "= 3"),
    ),
    "monkeypatch at import": (
        "from . import patch\nfrom .h import cfg",
        "return [cfg['by'] for x in raw]",
        {"h.py": "cfg = {'by': 1}\n", "patch.py": "from . import h\nh.cfg['by'] = 2\n"},
        ("patch.py", "= 2", "= 3"),
    ),
    "monkeypatch by setattr in function": (
        "from .patch import go\nfrom . import h\ngo()",
        "return [h.f(x) for x in raw]",
        {
            "h.py": "def f(x): return x\n",
            "patch.py": "from . import h\ndef other(x): return x*2\ndef go(): h.f = other\n",
        },
        ("patch.py", "x*2", "x*3"),
    ),
    "module __getattr__": (
        "from . import lazy",
        "return [lazy.RATE for x in raw]",
        {"lazy.py": "def __getattr__(name):\n    return {'RATE': 2}[name]\n"},
        ("lazy.py", "2", "3"),
    ),
    "star import": (
        "from .consts import *",
        "return [RATE for x in raw]",
        {"consts.py": "RATE = 2\n"},
        ("consts.py", "2", "3"),
    ),
    "__all__ of star import": (
        "def f(x): return x\nfrom .consts import *",
        "return [f(x) for x in raw]",
        {"consts.py": "__all__ = ['A']\nA = 1\ndef f(x): return -x\n"},
        ("consts.py", "['A']", "['A','f']"),
    ),
    "conditional import": (
        "try:\n    from nothere import f\nexcept ImportError:\n    from .slow import f",
        "return [f(x) for x in raw]",
        {"slow.py": "def f(x): return x*2\n"},
        ("slow.py", "2", "3"),
    ),
    "import by environment": (
        "if os.environ.get('X'):\n    from .a import f\nelse:\n    from .b import f",
        "return [f(x) for x in raw]",
        {"a.py": "def f(x): return x*2\n", "b.py": "def f(x): return x*5\n"},
        ("b.py", "5", "6"),
    ),
    "lazy import in a function": (
        "",
        "from .late import f; return [f(x) for x in raw]",
        {"late.py": "def f(x): return x*2\n"},
        ("late.py", "2", "3"),
    ),
    "lazy import of a lazy import": (
        "",
        "from .late import f; return [f(x) for x in raw]",
        {"late.py": "def f(x):\n    from .later import g\n    return g(x)\n", "later.py": "def g(x): return x*2\n"},
        ("later.py", "2", "3"),
    ),
    "decorator args of a config file": (
        "from .d import scaled\n"
        "@scaled(json.loads((Path(__file__).parent/'c.json').read_text())['by'])\ndef f(x): return x",
        "return [f(x) for x in raw]",
        {
            "d.py": "def scaled(by):\n    def w(f):\n        return lambda x: f(x)*by\n    return w\n",
            "c.json": '{"by": 2}',
        },
        ("c.json", "2", "3"),
    ),
    "random seed": (
        "import random\nrng = random.Random(42)",
        "return [rng.random() for x in raw]",
        {},
        ("flights.py", "42", "43"),
    ),
    "lambda in a dict": (
        "OPS = {'a': lambda x: x*2}",
        "return [OPS['a'](x) for x in raw]",
        {},
        ("flights.py", "x*2", "x*3"),
    ),
    "__init_subclass__ elsewhere": (
        "from .base import REG\nfrom . import plug",
        "return [REG[0].rate for x in raw]",
        {
            "base.py": "REG=[]\nclass Base:\n    def __init_subclass__(cls):\n        REG.append(cls)\n",
            "plug.py": "from .base import Base\nclass P(Base):\n    rate = 2\n",
        },
        ("plug.py", "2", "3"),
    ),
    "singledispatch register": (
        "from .g import scale\nfrom . import reg",
        "return [scale(x) for x in raw]",
        {
            "g.py": "from functools import singledispatch\n@singledispatch\ndef scale(x): return x\n",
            "reg.py": "from .g import scale\n@scale.register\ndef _(x: int): return x*2\n",
        },
        ("reg.py", "x*2", "x*3"),
    ),
    "exec of a file": (
        "",
        "ns={}; exec((Path(__file__).parent/'code.txt').read_text(), ns); return [ns['R'] for x in raw]",
        {"code.txt": "R = 2\n"},
        ("code.txt", "2", "3"),
    ),
    "format attribute": (
        "from . import cfg",
        "return ['{0.rate}'.format(cfg.Cfg) for x in raw]",
        {"cfg.py": "class Cfg:\n    rate = 2\n"},
        ("cfg.py", "2", "3"),
    ),
    "vars()": (
        "from . import cfg",
        "return [vars(cfg)['ra'+'te'] for x in raw]",
        {"cfg.py": "rate = 2\n"},
        ("cfg.py", "2", "3"),
    ),
    "getattr_static": (
        "from . import cfg\nimport inspect",
        "return [inspect.getattr_static(cfg,'ra'+'te') for x in raw]",
        {"cfg.py": "rate = 2\n"},
        ("cfg.py", "2", "3"),
    ),
    "pydoc.locate text": (
        "import pydoc",
        "return [pydoc.locate('shop.plug.rate') for x in raw]",
        {"plug.py": "rate = 2\n"},
        ("plug.py", "2", "3"),
    ),
    "from pydoc import locate computed": (
        "from pydoc import locate",
        "return [locate('shop.plug.' + 'rate') for x in raw]",
        {"plug.py": "rate = 2\n"},
        ("plug.py", "2", "3"),
    ),
    "pkgutil.resolve_name": (
        "import pkgutil",
        "return [pkgutil.resolve_name('shop.plug:rate') for x in raw]",
        {"plug.py": "rate = 2\n"},
        ("plug.py", "2", "3"),
    ),
    "reduce(getattr)": (
        "from functools import reduce\nfrom . import cfg",
        "return [reduce(getattr, ['ra'+'te'], cfg) for x in raw]",
        {"cfg.py": "rate = 2\n"},
        ("cfg.py", "2", "3"),
    ),
    "__subclasses__": (
        "from .base import Base\nfrom . import plug",
        "return [sum(c.rate for c in Base.__subclasses__()) for x in raw]",
        {"base.py": "class Base: pass\n", "plug.py": "from .base import Base\nclass P(Base):\n    rate = 2\n"},
        ("plug.py", "2", "3"),
    ),
    "type() call": ("C = type('C', (), {'rate': 2})", "return [C.rate for x in raw]", {}, ("flights.py", "2", "3")),
    "alias chain": (
        "from . import h\ng = f = h.scale",
        "return [g(x) for x in raw]",
        {"h.py": "def scale(x): return x*2\n"},
        ("h.py", "2", "3"),
    ),
    "kwargs config": (
        "CFG = dict(by=2)\ndef run(x, by): return x*by",
        "return [run(x, **CFG) for x in raw]",
        {},
        ("flights.py", "by=2", "by=3"),
    ),
    "sys.modules replaced": (
        "from . import lazy",
        "return [lazy.RATE for x in raw]",
        {"lazy.py": "import sys\nclass L:\n    RATE = 2\nsys.modules[__name__] = L()\n"},
        ("lazy.py", "2", "3"),
    ),
    "pkgutil.get_data": (
        "import pkgutil",
        "return [pkgutil.get_data(__package__, 'x' + '.csv') for x in raw]",
        {"x.csv": "2"},
        ("x.csv", "2", "3"),
    ),
    "importlib.resources by name": (
        "from importlib import resources\nNAME='x'",
        "return [(resources.files('shop')/f'{NAME}.csv').read_text() for x in raw]",
        {"x.csv": "2"},
        ("x.csv", "2", "3"),
    ),
    "computed data name": (
        "NAME='x'",
        "return [open(Path(__file__).parent/f'{NAME}.csv').read() for x in raw]",
        {"x.csv": "2"},
        ("x.csv", "2", "3"),
    ),
    "class in class": (
        "class A:\n    class B:\n        rate = 2",
        "return [A.B.rate for x in raw]",
        {},
        ("flights.py", "2", "3"),
    ),
    "descriptor": (
        "from .d import D\nclass A:\n    r = D()",
        "return [A().r for x in raw]",
        {"d.py": "class D:\n    def __get__(self, o, t): return 2\n"},
        ("d.py", "2", "3"),
    ),
    "metaclass": (
        "from .m import M\nclass A(metaclass=M): pass",
        "return [A.rate for x in raw]",
        {"m.py": "class M(type):\n    @property\n    def rate(cls): return 2\n"},
        ("m.py", "2", "3"),
    ),
    "dunder op": (
        "from .o import O",
        "return [(O() + x) for x in raw]",
        {"o.py": "class O:\n    def __add__(self, x): return x*2\n"},
        ("o.py", "2", "3"),
    ),
    "contextmanager": (
        "from .cm import cm",
        "with cm() as k: return [x*k for x in raw]",
        {"cm.py": "from contextlib import contextmanager\n@contextmanager\ndef cm():\n    yield 2\n"},
        ("cm.py", "2", "3"),
    ),
    "generator helper": (
        "from .g import gen",
        "return list(gen(raw))",
        {"g.py": "def gen(r):\n    for x in r: yield x*2\n"},
        ("g.py", "2", "3"),
    ),
    "global changed by import effect": (
        "from . import state\nfrom . import effect",
        "return [state.R for x in raw]",
        {"state.py": "R = 1\n", "effect.py": "from . import state\ndef up():\n    state.R = 2\nup()\n"},
        ("effect.py", "= 2", "= 3"),
    ),
    "default from another module": (
        "from .h import BY\ndef f(x, by=BY): return x*by",
        "return [f(x) for x in raw]",
        {"h.py": "BY = 2\n"},
        ("h.py", "2", "3"),
    ),
    "yaml named class": (
        "from .load import load",
        "return [load().rate for x in raw]",
        {
            "load.py": (
                "import importlib\nfrom pathlib import Path\ndef load():\n"
                "    m, _, n = (Path(__file__).parent/'c.yaml').read_text().strip().rpartition('.')\n"
                "    return getattr(importlib.import_module(m), n)\n"
            ),
            "plug.py": "class P:\n    rate = 2\n",
            "c.yaml": "shop.plug.P\n",
        },
        ("plug.py", "2", "3"),
    ),
    "string annotation evaluated": (
        "import typing\nfrom .h import Rate\ndef f(x: 'Rate'): return x",
        "return [typing.get_type_hints(f)['x'].rate for x in raw]",
        {"h.py": "class Rate:\n    rate = 2\n"},
        ("h.py", "2", "3"),
    ),
    "namedtuple defaults": (
        "from .n import N",
        "return [N().a for x in raw]",
        {"n.py": "from collections import namedtuple\nN = namedtuple('N', 'a', defaults=[2])\n"},
        ("n.py", "2", "3"),
    ),
    "NamedTuple class": (
        "from .n import N",
        "return [N().a for x in raw]",
        {"n.py": "from typing import NamedTuple\nclass N(NamedTuple):\n    a: int = 2\n"},
        ("n.py", "2", "3"),
    ),
    "cached lru default": (
        "from functools import lru_cache\n@lru_cache\ndef f(x, by=2): return x*by",
        "return [f(x) for x in raw]",
        {},
        ("flights.py", "by=2", "by=3"),
    ),
    "__version__ in rows": (
        "from . import __version__",
        "return [__version__ for x in raw]",
        {
            "__init__.py": "from ._version import version as __version__\n",
            "_version.py": "# generated by x\n__version__ = version = '1.2'\n",
        },
        ("_version.py", "1.2", "1.3"),
    ),
    "data in a hidden folder": (
        "",
        "return [(Path(__file__).parent / '.conf' / 'rates').read_text() for x in raw]",
        {".conf/rates": "2"},
        (".conf/rates", "2", "3"),
    ),
    "hidden file, computed": (
        "N='rates'",
        "return [(Path(__file__).parent / f'.{N}').read_text() for x in raw]",
        {".rates": "2"},
        (".rates", "2", "3"),
    ),
    "super() of another module": (
        "from .c import C",
        "return [C().f(x) for x in raw]",
        {
            "c.py": "from .base import Base\nclass C(Base):\n    def f(self, x): return super().f(x)\n",
            "base.py": "class Base:\n    def f(self, x): return x*2\n",
        },
        ("base.py", "2", "3"),
    ),
    "augmented assignment": ("X = 1\nX += 2", "return [X for x in raw]", {}, ("flights.py", "+= 2", "+= 3")),
    "import in class body": (
        "class A:\n    from .h import R",
        "return [A.R for x in raw]",
        {"h.py": "R = 2\n"},
        ("h.py", "2", "3"),
    ),
    "relative import of package __init__": (
        "from . import sub",
        "return [sub.R for x in raw]",
        {"sub/__init__.py": "from .inner import R\n", "sub/inner.py": "R = 2\n"},
        ("sub/inner.py", "2", "3"),
    ),
    "plain import of a package's submodule used through the package": (
        "import shop.sub.inner\nimport shop",
        "return [shop.sub.inner.R for x in raw]",
        {"sub/__init__.py": "", "sub/inner.py": "R = 2\n"},
        ("sub/inner.py", "2", "3"),
    ),
    "submodule used that another module imports": (
        "import shop\nfrom . import loader",
        "return [shop.sub.inner.R for x in raw]",
        {"loader.py": "import shop.sub.inner\n", "sub/__init__.py": "", "sub/inner.py": "R = 2\n"},
        ("sub/inner.py", "2", "3"),
    ),
}
SAME: dict[str, Case] = {
    "TYPE_CHECKING import": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from .t import T",
        "return raw",
        {"t.py": "class T:\n    a = 2\n"},
        ("t.py", "2", "3"),
    ),
    "generated version unused": (
        "",
        "return raw",
        {
            "__init__.py": "from ._version import version as __version__\n",
            "_version.py": "# generated by x\n__version__ = version = '1.2'\n",
        },
        ("_version.py", "1.2", "1.3"),
    ),
    "other vertex": ("", "return raw", {}, ("flights.py", "x * 7", "x * 8")),
    "test module in the package": (
        "",
        "return raw",
        {"tests/__init__.py": "", "tests/test_x.py": "def test_x(): assert 2\n"},
        ("tests/test_x.py", "2", "3"),
    ),
    "test module, computed names elsewhere": (
        "import importlib\nmod = importlib.import_module('shop.' + 'plug')",
        "return [mod.R for x in raw]",
        {"plug.py": "R=1\n", "tests/__init__.py": "", "tests/test_x.py": "def test_x(): assert 2\n"},
        ("tests/test_x.py", "2", "3"),
    ),
    "main block": (
        "",
        "return raw",
        {},
        (
            "flights.py",
            "return [x * 7 for x in raw]\n",
            "return [x * 7 for x in raw]\nif __name__ == '__main__':\n    print('x')\n",
        ),
    ),
    "pyc": (
        "",
        "return raw",
        {"__pycache__/h.cpython-311.pyc": "2", "h.py": "R=1\n"},
        ("__pycache__/h.cpython-311.pyc", "2", "3"),
    ),
    "logger name": (
        "import logging\nlog = logging.getLogger('shop.flights')",
        "return raw",
        {"h.py": "R=1\n"},
        ("h.py", "1", "2"),
    ),
    "unused sibling module": ("", "return raw", {"h.py": "R=1\n"}, ("h.py", "1", "2")),
    "README in the package, nothing reads": ("", "return raw", {"README.md": "1"}, ("README.md", "1", "2")),
    "stub": (
        "from .h import f",
        "return [f(x) for x in raw]",
        {"h.py": "def f(x): return x\n", "h.pyi": "def f(x): ...\n"},
        ("h.pyi", "x", "y"),
    ),
}


Fingerprint = Callable[[Case, bool], str]


@pytest.fixture
def fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fingerprint]:
    """The fingerprint of the vertex, before the change or after it."""

    def forget() -> None:
        for name in [name for name in sys.modules if name.partition(".")[0] == "shop"]:
            del sys.modules[name]

    def of(case: Case, is_changed: bool) -> str:
        top, body, others, (changed, old, new) = case
        files = {"__init__.py": "", "flights.py": JOB.replace("{top}", top).replace("{body}", body), **others}
        assert old in files[changed]
        root = tmp_path / str(is_changed)
        for name, text in files.items():
            path = root / "shop" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text.replace(old, new, 1) if is_changed and name == changed else text)
        forget()
        with monkeypatch.context() as patch:
            patch.syspath_prepend(root)
            patch.setattr(sys, "dont_write_bytecode", True)
            return vertex_fingerprint(importlib.import_module("shop.flights").flights, "v", {})

    yield of
    forget()


@pytest.mark.parametrize("name", DIFFERENT)
def test_fault_396_a_change_of_what_a_vertex_uses_is_noticed(name: str, fingerprint: Fingerprint) -> None:
    assert fingerprint(DIFFERENT[name], False) != fingerprint(DIFFERENT[name], True)


@pytest.mark.parametrize("name", SAME)
def test_a_change_that_no_row_depends_on_runs_nothing(name: str, fingerprint: Fingerprint) -> None:
    assert fingerprint(SAME[name], False) == fingerprint(SAME[name], True)


def without_texts(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CodeClosure, "_follow_texts", lambda *_: None)
    patch.setattr(code_pieces, "_tops_of", lambda _, uses: (use.path[0] for use in uses if use.path[0] != "pydoc"))


def without_hidden_files(patch: pytest.MonkeyPatch) -> None:
    files = code_closure.data_files
    seen = lambda name, spec: ((path, read) for path, read in files(name, spec) if "/." not in path)  # noqa: E731
    patch.setattr(code_closure, "data_files", seen)


CONTROLS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "pydoc.locate text": without_texts,
    "from pydoc import locate computed": without_texts,
    "data in a hidden folder": without_hidden_files,
}


@pytest.mark.control
@pytest.mark.parametrize("name", CONTROLS)
def test_fault_396_control_without_a_rule_the_change_is_not_noticed(
    name: str, fingerprint: Fingerprint, monkeypatch: pytest.MonkeyPatch
) -> None:
    CONTROLS[name](monkeypatch)
    assert fingerprint(DIFFERENT[name], False) == fingerprint(DIFFERENT[name], True)
