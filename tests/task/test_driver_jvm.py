"""An archive of Spark's classes, and the variables with which spark-submit's JVMs use it. Spark is a stand-in."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from expected_errors import fails_with

from airflow_recovery.hooks.settings import DriverJvm, configured_driver_jvm
from airflow_recovery.task import class_archive, spark_submission
from airflow_recovery.task.class_archive import (
    HOT_CODE_LATER,
    NEEDED_BYTES,
    SHORT_LIVED,
    USER_OPTIONS,
    NoArchive,
    SparkInstallation,
    find_archive,
    find_or_make_archive,
    make_archive,
)
from airflow_recovery.task.driver_jvm import driver_environment, jvm_variables, user_option
from airflow_recovery.task.spark_submission import connect_server_command
from airflow_recovery.testing.patience import wait_until

SUBMIT = """#!/bin/sh
# Dumps as a JVM does that ends with -XX:ArchiveClassesAtExit; fails where it is told to.
echo "$@ : $SPARK_SUBMIT_OPTS" >> "$(dirname "$0")/../submitted"
case "$SPARK_SUBMIT_OPTS" in
    *ArchiveClassesAtExit*) printf classes > "${SPARK_SUBMIT_OPTS#*AtExit=}"; exit ${DUMP_ENDS_WITH:-0} ;;
    *) exit ${START_ENDS_WITH:-0} ;;
