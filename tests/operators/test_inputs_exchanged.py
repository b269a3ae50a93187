"""Faults 290, 294 and 295 with operators, whose jobs are given folders and know no manifest."""

from __future__ import annotations

import shutil
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from deltalake import DeltaTable, write_deltalake
from expected_errors import fails_with
from tries import journal_in, run_try, state_in

from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import FenceCause
from airflow_recovery.operators import recoverable
from airflow_recovery.results import availability
from airflow_recovery.task import inventory
from airflow_recovery.task.drop_in import DropInApplication

Bash = recoverable(BashOperator, paths="plain")
WRITE = "mkdir -p '{output:o}' && echo one > '{output:o}/part-0'"
COPY = "mkdir -p '{output:out}' && cat '{input:rows}'/* > '{output:out}/part-0'"
MEANWHILE = {
    "a file comes": "echo late > '{input:rows}/part-9'",
    "a file is exchanged": "echo other > '{input:rows}/part-0'",
    "a file disappears": "rm '{input:rows}/part-0'",
}


def pair(write: str = WRITE, copy: str = COPY, rows: Any = None) -> tuple[Any, Any]:
    """``a``, and ``b``, which is given the folder of what ``a`` makes."""
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        a = Bash(task_id="a", bash_command=write, outputs=["o"])
        return a, Bash(task_id="b", bash_command=copy, inputs={"rows": rows or a.result("o")}, outputs=["out"])


def folder_of(answer: dict[str, Any]) -> Path:
    (result,) = answer["results"].values()
    return Path(result["location"].removeprefix("file://"))


def rows_of(answer: dict[str, Any]) -> str:
    return "".join(path.read_text() for path in sorted(folder_of(answer).iterdir()))


def test_fault_294_an_operator_is_not_given_a_file_that_came_late(recovery: Path) -> None:
    a, b = pair()
    made = run_try(a)
    (folder_of(made) / "part-9").write_text("late\n")
    again = run_try(a)
    assert (again["decision"], again["attempt"]) == ("ran", 2)
    assert folder_of(again) != folder_of(made)
    assert rows_of(run_try(b)) == "one\n"


