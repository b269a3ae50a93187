"""What an application's code is: each file that would be loaded counts by its content, wherever it lies."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from kubernetes.client import models as k8s

from airflow_recovery.errors import CodeReplaced, ConfigurationError, StoreUnavailable
from airflow_recovery.hooks import code_sources
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.job import application_modules, row_settings
from airflow_recovery.model.components import Component
from airflow_recovery.operators import RecoverableSparkSubmitOperator, recoverable
from airflow_recovery.store.allowed import Source
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.task import application_code, drop_in, drop_in_operator
from airflow_recovery.task.application_code import ApplicationCode
from airflow_recovery.task.code_places import (
    GLUE,
    Place,
    PlaceKind,
    places_of_fields,
    places_of_settings,
    places_of_shell,
    places_of_submit,
)
from airflow_recovery.testing import S3Server

PROGRAM = "import sys\nprint(sys.argv)\n"


def fingerprint(**given: Any) -> str:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        task = RecoverableSparkSubmitOperator(
            task_id="t", outputs=["out"], **{"application_args": ["--out", "{output:out}"], **given}
        )
    return task.fingerprint()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with an application and what it is given."""
    (tmp_path / "clean.py").write_text(PROGRAM)
    for name in ("lib.zip", "one.jar", "two.jar", "rates.csv", "lookup.zip", "spark.conf"):
        (tmp_path / name).write_bytes(name.encode())
    (tmp_path / "classes").mkdir()
    (tmp_path / "classes" / "log4j2.xml").write_text("<x/>")
    return tmp_path


GIVEN: dict[str, tuple[Callable[[Path], dict[str, Any]], str]] = {
    "a path": (lambda folder: {"application": f"{folder}/clean.py"}, "clean.py"),
    "one slash": (lambda folder: {"application": f"file:{folder}/clean.py"}, "clean.py"),
    "three slashes": (lambda folder: {"application": f"file://{folder}/clean.py"}, "clean.py"),
    "py_files": (lambda folder: {"py_files": f"file:{folder}/lib.zip"}, "lib.zip"),
    "a glob": (lambda folder: {"jars": f"{folder}/*.jar"}, "two.jar"),
    "a glob with one slash": (lambda folder: {"jars": f"file:{folder}/t[vw]o.jar"}, "two.jar"),
    "an archive with its alias": (lambda folder: {"archives": f"{folder}/lookup.zip#lookup"}, "lookup.zip"),
    "files": (lambda folder: {"files": f"{folder}/rates.csv, {folder}/spark.conf"}, "rates.csv"),
    "a jar of the class path": (lambda folder: {"driver_class_path": f"{folder}/one.jar:/none"}, "one.jar"),
    "all jars of a folder": (lambda folder: {"driver_class_path": f"{folder}/*"}, "two.jar"),
    "a folder of the class path": (lambda folder: {"driver_class_path": f"{folder}/classes"}, "classes/log4j2.xml"),
    "jars in a setting": (lambda folder: {"conf": {"spark.jars": f"{folder}/one.jar"}}, "one.jar"),
    "an agent of Java": (
        lambda folder: {"conf": {"spark.driver.extraJavaOptions": f"-Xmx1g -javaagent:{folder}/one.jar=x"}},
        "one.jar",
    ),
    "a file of Java's options": (
        lambda folder: {"conf": {"spark.driver.extraJavaOptions": f"-Dconfig.file={folder}/spark.conf"}},
        "spark.conf",
    ),
    "an argument": (lambda folder: {"application_args": ["{output:out}", f"{folder}/rates.csv"]}, "rates.csv"),
    "an argument of an option": (
        lambda folder: {"application_args": ["{output:out}", f"--rates={folder}/rates.csv"]},
        "rates.csv",
    ),
    "an argument beside the application": (
        lambda folder: {"application_args": ["{output:out}", "rates.csv"]},
        "rates.csv",
    ),
    "py_files in a setting": (lambda folder: {"conf": {"spark.submit.pyFiles": f"{folder}/lib.zip"}}, "lib.zip"),
}


@pytest.mark.parametrize("case", GIVEN)
def test_fault_271_a_file_that_spark_submit_loads_counts_by_its_content(folder: Path, case: str) -> None:
    given, changed = GIVEN[case]
    options = {"application": f"{folder}/clean.py", **given(folder)}
    before = fingerprint(**options)
    assert fingerprint(**options) == before
    (folder / changed).write_text("# another one\n")
    assert fingerprint(**options) != before


OF_PLACES = [case for case in GIVEN if case != "a path" and "argument" not in case and "properties" not in case]


@pytest.mark.parametrize("case", OF_PLACES)
def test_fault_271_control_by_its_name_a_changed_file_is_the_same(
    folder: Path, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ApplicationCode, "components", lambda _, places: [Component(p.role, p.uri) for p in places])
    given, changed = GIVEN[case]
    options = {"application": f"{folder}/clean.py", **given(folder)}
    before = fingerprint(**options)
    (folder / changed).write_text("# another one\n")
    assert fingerprint(**options) == before


