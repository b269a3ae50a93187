"""Classifies a failure: one class for each `Failure`, the error that it is raised as, and the labels that it carries.

Only *missing* and *altered* can lead to a restart of the producer, and not by this classification: they make the region
task look, and a successful listing decides. Everything else restarts the failed region alone, or nothing.

Most failures are recognised by their text, which is that of Spark 4.2, Hadoop 3.5 with YARN, and the S3 SDK. What is
not recognised is `FailureClass.UNKNOWN`, and is retried.
"""

from __future__ import annotations

import re
from dataclasses import replace
from enum import Enum

from airflow_recovery import errors
from airflow_recovery.driver.failure import is_missing_input, is_user_error
from airflow_recovery.driver.start_advice import CLUSTER_FULL, NOT_SET_UP, start_advice
from airflow_recovery.errors import Failure

CLASS_LABEL = "class"
RECOVERABLE_LABEL = "recoverable"
MEMORY_LABEL = "memory"


_NOT_SET_UP = (NOT_SET_UP, errors.ConfigurationError.__name__, errors.LocationNotAllowed.__name__)


class FailureClass(str, Enum):
    """What failed: the value of a failure's label ``class``."""

    PARTITION_MISSING = "partition missing"
    INPUT_ALTERED = "input altered"
    INPUT_UNREADABLE = "input unreadable"
    TRANSFER_BROKEN = "transfer broken"
    DENIED = "denied"
    TIMED_OUT = "timed out"
    USER_CODE = "user code"
    NOT_SET_UP = "not set up"
    DRIVER_LOST = "driver lost"
    CLUSTER_FULL = "cluster full"
    OUT_OF_MEMORY = "out of memory"
    EXECUTOR_LOST = "executor lost"
    SESSION_LOST = "Connect session lost"
    CHANNEL = "channel"
    UNKNOWN = "unknown"


class MemoryOf(str, Enum):
    """Whose memory was too small; the value of the label ``memory``."""

    DRIVER = "driver"
    EXECUTOR = "executor"


ERRORS: dict[FailureClass, type[errors.RegionFailed]] = {
    FailureClass.PARTITION_MISSING: errors.PartitionMissing,
    FailureClass.INPUT_ALTERED: errors.InputAltered,
    FailureClass.INPUT_UNREADABLE: errors.InputUnreadable,
    FailureClass.TRANSFER_BROKEN: errors.TransferBroken,
    FailureClass.DENIED: errors.InputDenied,
    FailureClass.TIMED_OUT: errors.InputTimedOut,
    FailureClass.USER_CODE: errors.RegionFailed,
    FailureClass.NOT_SET_UP: errors.NotSetUp,
    FailureClass.DRIVER_LOST: errors.DriverLost,
    FailureClass.CLUSTER_FULL: errors.ClusterFull,
    FailureClass.OUT_OF_MEMORY: errors.OutOfMemory,
    FailureClass.EXECUTOR_LOST: errors.ExecutorLost,
    FailureClass.SESSION_LOST: errors.SessionLost,
    FailureClass.CHANNEL: errors.RegionFailed,
    FailureClass.UNKNOWN: errors.RegionFailed,
}
"""What a failure of each class is raised as. User code that would fail again is raised as `errors.UserCodeError`."""

