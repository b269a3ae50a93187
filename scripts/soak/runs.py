"""The runs of the soak: started, looked for, created again, cleared by people, brought to an end."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from typing import Any, NamedTuple

from airflow_recovery.testing.local_airflow import LocalAirflow, LocalAirflowError

FIRST_DAY = date(2013, 1, 1)
WEIGHTS = {
    "chain": 4,
    "months": 3,
    "ledger": 3,
    "shell": 3,
    "tables": 3,
    "delta": 2,
    "mixed": 2,
    "batches": 2,
    "streams": 2,
    "drop_in": 2,
    "own": 1,
}
"""How often a run of a DAG is started. What needs JVMs of its own comes seldom: the machine has two cores."""
WITH_JVMS = frozenset({"mixed", "batches", "streams", "drop_in", "own"})
MOST_WITH_JVMS = 2
ENDED = frozenset({"success", "failed"})


class NothingToDisturb(Exception):
    """There is none of what would be disturbed, just now."""


class RunName(NamedTuple):
    """A run by what survives its deletion: its DAG and its logical date (``2013-01-31``)."""

    dag_id: str
    day: str

    @property
    def run_key(self) -> str:
        """As the journal has it."""
        return f"date-{self.day}T000000Z"

    @property
    def group_id(self) -> str:
        """The group whose journal it is: operators outside of groups have one of their own."""
        return "(operators)" if self.dag_id in ("drop_in", "shell", "tables", "delta") else "g"


class Known(NamedTuple):
    """What Airflow says of a run."""

    run_id: str
    state: str


@dataclass
class Runs:
    """All runs that were ever started. ``states`` is what Airflow said of them when it was asked last."""

    airflow: LocalAirflow
    random: random.Random
    most: int = 3
    names: set[RunName] = field(default_factory=set)
    states: dict[RunName, Known] = field(default_factory=dict)
    created_again: int = 0
    to_clear: set[RunName] = field(default_factory=set)
    """Those to which something was done that only a clear of the whole run finds."""
    given_up: dict[RunName, str] = field(default_factory=dict)
    _days: int = 0

    def fresh_day(self) -> str:
        """A date that no run has."""
        self._days += 1
        return (FIRST_DAY + timedelta(days=self._days)).isoformat()

    def look(self) -> None:
        """Ask Airflow for all runs. What a restored database does not know is created again, for the same date."""
        found: dict[RunName, Known] = {}
        for run in self._pages():
            if run["logical_date"]:
                found[RunName(run["dag_id"], run["logical_date"][:10])] = Known(run["dag_run_id"], run["state"])
        self.names |= found.keys()
        self.states = found
        for name in sorted(self.names - found.keys() - self.given_up.keys()):
            self.start(name)
            self.created_again += 1

    def start(self, name: RunName) -> None:
        """A run of that DAG and date, for the first time or again."""
        self.names.add(name)
        run_id = self.airflow.trigger(name.dag_id, logical_date=f"{name.day}T00:00:00Z", run_id=f"soak__{name.day}")
        self.states[name] = Known(run_id, "queued")

    def active(self) -> list[RunName]:
        """Those that have not ended, by the last look."""
        return sorted(
            name for name, known in self.states.items() if known.state not in ENDED and name not in self.given_up
        )

    def ended(self, state: str | None = None) -> list[RunName]:
        """Those that have ended, or have ended in ``state``."""
        wanted = ENDED if state is None else {state}
        return sorted(name for name, known in self.states.items() if known.state in wanted)

    def tend(self) -> None:
        """Look, and start runs where there are few."""
        self.look()
        active = self.active()
        if len(active) >= self.most:
            return
        dags = dict(WEIGHTS)
        if sum(name.dag_id in WITH_JVMS for name in active) >= MOST_WITH_JVMS:
            dags = {dag: weight for dag, weight in dags.items() if dag not in WITH_JVMS}
        (dag_id,) = self.random.choices([*dags], weights=[*dags.values()])
        self.start(RunName(dag_id, self.fresh_day()))

    def clear(self, name: RunName, *, only_failed: bool = False, tasks: Sequence[str] | None = None) -> list[str]:
        """Airflow's Clear, of what failed and what waits for it, of some tasks, or of all."""
        self.to_clear.discard(name)
        run_id = self.states[name].run_id
        return self.airflow.clear(name.dag_id, run_id, tasks, only_failed=only_failed, downstream=bool(tasks))

    def describe(self, name: RunName) -> str:
        """The tasks of a run, with the end of the log of each that failed or has not ended."""
        run_id = self.states[name].run_id
        lines = [f"{name.dag_id} {name.day}", self.airflow.describe(name.dag_id, run_id)]
        for instance in self.airflow.task_instances(name.dag_id, run_id):
            if instance["state"] in ("failed", "up_for_retry", "running", "deferred") and instance["try_number"]:
                where = (instance["task_id"], instance["try_number"], instance["map_index"])
                log = self.airflow.log(name.dag_id, run_id, *where)
                lines.append(f"--- {instance['task_id']} try {instance['try_number']}\n{log[-3000:]}")
        return "\n".join(lines)

    def settle(self, timeout_s: float, wait: Callable[[float], None], clears: int = 4) -> None:
        """Bring all runs to a good end, as people do: wait, clear what has failed, and wait again.

        A run that fails once more after ``clears`` clears, or has not ended ``timeout_s`` after the last one, is given
        up: it is in `given_up`, with its tasks' logs.
        """
        for round_ in range(clears + 1):
            waited = 0.0
            self.look()
            while self.active() and waited < timeout_s:
                wait(2.0)
                waited += 2.0
                self.look()
            for name in self.active():
                self._give_up(name, f"has not ended in {timeout_s:.0f} s")
            failed = [name for name in self.ended("failed") if name not in self.given_up]
            again = [name for name in self.to_clear if name not in self.given_up and name not in failed]
            if not failed and not again:
                return
            for name in failed:
                if round_ == clears:
                    self._give_up(name, f"has failed again after {clears} clears")
                else:
                    self.clear(name, only_failed=name not in self.to_clear)
            for name in again:
                self.clear(name)

    def _give_up(self, name: RunName, why: str) -> None:
        try:
            story = self.describe(name)
        except LocalAirflowError as error:
            story = str(error)
        self.given_up[name] = f"{why}\n{story}"

    def _pages(self) -> Iterator[dict[str, Any]]:
        seen = 0
        while True:
            page = self.airflow.api("GET", f"/dags/~/dagRuns?limit=100&offset={seen}&order_by=id")
            yield from page["dag_runs"]
            seen += len(page["dag_runs"])
            if seen >= page["total_entries"] or not page["dag_runs"]:
                return
