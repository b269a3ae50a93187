"""Versions of one bundle in folders, and runs of them in real journals, for ``impact``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorded_world import RecordedWorld

from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.versions import open_version, reports_of
from airflow_recovery.model.codec import from_json
from airflow_recovery.model.records import PlanRecord

KEY = "date-2026-01-01T000000Z"
SINCE = ("--since", "2026-01-01", "--until", "2026-01-05")
JOB = """
from airflow_recovery import BLOCKING, job
from jobs.rows import tidy

flights = job("flights", packages=["jobs"])


@flights.source(params={"day": "{{ ds }}"})
def raw(spark, day):
    return spark.range(10)


@flights.vertex(result=BLOCKING, params={"least": 3})
def clean(raw, least):
    return tidy(raw, least)


@flights.vertex(result=BLOCKING)
def by_route(clean):
    return clean.groupBy("id").count()


@flights.sink(version="1")
def busiest(by_route):
    return by_route.limit(3)
"""
ROWS = """
def tidy(rows, least):
    return normalise(rows).where(rows.id > least)


def normalise(rows):
    # the ids
    return rows.distinct()
"""


class DeclaredWorld(RecordedWorld):
    """A run of a plan that a version of real code has made."""

    declared: PlanRecord

    @property
    def plan(self) -> PlanRecord:
        return self.declared

    def results_of(self, region: str) -> tuple[str, ...]:
        return self.declared.by_name[region].results

    def mode(self, region: str) -> Any:
        modes = dict(self.declared.by_name[region].determinism)
        return modes.get(region, super().mode(region))

    def deploy(self, plan: PlanRecord) -> None:
        """From now on every task has that plan. The DAG run is made anew."""
        self.declared = plan
        self.upstream = {region.name: tuple(region.inputs) for region in plan.regions}
        self.new_airflow()


@dataclass
class Bundle:
    """Versions of one bundle in folders, and runs of them."""

    folder: Path
    recorded: Any

    def write(self, name: str, *changes: tuple[str, str], files: dict[str, str] | None = None) -> str:
        """Version ``name``: `JOB` and `ROWS` with these texts replaced, each of which has to be there."""
        texts = {"jobs/flights.py": JOB, "jobs/rows.py": ROWS, **(files or {})}
        for old, new in changes:
            assert sum(text.count(old) for text in texts.values()) == 1, old
            texts = {path: text.replace(old, new) for path, text in texts.items()}
        for path, text in texts.items():
            target = self.folder / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text)
        (self.folder / name / "jobs" / "__init__.py").write_text("")
        return str(self.folder / name)

    def plan(self, version: str, key: str = KEY) -> PlanRecord:
        """What the code of that folder plans for a run."""
        run = {"dag_id": "flights", "run_key": key, "group_id": "g", "job": "jobs.flights:flights", "keys": {}}
        with open_version(version, None, ()) as opened:
            (report,) = reports_of([opened], [run])
        (planned,) = report["plans"]
        assert planned["why_not"] == ""
        return from_json(PlanRecord, planned["plan"])

    def ran(self, version: str, key: str = KEY) -> DeclaredWorld:
        """A finished run of that version."""
        plan = self.plan(version, key)
        DeclaredWorld.declared = plan
        world = self.recorded.world("flights", key, "g", of=DeclaredWorld)
        world.deploy(plan)
        world.until_green()
        return world

    def impact(self, old: str, new: str, *options: str) -> tuple[int, str]:
        return self.recorded.call("impact", "--from", old, "--to", new, *SINCE, *options)

    def answer(self, old: str, new: str, *options: str) -> dict[str, Any]:
        code, said = self.impact(old, new, "--json", *options)
        assert code in (ExitCode.DONE, ExitCode.OVER_LIMIT), (said, self.recorded.errors)
        return json.loads(said)


def effects(answer: dict[str, Any], key: str = KEY) -> dict[str, str]:
    (found,) = [run for job in answer["jobs"] for run in job["runs"] if run["run_key"] == key]
    return {region["name"]: region["effect"] for region in found["regions"]}


def changes(answer: dict[str, Any]) -> dict[str, tuple[str, str]]:
    return {
        f"region {change['name']}" if change["is_region"] else change["name"]: (
            change["what"],
            "; ".join(change["why"]),
        )
        for job in answer["jobs"]
        for change in job["changes"]
    }
