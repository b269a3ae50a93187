from __future__ import annotations

import pytest

from airflow_recovery.journal.records import Failure
from airflow_recovery.runtime.s3a_advice import s3a_advice

NOT_FOUND = "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found"


@pytest.mark.parametrize(
    ("failure", "advice"),
    [
        (Failure("Py4JJavaError", "x", chain=(f"java.lang.RuntimeException: {NOT_FOUND}", NOT_FOUND)), "hadoop-aws"),
        (Failure("SparkConnectGrpcException", f"(java.lang.RuntimeException) {NOT_FOUND}"), "Connect server"),
        (
            Failure("Py4JJavaError", "NoClassDefFoundError: software/amazon/awssdk/core/exception/SdkException"),
            "not all of it",
        ),
        (
            Failure("Py4JJavaError", "fs.s3a.auth.NoAuthWithAWSException: No AWS Credentials provided"),
            "aws_conn_id",
        ),
        (Failure("Py4JJavaError", "java.nio.file.AccessDeniedException: s3a://b/k: S3Exception: 403"), None),
        (Failure("ValueError", "no hadoop-aws"), None),
    ],
)
def test_what_spark_lacks_is_named(failure: Failure, advice: str | None) -> None:
    found = s3a_advice(failure)
    assert found is None if advice is None else advice in str(found)
