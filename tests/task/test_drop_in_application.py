"""A drop-in's attempts, with real files and a `spark-submit` that runs Python: what is registered, kept, refused."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from paths import CODE
from tries import run_try, state_in, submissions

from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import ClearNotConfigured, InputLost, OutputAltered, RegionFailed
from airflow_recovery.journal.plans import plan_hash
from airflow_recovery.journal.run_state import RunState
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import RecoverableSparkSubmitOperator
from airflow_recovery.results.places import Look, ResultPlaces
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.store.local import LocalStore
from airflow_recovery.store.object_store import ObjectInfo
from airflow_recovery.task import drop_in, spark_submission
from airflow_recovery.task.class_archive import USER_OPTIONS
from airflow_recovery.task.dag_operators import plan_of_dag
from airflow_recovery.task.externals import Unreadable
from airflow_recovery.task.spark_submission import SparkSubmission

WRITER = str(CODE / "writer.py")


def dag_of(*operators: dict[str, Any]) -> dict[str, Any]:
    """The operators of one DAG, by task id; each writes its output ``out``."""
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        made: dict[str, Any] = {}
        for given in operators:
            reads = given.pop("reads", None)
            arguments = [*given.pop("say", ["--say", "rows"]), "--out", "{output:out}"]
            inputs = {}
            if reads:
                inputs = {"in": made[reads].result("out")}
                arguments = ["--in", "{input:in}", *arguments]
            task = RecoverableSparkSubmitOperator(
                **{"application": WRITER, "outputs": ["out"], "inputs": inputs, "application_args": arguments, **given}
            )
            made[task.task_id] = task
    return made


def state(folder: Path, *tasks: str) -> RunState:
    return state_in(folder, OPERATORS_GROUP, *tasks)


def location_of(answer: dict[str, Any]) -> Path:
    (result,) = answer["results"].values()
    return Path(result["location"].removeprefix("file://"))


# --- what is registered -----------------------------------------------------------------------------------------------


def test_fault_53_what_committers_leave_is_not_data(recovery: Path, submitted: Path) -> None:
    run_try(dag_of({"task_id": "t"})["t"])

    (manifest,) = state(recovery, "t").of("t").attempts[1].outcome.outputs
    assert [file.path for file in manifest.objects] == ["_delta_log/0.json", "part-0"]
    assert (manifest.result, manifest.managed, manifest.rows) == ("t.out", True, None)
    assert manifest.objects[1].size == len("rows")
    assert re.search("/t/00000001-[0-9a-f]{8}/out$", manifest.location)


def test_nothing_written_is_a_failure_that_asks_the_right_question(recovery: Path, submitted: Path) -> None:
    task = dag_of({"task_id": "t", "say": ["--write-nothing"]})["t"]
    with pytest.raises(RegionFailed, match=r"t@1: .*wrote nothing to output 'out' at .*Does it write to the location"):
        run_try(task)
    attempt = state(recovery, "t").of("t").attempts[1]
    assert (attempt.has_outcome, attempt.is_finished) == (True, False)


def test_fault_50_a_marker_alone_is_a_legitimately_empty_output(recovery: Path, submitted: Path) -> None:
    def only_marker(self: SparkSubmission, job: Any, name: str) -> None:
        folder = Path(job.application_args[-1].removeprefix("file://"))
        folder.mkdir(parents=True)
        (folder / "_SUCCESS").touch()

    task = dag_of({"task_id": "t"})["t"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkSubmission, "submit", only_marker)
        assert run_try(task)["results"]["t.out"]["files"] == 0
    assert run_try(task, try_number=2)["decision"] == "kept"


def test_fault_4_what_a_failed_attempt_wrote_is_never_read(recovery: Path, submitted: Path) -> None:
    tasks = dag_of({"task_id": "p"}, {"task_id": "c", "reads": "p"})
    with pytest.MonkeyPatch.context() as patch:
        filled = drop_in.filled
        patch.setattr(drop_in, "filled", lambda given, locations: [*filled(given, locations), "--fail-after-writing"])
        with pytest.raises(RegionFailed, match=r"p@1: the application failed: Error code is: "):
            run_try(tasks["p"])
    made = run_try(tasks["p"], try_number=2)
    assert (made["decision"], made["attempt"]) == ("ran", 2)
    assert len(list((recovery / "results").rglob("p/00000001-*/out/part-0"))) == 1  # left lying, in nobody's manifest
    run_try(tasks["c"])
    assert re.search("/p/00000002-[0-9a-f]{8}/out$", submissions(submitted)[-1]["arguments"][1])


def test_several_outputs_and_a_fixed_one(recovery: Path, submitted: Path) -> None:
    fixed = recovery / "lake" / "report"
    fixed.mkdir(parents=True)
    (fixed / "old").write_text("was there")
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        task = RecoverableSparkSubmitOperator(
            task_id="t", application=WRITER, outputs={"a": None, "b": f"{fixed}/"},
            application_args=["--out", "{output:a}"],
        )  # fmt: skip
    answer = run_try(task)
    assert set(answer["results"]) == {"t.a", "t.b"}
    assert answer["results"]["t.b"]["location"] == str(fixed)  # registered as found


def test_spark_submit_is_told_of_the_class_archive_unless_the_conf_says_how_its_jvm_starts(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in USER_OPTIONS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(spark_submission, "jvm_variables", lambda *_: {"SPARK_SUBMIT_OPTS": "-Darchive"})
    for conf in (None, {"spark.driver.extraJavaOptions": "-Xss4m"}):
        with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
            task = RecoverableSparkSubmitOperator(
                task_id=f"t{len(conf or {})}", application=WRITER, outputs=["out"], conf=conf,
                application_args=["--out", "{output:out}"],
            )  # fmt: skip
        run_try(task)
    said = [one["env"]["SPARK_SUBMIT_OPTS"].split() for one in submissions(submitted)]
    assert [options[1:] for options in said] == [["-Darchive"], []]
    assert all(options[0].startswith("-Djava.io.tmpdir=") for options in said)


@pytest.mark.slow
def test_what_rows_are_read_with_is_imported_while_the_application_runs_where_somebody_reads_them(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    imported: list[str] = []
    monkeypatch.setattr(drop_in, "import_readers", lambda: imported.append(threading.current_thread().name))
    tasks = dag_of({"task_id": "p"}, {"task_id": "c", "reads": "p"}, {"task_id": "a", "deterministic": "always"})
    for name, times in (("a", 0), ("p", 1), ("c", 1)):  # nobody reads a, and c
        run_try(tasks[name])
        assert imported == ["import pyarrow"] * times


# --- external inputs --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_another_external_input_means_run_again(recovery: Path, submitted: Path) -> None:
    rates = recovery / "rates"
    rates.mkdir()
    (rates / "2024.csv").write_text("1")
    task = dag_of({"task_id": "t", "inputs": {"rates": str(rates)}})["t"]

    assert run_try(task)["decision"] == "ran"
    assert run_try(task, try_number=2)["decision"] == "kept"
    (rates / "2024.csv").write_text("2")
    assert run_try(task, try_number=3)["decision"] == "ran"
    (rates / "2025.csv").write_text("3")
    assert run_try(task, try_number=4)["attempt"] == 3


# --- lost and altered -------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_lost_managed_input_names_both_clear_clients(recovery: Path, submitted: Path) -> None:
    tasks = dag_of({"task_id": "p"}, {"task_id": "c", "reads": "p"})
    shutil.rmtree(location_of(run_try(tasks["p"])))

    with pytest.raises(AirflowFailException) as caught:
        run_try(tasks["c"])
    assert isinstance(caught.value.__cause__, ClearNotConfigured)
    for setting in ("[state_store] backend", "[recovery] api_conn_id"):
        assert setting in str(caught.value)
    assert run_try(tasks["p"], try_number=2)["attempt"] == 2  # its own retry works
    assert run_try(tasks["c"], try_number=2)["decision"] == "ran"


def altered(recovery: Path, **given: Any) -> tuple[Any, Any, Path]:
    """A producer that wrote to a fixed URI, its consumer, and the folder, in which the data is newer now."""
    fixed = recovery / "lake"
    tasks = dag_of({"task_id": "p", "outputs": {"out": str(fixed)}, **given}, {"task_id": "c", "reads": "p"})
    run_try(tasks["p"])
    (fixed / "part-0").write_text("newer data")
    return tasks["p"], tasks["c"], fixed


def cause_of(task: Any, **changes: Any) -> BaseException:
    with pytest.raises(AirflowFailException) as caught:
        run_try(task, **changes)
    assert caught.value.__cause__ is not None
    return caught.value.__cause__


def test_fault_47_altered_output_stops_its_reader(recovery: Path, submitted: Path) -> None:
    _, consumer, fixed = altered(recovery)
    cause = cause_of(consumer)
    assert isinstance(cause, OutputAltered)
    for said in (f"p: {fixed} is not as it was registered", "was altered", "on_altered='recompute'"):
        assert said in str(cause)
    assert len(submissions(submitted)) == 1


def test_fault_47_control_without_the_probe_newer_data_is_taken_for_the_registered(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, consumer, _ = altered(recovery)
    monkeypatch.setattr(ResultProber, "__call__", lambda self, region, attempt, result: None)
    monkeypatch.setattr(drop_in.DropInApplication, "_changed_inputs", lambda self, attempt: "")
    assert (location_of(run_try(consumer)) / "part-0").read_text() == "newer data"


def test_fault_47_altered_output_is_not_overwritten(recovery: Path, submitted: Path) -> None:
    """The code has changed, so that p must run: it would overwrite what somebody else has written."""
    _, _, fixed = altered(recovery)
    changed = dag_of({"task_id": "p", "outputs": {"out": str(fixed)}, "say": ["--say", "other"]})["p"]
    cause = cause_of(changed)
    assert isinstance(cause, OutputAltered)
    assert f"p must run again, and {fixed} is not as attempt 1 left it" in str(cause)
    assert (fixed / "part-0").read_text() == "newer data"


def test_fault_47_control_without_the_check_newer_data_is_overwritten(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, fixed = altered(recovery)
    changed = dag_of({"task_id": "p", "outputs": {"out": str(fixed)}, "say": ["--say", "other"]})["p"]
    monkeypatch.setattr(drop_in.DropInSubmission, "before_claim", lambda self, state: None)
    run_try(changed)
    assert (fixed / "part-0").read_text() == "other"


def test_files_added_at_a_fixed_output_are_newer_data_too(recovery: Path, submitted: Path) -> None:
    fixed = recovery / "lake"
    task = dag_of({"task_id": "p", "outputs": {"out": str(fixed)}})["p"]
    run_try(task)
    (fixed / "_spark_metadata").write_text("hidden: not data")
    assert run_try(task, try_number=2)["decision"] == "kept"
    (fixed / "part-1").write_text("added")
    assert isinstance(cause_of(task, try_number=3), OutputAltered)


def test_fault_234_no_advice_takes_the_data_of_other_dates_along(recovery: Path, submitted: Path) -> None:
    producer, consumer, fixed = altered(recovery)
    del producer
    changed = dag_of({"task_id": "p", "outputs": {"out": str(fixed)}, "say": ["--say", "other"]})["p"]
    for cause in (cause_of(consumer), cause_of(changed)):
        assert "If no other date or task writes there, you may also move the data away" in str(cause)
        assert (
            "either would take their data along: give each date a folder of its own as output (.../day={{ ds }})"
            in (str(cause))
        )


def test_the_plan_has_fixed_outputs_as_they_are_declared_whichever_task_makes_it() -> None:
    template = "s3://lake/{{ ds }}"
    task = dag_of({"task_id": "p", "outputs": {"out": template}}, {"task_id": "managed"})["p"]
    declared = plan_of_dag(task.get_dag())
    task.outputs = {"out": "s3://lake/2024-01-01"}  # as Airflow renders it in the operator's own task
    assert plan_of_dag(task.get_dag()) == declared
    assert [region.fixed for region in declared.regions] == [(("p.out", template),), ()]


def moved_meanwhile(recovery: Path) -> Any:
    """A consumer whose producer wrote elsewhere than today's code says."""
    run_try(dag_of({"task_id": "p", "outputs": {"out": str(recovery / "old")}})["p"])
    return dag_of({"task_id": "p", "outputs": {"out": str(recovery / "new")}}, {"task_id": "c", "reads": "p"})["c"]


