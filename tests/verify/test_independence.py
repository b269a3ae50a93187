"""What checks the product must not believe it: no rules are shared, nothing is written."""

from __future__ import annotations

import ast
from pathlib import Path

import fakes
import pytest
from spoiled_journal import Spoiled

import airflow_recovery.verify as package
from airflow_recovery.model import names as product_names
from airflow_recovery.testing import CountingStore, Verb
from airflow_recovery.verify import names

MODULES = sorted(Path(package.__file__).parent.glob("*.py"))
ALLOWED = (
    *("airflow_recovery.verify", "airflow_recovery.store.object_store", "airflow_recovery.errors"),
    "airflow_recovery.escaping",
)


@pytest.mark.parametrize("path", MODULES, ids=[module.stem for module in MODULES])
def test_it_shares_stores_errors_and_escaping_with_the_product_and_nothing_else(path: Path) -> None:
    modules = {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("airflow_recovery")
    }
    assert [module for module in modules if not module.startswith(ALLOWED)] == []


@pytest.mark.parametrize(
    "name", ["raw", "by_month[2013-01]", ".hidden", "_x", "a/b", "ä%~", "g" * 101, "é" * 60, "a.b"]
)
def test_its_own_names_are_the_products(name: str) -> None:
    assert names.encoded(name) == product_names.encode(name)
    if "~~" not in names.encoded(name):
        assert names.decoded(names.encoded(name)) == name


def test_it_reads_every_object_once_and_writes_nothing(published: Spoiled) -> None:
    journal, results = CountingStore(published.journal), CountingStore(published.results)
    published.journal, published.results = journal, results
    published.verify(ended=True)
    read = [key for verb, key in journal.requests if verb is Verb.GET]
    assert len(read) == len(set(read)) == len(list(journal.inner.list("")))
    assert journal.count(Verb.LIST) == 2
    assert results.counts() == {Verb.LIST: 1}
    assert set(journal.counts()) == {Verb.LIST, Verb.GET}


@pytest.mark.slow
def test_all_results_of_a_run_are_one_listing() -> None:
    world = fakes.World({f"r{at}": () for at in range(200)})
    world.go_all()
    results = CountingStore(world.results)
    spoiled = Spoiled(world)
    spoiled.results = results
    assert spoiled.verify().violated == ()
    assert results.counts() == {Verb.LIST: 1}
