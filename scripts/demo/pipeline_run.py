"""One run of one of the demo's DAGs: its tasks while it goes on, and its journal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from jobs.flights import HALVES

from airflow_recovery.journal.layout import run_key
from airflow_recovery.model.records import RunIdentity
from scripts.demo.journal_view import JournalView
from scripts.demo.local_pipeline import LocalPipeline

LOOK_EVERY_S = 0.5
"""Each look costs the API server some of the time that the run needs."""
SHOWN_STATES = ("running", "success", "failed", "up_for_retry", "upstream_failed")

States = Mapping[str, tuple[str, int]]
"""State and try by region, or subtask of one (and ``publish``, ``start_spark``, ``stop_spark``)."""


class DemoFailed(Exception):
    """A check of the demo failed. The message says which."""


class PipelineRun:
    """Started when it is made, for a logical date if there is one. ``group_id`` is a part of its journal's identity."""

    def __init__(
        self,
        pipeline: LocalPipeline,
        dag_id: str,
        group_id: str,
        logical_date: str | None,
        conf: Mapping[str, Any] | None = None,
        *,
        name: str = "",
    ) -> None:
        self.pipeline = pipeline
        self.dag_id = dag_id
        self.group_id = group_id
        self._airflow = pipeline.airflow
        run_id = name or f"demo-{(logical_date or '').partition('T')[0]}"  # fit for a URL as it is
        self.run_id = self._airflow.trigger(dag_id, logical_date=logical_date, conf=conf, run_id=run_id)
        self._shown: dict[str, tuple[str, int]] = {}
        self._begun = time.monotonic()
        self._looked = -LOOK_EVERY_S

    @property
    def seconds(self) -> float:
        """Seconds since it was triggered."""
        return time.monotonic() - self._begun

    @cached_property
    def identity(self) -> RunIdentity:
        """Which journal belongs to it."""
        run = self._airflow.api("GET", f"/dags/{self.dag_id}/dagRuns/{self.run_id}")
        key = run_key(logical_date=_iso(run["logical_date"]), partition_key=None, run_id=self.run_id)
        return RunIdentity(self.dag_id, key, self.group_id)

    def journal(self) -> JournalView:
        """What its journal says now."""
        return JournalView(self.pipeline.journal, self.identity)

    def states(self) -> States:
        """State and try of every task."""
        return {
            self._name_of(instance["task_id"], instance["map_index"]): (
                instance["state"] or "waiting",
                int(instance["try_number"]),
            )
            for instance in self._airflow.task_instances(self.dag_id, self.run_id)
        }

    def until(self, done: Callable[[States], bool], what: str = "its end") -> None:
        """Poll until ``done(states)``, and print each change of a task once. ``what`` names the state waited for.

        Raises `DemoFailed` if a task fails permanently, and `LocalAirflowError` with the states of all tasks if the run
        hangs.
        """

        def poll() -> bool:
            if time.monotonic() - self._looked < LOOK_EVERY_S:
                return False
            states = self.states()
            self._looked = time.monotonic()
            for name, now in sorted(states.items()):
                if self._shown.get(name) != now and now[0] in SHOWN_STATES:
                    self._shown[name] = now
                    print(f"  {self.seconds:6.1f} s  {name:24} try {now[1]}: {now[0]}", flush=True)
            failed = [name for name, (state, _) in states.items() if state in ("failed", "upstream_failed")]
            if failed:
                raise DemoFailed(f"failed for good: {', '.join(failed)}\nlogs: {self._airflow.home / 'logs'}")
            return done(states)

        self._airflow.wait_until(
            poll, f"{what} of run {self.run_id}", lambda: self._airflow.describe(self.dag_id, self.run_id)
        )

    def to_the_end(self) -> None:
        """Wait for its success. Raises as `until`."""

        def has_ended(states: States) -> bool:
            return all(state == "success" for state, _ in states.values()) and self.airflow_state in (
                "success",
                "failed",
            )

        self.until(has_ended)
        if self.airflow_state != "success":
            raise DemoFailed(f"run {self.run_id} failed:\n{self._airflow.describe(self.dag_id, self.run_id)}")
        print(f"  success after {self.seconds:.0f} s", flush=True)

    @property
    def airflow_state(self) -> str:
        """The run's state, as Airflow has it."""
        return self._airflow.run_state(self.dag_id, self.run_id)

    def _name_of(self, task_id: str, map_index: int) -> str:
        """As the journal names it; the only subtasks of the demo are halves of the year."""
        region = task_id.removeprefix(f"{self.group_id}.")
        return region if map_index < 0 else f"{region}[{HALVES[map_index]}]"


def _iso(moment: str | None) -> str | None:
    """As the task sees it: the API says ``Z``, Python's ``isoformat`` says ``+00:00``."""
    return None if moment is None else moment.replace("Z", "+00:00")