_OUT_OF_MEMORY = re.compile(
    r"OutOfMemoryError|\bMemoryError\b|UNABLE_TO_ACQUIRE_MEMORY|OOMKilled|exceeding (?:physical |virtual )?memory|"
    r"beyond the '(?:PHYSICAL|VIRTUAL)' memory limit|"
    r"ExecutorLostFailure.*(?:exit code 52\b|exit status: 52\b|exit code 137\b|exit status: 137\b)|"
    # Spark's own exit code for it. In local mode a task ends the driver with it, which then reports nothing else.
    r"(?:Error code is|exitCode): 52\b",
    re.DOTALL,
)
_ON_AN_EXECUTOR = re.compile(r"Lost task|ExecutorLostFailure|Container killed by YARN|executor \d+\)")
_SESSION_LOST = re.compile(
    r"INVALID_HANDLE\.(?:SESSION|OPERATION)_|SESSION_(?:NOT_FOUND|CLOSED|CHANGED)|NO_ACTIVE_SESSION|"
    r"StatusCode\.UNAVAILABLE|failed to connect to all addresses"
)
_EXECUTOR_LOST = re.compile(
    r"ExecutorLostFailure|Slave lost|FetchFailed|MetadataFetchFailed|executor heartbeat timed out", re.I
)
_DRIVER_LOST = re.compile(
    r"DriverLost|ProcessLost|"
    r"Py4JNetworkError|Answer from Java side is empty|SparkContext (?:was|has been) (?:stopped|shut ?down)|"
    r"stopped SparkContext|SparkEnv\$\.get\(\)\" is null|"
    r"Error code is: (?:-9|-15|137|143)\b|exitCode: (?:137|143|-10[0-2567])\b|"
    # YARN: by a person or a scheduler, or with its node.
    r"application_\d+_\d+ was killed|ApplicationMaster for attempt \S+ timed out|"
    r"All masters are unresponsive|UnknownHostException: spark|Java gateway process"
)
_ALTERED = re.compile(r"RemoteFileChangedException")
_MALFORMED = re.compile(
    r"is not a Parquet file|is not an? (?:ORC|Avro|Parquet) |FAILED_READ_FILE\.(?:CANNOT_READ_FILE_FOOTER|"
    r"PARQUET_COLUMN_DATA_TYPE_MISMATCH|UNSUPPORTED_FILE_SYSTEM)|Could not read footer|Malformed ORC|"
    r"Not an Avro data file|"
    r"SchemaColumnConvertNotSupported|ParquetDecodingException|can not read class org\.apache\.parquet|"
    r"MALFORMED_(?:CSV_RECORD|RECORD_IN_PARSING)|Postscript|checksum (?:error|mismatch)|incorrect data check",
    re.I,
)
"""A file is no data of its format, or has other columns: it reads in the same way again."""
_UNREADABLE = re.compile(r"FAILED_READ_FILE\.")
_ADVICE = (
    (
        re.compile(r"InvalidObjectState|not valid for the object's (?:storage class|access tier)"),
        "The object is archived (storage class GLACIER or DEEP_ARCHIVE, or an archive tier of INTELLIGENT_TIERING). "
        "Restore it (aws s3api restore-object), or have the task that made it run again (airflow recovery restart).",
    ),
    (
        re.compile(r"KMS\.\w+|KMSInvalidState|kms:"),
        "The KMS key of an object is disabled or deleted, or the role may not use it. Enable the key, or let the role "
        "call kms:Decrypt and kms:GenerateDataKey. If the key is lost, have the task that made the object run again "
        "with another key (airflow recovery restart).",
    ),
    (
        re.compile(r"RequestTimeTooSkewed|RequestExpired"),
        "The clock of the machine that sent the request is wrong by more than S3 allows (15 minutes). Set it (NTP).",
    ),
)
"""How to make an object readable again, by a text in the store's answer."""
_EXPIRED = re.compile(r"ExpiredToken|TokenRefreshRequired|RequestExpired|token .{0,20}expired", re.I)
_DENIED = re.compile(
    r"InvalidObjectState|KMS\.(?:Disabled|NotFound|InvalidState|KMSInvalidState)|KMSInvalidState|"
    r"AccessDenied|Access Denied|InvalidAccessKeyId|SignatureDoesNotMatch|Forbidden|Status Code: 40[13]\b|"
    r"AccessControlException|Permission denied|PERMISSION_DENIED"
)
_TIMED_OUT = re.compile(
    r"SocketTimeoutException|TimeoutException|TimeoutError|StoreTimeout|ApiCallTimeout|Read timed out|DEADLINE_EXCEEDED"
)
_BROKEN = re.compile(
    r"Connection(?:Error|Reset|Refused|Aborted)|Connection (?:reset|refused)|ConnectException|SocketException|"
    r"SSLException|NoHttpResponse|EOFException|BrokenPipe|Broken pipe|SlowDown|Status Code: 50[0-9]\b|"
    r"ServiceUnavailable|StoreUnavailable|UnknownHostException|UnresolvedAddress"
)
_CHANNEL = frozenset(
    error.__name__
    for error in (
        errors.ChannelAltered,
        errors.ChannelEvicted,
        errors.ChannelFailed,
        errors.ChannelInconsistent,
        errors.LossBudgetExceeded,
    )
)
_USER_CODE = re.compile(r"PythonException|PySparkRuntimeError|\[?(?:USER_RAISED_EXCEPTION|FAILED_EXECUTE_UDF)")


