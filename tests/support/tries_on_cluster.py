"""A task whose drivers run on a cluster, and whose tries are processes (`code/one_try.py`); all it has is on S3."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tries import RUN_KEY

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import Claim, Outcome, RunIdentity
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.local_airflow.sqlite import template_database
from airflow_recovery.testing.patience import HANG_S, wait_until

CODE = Path(__file__).with_name("code")
ONE_TRY = CODE / "one_try.py"
DAG_FILE = CODE / "dag_on_cluster.py"
BUCKET = "cluster-tests"


def s3_environment(server: S3Server) -> dict[str, str]:
    """What a process needs to reach the server."""
    return {**server.environment(), "AWS_ENDPOINT_URL_S3": server.endpoint_url}


@dataclass
class Try:
    """One try of a task. Its process is the leader of a session of its own."""

    process: subprocess.Popen[bytes]
    log_path: Path
    said_path: Path

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def said(self) -> dict[str, Any]:
        """What it has returned or raised. Waits for its end."""
        self.process.wait(HANG_S)
        assert self.said_path.exists(), self.log[-6000:]
        said: dict[str, Any] = json.loads(self.said_path.read_text())
        return said

    def answer(self) -> dict[str, Any]:
        said = self.said()
        assert "answer" in said, f"{said}\n{self.log[-6000:]}"
        answer: dict[str, Any] = said["answer"]
        return answer

    def lose(self) -> None:
        """``kill -9`` its process."""
        self.process.kill()
        self.process.wait()


@dataclass
class ClusterTask(ABC):
    """``kind`` is one of `one_try.py`'s, ``options`` go to its operator. A driver writes when `open_gate` was called.

    ``settings`` are variables of tries beside the usual ones. ``place`` is where on S3 all that is its own lies, and
    ``endpoint_url`` where S3 is reached.
    """

    kind: str
    server: S3Server
    folder: Path
    options: dict[str, Any]
    place: str = field(init=False)
    endpoint_url: str = field(init=False)
    settings: dict[str, str] = field(default_factory=dict, init=False)
    tries: list[Try] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.place, self.endpoint_url = f"s3://{BUCKET}/{self.folder.name}", self.server.endpoint_url

    @abstractmethod
    def cluster_environment(self) -> dict[str, str]:
        """How a process finds the cluster: programs' variables, and the connection ``spark_default``."""

    def start(self, **options: Any) -> Try:
        """The next try; ``options`` of its operator instead of the usual ones."""
        number = len(self.tries) + 1
        command = [sys.executable, str(ONE_TRY), str(self.folder), self.uri("gate"), self.kind, str(number)]
        log = self.folder / f"{number}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, json.dumps({**self.options, **options})],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.tries.append(Try(process, log, self.folder / f"{number}.json"))
        return self.tries[-1]

    def run_dag(self) -> dict[str, Any]:
        """`dag_on_cluster.py` to its end, in an Airflow of its own: what it prints."""
        environment = {
            **self.environment(),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__DAGS_FOLDER": str(self.folder / "dags"),
            "AIRFLOW__STATE_STORE__BACKEND": "airflow_recovery.api_server.state_backend.RecoveryStateBackend",
        }
        (self.folder / "dags").mkdir()
        file = shutil.copy(DAG_FILE, self.folder / "dags")
        (self.folder / "airflow.db").write_bytes(template_database(environment).read_bytes())
        command = [sys.executable, file, self.uri("lost"), json.dumps(self.options)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
        said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return said

    def environment(self) -> dict[str, str]:
        """Of a process of Airflow."""
        return {
            **os.environ,
            **s3_environment(self.server),
            "AWS_ENDPOINT_URL_S3": self.endpoint_url,
            **self.cluster_environment(),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW__RECOVERY__JOURNAL": self.uri("journal"),
            "AIRFLOW__RECOVERY__RESULTS": self.uri("results"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            **self.settings,
        }

    def uri(self, name: str) -> str:
        return f"{self.place}/{name}".rstrip("/")

    def store(self, name: str = "") -> ObjectStore:
        return S3Store(self.uri(name), endpoint_url=self.endpoint_url, session=self.server.session())

    @property
    def name_and_group(self) -> tuple[str, str]:
        """Of its region, as the journal has them."""
        return ("told", OPERATORS_GROUP) if self.kind == "drop-in" else ("kept", "g")

    @property
    def region(self) -> RegionState:
        """What the journal says of this task."""
        return self.region_of(*self.name_and_group)

    def region_of(self, name: str, group: str) -> RegionState:
        journal = self._journal_of(group)
        return journal.load(journal.list([name])).of(name)

    def claim_of(self, attempt: int) -> Claim:
        """Also of an attempt that has ended, whose claim is no part of `region`."""
        name, group = self.name_and_group
        return self._journal_of(group).read_claim(name, attempt)

    def _journal_of(self, group: str) -> Journal:
        return Journal(self.store("journal"), RunIdentity("d", RUN_KEY, group), writer="test")

    def outcome_of(self, attempt: int) -> Outcome:
        outcome = self.region.attempts[attempt].outcome
        assert outcome is not None
        return outcome

    def open_gate(self) -> None:
        self.store().put("gate", b"")

    def waiting(self) -> list[str]:
        """The ids of the applications whose drivers have come to the gate, the oldest first."""
        left = sorted(self.store().list("gate."), key=lambda info: (info.modified_s, info.key))
        return [info.key.removeprefix("gate.") for info in left]

    def until_waiting(self, applications: int = 1) -> str:
        """The id of the newest application that waits at the gate."""
        self.until(lambda: len(self.waiting()) == applications, "a driver waits at the gate")
        return self.waiting()[-1]

    def data_of(self, attempt: int) -> list[str]:
        """The keys of what an attempt has left of its results."""
        return [info.key for info in self.store("results").list() if f"/{attempt}/" in info.key]

    def until(self, condition: Callable[[], object], what: str) -> None:
        newest = self.tries[-1]
        wait_until(
            condition,
            what,
            describe=lambda: f"The try's exit code is {newest.process.poll()}. Its log:\n{newest.log[-6000:]}",
            is_over=lambda: newest.process.poll() is not None,
        )

    def end(self) -> None:
        """Kill what still runs."""
        for one in self.tries:
            if one.process.poll() is None:
                one.lose()


def spark_connection(host: str, extra: Mapping[str, Any]) -> dict[str, str]:
    """The connection ``spark_default``, as a variable."""
    return {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": host, "extra": dict(extra)})}
