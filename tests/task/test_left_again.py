"""What a kept try leaves in Airflow: XComs and return value of its attempt, and the asset events that are missing."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Asset, AssetAlias, BaseOperator, ResumableJobMixin, task
from airflow.sdk._shared.secrets_masker import mask_secret, reset_secrets_masker
from airflow.sdk.exceptions import AirflowFailException
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.execution_time.xcom import XCom
from tries import journal_in, run_try, state_in, task_context, xcoms_of

from airflow_recovery.errors import RegionFailed
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import RecoveryPublishOperator, recoverable
from airflow_recovery.planning.evaluation import Evaluation
from airflow_recovery.planning.plan_making import why_kept
from airflow_recovery.results.release import Releaser
from airflow_recovery.results.sweep_found import data_of_run
from airflow_recovery.sinks import DeltaTable
from airflow_recovery.store.local import LocalStore
from airflow_recovery.task import asset_events, drop_in, outliving_job
from airflow_recovery.task.dag_operators import plan_of_dag
from airflow_recovery.task.left_in_airflow import MOST_BYTES, SUMMARY_KEY, LeftInAirflow

KNOWN = "hunter2-and-more"
MADE = Asset("made", uri="s3://lake/made")
Leave = Callable[[Any], Any]


@pytest.fixture(autouse=True)
def secrets() -> Iterator[None]:
    reset_secrets_masker()
    mask_secret(KNOWN)
    yield
    reset_secrets_masker()


def new_dag() -> DAG:
    return DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc))


def leaving(leave: Leave, **given: Any) -> Any:
    """An operator that writes, leaves something in Airflow, and returns what ``leave`` does."""

    def write(out: str, **context: Any) -> Any:
        Path(out).mkdir(parents=True)
        (Path(out) / "part-0").write_text("rows")
        return leave(context)

    with new_dag():
        return recoverable(PythonOperator, fields=["op_kwargs"], paths="plain")(
            task_id="t", python_callable=write, op_kwargs={"out": "{output:out}"}, outputs=["out"], **given
        )


def push(**values: Any) -> Leave:
    return lambda context: [context["ti"].xcom_push(key=key, value=value) for key, value in values.items()] and None


def context_of(operator: Any, number: int = 1) -> Any:
    context = task_context(operator.task_id, try_number=number)
    context.update(task=operator, outlet_events=OutletEventAccessors())
    return context


def left_by(operator: Any, number: int = 1) -> dict[str, Any]:
    """What one try leaves, with the decision in place of what recovery did."""
    prepared = operator.prepare_for_execution()
    pushed = xcoms_of(prepared, context_of(prepared, number))
    return {**pushed, SUMMARY_KEY: pushed[SUMMARY_KEY]["decision"]}


def stored(folder: Path) -> list[Path]:
    return sorted(folder.glob("results/**/_xcoms/*.json"))


def outcome_of(folder: Path, number: int = 1) -> Any:
    return state_in(folder, OPERATORS_GROUP, "t").of("t").attempts[number].outcome


# --- kept -------------------------------------------------------------------------------------------------------------


async def push_later(context: Any) -> None:
    ti = context["ti"]
    await XCom.aset("later", 1, dag_id=ti.dag_id, task_id=ti.task_id, run_id=ti.run_id)


def push_twice(context: Any) -> None:
    for number in (1, 2):
        context["ti"].xcom_push(key="n", value=number)


def push_and_change(context: Any) -> None:
    words = ["a"]
    context["ti"].xcom_push(key="words", value=words)
    words.append("b")


def push_by_class(context: Any) -> None:
    XCom.set("own", 1, dag_id="d", task_id="t", run_id="r")
    XCom.set("n", 1, dag_id="d", task_id="another", run_id="r")


LEFT: dict[str, tuple[Leave, dict[str, Any]]] = {
    "several keys": (push(a=1, b="two", c=[3], d={"e": 4.5}), {"a": 1, "b": "two", "c": [3], "d": {"e": 4.5}}),
    "values that are false": (
        push(a=0, b="", c=[], d=False, e=None),
        {"a": 0, "b": "", "c": [], "d": False, "e": None},
    ),
    "no JSON": (
        push(day=datetime(2024, 1, 1, tzinfo=timezone.utc), pair=(1, 2), seen={3}),
        {"day": datetime(2024, 1, 1, tzinfo=timezone.utc), "pair": (1, 2), "seen": {3}},
    ),
    "one key twice": (push_twice, {"n": 2}),
    "a value that changes later": (push_and_change, {"words": ["a"]}),
    "its class, and that of another task": (push_by_class, {"own": 1}),
    "a return value": (lambda context: ["one", "two"], {"return_value": ["one", "two"]}),
    "one that is false": (lambda context: 0, {"return_value": 0}),
}


@pytest.mark.parametrize("case", LEFT)
def test_fault_190_a_kept_try_leaves_what_its_attempt_has_left(case: str, recovery: Path) -> None:
    leave, expected = LEFT[case]
    operator = leaving(leave)
    wanted = {"return_value": None, **expected}
    first = left_by(operator)
    assert {name: first[name] for name in wanted} == {**wanted, **({"words": ["a", "b"]} if "words" in wanted else {})}
    assert left_by(operator, 2) == {**wanted, SUMMARY_KEY: "kept"}
    (file,) = stored(recovery)
    assert file.stem == outcome_of(recovery).xcoms.digest


def test_fault_190_what_is_pushed_asynchronously_is_left_again(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def sent(key: str, value: Any, **_: Any) -> None: ...

    monkeypatch.setattr(XCom, "aset", sent)
    operator = leaving(lambda context: asyncio.run(push_later(context)))
    left_by(operator)
    assert left_by(operator, 2)["later"] == 1
    assert XCom.aset is sent


def test_fault_190_a_try_that_died_behind_the_finish_is_kept_with_all_of_it(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = leaving(push(watermark=42))
    with monkeypatch.context() as patched:
        patched.setattr("airflow_recovery.attempt.region_task.final_check", die)
        with pytest.raises(Died):
            left_by(operator)
    assert left_by(operator, 2) == {"watermark": 42, "return_value": None, SUMMARY_KEY: "kept"}


class Died(BaseException):
    """The process is gone."""


def die(*_: Any) -> None:
    raise Died


def test_what_leaves_nothing_stores_nothing(recovery: Path) -> None:
    operator = leaving(lambda context: None)
    left_by(operator)
    assert (stored(recovery), outcome_of(recovery).xcoms) == ([], None)
    assert left_by(operator, 2) == {"return_value": None, SUMMARY_KEY: "kept"}


def test_a_return_value_that_airflow_does_not_push_is_not_stored(recovery: Path) -> None:
    run_try(leaving(lambda context: "rows", do_xcom_push=False))
    assert outcome_of(recovery).xcoms is None


@pytest.mark.parametrize("given", [{}, {"multiple_outputs": True}, {"multiple_outputs": False}])
def test_of_a_decorated_function_the_options_decide_on_several_outputs(recovery: Path, given: dict[str, Any]) -> None:
    with new_dag():

        @recoverable(task, paths="plain")(outputs=["out"], **given)
        def t(out: str) -> dict[str, int]:
            Path(out).mkdir(parents=True)
            (Path(out) / "part-0").write_text("rows")
            return {"a": 1}

        operator = t(out="{output:out}").operator
    assert operator.multiple_outputs is given.get("multiple_outputs", True)
    assert left_by(operator)["return_value"] == left_by(operator, 2)["return_value"] == {"a": 1}


def test_without_recovery_an_operator_returns_its_own_value(recovery: Path) -> None:
    with new_dag():
        operator = recoverable(BashOperator, paths="plain")(
            task_id="t",
            bash_command="mkdir -p '{output:out}' && echo rows | tee '{output:out}/part-0'",
            outputs=["out"],
            job_recovery={"execution.batch.job-recovery.enabled": False},
        )
    for number in (1, 2):
        assert left_by(operator, number) == {"return_value": "rows", SUMMARY_KEY: "ran"}
    assert stored(recovery) == []


def test_fault_190_control_without_it_a_kept_try_leaves_nothing(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = leaving(push(watermark=42))
    left_by(operator)
    monkeypatch.setattr(drop_in.DropInApplication, "leave_again", lambda self: None)
    assert "watermark" not in left_by(operator, 2)


# --- not stored -------------------------------------------------------------------------------------------------------


class NotForAirflow:
    __slots__ = ()


UNFIT: dict[str, tuple[Leave, str]] = {
    "too large": (push(a="x" * MOST_BYTES), "bytes, and at most 1048576 are stored"),
    "a return value that is too large": (lambda context: "x" * MOST_BYTES, "bytes, and at most 1048576 are stored"),
    "a secret that Airflow knows": (push(a=f"as {KNOWN}"), "Airflow's secrets masker finds a secret in them"),
    "... deep inside": (push(a=[[[[[[[{"b": KNOWN}]]]]]]]), "secrets masker finds a secret"),
    "... in a return value": (lambda context: {"b": KNOWN}, "secrets masker finds a secret"),
    "what looks like one": (push(a="postgres://me:pass@host/db"), "secrets masker finds a secret"),
    "a key that says so": (push(api_key="x"), "secrets masker finds a secret"),
    "what Airflow can't serialise": (push(a=1, b=NotForAirflow()), "Airflow can't serialise XCom 'b': "),
}


@pytest.mark.parametrize("case", UNFIT)
def test_fault_191_what_is_not_stored_has_its_task_run_again(
    case: str, recovery: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leave, why = UNFIT[case]
    operator = leaving(leave)
    with caplog.at_level(logging.INFO):
        assert left_by(operator)[SUMMARY_KEY] == "ran"
    assert "The XComs of attempt 1 are not stored: " in caplog.text
    assert (outcome_of(recovery).xcoms.digest, stored(recovery)) == ("", [])
    assert why in outcome_of(recovery).xcoms.why
    assert not any(KNOWN.encode() in path.read_bytes() for path in recovery.rglob("*") if path.is_file())
    with caplog.at_level(logging.INFO):
        assert left_by(operator, 2)[SUMMARY_KEY] == "ran"
    assert "t must run: t: its XComs can't be pushed again (attempt 1: they were not stored (" in caplog.text
    plan = plan_of_dag(operator.dag)
    evaluation = Evaluation(plan, state_in(recovery, OPERATORS_GROUP, "t"), available=lambda *_: None)
    assert f"{why}" in why_kept(evaluation, "t")
    assert why_kept(evaluation, "t").endswith(": a clear of its task in Airflow runs it again")


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_fault_191_into_a_sink_that_appends_it_does_not_run_again(
    recovery: Path, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Into one that replaces it does: its rows are there once."""

    def write_table(out: str, ti: Any) -> None:
        Path(out).mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2]}), Path(out) / "part-0.parquet")
        ti.xcom_push(key="much", value="x" * MOST_BYTES)

    with new_dag():
        operator = recoverable(PythonOperator, fields=["op_kwargs"], paths="plain")(
            task_id="t",
            python_callable=write_table,
            op_kwargs={"out": "{output:out}"},
            outputs=["out"],
            commit=DeltaTable(uri=f"file://{recovery}/table", mode=mode),
        )
    left_by(operator)
    if mode == "append":
        with pytest.raises(
            AirflowFailException, match="t must run again, and its sink appends and holds attempt 1 already"
        ):
            left_by(operator, 2)
    else:
        assert left_by(operator, 2)[SUMMARY_KEY] == "ran"
    assert (
        "t can't keep its result: t: its XComs can't be pushed again (attempt 1: they were not stored (" in caplog.text
    )
    assert deltalake.DeltaTable(f"{recovery}/table").to_pyarrow_table()["n"].to_pylist() == [1, 2]


