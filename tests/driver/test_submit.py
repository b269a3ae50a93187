from __future__ import annotations

import sys
from pathlib import Path

from airflow_recovery.driver.paths import decoded, spark_glob, spark_path
from airflow_recovery.driver.submit import APPLICATION, store_conf, submit_environment
from airflow_recovery.locations import comparable
from airflow_recovery.store.scheme import StoreSpec

A = "spark.hadoop.fs.s3a."


def test_environment_finds_the_wheels_spark_submit_and_this_python(tmp_path: Path) -> None:
    found = submit_environment({"PATH": str(tmp_path), "X": "1"})
    assert found["PYSPARK_PYTHON"] == found["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert found["PATH"] == f"{tmp_path}:{Path(sys.executable).parent}"
    assert found["X"] == "1"
    assert Path(APPLICATION).name == "main.py"


def test_a_driver_elsewhere_is_given_no_python_over_its_clusters_own(tmp_path: Path) -> None:
    found = submit_environment({"PATH": str(tmp_path)}, driver_is_here=False)
    assert set(found) == {"PATH", "PYSPARK_PYTHON"}


def test_environment_keeps_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "spark-submit").write_text("#!/bin/sh\n")
    (tmp_path / "spark-submit").chmod(0o755)
    base = {"PATH": str(tmp_path), "PYSPARK_PYTHON": "/opt/python", "PYSPARK_DRIVER_PYTHON": "/opt/driver"}
    assert submit_environment(base) == base


def test_s3a_settings_hold_no_credentials() -> None:
    environment = {"AWS_ACCESS_KEY_ID": "AKIASECRET", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_SESSION_TOKEN": "tok"}
    found = store_conf(StoreSpec("s3://lake/x", "http://127.0.0.1:9000", "eu-central-1"), environment)

    assert found.pop(A + "retry.throttle.limit") == "8"
    provider = found.pop(A + "aws.credentials.provider")
    assert provider.startswith("com.amazonaws.auth.EnvironmentVariableCredentialsProvider")
    assert found == {
        A + "endpoint": "http://127.0.0.1:9000",
        A + "endpoint.region": "eu-central-1",
        A + "path.style.access": "true",
        A + "connection.ssl.enabled": "false",
    }
    assert not any(secret in str(found) + provider for secret in environment.values())


def test_s3a_settings_follow_the_environment() -> None:
    environment = {"AWS_ENDPOINT_URL": "https://minio", "AWS_DEFAULT_REGION": "us-east-1"}
    found = store_conf(StoreSpec("s3://lake"), environment)
    assert found[A + "endpoint"] == "https://minio"
    assert found[A + "connection.ssl.enabled"] == "true"
    assert found[A + "endpoint.region"] == "us-east-1"
    assert list(store_conf(StoreSpec("s3://lake"), {})) == [
        A + "retry.throttle.limit"
    ]  # Hadoop's own configuration decides
    assert store_conf(StoreSpec("file:///data"), environment) == {}


def test_s3a_encrypts_as_the_connection_says() -> None:
    found = store_conf(StoreSpec("s3://lake", encryption="aws:kms", kms_key_id="arn:aws:kms:eu-west-1:1:key/k"), {})
    assert found[A + "encryption.algorithm"] == "SSE-KMS"
    assert found[A + "encryption.key"] == "arn:aws:kms:eu-west-1:1:key/k"


def test_names_at_the_border_to_spark() -> None:
    assert spark_path("s3://lake/a b") == "s3a://lake/a b"
    assert spark_path("file:///a") == "file:///a"
    assert spark_glob("file:///a{b}[c]*?\\") == "file:///a\\{b\\}\\[c\\]\\*\\?\\\\"
    assert decoded("file:///a%20b%2520") == comparable("file:///a b%20") == "file:/a b%20"
    assert decoded("s3a://lake/%C3%BC") == comparable("s3://lake/ü")
    assert decoded("file:/a") == comparable("/a")
