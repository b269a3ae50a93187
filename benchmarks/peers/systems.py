"""How each system runs the pipeline: its start, its end, the death of its own process, and what a person does then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

from benchmarks.local_pipeline import REPOSITORY, LocalPipeline, moment_s
from benchmarks.peers.flights.steps import SINKS

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "requirements.txt"
ENVIRONMENT = REPOSITORY / "build" / "peers"
RUN_TIMEOUT_S = 900.0


class System(ABC):
    """One way to run the pipeline."""

    name: str

    @abstractmethod
    def begin(self, run: str) -> None:
        """Start a new run; return at once."""

    @abstractmethod
    def wait(self) -> tuple[bool, float]:
        """Wait until the run has stopped: whether all is done, and when it stopped, in seconds since the epoch."""

    @abstractmethod
    def again(self) -> None:
        """What a person does who finds that the run has failed; returns at once."""

    @abstractmethod
    def kill(self) -> None:
        """``kill -9`` of the process that decides what runs, and another one in its place at once."""


class OnAirflow(System):
    """A DAG of `benchmarks/dags/peers.py`. Its tasks are retried by themselves."""

    def __init__(self, name: str, pipeline: LocalPipeline, dag_id: str) -> None:
        self.name = name
        self._airflow = pipeline.airflow
        self._dag_id = dag_id
        self._run_id = ""

    def begin(self, run: str) -> None:
        self._run_id = self._airflow.trigger(self._dag_id, logical_date=f"{run}T00:00:00Z")

    def wait(self) -> tuple[bool, float]:
        done = self._airflow.wait_run(self._dag_id, self._run_id, RUN_TIMEOUT_S) == "success"
        ends = [instance["end_date"] for instance in self._airflow.task_instances(self._dag_id, self._run_id)]
        moments = [moment_s(end) for end in ends if end]
        return done, max(moments)

    def again(self) -> None:
        """Only who knows that `joined` is what is missing comes by with a clear of that and what follows."""
        self._airflow.clear(self._dag_id, self._run_id, ["joined"], downstream=True)

    def clear_all(self) -> None:
        """Clear the whole run, as who does not want to think about it does."""
        self._airflow.clear(self._dag_id, self._run_id)

    def kill(self) -> None:
        self._airflow.restart("scheduler")


class AsProcess(System):
    """A system whose run is one process of ``command``, called with a folder for the results (and ``again``)."""

    def __init__(self, name: str, script: str, folder: Path, env: Mapping[str, str], *, says_again: bool) -> None:
        self.name = name
        self._command = [str(ENVIRONMENT / "bin" / "python"), str(HERE / "flights" / script)]
        self._folder = folder
        self._env = dict(env)
        self._says_again = says_again
        self._run = folder
        self._process: subprocess.Popen[bytes] | None = None

    def begin(self, run: str) -> None:
        self._run = self._folder / run
        self._run.mkdir(parents=True)
        self._start()

    def wait(self) -> tuple[bool, float]:
        assert self._process is not None
        try:
            code = self._process.wait(RUN_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = -1
        return code == 0, time.time()

    def again(self) -> None:
        self._start(*(["again"] if self._says_again else []))

    def kill(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        self.again()

    def _start(self, *words: str) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._command, str(self._run), *words], env=self._env, stdout=log, stderr=log, cwd=self._folder
            )


def pinned_peers() -> list[str]:
    """What is installed for the comparison, with versions."""
    return [line for line in REQUIREMENTS.read_text().splitlines() if not line.startswith("#")]


def install_peers() -> str | None:
    """Make the environment `build/peers` of `requirements.txt`; why that is not possible, or `None`."""
    wanted = REQUIREMENTS.read_text()
    stamp = ENVIRONMENT / "made-of"
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    pip = [str(ENVIRONMENT / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)],
        [*pip, "-r", str(REQUIREMENTS)],
    ):
        done = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
        if done.returncode != 0:
            return f"{' '.join(command[:4])} ... ended with {done.returncode}: {done.stderr.strip()[-300:]}"
    stamp.write_text(wanted)
    return None


def clean_environment() -> dict[str, str]:
    """This process's, without what leads to its own packages; spark-submit is that beside this Python."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    path = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', os.defpath)}"
    return env | {"PATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}


def rows_of(folders: Mapping[str, str]) -> dict[str, list[str]]:
    """The rows of the sinks, as text, in one order."""
    import pyarrow.dataset as ds  # type: ignore[import-untyped]

    rows = {}
    for sink in SINKS:
        table = ds.dataset(folders[sink].removeprefix("file://"), format="parquet").to_table()
        rows[sink] = sorted(str(sorted(row.items())) for row in table.to_pylist())
    return rows
