"""Any operator as one vertex: what is declared and refused, and attempts of a `BashOperator` that writes real files."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import date, datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.providers.standard.operators.python import BranchPythonOperator, PythonOperator, ShortCircuitOperator
from airflow.sdk import DAG, BaseOperator, task
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskDeferred
from expected_errors import fails_with
from tries import execute, run_try, state_in, task_context

from airflow_recovery.errors import ClearNotConfigured, JobDefinitionError, RegionFailed
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import RecoverableSparkSubmitOperator, recoverable
from airflow_recovery.task.dag_operators import plan_of_dag
from airflow_recovery.testing.patience import wait_until

Bash = recoverable(BashOperator, paths="plain")
WRITE = "mkdir -p '{output:out}' && echo rows > '{output:out}/part-0'"


def new_dag() -> DAG:
    return DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc))


def bash(task_id: str = "t", dag: DAG | None = None, **given: Any) -> Any:
    with dag or new_dag():
        return Bash(**{"task_id": task_id, "bash_command": WRITE, "outputs": ["out"], **given})


def reader(dag: DAG, producer: Any) -> Any:
    command = "mkdir -p '{output:out}' && cat '{input:rows}'/* '{input:rows}'/* > '{output:out}/part-0'"
    return bash("c", dag, bash_command=command, inputs={"rows": producer.result("out")})


def location_of(answer: dict[str, Any]) -> Path:
    (result,) = answer["results"].values()
    return Path(result["location"].removeprefix("file://"))


# --- declaration ------------------------------------------------------------------------------------------------------


class NoFields(BaseOperator):
    template_fields = ()


class OwnOutputs(BaseOperator):
    template_fields = ("where",)

    def __init__(self, outputs: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)


@pytest.mark.parametrize(
    ("given", "code"),
    [
        (
            {"operator": NoFields},
            "recoverable-fields-not-rendered",
        ),
        (
            {"operator": BashOperator, "fields": ["command"]},
            "recoverable-fields-not-rendered",
        ),
        ({"operator": BashOperator, "fields": []}, "recoverable-fields-not-rendered"),
        ({"operator": BashOperator, "fields": "env"}, "argument-unfit"),
        ({"operator": BashOperator, "paths": "s3"}, "argument-unfit"),
        ({"operator": 3}, "recoverable-no-operator"),
        ({"operator": dict}, "recoverable-no-operator"),
        ({"operator": Bash}, "recoverable-already"),
        ({"operator": OwnOutputs}, "recoverable-argument-taken"),
    ],
)
def test_what_can_be_no_recoverable_operator_is_refused_by_name(given: dict[str, Any], code: str) -> None:
    with fails_with(code):
        recoverable(**given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"outputs": []}, "t: expected at least one output, found none"),
        ({"bash_command": "true"}, r"t: output 'out' is managed.*put \{output:out\} into bash_command or env or cwd"),
        ({"bash_command": "echo {output:uot}"}, r"t: \{output:uot\} in bash_command or env or cwd stands for nothing"),
        ({"bash_command": "echo ${output:0:3}"}, r"t: \{output:0:3\} in bash_command"),
        ({"inputs": {"i": "relative"}}, "t: input 'i': expected s3://"),
        ({"idempotent": False}, "t: expected an application that can run again, found idempotent=False"),
        ({"deferrable": True}, "Invalid arguments were passed to RecoverableBashOperator"),
    ],
)
def test_a_wrong_declaration_is_refused_by_name(given: dict[str, Any], said: str) -> None:
    with pytest.raises((JobDefinitionError, TypeError), match=said):
        bash(**given)


@pytest.mark.parametrize("command", ["{{ params.command }}", "write.sh"])
def test_what_airflow_puts_in_later_is_asked_for_a_placeholder_before_the_claim(
    recovery: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = bash(bash_command=command)
    monkeypatch.setattr(Bash, "render_template_fields", lambda self, *_: setattr(self, "bash_command", "true"))
    with fails_with("output-never-told", by=AirflowFailException, task="t", output="out"):
        run_try(operator)
    assert not list((recovery / "journal").rglob("*.claim"))


def test_placeholders_stand_in_the_fields_that_are_named_and_nowhere_else() -> None:
    only = recoverable(BashOperator, fields=["env"])
    with new_dag():
        made = only(task_id="t", bash_command="echo ${output:0:3}", env={"OUT": "{output:out}"}, outputs=["out"])
    assert made.placeholder_fields == ("env",)
    assert set(made.template_fields) == {"bash_command", "env", "cwd", "inputs", "outputs"}


class Waiting(BaseOperator):
    template_fields = ("where",)

    def __init__(self, where: str = "{output:out}", **kwargs: Any) -> None:
        for name in ("deferrable", "wait_for_completion", "asynchronous", "wait_for_termination", "_polling_interval"):
            if name in kwargs:
                setattr(self, name, kwargs.pop(name))
        super().__init__(**kwargs)
        self.where = where


@pytest.mark.parametrize(
    ("given", "code"),
    [
        pytest.param({"deferrable": True}, "operator-defers", id="deferrable"),
        ({"wait_for_completion": False}, "operator-does-not-wait"),
        ({"wait_for_termination": False}, "operator-does-not-wait"),
        ({"asynchronous": True}, "operator-does-not-wait"),
        ({"_polling_interval": 0}, "operator-never-polls"),
    ],
)
def test_an_operator_that_does_not_wait_in_the_worker_is_refused(given: dict[str, Any], code: str) -> None:
    with new_dag(), fails_with(code):
        recoverable(Waiting)(task_id="t", outputs=["out"], **given)


def test_spark_submit_has_its_own_class_and_any_other_is_made_once() -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    assert recoverable(SparkSubmitOperator) is RecoverableSparkSubmitOperator
    assert recoverable(BashOperator, paths="plain") is Bash
    assert recoverable(BashOperator) is not Bash


def test_operators_of_all_kinds_are_one_job_and_the_dag_is_serialisable() -> None:
    from airflow.serialization.serialized_objects import DagSerialization

    dag = new_dag()
    first = bash("p", dag)
    with dag:
        RecoverableSparkSubmitOperator(
            task_id="s", application="s3://b/a.py", outputs=["o"], inputs={"i": first.result("out")},
            application_args=["{input:i}", "{output:o}"],
        )  # fmt: skip
        EmptyOperator(task_id="other")
    assert [(region.name, region.inputs) for region in plan_of_dag(dag).regions] == [("p", ()), ("s", ("p",))]
    document = DagSerialization.to_dict(dag)
    DagSerialization.validate_schema(document)
    assert DagSerialization.from_dict(document).get_task("p").task_type == "RecoverableBashOperator"
    assert first.retries == 12, "the tries of the restart strategy"


# --- fingerprint ------------------------------------------------------------------------------------------------------


def fingerprint(**given: Any) -> str:
    return str(bash(**given).fingerprint())


def test_what_the_fields_say_is_the_fingerprint(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("1")
    given = {"bash_command": WRITE, "env": {"SCRIPT": str(script)}}
    one = fingerprint(**given)
    assert one == fingerprint(**given) == fingerprint(**given, do_xcom_push=False)
    assert one != fingerprint(**{**given, "bash_command": f"{WRITE} # other"})
    assert one != fingerprint(**given, inputs={"i": "s3://lake/in"})
    script.write_text("2")
    assert one != fingerprint(**given)


def write_rows(out: str) -> None:
    folder = Path(out.removeprefix("file://"))
    folder.mkdir(parents=True)
    (folder / "part-0").write_text("rows of python")


def write_more(out: str) -> None:
    write_rows(out)


def python(function: Any) -> Any:
    with new_dag():
        made = recoverable(PythonOperator)
        return made(task_id="t", python_callable=function, op_kwargs={"out": "{output:out}"}, outputs=["out"])


def test_an_output_at_a_place_that_a_task_returns_lets_the_other_operators_run(recovery: Path) -> None:
    with new_dag() as dag:
        place: Any = task(task_id="place")(lambda: "s3://lake/x")()
    bash("fixed", dag, outputs={"out": place}, bash_command="true")
    other = bash("other", dag)
    (fixed,) = plan_of_dag(dag).by_name["fixed"].fixed
    assert fixed == ("fixed.out", "{{ task_instance.xcom_pull(task_ids='place', dag_id='d', key='return_value') }}")
    assert (location_of(run_try(other)) / "part-0").exists()


def test_the_code_of_a_function_belongs_to_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    one = python(write_more).fingerprint()
    assert one == python(write_more).fingerprint() != python(write_rows).fingerprint()


def by_closure(day: date) -> Callable[[str], None]:
    def function(out: str) -> None:
        write_text(out, f"rows of {day}")

    return function


def by_default(carrier: str) -> Callable[..., None]:
    def function(out: str, carrier: str = carrier) -> None:
        write_text(out, carrier)

    return function


def write_text(out: str, text: str) -> None:
    folder = Path(out.removeprefix("file://"))
    folder.mkdir(parents=True)
    (folder / "part-0").write_text(text)


class Cleaner:
    def __init__(self, carrier: str) -> None:
        self.carrier = carrier
        self.again = partial(self.run)

    def run(self, out: str) -> None:
        write_text(out, self.carrier)


class CallableCleaner(Cleaner):
    def __call__(self, out: str) -> None:
        self.run(out)


BOUND: dict[str, tuple[Callable[..., Any], Any, Any]] = {
    "a closure": (by_closure, date(2013, 1, 1), date(2013, 1, 2)),
    "a closure with keys that are no texts": (by_closure, {("JFK", "LAX"): 1}, {("JFK", "LAX"): 2}),
    "a closure that JSON has no number for": (by_closure, float("inf"), float("-inf")),
    "a closure with a set": (by_closure, {"AA", "UA"}, {"AA", "B6"}),
    "a default": (by_default, "AA", "UA"),
    "a partial": (lambda carrier: partial(write_text, text=carrier), "AA", "UA"),
    "an object's method": (lambda carrier: Cleaner(carrier).run, "AA", "UA"),
    "an object that is called": (CallableCleaner, "AA", "UA"),
    "a partial of a method": (lambda carrier: partial(CallableCleaner(carrier).run), "AA", "UA"),
}


@pytest.mark.parametrize("case", BOUND)
def test_what_is_bound_in_a_callable_belongs_to_the_fingerprint(case: str, recovery: Path) -> None:
    made, one, other = BOUND[case]
    first = python(made(one))
    assert first.fingerprint() == python(made(one)).fingerprint() != python(made(other)).fingerprint()
    run_try(first)
    assert run_try(python(made(one)), try_number=2)["decision"] == "kept"
    assert run_try(python(made(other)), try_number=3)["decision"] == "ran"


def test_numbers_that_json_does_not_have_are_told_apart() -> None:
    def given(threshold: float) -> str:
        with new_dag():
            kwargs = {"out": "{output:out}", "threshold": [threshold]}
            made = recoverable(PythonOperator)
            return str(made(task_id="t", python_callable=print, op_kwargs=kwargs, outputs=["out"]).fingerprint())

    inf, nan = float("inf"), float("nan")
    assert len({given(number) for number in (inf, -inf, nan, 1.0)}) == 4
    assert given(nan) == given(float("nan"))


@pytest.mark.parametrize("operator", [BranchPythonOperator, ShortCircuitOperator])
def test_what_skips_other_tasks_is_refused(operator: Any) -> None:
    with fails_with("recoverable-skips-others"):
        recoverable(operator)


def test_in_which_order_a_set_is_walked_is_no_difference() -> None:
    """Of texts it is another one in each process."""
    one: Any
    other: Any
    one, other = {0, 8}, {8, 0}
    assert str(one) != str(other)
    assert python(by_closure(one)).fingerprint() == python(by_closure(other)).fingerprint()


def test_a_text_that_only_begins_like_a_path_stands_for_itself(recovery: Path) -> None:
    columns = ",".join(f"column_{number}" for number in range(40))
    assert run_try(bash(bash_command=f'/usr/bin/env -S {columns}= sh -c "{WRITE}"'))["decision"] == "ran"


# --- attempts ---------------------------------------------------------------------------------------------------------


def test_an_attempt_writes_to_its_own_place_and_is_kept(recovery: Path) -> None:
    operator = bash()
    first = run_try(operator)
    assert (first["decision"], first["results"]["t.out"]["files"]) == ("ran", 1)
    assert (location_of(first) / "part-0").read_text() == "rows\n"
    assert run_try(operator, try_number=2)["decision"] == "kept"
    assert operator.bash_command == WRITE, "the declaration stays as it is"


def test_a_lost_result_is_named_and_made_again(recovery: Path) -> None:
    dag = new_dag()
    producer = bash("p", dag)
    consumer = reader(dag, producer)
    shutil.rmtree(location_of(run_try(producer)))
    with pytest.raises(AirflowFailException) as caught:
        run_try(consumer)
    assert isinstance(caught.value.__cause__, ClearNotConfigured)
    assert "[state_store] backend" in str(caught.value)
    assert run_try(producer, try_number=2)["attempt"] == 2
    made = run_try(consumer, try_number=2)
    assert (location_of(made) / "part-0").read_text() == "rows\nrows\n"


@pytest.mark.slow
def test_a_failure_counts_and_the_next_attempt_has_a_place_of_its_own(recovery: Path) -> None:
    flag = recovery / "flag"
    operator = bash(bash_command=f"{WRITE} && test -e {flag}")
    with pytest.raises(RegionFailed, match=r"t@1: the application failed: Bash command failed.* non-zero exit code 1"):
        run_try(operator)
    flag.touch()
    made = run_try(operator, try_number=2)
    assert (made["decision"], made["attempt"]) == ("ran", 2)
    assert location_of(made).parent.name.startswith("00000002-")
    state = state_in(recovery, OPERATORS_GROUP, "t").of("t")
    assert (state.attempts[1].is_finished, state.attempts[2].is_finished) == (False, True)


def test_control_without_the_filling_nothing_is_written_to_the_place(
    recovery: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("airflow_recovery.task.drop_in_operator.filled", lambda value, locations: value)
    with fails_with("output-not-written", output="out"):
        run_try(bash(cwd=str(tmp_path)))


def test_a_skip_is_a_skip_and_leaves_no_attempt_open(recovery: Path) -> None:
    operator = bash(bash_command=f"{WRITE}; exit 99")
    with pytest.raises(AirflowSkipException):
        run_try(operator)
    attempt = state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts[1]
    assert (attempt.has_outcome, attempt.is_finished) == (True, False)


def test_a_failure_for_good_is_not_tried_again(recovery: Path) -> None:
    def in_vain(out: str) -> None:
        raise AirflowFailException("no such table")

    with pytest.raises(AirflowFailException, match="t: no such table"):
        run_try(python(in_vain))
    assert state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts[1].has_outcome


class Defers(BaseOperator):
    template_fields = ("where",)
    killed: ClassVar[list[str]] = []

    def __init__(self, where: str = "{output:out}", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.where = where

    def execute(self, context: Any) -> None:
        raise TaskDeferred(trigger=object(), method_name="execute_complete")

    def on_kill(self) -> None:
        self.killed.append(self.where)


def test_an_operator_that_defers_after_all_is_ended_and_refused_by_name(recovery: Path) -> None:
    with new_dag():
        operator = recoverable(Defers)(task_id="t", outputs=["out"])
    with fails_with("operator-deferred", by=AirflowFailException, task="t"):
        run_try(operator)
    assert re.search("/t/00000001-[0-9a-f]{8}/out$", Defers.killed[-1])
    assert state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts[1].has_outcome


def test_a_kill_ends_the_process_that_was_started(recovery: Path) -> None:
    started = recovery / "started"
    task = bash(bash_command=f"echo > {started}; exec sleep 86400 # {{output:out}}").prepare_for_execution()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            execute(task, task_context("t"))
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(started.exists, "the command to begin", is_over=lambda: not thread.is_alive())
    # The command can begin a moment before Airflow's hook knows its process: a kill in that moment reaches nothing.
    while thread.is_alive():
        with suppress(ProcessLookupError):  # it has ended
            task.on_kill()
        thread.join(0.2)
    assert "non-zero exit code -15" in str(errors[0])


def test_where_recovery_is_off_the_placeholders_are_filled_and_nothing_is_recorded(recovery: Path) -> None:
    operator = bash(job_recovery={"execution.batch.job-recovery.enabled": False})
    for _ in range(2):
        assert run_try(operator)["decision"] == "ran"
    assert not (recovery / "journal").exists()


def test_a_decorated_function_is_an_operator_like_others(recovery: Path) -> None:
    with new_dag():

        @recoverable(task.python)(outputs=["out"])
        def write(out: str) -> None:
            write_rows(out)

        made = write(out="{output:out}").operator
    assert (location_of(run_try(made)) / "part-0").read_text() == "rows of python"
    assert made.result("out").task_id == "write"
