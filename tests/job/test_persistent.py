"""What may be shared between runs, and what is refused with advice."""

from __future__ import annotations

import importlib
import py_compile
import sys
from pathlib import Path
from typing import Any

import pytest
from expected_errors import fails_with

from airflow_recovery import BLOCKING, BLOCKING_PERSISTENT, Job, files, job
from airflow_recovery.attempt import job_plan, shared_code
from airflow_recovery.attempt.job_plan import plan_job
from airflow_recovery.driver.region_spec import RunFacts

FACTS = RunFacts("2026-01-01T00:00:00+00:00", None, None, {}, {})


def declared(*, source: Any = BLOCKING_PERSISTENT, vertex: Any = BLOCKING_PERSISTENT, **options: Any) -> Job:
    """raw --> airports --> daily (a sink)."""
    flights = job("flights")

    def raw(splits: Any) -> Any:
        return splits

    flights.source(splits=files("/lake/*.csv"), result=source, **options)(raw)

    @flights.vertex(result=vertex)
    def airports(raw: Any) -> Any:
        return raw

    @flights.sink
    def daily(airports: Any) -> Any:
        return airports

    return flights


def test_regions_whose_results_all_outlive_the_run_are_marked_in_the_plan():
    persistents = {
        region.name: region.persistent for region in plan_job(declared(), "tests.job:flights", FACTS).record.regions
    }
    assert persistents == {"raw": True, "airports": True, "daily": False}


def test_a_result_of_a_run_cannot_be_read_by_a_shared_one():
    with fails_with("persistent-reads-other", input="raw"):
        declared(source=BLOCKING).regions()


def test_a_shared_result_may_be_read_by_any():
    assert declared(vertex=BLOCKING).regions().names == ("raw", "airports", "daily")


def test_one_application_does_not_make_shared_and_other_results():
    flights = declared(source="PIPELINED")

    @flights.sink
    def count(raw: Any) -> Any:
        return raw

    with fails_with("persistent-beside-other", others=["count"]):
        flights.regions()


def test_a_source_that_hides_what_it_reads_cannot_be_shared_without_a_version():
    def shared(**options: Any) -> Job:
        flights = job("flights")

        def raw(spark: Any) -> Any:
            return spark.table("flights")

        flights.source(result=BLOCKING_PERSISTENT, **options)(raw)
        flights.sink(name="daily")(lambda raw: raw)
        return flights

    with fails_with("persistent-reads-undeclared"):
        shared().regions()
    assert shared(version="2026-01").regions().names == ("raw", "daily")


def test_a_vertex_that_knows_its_run_cannot_be_shared():
    flights = declared(source="PIPELINED", vertex="PIPELINED")

    @flights.vertex(result=BLOCKING_PERSISTENT)
    def dated(airports: Any, context: Any) -> Any:
        return airports

    flights._declared.pop("daily")

    @flights.sink
    def report(dated: Any) -> Any:
        return dated

    with fails_with("persistent-takes-context"):
        flights.regions()


def test_a_date_among_the_parameters_makes_results_of_their_own():
    def fingerprint(day: str) -> str | None:
        flights = job("flights")
        flights.source(name="raw", splits=files("/lake/*.csv"), result=BLOCKING_PERSISTENT, params={"day": "{{ ds }}"})(
            _dated
        )
        flights.sink(name="daily")(_daily)
        facts = RunFacts(f"{day}T00:00:00+00:00", None, None, {}, {})
        return plan_job(flights, "tests.job:flights", facts).record.regions[0].fingerprint

    assert fingerprint("2026-01-01") != fingerprint("2026-01-02")


def _dated(splits: Any, day: str) -> Any:
    return splits


def _daily(raw: Any) -> Any:
    return raw


# whose code makes it


COMPILED = """
from airflow_recovery import BLOCKING_PERSISTENT, job
rates = job("rates")
@rates.source(result=BLOCKING_PERSISTENT, version="1", spark_conf=CONF)
def table(): return FACTOR
@rates.sink(version="1")
def daily(table): return table
"""


class Team:
    """A distribution ``name`` with the package ``etl``: a module compiled from source, and a data file."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.monkeypatch = monkeypatch

    def fingerprint(
        self, name: str = "north", module: str = "jobs", data: str = "select 1", factor: int = 1, **conf: str
    ) -> str | None:
        folder = self.folder / f"{len(list(self.folder.iterdir()))}"
        package = folder / "etl"
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / "clean.sql").write_text(data)
        source = folder / "source.py"
        source.write_text(COMPILED.replace("CONF", repr(conf)).replace("FACTOR", str(factor)))
        py_compile.compile(str(source), str(package / f"{module}.pyc"), dfile="jobs.py", doraise=True)
        source.unlink()
        installed = folder / f"{name}-1.0.dist-info"
        installed.mkdir()
        (installed / "METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (installed / "top_level.txt").write_text("etl\n")
        with self.monkeypatch.context() as patched:
            patched.syspath_prepend(folder)
            for known in [name for name in sys.modules if name.partition(".")[0] == "etl"]:
                patched.delitem(sys.modules, known)
            shared_code._distribution.cache_clear()
            declared = importlib.import_module(f"etl.{module}").rates
            plan = plan_job(declared, "tests.job:rates", FACTS)
            for known in [name for name in sys.modules if name.partition(".")[0] == "etl"]:
                patched.delitem(sys.modules, known)
        shared_code._distribution.cache_clear()
        return next(region.fingerprint for region in plan.record.regions if region.persistent)


TEAMS: dict[str, dict[str, Any]] = {
    "another distribution": {"name": "south"},
    "another module": {"module": "tables"},
    "another data file": {"data": "select 2"},
    "other compiled code": {"factor": 2},
    "another setting of Spark": {"spark.sql.ansi.enabled": "false"},
}


@pytest.mark.parametrize("other", TEAMS)
def test_fault_297_one_version_of_two_teams_is_two_shared_results(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = Team(tmp_path, monkeypatch)
    assert team.fingerprint() == team.fingerprint()
    assert team.fingerprint(**TEAMS[other]) != team.fingerprint()


@pytest.mark.control
@pytest.mark.parametrize("other", [name for name in TEAMS if name != "another setting of Spark"])
def test_fault_297_control_by_its_version_alone_one_team_gets_the_others_rows(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_plan, "shared_fingerprint", lambda job, vertex, fingerprint: fingerprint)
    team = Team(tmp_path, monkeypatch)
    assert team.fingerprint(**TEAMS[other]) == team.fingerprint()
