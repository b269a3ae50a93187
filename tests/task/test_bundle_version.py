"""``[recovery] code_version = bundle``: the version of the DAG bundle is in the fingerprint of every task."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from job_tasks import GROUP, Drivers, job_dag
from test_drop_in_application import dag_of
from tries import journal_in, run_try, task_context

from airflow_recovery import BLOCKING_PERSISTENT, job
from airflow_recovery.attempt.job_plan import plan_job
from airflow_recovery.attempt.shared_code import shared_fingerprint
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.job import Job
from airflow_recovery.model import components
from airflow_recovery.model.keys import OPERATORS_GROUP

OLD, NEW = "0c4b1a7", "f2d9e03"
FACTS = RunFacts("2026-01-01T00:00:00+00:00", None, None, {}, {})


@pytest.fixture
def counts(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__CODE_VERSION", "bundle")


def region() -> Any:
    return next(task for task in job_dag("dagjobs.shapes:diamond").tasks if task.task_id == "g.aside")


def operator(**given: Any) -> Any:
    return dag_of({"task_id": "t", **given})["t"]


def try_of(task: Any, try_number: int, version: str | None, checked_out: object = None) -> str:
    """``version``: that of the run. ``checked_out``: that of the folder, for a run without one."""
    context = task_context(task.task_id, try_number=try_number)
    context["ti"].bundle_instance = SimpleNamespace(
        name="dags", version=version, get_current_version=lambda: checked_out
    )
    return str(run_try(task, context)["decision"])


def decisions(make: Any) -> list[str]:
    return [try_of(make(), number + 1, version) for number, version in enumerate((OLD, OLD, NEW))]


@pytest.mark.parametrize("make", [region, operator], ids=["a region", "an operator"])
def test_another_version_of_the_bundle_runs_a_task_again(
    make: Any, counts: None, recovery: Path, submitted: Path, drivers: Drivers
) -> None:
    assert decisions(make) == ["ran", "kept", "ran"]
    name, group = ("aside", GROUP) if make is region else ("t", OPERATORS_GROUP)
    journal = journal_in(recovery, group)
    recorded = journal.read_components(journal.read_claim(name, 2).components or "")
    assert [each.value for each in recorded if each.name == "bundle version"] == [NEW]


@pytest.mark.control
@pytest.mark.parametrize("make", [region, operator], ids=["a region", "an operator"])
def test_control_without_the_component_what_another_commit_has_made_is_kept(
    make: Any, counts: None, submitted: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("attempt.job_plan", "operators.drop_in"):
        monkeypatch.setattr(f"airflow_recovery.{module}.bundle_version", lambda version: ())
    assert decisions(make) == ["ran", "kept", "kept"]


def test_unless_it_is_set_a_version_does_not_count(recovery: Path, submitted: Path) -> None:
    assert decisions(operator) == ["ran", "kept", "kept"]


def test_a_run_without_a_version_has_that_of_the_folder(counts: None, submitted: Path) -> None:
    """If bundles' versions are switched off in Airflow. A newer bundle returns an object."""
    assert try_of(operator(), 1, OLD) == "ran"
    assert try_of(operator(), 2, None, OLD) == "kept"
    assert try_of(operator(), 3, None, SimpleNamespace(version=OLD, data=None)) == "kept"
    assert try_of(operator(), 4, None, NEW) == "ran"


@pytest.mark.parametrize("make", [region, operator], ids=["a region", "an operator"])
def test_a_bundle_without_versions_is_refused_by_the_name_of_the_setting(
    make: Any, counts: None, submitted: Path, drivers: Drivers
) -> None:
    with fails_with("bundle-without-version", by=AirflowFailException, bundle="dags"):
        try_of(make(), 1, None)


def test_a_task_that_does_not_recover_needs_no_version(counts: None, submitted: Path) -> None:
    off = {"execution.batch.job-recovery.enabled": False}
    assert try_of(operator(job_recovery=off), 1, None) == "ran"


def test_another_value_is_refused(counts: None, submitted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__CODE_VERSION", "git")
    with fails_with("setting-unfit", by=AirflowFailException, option="code_version"):
        try_of(operator(), 1, OLD)


# --- shared results ---------------------------------------------------------------------------------------------------


def rates() -> Job:
    made = job("rates", version="1")

    @made.source(result=BLOCKING_PERSISTENT, version="1")
    def read(spark: Any) -> Any: ...

    @made.sink(version="1")
    def cleaned(read: Any) -> Any: ...

    return made


def fingerprints(code_version: str) -> dict[str, str | None]:
    planned = plan_job(rates(), "x:y", FACTS, code_version=code_version)
    return {region.name: region.fingerprint for region in planned.record.regions}


def test_a_shared_result_is_found_by_every_version() -> None:
    old, new = fingerprints(OLD), fingerprints(NEW)
    assert [name for name in old if old[name] != new[name]] == ["cleaned"]
    assert fingerprints("")["read"] == new["read"]
    planned = plan_job(rates(), "x:y", FACTS, code_version=NEW)
    assert [each.name for each in planned.components_of("read") if each in components.bundle_version(NEW)] == []
    assert planned.components_of("cleaned")[-1:] == components.bundle_version(NEW)


@pytest.mark.control
def test_control_with_the_version_in_its_key_each_version_makes_a_shared_result_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def keys() -> set[str | None]:
        found = set()
        for version in (OLD, NEW):
            monkeypatch.setattr(
                "airflow_recovery.attempt.job_plan.shared_fingerprint",
                lambda *given, version=version: components.fingerprint_of(
                    [
                        *components.components_of([("f", shared_fingerprint(*given))]),
                        *components.bundle_version(version),
                    ]
                ),
            )
            found.add(fingerprints(version)["read"])
        return found

    assert len(keys()) == 2
