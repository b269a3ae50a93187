from __future__ import annotations

import json

import pytest

from airflow_recovery.driver.failure import (
    describe,
    is_missing_input,
    is_user_error,
)
from airflow_recovery.errors import (
    ChannelAltered,
    ChannelInconsistent,
    Failure,
    JobDefinitionError,
    LossBudgetExceeded,
    StoreUnsuitable,
)
from airflow_recovery.model.codec import Unlike, from_json, to_json


@pytest.mark.parametrize(
    ("error", "is_user"),
    [
        (SyntaxError("x"), True),
        (IndentationError("x"), True),
        (NameError("x"), True),
        (ModuleNotFoundError("x"), True),
        (TypeError("x"), True),
        (AttributeError("x"), True),
        (JobDefinitionError("x"), True),
        (LossBudgetExceeded("x"), True),
        (StoreUnsuitable("x"), True),
        (ChannelInconsistent("x"), False),
        (ChannelAltered("x"), False),
        (RuntimeError("x"), False),
        (ValueError("x"), False),
        (KeyError("x"), False),
        (ConnectionError("x"), False),
        (SystemExit(0), False),
        (FileNotFoundError("x"), False),
    ],
)
def test_fault_78_python_errors(error: BaseException, is_user: bool) -> None:
    assert is_user_error(describe(error)) is is_user


@pytest.mark.parametrize(
    ("condition", "state", "is_user", "is_missing"),
    [
        ("PARSE_SYNTAX_ERROR", "42601", True, False),
        ("DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES", "42K09", True, False),
        ("PATH_NOT_FOUND", "42K03", False, True),
        ("FAILED_READ_FILE.FILE_NOT_EXIST", "KD001", False, True),
        ("FAILED_READ_FILE.NO_HINT", "KD001", False, False),
        ("DIVIDE_BY_ZERO", "22012", False, False),
        ("INVALID_HANDLE.SESSION_CLOSED", "HY000", False, False),
        ("OPERATION_CANCELED", "HY008", False, False),
        (None, None, False, False),
    ],
)
def test_fault_78_spark_errors(condition: str | None, state: str | None, is_user: bool, is_missing: bool) -> None:
    failure = Failure("SparkException", "x", condition, state)
    assert is_user_error(failure) is is_user
    assert is_missing_input(failure) is is_missing


def test_missing_file_deep_in_the_chain_is_seen() -> None:
    chain = ("org.apache.spark.SparkException: Job aborted", "java.io.FileNotFoundException: No such file s3a://x")
    assert is_missing_input(Failure("Py4JJavaError", "An error occurred", chain=chain))
    told = "org.apache.spark.SparkException: [FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error"
    assert is_missing_input(Failure("Py4JJavaError", "An error occurred", chain=(told,)))
    denied = "java.nio.file.AccessDeniedException: s3a://lake/x: 403"
    assert not is_missing_input(Failure("Py4JJavaError", "An error occurred", chain=(denied,)))


def test_round_trip() -> None:
    failure = Failure("T", "several\nlines", "C", "42000", ("a: b", "c: d"), "v")
    assert from_json(Failure, json.loads(json.dumps(to_json(failure)))) == failure
    for text in ("[]", "{}", '{"type": "T", "chain": [], "more": 1}'):
        with pytest.raises(Unlike):
            from_json(Failure, json.loads(text))


def test_error_whose_jvm_is_gone_is_described_all_the_same() -> None:
    class Captured(Exception):
        def getCondition(self) -> str:
            raise ConnectionError("the gateway is gone")

    assert describe(Captured("x")) == Failure("Captured", "x")