def classify(failure: Failure) -> FailureClass:
    """The one class of ``failure``. Never raises."""
    text = _text(failure)
    if failure.type in _CHANNEL:
        return FailureClass.CHANNEL
    if is_user_error(failure):
        return FailureClass.USER_CODE
    if failure.type == CLUSTER_FULL:
        return FailureClass.CLUSTER_FULL
    if failure.type in _NOT_SET_UP or start_advice(failure) is not None:
        return FailureClass.NOT_SET_UP
    for pattern, kind in ((_SESSION_LOST, FailureClass.SESSION_LOST), (_OUT_OF_MEMORY, FailureClass.OUT_OF_MEMORY)):
        if pattern.search(text):
            return kind
    if is_missing_input(failure):
        return FailureClass.PARTITION_MISSING
    for pattern, kind in (
        # What a vertex raised itself comes with its own words ("Permission denied"), so it is asked for before those.
        (_USER_CODE, FailureClass.USER_CODE),
        (_EXECUTOR_LOST, FailureClass.EXECUTOR_LOST),
        (_DRIVER_LOST, FailureClass.DRIVER_LOST),
        # Before "denied": new credentials come with the next process.
        (_EXPIRED, FailureClass.TRANSFER_BROKEN),
        (_DENIED, FailureClass.DENIED),
        (_TIMED_OUT, FailureClass.TIMED_OUT),
        (_BROKEN, FailureClass.TRANSFER_BROKEN),
        (_ALTERED, FailureClass.INPUT_ALTERED),
        (_MALFORMED, FailureClass.INPUT_UNREADABLE),
        (_UNREADABLE, FailureClass.INPUT_UNREADABLE),
    ):
        if pattern.search(text):
            return kind
    is_python = not failure.chain and failure.condition is None and failure.vertex is not None
    return FailureClass.USER_CODE if is_python else FailureClass.UNKNOWN


def _text(failure: Failure) -> str:
    return "\n".join((failure.type, failure.condition or "", failure.message, *failure.chain))


def is_malformed(failure: Failure | None) -> bool:
    """Whether a file was read that is no data of its format, or has other columns than those expected."""
    return failure is not None and _MALFORMED.search(_text(failure)) is not None


def read_advice(failure: Failure) -> str | None:
    """Return what to repair before the object can be read; `None` if that is not known."""
    return next((advice for pattern, advice in _ADVICE if pattern.search(_text(failure))), None)


def memory_of(failure: Failure) -> MemoryOf | None:
    """Whose memory was too small; `None` where the failure is of another class."""
    if classify(failure) is not FailureClass.OUT_OF_MEMORY:
        return None
    text = "\n".join((failure.message, *failure.chain))
    return MemoryOf.EXECUTOR if _ON_AN_EXECUTOR.search(text) else MemoryOf.DRIVER


def labelled(failure: Failure) -> Failure:
    """``failure`` with the labels ``class``, ``recoverable`` and, for out of memory, ``memory``.

    ``recoverable=no`` where the same code would fail again, or where something is to be set up: such a failure is not
    retried, and counts in no budget.
    """
    kind = classify(failure)
    labels = {
        CLASS_LABEL: kind.value,
        RECOVERABLE_LABEL: "no" if is_user_error(failure) or kind is FailureClass.NOT_SET_UP else "yes",
    }
    memory = memory_of(failure)
    if memory is not None:
        labels[MEMORY_LABEL] = memory.value
    return replace(failure, labels=tuple(sorted({**dict(failure.labels), **labels}.items())))


def label_of(failure: Failure | None, key: str) -> str | None:
    """One label of a failure, `None` where it has none."""
    return None if failure is None else dict(failure.labels).get(key)
