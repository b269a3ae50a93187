"""spark-submit, Java, the jars and the master, in worlds that are as they should be and in broken ones."""

from __future__ import annotations

import socket
import stat
from collections.abc import Iterable
from pathlib import Path

import pytest

from airflow_recovery.doctor.result import CheckResult, Status
from airflow_recovery.doctor.spark import (
    SPARK_SERIES,
    SparkConnection,
    check_binary,
    check_connect_client,
    check_jars,
    check_java,
    check_master,
    check_spark_version,
    check_submission,
    find_binary,
    installation_of,
    series_of,
)
from airflow_recovery.doctor.versions import requirements
from airflow_recovery.store.s3_scheme import SCHEME as S3
from scripts.sparks import NEWEST

JARS = ("spark-core_2.13-4.2.0.jar", "hadoop-client-api-3.5.0.jar")


def wrong_of(results: Iterable[CheckResult]) -> CheckResult:
    """The one that is; it says what was expected, what was found, and what to do."""
    (found,) = [result for result in results if result.status is Status.WRONG]
    assert found.expected
    assert found.found
    assert found.next_step
    return found


def statuses(results: Iterable[CheckResult]) -> list[Status]:
    return [result.status for result in results]


def program(path: Path, text: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def spark(home: Path, *jars: str, conf: str = "") -> str:
    """A Spark in a folder; the path of its spark-submit."""
    (home / "jars").mkdir(parents=True)
    (home / "conf").mkdir()
    for jar in jars:
        (home / "jars" / jar).touch()
    (home / "conf" / "spark-defaults.conf").write_text(conf)
    return program(home / "bin" / "spark-submit", "true")


def test_the_series_are_those_of_the_matrix_and_the_package_installs_one_of_them() -> None:
    assert tuple(NEWEST) == SPARK_SERIES
    specifier, extra = requirements()["pyspark"]
    assert (series_of(specifier.removeprefix("==")) in SPARK_SERIES, extra) == (True, "spark")


def test_spark_submit_of_the_path(tmp_path: Path) -> None:
    path = spark(tmp_path, *JARS)
    binary = find_binary("spark-submit", {"PATH": f"{tmp_path}/bin"})
    assert binary == path
    assert statuses(check_binary("spark-submit", binary)) == [Status.OK]
    # Beside this Python, as a task finds it too.
    assert find_binary("spark-submit", {"PATH": "/nowhere"}) not in (None, path)


def test_no_spark_submit() -> None:
    assert "airflow-recovery[spark]" in wrong_of(check_binary("spark3-submit", None)).next_step


def test_the_version_of_the_spark_that_is_submitted_to(tmp_path: Path) -> None:
    binary = spark(tmp_path / "4.2", *JARS)
    installation = installation_of(binary, {"PATH": "/usr/bin:/bin"})
    assert installation is not None
    assert (installation.home, installation.spark, installation.hadoop) == (tmp_path / "4.2", "4.2.0", "3.5.0")
    assert statuses(check_spark_version(installation, binary)) == [Status.OK]
    for core, status in (
        ("2.12-3.5.1-amzn-0", Status.OK),
        ("2.13-4.3.0", Status.OK),
        ("2.13-4.10.0", Status.NOT_CHECKED),
    ):
        other = spark(tmp_path / core, f"spark-core_{core}.jar")
        assert statuses(check_spark_version(installation_of(other, {"PATH": "/usr/bin:/bin"}), other)) == [status]
    other = spark(tmp_path / "3.4", "spark-core_2.12-3.4.4.jar", "hadoop-client-api-3.3.4.jar")
    old = installation_of(other, {"PATH": "/usr/bin:/bin"})
    assert "3.4.4" in wrong_of(check_spark_version(old, other)).found
    # SPARK_HOME wins, as it does in spark-submit.
    elsewhere = installation_of(binary, {"PATH": "/usr/bin:/bin", "SPARK_HOME": str(tmp_path / "3.4")})
    assert "SPARK_HOME" in wrong_of(check_spark_version(elsewhere, binary)).next_step
    assert (
        "SPARK_HOME" in wrong_of(check_spark_version(installation_of(binary, {"SPARK_HOME": "/x"}), binary)).next_step
    )


def test_the_spark_of_the_wheel_is_found_by_its_own_script() -> None:
    binary = find_binary("spark-submit", {"PATH": "/nowhere"})
    assert binary is not None
    installation = installation_of(binary, {"PATH": "/usr/bin:/bin"})
    assert installation is not None
    assert installation.home.name == "pyspark"


@pytest.mark.parametrize("version", ["17.0.9", "21", "25.0.1"])
def test_java_of_the_path(tmp_path: Path, version: str) -> None:
    program(tmp_path / "java", f"echo 'openjdk version \"{version}\" 2024-01-01' >&2")
    (found,) = check_java({"PATH": f"{tmp_path}:/usr/bin:/bin"})
    assert (found.status, version in found.found) == (Status.OK, True)


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("echo 'openjdk version \"11.0.2\"' >&2", "11.0.2"),
        ("echo 'java version \"1.8.0_321\"' >&2", "1.8.0_321"),
        ("exit 127", "does not tell its version"),
    ],
)
def test_a_java_that_spark_can_not_use(tmp_path: Path, does: str, told: str) -> None:
    program(tmp_path / "java", does)
    wrong = wrong_of(check_java({"PATH": f"{tmp_path}:/usr/bin:/bin"}))
    assert told in wrong.found
    assert "JAVA_HOME" in wrong.next_step