@pytest.mark.control
def test_fault_294_control_it_would_be_read(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(availability, "is_read_by_spark", lambda name: False)
    a, b = pair()
    (folder_of(run_try(a)) / "part-9").write_text("late\n")
    assert run_try(a)["decision"] == "kept"
    assert rows_of(run_try(b)) == "one\nlate\n"


@pytest.mark.parametrize("what", MEANWHILE)
@pytest.mark.parametrize("fails", [False, True])
def test_fault_295_an_input_that_changes_while_it_is_read_is_no_failure_and_its_producer_runs(
    recovery: Path, what: str, fails: bool
) -> None:
    a, b = pair(copy=f"{COPY}; {MEANWHILE[what]}" + ("; exit 3" if fails else ""))
    made = run_try(a)
    with fails_with("input-changed-while-read"):
        run_try(b)
    ended = state_in(recovery, OPERATORS_GROUP, "b").of("b").attempts[1].outcome
    assert ended is not None
    assert ended.cause is FenceCause.LOST_INPUT
    again = run_try(a)
    assert (again["decision"], again["attempt"]) == ("ran", 2)
    assert folder_of(again) != folder_of(made)


@pytest.mark.parametrize("what", ["a file is exchanged", "a file disappears"])
def test_fault_295_so_it_is_with_files_that_nobody_here_makes(recovery: Path, tmp_path: Path, what: str) -> None:
    rows = tmp_path / "rows"
    rows.mkdir()
    for name in ("part-0", "part-1"):
        (rows / name).write_text(f"{name}\n")
    _, b = pair(copy=f"{COPY}; test -e {tmp_path}/once || ({MEANWHILE[what]}; touch {tmp_path}/once)", rows=str(rows))
    with fails_with("input-changed-while-read"):
        run_try(b)
    ended = state_in(recovery, OPERATORS_GROUP, "b").of("b").attempts[1].outcome
    assert ended is not None
    assert ended.cause is FenceCause.LOST_INPUT
    again = run_try(b)
    assert (again["decision"], again["attempt"]) == ("ran", 2)
    assert rows_of(again) == {"a file is exchanged": "other\npart-1\n", "a file disappears": "part-1\n"}[what]


@pytest.mark.control
def test_fault_295_control_it_would_count_as_read(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DropInApplication, "_changed_inputs", lambda self, attempt: "")
    a, b = pair(copy=f"{MEANWHILE['a file comes']}; {COPY}")
    run_try(a)
    assert rows_of(run_try(b)) == "one\nlate\n"


# a journal that came back from a backup


def with_two_codes(recovery: Path) -> dict[str, Any]:
    """Attempt 1 of the code with two files is lost with the journal; then attempt 1 of the code with one file."""
    journal, backup = recovery / "journal", recovery / "backup"
    journal.mkdir()
    shutil.copytree(journal, backup)
    a, _ = pair(write=f"{WRITE} && echo two > '{{output:o}}/part-1'")
    run_try(a)
    # The file that says whose the results are does not belong to the run.
    owner = {path.name: path.read_bytes() for path in journal.iterdir() if path.is_file()}
    shutil.rmtree(journal)
    shutil.copytree(backup, journal)
    for name, body in owner.items():
        (journal / name).write_bytes(body)
    a, _ = pair()
    answer = run_try(a)
    assert (answer["decision"], answer["attempt"]) == ("ran", 1)
    return answer


def test_fault_290_two_codes_never_mix_in_one_result(recovery: Path) -> None:
    answer = with_two_codes(recovery)
    assert rows_of(answer) == "one\n"
    claim = journal_in(recovery, OPERATORS_GROUP).read_claim("a", 1)
    assert folder_of(answer).parent.name == claim.folder


@pytest.mark.control
def test_fault_290_control_by_its_number_they_do(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(JournalLayout, "data_of", lambda self, claim: self.data_of_number(claim.region, claim.attempt))
    assert rows_of(with_two_codes(recovery)) == "one\ntwo\n"


# a table that is given as a folder


def write(table: Path, day: int, rows: int) -> None:
    write_deltalake(table, pa.table({"day": [day] * rows, "row": range(rows)}), mode="append", partition_by=["day"])


CHANGES: dict[str, Any] = {
    "a partition is deleted": lambda table: DeltaTable(table).delete("day = 2"),
    "an earlier version is restored": lambda table: DeltaTable(table).restore(0),
    "rows are added": lambda table: write(table, 3, 1),
}
LIST = "mkdir -p '{output:out}' && ls -R '{input:rows}' > '{output:out}/part-0'"


def table_of_two_days(folder: Path) -> Path:
    table = folder / "orders"
    for day in (1, 2):
        write(table, day, 2)
    return table


@pytest.mark.parametrize("change", CHANGES)
def test_fault_296_a_table_given_as_a_folder_is_read_by_its_log(recovery: Path, tmp_path: Path, change: str) -> None:
    """A delete of a partition and a RESTORE leave every data file where it is."""
    table = table_of_two_days(tmp_path)
    _, b = pair(copy=LIST, rows=str(table))
    assert [run_try(b)["decision"] for _ in range(2)] == ["ran", "kept"]
    CHANGES[change](table)
    assert [run_try(b)["decision"] for _ in range(2)] == ["ran", "kept"]


def test_fault_296_so_is_a_partition_of_it(recovery: Path, tmp_path: Path) -> None:
    table = table_of_two_days(tmp_path)
    _, b = pair(copy=LIST, rows=f"{table}/day=2/")
    assert [run_try(b)["decision"] for _ in range(2)] == ["ran", "kept"]
    DeltaTable(table).delete("day = 2")
    assert [run_try(b)["decision"] for _ in range(2)] == ["ran", "kept"]


@pytest.mark.control
def test_fault_296_control_without_the_log_above_it_a_deleted_partition_is_as_it_was(
    recovery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "_table_above", lambda base, segments, files: None)
    table = table_of_two_days(tmp_path)
    _, b = pair(copy=LIST, rows=f"{table}/day=2/")
    run_try(b)
    DeltaTable(table).delete("day = 2")
    assert run_try(b)["decision"] == "kept"


@pytest.mark.control
def test_fault_296_control_by_its_files_it_is_as_it_was(
    recovery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inventory, "table_of_log", lambda path: None)
    table = table_of_two_days(tmp_path)
    _, b = pair(copy=LIST, rows=str(table))
    run_try(b)
    for change in ("a partition is deleted", "an earlier version is restored"):
        CHANGES[change](table)
        assert run_try(b)["decision"] == "kept"


@pytest.mark.slow
def test_fault_296_an_output_that_is_such_a_table_is_lost_by_a_commit_of_others(recovery: Path) -> None:
    program = recovery / "write.py"
    program.write_text(
        "import sys, pyarrow as pa\nfrom deltalake import write_deltalake\n"
        "write_deltalake(sys.argv[1], pa.table({'row': [1, 2]}))\n"
    )
    a, _ = pair(write=f"{sys.executable} {program} '{{output:o}}'")
    made = run_try(a)
    assert run_try(a)["decision"] == "kept"
    DeltaTable(folder_of(made)).delete()
    again = run_try(a)
    assert (again["decision"], again["attempt"]) == ("ran", 2)
    assert folder_of(again) != folder_of(made)
