"""Sources that commit split by split: drivers killed while they read, in real Airflow with real Spark.

alone       lines ~ numbers --> counted             40 files, read by one task
dealt       lines[i] ~ numbers[i] --> counted       1,000 files; each has its home in one of 2 subtasks
pulled      lines[i] ~ numbers[i] --> counted       64 files; 4 subtasks, which come for the next ones
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from journal_objects import JournalObjects
from pipeline import DagRun, Pipeline, empty_folder, is_gone

from scripts.spark_drivers import kill_9

pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.s3]

TASK = "g.numbers"


def write_files(lake: Path, count: int) -> None:
    """One number a file, six bytes each."""
    empty_folder(lake)
    for number in range(count):
        write_file(lake, number, number)


def write_file(lake: Path, name: int, number: int) -> None:
    (lake / f"{name:05d}.csv").write_text(f"{number:05d}\n")


def start(pipeline: Pipeline, dag_id: str, files: int, hold: Iterable[str]) -> DagRun:
    lake = pipeline.folder / f"splits-{dag_id}"
    write_files(lake, files)
    run = pipeline.run(dag_id, {"lake": f"file://{lake}"})
    run.hold(*hold)
    return run.start()


def instance(run: DagRun, index: int) -> dict[str, Any]:
    return run.airflow.task_instance(run.dag_id, run.run_id, TASK, index)


def kill_driver(run: DagRun, region: str) -> None:
    """Its JVM, and nobody else; all that belongs to it is gone then."""
    jvm = run.jvm(region, 1)
    processes = [jvm, *jvm.children(recursive=True)]
    kill_9(jvm)
    run.wait(lambda: all(is_gone(process) for process in processes), f"the end of {processes}")


def noted(run: DagRun, what: str, index: int | None = None) -> Counter[int]:
    """How often each file was ``handed`` (and not read) or ``read``: by the source's function, not by the journal."""
    notes = run.gates.glob(f"{what}-{'*' if index is None else index}-*")
    return Counter(int(name) for note in notes for name in note.read_text().split())


def batches(journal: JournalObjects, region: str) -> list[dict[str, Any]]:
    """What the finish that counts is put together from: attempt, number, content keys of the splits."""
    found: list[dict[str, Any]] = journal.attempts[region][journal.current(region)].outcome["parts"]
    return found


def splits_by_attempt(journal: JournalObjects, region: str) -> Counter[int]:
    """How many splits of the result each attempt has read."""
    counts: Counter[int] = Counter()
    for batch in batches(journal, region):
        counts[batch["attempt"]] += len(batch["splits"])
    return counts


