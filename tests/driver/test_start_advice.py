"""What could not start is told by its words, and fails at once; what may be cured by itself is not taken for it."""

from __future__ import annotations

import pytest

from airflow_recovery.driver.failure_class import ERRORS, FailureClass, classify, labelled
from airflow_recovery.driver.start_advice import (
    MAX_LINES,
    NOT_SET_UP,
    SAYS,
    keep_output,
    relevant,
    start_advice,
    start_failure,
)
from airflow_recovery.errors import ConfigurationError, Failure, NotSetUp, RegionFailed

NOT_FOUND = "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"
MISMATCH = (
    "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark cannot "
    "run with different minor versions."
)
DRIVER = "java.lang.ClassNotFoundException: org.postgresql.Driver"

FAILURES = [
    (Failure("Py4JJavaError", "x", chain=(f"java.lang.RuntimeException: {NOT_FOUND}", NOT_FOUND)), "hadoop-aws"),
    (Failure("SparkConnectGrpcException", f"(java.lang.RuntimeException) {NOT_FOUND}"), "Connect server"),
    (
        Failure("Py4JJavaError", "NoClassDefFoundError: software/amazon/awssdk/core/exception/SdkException"),
        "not all of it",
    ),
    (Failure("Py4JJavaError", 'No FileSystem for scheme "gs"'), "docs/stores.md"),
    (
        Failure("Py4JJavaError", "ClassNotFoundException: Class org.apache.hadoop.fs.azurebfs.AzureBlobFileSystem"),
        "docs/stores.md",
    ),
    (Failure("Py4JJavaError", "fs.s3a.auth.NoAuthWithAWSException: No AWS Credentials provided"), "aws_conn_id"),
    (Failure("PythonException", f"Traceback ...\nPySparkRuntimeError: {MISMATCH}\n"), "PYSPARK_PYTHON"),
    (Failure("Py4JJavaError", "An error occurred", chain=(DRIVER,)), "jars="),
    (Failure("SparkException", "java.sql.SQLException: No suitable driver"), "jars="),
    (Failure("PythonException", "Traceback ...\nModuleNotFoundError: No module named 'pandas'\n"), "packages="),
    (
        Failure("Py4JError", "py4j.protocol.Py4JError: org.apache.spark.api.python.X does not exist in the JVM"),
        "one version",
    ),
    (
        Failure(
            "SparkException",
            "java.io.InvalidClassException: org.apache.spark.rdd.RDD; local class incompatible: stream classdesc",
        ),
        "one version",
    ),
    (Failure("Py4JJavaError", "java.lang.UnsupportedClassVersionError: X has been compiled by"), "Java 17"),
]
OTHERS = [
    Failure("Py4JJavaError", "java.nio.file.AccessDeniedException: s3a://b/k: S3Exception: 403"),
    Failure("ValueError", "no hadoop-aws"),
    Failure("SparkException", "java.lang.NoClassDefFoundError: Could not initialize class org.x.Pool"),
    Failure("SparkException", "ExecutorLostFailure (executor 1 exited caused by one of the running tasks)"),
    Failure("SparkException", "java.net.ConnectException: Connection refused"),
    Failure("PythonException", "ModuleNotFoundError: handled\nTimeoutError: the metastore gave no answer\n"),
]


@pytest.mark.parametrize(("failure", "advice"), FAILURES, ids=lambda each: getattr(each, "type", each))
def test_what_a_driver_lacks_is_named_and_not_retried(failure: Failure, advice: str) -> None:
    assert advice in str(start_advice(failure))
    assert classify(failure) is FailureClass.NOT_SET_UP
    assert ERRORS[classify(failure)] is NotSetUp
    assert dict(labelled(failure).labels)["recoverable"] == "no"


def test_what_only_a_cause_says_stands_before_the_advice() -> None:
    no_right = (
        "io.fabric8.kubernetes.client.KubernetesClientException: Failure executing: GET at: https://k/pods/x. Message: "
        'pods "x" is forbidden: User "system:serviceaccount:lake:spark-driver" cannot get resource "pods"'
    )
    outermost = "org.apache.spark.SparkException: External scheduler cannot be instantiated"
    deep = Failure("Py4JJavaError", outermost, chain=(outermost, no_right, NOT_FOUND))
    told = str(start_advice(deep))
    assert told.startswith(f"{no_right}. Kubernetes refuses it: docs/kubernetes.md")
    said = Failure("Py4JJavaError", no_right, chain=(no_right,))
    assert str(start_advice(said)).startswith("Kubernetes refuses it")


