"""Files that an argument of a drop-in names: the job reads them, or writes them, and nobody declares which.

Faults 355 (a file is replaced while the job runs), 357 (the job itself writes it) and 358 (a file that is named in
another way).
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG
from expected_errors import fails_with
from tries import run_try, state_in

from airflow_recovery.errors import CodeReplaced
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import FenceCause
from airflow_recovery.operators import RecoverableSparkSubmitOperator, recoverable
from airflow_recovery.task import application_code
from airflow_recovery.task.application_code import ApplicationCode
from airflow_recovery.task.dag_read_again import declared_now

Bash = recoverable(BashOperator, paths="plain")
COMMAND = """
mkdir -p '{output:out}'; eval "$MEANWHILE"; cat "$NAMED" > '{output:out}/part-0' 2> /dev/null || true
"""
BY_RENAME = "echo two > {path}.new; mv {path}.new {path}"
IN_PLACE = "echo two > {path}"
AGAIN_THE_SAME = "cp {path} {path}.new; mv {path}.new {path}"
REMOVED = "rm {path}"


def in_dag(make: Callable[[], Any]) -> Any:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return make()


class Job:
    """A command that is given the path of a file, and that does something else to it, which no fingerprint shows."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self._monkeypatch = folder, monkeypatch
        self.path = folder / "named" / "rates.yaml"
        self.path.parent.mkdir()
        self.notes: list[str] = []
        monkeypatch.setattr("airflow_recovery.operators.recovering.leave_note", lambda _, text: self.notes.append(text))

    def run(self, meanwhile: str = "true", **given: Any) -> tuple[str, str]:
        """The decision, and the rows that count. ``meanwhile``: what happens before the job reads the file."""
        self._monkeypatch.setenv("MEANWHILE", meanwhile.format(path=self.path))
        given = {"outputs": ["out"], "env": {"NAMED": str(self.path)}, "append_env": True, **given}
        answer = run_try(in_dag(lambda: Bash(task_id="t", bash_command=COMMAND, **given)))
        location = answer["results"]["t.out"]["location"]
        return answer["decision"], Path(location.removeprefix("file://"), "part-0").read_text().strip()

    def cause_of(self, attempt: int) -> FenceCause | None:
        outcome = state_in(self.folder, OPERATORS_GROUP, "t").of("t").attempts[attempt].outcome
        assert outcome is not None
        return outcome.cause


