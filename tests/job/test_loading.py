from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_recovery import JobDefinitionError, load_job


@pytest.fixture(autouse=True)
def lake_jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    package = tmp_path / "lake_jobs"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "flights.py").write_text("from airflow_recovery import job\nflights = job('flights')\nother = 1\n")
    (package / "empty.py").touch()
    (package / "broken.py").write_text("import surely_not_installed\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    for name in [module for module in sys.modules if module.partition(".")[0] == "lake_jobs"]:
        del sys.modules[name]


def test_a_job_is_loaded_by_reference_and_remembers_it() -> None:
    loaded = load_job("lake_jobs.flights:flights")
    assert (loaded.name, loaded.module_ref) == ("flights", "lake_jobs.flights:flights")
    assert load_job("lake_jobs.flights:flights") is loaded


@pytest.mark.parametrize("reference", ["lake_jobs.flights", "lake_jobs/flights.py:flights", ":flights", "a:b:c", ""])
def test_a_reference_has_two_parts(reference: str) -> None:
    with pytest.raises(JobDefinitionError, match=r"'package\.module:name'"):
        load_job(reference)


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("lake_jobs.flihgts:flights", "no module 'lake_jobs.flihgts' on this machine's Python path"),
        ("nowhere.flights:flights", "no module 'nowhere'"),
        ("lake_jobs.flights:flihgts", r"a Job named 'flihgts', found nothing; its jobs are flights \(did you mean"),
        ("lake_jobs.flights:other", "found a int; its jobs are flights"),
        ("lake_jobs.empty:flights", "the module holds no job at all"),
    ],
)  # fmt: skip
def test_a_wrong_reference_says_which_part(reference: str, text: str) -> None:
    with pytest.raises(JobDefinitionError, match=text):
        load_job(reference)


def test_an_import_that_fails_inside_the_module_is_its_own_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        load_job("lake_jobs.broken:flights")
