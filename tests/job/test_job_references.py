from __future__ import annotations

import ast
import textwrap

import pytest

from airflow_recovery.job.references import ImportTarget, Reference, references


def uses(code: str) -> set[str]:
    tree = ast.parse(textwrap.dedent(code))
    return {".".join(reference.path) for reference in references(tree.body) if reference.imported is None}


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f(a, *b, c=D, **e): return a, b, c, e, G", {"D", "G"}),
        ("def f(a: A) -> B: x: X = a; return x", {"A", "B", "X"}),
        ("def f():\n    helper = 1\n    return helper", set()),
        ("def f():\n    for a, (b, *c) in X: yield a, b, c", {"X"}),
        ("def f():\n    with X as a, Y() as (b, c): return a, b, c", {"X", "Y"}),
        ("def f():\n    try: pass\n    except X as error: return error", {"X"}),
        ("def f():\n    if (a := X): return a", {"X"}),
        ("def f():\n    return [a for b in X if (a := b)], a", {"X"}),
        ("def f():\n    def inner(): return f2(x)\n    x = 1\n    return inner", {"f2"}),
        ("def f():\n    x = 1\n    def inner():\n        nonlocal x\n        x += Y\n    return inner", {"Y"}),
        ("def f():\n    global counter\n    counter = 1", {"counter"}),
        ("def f():\n    match X:\n        case {'k': [a, *b], **c} | C.d(a, b, c): return a, b, c", {"X", "C.d"}),
        ("def f():\n    return lambda a, b=B: a + b + C", {"B", "C"}),
        ("f = [x for x in X for y in x if y]", {"X"}),
        ("f = [x for x in x]", {"x"}),
        ("def f(): return {k: v for k, v in X}, k", {"X", "k"}),
        ("class C(Base, metaclass=Meta): x: int = Default", {"Base", "Meta", "int", "Default"}),
        ("class C:\n    def method(self): return other(self)", {"other"}),
        ("@decorated(X.y)\ndef f(): pass", {"decorated", "X.y"}),
        ("def f(): return a.b.c, d().e, f'{g.h:{i}}'", {"a.b.c", "d", "g.h", "i"}),
        ("async def f():\n    async with A as b:\n        return await b.c(D)", {"A", "D"}),
    ],
)  # fmt: skip
def test_names_used_from_outside(code: str, expected: set[str]) -> None:
    assert uses(code) == expected


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import a.b\n    return a.b.c", Reference(("a", "b", "c"), ImportTarget("a"))),
        ("import a.b as m\n    return m.c", Reference(("m", "c"), ImportTarget("a.b"))),
        ("from a import b as c\n    return c.d", Reference(("c", "d"), ImportTarget("a", 0, "b"))),
        ("from ..a import b\n    return b", Reference(("b",), ImportTarget("a", 2, "b"))),
        ("from . import b\n    return lambda: b.x", Reference(("b", "x"), ImportTarget("", 1, "b"))),
    ],
)
def test_imports_inside_a_function(code: str, expected: Reference) -> None:
    assert references(ast.parse(f"def f():\n    {code}\n").body) == {expected}


def test_an_import_in_a_class_body_counts_used_or_not() -> None:
    tree = ast.parse("class C:\n    from a import b\n    x = b\n")
    assert Reference(("b",), ImportTarget("a", 0, "b")) in references(tree.body)


def test_decorators_left_out_do_not_hide_the_same_name_elsewhere() -> None:
    tree = ast.parse("@job.vertex(n=LIMIT)\n@traced\ndef f(): return LIMIT\n")
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    found = references(tree.body, without=[function.decorator_list[0]])
    assert {reference.path for reference in found} == {("traced",), ("LIMIT",)}