@pytest.fixture
def job(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(recovery, monkeypatch)


# --- read by the job --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("meanwhile", [BY_RENAME, IN_PLACE, AGAIN_THE_SAME, REMOVED])
def test_fault_355_a_file_that_is_replaced_while_the_job_runs_ends_the_attempt(job: Job, meanwhile: str) -> None:
    job.path.write_text("one\n")
    with fails_with("named-file-changed", attempt="t@1"):
        job.run(meanwhile)
    assert job.cause_of(1) is FenceCause.SUPERSEDED, "it is no failure of the code"
    rows = job.path.read_text().strip() if job.path.exists() else ""
    assert job.run() == ("ran", rows)
    assert job.run() == ("kept", rows)


def test_fault_355_a_job_that_fails_on_a_replaced_file_has_not_failed_by_itself(job: Job) -> None:
    job.path.write_text("one\n")
    with pytest.raises(CodeReplaced):
        job.run(f"{BY_RENAME}; exit 3")
    assert job.cause_of(1) is FenceCause.SUPERSEDED


@pytest.mark.control
def test_fault_355_control_without_the_second_look_the_rows_of_a_bad_file_are_kept(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApplicationCode, "_changed_here", lambda _: [])
    job.path.write_text("one\n")
    assert job.run(BY_RENAME) == ("ran", "two")
    job.path.write_text("one\n")
    assert job.run() == ("kept", "two")


# --- written by the job -----------------------------------------------------------------------------------------------


def test_fault_357_a_file_that_the_job_makes_is_named_with_what_to_declare(job: Job) -> None:
    assert job.run(IN_PLACE) == ("ran", "two")
    said = f"an argument or the application names {job.path}, which did not exist before"
    assert said in job.notes[0]
    assert f"ignore_changes_in=['{job.path}']" in job.notes[0]
    # Now its content counts. The job writes it again, and nobody knows what it has read.
    with fails_with("named-file-changed"):
        job.run(IN_PLACE)


def test_fault_357_a_file_that_is_said_not_to_count_is_written_and_the_result_is_kept(job: Job) -> None:
    given = {"ignore_changes_in": [f"{job.folder}/named/*"]}
    assert job.run(IN_PLACE, **given) == ("ran", "two")
    job.path.write_text("three\n")
    assert job.run(IN_PLACE, **given) == ("kept", "two")
    assert "did not exist before" not in "".join(job.notes)


def test_fault_357_a_file_in_a_declared_output_does_not_count(job: Job) -> None:
    given = {"outputs": {"out": None, "side": f"file://{job.path.parent}"}}
    assert job.run(IN_PLACE, **given) == ("ran", "two")
    assert job.run(IN_PLACE, **given) == ("kept", "two")


def test_fault_357_a_file_that_the_job_has_made_is_no_other_declaration_for_its_consumers(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEANWHILE", IN_PLACE.format(path=job.path))
    env = {"NAMED": str(job.path)}
    task = in_dag(lambda: Bash(task_id="t", bash_command=COMMAND, env=env, append_env=True, outputs=["out"]))
    before = declared_now(task.dag, "t")
    run_try(task)
    outcome = state_in(job.folder, OPERATORS_GROUP, "t").of("t").attempts[1].outcome
    assert outcome is not None
    assert outcome.declared is not None
    assert outcome.declared.own == declared_now(task.dag, "t") != before


@pytest.mark.control
def test_fault_357_control_if_it_counts_all_the_same_the_attempt_ends(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApplicationCode, "_is_left_out", lambda *_: False)
    given = {"ignore_changes_in": [f"{job.folder}/named/*"]}
    job.run(IN_PLACE, **given)
    with pytest.raises(CodeReplaced):
        job.run(IN_PLACE, **given)


def test_patterns_that_are_no_list_of_texts_are_refused() -> None:
    with fails_with("argument-unfit", where="t", argument="ignore_changes_in", found="'/var/log/*'"):
        in_dag(lambda: Bash(task_id="t", bash_command=COMMAND, outputs=["out"], ignore_changes_in="/var/log/*"))


# --- what else is read from a place that can change -------------------------------------------------------------------


@pytest.fixture
def looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ApplicationCode]:
    """The code of an application of spark-submit, as a try has read it."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "conf"))
    (tmp_path / "conf").mkdir()
    (tmp_path / "clean.py").write_text("try:\n    import late\nexcept ImportError:\n    late = open('rates.csv')\n")
    (tmp_path / "rates.csv").write_text("1")
    (tmp_path / "one.jar").write_text("1")

    def look(**given: Any) -> ApplicationCode:
        given = {"application": f"{tmp_path}/clean.py", "application_args": ["{output:out}"], **given}
        operator = in_dag(lambda: RecoverableSparkSubmitOperator(task_id="t", outputs=["out"], **given))
        code = ApplicationCode(operator)
        operator.computes(code)
        assert code.replaced() == []
        return code

    return look


CHANGES: dict[str, tuple[dict[str, Any], str, str]] = {
    "Spark's defaults": ({}, "conf/spark-defaults.conf", "conf/spark-defaults.conf"),
    "a file beside the application": ({}, "rates.csv", "rates.csv"),
    "another jar of a glob": ({"jars": "{folder}/*.jar"}, "two.jar", "*.jar"),
    "a module that was missing": ({}, "late.py", "clean.py"),
    "a file that a setting names": ({"conf": {"spark.my.rates": "{folder}/one.jar"}}, "one.jar", "one.jar"),
    "a properties file": ({"properties_file": "{folder}/one.jar"}, "one.jar", "one.jar"),
    "a file of an argument": (
        {"application_args": ["{{output:out}}", "--rates={folder}/rates.csv"]},
        "rates.csv",
        "rates.csv",
    ),
}


@pytest.mark.parametrize("case", CHANGES)
def test_fault_355_whatever_the_fingerprint_was_read_from_is_looked_at_again(
    case: str, looked_at: Callable[..., ApplicationCode], tmp_path: Path
) -> None:
    given, changed, named = CHANGES[case]

    def filled(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: filled(item) for key, item in value.items()}
        return list(map(filled, value)) if isinstance(value, list) else value.format(folder=tmp_path)

    code = looked_at(**filled(given))
    (tmp_path / changed).write_text("spark.sql.ansi.enabled false\n")
    assert code.replaced() == [f"{tmp_path}/{named}"]
    with fails_with("code-replaced", "named-file-changed", attempt="t@1"):
        code.check_same("t@1")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "lazyjob").mkdir()
    for name, text in {
        "__init__": "",
        "job": "from lazyjob import early\ndef run(out):\n    from lazyjob import late\n    late.rows(__file__)\n",
        "early": "N = 1\n",
        "late": "def rows(path): return open(path)\n",
    }.items():
        (tmp_path / "lazyjob" / f"{name}.py").write_text(text)
    (tmp_path / "lazyjob" / "rates.csv").write_text("1")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "lazyjob"
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazyjob"]:
        del sys.modules[name]


@pytest.mark.parametrize(("changed", "is_noticed"), [("late.py", True), ("rates.csv", True), ("early.py", False)])
def test_fault_355_a_module_that_a_function_imports_later_is_looked_at_again(
    package: Path, changed: str, is_noticed: bool
) -> None:
    """What this process has loaded already can't change any more."""
    run = importlib.import_module("lazyjob.job").run
    make = recoverable(PythonOperator, paths="plain")
    operator = in_dag(lambda: make(task_id="t", python_callable=run, outputs=["out"], op_args=["{output:out}"]))
    code = ApplicationCode(operator)
    operator.computes(code)
    assert code.replaced() == []
    (package / changed).write_text("# deployed\n")
    assert code.replaced() == ([str(package / changed)] if is_noticed else [])


# --- other ways to name a file ----------------------------------------------------------------------------------------


@pytest.fixture
def in_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which spark-submit runs, and not that of the application."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "clean.py").write_text("1\n")
    (tmp_path / "rates.csv").write_text("1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_fault_358_a_path_from_the_folder_in_which_spark_submit_runs_counts(in_worker: Path) -> None:
    def fingerprint() -> str:
        arguments = ["{output:out}", "rates.csv"]
        given: dict[str, Any] = {"application": f"{in_worker}/app/clean.py", "application_args": arguments}
        return str(in_dag(lambda: RecoverableSparkSubmitOperator(task_id="t", outputs=["out"], **given)).fingerprint())

    before = fingerprint()
    assert fingerprint() == before
    (in_worker / "rates.csv").write_text("2")
    assert fingerprint() != before


def test_fault_358_code_at_a_uri_in_an_argument_of_an_application_is_a_component(in_worker: Path) -> None:
    arguments = ["{output:out}", "s3a://code/clean.sql", "--rules=s3://code/rules.sql", "s3://lake/rows.csv"]
    given: dict[str, Any] = {"application": f"{in_worker}/app/clean.py", "application_args": arguments}
    operator = in_dag(lambda: RecoverableSparkSubmitOperator(task_id="t", outputs=["out"], **given))
    names = [name for name, _, _ in operator.computes()["code"] if name.startswith("file ")]
    assert names == ["file s3a://code/clean.sql", "file s3://code/rules.sql"]


COMMANDS: dict[str, tuple[str, bool]] = {
    "an argument": ("clean --config {path} --out '{{output:out}}'", True),
    "the value of an option": ("clean --config={path}", True),
    "a variable of one command": ("CONFIG={path} clean", True),
    "a program in a condition": ("if grep -q x {path}; then clean; fi", True),
    "waited for": ("until [ -e {path} ]; do sleep 1; done", False),
    "a variable of the shell": ("clean $FOLDER/rates.csv", True),
    "read by another program": ("cat {path} | clean", True),
    "standard input": ("clean < {path}", True),
    "behind a redirection": ("clean > /dev/null {path}", True),
    "from a folder": ("cd {folder} && clean rates.csv", True),
    "copied from": ("cp {path} /tmp/other", True),
    "a quote that is not closed": ("clean {path} 'x", True),
    "the target of a redirection": ("clean > {path}", False),
    "appended to": ("clean >> {path} 2>&1", False),
    "written by a program": ("clean | tee {path}", False),
    "copied to": ("cp /tmp/other {path}", False),
    "marked": ("touch {path}; test -e {path}", False),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_fault_358_a_file_that_a_command_of_a_shell_is_given_counts(case: str, tmp_path: Path) -> None:
    command, counts = COMMANDS[case]
    path = tmp_path / "rates.csv"

    def fingerprint(content: str) -> str:
        path.write_text(content)
        text = f"{command.format(path=path, folder=tmp_path)}\necho '{{output:out}}'"
        given = {"bash_command": text, "env": {"FOLDER": str(tmp_path)}, "append_env": True}
        return str(in_dag(lambda: Bash(task_id="t", outputs=["out"], **given)).fingerprint())

    assert fingerprint("1") == fingerprint("1")
    assert (fingerprint("1") != fingerprint("2")) is counts


def test_a_large_file_counts_by_its_size_and_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(application_code, "_MOST_NAMED_BYTES", 3)
    path = tmp_path / "rows.csv"
    path.write_text("1234")
    os.utime(path, (1, 1))
    before = ApplicationCode().file_digest(str(path))
    path.write_text("4321")
    assert ApplicationCode().file_digest(str(path)) != before
    os.utime(path, (1, 1))
    assert ApplicationCode().file_digest(str(path)) == before == "size:4 time:1000000000"


@dataclass
class Rates:
    path: str


def rows(*_: Any, **__: Any) -> None:
    pass


NAMED: dict[str, Callable[[str], dict[str, Any]]] = {
    "a text": lambda path: {"op_kwargs": {"rates": path}},
    "a path": lambda path: {"op_kwargs": {"rates": PurePosixPath(path)}},
    "a path in a list": lambda path: {"op_args": ["{output:out}", [Path(path)]]},
    "an option": lambda path: {"op_args": ["{output:out}", f"--rates={path}"]},
    "a URI": lambda path: {"op_args": ["{output:out}", f"file://{path}"]},
    "an object": lambda path: {"op_kwargs": {"rates": Rates(path)}},
    "a set": lambda path: {"op_kwargs": {"rates": {path}}},
    "a partial": lambda path: {"python_callable": partial(rows, Path(path))},
    "a mapping by numbers": lambda path: {"op_kwargs": {"rates": {1: path}}},
}


@pytest.mark.parametrize("named", NAMED.values(), ids=list(NAMED))
def test_fault_358_a_file_counts_in_whatever_way_an_argument_names_it(
    named: Callable[[str], dict[str, Any]], tmp_path: Path
) -> None:
    path = tmp_path / "rates.csv"

    def fingerprint(content: str) -> str:
        path.write_text(content)
        make = recoverable(PythonOperator, paths="plain")
        given = {"op_args": ["{output:out}"], "python_callable": rows, **named(str(path))}
        return str(in_dag(lambda: make(task_id="t", outputs=["out"], **given)).fingerprint())

    assert fingerprint("1") == fingerprint("1")
    assert fingerprint("1") != fingerprint("2")


@pytest.mark.control
def test_fault_358_control_as_a_text_alone_another_content_is_not_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApplicationCode, "file_digest", lambda _, path: path)
    (tmp_path / "rates.csv").write_text("1")
    given = NAMED["an option"](str(tmp_path / "rates.csv"))

    def fingerprint() -> str:
        make = recoverable(PythonOperator, paths="plain")
        return str(in_dag(lambda: make(task_id="t", python_callable=rows, outputs=["out"], **given)).fingerprint())

    before = fingerprint()
    (tmp_path / "rates.csv").write_text("2")
    assert fingerprint() == before
