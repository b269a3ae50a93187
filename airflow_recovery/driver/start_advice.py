"""What to do where an application's environment lacks something: a module, a jar, Python, Java, one version of each.

Somebody must install it, so such a failure is not retried. It is recognised by the messages of Python, the JVM, Spark
4.2 and Hadoop 3.5. The driver reports what it can (`airflow_recovery.driver.main`); of one that has died before that,
the end of spark-submit's output is read.
"""

from __future__ import annotations

import errno
import re
import signal
from collections.abc import Iterable
from itertools import chain

from airflow_recovery.errors import ConfigurationError, Failure
from airflow_recovery.store.schemes import registered

NOT_SET_UP = "NotSetUp"
"""The type of a `Failure` that says by itself what is to be set up."""

CLUSTER_FULL = "ClusterFull"
"""The type of a `Failure` of a driver that the cluster has no room for now."""

SAYS = "airflow-recovery: this driver can't start: "
"""The line in which `airflow_recovery.driver.main` says why begins with this."""

MAX_LINES = 60
"""How many lines at the end of an output are looked at, besides stack frames and Spark's log."""

_ONE_PYTHON = (
    "Give the driver and the executors the same Python: PYSPARK_PYTHON, or spark.pyspark.python (for the driver "
    "PYSPARK_DRIVER_PYTHON, or spark.pyspark.driver.python)."
)
_ONE_SPARK = (
    "Use one version of Spark: the pyspark that the driver imports, the Spark that SPARK_HOME names, and the cluster's "
    "or the Connect server's must be equal."
)

_OF_KUBERNETES = (
    (
        re.compile(r"Please specify spark\.kubernetes\.file\.upload\.path"),
        "Set it in conf to a folder of a store that this worker and the pod can reach (s3a://...): the driver's code "
        "gets into its pod over it (docs/kubernetes.md).",
    ),
    (
        re.compile(r"KubernetesClientException: .*(?: is forbidden: |Unauthorized|namespaces \"[^\"]*\" not found)"),
        "Kubernetes refuses it: docs/kubernetes.md has the roles that the worker and the driver need.",
    ),
)
"""What comes before the failures of stores (`StoreScheme.spark_failures`)."""

_ADVICE = (
    (
        re.compile(
            r"Failed to find (?:the )?data source: delta|DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG|"
            r"PARSE_SYNTAX_ERROR\][^\n]*'HISTORY'"
        ),
        "Spark has no Delta, or not its settings: give the driver and the executors, or the Spark Connect server, the "
        "jars and the two settings that docs/tables.md names.",
    ),
    (re.compile(r"PYTHON_VERSION_MISMATCH|Python in worker has different version"), _ONE_PYTHON),
    (
        re.compile(r"Cannot run program \"[^\"]*\".*error=2, No such file"),
        f"There is no such Python where Spark looks for it. {_ONE_PYTHON}",
    ),
    (
        re.compile(
            r"'JavaPackage' object is not callable|Py4JError: [\w.$]+ does not exist in the JVM|"
            r"InvalidClassException: .*local class incompatible|"
            r"(?:NoSuch(?:Method|Field)|AbstractMethod|IncompatibleClassChange)Error: .*org[./]apache[./]spark"
        ),
        _ONE_SPARK,
    ),
    (
        re.compile(r"(?:find-spark-home|spark-class|spark-submit): line \d+: .*: (?:No such file|command not found)"),
        f"Neither that nor a Spark is where spark-submit looks for it. {_ONE_PYTHON} SPARK_HOME, where it is set, must "
        "name a whole Spark.",
    ),
    (
        re.compile(r"UnsupportedClassVersionError"),
        "This Java is too old for Spark or for a jar: Spark needs Java 17 from 4.0 on. Set JAVA_HOME.",
    ),
    (
        re.compile(r"JAVA_HOME is not set|Unable to locate a Java Runtime"),
        "Spark finds no Java that it can run: install Java 17 where the driver runs, and set JAVA_HOME.",
    ),
    (
        re.compile(
            r"ClassNotFoundException: |NoClassDefFoundError: (?!Could not initialize)|Failed to load class |"
            r"No suitable driver"
        ),
        "A jar is missing on the class path of the driver, the executors or the Connect server: give it by jars= or "
        "packages= (spark.jars, spark.jars.packages), or put it into the image.",
    ),
    (
        re.compile(r"No such file or directory: '[^']*(?:spark-submit|spark2-submit|spark3-submit)'"),
        "There is no spark-submit on this worker: install pyspark beside Airflow (pip install "
        "'airflow-recovery[spark]'), put its folder on the PATH, or give its path by spark_binary=.",
    ),
    (
        re.compile(r"can't open file '[^']+': \[Errno 2\]"),
        "The application's file is not where Spark runs: give a path or URI that the driver's machine can read.",
    ),
)
_MISSING_MODULE = re.compile(r"^(?:\w+\.)*(?:ModuleNotFoundError|ImportError): .*", re.MULTILINE)
_INSTALL = (
    "Install it for the Python that says so, in the driver as on the executors, or ship it: packages= of the job, or "
    "py_files."
)
_PYTHON_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit|Interrupt)\b.*", re.MULTILINE)
_LOGGED = re.compile(
    r"^\s*(?:at [\w.$/]+[(.]|\.\.\. \d+ (?:more|common)|\d\d/\d\d/\d\d \d\d:\d\d:\d\d (?:INFO|WARN|DEBUG) )"
)
_STARTED_AND_FAILED = re.compile(r"(?:Error code is:|[Ee]xit ?[Cc]ode:?|exited with status) (?:1|2|78|101|126|127)\b")
_SUBMISSION = re.compile(r"Cannot execute: (?P<command>.*?)\. (?P<rest>Error code is: (?P<code>-?\d+)\b.*)", re.DOTALL)
"""The message of Airflow's hook for a spark-submit that has failed."""
_TAIL = "Last spark-submit output:"
_TOO_LONG = (
    "An argument of the job, or all of them together, are longer than the system lets a program have (on Linux 128 KiB "
    "an argument). Write the value to an object or a file, and pass its path; or pass it by conf= of the Spark job, or "
    "application_args= with fewer values."
)
_OVER_QUOTA = re.compile(r"(exceeded quota: .*?)(?:\. Received status|$)", re.MULTILINE)
_SAID = re.compile(rf"^{re.escape(SAYS)}(.+)", re.MULTILINE)
_BY_ITS_EXIT = re.compile(r"(?:Error code is:|[Ee]xit ?[Cc]ode:?|exited with status) 78\b")


