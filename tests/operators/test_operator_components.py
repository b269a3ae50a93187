"""What an operator's fingerprint is made of: settings, values of the context, places, and code that can't be seen."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import lru_cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.amazon.aws.operators.emr import EmrAddStepsOperator
from airflow.providers.apache.livy.operators.livy import LivyOperator
from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
from airflow.providers.cncf.kubernetes.secret import Secret
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG, Variable, get_current_context
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from kubernetes.client import models as k8s
from tries import run_try, task_context

from airflow_recovery.errors import JobDefinitionError
from airflow_recovery.job import bound_values, fingerprint
from airflow_recovery.job.fingerprint import value_digest
from airflow_recovery.journal.journal import Journal
from airflow_recovery.model.components import fingerprint_of, unseen_in
from airflow_recovery.model.records import FingerprintRecord
from airflow_recovery.operators import RecoverableSparkSubmitOperator, drop_in, recoverable
from airflow_recovery.task import operator_components
from airflow_recovery.task.application_code import ApplicationCode
from airflow_recovery.task.operator_components import names_from_context


def new_dag() -> DAG:
    return DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc))


def python(function: Callable[..., Any], **given: Any) -> Any:
    with new_dag():
        options = {"op_kwargs": {"out": "{output:out}"}, "outputs": ["out"], **given}
        return recoverable(PythonOperator)(task_id="t", python_callable=function, **options)


def livy(**given: Any) -> Any:
    with new_dag():
        options = {"args": ["{output:out}"], "file": "s3://code/clean.py", "polling_interval": 1, "outputs": ["out"]}
        return recoverable(LivyOperator)(task_id="t", **{**options, **given})


def emr(**given: Any) -> Any:
    arguments = ["spark-submit", *given.pop("conf", ()), "s3://code/clean.py", "{output:out}"]
    steps = [{"Name": "clean", "HadoopJarStep": {"Jar": "command-runner.jar", "Args": arguments}}]
    with new_dag():
        options = {"job_flow_id": "j-1", "steps": steps, "wait_for_completion": True, "outputs": ["out"]}
        return recoverable(EmrAddStepsOperator)(task_id="t", **{**options, **given})


def pod(**given: Any) -> Any:
    options = {"image": "etl:1", "arguments": ["{output:out}"], "name": "clean", "outputs": ["out"]}
    with new_dag():
        return recoverable(KubernetesPodOperator)(task_id="t", **{**options, **given})


def submit(**given: Any) -> Any:
    options = {"application": "s3://code/clean.py", "application_args": ["{output:out}"], "outputs": ["out"]}
    with new_dag():
        return RecoverableSparkSubmitOperator(task_id="t", **{**options, **given})


def unseen(operator: Any) -> list[str]:
    return [component.name for component in unseen_in(operator.components_of(operator.computes()))]


# --- settings ---------------------------------------------------------------------------------------------------------

ANSI, MEMORY = ("spark.sql.ansi.enabled", "false"), ("spark.executor.memory", "4g")


def with_conf(setting: tuple[str, str]) -> dict[str, Any]:
    return {"conf": dict([setting])}


def with_arguments(setting: tuple[str, str]) -> dict[str, Any]:
    return {"conf": ("--conf", "=".join(setting))}


@pytest.mark.parametrize(
    ("made", "given"), [(submit, with_conf), (livy, with_conf), (emr, with_arguments)], ids=["submit", "livy", "emr"]
)
def test_a_setting_that_changes_rows_counts_and_one_that_does_not_is_left_out(
    made: Callable[..., Any], given: Callable[..., Any]
) -> None:
    assert made(**given(ANSI)).fingerprint() != made().fingerprint()
    assert made(**given(MEMORY)).fingerprint() == made().fingerprint()


def test_a_properties_file_counts_by_its_settings(tmp_path: Path) -> None:
    file = tmp_path / "spark.conf"
    file.write_text("spark.executor.memory 4g\n")
    assert submit(properties_file=str(file)).fingerprint() == submit().fingerprint()
    file.write_text("spark.sql.ansi.enabled false\n")
    for spelled in (str(file), f"file:{file}", f"file://{file}"):
        assert submit(properties_file=spelled).fingerprint() != submit().fingerprint()
    jar = tmp_path / "a.jar"
    jar.write_text("1")
    file.write_text(f"spark.jars {jar}\n")
    before = submit(properties_file=str(file)).fingerprint()
    assert before != submit().fingerprint(), "code that the file names"
    jar.write_text("2")
    assert submit(properties_file=str(file)).fingerprint() != before


def test_a_properties_file_that_is_not_here_is_unseen() -> None:
    assert "properties file /nowhere/spark.conf" in unseen(submit(properties_file="/nowhere/spark.conf"))


@pytest.mark.control
def test_control_without_settings_a_change_of_one_is_not_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_recovery.task.drop_in.settings_of", lambda operator: {})
    assert submit(**with_conf(ANSI)).fingerprint() == submit().fingerprint()


# --- where a job runs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "place"),
    [
        (emr, {"job_flow_id": "j-2"}),
        (emr, {"aws_conn_id": "other"}),
        (emr, {"region_name": "eu-west-1"}),
        (livy, {"queue": "night"}),
        (livy, {"name": "other"}),
        (livy, {"num_executors": 8}),
        (pod, {"name": "other"}),
        (pod, {"namespace": "night"}),
        (pod, {"labels": {"a": "b"}}),
    ],
)
def test_where_a_job_runs_is_not_in_the_fingerprint(made: Callable[..., Any], place: dict[str, Any]) -> None:
    assert made(**place).fingerprint() == made().fingerprint()


@pytest.mark.parametrize(
    ("made", "other"),
    [
        (emr, {"steps": [{"Name": "x", "HadoopJarStep": {"Jar": "a.jar", "Args": ["{output:out}"]}}]}),
        (livy, {"class_name": "Main"}),
        (livy, {"file": "s3://code/other.py"}),
        (pod, {"image": "etl:2"}),
        (pod, {"env_vars": {"A": "1"}}),
    ],
)
def test_what_is_no_place_counts(made: Callable[..., Any], other: dict[str, Any]) -> None:
    assert made(**other).fingerprint() != made().fingerprint()


@pytest.mark.control
def test_control_without_the_table_another_cluster_is_another_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operator_components, "PLACES", {})
    assert emr(job_flow_id="j-2").fingerprint() != emr().fingerprint()


# --- the class, and arguments that Airflow does not render ------------------------------------------------------------

OPERATORS = """
from airflow.sdk import BaseOperator

