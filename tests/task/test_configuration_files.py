"""Files of configuration that spark-submit loads on this machine: what in them counts (fault 392)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG

from airflow_recovery.hooks.code_sources import LocalFiles
from airflow_recovery.job import configuration_files, row_settings
from airflow_recovery.operators import RecoverableSparkSubmitOperator, recoverable
from airflow_recovery.task import drop_in, drop_in_operator
from airflow_recovery.task.application_code import ApplicationCode

Operator = Callable[..., Any]


def site(**properties: str) -> str:
    made = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items()]
    return f"<configuration>{''.join(made)}</configuration>"


def of(name: str, value: str) -> str:
    return site(**{name: value})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "HIVE_CONF_DIR", "SPARK_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "SPARK_CONF_DIR"))
    (tmp_path / "clean.py").write_text("print()\n")
    return tmp_path


@pytest.fixture
def operator(folder: Path) -> Operator:
    def made(**given: Any) -> Any:
        with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
            return RecoverableSparkSubmitOperator(
                task_id="t",
                application=f"{folder}/clean.py",
                application_args=["{output:out}"],
                outputs=["out"],
                **given,
            )

    return made


PROPERTIES: dict[str, tuple[str, str, bool]] = {
    "where the metastore is": ("hive-site.xml", "hive.metastore.uris", True),
    "where the warehouse is": ("hive-site.xml", "hive.metastore.warehouse.dir", True),
    "the metastore's database": ("hive-site.xml", "javax.jdo.option.ConnectionURL", True),
    "its password": ("hive-site.xml", "javax.jdo.option.ConnectionPassword", False),
    "how long a client of it waits": ("hive-site.xml", "hive.metastore.client.socket.timeout", False),
    "the name of a partition without a value": ("hive-site.xml", "hive.exec.default.partition.name", True),
    "the default file system": ("core-site.xml", "fs.defaultFS", True),
    "a mount table": ("core-site.xml", "fs.viewfs.mounttable.lake.link./data", True),
    "codecs": ("core-site.xml", "io.compression.codecs", True),
    "buffers": ("core-site.xml", "io.file.buffer.size", False),
    "credentials of a store": ("core-site.xml", "fs.s3a.secret.key", False),
    "credentials of another store": ("core-site.xml", "fs.oss.accessKeySecret", False),
    "rights": ("core-site.xml", "hadoop.proxyuser.airflow.groups", False),
    "the name node of a name": ("hdfs-site.xml", "dfs.namenode.rpc-address.lake.nn1", True),
    "time-outs of HDFS": ("hdfs-site.xml", "dfs.client.socket-timeout", False),
    "where YARN is": ("yarn-site.xml", "yarn.resourcemanager.address", False),
    "subfolders as input": ("mapred-site.xml", "mapreduce.input.fileinputformat.input.dir.recursive", True),
    "sizes of MapReduce": ("mapred-site.xml", "mapreduce.map.memory.mb", False),
    "another client": ("hbase-site.xml", "hbase.zookeeper.quorum", True),
}


@pytest.mark.parametrize("case", PROPERTIES)
def test_fault_392_a_property_counts_unless_it_is_known_not_to_change_rows(
    case: str, folder: Path, operator: Operator
) -> None:
    file, name, counts = PROPERTIES[case]
    path = folder / "SPARK_CONF_DIR" / file
    path.write_text(of(name, "one"))
    before = operator().fingerprint()
    assert operator().fingerprint() == before
    path.write_text("<!-- a comment -->" + of(name, "one"))
    assert operator().fingerprint() == before
    path.write_text(of(name, "two"))
    assert (operator().fingerprint() != before) is counts


OTHER_FILES = {
    "application.conf": True,
    "resolver.xml": True,
    "log4j2.properties": False,
    "metrics.properties": False,
    "fairscheduler.xml": False,
    "hadoop-env.sh": False,
    "workers": False,
    "spark-defaults.conf.template": False,
    "core-site.xml.bak": False,
    ".hidden.conf": False,
}


@pytest.mark.parametrize("name", OTHER_FILES)
def test_fault_392_another_file_counts_by_its_content(name: str, folder: Path, operator: Operator) -> None:
    path = folder / "SPARK_CONF_DIR" / name
    path.write_text("one")
    before = operator().fingerprint()
    path.write_text("two")
    assert (operator().fingerprint() != before) is OTHER_FILES[name]


@pytest.mark.parametrize("variable", ["HADOOP_CONF_DIR", "YARN_CONF_DIR", "HIVE_CONF_DIR"])
@pytest.mark.parametrize("way", ["the worker", "the operator", "spark-env.sh", "spark-env.sh, as a default"])
def test_fault_392_each_folder_that_the_environment_names(
    variable: str, way: str, folder: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    if way == "the worker":
        monkeypatch.setenv(variable, f"{folder}/{variable}")
    elif way == "the operator":
        given = {"env_vars": {variable: f"{folder}/{variable}"}}
    else:
        value = f'${{{variable}:-"{folder}/{variable}"}}' if "default" in way else f"{folder}/{variable}  # here"
        (folder / "SPARK_CONF_DIR" / "spark-env.sh").write_text(f"set -a\nexport {variable}={value}\n")
    path = folder / variable / "hive-site.xml"
    path.write_text(of("hive.metastore.uris", "thrift://one"))
    before = operator(**given).fingerprint()
    path.write_text(of("hive.metastore.uris", "thrift://two"))
    assert operator(**given).fingerprint() != before


def test_fault_392_the_first_file_of_a_name_holds_and_settings_replace_it(
    folder: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", f"{folder}/HADOOP_CONF_DIR")
    for name in ("SPARK_CONF_DIR", "HADOOP_CONF_DIR"):
        (folder / name / "core-site.xml").write_text(of("fs.defaultFS", f"hdfs://{name}"))
    assert operator().computes()["settings"] == {"spark.hadoop.fs.defaultFS": "hdfs://SPARK_CONF_DIR"}
    conf = {"spark.hadoop.fs.defaultFS": "s3a://lake"}
    assert operator(conf=conf).computes()["settings"] == conf
    (folder / "HADOOP_CONF_DIR" / "hdfs-site.xml").write_text(of("fs.defaultFS", "hdfs://later"))
    assert operator().computes()["settings"] == {"spark.hadoop.fs.defaultFS": "hdfs://SPARK_CONF_DIR | hdfs://later"}


def test_fault_392_a_file_that_another_includes(folder: Path, operator: Operator) -> None:
    text = '<configuration xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="more.xml"/></configuration>'
    (folder / "SPARK_CONF_DIR" / "core-site.xml").write_text(text)
    assert unseen(operator()) == ["setting core-site.xml"], "the file that it includes does not exist"
    (folder / "SPARK_CONF_DIR" / "more.xml").write_text(of("fs.defaultFS", "hdfs://a"))
    assert operator().computes()["settings"] == {"spark.hadoop.fs.defaultFS": "hdfs://a"}


def unseen(made: Any) -> list[str]:
    return [each.name for each in made.components_of(made.computes()) if not each.seen]


def test_fault_392_what_can_not_be_read_is_unseen(
    folder: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "SPARK_CONF_DIR" / "hive-site.xml").write_text("<configuration><property>")
    assert unseen(operator()) == ["setting hive-site.xml"]
    (folder / "SPARK_CONF_DIR" / "spark-env.sh").write_text("export HADOOP_CONF_DIR=$(ls -d /etc/hadoop*/conf)\n")
    assert unseen(operator()) == ["configuration $(ls -d /etc/hadoop*/conf)", "setting hive-site.xml"]


def test_a_folder_that_may_not_be_listed_is_not_taken_for_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: str, **_: Any) -> Any:
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("os.scandir", refused)
    with pytest.raises(PermissionError):
        LocalFiles().read(str(tmp_path))


def test_fault_392_an_operator_that_starts_no_spark_here_has_no_such_settings(folder: Path) -> None:
    (folder / "SPARK_CONF_DIR" / "hive-site.xml").write_text(of("hive.metastore.uris", "thrift://one"))
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        bash = recoverable(BashOperator)(task_id="b", bash_command="echo {output:out}", outputs=["out"])
        submit = recoverable(SparkSubmitOperator)(
            task_id="s", application=f"{folder}/clean.py", application_args=["{output:out}"], outputs=["out"]
        )
    assert "settings" not in bash.computes()
    assert submit.computes()["settings"] == {"spark.hadoop.hive.metastore.uris": "thrift://one"}


def test_the_configuration_of_a_spark_that_pip_has_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("venv/bin/spark-submit", "venv/bin/python", "package/__init__.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv" / "bin" / "python"))
    monkeypatch.setattr(
        row_settings.importlib.util,
        "find_spec",
        lambda _: type("Spec", (), {"origin": f"{tmp_path}/package/__init__.py"}),
    )
    assert row_settings.sparks_home(tmp_path / "venv" / "bin" / "spark-submit") == tmp_path / "package"
    (tmp_path / "venv" / "jars").mkdir()
    assert row_settings.sparks_home(tmp_path / "venv" / "bin" / "spark-submit") == tmp_path / "venv"


@pytest.mark.parametrize(("name", "ends"), [("fs.defaultFS", True), ("dfs.client.socket-timeout", False)])
def test_fault_392_a_change_while_the_job_runs_ends_it_only_if_it_may_change_rows(
    name: str, ends: bool, folder: Path, operator: Operator
) -> None:
    path = folder / "SPARK_CONF_DIR" / "core-site.xml"
    path.write_text(of(name, "one"))
    code = ApplicationCode(made := operator())
    made.computes(code)
    path.write_text(of(name, "two"))
    assert code.replaced() == ([str(path)] if ends else [])
    assert code.look_early()[0] == [str(path)], "a job that has just begun may have read something else"


LOADED = """
import json, sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
conf = spark.sparkContext._jsc.hadoopConfiguration()
spark.sparkContext._jvm.org.apache.hadoop.hdfs.HdfsConfiguration.init()
names = ("t.first", "t.second", "t.third", "t.later")
open(sys.argv[1], "w").write(json.dumps({name: conf.get(name) for name in names}))
"""


@pytest.mark.spark
@pytest.mark.slow
def test_fault_392_a_real_spark_submit_loads_the_same_properties(folder: Path) -> None:
    sites = {
        "SPARK_CONF_DIR/core-site.xml": {"t.first": "spark", "t.later": "core"},
        "HADOOP_CONF_DIR/core-site.xml": {"t.first": "hadoop"},
        "HADOOP_CONF_DIR/hdfs-site.xml": {"t.second": "hadoop"},
        "YARN_CONF_DIR/hdfs-site.xml": {"t.second": "yarn"},
        "YARN_CONF_DIR/yarn-site.xml": {"t.third": "yarn", "t.later": "yarn"},
    }
    for name, properties in sites.items():
        (folder / name).write_text(site(**properties))
    (folder / "clean.py").write_text(LOADED)
    (folder / "SPARK_CONF_DIR" / "spark-env.sh").write_text(f"YARN_CONF_DIR={folder}/YARN_CONF_DIR\nset -a\n")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # Spark's scripts look for a python3 there
    env = {**os.environ, "HADOOP_CONF_DIR": f"{folder}/HADOOP_CONF_DIR", "PATH": path}
    subprocess.run(["spark-submit", f"{folder}/clean.py", f"{folder}/loaded"], env=env, check=True, capture_output=True)
    read, unread = row_settings.site_settings(configuration_files.site_files(folder / "SPARK_CONF_DIR", env))
    loaded = json.loads((folder / "loaded").read_text())
    assert loaded == {name: read[f"spark.hadoop.{name}"].split(" | ")[-1] for name in loaded}
    assert not unread


@pytest.mark.control
def test_fault_392_control_without_these_files_another_metastore_is_not_noticed(
    folder: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_settings, "site_files", lambda *_: [])
    for module in (drop_in, drop_in_operator):
        monkeypatch.setattr(module, "places_of_configuration", lambda _: [])
    before = operator().fingerprint()
    (folder / "SPARK_CONF_DIR" / "hive-site.xml").write_text(of("hive.metastore.uris", "thrift://two"))
    (folder / "SPARK_CONF_DIR" / "application.conf").write_text("x = 1")
    assert operator().fingerprint() == before


def test_each_kind_of_file_has_a_reason_and_stands_in_the_table_once() -> None:
    names = [name for _, group in configuration_files.FILES_THAT_DO_NOT_CHANGE_ROWS for name in group]
    assert len(names) == len(set(names))
    assert all(reason for reason, _ in configuration_files.FILES_THAT_DO_NOT_CHANGE_ROWS)
