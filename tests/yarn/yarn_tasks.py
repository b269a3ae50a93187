"""A task on YARN whose tries are processes (`code/one_try.py`), with journal and results on S3."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runtime_deadlines import until
from tries import RUN_KEY

from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.run_state import RegionState
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.model.records import RunIdentity
from airflow_recovery.store.s3 import S3Store
from airflow_recovery.testing import S3Server
from airflow_recovery.testing.yarn_cluster import YarnCluster

HERE = Path(__file__).parent
ONE_TRY = HERE / "code" / "one_try.py"
BUCKET = "yarn-tests"
TRACKED = {"deploy_mode": "cluster", "yarn_track_via_rm_api": True}
MEMORY_MB = 4096
DEADLINE_S = 240.0


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
        self.process.wait(DEADLINE_S)
        assert self.said_path.exists(), self.log[-6000:]
        said: dict[str, Any] = json.loads(self.said_path.read_text())
        return said

    def answer(self) -> dict[str, Any]:
        said = self.said()
        assert "answer" in said, f"{said}\n{self.log[-6000:]}"
        answer: dict[str, Any] = said["answer"]
        return answer


@dataclass
class YarnTask:
    """A task on YARN, whose journal and results are on S3. Its driver writes when `open_gate` was called."""

    kind: str
    cluster: YarnCluster
    server: S3Server
    folder: Path
    options: dict[str, Any]
    settings: dict[str, str] = field(default_factory=dict)
    tries: list[Try] = field(default_factory=list)

    def start(self, **options: Any) -> Try:
        """The next try; ``options`` of its operator instead of the usual ones. ``address``: the connection's."""
        number = len(self.tries) + 1
        environment = {**self.environment(options.pop("address", self.cluster.url)), **self.settings}
        command = [sys.executable, str(ONE_TRY), str(self.folder), self.kind, str(number)]
        log = self.folder / f"{number}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*command, json.dumps({**self.options, **options})],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.tries.append(Try(process, log, self.folder / f"{number}.json"))
        return self.tries[-1]

    def environment(self, address: str | None) -> dict[str, str]:
        """Of a process of Airflow. ``address``: where the connection says that the resource manager is asked."""
        extra = {"yarn_resourcemanager_webapp_address": address} if address else {}
        return {
            **os.environ,
            **self.cluster.environment,
            **s3_environment(self.server),
            "PYTHONPATH": os.pathsep.join(map(str, [HERE / "code", *sys.path])),
            "AIRFLOW_HOME": str(self.folder),
            "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "yarn", "extra": extra}),
            "AIRFLOW__RECOVERY__JOURNAL": self.uri("journal"),
            "AIRFLOW__RECOVERY__RESULTS": self.uri("results"),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }

    def uri(self, name: str) -> str:
        return f"s3://{BUCKET}/{self.folder.name}/{name}"

    def store(self, name: str) -> S3Store:
        return S3Store(self.uri(name), endpoint_url=self.server.endpoint_url, session=self.server.session())

    @property
    def region(self) -> RegionState:
        """What the journal says of this task."""
        return self.region_of(*{"declared": ("kept", "g"), "drop-in": ("told", OPERATORS_GROUP)}[self.kind])

    def region_of(self, name: str, group: str) -> RegionState:
        journal = Journal(self.store("journal"), RunIdentity("d", RUN_KEY, group), writer="test")
        return journal.load(journal.list([name])).of(name)

    def open_gate(self) -> None:
        (self.folder / "gate").touch()

    def waiting(self) -> list[str]:
        """The ids of the applications whose drivers have come to the gate."""
        return sorted(path.suffix[1:] for path in self.folder.glob("gate.*"))

    def until_waiting(self, applications: int = 1) -> str:
        """The id of the newest application that waits at the gate."""
        self.until(lambda: len(self.waiting()) == applications, "a driver waits at the gate")
        return self.waiting()[-1]

    def until_ended(self, application_id: str) -> str:
        """Until the resource manager says that it is over; the state in which it has ended."""

        def state() -> str:
            return str(self.cluster.application(application_id)["state"])

        until(lambda: state() in ("FINISHED", "FAILED", "KILLED"), "it ends", deadline_s=DEADLINE_S)
        return state()

    def is_known(self) -> bool:
        """Whether Airflow has kept the id of the newest application."""
        path = self.folder / "task_state.json"
        return path.exists() and self.applications()[-1]["id"] in path.read_text()

    def kill_driver(self, application_id: str) -> None:
        """``kill -9`` the JVM of an application's master, in which the driver runs."""
        import psutil

        container = f"container_{application_id.removeprefix('application_')}_01_000001"
        (master,) = (
            process
            for process in psutil.process_iter()
            if process.name() == "java" and container in " ".join(process.cmdline())
        )
        master.kill()

    def data_of(self, attempt: int) -> list[str]:
        """The keys of what an attempt has left of its results."""
        return [info.key for info in self.store("results").list() if f"/{attempt}/" in info.key]

    def until(self, condition: Callable[[], object], what: str) -> None:
        def is_so() -> bool:
            ended = self.tries[-1].process.poll()
            assert condition() or ended is None, f"{what}: the try ended with {ended}:\n{self.tries[-1].log[-6000:]}"
            return bool(condition())

        until(is_so, what, deadline_s=DEADLINE_S)

    def applications(self, *states: str) -> list[dict[str, Any]]:
        """This task's, as the resource manager knows them."""
        tag = self.folder.name
        return [app for app in self.cluster.applications(*states) if tag in app["applicationTags"]]

    def end(self) -> None:
        for each in self.tries:
            if each.process.poll() is None:
                each.process.kill()
                each.process.wait()
        for app in self.applications("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING"):
            self.cluster.kill(app["id"])
