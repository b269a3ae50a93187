"""Several subtasks in one task instance: each goes through the protocol by itself, and the task ends once for all.

drawn[d] --> kept_days[d] --> week        five days, two a batch: mon tue | wed thu | fri
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from job_tasks import GROUP, Drivers, job_dag
from tries import journal_in, run_try, state_in, submissions, task_context

from airflow_recovery import errors
from airflow_recovery.attempt import final_check as final_check_module
from airflow_recovery.attempt.restarts import Restarts
from airflow_recovery.attempt.run import RetryGrant
from airflow_recovery.errors import Failure, RegionFailed, SubtasksFailed
from airflow_recovery.model.build_in_progress import BuildInProgress, BuiltElsewhere
from airflow_recovery.model.records import Reset
from airflow_recovery.operators import SparkRegionOperator
from airflow_recovery.planning.restart_strategy import FixedDelay
from airflow_recovery.task import open_run, region_program
from airflow_recovery.task.failures import airflow_errors
from airflow_recovery.task.spark_submission import SparkSubmission
from airflow_recovery.task.subtask_batch import BeforeClaim, SubtaskBatch, batch_of

FIRST, SECOND, LAST = "mon..tue (2)", "wed..thu (2)", "fri"
UNTOUCHED = SimpleNamespace(state=SimpleNamespace(plans={"p"}, is_closed=False, regions={}))


def days(**given: Any) -> DAG:
    """Restarts have no pauses."""
    declared = {"subtasks_per_task": 2, "restart_strategy": FixedDelay(attempts=5, delay_s=0)}
    return job_dag("dagjobs.parallel:days", **{**declared, **given})


def run(dag: DAG, region: str, label: str | None = None, map_index: int = 0, *, try_number: int = 1) -> Any:
    operator = dag.get_task(f"{GROUP}.{region}")
    assert isinstance(operator, SparkRegionOperator)
    operator.subtask = label
    context = task_context(operator.task_id, try_number=try_number)
    context["ti"].map_index = -1 if label is None else map_index
    return run_try(operator, context)


def run_regions(drivers: Drivers) -> list[str]:
    return [f"{spec.region}@{spec.attempt}" for spec in drivers.specs]


def die(message: str = "killed") -> Callable[[], None]:
    def act() -> None:
        raise RuntimeError(message)

    return act


# --- wiring -----------------------------------------------------------------------------------------------------------


def mapped(dag: DAG) -> Any:
    group: Any = dag.get_task("g.drawn").get_closest_mapped_task_group()
    return group._expand_input.value["subtask"]


def test_neighbours_share_a_map_index_in_all_regions_of_a_chain() -> None:
    dag = days()
    assert mapped(dag) == [FIRST, SECOND, LAST]
    first, second = (dag.get_task(f"g.{name}").get_closest_mapped_task_group() for name in ("drawn", "kept_days"))
    assert first is second


def test_more_subtasks_than_airflow_maps_are_put_into_batches_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    assert mapped(days(subtasks_per_task=None)) == ["mon..wed (3)", "thu..fri (2)"]
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "5")
    assert mapped(days(subtasks_per_task=None)) == ["mon", "tue", "wed", "thu", "fri"]


def test_batches_that_are_declared_too_small_are_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__MAX_MAP_LENGTH", "2")
    with fails_with("too-many-task-instances", expected=2, found=3):
        days()


@pytest.mark.parametrize("given", [0, -1, "2", True])
def test_a_batch_is_a_number(given: Any) -> None:
    with fails_with("argument-unfit", "subtasks-per-task-unfit"):
        days(subtasks_per_task=given)


# --- one try ----------------------------------------------------------------------------------------------------------


def test_each_subtask_is_a_region_an_attempt_and_an_application_of_its_own(recovery: Path, drivers: Drivers) -> None:
    dag = days()
    for at, label in enumerate((FIRST, SECOND, LAST)):
        run(dag, "drawn", label, at)
    answer = run(dag, "kept_days", SECOND, 1)
    assert run_regions(drivers) == [
        *(f"drawn[{day}]@1" for day in ("mon", "tue", "wed", "thu", "fri")),
        "kept_days[wed]@1",
        "kept_days[thu]@1",
    ]
    assert [spec.subtask.key for spec in drivers.specs[-2:]] == ["wed", "thu"]
    # A consumer reads what its own subtask of the producer has made, and no more of that batch.
    assert [[one.location for one in spec.inputs] for spec in drivers.specs[-2:]] == [
        [f"{spec.location}/drawn"] for spec in drivers.specs[2:4]
    ]
    assert answer == {
        "region": "kept_days",
        "decision": "ran",
        "ran": 2,
        "kept": 0,
        "files_checked": 0,
        "spark_seconds": 4.0,
        "spark_seconds_saved": 0.0,
        "subtasks": {
            "kept_days[wed]": {"decision": "ran", "attempt": 1},
            "kept_days[thu]": {"decision": "ran", "attempt": 1},
        },
    }
    again = run(dag, "kept_days", SECOND, 1, try_number=2)
    assert (again["decision"], again["kept"], again["spark_seconds_saved"]) == ("kept", 2, 4.0)
    assert len(drivers.specs) == 7


def test_one_that_fails_stops_no_other_and_alone_runs_again(recovery: Path, drivers: Drivers) -> None:
    dag = days()
    drivers.meanwhile = die()
    with pytest.raises(RegionFailed, match=r"drawn\[mon\]@1"):
        run(dag, "drawn", FIRST)
    assert run_regions(drivers) == ["drawn[mon]@1", "drawn[tue]@1"]
    answer = run(dag, "drawn", FIRST, try_number=2)
    assert run_regions(drivers)[2:] == ["drawn[mon]@2"]
    assert (answer["decision"], answer["ran"], answer["kept"]) == ("ran", 1, 1)


def test_several_that_fail_are_all_named_and_each_has_its_own_budget(recovery: Path, drivers: Drivers) -> None:
    dag = days(maximum_per_task_failures=2)

    def fails() -> None:
        drivers.meanwhile = die()
        raise RuntimeError("killed")

    drivers.meanwhile = fails
    with fails_with("subtasks-of-task-failed", found=2) as caught:
        run(dag, "drawn", FIRST)
    assert set(caught.value.errors) == {"drawn[mon]", "drawn[tue]"}
    # The second failure ends the first one's budget alone; the task goes on until nothing is left that may run.
    drivers.meanwhile = die()
    with fails_with("budget-ended", by=AirflowFailException):
        run(dag, "drawn", FIRST, try_number=2)
    assert run_regions(drivers) == ["drawn[mon]@1", "drawn[tue]@1", "drawn[mon]@2", "drawn[tue]@2"]


def test_an_error_in_the_users_code_is_not_met_again_for_another_ones_sake(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`mon` fails for good, `tue` may be retried: so the task is, and `mon` costs no second application."""
    dag = days()
    grant = RetryGrant(12)
    monkeypatch.setattr("airflow_recovery.task.run_context.retry_grant", lambda context: grant)
    mon_is_wrong_and_tue_dies(dag, drivers, monkeypatch)
    with fails_with("fails-again", by=AirflowFailException, region="drawn[mon]", attempt=1):
        run(dag, "drawn", FIRST, try_number=2)
    assert run_regions(drivers) == ["drawn[mon]@1", "drawn[tue]@1", "drawn[tue]@2"]
    # A clear by a person starts over.
    grant = RetryGrant(14, is_renewed=True)
    assert run(dag, "drawn", FIRST, try_number=3)["ran"] == 1


