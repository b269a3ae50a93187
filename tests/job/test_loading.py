from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from expected_errors import fails_with

from airflow_recovery import load_job


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
    with fails_with("job-reference-unfit"):
        load_job(reference)


@pytest.mark.parametrize(
    ("reference", "code"),
    [
        ("lake_jobs.flihgts:flights", "job-module-missing"),
        ("nowhere.flights:flights", "job-module-missing"),
        ("lake_jobs.flights:flihgts", "job-not-in-module"),
        ("lake_jobs.flights:other", "job-not-in-module"),
        ("lake_jobs.empty:flights", "job-not-in-module"),
    ],
)  # fmt: skip
def test_a_wrong_reference_says_which_part(reference: str, code: str) -> None:
    with fails_with(code):
        load_job(reference)


def test_an_import_that_fails_inside_the_module_is_its_own_error() -> None:
    with pytest.raises(ModuleNotFoundError, match="surely_not_installed"):
        load_job("lake_jobs.broken:flights")
