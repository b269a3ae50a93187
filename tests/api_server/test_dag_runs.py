"""What is asked of Airflow's own tables, on a database in memory: the runs, and the audit log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest
from airflow.models import Log
from airflow.models.dagrun import DagRun
from sqlalchemy import create_engine, insert, select
from sqlalchemy.orm import Session

from airflow_recovery.api_server.audit import MAX_EXTRA_CHARS, audit
from airflow_recovery.api_server.compare_and_clear import RunMissing
from airflow_recovery.api_server.dag_runs import RunRow, find_dag_run, newest_dag_runs

DATE = datetime(2026, 1, 1, tzinfo=timezone.utc)
AFTER = "2026-01-01T00:00:00+00:00"


@pytest.fixture
def session() -> Iterator[Session]:
    engine = create_engine("sqlite://")
    for table in (DagRun.__table__, Log.__table__):
        table.create(engine)
    with Session(engine) as found:
        yield found
    engine.dispose()


def add(session: Session, run_id: str, *, date: datetime | None = None, partition: str | None = None) -> None:
    row = {"dag_id": "d", "run_id": run_id, "logical_date": date, "partition_key": partition, "run_after": DATE}
    session.execute(insert(DagRun).values(**row, state="failed", run_type="manual", log_template_id=1))
    session.commit()


def test_the_journal_of_a_run_is_that_of_its_date_its_partition_or_its_id(session: Session) -> None:
    add(session, "a", date=DATE)
    add(session, "b", partition="2026-01")
    add(session, "c+1")

    assert newest_dag_runs(session, "d", 2) == [
        RunRow("c+1", "run-c+1", "failed", AFTER),
        RunRow("b", "partition-2026-01", "failed", AFTER),
    ]
    assert find_dag_run(session, "d", "a") == RunRow("a", "date-2026-01-01T000000Z", "failed", AFTER)
    with pytest.raises(RunMissing, match="has no run 'a'"):
        find_dag_run(session, "other", "a")


def test_an_action_is_in_the_audit_log_for_good_and_never_too_long(session: Session) -> None:
    audit(session, "ann", "airflow_recovery.pin", "d", "a", {"region": "raw"})
    audit(session, "ann", "airflow_recovery.pin", "d", "a", {"why": "x" * 2 * MAX_EXTRA_CHARS})
    session.rollback()

    short, long = session.scalars(select(Log).order_by(Log.id))
    assert (short.owner, short.event, short.dag_id, short.run_id) == ("ann", "airflow_recovery.pin", "d", "a")
    assert json.loads(short.extra) == {"region": "raw"}
    assert len(json.loads(long.extra)["cut"]) == MAX_EXTRA_CHARS