esac
"""


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    home = tmp_path / "spark"
    (home / "jars").mkdir(parents=True)
    (home / "jars" / "spark-core.jar").write_text("classes")
    programs = {home / "bin" / "spark-submit": SUBMIT, tmp_path / "java" / "bin" / "java": "#!/bin/sh\n"}
    for program, text in programs.items():
        program.parent.mkdir(parents=True)
        program.write_text(text)
        program.chmod(0o755)
    return home


@pytest.fixture
def environment(spark_home: Path, tmp_path: Path) -> dict[str, str]:
    path = f"{spark_home / 'bin'}:/usr/bin:/bin"
    return {"PATH": path, "JAVA_HOME": str(tmp_path / "java"), "XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "airflow-recovery" / "spark-classes"


@pytest.fixture
def spark(environment: dict[str, str]) -> SparkInstallation:
    return SparkInstallation.locate(environment)


WITHOUT_ARCHIVE = {
    "SPARK_SUBMIT_OPTS": HOT_CODE_LATER,
    "SPARK_LAUNCHER_OPTS": f"{SHORT_LIVED} {HOT_CODE_LATER}",
}


def variables(environment: dict[str, str], mode: DriverJvm = DriverJvm.QUICK) -> dict[str, str]:
    return jvm_variables(mode, None, "spark-submit", environment)


def test_the_first_driver_starts_plainly_and_those_after_it_with_the_archive(environment, folder, spark, caplog):
    with caplog.at_level("INFO"):
        assert variables(environment) == WITHOUT_ARCHIVE
    (why,) = caplog.messages
    assert why.startswith("The driver's JVM starts without an archive of Spark's classes: it is made in the background")
    archive = folder / f"{spark.key()}.jsa"
    wait_until(archive.exists, "the archive")
    options = f"-Xlog:disable -XX:SharedArchiveFile={archive}"
    assert variables(environment)["SPARK_SUBMIT_OPTS"] == f"{HOT_CODE_LATER} {options}"
    short = variables(environment, DriverJvm.SHORT_LIVED)
    assert short["SPARK_SUBMIT_OPTS"] == f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {options}"
    assert variables(environment, DriverJvm.PLAIN) == {}


def test_it_appears_when_a_jvm_has_started_with_it(environment, folder, spark, spark_home):
    archive = make_archive(spark, folder, {**environment, "JAVA_TOOL_OPTIONS": "-Da", "HADOOP_CONF_DIR": "/etc"})
    dumped, started = (spark_home / "submitted").read_text().splitlines()
    assert dumped.endswith(f"-XX:ArchiveClassesAtExit={folder}/{archive.stem}.part")
    assert started == f"--version : {HOT_CODE_LATER} -Xlog:disable -XX:SharedArchiveFile={folder}/{archive.stem}.part"
    assert sorted(path.name for path in folder.iterdir()) == [archive.name, "lock"]
    assert make_archive(spark, folder, environment) == find_archive(spark, folder) == archive
    assert len((spark_home / "submitted").read_text().splitlines()) == 2


@pytest.mark.parametrize("ends", ["DUMP_ENDS_WITH", "START_ENDS_WITH"])
def test_what_can_not_be_made_is_tried_once(environment, folder, spark, spark_home, ends, caplog):
    """A JVM that has no room for it leaves half an archive, and ends with an error."""
    with pytest.raises(NoArchive, match="ended with 1"):
        make_archive(spark, folder, {**environment, ends: "1"})
    assert not list(folder.glob("*.jsa"))
    assert not list(folder.glob("*.part"))
    before = (spark_home / "submitted").read_text()
    with caplog.at_level("INFO"):
        assert variables(environment) == WITHOUT_ARCHIVE
    assert "none could be made" in caplog.text
    assert (spark_home / "submitted").read_text() == before


def test_control_without_a_start_one_with_which_no_jvm_starts_would_be_used(environment, folder, spark, monkeypatch):
    run = class_archive._run
    monkeypatch.setattr(
        class_archive, "_run", lambda command, *more: None if "--version" in command else run(command, *more)
    )
    archive = make_archive(spark, folder, {**environment, "START_ENDS_WITH": "1"})
    assert find_archive(spark, folder) == archive


def test_what_a_maker_that_was_killed_has_left_is_no_archive_and_is_removed(environment, folder, spark):
    folder.mkdir(parents=True, mode=0o700)
    half = folder / f"{spark.key()}.part"
    half.write_text("half")
    (folder / "scratch").mkdir()
    (folder / "scratch" / "batch").touch()
    with pytest.raises(NoArchive):
        find_archive(spark, folder)
    assert make_archive(spark, folder, environment).read_text() == "classes"
    assert sorted(path.name for path in folder.iterdir()) == [f"{spark.key()}.jsa", "lock"]


def test_of_two_tasks_at_the_same_time_one_makes_it(environment, folder, spark, monkeypatch):
    folder.mkdir(parents=True, mode=0o700)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a second one is started"))
    with (folder / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(NoArchive, match="another process is making it"):
            find_or_make_archive(spark, folder, environment)
        with pytest.raises(NoArchive, match="another process is making it"):
            make_archive(spark, folder, environment)


def test_another_java_or_other_jars_under_the_same_path_have_another_archive(environment, spark_home, spark):
    before = spark.key()
    (spark_home / "jars" / "spark-core.jar").write_text("newer classes")
    assert (other := SparkInstallation.locate(environment).key()) != before
    spark.java.write_text("#!/bin/sh\n# newer\n")
    assert SparkInstallation.locate(environment).key() not in (before, other)


def test_a_full_disk_a_folder_of_somebody_else_and_a_read_only_home_are_plain_starts(
    environment, folder, spark, monkeypatch, caplog
):
    caplog.set_level("INFO")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("one is made"))
    with monkeypatch.context() as full:
        full.setattr(class_archive.shutil, "disk_usage", lambda _: type("Usage", (), {"free": NEEDED_BYTES - 1}))
        assert variables(environment) == WITHOUT_ARCHIVE
    assert "bytes of free space" in caplog.messages[-1]
    folder.chmod(0o777)
    assert variables(environment) == WITHOUT_ARCHIVE
    assert "to be writable for nobody else" in caplog.messages[-1]
    with monkeypatch.context() as read_only:

        def refuse(*_: object, **__: object) -> None:
            raise OSError(30, "Read-only file system")

        read_only.setattr(Path, "mkdir", refuse)
        assert variables(environment) == WITHOUT_ARCHIVE
    assert "Read-only file system" in caplog.messages[-1]


def test_control_of_a_folder_that_others_may_write_an_archive_is_taken_unless_it_is_looked_at(
    environment, folder, spark, monkeypatch
):
    archive = make_archive(spark, folder, environment)
    folder.chmod(0o777)
    with pytest.raises(NoArchive):
        find_archive(spark, folder)
    monkeypatch.setattr(class_archive, "_check_owner", lambda folder: None)
    assert find_archive(spark, folder) == archive


def test_where_java_can_archive_nothing_or_a_machine_ends_with_its_task_none_is_made(
    environment, spark_home, monkeypatch, caplog
):
    caplog.set_level("INFO")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("one is made"))
    assert variables({**environment, "AIRFLOW_IS_K8S_EXECUTOR_POD": "True"}) == WITHOUT_ARCHIVE
    (spark_home / "conf").mkdir()
    (spark_home / "conf" / "spark-defaults.conf").touch()
    assert variables(environment) == WITHOUT_ARCHIVE
    assert "a folder that has files" in caplog.messages[-1]
    assert variables({**environment, "PATH": ""}) == WITHOUT_ARCHIVE


def test_nothing_is_done_where_a_user_says_how_jvms_start(tmp_path):
    for name in USER_OPTIONS:
        assert user_option({name: "-Xss4m"}, {}, None) == name
    option = "spark.driver.extraJavaOptions"
    assert user_option({}, {option: "-Xss4m"}, None) == option
    properties = tmp_path / "properties"
    properties.write_text(f"{option} -Xss4m\n")
    assert user_option({}, {}, str(properties)) == option
    properties.write_text("spark.app.name a\n")
    assert user_option({}, {"spark.app.name": "a"}, str(properties)) is None


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("spark-defaults.conf", "spark.driver.extraJavaOptions -Xss4m\n"),
        ("spark-env.sh", "export SPARK_SUBMIT_OPTS=-Xss4m\n"),
    ],
)
def test_nothing_is_done_where_sparks_own_files_say_how_jvms_start(environment, spark_home, file, text):
    (spark_home / "conf").mkdir()
    (spark_home / "conf" / file).write_text("# nothing of JVMs\n")
    assert variables(environment) == WITHOUT_ARCHIVE
    (spark_home / "conf" / file).write_text(text)
    assert variables(environment) == {}
    elsewhere = spark_home / "elsewhere"
    elsewhere.mkdir()
    assert variables({**environment, "SPARK_CONF_DIR": str(elsewhere)}) == WITHOUT_ARCHIVE


def test_control_without_a_look_at_those_files_a_user_is_overheard(environment, spark_home, monkeypatch):
    (spark_home / "conf").mkdir()
    (spark_home / "conf" / "spark-defaults.conf").write_text("spark.driver.extraJavaOptions -Xss4m\n")
    monkeypatch.setattr(SparkInstallation, "conf_files", lambda self: [])
    assert variables(environment) == WITHOUT_ARCHIVE


@pytest.mark.parametrize("said", [None, "-Djava.io.tmpdir=/big"])
def test_variables_and_a_folder_are_there_for_spark_submit_and_not_for_what_comes_after_it(monkeypatch, said):
    monkeypatch.delenv("SPARK_SUBMIT_OPTS", raising=False)
    if said is not None:
        monkeypatch.setenv("SPARK_SUBMIT_OPTS", said)
    with driver_environment({"SPARK_SUBMIT_OPTS": "-Da", "OTHER": "b"} if said is None else {}):
        ours, _, options = os.environ["SPARK_SUBMIT_OPTS"].partition(" ")
        folder = Path(ours.removeprefix("-Djava.io.tmpdir="))
        assert folder.is_dir()
        assert options == (said or "-Da")  # the last one counts
        (folder / "blockmgr-1").mkdir()
    assert not folder.exists()
    assert (os.environ.get("SPARK_SUBMIT_OPTS"), os.environ.get("OTHER")) == (said, None)


def test_settings_are_checked(monkeypatch):
    assert configured_driver_jvm() == (DriverJvm.QUICK, None)
    monkeypatch.setenv("AIRFLOW__RECOVERY__DRIVER_JVM", "Short-lived")
    monkeypatch.setenv("AIRFLOW__RECOVERY__CLASS_ARCHIVES", "/opt/classes")
    assert configured_driver_jvm() == (DriverJvm.SHORT_LIVED, Path("/opt/classes"))
    monkeypatch.setenv("AIRFLOW__RECOVERY__CLASS_ARCHIVES", "classes")
    with fails_with("class-archives-unfit"):
        configured_driver_jvm()
    monkeypatch.setenv("AIRFLOW__RECOVERY__DRIVER_JVM", "fast")
    with fails_with("setting-unfit", found="fast"):
        configured_driver_jvm()


def test_the_server_of_a_run_starts_as_drivers_do(monkeypatch):
    monkeypatch.setattr(spark_submission, "jvm_variables", lambda mode, folder, *_: {"is": f"{mode.value} {folder}"})
    monkeypatch.setenv("AIRFLOW_CONN_OWN", json.dumps({"conn_type": "spark", "host": "local[2]"}))
    monkeypatch.setenv("AIRFLOW__RECOVERY__CLASS_ARCHIVES", "/opt/classes")
    for name in USER_OPTIONS:
        monkeypatch.delenv(name, raising=False)

    def started(conf: dict[str, str]) -> dict[str, str]:
        operator = SparkSubmitOperator(task_id="start", conn_id="own", env_vars={"FLIGHTS": "1"})
        return connect_server_command(operator, conf, "d.g")[1]

    for mode in ("quick", "short-lived", "plain"):
        monkeypatch.setenv("AIRFLOW__RECOVERY__DRIVER_JVM", mode)
        assert started({}) == {"is": f"{mode} /opt/classes", "FLIGHTS": "1"}
    assert started({"spark.driver.extraJavaOptions": "-Xss4m"}) == {"FLIGHTS": "1"}


def test_the_file_imports_the_standard_library_alone() -> None:
    """Spark's Python runs it, wherever that is."""
    file = class_archive.__file__
    done = subprocess.run([sys.executable, "-I", "-S", file, "--help"], capture_output=True, text=True, check=False)
    assert "--folder" in done.stdout, done.stderr