BESIDE: dict[str, tuple[str, str]] = {
    "a module": ("import rates", "rates.py"),
    "a module of a package": ("from tools.text import clean", "tools/text.py"),
    "another module of that package": ("import tools", "tools/deep/more.py"),
    "data of that package": ("import tools", "tools/clean.sql"),
    "a module of a module": ("import rates", "deeper.py"),
    "an import inside a function": ("def f():\n    import rates", "rates.py"),
    "a module whose name is computed": ("import importlib\nimportlib.import_module('ra' + 'tes')", "rates.py"),
    "a program that is run": ("import runpy\nrunpy.run_path(f'{1}.py')", "tools/text.py"),
    "a folder of sys.path": (
        "import sys\nsys.path.insert(0, str(path(__file__).parent / 'lib'))\nimport added",
        "lib/added.py",
    ),
    "a module by its file": ("spec_from_file_location('x', folder + '/ra' + 'tes.py')", "rates.py"),
    "a statement whose name is computed": ("open(f'{folder}/sql/{name}.sql')", "sql/day.sql"),
    "statements of a folder": ("for one in folder.glob('sql/*'): pass", "sql/day.sql"),
    "a file that is named": ("open(Path(__file__).parent / 'sql/day.sql')", "sql/day.sql"),
}


@pytest.mark.parametrize("case", BESIDE)
@pytest.mark.parametrize("slashes", ["", "file:"])
def test_fault_271_what_lies_beside_a_python_application_and_is_loaded_counts(
    tmp_path: Path, case: str, slashes: str
) -> None:
    source, changed = BESIDE[case]
    for name in (
        "rates.py",
        "deeper.py",
        "tools/__init__.py",
        "tools/text.py",
        "tools/deep/more.py",
        "tools/clean.sql",
        "lib/added.py",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("import deeper\n" if name == "rates.py" else "")
    (tmp_path / "sql").mkdir()
    (tmp_path / "sql" / "day.sql").write_text("select 1")
    (tmp_path / "unused.py").write_text("")
    (tmp_path / "clean.py").write_text(f"{source}\n")
    application = f"{slashes}{tmp_path}/clean.py"

    before = fingerprint(application=application)
    (tmp_path / "unused.csv").write_text("changed")
    assert fingerprint(application=application) == before
    (tmp_path / changed).write_text("1\n")
    assert fingerprint(application=application) != before


@pytest.mark.control
def test_fault_271_control_without_what_computes_names_it_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_COMPUTES_NAMES", "_COMPUTES_FILES"):
        monkeypatch.setattr(application_modules, name, frozenset())
    monkeypatch.setattr(application_modules, "_changes_path", lambda tree: False)
    (tmp_path / "lib").mkdir()
    for name in ("lib/added.py", "rates.py", "day.sql"):
        (tmp_path / name).write_text("")
    source = "import sys\nsys.path.append('lib')\nimport added\nspec_from_file_location(x)\nopen(f'{day}.sql')\n"
    (tmp_path / "clean.py").write_text(source)
    before = fingerprint(application=f"{tmp_path}/clean.py")
    for name in ("lib/added.py", "rates.py", "day.sql"):
        (tmp_path / name).write_text("1\n")
    assert fingerprint(application=f"{tmp_path}/clean.py") == before


@pytest.mark.control
def test_fault_271_control_without_the_files_of_arguments_another_content_is_not_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop_in, "_files_told", lambda *_: [])
    given = {"application": f"{folder}/clean.py", "application_args": ["{output:out}", f"{folder}/rates.csv"]}
    before = fingerprint(**given)
    (folder / "rates.csv").write_text("another")
    assert fingerprint(**given) == before


def test_fault_271_the_module_beside_the_file_that_a_link_names_counts(tmp_path: Path) -> None:
    for name in ("release", "current"):
        (tmp_path / name).mkdir()
    (tmp_path / "release" / "clean.py").write_text("import rates\n")
    (tmp_path / "release" / "rates.py").write_text("one")
    (tmp_path / "current" / "clean.py").symlink_to(tmp_path / "release" / "clean.py")
    before = fingerprint(application=f"{tmp_path}/current/clean.py")
    (tmp_path / "release" / "rates.py").write_text("two")
    assert fingerprint(application=f"{tmp_path}/current/clean.py") != before


def test_what_decides_the_jars_of_packages_counts(folder: Path) -> None:
    given = {"application": f"{folder}/clean.py", "packages": "g:a:1"}
    others = [fingerprint(**given, **{name: "x"}) for name in ("exclude_packages", "repositories")]
    assert len({fingerprint(**given), *others}) == 3


@pytest.mark.parametrize("variable", ["SPARK_CONF_DIR", "SPARK_HOME", "PATH"])
def test_sparks_defaults_on_this_machine_count_unless_a_properties_file_is_given(
    folder: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, f"{folder}/bin" if variable == "PATH" else str(folder))
    (folder / "bin").mkdir()
    (folder / "bin" / "spark-submit").touch(0o755)
    defaults = folder / ("." if variable == "SPARK_CONF_DIR" else "conf") / "spark-defaults.conf"
    defaults.parent.mkdir(exist_ok=True)

    def both(text: str) -> tuple[str, str]:
        defaults.write_text(text)
        given = {"application": f"{folder}/clean.py"}
        return fingerprint(**given), fingerprint(**given, properties_file=f"{folder}/spark.conf")

    before = both("spark.executor.memory 4g\n")
    assert both("spark.executor.memory 8g\n") == before
    alone, with_properties = both("spark.sql.session.timeZone Europe/Berlin\n")
    assert alone != before[0]
    assert with_properties == before[1]


