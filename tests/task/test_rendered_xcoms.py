"""Which XComs an argument of a recoverable task may hold (fault 351)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, TriggerRule
from airflow.sdk.exceptions import AirflowFailException, AirflowRescheduleException, XComNotFound
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.xcom import XCom
from expected_errors import fails_with
from tries import execute, state_in, task_context

from airflow_recovery.airflow_compat import RuntimeTaskInstance
from airflow_recovery.attempt import absent_inputs
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import RecoveryPublishOperator, SparkRegionOperator, recoverable
from airflow_recovery.task.rendered_xcoms import XComsOfRun

Bash = recoverable(BashOperator, paths="plain")
States = Mapping[str, str | None]
NO_SUCCESS = (None, "scheduled", "queued", "running", "up_for_retry", "failed", "upstream_failed", "skipped", "removed")
RULE = "all_done"


class XComs:
    """The XComs in Airflow's database, by run, task and key: that of each map index, or of -1."""

    def __init__(self) -> None:
        self.values: dict[tuple[str, str, str], dict[int, Any]] = {}
        self.asked: list[str] = []

    def push(self, task_id: str, value: Any, *, key: str = "return_value", run_id: str = "r", index: int = -1) -> None:
        self.values.setdefault((run_id, task_id, key), {})[index] = value

    def _found(self, task_id: str, key: str, run_id: str, include_prior_dates: bool) -> dict[int, Any]:
        self.asked.append(task_id)
        runs = (run_id, "the day before") if include_prior_dates else (run_id,)
        return next((self.values[run, task_id, key] for run in runs if (run, task_id, key) in self.values), {})

    def get_one(
        self,
        *,
        key: str,
        dag_id: str,
        task_id: str,
        run_id: str,
        map_index: Any = None,
        include_prior_dates: bool = False,
    ) -> Any:
        found = self._found(task_id, key, run_id, include_prior_dates)
        return found.get(-1 if map_index is None else map_index)

    def get_all(
        self, *, key: str, dag_id: str, task_id: str, run_id: str, include_prior_dates: bool = False
    ) -> list[Any] | None:
        found = self._found(task_id, key, run_id, include_prior_dates)
        return [found[index] for index in sorted(found)] or None


@pytest.fixture
def xcoms(monkeypatch: pytest.MonkeyPatch) -> XComs:
    """``made`` and ``more`` are recoverable, ``plain`` is not. Each has pushed something in an earlier try."""
    database = XComs()
    monkeypatch.setattr(XCom, "get_one", database.get_one)
    monkeypatch.setattr(XCom, "get_all", database.get_all)
    for task_id in ("made", "more", "plain", "publish", "gone"):
        database.push(task_id, f"of {task_id}")
        database.push(task_id, f"words of {task_id}", key="words")
    return database


def context_of(states: States, asked: list[Any] | None = None, task_id: str = "t", **more: Any) -> Any:
    """``states``: of the other tasks. Each question for states is noted in ``asked``."""
    context = task_context(task_id, **more)
    ti = context["task_instance"] = context["ti"]
    for name in ("xcom_pull", "_normalize_xcom_pull_params"):
        setattr(ti, name, MethodType(getattr(RuntimeTaskInstance, name), ti))

    def get_task_states(*, task_ids: list[str], **of: Any) -> dict[str, Any]:
        if asked is not None:
            asked.extend(task_ids)
        return {"r": {name: state for name, state in states.items() if {name, name.rpartition("_")[0]} & {*task_ids}}}

    ti.get_task_states = get_task_states
    return context


def reader(argument: Any, *, rule: str = RULE, after: tuple[str, ...] = ("made", "more"), **given: Any) -> Any:
    """A recoverable task in a DAG with the others. ``argument``: text, or a function of the tasks by name."""
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        tasks: dict[str, Any] = {
            name: Bash(task_id=name, bash_command="true {output:out}", outputs=["out"]) for name in ("made", "more")
        }
        tasks["plain"] = BashOperator(task_id="plain", bash_command="true")
        tasks["publish"] = RecoveryPublishOperator(task_id="publish")
        made = argument(tasks) if callable(argument) else argument
        env = {"A": made}
        operator = Bash(
            task_id="t", bash_command="true {output:out}", env=env, outputs=["out"], trigger_rule=rule, **given
        )
        operator.set_upstream([tasks[name] for name in after])
    return operator


def rendered(operator: Any, states: States, asked: list[Any] | None = None) -> Any:
    task = operator.prepare_for_execution()
    task.render_template_fields(context_of(states, asked))
    return task.env["A"]


