"""Subtasks that share one listing: homes in the journal, through whole tries of the region's task.

dealt_files[i] ~ shown[i]      i of 0, 1; the files of a folder
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from expected_errors import fails_with
from job_tasks import Drivers, job_dag
from tries import RUN_KEY, run_try, task_context

from airflow_recovery import errors
from airflow_recovery.attempt.assignment_log import AssignmentLog
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.layout import JournalLayout
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.model.split import Split
from airflow_recovery.model.split_assignment import Assignment
from airflow_recovery.store import open_store
from airflow_recovery.testing import S3Server

KEYS = ("0", "1")
IDENTITY = RunIdentity("d", RUN_KEY, "g")


@pytest.fixture
def lake(recovery: Path) -> Path:
    lake = recovery / "lake"
    lake.mkdir()
    for name in ("a", "b", "c", "d"):
        (lake / f"{name}.csv").write_text(name * 10)
    return lake


def attempt(lake: Path, key: str, job: str = "dagjobs.parallel:dealt", region: str = "shown") -> str:
    """One try of the map index that has subtask ``key``; what it did."""
    operator: Any = job_dag(job).get_task(f"g.{region}")
    operator.subtask = key
    context = task_context(operator.task_id, params={"lake": str(lake)})
    context["ti"].map_index = int(key)
    return str(run_try(operator, context)["decision"])


def attempts(lake: Path) -> list[str]:
    return [attempt(lake, key) for key in KEYS]


def finishes() -> dict[str, set[tuple[str, str]]]:
    """What the finish of each subtask that counts has read: name and etag."""
    journal = Journal(open_stores(RecoverySettings.load()).journal, IDENTITY, writer="test")
    regions = [f"shown[{key}]" for key in KEYS]
    state = journal.load(journal.list(regions))
    found = {}
    for key, region in zip(KEYS, regions, strict=True):
        current = state.of(region).current
        assert current is not None
        assert current.outcome is not None
        found[key] = {(Path(external.uri).name, external.etag) for external in current.outcome.externals}
    return found


def names(key: str) -> list[str]:
    return sorted(name for name, _ in finishes()[key])


def is_a_fresh_run(lake: Path) -> bool:
    """What all subtasks have read is what a run on today's folder would: each file once, as it is now."""
    found = finishes()
    assert found["0"].isdisjoint(found["1"])
    today = {(path.name, Split.of_external(one).etag) for path in lake.iterdir() for one in listed(path)}
    return found["0"] | found["1"] == today


def listed(path: Path) -> Any:
    from airflow_recovery.task.inventory import list_objects

    return list_objects(str(path), vertex="raw", open_location=open_store)


