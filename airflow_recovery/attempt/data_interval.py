"""A run that was triggered by hand may have another data interval than the date's run: it must not replace its results.

With a timetable that has data intervals, Airflow gives a triggered run the interval *before* its logical date.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_recovery.attempt.run import Run
from airflow_recovery.errors import ConfigurationError
from airflow_recovery.model.dag_run import DagRunRecord
from airflow_recovery.model.records import Outcome


def check_data_interval(run: Run, region: str, finishes: Iterable[Outcome | None]) -> None:
    """Before ``region`` runs or is reset: is this the run of the date that ``finishes`` were made for?

    ``finishes`` are those that count now: the region's own, and those of its inputs. A run whose interval the timetable
    has chosen may replace any. Raises `ConfigurationError` if this run has another interval and all else is equal.
    """
    if run.dag_run is None or run.dag_run_is_by_timetable:
        return
    known = [finish for finish in finishes if finish is not None and finish.dag_run is not None]
    now = run.dag_run_record(region) if known else None
    finish = None if now is None else of_another_interval(now, known)
    if now is not None and finish is not None and finish.dag_run is not None:
        raise ConfigurationError(
            _refusal(run, region, finish, finish.dag_run, now), code="interval-of-other-run", region=region
        )


def of_another_interval(now: DagRunRecord, finishes: Iterable[Outcome]) -> Outcome | None:
    """The first of ``finishes`` whose DAG run differs from ``now`` by its data interval alone; `None`: there is none.

    Pure.
    """
    made_for = ((finish, finish.dag_run) for finish in finishes)
    return next((finish for finish, then in made_for if then is not None and now.differs_by_interval_alone(then)), None)


def _refusal(run: Run, region: str, finish: Outcome, then: DagRunRecord, now: DagRunRecord) -> str:
    dag_id, date = run.journal.identity.dag_id, now.logical_date or now.run_id
    start, end = then.interval or ("", "")
    does = "replace" if finish.region == region else "be joined with"
    return (
        f"{region} must run, and would {does} {finish.region}@{finish.attempt}, which run {then.run_id} made. Expected "
        f"that run's data interval, from {start} to {end}; found {now.run_id} with the interval from "
        f"{now.data_interval_start} to {now.data_interval_end}. Nothing was started. Delete this DAG run, and "
        f"run the date by a backfill: airflow backfill create --dag-id {dag_id} --from-date {date} --to-date {date}. "
        f"If the new interval is meant, first run airflow recovery restart {dag_id} {date} {finish.region}. "
        "Other ways are in docs/protocol.md#which-run-it-is."
    )