def test_the_java_of_an_older_spark_may_be_older(tmp_path: Path) -> None:
    program(tmp_path / "java", "echo 'openjdk version \"11.0.2\"' >&2")
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert statuses(check_java(environment, "3.5.9")) == [Status.OK]
    assert "11.0.2" in wrong_of(check_java(environment, "4.0.5")).found


def test_java_home_comes_first_as_in_spark_submit(tmp_path: Path) -> None:
    program(tmp_path / "good" / "java", "echo 'openjdk version \"17\"' >&2")
    program(tmp_path / "home" / "bin" / "java", "echo 'openjdk version \"11\"' >&2")
    environment = {"PATH": f"{tmp_path}/good:/usr/bin:/bin"}
    assert statuses(check_java(environment)) == [Status.OK]
    assert "by JAVA_HOME" in wrong_of(check_java({**environment, "JAVA_HOME": str(tmp_path / "home")})).found
    assert "No such file" in wrong_of(check_java({**environment, "JAVA_HOME": str(tmp_path / "gone")})).found
    assert wrong_of(check_java({"PATH": "/nowhere"})).found == "none"


def jars_of(home: Path, *jars: str, conf: str = "", **variables: str) -> list[CheckResult]:
    installation = installation_of(spark(home, *JARS, *jars, conf=conf), {"PATH": "/usr/bin:/bin", **variables})
    assert installation is not None
    return list(check_jars(installation, S3))


def s3a(folder: Path) -> Path:
    folder.mkdir()
    for name in ("hadoop-aws-3.5.0.jar", "s3-2.35.4.jar"):
        (folder / name).touch()
    return folder


def class_paths(folder: Path, sides: tuple[str, ...] = ("driver", "executor")) -> str:
    return "# jars\n" + "".join(f"spark.{side}.extraClassPath   {folder}/*\n" for side in sides)


def test_hadoop_aws_in_the_jars_of_spark_or_on_both_class_paths(tmp_path: Path) -> None:
    folder = s3a(tmp_path / "s3a")
    assert statuses(jars_of(tmp_path / "own", "hadoop-aws-3.5.0.jar", "bundle-2.35.4.jar")) == [Status.OK]
    assert statuses(jars_of(tmp_path / "paths", conf=class_paths(folder))) == [Status.OK]
    listed = f"spark.jars={folder}/hadoop-aws-3.5.0.jar,{folder}/s3-2.35.4.jar"
    assert statuses(jars_of(tmp_path / "jars", conf=listed)) == [Status.OK]
    packages = "spark.jars.packages org.apache.hadoop:hadoop-aws:3.5.0"
    assert statuses(jars_of(tmp_path / "packages", conf=packages)) == [Status.OK]
    by_variable = {"SPARK_DIST_CLASSPATH": f"/etc/hadoop:{folder}/*"}
    assert statuses(jars_of(tmp_path / "variable", **by_variable)) == [Status.OK]