def test_control_without_that_look_it_is_met_once_more(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Restarts, "check_not_in_vain", lambda self, state: None)
    dag = days()
    mon_is_wrong_and_tue_dies(dag, drivers, monkeypatch)
    run(dag, "drawn", FIRST, try_number=2)
    assert run_regions(drivers) == ["drawn[mon]@1", "drawn[tue]@1", "drawn[mon]@2", "drawn[tue]@2"]


def mon_is_wrong_and_tue_dies(dag: DAG, drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong() -> None:
        drivers.meanwhile = die()
        raise errors.UserCodeError("wrong", Failure("TypeError", "int and str"))

    monkeypatch.setattr(region_program, "region_failed", lambda spec, failure, error: as_is(error))
    drivers.meanwhile = wrong
    with pytest.raises(SubtasksFailed):
        run(dag, "drawn", FIRST)


def as_is(error: Exception) -> Exception:
    return error if isinstance(error, RegionFailed) else RegionFailed(str(error), Failure("X", str(error)))


def test_after_a_kill_nothing_more_is_started(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(drivers, "stop", lambda: stopped.append(drivers.specs[-1].region))
    tasks: list[SparkRegionOperator] = []
    execute = SparkRegionOperator.execute_region
    monkeypatch.setattr(
        SparkRegionOperator, "execute_region", lambda self, context: (tasks.append(self), execute(self, context))[1]
    )

    def killed() -> None:
        tasks[0].on_kill()
        raise RuntimeError("interrupted")

    drivers.meanwhile = killed
    with pytest.raises(RegionFailed, match="interrupted"):
        run(days(), "drawn", FIRST)
    assert (stopped, run_regions(drivers)) == (["drawn[mon]"], ["drawn[mon]@1"])


def test_a_batch_that_is_another_one_now_is_refused(recovery: Path, drivers: Drivers) -> None:
    with fails_with("batch-changed", by=AirflowFailException, expected="mon..wed (3)"):
        run(days(), "drawn", "mon..wed (3)")
    with fails_with("batch-changed", by=AirflowFailException):
        run(days(), "drawn", "mon..wed (3)", 7)
    with fails_with("subtask-vanished", by=AirflowFailException):
        run(days(subtasks_per_task=1), "drawn", FIRST)


def test_no_subtask_inherits_what_another_ones_submission_has_changed(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBMIT_ONLY", "1")
    keys: list[str] = []
    submit = SparkSubmission.submit

    def noted(self: SparkSubmission, job: Any, name: str) -> None:
        submit(self, job, name)
        keys.append(str(job.external_id_key))

    monkeypatch.setattr(SparkSubmission, "submit", noted)
    with pytest.raises(SubtasksFailed):
        run(days(conf={"a": "b"}, py_files="mine.zip"), "drawn", FIRST)
    options = [submission["options"] for submission in submissions(submitted)]
    assert [option[option.index("--name") + 1] for option in options] == ["d.drawn[mon]@1", "d.drawn[tue]@1"]
    files = [option[option.index("--py-files") + 1].split(",") for option in options]
    assert [len(candidate) for candidate in files] == [2, 2]
    # Two first attempts of one task instance: the provider must not take one's job for the other's.
    assert len(set(keys)) == 2


# --- while others of the batch are at work ----------------------------------------------------------------------------


def test_strategy_full_restarts_what_this_very_task_had_done(recovery: Path, drivers: Drivers) -> None:
    """`tue` fails: everything is reset by the next try, `mon` too, which that try has kept before."""
    dag = days(failover_strategy="full")
    drivers.meanwhile = lambda: setattr(drivers, "meanwhile", die())
    with pytest.raises(RegionFailed):
        run(dag, "drawn", FIRST)
    answer = run(dag, "drawn", FIRST, try_number=2)
    assert run_regions(drivers) == ["drawn[mon]@1", "drawn[tue]@1", "drawn[tue]@2", "drawn[mon]@2"]
    assert answer["ran"] == 2


def test_control_without_a_second_look_it_is_green_on_an_attempt_that_does_not_count(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SubtaskBatch, "_overtaken", lambda self: [])
    dag = days(failover_strategy="full")
    drivers.meanwhile = lambda: setattr(drivers, "meanwhile", die())
    with pytest.raises(RegionFailed):
        run(dag, "drawn", FIRST)
    run(dag, "drawn", FIRST, try_number=2)
    assert state_in(recovery, GROUP, "drawn[mon]").of("drawn[mon]").current is None


def made_again(recovery: Path, drivers: Drivers, dag: DAG) -> None:
    """Both days of the first batch were made, read, and then made again."""
    run(dag, "drawn", FIRST)
    run(dag, "kept_days", FIRST)
    journal = journal_in(recovery, GROUP)
    for day in ("mon", "tue"):
        journal.reset(Reset(f"drawn[{day}]", 1, "a user", "test"))
    run(dag, "drawn", FIRST, try_number=2)


def test_without_a_clear_client_nobody_asks_for_a_clear_of_the_task_that_is_at_it(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run, "open_clear_client", no_clear_client)
    dag = days()
    made_again(recovery, drivers, dag)
    assert run(dag, "kept_days", FIRST, try_number=2)["ran"] == 2


def test_control_without_a_clear_client_a_batch_would_stand_in_its_own_way(
    recovery: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_run, "open_clear_client", no_clear_client)
    dag = days()
    made_again(recovery, drivers, dag)
    every = lambda run, region: [candidate for candidate in run.regions if candidate != region]  # noqa: E731
    monkeypatch.setattr(final_check_module, "_of_other_tasks", every)
    with fails_with("no-way-to-clear-readers", by=AirflowFailException, region="kept_days[mon]"):
        run(dag, "kept_days", FIRST, try_number=2)


def no_clear_client(context: Mapping[str, Any], api_conn_id: str | None = None) -> Any:
    """Every task that is asked for is at work, as this one is; `drawn` is not asked for."""
    own = context["ti"].task_id
    return SimpleNamespace(
        observe=lambda: None,
        live_check=lambda: None,
        has_dag=lambda dag_id: None,
        states=lambda keys: {key: "running" if key.startswith(own) else None for key in keys},
    )


# --- what the task ends with ------------------------------------------------------------------------------------------


def go_through(started: list[str], **ends: Exception | None) -> None:
    """A batch of which each subtask ends as told. ``started`` gets those that were allowed to run."""

    def run_subtask(name: str, before_claim: BeforeClaim) -> Any:
        before_claim(UNTOUCHED.state)
        started.append(name)
        if (error := ends[name]) is not None:
            raise error
        return name

    batch_run = SimpleNamespace(log=logging.getLogger("tests"), list=lambda: UNTOUCHED, plan_hash="p")
    SubtaskBatch(batch_run, list(ends), run_subtask).execute()  # type: ignore[arg-type]


@pytest.fixture
def started() -> list[str]:
    return []


def test_after_a_lost_input_the_others_are_left_to_the_next_try(started: list[str]) -> None:
    """It waits for the producer: what ran now would be killed when that is done and clears who reads it."""
    with pytest.raises(errors.InputLost, match="lost"):
        go_through(started, a=None, b=errors.InputLost("lost"), c=None)
    assert started == ["a", "b"]


def test_control_after_any_other_failure_they_run(started: list[str]) -> None:
    with pytest.raises(RegionFailed):
        go_through(started, a=None, b=RegionFailed("failed"), c=None)
    assert started == ["a", "b", "c"]


MAKING = BuiltElsewhere("elsewhere", BuildInProgress("key", "b", 1, None, ""))
FAILED, FINAL, SKIPPED = RegionFailed("failed"), errors.UserCodeError("wrong"), errors.InputSkipped("skipped")
PENDING = errors.InputPending("not over")


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({"a": FAILED, "b": MAKING, "c": FINAL}, SubtasksFailed),  # a retry looks at all of them again
        ({"a": FINAL, "b": MAKING, "c": None}, BuiltElsewhere),  # first the wait, then the failure
        ({"a": FINAL, "b": SKIPPED, "c": None}, errors.UserCodeError),
        ({"a": None, "b": SKIPPED, "c": None}, errors.InputSkipped),
        ({"a": FAILED, "b": SKIPPED, "c": None}, RegionFailed),
        ({"a": BuiltElsewhere("unknown"), "b": None}, BuiltElsewhere),
        ({"a": PENDING, "b": PENDING, "c": None}, errors.InputPending),  # a wait uses no retry (fault 352)
        ({"a": PENDING, "b": FINAL, "c": SKIPPED}, errors.InputPending),
        ({"a": PENDING, "b": FAILED, "c": None}, SubtasksFailed),
    ],
)
def test_one_end_for_several(ends: dict[str, Exception | None], expected: type[Exception], started: list[str]) -> None:
    with pytest.raises(expected) as caught:
        go_through(started, **ends)
    assert type(caught.value) is expected
    assert started == list(ends)


@pytest.mark.parametrize("error", [errors.NotMine("gone"), errors.StoreTimeout("away"), errors.ConfigurationError("x")])
def test_what_concerns_all_of_them_ends_the_try_at_once(error: Exception, started: list[str]) -> None:
    with pytest.raises(type(error)):
        go_through(started, a=error, b=None)
    assert started == ["a"]


def test_a_subtask_whose_file_has_gone_is_alone_with_it(started: list[str]) -> None:
    with pytest.raises(errors.ObjectMissing):
        go_through(started, a=errors.ObjectMissing("none of the files"), b=None)
    assert started == ["a", "b"]


def test_a_message_names_twenty_and_counts_the_others(started: list[str]) -> None:
    with fails_with("subtasks-of-task-failed", found=25):
        go_through(started, **{f"r{at}": RegionFailed("failed") for at in range(25)})


def test_what_no_retry_cures_of_any_of_them_fails_at_once(started: list[str]) -> None:
    with fails_with("subtasks-of-task-failed", by=AirflowFailException), airflow_errors():
        go_through(started, a=FINAL, b=FINAL)
    with pytest.raises(SubtasksFailed), airflow_errors():
        go_through(started, a=FINAL, b=FAILED)


def test_a_task_of_its_own_runs_no_batch() -> None:
    assert batch_of(SimpleNamespace(regions=()), "week", None, -1) is None  # type: ignore[arg-type]
