"""A task on YARN (`tries_on_cluster`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tries_on_cluster import ClusterTask, spark_connection
from yarn_cluster import YarnCluster

from airflow_recovery.testing.patience import wait_until

TRACKED = {"deploy_mode": "cluster", "yarn_track_via_rm_api": True}
MEMORY_MB = 4096


@dataclass
class YarnTask(ClusterTask):
    """``is_found``: the connection says where the resource manager is asked."""

    cluster: YarnCluster
    is_found: bool = field(default=True, init=False)

    def cluster_environment(self) -> dict[str, str]:
        extra = {"yarn_resourcemanager_webapp_address": self.cluster.url} if self.is_found else {}
        return {**self.cluster.environment, **spark_connection("yarn", extra)}

    def until_ended(self, application_id: str) -> str:
        """Until the resource manager says that it is over; the state in which it has ended."""

        def state() -> str:
            return str(self.cluster.application(application_id)["state"])

        wait_until(lambda: state() in ("FINISHED", "FAILED", "KILLED"), "it ends")
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

    def applications(self, *states: str) -> list[dict[str, Any]]:
        """This task's, as the resource manager knows them."""
        tag = self.folder.name
        return [app for app in self.cluster.applications(*states) if tag in app["applicationTags"]]

    def end(self) -> None:
        super().end()
        for app in self.applications("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING"):
            self.cluster.kill(app["id"])