def test_hadoop_aws_that_is_missing_or_of_another_hadoop(tmp_path: Path) -> None:
    none = wrong_of(jars_of(tmp_path / "none"))
    assert (none.found, "docs/s3.md" in none.next_step) == ("none", True)
    assert wrong_of(jars_of(tmp_path / "old", "hadoop-aws-3.3.4.jar")).found == "3.3.4"
    folder = s3a(tmp_path / "s3a")
    driver_alone = wrong_of(jars_of(tmp_path / "driver", conf=class_paths(folder, ("driver",))))
    assert "executor's class path" in driver_alone.expected
    assert "no S3 client" in wrong_of(jars_of(tmp_path / "half", "hadoop-aws-3.5.0.jar")).found


def test_a_hadoop_before_3_4_has_the_first_sdk(tmp_path: Path) -> None:
    jars = ("spark-core_2.12-3.5.9.jar", "hadoop-client-api-3.3.4.jar", "hadoop-aws-3.3.4.jar")
    results: list[CheckResult] = []
    for sdk in ("aws-java-sdk-bundle-1.12.262.jar", "bundle-2.35.4.jar"):
        installation = installation_of(spark(tmp_path / sdk, *jars, sdk), {"PATH": "/usr/bin:/bin"})
        assert installation is not None
        results += check_jars(installation, S3)
    assert statuses(results) == [Status.OK, Status.WRONG]
    assert "the AWS SDK 1 on the driver's" in wrong_of(results).expected


@pytest.mark.parametrize(
    ("uri", "jar", "package"),
    [
        (
            "gs://b/results",
            "gcs-connector-hadoop3-2.2.26-shaded.jar",
            "com.google.cloud.bigdataoss:gcs-connector:3.0.4",
        ),
        (
            "abfss://box@acc.dfs.core.windows.net/results",
            "hadoop-azure-3.5.0.jar",
            "org.apache.hadoop:hadoop-azure:3.5.0",
        ),
    ],
)
def test_the_connector_of_a_clouds_results_is_looked_for(tmp_path: Path, uri: str, jar: str, package: str) -> None:
    def checked(
        home: str, *jars: str, conf: str = "", stores: tuple[str, str] = ("file:///j", uri)
    ) -> CheckResult | None:
        spark(tmp_path / home, *JARS, *jars, conf=conf)
        found = check_submission("spark-submit", {"PATH": f"{tmp_path / home}/bin:/usr/bin:/bin"}, stores)
        return next((result for result in found if result.check.startswith("Spark's jars for")), None)

    none = checked("none")
    assert none is not None
    assert (none.status, none.found, "docs/stores.md" in str(none.next_step)) == (Status.WRONG, "none", True)
    for there in (checked("own", jar), checked("packages", conf=f"spark.jars.packages {package}")):
        assert there is not None
        assert there.status is Status.OK
    # Spark never touches the journal.
    assert checked("journal", stores=(uri, "file:///r")) is None


def test_a_client_of_spark_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    assert statuses(check_connect_client()) == [Status.OK]
    missing = wrong_of(check_connect_client(["json", "no_such_module", "no_such.module"]))
    assert missing.found == "no no_such_module, no_such.module"


@pytest.mark.parametrize("scheme", ["spark", "sc"])
def test_a_master_that_listens_and_one_that_does_not(scheme: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        there = SparkConnection("c", f"{scheme}://127.0.0.1:{port}")
        assert statuses(check_master(there, {})) == [Status.OK]
        standby = SparkConnection("c", f"{scheme}://127.0.0.1:1,127.0.0.1:{port}")
        assert statuses(check_master(standby, {})) == [Status.OK]
    gone = wrong_of(check_master(there, {}))
    assert f"127.0.0.1:{port}" in gone.found
    assert "without a port" in wrong_of(check_master(SparkConnection("c", f"{scheme}://host"), {})).found


def test_a_standalone_cluster_takes_no_python_application_in_cluster_mode() -> None:
    cluster = SparkConnection("c", "spark://127.0.0.1:7077", is_cluster=True)
    assert "deploy-mode" in wrong_of(check_master(cluster, {})).next_step


def test_other_masters() -> None:
    assert statuses(check_master(SparkConnection("c", "local[2]"), {})) == [Status.OK]
    assert "HADOOP_CONF_DIR" in wrong_of(check_master(SparkConnection("c", "yarn"), {})).expected
    (asked,) = check_master(SparkConnection("c", "yarn"), {"HADOOP_CONF_DIR": "/etc/hadoop"})
    assert (asked.status, "--spark" in asked.next_step) == (Status.NOT_CHECKED, True)
