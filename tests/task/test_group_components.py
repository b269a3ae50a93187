"""What a task group's arguments add to the fingerprints of its declared job (fault 394)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from job_tasks import Drivers, job_dag
from test_bundle_version import rates
from tries import journal_in, run_try, task_context

from airflow_recovery.attempt import job_plan
from airflow_recovery.attempt.job_plan import plan_job
from airflow_recovery.attempt.shared_code import shared_fingerprint
from airflow_recovery.driver.region_spec import RunFacts
from airflow_recovery.errors import FingerprintError
from airflow_recovery.model.components import Component
from airflow_recovery.task import open_run
from airflow_recovery.task.group_components import group_components

JOB = "dagjobs.shapes:diamond"
FACTS = RunFacts("2026-01-01T00:00:00+00:00", None, None, {"zone": "UTC"}, {})
ZONE = "spark.sql.session.timeZone"


def of_group(**given: Any) -> tuple[Component, ...]:
    return group_components(job_dag(JOB, **given), "g", FACTS)


def decision(number: int, **given: Any) -> str:
    task = next(task for task in job_dag(JOB, **given).tasks if task.task_id == "g.aside")
    return str(run_try(task, task_context("g.aside", try_number=number))["decision"])


def test_fault_394_another_setting_of_the_group_runs_its_regions_again(
    recovery: Path, submitted: Path, drivers: Drivers
) -> None:
    settings = [{ZONE: "UTC"}, {ZONE: "UTC", "spark.executor.memory": "2g"}, {ZONE: "Europe/Berlin"}]
    decisions = [decision(number + 1, conf=conf) for number, conf in enumerate(settings)]
    assert decisions == ["ran", "kept", "ran"]
    journal = journal_in(recovery, "g")
    recorded = journal.read_components(journal.read_claim("aside", 2).components or "")
    assert [each.value for each in recorded if each.name == f"setting {ZONE}"] == ['"Europe/Berlin"']


@pytest.mark.control
def test_fault_394_control_without_the_groups_arguments_the_rows_of_another_zone_are_kept(
    recovery: Path, submitted: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run, "group_components", lambda *_: ())
    assert [decision(1, conf={ZONE: "UTC"}), decision(2, conf={ZONE: "Europe/Berlin"})] == ["ran", "kept"]


def test_fault_394_a_jar_of_the_group_counts_by_its_content(tmp_path: Path) -> None:
    jar = tmp_path / "one.jar"
    jar.write_text("one")
    before = of_group(jars=str(jar))
    assert [each.name for each in before] == ["jars one.jar"]
    assert of_group(jars=str(jar)) == before
    jar.write_text("two")
    assert of_group(jars=str(jar)) != before


@pytest.mark.parametrize("name", ["py_files", "files", "archives", "driver_class_path", "properties_file"])
def test_fault_394_each_argument_that_names_files_counts(name: str, tmp_path: Path) -> None:
    path = tmp_path / "given"
    path.write_text(f"{ZONE} UTC\n")
    before = of_group(**{name: str(path)})
    path.write_text(f"{ZONE} Europe/Berlin\n")
    assert of_group(**{name: str(path)}) != before


def test_fault_394_packages_count_by_their_names_and_those_that_can_change_are_unseen() -> None:
    fixed, loose = of_group(packages="g:a:1.0,g:b:1.0-SNAPSHOT")
    assert (fixed.value, fixed.seen) == ("g:a:1.0", True)
    assert (loose.value, loose.seen) == ("g:b:1.0-SNAPSHOT", False)


def test_fault_394_a_template_over_the_run_counts_as_rendered_and_any_other_as_written() -> None:
    found = of_group(conf={ZONE: "{{ conf.zone }}", "spark.x": "{{ ti.task_id }}"}, default_args={"jars": ""})
    assert [each.value for each in found] == ['"UTC"', '"{{ ti.task_id }}"']


def test_fault_394_an_image_is_shown_and_does_not_decide() -> None:
    (image,) = of_group(conf={"spark.kubernetes.container.image": "etl:1", "spark.executor.memory": "1g"})
    assert (image.name, image.decides) == ("image etl:1", False)


def test_fault_394_default_arguments_count_too() -> None:
    assert of_group(default_args={"conf": {ZONE: "UTC"}}) == of_group(conf={ZONE: "UTC"}) != ()


def test_without_stores_code_in_a_store_can_not_be_known() -> None:
    with pytest.raises(FingerprintError, match=r"g: expected to read .*s3a://code/one\.jar here: only a task can"):
        of_group(jars="s3a://code/one.jar")


def test_a_group_without_such_arguments_adds_nothing() -> None:
    assert of_group(pool="default_pool", executor_memory="1g") == ()
    assert group_components(None, "g", FACTS) == ()


def test_fault_394_a_shared_result_has_another_key() -> None:
    """Two DAGs with other settings must not share rows. The version of a bundle is not in the key."""
    declared = rates()
    zone = [Component(f"setting {ZONE}", "UTC")]
    prints = [
        {name: each for region in plan_job(declared, "x:y", FACTS, of_group=given).record.regions
         for name, each in region.vertex_fingerprints}
        for given in ((), zone, zone)
    ]  # fmt: skip
    assert prints[0]["read"] != prints[1]["read"] == prints[2]["read"]
    bare = job_plan.vertex_fingerprint(declared, "read", {}, code=job_plan.JobCode(declared).of("read"))
    assert prints[0]["read"] == shared_fingerprint(declared, "read", bare)
