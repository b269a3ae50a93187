"""Parallel vertices as mapped task groups, in real Airflow with real Spark.

months      read[m] --> cleaned[m] --> total --> counted[part]      12 months; the parts are decided by the run
parts       made --> counted[part]                                  the same, by itself
by_file     raw[file] --> cleaned[file] --> merged                  two files a task instance: a b | c d
"""

from __future__ import annotations

from pathlib import Path

import pytest
from files_in_batches import FILES, lose_an_input_while_a_neighbour_is_at_work, write_file
from journal_objects import JournalObjects
from pipeline import DagRun, Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

MONTHS = [f"2013-{month:02}" for month in range(1, 13)]
ROWS = {month: (int(month[-2:]) + 1) // 2 for month in MONTHS}


def of(vertex: str, keys: list[str]) -> dict[str, int]:
    return {f"{vertex}[{key}]": 1 for key in keys}


def states(run: DagRun) -> dict[str, tuple[str, int]]:
    found = run.airflow.task_instances(run.dag_id, run.run_id)
    return {
        f"{instance['task_id']}|{instance['map_index']}": (instance["state"], instance["try_number"])
        for instance in found
    }


def failures(journal: JournalObjects) -> list[tuple[str, int, object]]:
    """For a failure of a test: why attempts ended without a result."""
    return [
        (region, number, each.outcome.get("detail"))
        for region, attempts in journal.attempts.items()
        for number, each in attempts.items()
        if not each.is_finished
    ]


@pytest.fixture(scope="module")
def months(pipeline: Pipeline) -> DagRun:
    """One month's code raises once, another one's input is lost meanwhile."""
    run = pipeline.run("months", {"parts": "a,b,c,d"}, name="months")
    run.make_fail_once("cleaned-2013-07")
    run.hold("cleaned-2013-04")
    run.make_fail_once("cleaned-2013-04")
    run.start()
    run.wait_called("cleaned-2013-04")
    run.delete_outputs("read[2013-04]")
    run.release("cleaned-2013-04")
    run.ends()
    return run


@pytest.mark.drill
def test_one_month_fails_and_one_loses_its_input_exactly_these_run_again(months: DagRun) -> None:
    journal = months.journal()
    journal.check()
    once = {**of("read", MONTHS), **of("cleaned", MONTHS), **of("counted", list("abcd"))}
    expected = {**once, "total": 1, "counted.subtasks": 1}
    expected |= {"read[2013-04]": 2, "cleaned[2013-04]": 2, "cleaned[2013-07]": 2}
    assert journal.executions() == expected, failures(journal)
    assert journal.rows("total") == sorted((ROWS[month], month) for month in MONTHS)
    # In Airflow, too, the other map indexes had one try.
    tries = {key: tried for key, (_, tried) in states(months).items() if tried > 1}
    assert set(tries) == {"g.read|3", "g.cleaned|3", "g.cleaned|6"}
    label = months.airflow.task_instance(months.dag_id, months.run_id, "g.cleaned", 6)["rendered_map_index"]
    assert label == "2013-07"


@pytest.mark.drill
def test_a_cleared_index_is_kept_and_so_are_its_neighbours(months: DagRun) -> None:
    before = months.journal()
    cleared = months.airflow.clear(months.dag_id, months.run_id, [("g.cleaned", 6)], downstream=True)
    assert sorted(cleared) == ["g.cleaned", *["g.counted"] * 4, "g.publish", "g.total"]
    assert months.ends().ran_since(before) == {}


@pytest.mark.drill
def test_four_consumers_lose_one_result_at_once_and_it_is_made_once(months: DagRun) -> None:
    before = months.journal()
    months.delete_outputs("total", *of("counted", list("abcd")))
    months.airflow.clear(months.dag_id, months.run_id, ["g.counted"])
    journal = months.ends()
    journal.check()
    assert journal.ran_since(before) == {"total": 1, **of("counted", list("abcd"))}, failures(journal)


@pytest.mark.drill
def test_fault_62_a_list_of_keys_that_is_ordered_differently_keeps_its_results(pipeline: Pipeline) -> None:
    """Without Airflow: `tests/attempt/test_job_plan.py`; a list that grows, in Airflow: below."""
    run = pipeline.run("parts", {"parts": "a,b,c"})
    before = run.start().ends()
    run.forget()
    run.conf["parts"] = "d,c,b"
    journal = run.start().ends()
    assert journal.ran_since(before) == {"counted.subtasks": 1, "counted[d]": 1}, failures(journal)
    del journal.attempts["counted[a]"]  # it has gone from the list: what it made is left alone, and not published
    journal.check()
    # Recorded ones keep their order, the new one is the last.
    assert run.airflow.xcom(run.dag_id, run.run_id, "g.counted.subtasks") == ["b", "c", "d"]
    assert {key for key in states(run) if key.startswith("g.counted|")} == {f"g.counted|{at}" for at in range(3)}


# --- a subtask a file, in batches -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def by_file(pipeline: Pipeline) -> DagRun:
    """Beside that, the code of `b`, which shares a task with `a`, raises once."""
    run = lose_an_input_while_a_neighbour_is_at_work(pipeline)
    run.release("raw-a.csv")
    run.ends()
    return run


@pytest.mark.smoke
def test_one_of_a_batch_fails_and_one_of_another_loses_its_input_exactly_these_run_again(by_file: DagRun) -> None:
    journal = by_file.journal()
    journal.check()
    expected = {**of("raw", FILES), **of("cleaned", FILES), "raw.subtasks": 1, "merged": 1}
    expected |= {"cleaned[b.csv]": 2, "raw[c.csv]": 2, "cleaned[c.csv]": 2}
    assert journal.executions() == expected, failures(journal)
    assert sorted(journal.rows("merged")) == sorted((name, ord(name[0])) for name in FILES)
    # In Airflow a batch is one map index: those that have something to do again.
    tries = {key: tried for key, (_, tried) in states(by_file).items() if "|-1" not in key}
    assert tries == {"g.raw|0": 1, "g.raw|1": 2, "g.cleaned|0": 2, "g.cleaned|1": 2}
    label = by_file.airflow.task_instance(by_file.dag_id, by_file.run_id, "g.cleaned", 1)["rendered_map_index"]
    assert label == "c.csv..d.csv (2)"
    said = by_file.airflow.xcom(by_file.dag_id, by_file.run_id, "g.raw.subtasks")
    assert said == ["a.csv..b.csv (2)", "c.csv..d.csv (2)"]


def test_fault_62_a_file_that_has_come_is_the_only_one_that_runs(by_file: DagRun) -> None:
    before = by_file.journal()
    write_file(Path(by_file.conf["lake"].removeprefix("file://")), "0.csv")
    by_file.airflow.clear(by_file.dag_id, by_file.run_id, ["g.raw.subtasks"], downstream=True)
    journal = by_file.ends()
    journal.check()
    # Recorded ones keep their order and their batches; the new one has a map index of its own.
    expected = {"raw.subtasks": 1, "raw[0.csv]": 1, "cleaned[0.csv]": 1, "merged": 1}
    assert journal.ran_since(before) == expected, failures(journal)
    assert {key for key in states(by_file) if key.startswith("g.cleaned|")} == {f"g.cleaned|{at}" for at in range(3)}
