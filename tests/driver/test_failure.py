from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_recovery.driver.failure import (
    describe,
    is_missing_input,
    is_user_error,
    raised_in,
)
from airflow_recovery.driver.failure_class import labelled
from airflow_recovery.errors import (
    ChannelAltered,
    ChannelInconsistent,
    Failure,
    JobDefinitionError,
    LossBudgetExceeded,
    StoreUnsuitable,
    UserCodeError,
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


class LoadError(RuntimeError):
    """A user's own wrapper; by itself it may depend on the moment."""


class BadSchema(UserCodeError):
    """A user's own exception that must not be retried."""


class JavaThrowable:
    """As py4j hands it out: a method that is not there is called all the same, and fails."""

    def __init__(self, name: str, message: str, state: str | None = None, cause: JavaThrowable | None = None) -> None:
        self.name, self.message, self.state, self.cause = name, message, state, cause

    def getClass(self) -> JavaThrowable:
        return self

    def getName(self) -> str:
        return self.name

    def getMessage(self) -> str:
        return self.message

    def getCause(self) -> JavaThrowable | None:
        return self.cause

    def getSqlState(self) -> str:
        if self.state is None:
            raise RuntimeError("Method getSqlState([]) does not exist")
        return self.state


class Captured(Exception):
    """As pyspark has it."""

    def __init__(self, message: str, state: str | None = None, origin: JavaThrowable | None = None) -> None:
        super().__init__(message)
        self.state, self._origin = state, origin

    def getSqlState(self) -> str | None:
        return self.state


def raised_from(error: BaseException, *causes: BaseException | None) -> BaseException:
    """``error``, raised from the first of ``causes``, which was raised from the second one, and so on."""
    outer = error
    for cause in causes:
        outer.__cause__ = cause
        if cause is not None:
            outer = cause
    return error


ABORTED = JavaThrowable("org.apache.spark.SparkException", "Job aborted")
NO_TABLE = JavaThrowable("org.apache.spark.sql.AnalysisException", "no table t", "42P01")
NO_FILE = JavaThrowable("java.io.FileNotFoundException", "s3a://lake/x")


@pytest.mark.parametrize(
    ("error", "is_user"),
    [
        (raised_from(LoadError("x"), TypeError("int and str")), True),
        (raised_from(LoadError("x"), LoadError("y"), UserCodeError("z")), True),
        (BadSchema("x"), True),
        (raised_from(LoadError("x"), BadSchema("no column id")), True),
        (raised_from(LoadError("x"), Captured("no table", "42P01")), True),
        (raised_from(LoadError("x"), ConnectionError("reset")), False),
        (raised_from(LoadError("x"), None), False),
        # The outermost that says something decides.
        (raised_from(UserCodeError("x"), FileNotFoundError("y")), True),
        (raised_from(LoadError("x"), FileNotFoundError("y"), TypeError("z")), False),
        (raised_from(ChannelInconsistent("x"), TypeError("y")), False),
        # Java's causes, of pyspark's exception itself and of one that was wrapped.
        (Captured("query failed", "XXKST", JavaThrowable("StreamingQueryException", "x", "XXKST", NO_TABLE)), True),
        (raised_from(LoadError("x"), Captured("failed", None, JavaThrowable("java.E", "x", None, NO_TABLE))), True),
        (Captured("failed", None, JavaThrowable("java.E", "x", None, NO_FILE)), False),
        (Captured("failed", None, ABORTED), False),
    ],
)  # fmt: skip
def test_fault_78_what_an_error_was_raised_from_decides_as_well(error: BaseException, is_user: bool) -> None:
    failure = describe(error)
    assert is_user_error(failure) is is_user
    assert is_user_error(from_json(Failure, json.loads(json.dumps(to_json(failure))))) is is_user
    assert dict(labelled(failure).labels)["recoverable"] == ("no" if is_user else "yes")
    assert failure.type == type(error).__name__


def test_fault_78_the_cause_that_decides_is_named_in_the_message() -> None:
    assert describe(raised_from(LoadError("flights"), TypeError("y"))).message == "flights (caused by TypeError: y)"
    assert describe(raised_from(LoadError("flights"), OSError("y"))).message == "flights"


def test_fault_78_a_fallback_that_fails_is_retried_though_it_replaced_what_is_missing() -> None:
    def load() -> None:
        try:
            raise ImportError("fast_client")
        except ImportError:
            raise ConnectionError("the slow one does not answer")  # noqa: B904

    with pytest.raises(ConnectionError) as raised:
        load()
    assert isinstance(raised.value.__context__, ImportError)
    assert not is_user_error(describe(raised.value))


def test_errors_that_were_raised_from_each_other_in_a_circle_are_described() -> None:
    error = LoadError("x")
    assert not is_user_error(describe(raised_from(error, LoadError("y"), error)))


def test_fault_78_control_by_the_outermost_alone_it_would_be_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_recovery.driver.failure._causes", lambda error: iter([error]))
    assert not is_user_error(describe(raised_from(LoadError("x"), TypeError("int and str"))))


PY4J = """Traceback (most recent call last):
  File "clean.py", line 3, in <module>
    frame.write.parquet(out)
py4j.protocol.Py4JJavaError: An error occurred while calling o1.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
Caused by: java.io.FileNotFoundException: File s3a://lake/p does not exist
26/11/28 07:00:00 ERROR Utils: Uncaught exception in thread main"""
HANDLED = """Traceback (most recent call last):
  File "clean.py", line 3, in <module>
KeyError: 'carrier'

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "clean.py", line 5, in <module>
__main__.BadRows
{"ts": "2026-11-28", "level": "ERROR"}"""
ANALYSIS = """Traceback (most recent call last):
  File "clean.py", line 3, in <module>
pyspark.errors.exceptions.captured.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] The table is not there. SQLSTATE: 42P01;
'UnresolvedRelation [seen]"""
JAVA = """Exception in thread "main" java.lang.IllegalStateException: 3 rows have no carrier
Caused by: java.lang.RuntimeException: boom"""


@pytest.mark.parametrize(
    ("output", "kind", "message"),
    [
        (PY4J, "Py4JJavaError", "An error occurred while calling o1.parquet.\n: org.apache.spark.SparkException: Job"),
        (HANDLED, "BadRows", ""),
        (ANALYSIS, "AnalysisException", "[TABLE_OR_VIEW_NOT_FOUND] The table is not there. SQLSTATE: 42P01;\n'Unres"),
        (JAVA, "IllegalStateException", "3 rows have no carrier\nCaused by: java.lang.RuntimeException: boom"),
        ("Traceback (most recent call last):\n  File", None, None),
        ("clean: 3 rows have no carrier", None, None),
        ("", None, None),
    ],
)
def test_fault_215_the_exception_that_an_output_ends_with(output: str, kind: str | None, message: str | None) -> None:
    found = raised_in(output.splitlines())
    assert (found and found.type) == kind
    if found is not None:
        assert found.message.startswith(message or "")
        assert "ERROR" not in found.message


def output_of(folder: Path, program: str) -> str:
    """What a real Python prints that runs ``program``, and ends with an error."""
    (folder / "clean.py").write_text(program)
    done = subprocess.run([sys.executable, folder / "clean.py"], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode
    return done.stderr


IN_A_FUNCTION = """def main():
    class BadRows(Exception): ...
    raise BadRows("3 rows have no carrier")
main()
"""
IGNORED = """class Held:
    def __del__(self):
        raise KeyError("the gateway is closed")
held = Held()
raise ValueError("3 rows have no carrier")
"""
IN_A_THREAD = """import threading
def watch():
    threading.main_thread().join()
    raise KeyError("nobody listens")
threading.Thread(target=watch).start()
raise ValueError("3 rows have no carrier")
"""
ONLY_IN_A_THREAD = """import sys, threading
thread = threading.Thread(target=lambda: {}["carrier"])
thread.start()
thread.join()
sys.exit(1)
"""
ENDS = {
    "def (": ("SyntaxError", "invalid syntax"),
    "if True:\nprint(1)": ("IndentationError", "expected an indented block"),
    IN_A_FUNCTION: ("BadRows", "3 rows have no carrier"),
    IGNORED: ("ValueError", "3 rows have no carrier"),
    IN_A_THREAD: ("ValueError", "3 rows have no carrier"),
    ONLY_IN_A_THREAD: ("KeyError", "'carrier'"),
}
if sys.version_info >= (3, 11):
    ENDS["raise ExceptionGroup('two files', [ValueError('a'), OSError('b')])"] = ("ExceptionGroup", "two files (2 sub-")


@pytest.mark.parametrize("program", ENDS)
def test_fault_403_the_exception_that_has_ended_a_real_program(tmp_path: Path, program: str) -> None:
    kind, message = ENDS[program]
    found = raised_in(output_of(tmp_path, program).splitlines())
    assert found is not None
    assert found.type == kind
    assert found.message.startswith(message)


@pytest.mark.control
def test_fault_403_control_by_the_last_traceback_alone_it_is_another_one_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_recovery.driver.failure._ELSEWHERE", ("no such line",))
    monkeypatch.setattr("airflow_recovery.driver.failure._NOT_COMPILED", re.compile("(?!)"))
    for program, kind in ((IGNORED, "KeyError"), (IN_A_THREAD, "KeyError"), ("def (", None)):
        found = raised_in(output_of(tmp_path, program).splitlines())
        assert (found and found.type) == kind


def test_fault_215_what_spark_says_in_an_exception_is_known_of_it() -> None:
    missing, analysis = raised_in(PY4J.splitlines()), raised_in(ANALYSIS.splitlines())
    assert missing is not None
    assert analysis is not None
    assert is_missing_input(missing)
    assert missing.chain[1] == "java.io.FileNotFoundException: File s3a://lake/p does not exist"
    assert (analysis.condition, analysis.sql_state) == ("TABLE_OR_VIEW_NOT_FOUND", "42P01")