WAYS: dict[str, tuple[Any, Any, Any]] = {
    # name: the argument, what it holds if `made` is a success, and if it is not
    "a template": ("{{ ti.xcom_pull('made') }}", "of made", "None"),
    "a key": ("{{ ti.xcom_pull('made', key='words') }}", "words of made", "None"),
    "another name of the instance": ("{{ task_instance.xcom_pull(task_ids='made') }}", "of made", "None"),
    "several tasks": ("{{ ti.xcom_pull(['made', 'more']) }}", "['of made', 'of more']", "[None, 'of more']"),
    "a map index": ("{{ ti.xcom_pull('made', map_indexes=None) }}", "of made", "None"),
    "a default": ("{{ ti.xcom_pull('made', map_indexes=None, default='none') }}", "of made", "none"),
    "its DAG's id": ("{{ ti.xcom_pull('made', dag_id='d', run_id='r') }}", "of made", "None"),
    "an XComArg": (lambda tasks: tasks["made"].output, "of made", None),
    "an XComArg in a text": (lambda tasks: f"is {tasks['made'].output}", "is of made", "is None"),
    "prior dates, of which there are none": (
        lambda tasks: "{{ ti.xcom_pull('made', key='other', include_prior_dates=True) }}",
        "None",
        "None",
    ),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("state", ["success", *NO_SUCCESS])
def test_fault_351_an_argument_holds_no_xcom_of_a_task_that_is_no_success_in_this_run(
    xcoms: XComs, way: str, state: str | None
) -> None:
    argument, of_success, of_none = WAYS[way]
    found = rendered(reader(argument), {"made": state, "more": "success"})
    assert found == (of_success if state == "success" else of_none)


@pytest.mark.parametrize("way", [way for way in WAYS if WAYS[way][1] != WAYS[way][2]])
@pytest.mark.control
def test_fault_351_control_as_airflow_has_it_the_argument_holds_what_an_earlier_try_has_pushed(
    xcoms: XComs, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(XComsOfRun, "_states", lambda self, of: None)
    argument, of_success, _ = WAYS[way]
    assert rendered(reader(argument), {"made": "skipped", "more": "success"}) == of_success


def test_fault_351_a_key_that_was_not_pushed_is_no_xcom_as_in_a_new_run(xcoms: XComs) -> None:
    operator = reader(lambda tasks: tasks["made"].output["words"])
    assert rendered(operator, {"made": "success"}) == "words of made"
    with pytest.raises(XComNotFound):
        rendered(operator, {"made": "skipped"})


def test_fault_351_a_task_that_airflow_does_not_have_has_left_nothing(xcoms: XComs) -> None:
    assert rendered(reader("{{ ti.xcom_pull('made') }}"), {}) == "None"


def test_fault_351_nor_has_one_that_todays_dag_lacks(xcoms: XComs) -> None:
    asked: list[Any] = []
    assert rendered(reader("{{ ti.xcom_pull('gone') }}", rule="all_success"), {"gone": "success"}, asked) == "None"
    assert asked == []


def test_fault_351_the_task_that_publishes_is_one_of_them(xcoms: XComs) -> None:
    operator = reader("{{ ti.xcom_pull('publish') }}")
    assert [rendered(operator, {"publish": state}) for state in ("success", "skipped")] == ["of publish", "None"]


@pytest.mark.parametrize("state", NO_SUCCESS)
def test_tasks_that_are_not_recoverable_follow_airflow(xcoms: XComs, state: str | None) -> None:
    asked: list[Any] = []
    assert rendered(reader("{{ ti.xcom_pull('plain') }}"), {"plain": state}, asked) == "of plain"
    assert asked == []


def test_by_the_default_rule_airflow_is_not_asked_for_what_it_has_waited_for(xcoms: XComs) -> None:
    asked: list[Any] = []
    assert rendered(reader("{{ ti.xcom_pull('made') }}", rule="all_success"), {}, asked) == "of made"
    assert asked == []


def test_fault_351_by_the_default_rule_it_is_asked_for_one_further_up(xcoms: XComs) -> None:
    """Between them is a task that runs on skips."""
    asked: list[Any] = []
    operator = reader("{{ ti.xcom_pull('made') }}", rule="all_success", after=("plain",))
    assert rendered(operator, {"made": "skipped"}, asked) == "None"
    assert rendered(operator, {"made": "success"}) == "of made"
    assert asked == ["made"]


def test_a_task_is_asked_for_once_in_a_rendering(xcoms: XComs) -> None:
    asked: list[Any] = []
    pulls = "{{ ti.xcom_pull('made') }} {{ ti.xcom_pull('made', key='words') }} {{ ti.xcom_pull('more') }}"
    rendered(reader(pulls), {"made": "success", "more": "success"}, asked)
    assert asked == ["made", "more"]


def test_what_other_runs_and_dags_have_left_follows_airflow(xcoms: XComs) -> None:
    xcoms.push("made", "of before", run_id="the day before")
    for where in ("run_id='the day before'", "run_id='the day before', dag_id='other'"):
        assert rendered(reader(f"{{{{ ti.xcom_pull('made', {where}) }}}}"), {"made": "skipped"}) == "of before"


def test_its_own_xcom_follows_airflow(xcoms: XComs) -> None:
    xcoms.push("t", "its own")
    assert rendered(reader("{{ ti.xcom_pull() }}"), {"t": "running"}) == "its own"


def test_a_job_that_does_not_recover_is_plain_airflow(xcoms: XComs) -> None:
    off = {"execution.batch.job-recovery.enabled": False}
    operator = reader("{{ ti.xcom_pull('made') }}", job_recovery=off)
    assert rendered(operator, {"made": "skipped"}) == "of made"


def test_where_the_dag_is_not_known_nothing_is_kept_back(xcoms: XComs) -> None:
    operator = Bash(
        task_id="t", bash_command="true {output:out}", env={"A": "{{ ti.xcom_pull('made') }}"}, outputs=["out"]
    )
    assert rendered(operator, {"made": "skipped"}) == "of made"


def test_after_an_error_airflow_reads_xcoms_by_itself_again(xcoms: XComs) -> None:
    before = XCom.get_one, XCom.get_all
    with pytest.raises(ZeroDivisionError):
        rendered(reader("{{ 1 // 0 }}"), {})
    assert (XCom.get_one, XCom.get_all) == before


# --- several instances of one task -----------------------------------------------------------------------------------


def of_mapped(xcoms: XComs, states: States, **of: Any) -> Any:
    """What `XComsOfRun` gives of ``made``, as if it was mapped."""
    xcoms.values.pop(("r", "made", "return_value"))
    for index in range(3):
        xcoms.push("made", index, index=index)
    operator = reader("")
    with XComsOfRun(operator, context_of(states)["ti"]).reading():
        return XCom.get_all(key="return_value", dag_id="d", task_id="made", run_id="r", **of)


def test_fault_351_of_mapped_instances_those_that_are_a_success_are_found(xcoms: XComs) -> None:
    assert of_mapped(xcoms, {"made_0": "success", "made_1": "failed", "made_2": "success"}) == [0, 2]


def test_fault_351_all_of_them_or_none(xcoms: XComs) -> None:
    assert of_mapped(xcoms, {f"made_{index}": "success" for index in range(3)}) == [0, 1, 2]
    assert of_mapped(xcoms, {f"made_{index}": "skipped" for index in range(3)}) is None


def test_fault_351_one_instance_counts_by_its_own_state(xcoms: XComs) -> None:
    states = {"made_0": "success", "made_1": "skipped"}
    for index in range(2):
        xcoms.push("made", index, index=index)
    operator = reader("{{ ti.xcom_pull('made', map_indexes=[0, 1]) }}")
    assert rendered(operator, states) == "[0, None]"


# --- prior dates -----------------------------------------------------------------------------------------------------

PRIOR = "{{ ti.xcom_pull('made', map_indexes=None, include_prior_dates=True) }}"
ALL_PRIOR = "{{ ti.xcom_pull('made', include_prior_dates=True) }}"


@pytest.fixture(params=[PRIOR, ALL_PRIOR], ids=["one", "all"])
def prior(request: pytest.FixtureRequest, xcoms: XComs) -> str:
    xcoms.push("made", "of before", run_id="the day before")
    return str(request.param)


def test_fault_351_an_earlier_date_is_found_as_in_a_new_run(xcoms: XComs, prior: str) -> None:
    xcoms.values.pop(("r", "made", "return_value"))
    assert rendered(reader(prior), {"made": "skipped"}) == "of before"


def test_fault_351_it_fails_by_name_if_airflow_would_find_an_earlier_try_of_this_run_first(
    xcoms: XComs, prior: str
) -> None:
    assert rendered(reader(prior), {"made": "success"}) == "of made"
    with fails_with("xcom-of-another-run", by=AirflowFailException, task="made"):
        rendered(reader(prior), {"made": "skipped"})


def test_fault_351_it_waits_if_that_may_still_become_a_success(xcoms: XComs, prior: str) -> None:
    with pytest.raises(AirflowRescheduleException):
        rendered(reader(prior), {"made": "queued"})


# --- a whole try -----------------------------------------------------------------------------------------------------

TELL = "mkdir -p '{output:out}' && echo '{{ ti.xcom_pull(\"made\") }} {input:in}' | tee '{output:out}/part-0'"


def joining() -> dict[str, Any]:
    """``t`` reads an output of ``made``, which may be absent, and an XCom of it."""
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        write = "mkdir -p '{output:out}' && echo rows > '{output:out}/part-0'"
        made = Bash(task_id="made", bash_command=write, outputs=["out"])
        inputs = {"in": made.result("out", optional=True)}
        t = Bash(task_id="t", bash_command=TELL, outputs=["out"], inputs=inputs, trigger_rule=RULE)
    return {"made": made, "t": t}


def told(answer: Mapping[str, Any]) -> tuple[str, int, str]:
    """The decision, the attempt and what the job was told, without the input's place."""
    (result,) = answer["results"].values()
    text = (Path(result["location"].removeprefix("file://")) / "part-0").read_text().split()
    return answer["decision"], answer["attempt"], " ".join([*text[:-1], "an input"] if "/" in text[-1] else text)


def tried(
    tasks: Mapping[str, Any], states: States, later: States | None = None, number: int = 1
) -> tuple[str, int, str]:
    """A try of ``t``. ``later``: the states when its inputs are looked at."""
    now = dict(states)
    context = context_of(now, try_number=number)
    task = tasks["t"].prepare_for_execution()
    render = task.render_template_fields

    def rendered_before(*given: Any) -> None:
        render(*given)
        now.update(later or {})

    vars(task)["render_template_fields"] = rendered_before
    context.update(task=task, outlet_events=OutletEventAccessors())
    return told(execute(task, context))


def made_first(tasks: Mapping[str, Any]) -> None:
    made = tasks["made"].prepare_for_execution()
    context = context_of({}, task_id="made")
    context.update(task=made, outlet_events=OutletEventAccessors())
    execute(made, context)


def test_fault_351_a_task_without_its_optional_input_is_given_none_of_its_xcoms(
    recovery: Path, xcoms: XComs, caplog: pytest.LogCaptureFixture
) -> None:
    tasks = joining()
    made_first(tasks)
    assert tried(tasks, {"made": "success"}) == ("ran", 1, "of made an input")
    with caplog.at_level(logging.INFO):
        assert tried(tasks, {"made": "skipped"}, number=2) == ("ran", 2, "None")
    assert "No argument gets an XCom of made, which is skipped in this run." in caplog.text
    assert tried(tasks, {"made": "skipped"}, number=3) == ("kept", 2, "None")


@pytest.mark.control
def test_fault_351_control_as_airflow_has_it_the_job_is_given_what_an_earlier_try_has_pushed(
    recovery: Path, xcoms: XComs, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = joining()
    made_first(tasks)
    monkeypatch.setattr(XComsOfRun, "_states", lambda self, of: None)
    assert tried(tasks, {"made": "skipped"}) == ("ran", 1, "of made")


@pytest.mark.parametrize(("before", "after"), [("success", "queued"), ("queued", "success")])
def test_fault_351_an_input_that_changes_after_the_rendering_has_it_rendered_again(
    recovery: Path, xcoms: XComs, before: str, after: str
) -> None:
    tasks = joining()
    made_first(tasks)
    with pytest.raises(AirflowRescheduleException):
        tried(tasks, {"made": before}, {"made": after})
    assert state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts == {}


@pytest.mark.control
def test_fault_351_control_without_the_second_look_the_job_has_an_xcom_and_no_input(
    recovery: Path, xcoms: XComs, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = joining()
    made_first(tasks)
    monkeypatch.setattr(absent_inputs, "check_rendered", lambda *given: None)
    assert tried(tasks, {"made": "success"}, {"made": "queued"}) == ("ran", 1, "of made")


# --- a declared job --------------------------------------------------------------------------------------------------


def test_fault_351_the_version_of_a_declared_source_holds_none_either(xcoms: XComs) -> None:
    """Parameters of a declared job can't name XComs: they are templates over the run alone."""
    operator = SparkRegionOperator(task_id="r", job="regionjobs.flights:flights", region="x", group_id="g", conn_id="c")
    asking = reader("")
    asking.dag.add_task(operator)
    operator.trigger_rule = TriggerRule.ALL_DONE

    def text_of(state: str) -> str:
        return operator._render_text(context_of({"made": state}, task_id="r"), "{{ ti.xcom_pull('made') }}")

    assert (text_of("success"), text_of("skipped")) == ("of made", "None")