def start_advice(failure: Failure) -> str | None:
    """What is to be set up before ``failure`` can be cured; `None` where it is of another kind.

    What only a Java cause says stands before it: the message of a failure is that of the outermost exception.
    """
    text, causes = f"{failure.type}: {failure.message}", "\n".join(failure.chain)
    message = f"{text}\n{failure.condition or ''}"
    advice = _advice(f"{message}\n{causes}") or _import_advice(text)
    if advice is None or advice in (_advice(message), _import_advice(text)):
        return advice
    return f"{_line_of(causes, advice)}. {advice}"


def start_failure(error: BaseException) -> Failure | None:
    """What the end of spark-submit's output says of an application that could not start; `None` where it could.

    Its type is `CLUSTER_FULL` where another time it may. ``error`` is what the submission raised. A process that was
    killed is none that could not start.
    """
    if isinstance(error, ConfigurationError):
        return Failure(NOT_SET_UP, str(error))
    if isinstance(error, ImportError):
        return Failure(NOT_SET_UP, f"{type(error).__name__}: {error}. {_INSTALL}")
    if isinstance(error, OSError) and error.errno == errno.E2BIG:
        return Failure(NOT_SET_UP, f"{error.strerror} (Errno {error.errno}). {_TOO_LONG}")
    if isinstance(error, FileNotFoundError):
        advice = _advice(str(error))
        return None if advice is None else Failure(NOT_SET_UP, f"{error}. {advice}")
    if not _STARTED_AND_FAILED.search(str(error)):
        return None
    text = "\n".join(relevant(output_of(error) or str(error).splitlines()))
    over_quota = _OVER_QUOTA.search(text)
    if over_quota is not None:
        return Failure(
            CLUSTER_FULL,
            f"Kubernetes refused the driver's pod: {over_quota[1]}. Wait until other applications of the namespace "
            "have ended, let fewer tasks run at once (an Airflow pool), ask for less, or have the quota raised.",
        )
    reported = _SAID.findall(text)
    if reported:
        return Failure(NOT_SET_UP, reported[-1])
    advice = _advice(text) or _import_advice(text)
    if advice is not None:
        return Failure(NOT_SET_UP, f"{_line_of(text, advice)}. {advice}")
    if _BY_ITS_EXIT.search(str(error)):
        return Failure(NOT_SET_UP, "The driver could not start; the end of its own log says why.")
    return None


def exit_first(error: BaseException) -> str:
    """Return the message for a failed spark-submit, with the exit code first and the command last.

    Notes and records are cut: a long command would hide the code.
    """
    found = _SUBMISSION.fullmatch(str(error))
    if found is None:
        return str(error)
    first, *tail = found["rest"].splitlines()
    said = [line for line in relevant(tail) if line != _TAIL]
    lines = [first + _killed_by(int(found["code"])), *said, f"Cannot execute: {found['command']}."]
    return "\n".join(lines)


def _killed_by(code: int) -> str:
    number = -code if code < 0 else code - 128
    return f" It was killed by {signal.Signals(number).name}." if number in set(signal.Signals) else ""


def relevant(output: Iterable[str]) -> list[str]:
    """The last lines of an output that are no stack frames and no log of Spark's."""
    return [line.rstrip() for line in output if line.strip() and not _LOGGED.match(line)][-MAX_LINES:]


def keep_output(error: BaseException, lines: Iterable[str]) -> None:
    """Let ``error`` carry what was written before it was raised."""
    setattr(error, _ATTRIBUTE, tuple(lines))


def output_of(error: BaseException) -> tuple[str, ...]:
    """What `keep_output` kept; nothing where it was not called."""
    lines = getattr(error, _ATTRIBUTE, ())
    return lines if isinstance(lines, tuple) else ()


def _advice(text: str) -> str | None:
    of_stores = (failure for scheme in registered() for failure in scheme.spark_failures)
    known: Iterable[tuple[str | re.Pattern[str], str]] = chain(_OF_KUBERNETES, of_stores, _ADVICE)
    return next((advice for pattern, advice in known if re.search(pattern, text)), None)


def _import_advice(text: str) -> str | None:
    """For a traceback, of which the last error counts: one before it may have been handled."""
    errors = _PYTHON_ERROR.findall(text)
    return _INSTALL if errors and _MISSING_MODULE.match(errors[-1]) else None


def _line_of(text: str, advice: str) -> str:
    """The line for which this advice is given."""
    lines = [line for line in text.splitlines() if advice in (_advice(line), _import_advice(line.strip()))]
    return lines[0].strip()[:500].rstrip(".") if lines else "It could not start"


_ATTRIBUTE = "_airflow_recovery_output"
