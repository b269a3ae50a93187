"""``one_try.py FOLDER GATE KIND TRY OPTIONS``: one try of a task, in a process of its own, as Airflow makes it.

KIND is ``declared`` (the region of `clusterjobs.numbers:gated`), ``tabled`` (of the job of this name there), ``plain``
(of `clusterjobs.plain`) or ``drop-in`` (`told_application.py`); OPTIONS are further arguments of its operator, as JSON,
and `execution_timeout_s`. What it returned or raised is left in ``FOLDER/TRY.json``. SIGTERM kills the task, and then
this process.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from contextlib import nullcontext
from pathlib import Path
from types import FrameType
from typing import Any

from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import TimeoutPosix
from job_tasks import job_dag
from tries import DATE, TaskStateStore, execute, task_context

from airflow_recovery.errors import RecoveryError
from airflow_recovery.operators import RecoverableSparkSubmitOperator

JOBS = {
    "declared": "clusterjobs.numbers:gated",
    "tabled": "clusterjobs.numbers:tabled",
    "plain": "clusterjobs.plain:plain",
}
APPLICATION = Path(__file__).with_name("told_application.py")


class FileStateStore(TaskStateStore):
    """Outlives the process, as Airflow's own does."""

    def __init__(self, path: Path) -> None:
        super().__init__(json.loads(path.read_text()) if path.exists() else {})
        self._path = path

    def set(self, key: str, value: Any, *, retention: Any = None) -> None:
        super().set(key, value, retention=retention)
        unfinished = self._path.with_suffix(".part")
        unfinished.write_text(json.dumps(self))
        unfinished.replace(self._path)


def operator_of(kind: str, gate: str, options: dict[str, Any]) -> Any:
    if kind in JOBS:
        return job_dag(JOBS[kind], **options).task_dict["g.kept"]
    with DAG("d", schedule=None, start_date=DATE):
        return RecoverableSparkSubmitOperator(
            task_id="told",
            outputs=["rows"],
            py_files=str(APPLICATION.parent / "clusterjobs" / "gate.py"),
            application_args=["{output:rows}", gate, "rows"],
            **{"application": str(APPLICATION), **options},
        )


def main(folder: Path, gate: str, kind: str, try_number: int, options: dict[str, Any]) -> None:
    logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s", force=True)
    os.environ.pop("PYTHONPATH", None)  # YARN would hand it to the driver, which is to find its code in the archive
    limit = options.pop("execution_timeout_s", 0)
    operator = operator_of(kind, gate, options).prepare_for_execution()
    context = task_context(operator.task_id, try_number=try_number, params={"gate": gate})
    context["task_state_store"] = FileStateStore(folder / "task_state.json")

    def die(number: int, frame: FrameType | None) -> None:
        operator.on_kill()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, die)
    try:
        with TimeoutPosix(limit) if limit else nullcontext():
            told: dict[str, Any] = {"answer": execute(operator, context)}
    except (AirflowException, AirflowTaskTimeout, RecoveryError) as error:
        if isinstance(error, AirflowTaskTimeout):
            operator.on_kill()
        told = {"error": type(error).__name__, "message": str(error)}
    told["application_id"] = operator.spark_application_id
    (folder / f"{try_number}.json").write_text(json.dumps(told, default=str))


if __name__ == "__main__":
    given_folder, given_gate, given_kind, given_try, given_options = sys.argv[1:]
    main(Path(given_folder), given_gate, given_kind, int(given_try), json.loads(given_options))
