"""The class of a failure, by what Spark, Hadoop and the S3 SDK say."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pyspark
import pytest

from airflow_recovery import errors
from airflow_recovery.driver.failure import describe
from airflow_recovery.driver.failure_class import (
    ERRORS,
    FailureClass,
    MemoryOf,
    classify,
    is_malformed,
    label_of,
    labelled,
    memory_of,
    read_advice,
)
from airflow_recovery.errors import Failure

JOB_ABORTED = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 1.0 failed 4 times"
HEAP = "java.lang.OutOfMemoryError: Java heap space"
YARN_FAILED = "Application application_1_0002 failed 1 times due to AM Container for appattempt_1_0002 exited with "
BEYOND = "Container [pid=7] is running 9B beyond the 'PHYSICAL' memory limit."


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (Failure("AnalysisException", "gone", "PATH_NOT_FOUND", "42K03"), FailureClass.PARTITION_MISSING),
        (Failure("Py4JJavaError", "x", chain=("java.io.FileNotFoundException: No such file",)),
         FailureClass.PARTITION_MISSING),
        (Failure("SparkException", "x", "FAILED_READ_FILE.NO_HINT", chain=("a: b is not a Parquet file",)),
         FailureClass.INPUT_UNREADABLE),
        (Failure("Py4JJavaError", "x", chain=("S3Exception: InvalidObjectState, Status Code: 403",)),
         FailureClass.DENIED),
        (Failure("Py4JJavaError", "x", chain=("S3Exception: KMS.DisabledException, Status Code: 400",)),
         FailureClass.DENIED),
        (Failure("Py4JJavaError", "x", chain=("org.apache.hadoop.fs.s3a.RemoteFileChangedException: etag",)),
         FailureClass.INPUT_ALTERED),
        (Failure("Py4JJavaError", "x", chain=("java.nio.file.AccessDeniedException: s3a://lake/x: 403",)),
         FailureClass.DENIED),
        (Failure("StoreAccessDenied", "403"), FailureClass.DENIED),
        (Failure("ChannelInconsistent", "AccessDenied", vertex="board"), FailureClass.CHANNEL),
        (Failure("LossBudgetExceeded", "x", vertex="board"), FailureClass.CHANNEL),
        (Failure("Py4JJavaError", "x", chain=("S3Exception: ExpiredToken, Status Code: 403",)),
         FailureClass.TRANSFER_BROKEN),
        (Failure("Py4JJavaError", "x", chain=("java.net.SocketTimeoutException: Read timed out",)),
         FailureClass.TIMED_OUT),
        (Failure("StoreTimeout", "no answer"), FailureClass.TIMED_OUT),
        (Failure("Py4JJavaError", "x", chain=("java.net.SocketException: Connection reset",)),
         FailureClass.TRANSFER_BROKEN),
        (Failure("Py4JJavaError", "x", chain=("S3Exception: SlowDown (Status Code: 503)",)),
         FailureClass.TRANSFER_BROKEN),
        (Failure("StoreUnavailable", "503"), FailureClass.TRANSFER_BROKEN),
        (Failure("Py4JJavaError", HEAP), FailureClass.OUT_OF_MEMORY),
        (Failure("MemoryError", ""), FailureClass.OUT_OF_MEMORY),
        (Failure("SparkException", "ExecutorLostFailure (executor 2 exited) Container killed: exit code 137"),
         FailureClass.OUT_OF_MEMORY),
        (Failure("SparkException", "Container killed by YARN for exceeding physical memory limits"),
         FailureClass.OUT_OF_MEMORY),
        (Failure("RuntimeError", f"{YARN_FAILED} exitCode: -104. {BEYOND}"), FailureClass.OUT_OF_MEMORY),
        (Failure("RuntimeError", f"{YARN_FAILED} exitCode: 52"), FailureClass.OUT_OF_MEMORY),
        (Failure("RuntimeError", f"{YARN_FAILED} exitCode: 137"), FailureClass.DRIVER_LOST),
        (Failure("RuntimeError", f"{YARN_FAILED} exitCode: -100. Container released on a *lost* node"),
         FailureClass.DRIVER_LOST),
        (Failure("RuntimeError", "ended with state: KILLED Application application_1_0002 was killed by user x at y"),
         FailureClass.DRIVER_LOST),
        (Failure("RuntimeError", f"{YARN_FAILED} exitCode: 1"), FailureClass.UNKNOWN),
        (Failure("SparkException", "ExecutorLostFailure (executor 2 exited) worker lost"), FailureClass.EXECUTOR_LOST),
        (Failure("SparkException", "FetchFailed(BlockManagerId(1)), Connection reset"), FailureClass.EXECUTOR_LOST),
        (Failure("AirflowException", "Cannot execute: spark-submit. Error code is: 137."), FailureClass.DRIVER_LOST),
        (Failure("Py4JNetworkError", "Answer from Java side is empty"), FailureClass.DRIVER_LOST),
        (Failure("DriverLost", "said nothing"), FailureClass.DRIVER_LOST),
        (Failure("Py4JJavaError", "x", chain=('NullPointerException: Cannot invoke "org.apache.spark.SparkEnv.rpcEnv()"'
                 ' because the return value of "org.apache.spark.SparkEnv$.get()" is null',), vertex="v"),
         FailureClass.DRIVER_LOST),
        (Failure("Py4JJavaError", "x", chain=("IllegalStateException: Cannot call methods on a stopped SparkContext.",),
                 vertex="v"), FailureClass.DRIVER_LOST),
        (Failure("SparkConnectGrpcException", "x", "INVALID_HANDLE.SESSION_CLOSED", "HY000"),
         FailureClass.SESSION_LOST),
        (Failure("SparkConnectGrpcException", "<_MultiThreadedRendezvous: StatusCode.UNAVAILABLE>"),
         FailureClass.SESSION_LOST),
        (Failure("AnalysisException", "no t", "TABLE_OR_VIEW_NOT_FOUND", "42P01"), FailureClass.USER_CODE),
        (Failure("TypeError", "int and str"), FailureClass.USER_CODE),
        (Failure("RuntimeError", "the weather", vertex="v"), FailureClass.USER_CODE),
        (Failure("PythonException", "PermissionError: Permission denied: /x", vertex="v"), FailureClass.USER_CODE),
        (Failure("AirflowException", "Cannot execute: spark-submit. Error code is: 1."), FailureClass.UNKNOWN),
        (Failure("SparkException", "something new", "SOME_CONDITION", "XX000", vertex="v"), FailureClass.UNKNOWN),
    ],
)  # fmt: skip
def test_classes(failure: Failure, expected: FailureClass) -> None:
    assert classify(failure) is expected
    assert label_of(labelled(failure), "class") == expected.value


def test_every_class_has_its_error_and_only_the_codes_own_mistakes_are_not_recoverable() -> None:
    assert set(ERRORS) == set(FailureClass)
    assert all(issubclass(error, errors.RegionFailed) for error in ERRORS.values())
    assert label_of(labelled(Failure("TypeError", "x")), "recoverable") == "no"
    assert label_of(labelled(Failure("RuntimeError", "x", vertex="v")), "recoverable") == "yes"


def test_fault_27_denied_is_not_missing_though_both_are_told_by_the_same_reader() -> None:
    denied = labelled(Failure("Py4JJavaError", "x", chain=("java.nio.file.AccessDeniedException: s3a://a: 403",)))
    assert ERRORS[classify(denied)] is errors.InputDenied
    assert not issubclass(errors.InputDenied, errors.PartitionMissing)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (HEAP, MemoryOf.DRIVER),
        (
            f"{JOB_ABORTED}, most recent failure: Lost task 3.3 in stage 1.0 (host executor 1): {HEAP}",
            MemoryOf.EXECUTOR,
        ),
        ("ExecutorLostFailure (executor 1 exited) exit code 52", MemoryOf.EXECUTOR),
        ("Container killed by YARN for exceeding physical memory limits", MemoryOf.EXECUTOR),
        (f"{BEYOND} Container killed on request. Exit code is 143", MemoryOf.DRIVER),
        ("ExecutorLostFailure (executor 1 exited) node was drained", None),
        ("Error code is: 137.", None),
    ],
)
def test_fault_74_whose_memory_it_was(message: str, expected: MemoryOf | None) -> None:
    assert memory_of(Failure("Py4JJavaError", message)) is expected


def test_labels_of_others_stay() -> None:
    failure = Failure("TypeError", "x", labels=(("team", "routes"), ("class", "an old one")))
    assert dict(labelled(failure).labels) == {"team": "routes", "class": "user code", "recoverable": "no"}


def test_our_own_errors_are_classified_by_their_type() -> None:
    assert classify(describe(errors.StoreTimeout("t"))) is FailureClass.TIMED_OUT
    assert classify(describe(errors.StoreAccessDenied("d"))) is FailureClass.DENIED


def test_fault_335_every_condition_by_which_spark_says_that_a_file_can_not_be_read() -> None:
    """As the installed Spark lists them: a new one needs an answer."""
    [jar] = Path(pyspark.__file__).parent.glob("jars/spark-common-utils_*.jar")
    with zipfile.ZipFile(jar) as archive:
        [listed] = [name for name in archive.namelist() if name.endswith("error-conditions.json")]
        conditions = json.loads(archive.read(listed))
    found = {}
    for name in conditions["FAILED_READ_FILE"]["subClass"]:
        failure = Failure("SparkException", "while reading file s3a://b/f.", f"FAILED_READ_FILE.{name}", "KD001")
        found[name] = classify(failure), is_malformed(failure)
    assert found == {
        "CANNOT_READ_FILE_FOOTER": (FailureClass.INPUT_UNREADABLE, True),
        "FILE_NOT_EXIST": (FailureClass.PARTITION_MISSING, False),
        "NO_HINT": (FailureClass.INPUT_UNREADABLE, False),
        "PARQUET_COLUMN_DATA_TYPE_MISMATCH": (FailureClass.INPUT_UNREADABLE, True),
        "UNSUPPORTED_FILE_SYSTEM": (FailureClass.INPUT_UNREADABLE, True),
    }


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("InvalidObjectState: The operation is not valid for the object's storage class (Status Code: 403)", "restore"),
        ("KMS.DisabledException: key is disabled (Status Code: 400)", "Enable the key"),
        ("AccessDenied: not authorized to perform: kms:Decrypt (Status Code: 403)", "kms:Decrypt and"),
        ("RequestTimeTooSkewed: The difference between ... (Status Code: 403)", "clock"),
        ("AccessDenied: no (Status Code: 403)", None),
    ],
)
def test_fault_334_what_is_to_be_mended_before_a_store_lets_an_object_be_read(said: str, advice: str | None) -> None:
    failure = Failure("Py4JJavaError", "x", chain=(f"S3Exception: {said}",))
    assert classify(failure) is FailureClass.DENIED
    told = read_advice(failure)
    assert told is None if advice is None else advice in (told or "")
