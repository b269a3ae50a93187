"""Parallel vertices as mapped task groups, in real Airflow with real Spark.

read[m] --> cleaned[m] --+--> total --> counted[part]        12 months; the parts are decided by the run
"""

from __future__ import annotations

from pathlib import Path

import pytest
from journal_objects import JournalObjects
from pipeline import DagRun, Pipeline

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

MONTHS = [f"2013-{month:02}" for month in range(1, 13)]
ROWS = {month: (int(month[-2:]) + 1) // 2 for month in MONTHS}


def of(vertex: str, keys: list[str]) -> dict[str, int]:
    return {f"{vertex}[{key}]": 1 for key in keys}


def delete(journal: JournalObjects, region: str) -> None:
    """The registered files of one region's current attempt."""
    for each in journal.attempts[region][journal.current(region)].outcome["outputs"]:
        for path, _, _ in each["objects"]:
            (Path(each["location"].removeprefix("file://")) / path).unlink()


def states(run: DagRun) -> dict[str, tuple[str, int]]:
    found = run.airflow.task_instances(run.dag_id, run.run_id)
    return {f"{each['task_id']}|{each['map_index']}": (each["state"], each["try_number"]) for each in found}


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
    delete(run.journal(), "read[2013-04]")
    run.release("cleaned-2013-04")
    run.ends()
    return run


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


def test_a_cleared_index_is_kept_and_so_are_its_neighbours(months: DagRun) -> None:
    before = months.journal()
    cleared = months.airflow.clear(months.dag_id, months.run_id, [("g.cleaned", 6)], downstream=True)
    assert sorted(cleared) == ["g.cleaned", *["g.counted"] * 4, "g.publish", "g.total"]
    assert months.ends().ran_since(before) == {}


def test_four_consumers_lose_one_result_at_once_and_it_is_made_once(months: DagRun) -> None:
    before = months.journal()
    for region in ("total", *of("counted", list("abcd"))):
        delete(before, region)
    months.airflow.clear(months.dag_id, months.run_id, ["g.counted"])
    journal = months.ends()
    journal.check()
    assert journal.ran_since(before) == {"total": 1, **of("counted", list("abcd"))}, failures(journal)


def test_fault_62_a_list_of_keys_that_is_ordered_differently_keeps_its_results(months: DagRun) -> None:
    before = months.journal()
    months.forget()
    months.conf["parts"] = "e,d,c,b"
    journal = months.start().ends()
    assert journal.ran_since(before) == {"counted.subtasks": 1, "counted[e]": 1}, failures(journal)
    del journal.attempts["counted[a]"]  # it has gone from the list: what it made is left alone, and not published
    journal.check()
    # Recorded ones keep their order, the new one is the last.
    assert months.airflow.xcom(months.dag_id, months.run_id, "g.counted.subtasks") == ["b", "c", "d", "e"]
    assert {key for key in states(months) if key.startswith("g.counted|")} == {f"g.counted|{at}" for at in range(4)}