from {package}.rates import RATE

class Base(BaseOperator):
    template_fields = ("out",)

    def __init__(self, out, limit=1, **given):
        super().__init__(**given)
        self.out, self.limit = out, limit

class Clean(Base):
    def execute(self, context):
        return RATE * self.limit
"""
DEPLOYS = {
    "a method": ("operators.py", "RATE * self", "RATE + self"),
    "a class that it inherits": ("operators.py", "= out, limit", "= out, limit + 1"),
    "a constant of another module": ("rates.py", "2", "3"),
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with operators of a user's own."""
    folder = tmp_path / f"own_{tmp_path.name}"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "rates.py").write_text("RATE = 2\n")
    (folder / "operators.py").write_text(OPERATORS.format(package=folder.name))
    monkeypatch.syspath_prepend(tmp_path)
    yield folder
    forget(folder)


def forget(package: Path) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == package.name]:
        del sys.modules[name]


def own(package: Path, **given: Any) -> Any:
    """As another process imports it."""
    forget(package)
    found = importlib.import_module(f"{package.name}.operators")
    with new_dag():
        return recoverable(found.Clean, paths="plain")(task_id="t", out="{output:out}", outputs=["out"], **given)


@pytest.mark.parametrize("deploy", DEPLOYS)
def test_the_code_of_a_users_own_operator_counts(package: Path, deploy: str) -> None:
    name, old, new = DEPLOYS[deploy]
    before = own(package).fingerprint()
    assert own(package).fingerprint() == before
    (package / name).write_text((package / name).read_text().replace(old, new))
    assert own(package).fingerprint() != before