CHANGES: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "grown, in front of all": (lambda lake: (lake / "0.csv").write_text("new"), ["ran", "kept"]),
    "shrunk": (lambda lake: (lake / "b.csv").unlink(), ["kept", "ran"]),
    "overwritten": (lambda lake: (lake / "d.csv").write_text("other"), ["kept", "ran"]),
    "written again as it was": (lambda lake: (lake / "d.csv").write_text("d" * 10), ["kept", "kept"]),
    "renamed": (lambda lake: (lake / "a.csv").rename(lake / "e.csv"), ["ran", "kept"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_fault_55_after_each_change_the_result_is_a_fresh_run_s(
    recovery: Path, drivers: Drivers, lake: Path, change: str
) -> None:
    assert attempts(lake) == ["ran", "ran"]
    assert (names("0"), names("1")) == (["a.csv", "c.csv"], ["b.csv", "d.csv"])
    do, expected = CHANGES[change]
    do(lake)
    assert attempts(lake) == expected
    assert is_a_fresh_run(lake)
    assert attempts(lake) == ["kept", "kept"]


def test_fault_55_on_every_store(
    recovery: Path, drivers: Drivers, lake: Path, s3_server: S3Server, s3_store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__RECOVERY__JOURNAL", f"{s3_store.base_uri}/journal")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", s3_server.endpoint_url)
    assert attempts(lake) == ["ran", "ran"]
    (lake / "0.csv").write_text("new")
    (lake / "b.csv").unlink()
    # What has lost a file is the lightest, and gets the new one.
    assert attempts(lake) == ["kept", "ran"]
    assert is_a_fresh_run(lake)


def test_fault_55_control_by_position_one_file_in_front_runs_every_subtask(
    recovery: Path, drivers: Drivers, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def by_position(self: Any, today: Any, parallelism: int, **_: Any) -> Assignment:
        return Assignment(parallelism, {each: at % parallelism for at, each in enumerate(today())})

    monkeypatch.setattr(AssignmentLog, "advanced", by_position)
    assert attempts(lake) == ["ran", "ran"]
    (lake / "0.csv").write_text("new")
    assert attempts(lake) == ["ran", "ran"]


def test_one_index_that_is_cleared_leaves_the_others_their_attempt_and_their_homes(
    recovery: Path, drivers: Drivers, lake: Path
) -> None:
    assert attempts(lake) == ["ran", "ran"]
    before = finishes()
    # Airflow runs the cleared index alone; meanwhile a file has come, which is the lightest subtask's.
    (lake / "0.csv").write_text("0")
    assert attempt(lake, "0") == "ran"
    after = finishes()
    assert after["1"] == before["1"]
    assert before["0"] < after["0"]
    assert attempt(lake, "1") == "kept"
    (newest,) = [spec.region for spec in drivers.specs[2:]]
    assert newest == "shown[0]"


def test_fault_56_two_subtasks_that_list_different_folders_never_share_a_split(
    recovery: Path, drivers: Drivers, lake: Path
) -> None:
    """One lists before a file comes, and one after."""
    assert attempt(lake, "0") == "ran"
    (lake / "0.csv").write_text("n" * 99)
    assert attempt(lake, "1") == "ran"
    found = finishes()
    assert found["0"].isdisjoint(found["1"])
    attempts(lake)
    assert is_a_fresh_run(lake)


def test_the_assignment_lies_beside_the_truth_of_the_run(recovery: Path, drivers: Drivers, lake: Path) -> None:
    attempts(lake)
    store, layout = open_stores(RecoverySettings.load()).journal, JournalLayout(IDENTITY)
    assert [split.key for split in store.list(layout.splits)] == [layout.assignment("dealt_files", 0)]


# --- other kinds of splits --------------------------------------------------------------------------------------------


def test_splits_that_are_no_files_go_the_same_way(recovery: Path, drivers: Drivers, lake: Path) -> None:
    days = {"job": "dagjobs.parallel:by_day", "region": "shown_days"}
    assert [attempt(lake, key, **days) for key in KEYS] == ["ran", "ran"]
    read = [[Split.of_external(one).payload for one in spec.trace.externals] for spec in drivers.specs]
    assert read == [["2024-01-01", "2024-01-03"], ["2024-01-02", "2024-01-04"]]
    assert [attempt(lake, key, **days) for key in KEYS] == ["kept", "kept"]


def test_a_source_that_is_not_parallel_may_fail_where_something_has_vanished(
    recovery: Path, drivers: Drivers, lake: Path
) -> None:
    def whole() -> str:
        operator = job_dag("dagjobs.parallel:complete").get_task("g.shown_whole")
        return str(run_try(operator, task_context(operator.task_id, params={"lake": str(lake)}))["decision"])

    assert whole() == "ran"
    (lake / "e.csv").write_text("e")
    assert whole() == "ran"
    (lake / "a.csv").unlink()
    with fails_with("splits-gone", by=Exception, found=1):
        whole()
    (lake / "a.csv").write_text("a" * 10)
    assert whole() == "kept"


def test_fault_95_a_task_s_enumerator_goes_on_where_the_one_before_it_was(
    recovery: Path, drivers: Drivers, lake: Path
) -> None:
    def drops() -> str:
        operator = job_dag("dagjobs.parallel:dropped").get_task("g.shown_drops")
        return str(run_try(operator, task_context(operator.task_id, params={"lake": str(lake)}))["decision"])

    def read() -> list[str]:
        journal = Journal(open_stores(RecoverySettings.load()).journal, IDENTITY, writer="test")
        outcome = journal.load(journal.list(["shown_drops"])).of("shown_drops").current.outcome
        assert outcome is not None
        return [external.etag.strip('"')[0] for external in outcome.externals]

    assert drops() == "ran"
    assert drops() == "kept"
    # What was told is not asked about again: nothing has vanished, and nothing has other content.
    (lake / "a.csv").write_text("other")
    assert drops() == "kept"
    (lake / "e.csv").write_text("e")
    assert drops() == "ran"
    assert read() == ["a", "b", "c", "d", "e"]


def test_what_no_retry_cures_fails_at_once() -> None:
    for error in (errors.SplitsVanished("gone"), errors.SplitIdentityError("which")):
        assert error.kind.is_final


def test_fewer_splits_than_subtasks_are_refused_by_name(recovery: Path, drivers: Drivers, lake: Path) -> None:
    for name in ("b", "c", "d"):
        (lake / f"{name}.csv").unlink()
    assert attempt(lake, "0") == "ran"
    with fails_with("subtask-without-splits", subtask="1"):
        attempt(lake, "1")