@pytest.mark.parametrize("is_own_operator", [True, False])
def test_a_jar_that_sparks_defaults_name_counts(
    folder: Path, is_own_operator: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_submit() -> str:
        if is_own_operator:
            return fingerprint(application=f"{folder}/clean.py")
        with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
            submit = recoverable(SparkSubmitOperator)(
                task_id="t", application=f"{folder}/clean.py", application_args=["{output:out}"], outputs=["out"]
            )
        return str(submit.fingerprint())

    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    (folder / "spark-defaults.conf").write_text(f"spark.jars {folder}/rates.jar\n")
    (folder / "rates.jar").write_text("one")
    before = of_submit()
    (folder / "rates.jar").write_text("two")
    changed = of_submit()
    assert changed != before
    # The control.
    monkeypatch.setattr(drop_in, "all_settings", row_settings.declared_settings)
    monkeypatch.setattr(drop_in_operator, "defaults_of", lambda operator: {})
    without = of_submit()
    (folder / "rates.jar").write_text("three")
    assert of_submit() == without


@pytest.mark.control
def test_control_without_sparks_defaults_another_time_zone_is_not_noticed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_CONF_DIR", str(folder))
    monkeypatch.setattr(row_settings, "defaults_of", lambda operator: {})
    before = fingerprint(application=f"{folder}/clean.py")
    (folder / "spark-defaults.conf").write_text("spark.sql.session.timeZone Europe/Berlin\n")
    assert fingerprint(application=f"{folder}/clean.py") == before


SHELL: dict[str, tuple[str, str | None, list[Place]]] = {
    "in a folder": ("cd {folder} && python clean.py --day 1", None, [Place("file", "{folder}/clean.py")]),
    "in the task's folder": ("python ./clean.py; echo", "{folder}", [Place("file", "{folder}/clean.py")]),
    "by a variable": ('bash "$ETL/run.sh" x', None, [Place("file", "{folder}/run.sh")]),
    "by a variable that nobody knows": ("bash $X/run.sh", None, [Place("file", "$X/run.sh", PlaceKind.ELSEWHERE)]),
    "a program without an ending": ("A=1 exec {folder}/run {{output:out}}", None, [Place("file", "{folder}/run")]),
    "a module": ("python3 -m tools.text", "{folder}", [Place("file", "{folder}/tools/text.py")]),
    "a module that is not found": ("python -m nobody", "{folder}", [Place("module", "nobody", PlaceKind.ELSEWHERE)]),
    "programs of the system": ("/bin/cat x.csv | /usr/bin/python3 -c 'print(1)' > out.py", None, []),
    "by PATH": ("clean_orders --day 1", None, [Place("file", "{folder}/bin/clean_orders")]),
    "by PATH, installed by pip": ("clean_rows --day 1", None, []),
    "a placeholder": ("python {{output:out}}/x.py", "{folder}", []),
}  # fmt: skip


@pytest.mark.parametrize("case", SHELL)
def test_fault_273_what_a_command_of_a_shell_runs(tmp_path: Path, case: str) -> None:
    (tmp_path / "tools").mkdir()
    for name in ("clean.py", "run.sh", "run", "tools/text.py"):
        (tmp_path / name).write_text("")
    for name in ("bin/clean_orders", "venv/bin/clean_rows", "venv/bin/python"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(0o755)
    command, cwd, expected = SHELL[case]
    env = {"ETL": str(tmp_path), "PATH": f"/usr/bin:{tmp_path}/bin:{tmp_path}/venv/bin"}
    found = places_of_shell(command.format(folder=tmp_path), cwd and cwd.format(folder=tmp_path), env)
    found = [place._replace(uri=os.path.normpath(place.uri)) for place in found]
    assert found == [place._replace(uri=place.uri.format(folder=tmp_path)) for place in expected]


@pytest.mark.parametrize("command", ["cd {folder} && python clean.py {{output:out}}", "{folder}/run {{output:out}}"])
def test_fault_273_new_code_of_a_command_changes_the_fingerprint(
    tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def of_bash() -> str:
        for name in ("clean.py", "run"):
            if not (tmp_path / name).exists():
                (tmp_path / name).write_text("one")
        with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
            options: dict[str, Any] = {"bash_command": command.format(folder=tmp_path), "outputs": ["out"]}
            return str(recoverable(BashOperator)(task_id="t", **options).fingerprint())

    before = of_bash()
    for name in ("clean.py", "run"):
        (tmp_path / name).write_text("two")
    assert of_bash() != before
    # The control.
    monkeypatch.setattr(drop_in_operator, "places_of_shell", lambda *_: [])
    without = of_bash()
    for name in ("clean.py", "run"):
        (tmp_path / name).write_text("three")
    assert of_bash() == without


def test_what_nothing_loads_does_not_count_and_a_moved_deployment_is_the_same(tmp_path: Path) -> None:
    for version in ("one", "two"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "clean.py").write_text("import rates\n")
        (tmp_path / version / "rates.py").write_text("")
    before = fingerprint(application=f"{tmp_path}/one/clean.py")
    (tmp_path / "one" / "other.py").write_text("changed")
    assert fingerprint(application=f"{tmp_path}/one/clean.py") == before
    assert fingerprint(application=f"{tmp_path}/two/clean.py") == before


def test_modules_of_pythonpath_count(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "lib").mkdir()
    (tmp_path / "app" / "clean.py").write_text("import rates\n")
    (tmp_path / "lib" / "rates.py").write_text("one")
    options = {"application": f"{tmp_path}/app/clean.py", "env_vars": {"PYTHONPATH": f"{tmp_path}/lib"}}
    before = fingerprint(**options)
    (tmp_path / "lib" / "rates.py").write_text("two")
    assert fingerprint(**options) != before


# --- where code stands ------------------------------------------------------------------------------------------------

SUBMIT = ["spark-submit", "--deploy-mode", "cluster", "--py-files", "s3://c/lib.zip,s3://c/b.zip", "--conf"]
CLEAN = Place("application", "s3://c/clean.py")
LIB = Place("py_files", "s3://c/lib.zip")
FIELDS: dict[str, tuple[Any, list[Place]]] = {
    "Livy": (
        {"spark_params": {"file": "s3://c/clean.py", "py_files": ["s3://c/lib.zip"], "args": ["s3://lake/day/"]}},
        [CLEAN, LIB],
    ),
    "a step of EMR": (
        {
            "steps": [
                {"HadoopJarStep": {"Jar": "command-runner.jar", "Args": [*SUBMIT, "a=b", "s3://c/clean.py", "--x"]}}
            ]
        },
        [LIB, Place("py_files", "s3://c/b.zip"), CLEAN],
    ),
    "a script of EMR": (
        {"steps": [{"HadoopJarStep": {"Jar": "s3://r/script-runner.jar", "Args": ["s3://c/run.sh", "s3://lake/"]}}]},
        [Place("jars", "s3://r/script-runner.jar"), Place("file", "s3://c/run.sh")],
    ),
    "EMR Serverless": (
        {
            "job_driver": {
                "sparkSubmit": {
                    "entryPoint": "s3://c/clean.py",
                    "sparkSubmitParameters": "--py-files s3://c/lib.zip --conf spark.archives=s3://c/env.tgz#environment",
                }
            }
        },
        [CLEAN, LIB, Place("archives", "s3://c/env.tgz#environment")],
    ),
    "a job of Dataproc": (
        {
            "job": {
                "pyspark_job": {
                    "main_python_file_uri": "s3://c/clean.py",
                    "python_file_uris": ["s3://c/lib.zip"],
                    "args": ["x"],
                }
            }
        },
        [CLEAN, LIB],
    ),
    "a batch of Dataproc": (
        {
            "batch": {
                "spark_batch": {"jar_file_uris": ["gs://c/a.jar"], "main_class": "A"},
                "runtime_config": {"container_image": "eu.gcr.io/x/spark:3"},
            }
        },
        [Place("jars", "gs://c/a.jar"), Place("image", "eu.gcr.io/x/spark:3", PlaceKind.IMAGE)],
    ),
    "a SparkApplication as text": (
        {
            "application_file": "spec:\n  image: spark@sha256:1\n  mainApplicationFile: s3://c/clean.py\n"
            "  deps:\n    pyFiles: [s3://c/lib.zip]\n"
        },
        [Place("image", "spark@sha256:1", PlaceKind.IMAGE), CLEAN, LIB],
    ),
    "a SparkApplication": (
        {
            "template_spec": {
                "spec": {"mainApplicationFile": "s3://c/clean.py", "sparkConf": {"spark.jars": "s3://c/a.jar"}}
            }
        },
        [CLEAN, Place("jars", "s3://c/a.jar")],
    ),
    "Databricks": (
        {
            "json": {"libraries": [{"whl": "dbfs:/lib.whl"}, {"pypi": {"package": "x==1"}}]},
            "notebook_task": {"notebook_path": "/Workspace/etl/clean"},
        },
        [Place("py_files", "dbfs:/lib.whl"), Place("application", "/Workspace/etl/clean")],
    ),
    "a repository": (
        {"git_source": {"git_url": "https://h/x", "git_branch": "main"}, "spark_python_task": {"python_file": "a.py"}},
        [Place("git source", "https://h/x@main", PlaceKind.ELSEWHERE)],
    ),
    "a job that Databricks keeps": ({"job_id": 7}, [Place("job_id", "7", PlaceKind.ELSEWHERE)]),
    "Glue": (
        {"script_location": "s3://c/clean.py", "script_args": {"--extra-py-files": "s3://c/lib.zip"}},
        [CLEAN, LIB],
    ),
    "a shell": (
        {"bash_command": "cd /x && spark-submit --py-files 's3://c/lib.zip' s3://c/clean.py --day 1 && echo"},
        [LIB, CLEAN],
    ),
    "a shell with two": (
        {"bash_command": "spark-submit s3://c/clean.py; /opt/spark/bin/spark-submit s3://c/b.py"},
        [CLEAN, Place("application", "s3://c/b.py")],
    ),
    "a program of a shell": (
        {"bash_command": "python3 /opt/etl/clean.py --out /lake/x.csv"},
        [Place("file", "/opt/etl/clean.py")],
    ),
    "a URI in a command": (
        {"arguments": ["-c", "curl -s https://h/a.py?x | python -; spark-sql -f s3://c/x.sql > s3://lake/x.csv"]},
        [Place("file", "https://h/a.py?x"), Place("file", "s3://c/x.sql")],
    ),
    "a URI beside spark-submit": (
        {"bash_command": "aws s3 cp s3://c/lib.py . && spark-submit s3://c/clean.py"},
        [CLEAN, Place("file", "s3://c/lib.py")],
    ),
    "a place in an image": ({"bash_command": "code=local:///clean.sh; sh $code"}, [Place("file", "local:///clean.sh")]),
    "statements of a command": ({"bash_command": "hive -f /opt/x.hql"}, [Place("file", "/opt/x.hql")]),
    "a properties file in a command": (
        {"bash_command": "spark-submit --properties-file /opt/x.conf s3://c/clean.py"},
        [Place("file", "/opt/x.conf"), CLEAN],
    ),
    "what a cluster of Databricks installs": (
        {
            "json": {
                "libraries": [
                    {"pypi": {"package": "etl"}},
                    {"maven": {"coordinates": "g:a:1-SNAPSHOT"}},
                    {"maven": {"coordinates": "g:a:1"}},
                ],
                "new_cluster": {
                    "init_scripts": [{"workspace": {"destination": "/Users/x/init.sh"}}],
                    "docker_image": {"url": "etl:1"},
                },
            }
        },
        [
            Place("packages", "etl", PlaceKind.PACKAGE),
            Place("packages", "g:a:1-SNAPSHOT", PlaceKind.PACKAGE),
            Place("image", "etl:1", PlaceKind.IMAGE),
            Place("file", "/Users/x/init.sh"),
        ],
    ),
    "a query that Databricks keeps": (
        {"json": {"sql_task": {"query": {"query_id": "q-1"}}}},
        [Place("query_id", "q-1", PlaceKind.ELSEWHERE)],
    ),
    "an init container": (
        {"init_containers": [k8s.V1Container(name="git", image="git-sync:4")]},
        [Place("image", "git-sync:4", PlaceKind.IMAGE)],
    ),
    "a pod": (
        {"full_pod_spec": k8s.V1Pod(spec=k8s.V1PodSpec(containers=[k8s.V1Container(name="a", image="a:1")]))},
        [Place("image", "a:1", PlaceKind.IMAGE)],
    ),
    "an operator of a user's own": ({"script": "gs://c/x.sql"}, [Place("file", "gs://c/x.sql")]),
    "data": ({"args": ["s3://lake/day.csv", "s3://lake/x/"], "source": "/lake"}, []),
}


@pytest.mark.parametrize("case", FIELDS)
def test_fault_273_where_the_fields_of_an_operator_name_code(case: str) -> None:
    fields, expected = FIELDS[case]
    assert places_of_fields(fields) == expected


def test_what_may_be_data_is_no_code_of_an_operator_that_is_no_services() -> None:
    """A function may write what it is given as ``file``."""
    given = {"op_kwargs": {"file": "s3://lake/day.csv", "files": ["s3://lake/x.json"]}}
    assert places_of_fields(given, of_service=False) == []
    assert places_of_fields({"jars": "s3://c/a.jar"}, of_service=False) == [Place("jars", "s3://c/a.jar")]
    assert len(places_of_fields(given)) == 2


def test_settings_that_name_code() -> None:
    assert places_of_settings({"spark.jars": "a.jar,b.jar", "spark.executor.memory": "2g"}) == [
        Place("jars", "a.jar"),
        Place("jars", "b.jar"),
    ]
    assert places_of_submit({"application": "a.py", "packages": "g:a:1"}, {"spark.jars.packages": "g:b:2"}) == [
        Place("application", "a.py"),
        Place("packages", "g:a:1", PlaceKind.PACKAGE),
        Place("packages", "g:b:2", PlaceKind.PACKAGE),
    ]


@pytest.mark.parametrize(
    ("place", "is_seen"),
    [
        (Place("image", "spark:3.5", PlaceKind.IMAGE), False),
        (Place("image", "h:5000/spark@sha256:00ff", PlaceKind.IMAGE), True),
        (Place("packages", "g:a:1.0", PlaceKind.PACKAGE), True),
        (Place("packages", "g:a:1.0-SNAPSHOT", PlaceKind.PACKAGE), False),
        (Place("packages", "g:a:[1,2)", PlaceKind.PACKAGE), False),
        (Place("job_id", "7", PlaceKind.ELSEWHERE), False),
        (Place("application", "local:///opt/clean.py"), False),
        (Place("application", "wasbs://c@a/clean.py"), False),
        (Place("jars", "/nowhere/*.jar"), False),
    ],
)
def test_what_is_behind_a_name_is_seen_or_said_to_be_unseen(place: Place, is_seen: bool) -> None:
    (component,) = ApplicationCode().components([place])
    assert component == Component(f"{place.role} {place.uri}", place.uri, seen=is_seen)


# --- in stores --------------------------------------------------------------------------------------------------------


@pytest.fixture
def s3_folder(one_s3_server: S3Server, tmp_path: Path) -> S3Store:
    """An empty folder on a real server."""
    uri = f"s3://recovery-tests/{tmp_path.name}-code"
    return S3Store(uri, endpoint_url=one_s3_server.endpoint_url, session=one_s3_server.session())


@pytest.fixture
def stores(one_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stores:
    """Those of a deployment whose results are on the server."""
    connection = {
        "conn_type": "aws",
        "login": one_s3_server.environment()["AWS_ACCESS_KEY_ID"],
        "password": one_s3_server.environment()["AWS_SECRET_ACCESS_KEY"],
        "extra": {"endpoint_url": one_s3_server.endpoint_url, "region_name": "us-east-1"},
    }
    monkeypatch.setenv("AIRFLOW_CONN_RESULTS", json.dumps(connection))
    for name, value in {
        "JOURNAL": f"file://{tmp_path}/journal",
        "RESULTS": "s3://recovery-tests/results",
        "AWS_CONN_ID": "results",
    }.items():
        monkeypatch.setenv(f"AIRFLOW__RECOVERY__{name}", value)
    return open_stores(RecoverySettings.load())


def values(code: ApplicationCode, *places: Place) -> list[tuple[str, str, bool]]:
    return [(one.name, one.value, one.seen) for one in code.components(places)]


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_fault_270_code_in_a_store_counts_by_its_content(scheme: str, s3_folder: S3Store, stores: Stores) -> None:
    uri = s3_folder.base_uri.replace("s3:", f"{scheme}:")
    for name in ("clean.py", "a.jar", "b.jar"):
        s3_folder.put(name, b"one")
    places = Place("application", f"{uri}/clean.py"), Place("jars", f"{uri}/*.jar"), Place("archives", f"{uri}/a.jar#x")

    first = values(ApplicationCode(None, stores), *places)
    assert [name.removeprefix("application ").rpartition("/")[2] for name, _, _ in first] == [
        "clean.py",
        "a.jar",
        "b.jar",
        "a.jar#x",
    ]
    assert all(seen for _, _, seen in first)
    assert values(ApplicationCode(None, stores), *places) == first
    s3_folder.put("b.jar", b"two")
    second = values(ApplicationCode(None, stores), *places)
    assert [one != other for one, other in zip(first, second, strict=True)] == [False, False, True, False]


def test_fault_272_a_file_that_was_replaced_and_put_back_is_another_version(
    s3_folder: S3Store, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store's time is in seconds: the version before is given an older one, so that no test waits for it."""
    s3_folder.put("clean.py", b"good")
    code = ApplicationCode(None, stores)
    before = values(code, Place("application", f"{s3_folder.base_uri}/clean.py"))
    code.check_same("t@1")
    s3_folder.put("clean.py", b"bad")
    with pytest.raises(CodeReplaced, match=r"t@1: expected its code to stay .*clean.py was replaced since"):
        code.check_same("t@1")
    uri, (size, etag, _, generation) = next((uri, file.version) for uri, file in code._read.items())
    code._read[uri] = code_sources.CodeFile(code._read[uri].content, (size, etag, 1, generation))
    s3_folder.put("clean.py", b"good")
    assert values(ApplicationCode(None, stores), Place("application", uri)) == before, "the content is the same"
    assert code.replaced() == [uri]


def test_a_store_that_gives_no_answer_ends_no_job_and_lets_no_rows_count(
    s3_folder: S3Store, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_folder.put("clean.py", b"one")
    uri = f"{s3_folder.base_uri}/clean.py"
    code = ApplicationCode(None, stores)
    code.components([Place("application", uri)])
    assert code.look_early() == ([], True)

    def refuse(self: S3Store, key: str) -> None:
        raise StoreUnavailable("SlowDown")

    monkeypatch.setattr(S3Store, "version", refuse)
    assert code.look_early() == ([], False)
    assert code.replaced() == [uri]


def test_a_large_file_is_not_read_and_counts_by_what_the_store_knows_of_it(
    s3_folder: S3Store, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_sources, "MAX_READ_BYTES", 3)
    s3_folder.put("big.jar", b"1234")
    place = Place("jars", f"{s3_folder.base_uri}/big.jar")
    ((_, first, seen),) = values(ApplicationCode(None, stores), place)
    assert seen
    assert ":" in first
    s3_folder.put("big.jar", b"1235")
    assert values(ApplicationCode(None, stores), place)[0][1] != first


def test_fault_274_what_is_denied_or_missing_is_unseen_and_no_failure(
    s3_folder: S3Store, stores: Stores, one_s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_folder.put("clean.py", b"one")
    missing = f"{s3_folder.base_uri}/none.py"
    assert values(ApplicationCode(None, stores), Place("application", missing)) == [
        (f"application {missing}", missing, False)
    ]
    wrong = {"conn_type": "aws", "login": "AKIAWRONG", "password": "wrong"}
    extra = {"endpoint_url": one_s3_server.endpoint_url, "region_name": "us-east-1"}
    monkeypatch.setenv("AIRFLOW_CONN_RESULTS", json.dumps({**wrong, "extra": extra}))
    there = Place("application", f"{s3_folder.base_uri}/clean.py")
    with one_s3_server.refusing_strangers():
        assert values(ApplicationCode(None, open_stores(RecoverySettings.load())), there) == [
            (f"application {there.uri}", there.uri, False)
        ]


def test_the_operators_own_connection_is_asked_first(
    s3_folder: S3Store, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_folder.put("clean.py", b"one")
    asked: list[str] = []
    opener_of = Stores.opener_of

    def asking(self: Stores, uri: str, conn_id: str | None = None, source: Source = Source.RUN) -> Any:
        if conn_id is None:
            return opener_of(self, uri, conn_id, source)
        asked.append(conn_id)
        raise ConfigurationError("no such connection")

    monkeypatch.setattr(Stores, "opener_of", asking)
    operator: Any = type("Operator", (), {"aws_conn_id": "mine"})()
    place = Place("application", f"{s3_folder.base_uri}/clean.py")
    ((_, _, seen),) = values(ApplicationCode(operator, stores), place)
    assert (asked, seen) == (["mine"], True), "then that of the results"


# --- over HTTP --------------------------------------------------------------------------------------------------------


class Web:
    """A server of HTTP in a thread. ``answers``: method and path to status, headers and body; ``asked`` what came."""

    def __init__(self) -> None:
        self.answers: dict[str, Callable[[dict[str, str]], tuple[int, dict[str, str], bytes]]] = {}
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def _handle(self) -> None:
                parts = urlsplit(self.path)
                query = {key: values[0] for key, values in parse_qs(parts.query).items()}
                outer.asked.append(f"{self.command} {parts.path}{query.get('op', '')}")
                answer = outer.answers.get(f"{self.command} {parts.path}", lambda _: (404, {}, b"{}"))
                status, headers, body = answer(query)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = _handle

            def log_message(self, *args: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def web() -> Iterator[Web]:
    server = Web()
    yield server
    server.close()


def naming(web: Web) -> Stores:
    """Those of a deployment that allows files of this server."""
    return open_stores(RecoverySettings("file:///journal", "file:///results", allowed_locations=(web.url,)))


@pytest.mark.parametrize("header", ["ETag", "Last-Modified", ""])
def test_code_of_a_web_server(web: Web, header: str) -> None:
    stores = naming(web)
    bodies = [b"one"]
    headers = {header: "1"} if header else {}
    for method in ("GET", "HEAD"):
        web.answers[f"{method} /clean.py"] = lambda _: (200, headers, bodies[-1])
    place = Place("application", f"{web.url}/clean.py?X-Amz-Signature=secret")

    code = ApplicationCode(None, stores)
    ((name, first, seen),) = values(code, place)
    assert (name, seen) == (f"application {web.url}/clean.py", True), "without the signature"
    assert code.replaced() == []
    bodies.append(b"two")
    if header:
        headers[header] = "2"
    assert code.replaced() == [place.uri]
    assert values(ApplicationCode(None, stores), place)[0][1] != first


def test_a_web_server_that_knows_no_head_is_asked_again(web: Web) -> None:
    web.answers["GET /clean.py"] = lambda _: (200, {"ETag": "1"}, b"one")
    code = ApplicationCode(None, naming(web))
    values(code, Place("application", f"{web.url}/clean.py"))
    assert code.replaced() == []
    assert web.asked == ["GET /clean.py", "HEAD /clean.py", "GET /clean.py"]


def test_code_in_hdfs_is_read_over_webhdfs(web: Web, stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = {"conn_type": "webhdfs", "host": "127.0.0.1", "port": web.port, "login": "spark"}
    monkeypatch.setenv("AIRFLOW_CONN_WEBHDFS_DEFAULT", json.dumps(connection))
    state: dict[str, Any] = {"body": b"one", "modificationTime": 1}

    def answer(query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        assert query["user.name"] == "spark"
        if query["op"] == "OPEN":
            return 200, {}, bytes(state["body"])
        about = {"type": "FILE", "fileId": 7, "length": len(state["body"]), "modificationTime": 1}
        status = {"FileStatus": {**about, "modificationTime": state["modificationTime"]}}
        return 200, {}, json.dumps(status).encode()

    web.answers["GET /webhdfs/v1/apps/clean.py"] = answer
    code = ApplicationCode(None, stores)
    ((_, first, seen),) = values(code, Place("application", "hdfs:///apps/clean.py"))
    assert (seen, code.replaced()) == (True, [])
    assert values(ApplicationCode(None, stores), Place("application", "hdfs://127.0.0.1/apps/clean.py"))[0][1] == first
    assert not values(ApplicationCode(None, stores), Place("application", "hdfs://other/apps/clean.py"))[0][2]
    state["modificationTime"] = 2
    assert code.replaced() == ["hdfs:///apps/clean.py"]
    state["body"] = b"two"
    assert values(ApplicationCode(None, stores), Place("application", "hdfs:///apps/clean.py"))[0][1] != first


@pytest.mark.parametrize("uri", ["dbfs:/etl/clean.py", "/Workspace/etl/clean"])
def test_code_of_databricks_is_read_by_its_api(
    web: Web, stores: Stores, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("airflow.providers.databricks.hooks.databricks")
    connection = {"conn_type": "databricks", "host": "127.0.0.1", "port": web.port, "schema": "http", "password": "t"}
    monkeypatch.setenv("AIRFLOW_CONN_DATABRICKS_DEFAULT", json.dumps(connection))
    state: dict[str, Any] = {"body": b"one", "at": 1}

    def about(query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        assert query["path"] in ("/etl/clean.py", "/etl/clean")
        size, at = len(state["body"]), state["at"]
        of_dbfs = {"file_size": size, "modification_time": at}
        return 200, {}, json.dumps({**of_dbfs, "object_type": "NOTEBOOK", "object_id": 5, "modified_at": at}).encode()

    def content(query: dict[str, str]) -> tuple[int, dict[str, str], bytes]:
        text = base64.b64encode(state["body"]).decode()
        return 200, {}, json.dumps({"content": text, "data": text}).encode()

    web.answers |= {f"GET /api/2.0/{name}/get-status": about for name in ("dbfs", "workspace")}
    web.answers |= {f"GET /api/2.0/{name}": content for name in ("dbfs/read", "workspace/export")}
    operator: Any = type("Operator", (), {"databricks_conn_id": "databricks_default"})()
    code = ApplicationCode(operator, stores)
    ((_, first, seen),) = values(code, Place("application", uri))
    assert (seen, code.replaced()) == (True, [])
    state.update(body=b"two", at=2)
    assert code.replaced() == [uri]
    assert values(ApplicationCode(operator, stores), Place("application", uri))[0][1] != first
    assert not values(ApplicationCode(None, stores), Place("application", uri))[0][2], "without a connection"


@pytest.mark.slow
def test_a_job_that_glue_keeps_counts_with_its_script(
    start_s3_server: Callable[[str], S3Server], stores: Stores, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """moto has Glue's API, and S3 beside it."""
    import boto3

    moto = start_s3_server("moto")
    environment = moto.environment()
    login = {"login": environment["AWS_ACCESS_KEY_ID"], "password": environment["AWS_SECRET_ACCESS_KEY"]}
    extra = {"endpoint_url": moto.endpoint_url, "region_name": "us-east-1"}
    monkeypatch.setenv("AIRFLOW_CONN_GLUE", json.dumps({"conn_type": "aws", "extra": extra, **login}))
    glue: Any = boto3.client("glue", endpoint_url=moto.endpoint_url, region_name="us-east-1")
    uri = f"s3://recovery-tests/{tmp_path.name}"
    scripts = S3Store(uri, endpoint_url=moto.endpoint_url, session=moto.session())
    scripts.put("clean.py", b"one")
    scripts.put("lib.zip", b"one")
    definition = {"Command": {"Name": "glueetl", "ScriptLocation": f"{uri}/clean.py"}, "Role": "r"}
    arguments = {"--extra-py-files": f"{uri}/lib.zip"}
    glue.create_job(Name=tmp_path.name, **definition, DefaultArguments=arguments)
    operator: Any = type("Operator", (), {"aws_conn_id": "glue", "region_name": None})()
    place = Place("glue job", f"{GLUE}{tmp_path.name}")

    code = ApplicationCode(operator, stores)
    first = values(code, place)
    assert [(name, seen) for name, _, seen in first] == [
        (f"glue job glue:{tmp_path.name}", True),
        (f"application {uri}/clean.py", True),
        (f"py_files {uri}/lib.zip", True),
    ]
    assert (values(ApplicationCode(operator, stores), place), code.replaced()) == (first, [])
    scripts.put("lib.zip", b"other")
    assert code.replaced() == [f"{uri}/lib.zip"]
    assert values(ApplicationCode(operator, stores), place)[:2] == first[:2]
    missing = Place("glue job", f"{GLUE}none")
    assert values(ApplicationCode(operator, stores), missing) == [("glue job glue:none", "glue:none", False)]


def test_what_a_pipelines_specification_includes_counts(tmp_path: Path) -> None:
    (tmp_path / "transformations" / "day").mkdir(parents=True)
    (tmp_path / "transformations" / "day" / "clean.py").write_text("one")
    specification = tmp_path / "pipeline.yml"
    specification.write_text("name: p\nlibraries:\n  - glob:\n      include: transformations/**\n")
    places = places_of_fields({"pipeline_spec": str(specification)})

    first = ApplicationCode().components(places)
    assert [one.name for one in first] == ["application", "files beside pipeline.yml"]
    (tmp_path / "transformations" / "day" / "clean.py").write_text("two")
    assert [one != other for one, other in zip(first, ApplicationCode().components(places), strict=True)] == [
        False,
        True,
    ]


# --- of this machine --------------------------------------------------------------------------------------------------


def test_fault_272_a_file_of_this_machine_that_was_replaced_and_put_back_is_noticed(folder: Path) -> None:
    code = ApplicationCode()
    code.components([Place("application", f"{folder}/clean.py"), Place("class path", f"{folder}/classes")])
    assert code.replaced() == []
    good = (folder / "clean.py").read_bytes()
    for body in (b"bad", good):
        (folder / "new.py").write_bytes(body)
        (folder / "new.py").replace(folder / "clean.py")
    assert code.replaced() == [f"{folder}/clean.py"]
    assert code.replaced(lazy=True) == [], "Python has read it by then"


def test_fault_355_a_file_that_the_job_may_write_is_looked_at_again(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text("1")
    (tmp_path / "clean.py").write_text("open('state.json', 'w')\n")
    code = ApplicationCode()
    before = code.file_digest(str(state)), *code.components([Place("application", f"{tmp_path}/clean.py")])
    state.write_text("2")
    assert code.replaced() == [str(state)]
    again = ApplicationCode()
    after = again.file_digest(str(state)), *again.components([Place("application", f"{tmp_path}/clean.py")])
    assert [one != other for one, other in zip(before, after, strict=True)] == [True, False, True]


def test_the_names_of_components_are_there_once(folder: Path) -> None:
    places = [Place("jars", f"{folder}/one.jar"), Place("jars", f"{folder}/classes/../one.jar")]
    assert [one.name for one in ApplicationCode().components(places)] == ["jars one.jar", "jars one.jar (2)"]


def test_a_signed_address_is_named_without_its_secret() -> None:
    assert application_code._shown("https://me:pw@h/clean.py?sig=x") == "https://h/clean.py"
