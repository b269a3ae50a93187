"""Many small changes of a package: each changes a vertex's fingerprint, or does not change its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from changed_code import MUTATIONS, NAMED, PACKAGE, Change, Outcome, changes, named, outcome

from airflow_recovery.job import code_closure, code_pieces
from airflow_recovery.job.code_closure import CodeClosure, CodeModules

SEED = 20_261_128


def imported(package: dict[str, str], folder: Path) -> Outcome:
    found = outcome(package, folder)
    assert found is not None
    return found


def kept_wrongly(made: Iterable[Change], folder: Path) -> list[str]:
    """The vertices whose rows a change alters, and whose fingerprint it does not."""
    before = imported(PACKAGE, folder)
    found, others = [], Counter[str]()
    for change in made:
        after = outcome(change.package, folder)
        if after is None:
            continue  # it can't be imported, so nothing runs
        for vertex in before.rows.keys() & after.rows.keys():
            if before.rows[vertex] != after.rows[vertex]:
                others[change.kind] += 1
                if before.fingerprints[vertex] == after.fingerprints[vertex]:
                    found.append(f"{change.kind} in {change.file}: {vertex}")
    assert others, "expected changes that alter rows, found none"
    return found


def test_a_change_of_code_changes_the_fingerprint_or_not_the_rows(tmp_path: Path) -> None:
    assert kept_wrongly(changes(SEED, 30), tmp_path) == []


@pytest.mark.drill
def test_a_thousand_changes_of_code_change_the_fingerprint_or_not_the_rows(tmp_path: Path) -> None:
    made = list(changes(SEED + 1, 1_000))
    assert {change.kind for change in made} == {"data file", *MUTATIONS}
    assert kept_wrongly(made, tmp_path) == []


def test_each_named_change_alters_rows_and_the_fingerprint(tmp_path: Path) -> None:
    before = imported(PACKAGE, tmp_path)
    for name, (*_, vertex) in NAMED.items():
        after = imported(dict(named(name).package), tmp_path)
        assert before.rows[vertex] != after.rows[vertex], name
        assert before.fingerprints[vertex] != after.fingerprints[vertex], name


def test_a_change_of_one_vertex_moves_no_other_but_those_that_compute_names(tmp_path: Path) -> None:
    before = imported(PACKAGE, tmp_path)
    after = imported(
        {**PACKAGE, "shop/flights.py": PACKAGE["shop/flights.py"].replace("query[1:3]", "query[1:4]")}, tmp_path
    )
    moved = {name for name in before.rows if before.fingerprints[name] != after.fingerprints[name]}
    assert moved == {"placed", "wired"}


def follow_names_only(patch: pytest.MonkeyPatch) -> None:
    """The earlier walk: a statement counts only if a name that is used leads to it."""
    register = CodeClosure._register

    def registered(self: CodeClosure, piece: Any) -> None:
        if piece.names or piece.imports is not None:
            register(self, piece)

    patch.setattr(CodeClosure, "_register", registered)


def computes_nothing(patch: pytest.MonkeyPatch) -> None:
    uses = code_pieces._uses
    patch.setattr(code_pieces, "_uses", lambda piece: replace(uses(piece), computes=False))


def every_decorator_only_wraps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CodeModules, "only_wraps", lambda *_: True)


def without(name: str) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(code_closure, name, frozenset())


def no_data_files(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CodeClosure, "_data_units", lambda self: ())


def no_order(patch: pytest.MonkeyPatch) -> None:
    units_of = CodeClosure._units_of
    patch.setattr(code_closure, "_hash", lambda texts: str(sorted(texts)))
    patch.setattr(CodeClosure, "_units_of", lambda *given: replace(units_of(*given), order=""))


def no_parents(patch: pytest.MonkeyPatch) -> None:
    add = CodeClosure._add_module
    patch.setattr(CodeClosure, "_add_module", lambda self, name: name != "shop" and add(self, name))


CONTROLS = {
    "follow names only": (follow_names_only, "an effect of a module"),
    "follow names only, attributes": (follow_names_only, "attributes as targets"),
    "follow names only, loops": (follow_names_only, "loop targets"),
    "follow names only, branches": (follow_names_only, "a branch of a module"),
    "computed names": (computes_nothing, "a computed name"),
    "registered functions": (every_decorator_only_wraps, "a registered function"),
    "data files": (no_data_files, "a data file"),
    "docstrings": (without("_DOCSTRING_READERS"), "a docstring that is read"),
    "order": (no_order, "the order of imports"),
    "packages": (no_parents, "an effect of a package"),
}


@pytest.mark.parametrize("case", CONTROLS)
def test_control_without_a_rule_a_change_is_kept_wrongly(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    switch_off, name = CONTROLS[case]
    switch_off(monkeypatch)
    assert kept_wrongly([named(name)], tmp_path) == [f"{name} in {NAMED[name][0]}: {NAMED[name][3]}"]