def once(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """`counted` where nothing is lost and nothing doubled."""
    return sorted((1, number) for number in numbers)


def ended(run: DagRun) -> JournalObjects:
    journal = run.ends()
    journal.check()
    return journal


@pytest.mark.smoke
def test_killed_after_20_of_40_splits_the_rest_is_read(pipeline: Pipeline) -> None:
    held = ["lines-0-2", "lines-0-3"]
    run = start(pipeline, "alone", 40, held)
    # Two batches of ten are committed: each of the two threads commits before it calls again.
    run.wait(lambda: all(map(run.calls, held)), f"calls {held}")
    kill_driver(run, "numbers")
    run.release(*held)

    journal = ended(run)
    assert journal.executions() == {"numbers": 2, "counted": 1}
    assert splits_by_attempt(journal, "numbers") == {1: 20, 2: 20}
    assert noted(run, "read") == dict.fromkeys(range(40), 1)
    assert journal.rows("counted") == once(range(40))


# --- a home for each split --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dealt(pipeline: Pipeline) -> DagRun:
    """Subtask 0 has read its 500 files, and 1 has committed 200 and holds 200 more, when the driver of 1 is killed."""
    held = ["lines-1-2", "lines-1-3"]
    run = start(pipeline, "dealt", 1000, held)
    # The batches before these are committed: a thread commits before it calls again.
    run.wait(lambda: all(map(run.calls, held)), f"calls {held}")
    run.wait(lambda: instance(run, 0)["state"] == "success", "the end of subtask 0")
    kill_driver(run, "numbers[1]")
    run.release(*held)
    run.wait(lambda: instance(run, 1)["state"] == "success", "the end of subtask 1")
    ended(run)
    return run


@pytest.mark.drill
def test_killed_after_700_of_1000_splits_the_rest_is_read(dealt: DagRun) -> None:
    journal = dealt.journal()
    assert journal.executions() == {"numbers[0]": 1, "numbers[1]": 2, "counted": 1}
    assert journal.fenced("numbers[1]") == ["own failure"]
    assert splits_by_attempt(journal, "numbers[0]") == {1: 500}
    assert splits_by_attempt(journal, "numbers[1]") == {1: 200, 2: 300}
    assert noted(dealt, "read") == dict.fromkeys(range(1000), 1)
    assert journal.rows("counted") == once(range(1000))
    assert "200 of 500 splits kept" in dealt.airflow.log(dealt.dag_id, dealt.run_id, TASK, 2, 1)
    said = dealt.airflow.xcom(dealt.dag_id, dealt.run_id, TASK, map_index=1)
    assert said["splits"] == {"read": 300, "kept": 200, "lost": {}}


@pytest.mark.drill
def test_one_index_is_cleared_the_other_keeps_its_attempt_and_its_batches(dealt: DagRun) -> None:
    """An index is cleared in real Airflow: `test_parallel.py`; an overwritten file: `tests/splits`."""
    before = dealt.journal()
    notes = set(dealt.gates.glob("read-*"))
    changed = min(noted(dealt, "read", 0))
    write_file(Path(dealt.conf["lake"].removeprefix("file://")), changed, 50_000)

    cleared = dealt.airflow.clear(dealt.dag_id, dealt.run_id, [(TASK, 0)], downstream=True)

    assert sorted(cleared) == ["g.counted", TASK, "g.publish"]
    journal = ended(dealt)
    assert journal.ran_since(before) == {"numbers[0]": 1, "counted": 1}
    assert journal.rows("counted") == once({*range(1000)} - {changed} | {50_000})
    # Of subtask 0 one batch was read again; all others are those of its first attempt.
    *kept, made = batches(journal, "numbers[0]")
    (dropped,) = [batch for batch in batches(before, "numbers[0]") if batch not in kept]
    assert (made["attempt"], len({*made["splits"]} - {*dropped["splits"]})) == (2, 1)
    (again,) = set(dealt.gates.glob("read-*")) - notes
    (already,) = [note for note in notes if f"{changed:05d}" in note.read_text().split()]
    assert again.read_text() == already.read_text()
    # Subtask 1 was not touched, in Airflow neither.
    assert batches(journal, "numbers[1]") == batches(before, "numbers[1]")
    assert instance(dealt, 1)["try_number"] == 2


# --- who comes first --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pulled(pipeline: Pipeline) -> DagRun:
    """Each of four holds two batches; 2 has committed two before, and is killed."""
    held = [f"lines-{index}-{call}" for index in range(4) for call in ((2, 3) if index == 2 else (0, 1))]
    run = start(pipeline, "pulled", 64, held)
    run.wait(lambda: all(map(run.calls, held)), f"calls {held}")
    kill_driver(run, "numbers[2]")
    run.release(*held)
    run.wait(lambda: instance(run, 2)["state"] == "success", "the end of subtask 2")
    ended(run)
    return run


@pytest.mark.drill
def test_fault_56_what_a_killed_subtask_held_goes_home_to_it_and_all_is_read_once(pulled: DagRun) -> None:
    journal = pulled.journal()
    assert journal.executions() == {**{f"numbers[{number}]": 1 for number in range(4)}, "numbers[2]": 2, "counted": 1}
    assert journal.rows("counted") == once(range(64))
    assert noted(pulled, "read") == dict.fromkeys(range(64), 1)
    # Two batches of four were committed, two were in its hands. These are its successor's, and nobody else's.
    lost = noted(pulled, "handed")
    assert len(lost) == 8
    assert lost == noted(pulled, "handed", 2)
    assert lost <= noted(pulled, "read", 2)
    base = journal.attempts["numbers[2]"][2].objects["claim"]["base"]
    assert base == [{"attempt": 1, "length": 2}]
    assert splits_by_attempt(journal, "numbers[2]")[1] == 8
    # Each split is with exactly one of the four.
    keys = Counter(
        key for number in range(4) for batch in batches(journal, f"numbers[{number}]") for key in batch["splits"]
    )
    assert len(keys) == 64
    assert set(keys.values()) == {1}