@pytest.mark.parametrize("failure", OTHERS, ids=lambda each: each.message[:30])
def test_what_may_pass_by_itself_is_retried(failure: Failure) -> None:
    assert start_advice(failure) is None
    assert dict(labelled(failure).labels)["recoverable"] == "yes"


LOG = [f"24/01/02 00:00:{n:02d} INFO SparkContext: {NOT_FOUND}" for n in range(60)]
STACK = [f"\tat org.apache.spark.deploy.SparkSubmit$.main(SparkSubmit.scala:{n})" for n in range(80)]


def ended(*lines: str, code: int = 1) -> RegionFailed:
    error = RegionFailed(f"Cannot execute: spark-submit main.py. Error code is: {code}.")
    keep_output(error, relevant(lines))
    return error


OUTPUTS = {
    "no such Python": (
        [
            *LOG,
            'Exception in thread "main" java.io.IOException: Cannot run program "python9": error=2, No such file or so',
            *STACK,
            "Caused by: java.io.IOException: error=2, No such file or directory",
        ],
        'Cannot run program "python9"',
    ),
    "no such Python for spark-submit": (
        [
            "/x/find-spark-home: line 40: /x/python: No such file or directory",
            "/x/spark-submit: line 27: /bin/spark-class: No such file or directory",
        ],
        "/x/python: No such file or directory. Neither",
    ),
    "no such main class": (["Error: Failed to load class com.example.Main."], "Failed to load class com.example.Main."),
    "no such module": (
        [
            "Traceback (most recent call last):",
            '  File "/app/clean.py", line 1',
            "ModuleNotFoundError: No module named 'geo'",
        ],
        "ModuleNotFoundError: No module named 'geo'. Install it",
    ),
    "a jar under a stack": ([f"Caused by: {DRIVER}", *STACK, *LOG], DRIVER),
    "no such file": (["python3: can't open file '/x/app.py': [Errno 2] No such file or directory"], "/x/app.py"),
    "no Java": (["JAVA_HOME is not set"], "Java 17"),
    "what the driver says": (
        [f"{SAYS}expected the archive to hold x, found none.", *LOG],
        "expected the archive to hold x",
    ),
}


@pytest.mark.parametrize(("lines", "told"), OUTPUTS.values(), ids=OUTPUTS)
def test_the_end_of_an_output_tells_why_it_could_not_start(lines: list[str], told: str) -> None:
    failure = start_failure(ended(*lines))
    assert failure is not None
    assert failure.type == NOT_SET_UP
    assert told in failure.message
    assert classify(failure) is FailureClass.NOT_SET_UP


def test_a_driver_whose_output_is_elsewhere_tells_it_by_its_exit_code() -> None:
    failure = start_failure(RegionFailed("Cannot execute: spark-submit. Error code is: 78."))
    assert failure is not None
    assert failure.type == NOT_SET_UP


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            ConfigurationError("expected 'jobs' to be a package in files on this machine"),
            "expected 'jobs' to be a package",
        ),
        (ModuleNotFoundError("No module named 'grpc'"), "No module named 'grpc'. Install it"),
    ],
)
def test_what_the_task_itself_lacks_is_not_retried_either(error: Exception, told: str) -> None:
    failure = start_failure(error)
    assert failure is not None
    assert told in failure.message
    assert classify(failure) is FailureClass.NOT_SET_UP


def test_a_worker_without_spark_submit() -> None:
    failure = start_failure(FileNotFoundError(2, "No such file or directory", "spark-submit"))
    assert failure is not None
    assert "airflow-recovery[spark]" in failure.message


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ended(f"Caused by: {DRIVER}", code=137), id="killed"),
        pytest.param(ended(f"Caused by: {DRIVER}", code=52), id="out of memory"),
        pytest.param(ended(*LOG, "java.net.ConnectException: Connection refused"), id="only logged"),
        pytest.param(
            ended(
                "ModuleNotFoundError: No module named 'fast'",
                "Traceback (most recent call last):",
                "OSError: [Errno 5]",
            ),
            id="handled",
        ),
        pytest.param(ended(f"Caused by: {DRIVER}", *["row"] * MAX_LINES), id="long ago"),
        pytest.param(FileNotFoundError(2, "No such file or directory", "/data/in.csv"), id="a file"),
        pytest.param(RuntimeError("YARN application ended with state: FAILED"), id="a cluster's word"),
    ],
)
def test_what_ended_in_another_way_is_not_taken_for_it(error: Exception) -> None:
    assert start_failure(error) is None