def test_fault_191_control_without_the_look_a_task_is_kept_without_its_xcoms(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = leaving(push(a="x" * MOST_BYTES))
    left_by(operator)
    monkeypatch.setattr(drop_in.DropInApplication, "why_not_kept", lambda self, outcome: None)
    assert left_by(operator, 2) == {"return_value": None, SUMMARY_KEY: "kept"}


# --- lost -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spoil", "why"), [(Path.unlink, "is missing"), (lambda file: file.write_text("{}"), "was altered")]
)
def test_fault_194_what_is_stored_no_more_has_its_task_run_again(
    recovery: Path, caplog: pytest.LogCaptureFixture, spoil: Callable[[Path], Any], why: str
) -> None:
    operator = leaving(push(a=1))
    left_by(operator)
    spoil(stored(recovery)[0])
    with caplog.at_level(logging.INFO):
        assert left_by(operator, 2) == {"a": 1, "return_value": None, SUMMARY_KEY: "ran"}
    assert why in caplog.text
    assert left_by(operator, 3)[SUMMARY_KEY] == "kept"


def test_a_class_that_airflow_may_not_load_has_its_task_run_again(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = leaving(push(a=(1, 2)))
    left_by(operator)
    monkeypatch.setattr("airflow_recovery.airflow_compat.deserialize", die_of_import, raising=False)
    assert left_by(operator, 2)[SUMMARY_KEY] == "ran"


def die_of_import(*_: Any) -> None:
    raise ImportError("not allowed")


def test_fault_194_what_is_stored_goes_with_its_attempt_and_is_no_strangers_file(recovery: Path) -> None:
    operator = leaving(push(a=1))
    left_by(operator)
    results, journal = LocalStore(f"file://{recovery}/results"), journal_in(recovery, OPERATORS_GROUP)
    data = data_of_run(results, journal.layout)
    assert (data.strangers, data.attempts["t", 1].objects) == ([], 2)
    attempt = state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts[1]
    assert Releaser(journal, results, who="test").release("t", attempt).objects == 2
    assert stored(recovery) == []


# --- jobs that outlive their task -------------------------------------------------------------------------------------


class Service(ResumableJobMixin, BaseOperator):
    """Its job is there at once. ``dies``: the process is lost while it waits."""

    template_fields = ("out",)
    jobs: int = 0
    dies = True

    def __init__(self, out: str, value: Any = "submitted", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.out, self.value = out, value

    def execute(self, context: Any) -> Any:
        result = self.execute_resumable(context)
        context["ti"].xcom_push(key="after", value="after")
        return result

    def submit_job(self, context: Any) -> int:
        Path(self.out).mkdir(parents=True)
        (Path(self.out) / "part-0").write_text("rows")
        context["ti"].xcom_push(key="at_submit", value=self.value)
        Service.jobs += 1
        return Service.jobs - 1  # as Livy's: the first has the id 0

    def get_job_status(self, external_id: Any, context: Any) -> str:
        return "done"

    def is_job_active(self, status: str) -> bool:
        return False

    def is_job_succeeded(self, status: str) -> bool:
        return True

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        if Service.dies:
            raise Died

    def get_job_result(self, external_id: Any, context: Any) -> Any:
        context["ti"].xcom_push(key="at_end", value=external_id)
        return external_id


@pytest.fixture
def service(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The worker of its first try is lost when the job is submitted: the attempt stays open."""
    monkeypatch.setattr(outliving_job, "ASK_EVERY_S", 0)
    monkeypatch.setattr(Service, "jobs", 0)
    monkeypatch.setattr(Service, "dies", True)

    def lose(**given: Any) -> tuple[Any, Any]:
        with new_dag():
            operator = recoverable(Service, paths="plain")(task_id="t", out="{output:out}", outputs=["out"], **given)
        prepared = operator.prepare_for_execution()
        context = context_of(prepared)
        with monkeypatch.context() as patched:
            patched.setattr("airflow_recovery.attempt.failed_attempt.FailedAttempt.end", die)
            with pytest.raises(Died):
                xcoms_of(prepared, context)
        Service.dies = False
        return operator, context["task_state_store"]

    return lose


def next_try(operator: Any, store: Any, number: int) -> dict[str, Any]:
    prepared = operator.prepare_for_execution()
    context = {**context_of(prepared, number), "task_state_store": store}
    pushed = xcoms_of(prepared, context)
    return {**pushed, SUMMARY_KEY: pushed[SUMMARY_KEY]["decision"]}


def test_fault_192_the_next_try_leaves_what_a_lost_one_had_pushed_and_what_it_could_not_push(
    service: Callable[..., Any],
) -> None:
    operator, store = service()
    all_of_it = {"at_submit": "submitted", "at_end": 0, "after": "after", "return_value": 0, SUMMARY_KEY: "kept"}
    assert next_try(operator, store, 2) == all_of_it
    assert Service.jobs == 1
    assert next_try(operator, store, 3) == all_of_it


def test_fault_192_what_a_lost_try_had_pushed_and_could_not_store_has_the_job_run_again(
    service: Callable[..., Any], recovery: Path
) -> None:
    operator, store = service(value=KNOWN)
    again = next_try(operator, store, 2)
    assert (again["at_submit"], again[SUMMARY_KEY], Service.jobs) == (KNOWN, "ran", 2)
    assert not any(KNOWN.encode() in path.read_bytes() for path in recovery.rglob("*") if path.is_file())


def test_fault_192_control_without_what_is_stored_at_each_push_the_first_ones_are_lost(
    service: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop_in, "store_pushed", lambda *_: "")
    operator, store = service()
    assert "at_submit" not in next_try(operator, store, 2)


def forge_pushed(recovery: Path) -> None:
    """As whoever may write results, and not the journal."""
    [path] = recovery.rglob("pushed.json")
    document = json.loads(path.read_text())
    path.write_text(json.dumps({**document, "xcoms": {**document["xcoms"], "at_submit": "FORGED"}}))


def test_fault_385_who_may_write_results_does_not_choose_what_a_lost_try_has_pushed(
    service: Callable[..., Any], recovery: Path
) -> None:
    operator, store = service()
    forge_pushed(recovery)
    again = next_try(operator, store, 2)
    assert (again["at_submit"], again[SUMMARY_KEY], Service.jobs) == ("submitted", "ran", 2)


@pytest.mark.control
def test_fault_385_control_without_the_digest_in_the_journal_the_forged_value_is_pushed(
    service: Callable[..., Any], recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, store = service()
    forge_pushed(recovery)
    [path] = recovery.rglob("pushed.json")
    left = LeftInAirflow.from_json(path.read_bytes())
    monkeypatch.setattr(drop_in, "read_pushed", lambda *_: left)
    assert next_try(operator, store, 2)["at_submit"] == "FORGED"


def test_an_operator_whose_result_can_not_be_asked_runs_its_job_again(
    service: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    operator, store = service()

    def fail_once(self: Any, external_id: Any, context: Any) -> Any:
        if external_id == 0:
            raise RegionFailed("no answer")
        return external_id

    monkeypatch.setattr(Service, "get_job_result", fail_once)
    assert (next_try(operator, store, 2)[SUMMARY_KEY], Service.jobs) == ("ran", 2)


# --- asset events -----------------------------------------------------------------------------------------------------


class Airflow:
    """Has the events that a try that succeeded has sent, as the API server adds them."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.asked = 0

    def find(self, name: str | None, uri: str | None, since: datetime) -> Iterator[Any]:
        self.asked += 1
        for event in self.sent:
            if name in (None, event.name) and uri in (None, event.uri) and event.timestamp >= since:
                yield event

    def succeed(self, operator: Any, number: int = 1, run_id: str = "r", lost: bool = False) -> dict[str, Any]:
        """A try. Returns the extra of each event by asset. ``lost``: its process dies before Airflow hears of it."""
        prepared = operator.prepare_for_execution()
        context = context_of(prepared, number)
        context["ti"].run_id = run_id
        xcoms_of(prepared, context)
        accessors = context["outlet_events"]
        extras = {outlet: accessors[outlet].extra for outlet in prepared.outlets if hasattr(outlet, "uri")}
        found = {(outlet.name, outlet.uri): extra for outlet, extra in extras.items()}
        for accessor in accessors.values():
            for event in accessor.asset_alias_events:
                found[event.dest_asset_key.name, event.dest_asset_key.uri] = event.extra
        source = {
            "source_dag_id": "d",
            "source_run_id": run_id,
            "source_task_id": operator.task_id,
            "source_map_index": -1,
        }
        now = datetime.now(timezone.utc)
        if not lost:
            for (name, uri), extra in found.items():
                self.sent.append(SimpleNamespace(**source, name=name, uri=uri, extra=extra, timestamp=now))
        return {
            name: {key: extra[key] for key in extra if key != "airflow_recovery"} for (name, _), extra in found.items()
        }


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    found = Airflow()
    monkeypatch.setattr("airflow_recovery.airflow_compat.asset_events", found.find)
    return found


def set_extra(context: Any) -> Any:
    context["outlet_events"][MADE].extra = {"rows": 3}
    if len(context["task"].outlets) > 1:
        context["outlet_events"][AssetAlias("alias")].add(Asset("found", uri="s3://lake/found"), extra={"n": 1})


ALL = {"made": {"rows": 3}, "found": {"n": 1}}


def test_fault_193_a_kept_try_sends_no_event_that_airflow_has(recovery: Path, airflow: Airflow) -> None:
    operator = leaving(set_extra, outlets=[MADE, AssetAlias("alias")])
    assert airflow.succeed(operator) == ALL
    assert airflow.asked == 0, "what was just made can have no event"
    assert airflow.succeed(operator, 2) == airflow.succeed(operator, 3) == {}


def test_fault_193_an_event_that_is_missing_is_sent_with_all_that_it_carries(recovery: Path, airflow: Airflow) -> None:
    operator = leaving(set_extra, outlets=[MADE, AssetAlias("alias")])
    airflow.succeed(operator, lost=True)
    assert airflow.succeed(operator, 2) == ALL
    assert airflow.succeed(operator, 3) == {}
    del airflow.sent[0]
    assert airflow.succeed(operator, 4) == {"made": {"rows": 3}}


def test_fault_193_an_asset_that_a_function_has_returned_gets_its_event(recovery: Path, airflow: Airflow) -> None:
    with new_dag():

        @recoverable(task, paths="plain")(outputs=["out"])
        def t(out: str) -> Any:
            Path(out).mkdir(parents=True)
            (Path(out) / "part-0").write_text("rows")
            return MADE

        operator = t(out="{output:out}").operator
    airflow.succeed(operator, lost=True)
    assert airflow.succeed(operator, 2) == {"made": {}}
    assert airflow.succeed(operator, 3) == {}


def test_fault_193_events_of_other_attempts_runs_and_tasks_are_no_answer(recovery: Path, airflow: Airflow) -> None:
    operator = leaving(set_extra, outlets=[MADE])
    airflow.succeed(operator)
    (event,) = airflow.sent
    for field, value in (
        ("source_run_id", "another"),
        ("source_task_id", "another"),
        ("source_map_index", 0),
        ("extra", {"rows": 3}),
        ("extra", None),
        ("extra", {"airflow_recovery": {"attempt": 2, "at": event.extra["airflow_recovery"]["at"]}}),
    ):
        airflow.sent[:] = [SimpleNamespace(**{**vars(event), field: value})]
        assert airflow.succeed(operator, 2, lost=True) == {"made": {"rows": 3}}, field


def test_fault_193_where_airflow_gives_no_answer_the_event_is_sent(
    recovery: Path, airflow: Airflow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    operator = leaving(set_extra, outlets=[MADE])
    airflow.succeed(operator)
    monkeypatch.setattr("airflow_recovery.airflow_compat.asset_events", die_of_import)
    assert airflow.succeed(operator, 2) == {"made": {"rows": 3}}
    assert "Whether asset made has its event could not be asked" in caplog.text


@pytest.mark.parametrize(
    ("given", "events"), [({"on_kept_assets": "emit"}, 2), ({"on_kept_assets": "once"}, 1), ({}, 1)]
)
def test_on_kept_assets_says_whether_each_try_sends_an_event(
    recovery: Path, airflow: Airflow, given: dict[str, Any], events: int
) -> None:
    operator = leaving(set_extra, outlets=[MADE], **given)
    airflow.succeed(operator), airflow.succeed(operator, 2)
    assert len(airflow.sent) == events


@pytest.mark.parametrize(("given", "events"), [({}, [1, 1, 2, 2]), ({"on_kept_assets": "emit"}, [1, 2, 3, 4])])
def test_fault_193_a_publish_sends_one_event(
    recovery: Path, airflow: Airflow, given: dict[str, Any], events: list[int]
) -> None:
    operator = leaving(push(a=1))
    with operator.dag:
        publish = RecoveryPublishOperator(task_id="publish", outlets=[MADE], **given)
    operator >> publish
    found = []
    left_by(operator)
    for number in (1, 2, 3, 4):
        if number == 3:  # the next publish names another attempt
            stored(recovery)[0].unlink()
            left_by(operator, 2)
        airflow.succeed(publish, number)
        found.append(len(airflow.sent))
    assert found == events


def test_fault_193_a_publish_whose_event_was_lost_sends_it(recovery: Path, airflow: Airflow) -> None:
    operator = leaving(push(a=1))
    with operator.dag:
        publish = RecoveryPublishOperator(task_id="publish", outlets=[MADE])
    operator >> publish
    left_by(operator)
    airflow.succeed(publish, lost=True)
    assert airflow.succeed(publish, 2) == {"made": {}}
    assert airflow.succeed(publish, 3) == {}


def test_fault_193_control_without_the_question_a_kept_try_sends_another_event(
    recovery: Path, airflow: Airflow, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = leaving(set_extra, outlets=[MADE])
    airflow.succeed(operator)
    monkeypatch.setattr(asset_events, "_has_event", lambda *_: False)
    assert airflow.succeed(operator, 2) == {"made": {"rows": 3}}


def test_events_are_asked_for_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.sdk.execution_time import context

    from airflow_recovery.airflow_compat import asset_events as events_of

    begin = datetime(2024, 1, 1, tzinfo=timezone.utc)
    sent = [SimpleNamespace(timestamp=begin + timedelta(seconds=n)) for n in range(25)]

    class Accessor:
        def __init__(self, **asset: Any) -> None:
            assert asset == {"asset_name": "made", "asset_uri": None}

        def after(self, after: str) -> Accessor:
            self.since = datetime.fromisoformat(after)
            return self

        def limit(self, limit: int) -> list[Any]:
            return [event for event in sent if event.timestamp >= self.since][:limit]

    monkeypatch.setattr(context, "InletEventsAccessor", Accessor)
    found = list(events_of("made", None, begin, page=10))
    assert [event for n, event in enumerate(found) if event not in found[:n]] == sent
    sent[:] = [SimpleNamespace(timestamp=begin) for _ in range(25)]
    assert len(list(events_of("made", None, begin, page=10))) == 10, "it ends"