def test_what_todays_code_does_not_declare_is_not_opened_and_is_made_again(recovery: Path, submitted: Path) -> None:
    cause = cause_of(moved_meanwhile(recovery))
    assert isinstance(cause, ClearNotConfigured)  # it would wake the producer, which is no test of this one
    assert len(submissions(submitted)) == 1


def test_control_without_the_look_at_the_place_it_is_read(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    consumer = moved_meanwhile(recovery)
    monkeypatch.setattr(ResultPlaces, "look_at", lambda self, manifest: Look.OPEN)
    assert run_try(consumer)["decision"] == "ran"


def test_a_journal_whose_plans_declare_nothing_is_read_as_before(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version before wrote such plans; in a task today's code tells where its results lie."""
    given: tuple[dict[str, Any], ...] = (
        {"task_id": "p", "outputs": {"out": str(recovery / "lake")}},
        {"task_id": "c", "reads": "p"},
    )
    tasks = dag_of(*(dict(options) for options in given))
    with monkeypatch.context() as before:
        before.setattr(tasks["p"], "declared_outputs", {"out": None})
        assert run_try(tasks["p"])["decision"] == "ran"
    assert run_try(dag_of(*(dict(options) for options in given))["p"], try_number=2)["decision"] == "kept"
    assert run_try(dag_of(*(dict(options) for options in given))["c"])["decision"] == "ran"


def test_by_policy_an_altered_output_is_made_again(recovery: Path, submitted: Path) -> None:
    producer, _, fixed = altered(recovery, on_altered="recompute")
    assert run_try(producer, try_number=2)["attempt"] == 2
    assert (fixed / "part-0").read_text() == "rows"


def test_another_place_is_no_overwriting(recovery: Path, submitted: Path) -> None:
    _, _, fixed = altered(recovery)
    elsewhere = recovery / "elsewhere"
    moved = dag_of({"task_id": "p", "outputs": {"out": str(elsewhere)}})["p"]
    assert run_try(moved)["attempt"] == 2
    assert (fixed / "part-0").read_text() == "newer data"


@pytest.mark.slow
@pytest.mark.parametrize("why", ["code", "lost"])
def test_an_unfinished_attempts_own_files_are_no_newer_data(recovery: Path, submitted: Path, why: str) -> None:
    """p@1 has finished; p@2 (other code, or p@1's files are gone) writes and fails; p@3 may overwrite what p@2 left."""
    fixed = recovery / "lake"
    run_try(dag_of({"task_id": "p", "outputs": {"out": str(fixed)}})["p"])
    if why == "lost":
        shutil.rmtree(fixed)
    say = ["--say", "other"] if why == "code" else ["--say", "rows"]
    task = dag_of({"task_id": "p", "outputs": {"out": str(fixed)}, "say": say})["p"]
    with pytest.MonkeyPatch.context() as patch:
        submit = SparkSubmission.submit

        def half(self: SparkSubmission, job: Any, name: str) -> None:
            job.application_args = ["--out", str(fixed), "--say", "half", "--fail-after-writing"]
            submit(self, job, name)

        patch.setattr(SparkSubmission, "submit", half)
        with pytest.raises(RegionFailed):
            run_try(task, try_number=2)
    assert (fixed / "part-0").read_text() == "half"
    assert run_try(task, try_number=3)["attempt"] == 3
    assert (fixed / "part-0").read_text() == say[1]


def test_two_operators_are_one_job_with_one_publish(recovery: Path, submitted: Path) -> None:
    from airflow_recovery.operators import RecoveryPublishOperator

    tasks = dag_of({"task_id": "p"}, {"task_id": "c", "reads": "p"})
    with tasks["p"].get_dag():
        publish = RecoveryPublishOperator(task_id="publish")
        tasks["c"] >> publish
    run_try(tasks["p"])
    run_try(tasks["c"])
    assert run_try(publish) == {"publish": 1, "regions": {"p": 1, "c": 1}}
    assert run_try(publish, try_number=2)["publish"] == 1


def requests_of_a_reader(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ``c``, the second of three operators, asks of the journal in a run without a failure."""
    tasks = dag_of({"task_id": "p"}, {"task_id": "c", "reads": "p"}, {"task_id": "d", "reads": "c"})
    run_try(tasks["p"])
    asked: list[str] = []
    for name in ("list", "get", "put_if_absent"):
        monkeypatch.setattr(LocalStore, name, noting(asked, name, getattr(LocalStore, name)))
    run_try(tasks["c"])
    return list(asked)


def noting(asked: list[str], name: str, real: Any) -> Any:
    def call(self: LocalStore, key: str = "", *given: Any, **named: Any) -> Any:
        # Heartbeats, and looks for a fence, come by time.
        is_look = name == "list" and key.endswith(".outcome")
        if self.base_uri.endswith("/journal") and not key.startswith("_streams") and not is_look:
            asked.append(f"{name} {key.partition('/~28operators~29/')[2]}")
        return real(self, key, *given, **named)

    return call


def test_operators_share_one_plan_and_an_inner_one_takes_the_fast_path(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = requests_of_a_reader(recovery, monkeypatch)
    assert len(state(recovery, "p", "c").plans) == 1
    assert sorted(re.sub("fingerprint/[0-9a-f]+", "fingerprint/", each) for each in asked) == sorted(
        [
            "list ",
            "get t/p/00000001.outcome",
            "get ",  # the key of digests, which lies beside the runs
            "put_if_absent fingerprint/",  # what it is made of
            "put_if_absent t/c/00000001.claim",
            "list ",  # the release check, beside Spark's start
            "put_if_absent t/c/00000001.outcome",
        ]
    )


def test_control_where_an_operators_own_fingerprint_is_in_its_plan_there_are_more_plans_and_requests(
    recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Run, "plan_hash", property(lambda self: plan_hash(self.today)))
    asked = requests_of_a_reader(recovery, monkeypatch)
    assert (
        len([request for request in asked if request.startswith("put_if_absent plan/")]) == 1
    )  # and p has put its own


@pytest.mark.slow
def test_a_changed_application_still_makes_its_own_operator_run_again(recovery: Path, submitted: Path) -> None:
    """Its fingerprint stands in no plan, and yet its own task evaluates by it."""
    before = dag_of({"task_id": "p", "say": ["--say", "before"]}, {"task_id": "c", "reads": "p"})
    for each in before.values():
        run_try(each)
    after = dag_of({"task_id": "p", "say": ["--say", "after"]}, {"task_id": "c", "reads": "p"})
    with pytest.raises(AirflowFailException, match="p has made again what others had read"):
        run_try(after["p"], try_number=2, states={"c": "success"})
    assert run_try(after["p"], try_number=3, states={"c": None})["decision"] == "kept"
    assert run_try(after["c"], try_number=2)["attempt"] == 2
    assert len(state(recovery, "p", "c").plans) == 1


def test_input_lost_is_retried() -> None:
    from airflow_recovery.task.failures import airflow_errors

    with pytest.raises(InputLost), airflow_errors():
        raise InputLost("later")


# --- inputs in an archive ---------------------------------------------------------------------------------------------


def task_that_reads(recovery: Path, *names: str) -> Any:
    """An operator that reads a folder with these files."""
    folder = recovery / "lake"
    folder.mkdir()
    for name in names:
        (folder / name).write_text("rows")
    given = {"inputs": {"raw": f"file://{folder}"}, "application_args": ["--say", "rows", "--out", "{output:out}"]}
    return dag_of({"task_id": "t", **given})["t"]


@pytest.fixture
def lifecycle(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of files that a lifecycle rule has moved to Glacier."""
    moved: list[str] = []
    whole = LocalStore.list

    def listed(store: LocalStore, *given: str, **named: str) -> Iterator[ObjectInfo]:
        for info in whole(store, *given, **named):
            is_moved = info.key.rpartition("/")[2] in moved
            yield info._replace(archived="GLACIER" if is_moved else "")

    monkeypatch.setattr(LocalStore, "list", listed)
    return moved


def test_fault_363_an_input_in_an_archive_is_named_before_spark_starts(
    recovery: Path, submitted: Path, lifecycle: list[str]
) -> None:
    task = task_that_reads(recovery, "a.csv", "b.csv")
    lifecycle += ["a.csv", "b.csv"]
    with pytest.raises(AirflowFailException) as refused:
        run_try(task)
    assert "t: input 'raw': " in str(refused.value)
    assert "lake/a.csv (storage class GLACIER) and 1 more files are archived" in str(refused.value)
    assert "Spark was not started. Restore them (aws s3api restore-object)" in str(refused.value)
    assert submissions(submitted) == []


def test_fault_363_a_job_may_leave_out_what_is_archived(
    recovery: Path, submitted: Path, lifecycle: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    task = task_that_reads(recovery, "a.csv", "b.csv")
    lifecycle += ["a.csv"]
    assert run_try(task)["decision"] == "ran"
    assert "lake/a.csv (storage class GLACIER) is archived, so it can't be read. If the job reads them" in caplog.text
    lifecycle += ["b.csv"]
    assert run_try(task, try_number=2)["decision"] == "kept"


@pytest.mark.control
def test_fault_363_control_without_the_storage_class_spark_is_started(
    recovery: Path, submitted: Path, lifecycle: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_that_reads(recovery, "a.csv")
    lifecycle += ["a.csv"]
    monkeypatch.setattr(Unreadable, "check", lambda *given: None)
    run_try(task)
    assert len(submissions(submitted)) == 1
