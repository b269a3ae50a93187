"""The application file that spark-submit runs; everything it needs comes in the archive (``--py-files``).

Written for every Python from 3.6 on, with nothing but its standard library: where the Python or the archive is not the
right one, this reports so to the task that waits for the attempt.
"""

import importlib.util
import json
import os
import platform
import sys
import traceback

OLDEST = (3, 10)
NOT_SET_UP = 78
"""Exit code (``EX_CONFIG``): this driver can't start, and would not the next time."""


def run(arguments: "list[str]") -> int:
    """The driver's exit code. Raises whatever keeps it from starting."""
    if sys.version_info[:2] < OLDEST:
        raise RuntimeError(
            "expected Python {}.{} or later, found {}. Set PYSPARK_PYTHON, or spark.pyspark.python, to one where the "
            "driver and the executors run".format(*OLDEST, _python())
        )
    from airflow_recovery.driver.driver import main

    return main(arguments)


def why(error: BaseException) -> str:
    """What was expected and found, and what to do, in one line."""
    if not isinstance(error, ImportError):
        text = str(error) if type(error) in (RuntimeError, ValueError) else f"{type(error).__name__}: {error}"
    elif (error.name or "").partition(".")[0] == "airflow_recovery":
        text = (
            f"expected the archive of --py-files to hold {error.name}, found none ({error}; airflow_recovery is read "
            f"from {_ours()}). Use one version of airflow_recovery: in the task, and in whatever image or folder "
            "Spark's Python finds it first"
        )
    else:
        text = (
            "expected to import {}, found {} in {}. Install it where the driver runs, or ship it: packages= of the "
            "job, or py_files"
        ).format(error.name or "what the driver needs", error, _python())
    return " ".join(text.split()) + "."


def report(arguments: "list[str]", message: str) -> None:
    """Leave ``message`` where the task looks for a driver's failure, as `driver.exit_report` does. Best effort.

    Not on S3, which would need more than the standard library: there the exit code says that something is to be set up.
    """
    failure: dict[str, object] = {
        "type": "NotSetUp",
        "message": message,
        "condition": None,
        "sql_state": None,
        "chain": [],
        "vertex": None,
        "labels": [],
    }
    try:
        spec_path = arguments[0]
        with open(spec_path if os.path.isfile(spec_path) else os.path.basename(spec_path), encoding="utf-8") as file:
            spec = json.load(file)
        if spec.get("receipt") and os.path.isdir(os.path.dirname(spec["receipt"])):
            _write(spec["receipt"] + ".failure", failure)
        if spec["location"].startswith("file://"):
            folder = spec["location"][len("file://") :]
            os.makedirs(folder, exist_ok=True)
            _write(os.path.join(folder, "_failure.json"), failure)
    except Exception:  # the line on the output is what is left
        traceback.print_exc()


def _write(path: str, failure: "dict[str, object]") -> None:
    with open(path + ".unfinished", "w", encoding="utf-8") as file:
        json.dump(failure, file)
    os.replace(path + ".unfinished", path)


def _ours() -> str:
    spec = importlib.util.find_spec("airflow_recovery")
    return "nowhere" if spec is None else str(spec.origin)


def _python() -> str:
    return f"Python {platform.python_version()} ({sys.executable} on {platform.node()})"


if __name__ == "__main__":
    # Python put this file's folder first on the path: `import watchdog` in a user's job must not find our module.
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [name for name in sys.path if os.path.abspath(name or os.curdir) != here]
    try:
        code = run(sys.argv[1:])
    except Exception as error:
        traceback.print_exc()
        message = why(error)
        report(sys.argv[1:], message)
        print("airflow-recovery: this driver can't start: " + message, flush=True)
        code = NOT_SET_UP
    sys.exit(code)
