"""Parallel vertices as mapped task groups: the wiring, what each subtask reads, and keys that the run decides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task_group
from airflow.sdk.definitions.taskgroup import MappedTaskGroup
from airflow.sdk.exceptions import AirflowFailException
from airflow.serialization.serialized_objects import DagSerialization
from expected_errors import fails_with
from job_tasks import Drivers, job_dag
from tries import journal_in, run_try, state_in, task_context

from airflow_recovery.job.chains import check_length
from airflow_recovery.journal.events import JobVertexInitialized
from airflow_recovery.journal.history import read_stream
from airflow_recovery.operators import SparkJobTaskGroup, SparkRegionOperator


def new_dag(name: str, **given: Any) -> DAG:
    return job_dag(f"dagjobs.parallel:{name}", **given)


@pytest.fixture
def lake(recovery: Path) -> Path:
    lake = recovery / "lake"
    lake.mkdir()
    for name in ("a", "b"):
        (lake / f"{name}.csv").write_text(name)
    return lake


def run(dag: DAG, task: str, lake: Path, key: str | None = None) -> Any:
    """One try of a task, or of the map index that Airflow gives ``key`` to."""
    operator = dag.get_task(f"g.{task}")
    if isinstance(operator, SparkRegionOperator):
        operator.subtask = key
    context = task_context(operator.task_id, params={"lake": str(lake)})
    context["ti"].map_index = -1 if key is None else 0
    return run_try(operator, context)


def decided(dag: DAG, lake: Path) -> list[str]:
    found: list[str] = run(dag, "kept.subtasks", lake)
    return found


# --- wiring -----------------------------------------------------------------------------------------------------------


def test_a_chain_is_one_mapped_group_with_an_index_a_key() -> None:
    dag = new_dag("months")
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == {
        "g.read": {"g.cleaned"},
        "g.cleaned": {"g.total"},
        "g.total": {"g.publish"},
        "g.publish": set(),
    }
    groups = {task.task_id: task.get_closest_mapped_task_group() for task in dag.tasks}
    assert groups["g.total"] is groups["g.publish"] is None
    assert isinstance(groups["g.read"], MappedTaskGroup)
    assert groups["g.read"] is groups["g.cleaned"]
    assert groups["g.read"]._expand_input.value == {"subtask": ["jan", "feb"]}


def test_keys_of_the_run_come_from_a_task_before_everything_else() -> None:
    dag = new_dag("by_file", retries=1)
    assert {task.task_id: task.downstream_task_ids for task in dag.tasks} == {
        "g.kept.subtasks": {"g.kept"},
        "g.kept": {"g.merged"},
        "g.merged": {"g.publish"},
        "g.publish": set(),
    }
    assert dag.get_task("g.kept.subtasks").retries == 1


def test_a_group_inside_a_mapped_group_of_the_user_is_refused() -> None:
    def everything(day: Any) -> None:
        SparkJobTaskGroup(group_id="g", job="dagjobs.parallel:months")

    with (
        DAG("d", schedule=None),
        fails_with("in-mapped-group"),
    ):
        task_group(group_id="days")(everything).expand(day=[1, 2])


# --- what each subtask reads ------------------------------------------------------------------------------------------


def test_a_subtask_reads_its_own_files_and_its_own_input(recovery: Path, drivers: Drivers, lake: Path) -> None:
    dag = new_dag("months")
    for month in ("jan", "feb"):
        (lake / f"{month}.csv").write_text(month)
        assert run(dag, "read", lake, month)["region"] == f"read[{month}]"
    run(dag, "cleaned", lake, "feb")
    run(dag, "cleaned", lake, "jan")
    run(dag, "total", lake)

    specs = {spec.region: spec for spec in drivers.specs}
    assert [Path(external.uri).name for external in specs["read[feb]"].trace.externals] == ["feb.csv"]
    told = specs["cleaned[feb]"]
    assert (told.subtask.index, told.subtask.key, told.subtask.parallelism) == (1, "feb", 2)
    assert [manifest.location for manifest in told.inputs] == [f"{specs['read[feb]'].location}/read"]
    assert told.location != specs["cleaned[jan]"].location
    assert [(manifest.result, manifest.location) for manifest in specs["total"].inputs] == [
        ("cleaned", f"{specs[f'cleaned[{month}]'].location}/cleaned") for month in ("jan", "feb")
    ]
    # Nothing runs twice, and a subtask can be run again by itself.
    assert run(dag, "cleaned", lake, "jan")["decision"] == "kept"
    assert len(drivers.specs) == 5


def test_files_are_dealt_out_to_a_number_of_subtasks(recovery: Path, drivers: Drivers, lake: Path) -> None:
    (lake / "c.csv").write_text("c")
    dag = new_dag("dealt")
    for key in ("0", "1"):
        run(dag, "shown", lake, key)
    read = [[Path(one.uri).name for one in spec.trace.externals] for spec in drivers.specs]
    assert read == [["a.csv", "c.csv"], ["b.csv"]]
    for name in ("b", "c"):
        (lake / f"{name}.csv").unlink()
    with fails_with("subtask-without-splits", subtask="1"):
        run(dag, "shown", lake, "1")


# --- keys that the run decides ----------------------------------------------------------------------------------------


def test_fault_62_files_that_come_and_go_leave_the_others_where_they_are(
    recovery: Path, drivers: Drivers, lake: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dag = new_dag("by_file")
    assert decided(dag, lake) == ["a.csv", "b.csv"]
    assert decided(dag, lake) == ["a.csv", "b.csv"]
    assert len(state_in(recovery, "g", "kept.subtasks").of("kept.subtasks").attempts) == 1
    for key in ("a.csv", "b.csv"):
        run(dag, "kept", lake, key)
    (lake / "0.csv").write_text("new")
    (lake / "a.csv").unlink()
    assert decided(dag, lake) == ["b.csv", "0.csv"]
    assert "New: 0.csv. Gone: a.csv" in caplog.text

    assert run(dag, "kept", lake, "b.csv")["decision"] == "kept"
    assert run(dag, "kept", lake, "0.csv")["decision"] == "ran"
    with fails_with("subtask-vanished", by=AirflowFailException, subtask="a.csv"):
        run(dag, "kept", lake, "a.csv")
    run(dag, "merged", lake)
    assert [manifest.location.split("/")[-3] for manifest in drivers.specs[-1].inputs] == [
        "kept~5Bb.csv~5D",
        "kept~5B0.csv~5D",
    ]


def test_what_is_recorded_holds_until_the_run_decides_anew(recovery: Path, drivers: Drivers, lake: Path) -> None:
    dag = new_dag("by_file")
    decided(dag, lake)
    (lake / "c.csv").write_text("late")
    for key in ("a.csv", "b.csv"):
        run(dag, "kept", lake, key)
    run(dag, "merged", lake)
    assert len(drivers.specs[-1].inputs) == 2


def test_without_recorded_keys_nothing_runs_and_the_task_to_clear_is_named(
    recovery: Path, drivers: Drivers, lake: Path
) -> None:
    with fails_with("subtasks-not-recorded", by=AirflowFailException, group="g"):
        run(new_dag("by_file"), "merged", lake)


def test_one_plan_is_written_and_events_tell_of_the_subtasks(recovery: Path, drivers: Drivers, lake: Path) -> None:
    dag = new_dag("by_file")
    decided(dag, lake)
    run(dag, "kept", lake, "a.csv")
    (lake / "c.csv").write_text("c")
    journal = journal_in(recovery, "g")
    assert len(journal.list(()).state.plans) == 1

    decided(dag, lake)
    events = [each.event for each in read_stream(journal.store, journal.identity)]
    told = [event for event in events if isinstance(event, JobVertexInitialized)]
    assert {(event.region, event.parallelism, event.appeared, event.vanished) for event in told} == {
        ("kept", 2, ("a.csv", "b.csv"), ()),
        ("kept", 3, ("c.csv",), ()),
    }


def test_keys_of_a_run_are_put_into_batches_and_a_new_one_comes_last(
    recovery: Path, drivers: Drivers, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("c", "d"):
        (lake / f"{name}.csv").write_text(name)
    dag = new_dag("by_file", subtasks_per_task=2)
    assert decided(dag, lake) == ["a.csv..b.csv (2)", "c.csv..d.csv (2)"]
    run(dag, "kept", lake, "a.csv..b.csv (2)")
    (lake / "0.csv").write_text("new")
    assert decided(dag, lake) == ["a.csv..b.csv (2)", "c.csv..d.csv (2)", "0.csv"]
    assert run(dag, "kept", lake, "a.csv..b.csv (2)")["kept"] == 2
    # Airflow maps two at most: the batches are other ones then, and each subtask is kept all the same.
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    dag = new_dag("by_file")
    assert decided(dag, lake) == ["a.csv..c.csv (3)", "d.csv..0.csv (2)"]
    answer = run(dag, "kept", lake, "a.csv..c.csv (3)")
    assert (answer["kept"], answer["ran"]) == (2, 1)


def test_batches_of_a_run_that_are_declared_too_small_are_refused(
    recovery: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "1")
    with fails_with("too-many-task-instances", by=AirflowFailException, expected=1, found=2):
        decided(new_dag("by_file", subtasks_per_task=1), lake)
    check_length(1, 1, 1, "g")


def test_the_mapping_survives_serialisation_and_nothing_in_it_is_random() -> None:
    for name in ("months", "by_file"):
        document = DagSerialization.to_dict(new_dag(name))
        read: Any = DagSerialization.from_dict(document)
        mapped = next(task for task in read.tasks if task.task_id in ("g.cleaned", "g.kept"))
        assert mapped.get_closest_mapped_task_group() is not None
        assert DagSerialization.to_dict(new_dag(name)) == document
