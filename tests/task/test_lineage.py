"""Lineage of real tries: the same datasets for an attempt that ran and for one that was kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from job_tasks import Drivers, job_dag
from tries import task_context

from airflow_recovery.task.lineage import Lineage, LineageDataset


def lineage_of_try(operator: Any, **changes: Any) -> Lineage:
    """What OpenLineage's provider would be told: Airflow runs a copy of the task, and asks that one."""
    from airflow.sdk.bases.operator import ExecutorSafeguard

    context = task_context(operator.task_id, **changes)
    task = operator.prepare_for_execution()
    task.render_template_fields(context)
    task.execute(context=context, **{f"{type(task).__name__}__sentinel": ExecutorSafeguard.sentinel_value})
    return task._lineage


def test_what_regions_read_and_make(recovery: Path, drivers: Drivers) -> None:
    (recovery / "lake").mkdir()
    (recovery / "lake" / "a.csv").write_text("1")
    params = {"lake": str(recovery / "lake")}
    region = {task.region: task for task in job_dag("dagjobs.shapes:diamond").tasks if hasattr(task, "region")}
    cleaned = lineage_of_try(region["cleaned"], params=params)
    assert cleaned.inputs == (LineageDataset("file", str(recovery / "lake"), bytes=1, files=1),)
    (made,) = cleaned.outputs
    assert (made.namespace, made.name, made.attempt) == ("airflow-recovery", "d.g.cleaned", 1)
    assert made.location == drivers.specs[0].location + "/cleaned"
    left = lineage_of_try(region["left"], params=params)
    assert [(dataset.name, dataset.attempt) for dataset in left.inputs] == [("d.g.cleaned", 1)]
    kept = lineage_of_try(region["left"], params=params, try_number=2)
    assert (kept.inputs, kept.outputs) == (left.inputs, left.outputs)
    assert [(run.decision, run.run_key) for run in (*left.runs, *kept.runs)] == [
        ("ran", "date-2024-01-02T000000Z"),
        ("kept", "date-2024-01-02T000000Z"),
    ]


def test_splits_that_are_no_files_are_left_out() -> None:
    from airflow_recovery.model.split import Split
    from airflow_recovery.task.lineage import _folders_read

    read = [Split.of("2013-01-31"), Split("s3://lake/days/a.csv", 9, "e1")]
    folders = list(_folders_read(each.external("raw") for each in read))
    assert folders == [LineageDataset("s3://lake", "days", bytes=9, files=1)]


def test_an_own_location_is_named_as_openlineage_names_files() -> None:
    from airflow_recovery.model.manifest import PartitionManifest
    from airflow_recovery.model.records import RunIdentity
    from airflow_recovery.task.lineage import _made

    identity = RunIdentity("d", "run-r", "(operators)")
    own = PartitionManifest("clean.out", "s3a://lake/clean/2024/", (), managed=False)
    assert (_made(identity, 1, own).namespace, _made(identity, 1, own).name) == ("s3://lake", "clean/2024")
    box = PartitionManifest("clean.out", "abfs://c@acc.dfs.core.windows.net/clean/", (), managed=False)
    assert _made(identity, 1, box).namespace == "abfss://c@acc.dfs.core.windows.net"
    assert _made(identity, 1, replace(box, location="gs://lake/clean")).namespace == "gs://lake"
    managed = PartitionManifest("clean.out", "s3://results/x/1/out", ())
    assert _made(identity, 1, managed).name == "d.clean.out"