@pytest.mark.control
def test_control_by_the_name_of_its_class_new_code_of_an_operator_is_the_same(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.task.drop_in_operator.class_code", lambda *_: [])
    before = own(package).fingerprint()
    (package / "rates.py").write_text("RATE = 3\n")
    assert own(package).fingerprint() == before


def test_an_argument_that_is_not_rendered_counts(package: Path) -> None:
    before = own(package).fingerprint()
    assert own(package, limit=2).fingerprint() != before
    assert pod(secrets=[Secret("env", "A", "b")]).fingerprint() != pod(secrets=[Secret("env", "A", "c")]).fingerprint()
    assert pod(env_from=[source("a")]).fingerprint() != pod(env_from=[source("b")]).fingerprint()
    assert pod(env_from=[source("a")]).fingerprint() == pod(env_from=[source("a")]).fingerprint()


def source(name: str) -> Any:
    return k8s.V1EnvFromSource(config_map_ref=k8s.V1ConfigMapEnvSource(name=name))


@pytest.mark.control
def test_control_by_its_rendered_fields_alone_another_argument_is_not_noticed(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.task.drop_in_operator.arguments_that_count", lambda *_: {})
    assert own(package, limit=2).fingerprint() == own(package).fingerprint()


@pytest.mark.parametrize(
    ("made", "given"),
    [
        (pod, {"get_logs": False}),
        (pod, {"startup_timeout_seconds": 7}),
        (pod, {"service_account_name": "night"}),
        (pod, {"retries": 7, "pool": "night", "on_finish_action": "keep_pod"}),
        (livy, {"polling_interval": 2, "livy_conn_id": "other", "driver_memory": "1g"}),
        (emr, {"waiter_delay": 7, "waiter_max_attempts": 7}),
    ],
)
def test_an_argument_that_says_nothing_of_the_rows_does_not(made: Callable[..., Any], given: dict[str, Any]) -> None:
    assert made(**given).fingerprint() == made().fingerprint()


# --- what a function takes from the context ---------------------------------------------------------------------------


def write(out: str, text: object) -> None:
    folder = Path(out.removeprefix("file://"))
    folder.mkdir(parents=True)
    (folder / "part-0").write_text(str(text))


def by_params(out: str, params: Any) -> None:
    write(out, params["carrier"])


def by_dag_run(out: str, dag_run: Any) -> None:
    write(out, dag_run.conf)


def by_everything(out: str, **context: Any) -> None:
    write(out, context["params"])


def by_instance(out: str, ti: Any) -> None:
    write(out, ti.dag_run.conf)


def by_date(out: str, ds: str, carrier: str = "AA") -> None:
    write(out, f"{ds} {carrier}")


def by_variable(out: str, var: Any) -> None:
    write(out, var)


def by_current(out: str) -> None:
    write(out, get_current_context()["params"]["carrier"])


def by_helper(out: str) -> None:
    by_current(out)


def by_variable_got(out: str) -> None:
    write(out, Variable.get("carrier"))


def by_nothing(out: str) -> None:
    write(out, "rows")


def by_token(out: str, token: str) -> None:
    write(out, len(token))


def context_with(conf: dict[str, Any], params: dict[str, Any]) -> Any:
    context = task_context()
    return {**context, "dag_run": SimpleNamespace(**{**vars(context["dag_run"]), "conf": conf}), "params": params}


def fingerprint_in(function: Callable[..., Any], conf: dict[str, Any], params: dict[str, Any], **given: Any) -> str:
    operator = python(function, **given)
    return fingerprint_of(operator.components_of(operator.computes_in(context_with(conf, params))))


AA, UA = {"carrier": "AA"}, {"carrier": "UA"}


@pytest.mark.parametrize("function", [by_params, by_everything, by_dag_run, by_instance, by_current, by_helper])
def test_what_a_function_takes_from_the_context_counts(function: Callable[..., Any]) -> None:
    assert fingerprint_in(function, AA, AA) == fingerprint_in(function, AA, AA) != fingerprint_in(function, UA, UA)


def test_what_a_function_does_not_take_does_not_count() -> None:
    assert fingerprint_in(by_nothing, AA, AA) == fingerprint_in(by_nothing, UA, UA)
    assert fingerprint_in(by_params, AA, AA) == fingerprint_in(by_params, UA, AA), "params only"
    recompute = {"recovery": {"mode": "recompute", "epoch": 2}}
    assert fingerprint_in(by_dag_run, {}, AA) == fingerprint_in(by_dag_run, recompute, AA), "our own key"
    given = {"op_kwargs": {"out": "{output:out}", "params": {"carrier": "B6"}}}
    assert fingerprint_in(by_params, AA, AA, **given) == fingerprint_in(by_params, UA, UA, **given), "given by the task"


def test_names_of_the_context_are_those_that_airflow_would_fill_in() -> None:
    assert names_from_context(python(by_date)) == ("ds",)
    assert names_from_context(python(by_date, op_args=["x", "2024"], op_kwargs={"a": "{output:out}"})) == ()
    assert names_from_context(python(by_everything)) == ("context",)
    assert names_from_context(python(print)) == ()
    assert names_from_context(python(partial(by_current))) == ("context",)


@pytest.mark.control
def test_control_by_its_signature_alone_a_function_that_asks_for_the_context_takes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(operator_components, "_ASKS_FOR", {})
    assert fingerprint_in(by_current, AA, AA) == fingerprint_in(by_current, UA, UA)


@pytest.mark.parametrize("function", [by_variable, by_variable_got])
def test_a_function_that_reads_variables_can_not_be_seen_whole(function: Callable[..., Any]) -> None:
    operator = python(function)
    components = operator.components_of(operator.computes_in({**task_context(), "var": object()}))
    assert [component.name for component in unseen_in(components)] == ["context var"]


def test_other_params_for_the_same_date_run_the_function_again(recovery: Path) -> None:
    assert run_try(python(by_params), context=context_with({}, AA))["decision"] == "ran"
    assert run_try(python(by_params), context=context_with({}, AA), try_number=2)["decision"] == "kept"
    assert run_try(python(by_params), context=context_with({}, UA), try_number=3)["decision"] == "ran"


@pytest.mark.control
def test_control_without_the_context_other_params_are_not_noticed(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.task.drop_in_operator.context_document", lambda *_: {})
    assert run_try(python(by_params), context=context_with({}, AA))["decision"] == "ran"
    assert run_try(python(by_params), context=context_with({}, UA), try_number=2)["decision"] == "kept"


# --- texts that are another one in each process -----------------------------------------------------------------------


@dataclass(frozen=True)
class Carriers:
    names: frozenset[str]
    inner: Any = None


class Plain:
    def __init__(self, names: set[str]) -> None:
        self.names = names


PROGRAM = """
from test_operator_components import Carriers, Plain, by_nothing, python
names = frozenset({"AA", "UA", "B6", "DL"})
values = [names, Carriers(names), Carriers(names, {"x": Carriers(names)}), Plain(set(names)), {"k": [set(names)]}]
print(*[python(by_nothing, op_kwargs={"out": "{output:out}", "v": value}).fingerprint() for value in values])
"""


def in_process(seed: int) -> list[str]:
    paths = [str(Path(__file__).parent), *sys.path]
    environment = {**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": os.pathsep.join(paths)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()[-5:]


@pytest.mark.slow
def test_sets_in_values_are_written_alike_in_every_process() -> None:
    assert in_process(1) == in_process(2)


def test_the_fields_of_an_object_count() -> None:
    def given(value: Any) -> str:
        return str(python(by_nothing, op_kwargs={"out": "{output:out}", "v": value}).fingerprint())

    assert given(Carriers(frozenset("a"))) != given(Carriers(frozenset("b")))
    assert given(Plain({"a"})) != given(Plain({"b"})), "an object whose text is an address"


def by_factor(factor: int) -> list[Any]:
    """Values that can't be pickled, or only by their name."""

    def plain(x: int) -> int:
        return x * factor

    return [
        memoryview(bytes([factor])),
        lru_cache(plain),
        (x * factor for x in [1]),
        compile(f"x = {factor}", "made", "exec"),
        property(plain),
        staticmethod(plain),
    ]


def digests(factor: int) -> list[str]:
    return [value_digest(value) for value in by_factor(factor)]


def test_objects_of_pythons_own_count_by_what_is_in_them() -> None:
    assert digests(1) == digests(1)
    assert not set(digests(1)) & set(digests(2))


@pytest.mark.control
def test_control_by_their_texts_they_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bound_values, "_parts_of", lambda value: None)
    assert digests(1)[:5] == digests(2)[:5]


class Writer:
    def __init__(self, rows: str) -> None:
        self.rows = rows

    def __call__(self, out: str) -> None:
        write(out, self.rows)


class SameWriter(Writer):
    """What is called stands in its base class."""


def test_what_an_object_holds_counts_where_its_base_class_is_called() -> None:
    assert python(SameWriter("one")).fingerprint() == python(SameWriter("one")).fingerprint()
    assert python(SameWriter("one")).fingerprint() != python(SameWriter("two")).fingerprint()


# --- code that lies beside the function's package ---------------------------------------------------------------------

BESIDE = {
    "a module": ("import lonely\nUSED = lonely.V", "lonely.py"),
    "a package": ("import other.deep\nUSED = other.deep.V", "other/deep.py"),
    "a package without __init__": ("import bare.deep\nUSED = bare.deep.V", "bare/deep.py"),
    "an import inside the function": ("USED = 1", "lonely.py"),
}


def beside(folder: Path, case: str) -> str:
    """The fingerprint of a task whose function imports code of another package, which was not installed."""
    statement, changed = BESIDE[case]
    files = {
        "etl_dag.py": f"{statement}\ndef f(out):\n    import lonely\n    return USED, lonely.V\n",
        "lonely.py": "V = 1\n",
        "other/__init__.py": "",
        "other/deep.py": "V = 1\n",
        "bare/deep.py": "V = 1\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if not (folder / name).exists():
            (folder / name).write_text(text)
    for name in ("etl_dag", "lonely", "other", "other.deep", "bare", "bare.deep"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()
    before = python(importlib.import_module("etl_dag").f).fingerprint()
    (folder / changed).write_text("V = 2\n")
    return str(before)


@pytest.fixture
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on Python's path, whose modules are compiled at each import."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


@pytest.mark.parametrize("case", BESIDE)
def test_modules_that_were_not_installed_count_with_a_function(case: str, importable: Path) -> None:
    before = beside(importable, case)
    assert beside(importable, case) != before


@pytest.mark.control
@pytest.mark.parametrize("case", BESIDE)
def test_control_by_its_own_package_alone_the_change_is_not_noticed(
    case: str, importable: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "_lies_beside", lambda top: False)
    before = beside(importable, case)
    assert beside(importable, case) == before


@pytest.mark.parametrize("field", ["outputs", "inputs"])
def test_a_location_with_the_name_of_a_method_is_refused_by_name(field: str, recovery: Path) -> None:
    place = {"x": f"file://{recovery}/x/{{{{ params.keys }}}}"}
    given = {"outputs": place, "op_kwargs": {"out": "{output:x}"}} if field == "outputs" else {"inputs": place}
    with fails_with("value-has-address", by=(JobDefinitionError, AirflowFailException)):
        run_try(python(by_nothing, **given), params={"keys": "a"})


def test_a_template_that_names_a_lambda_is_refused_by_name(recovery: Path) -> None:
    with fails_with("value-has-address", by=(JobDefinitionError, AirflowFailException)):
        run_try(
            python(by_token, op_kwargs={"out": "{output:out}", "token": "x {{ made }}"}),
            context={**task_context(), "made": lambda: 1},
        )


def test_a_template_that_names_a_method_is_refused_by_name(recovery: Path) -> None:
    with new_dag():
        task = recoverable(BashOperator, paths="plain")(
            task_id="t", bash_command="echo {{ params.keys }} > '{output:out}'", outputs=["out"]
        )
    with fails_with("value-has-address", by=AirflowFailException, where="t, bash_command"):
        run_try(task)


def test_an_argument_with_an_address_is_refused_by_name(recovery: Path) -> None:
    task = submit(application_args=["{{ params.items }}", "{output:out}"])
    with fails_with("value-has-address", by=AirflowFailException, where="t, application_args"):
        run_try(task)


# --- code that can't be seen ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("made", "given", "names"),
    [
        (submit, {}, ["application s3://code/clean.py"]),
        (submit, {"application": __file__}, []),
        (submit, {"application": __file__, "jars": "s3://code/a.jar"}, ["jars s3://code/a.jar"]),
        (submit, {"application": "local:///opt/a.py"}, ["application local:///opt/a.py"]),
        (
            submit,
            {"application": "local:///opt/a.py", "conf": {"spark.kubernetes.container.image": "etl:1"}},
            ["application local:///opt/a.py", "image etl:1"],
        ),
        (submit, {"application": __file__, "conf": {"spark.kubernetes.container.image": "spark:4"}}, []),
        (livy, {}, ["application s3://code/clean.py"]),
        (emr, {}, ["application s3://code/clean.py"]),
        (pod, {}, ["image etl:1"]),
        (pod, {"image": "etl@sha256:" + "0" * 64}, []),
    ],
)
def test_code_behind_a_name_is_unseen(made: Callable[..., Any], given: dict[str, Any], names: list[str]) -> None:
    assert unseen(made(**given)) == names


@pytest.fixture
def said_at_parse(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], str]:
    """What is logged if Airflow has read the DAG file of an operator; no file may be looked at."""

    def refuse(*given: Any) -> None:
        raise AssertionError("a file was read")

    def said(task: Any) -> str:
        drop_in.warn_of_unseen.cache_clear()
        caplog.clear()
        with monkeypatch.context() as patch:
            patch.setattr(ApplicationCode, "_files", refuse)
            task.dag.resolve_template_files()
            task.dag.resolve_template_files()
        return caplog.text

    return said


@pytest.mark.parametrize(
    ("made", "given", "names"),
    [
        (submit, {}, None),
        (submit, {"application": "local:///opt/a.py"}, "application local:///opt/a.py"),
        (submit, {"jars": "{{ jar }}, wasbs://c@a/b.jar"}, "jars wasbs://c@a/b.jar"),
        (submit, {"packages": "org.x:y:1.0,org.x:z:2.0-SNAPSHOT"}, "packages org.x:z:2.0-SNAPSHOT"),
        (submit, {"conf": {"spark.kubernetes.container.image": "spark:4"}}, None),
        (
            submit,
            {"application": "local:///opt/a.py", "conf": {"spark.kubernetes.container.image": "etl:1"}},
            "application local:///opt/a.py, image etl:1",
        ),
        (livy, {}, None),
        (livy, {"file": "/opt/clean.py"}, "application /opt/clean.py"),
        (pod, {}, "image etl:1"),
        (pod, {"image": "etl:{{ ds }}"}, None),
        (pod, {"image": "etl@sha256:" + "0" * 64}, None),
    ],
)
def test_code_that_can_not_be_seen_is_said_when_the_dag_file_is_parsed(
    made: Callable[..., Any], given: dict[str, Any], names: str | None, said_at_parse: Callable[[Any], str]
) -> None:
    text = said_at_parse(made(**given))
    assert text.count("can't be seen") == (names is not None), "once, though the file was read twice"
    assert f"d.t: a change of this code can't be seen: {names}. With unseen_code=" in text or names is None


def test_a_field_that_only_airflow_renders_is_no_trouble_at_parse(said_at_parse: Callable[[Any], str]) -> None:
    with new_dag():
        jars = BashOperator(task_id="jars", bash_command="echo a.jar").output
        task = RecoverableSparkSubmitOperator(
            task_id="t", application="s3://code/clean.py", jars=jars, outputs=["out"], application_args=["{output:out}"]
        )
    assert said_at_parse(task) == ""


def test_an_operator_that_does_not_recover_says_nothing_at_parse(said_at_parse: Callable[[Any], str]) -> None:
    off = {"execution.batch.job-recovery.enabled": False}
    assert said_at_parse(submit(application="local:///opt/a.py", job_recovery=off)) == ""


@pytest.mark.control
def test_control_without_the_names_nothing_is_said_at_parse(
    said_at_parse: Callable[[Any], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop_in, "unseen_by_name", lambda *given: ())
    assert said_at_parse(submit(application="local:///opt/a.py")) == ""


def test_a_script_in_a_command_counts_by_its_content(tmp_path: Path) -> None:
    script = tmp_path / "clean.py"

    def given() -> Any:
        with new_dag():
            command = f"python {script} --out '{{output:out}}'"
            return recoverable(BashOperator, paths="plain")(task_id="t", bash_command=command, outputs=["out"])

    assert unseen(given()) == [f"file {script}"], "it is not on this machine"
    script.write_text("1")
    before = given().fingerprint()
    assert unseen(given()) == []
    script.write_text("2")
    assert given().fingerprint() != before


# --- a clear of code that can't be seen -------------------------------------------------------------------------------

RETRIES = 2


def deployed(**given: Any) -> Any:
    """A command whose script is on another machine."""
    command = "true /opt/nowhere/clean.py && mkdir -p '{output:out}' && echo rows > '{output:out}/part-0'"
    with new_dag():
        return recoverable(BashOperator, paths="plain")(
            task_id="t", bash_command=command, outputs=["out"], retries=RETRIES, **given
        )


def try_of(operator: Any, try_number: int, max_tries: int, **run: Any) -> str:
    context = task_context(try_number=try_number, **run)
    context["ti"].max_tries = max_tries
    context["ti"].task = operator
    return str(run_try(operator, context=context)["decision"])


def test_fault_280_after_a_clear_code_that_can_not_be_seen_runs_once(
    recovery: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert try_of(deployed(), 1, RETRIES) == "ran"
    assert "t: a change of this code can't be seen: file /opt/nowhere/clean.py" in caplog.text
    assert try_of(deployed(), 2, RETRIES) == "kept", "a retry"
    assert try_of(deployed(), 3, 2 + RETRIES) == "ran", "a person has cleared it"
    assert try_of(deployed(), 4, 2 + RETRIES) == "kept", "a retry of that"
    assert try_of(deployed(), 5, 4 + RETRIES, run_type="backfill") == "kept"
    assert try_of(deployed(), 1, RETRIES) == "kept", "the database was lost"


def records_put(monkeypatch: pytest.MonkeyPatch) -> list[FingerprintRecord]:
    """What two attempts with one fingerprint have put of their components."""
    put: list[FingerprintRecord] = []
    put_components = Journal.put_components

    def counted(journal: Journal, record: FingerprintRecord) -> None:
        put.append(record)
        put_components(journal, record)

    monkeypatch.setattr(Journal, "put_components", counted)
    assert try_of(deployed(), 1, RETRIES) == "ran"
    assert try_of(deployed(), 3, 2 + RETRIES) == "ran"
    return put


def test_components_are_put_once_a_fingerprint(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(records_put(monkeypatch)) == 1


@pytest.mark.control
def test_control_without_the_listed_names_each_attempt_puts_them_again(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Journal.load
    monkeypatch.setattr(
        Journal, "load", lambda *given, **named: replace(load(*given, **named), fingerprints=frozenset())
    )
    assert len(records_put(monkeypatch)) == 2


def test_a_policy_of_its_own_and_one_of_the_deployment(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert try_of(deployed(), 1, RETRIES) == "ran"
    assert try_of(deployed(unseen_code="keep"), 2, 1 + RETRIES) == "kept"
    monkeypatch.setenv("AIRFLOW__RECOVERY__UNSEEN_CODE", "keep")
    assert try_of(deployed(), 2, 1 + RETRIES) == "kept"
    assert try_of(deployed(unseen_code="run-on-clear"), 2, 1 + RETRIES) == "ran"
    monkeypatch.setenv("AIRFLOW__RECOVERY__UNSEEN_CODE", "sometimes")
    with fails_with("setting-unfit", by=AirflowFailException):
        try_of(deployed(), 3, 1 + RETRIES)


def test_code_that_is_seen_is_kept_after_a_clear(recovery: Path, tmp_path: Path) -> None:
    script = tmp_path / "clean.py"
    script.write_text("1")

    def seen() -> Any:
        command = f"true {script} && mkdir -p '{{output:out}}' && echo rows > '{{output:out}}/part-0'"
        with new_dag():
            return recoverable(BashOperator, paths="plain")(
                task_id="t", bash_command=command, outputs=["out"], retries=RETRIES
            )

    assert try_of(seen(), 1, RETRIES) == "ran"
    assert try_of(seen(), 2, 1 + RETRIES) == "kept"
    script.write_text("2")
    assert try_of(seen(), 3, 2 + RETRIES) == "ran"


def test_the_note_of_a_kept_task_ends_with_how_to_run_it_again(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notes: list[str] = []
    monkeypatch.setattr("airflow_recovery.operators.recovering.leave_note", lambda context, text: notes.append(text))
    try_of(deployed(), 1, RETRIES)
    try_of(deployed(), 2, RETRIES)
    assert "can't be seen: file /opt/nowhere/clean.py" in notes[0]
    assert "to run it again" not in notes[0]
    assert notes[1].startswith("kept: attempt 1 is valid")
    assert notes[1].endswith("; to run it again: airflow recovery restart d date-2024-01-02T000000Z t")


@pytest.mark.control
def test_control_where_nobody_looks_for_unseen_code_the_note_of_a_kept_task_hides_it(
    recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr("airflow_recovery.operators.recovering.leave_note", lambda context, text: notes.append(text))
    monkeypatch.setattr("airflow_recovery.operators.drop_in.unseen_in", lambda components: ())
    try_of(deployed(), 1, RETRIES)
    try_of(deployed(), 2, RETRIES)
    assert notes[1].startswith("kept: attempt 1 is valid")
    assert "can't be seen" not in "".join(notes)


@pytest.mark.control
def test_fault_280_control_without_the_look_the_old_rows_stay(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_recovery.attempt.region_task.why_unseen_code_runs", lambda *_: None)
    assert try_of(deployed(), 1, RETRIES) == "ran"
    assert try_of(deployed(), 2, 1 + RETRIES) == "kept"


def test_a_policy_that_does_not_exist_is_refused_by_name() -> None:
    with fails_with("argument-unfit", argument="unseen_code"):
        deployed(unseen_code="sometimes")


def test_the_components_are_recorded_and_secrets_are_not_readable(recovery: Path) -> None:
    from airflow.sdk.log import mask_secret

    mask_secret("s3cr3t-of-ours")
    operator = python(by_token, op_kwargs={"out": "{output:out}", "token": "s3cr3t-of-ours"})
    assert run_try(operator)["decision"] == "ran"
    (record,) = (recovery / "journal").rglob("fingerprint/*")
    text = record.read_text()
    assert "function" in text
    assert "s3cr3t" not in text
    assert "(secret, digest " in text
