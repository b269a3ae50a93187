"""``commit=`` of a drop-in operator: refused where it can't be honoured, else committed once, whoever dies when."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psycopg2
import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from expected_errors import fails_with
from paths import CODE
from pyiceberg.catalog import load_catalog
from tries import journal_in, run_try, state_in, submissions

from airflow_recovery import BLOCKING, Job
from airflow_recovery.attempt import commit, region_task
from airflow_recovery.attempt.abandon import look_at_abandon
from airflow_recovery.attempt.confirm import confirm_dead
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.errors import ConfigurationError, SinkNotApplied
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.sinks import open_committers
from airflow_recovery.hooks.stores import open_stores
from airflow_recovery.model.keys import OPERATORS_GROUP
from airflow_recovery.operators import RecoverableSparkSubmitOperator, SparkJobTaskGroup, task_group
from airflow_recovery.sinks import CommittingSink, DeltaTable, IcebergTable, PostgresTable, ProbedSink
from airflow_recovery.task.dag_operators import plan_of_dag
from airflow_recovery.testing.patience import HANG_S

WRITER = str(CODE / "parquet_writer.py")
PROBED = ProbedSink(apply="dagjobs.committing:append_line", is_applied="dagjobs.committing:has_line")


def operator(commit: object, *arguments: str, task_id: str = "t", **given: Any) -> RecoverableSparkSubmitOperator:
    with DAG("d", schedule=None, start_date=datetime(2024, 1, 1, tzinfo=timezone.utc)):
        return RecoverableSparkSubmitOperator(
            **{
                "task_id": task_id,
                "application": WRITER,
                "outputs": ["delays"],
                "application_args": ["--out", "{output:delays}", *arguments],
                "commit": commit,
                **given,
            }
        )


# --- declaration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"commit": "mart.delays"}, "commit-no-sink"),
        (
            {"outputs": ["delays", "b"], "application_args": ["{output:delays}{output:b}"]},
            "commit-of-several-outputs",
        ),
        ({"outputs": {"delays": "s3://lake/d/"}}, "commit-with-uri"),
    ],
)
def test_what_a_sink_can_not_take_over_is_refused_with_advice(given: dict[str, Any], code: str) -> None:
    with fails_with(code):
        operator(**{"commit": PROBED, **given})


def test_a_committed_output_has_no_other_reader() -> None:
    clean = operator(PROBED, task_id="clean")
    with clean.get_dag(), fails_with("input-is-committed", task="report", input="in", producer="clean"):
        RecoverableSparkSubmitOperator(
            task_id="report",
            application=WRITER,
            outputs=["out"],
            inputs={"in": clean.result("delays")},
            application_args=["{output:out}"],
        )


WHOLE = DeltaTable(uri="s3://lake/t", mode="replace")
BY_RUN = DeltaTable(uri="file:///lake/t", mode="replace", run_column="run_key")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (WHOLE, WHOLE),
        (WHOLE, DeltaTable(uri="s3a://lake/t/")),
        (DeltaTable(uri="s3://lake/t", mode="replace", keeps="latest"), WHOLE),
        (IcebergTable(uri="iceberg://lake/db.t", mode="replace"), IcebergTable(uri="iceberg://lake/db.t")),
        (PostgresTable(conn_id="w", table="t"), PostgresTable(conn_id="w", table="t", mode="replace")),
    ],
)
def test_fault_222_two_tasks_of_a_dag_that_would_delete_each_others_rows_are_refused(
    first: CommittingSink, second: CommittingSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    dag = operator(first, task_id="a").get_dag()
    with dag, fails_with("sinks-replace-each-other", where="b", other="a"):
        added(second)
    dag = operator(first, task_id="b").get_dag()
    declared = loading("twice", second)
    monkeypatch.setattr(task_group, "load_job", lambda job: declared)
    with dag, fails_with("sinks-replace-each-other", where="g.load", other="b"):
        SparkJobTaskGroup("g", job="jobs:twice")
    with DAG("e", schedule=None) as dag:
        SparkJobTaskGroup("g", job="jobs:twice")
        with fails_with("sinks-replace-each-other", where="b", other="g.load"):
            added(first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (BY_RUN, BY_RUN),
        (BY_RUN, DeltaTable(uri="/lake/t")),
        (PostgresTable(conn_id="w", table="t"), PostgresTable(conn_id="w", table="t")),
        (WHOLE, DeltaTable(uri="s3://lake/other", mode="replace")),
        (PROBED, PROBED),
    ],
)
def test_two_tasks_of_a_dag_may_have_rows_of_their_own_in_one_table(
    first: CommittingSink, second: CommittingSink
) -> None:
    with operator(first, task_id="a").get_dag():
        added(second)


@pytest.mark.parametrize("place", ["delta+s3://lake/t", "s3://lake/t/part", "delta+s3a://lake/t/"])
def test_fault_222_a_fixed_output_is_not_the_table_of_a_sink(place: str) -> None:
    def writes() -> None:
        RecoverableSparkSubmitOperator(
            task_id="b",
            application=WRITER,
            outputs={"out": place},
            application_args=["{output:out}{token:out}"] if place.startswith("delta") else ["{output:out}"],
            idempotent=True,
        )

    with (
        operator(WHOLE, task_id="a").get_dag(),
        fails_with("outputs-overlap", other_output="commit="),
    ):
        writes()
    with DAG("d", schedule=None):
        writes()
        with fails_with("outputs-overlap", output="commit=", other_task="b", other_output="out"):
            added(WHOLE, "a")


def added(commit: CommittingSink, task_id: str = "b") -> None:
    """One more operator in the DAG of the context."""
    RecoverableSparkSubmitOperator(
        task_id=task_id, application=WRITER, outputs=["delays"], application_args=["{output:delays}"], commit=commit
    )


def loading(name: str, sink: CommittingSink) -> Job:
    job = Job(name)
    job.source(name="rows", result=BLOCKING)(lambda spark: spark.range(1))
    job.sink(name="load", inputs={"rows": "rows"}, commit=sink)(lambda rows: rows)
    return job


def fingerprint_of(task: RecoverableSparkSubmitOperator) -> str:
    return task.fingerprint()


@pytest.mark.parametrize(
    "sink", [PostgresTable(conn_id="w", table="t"), DeltaTable(uri="s3://lake/t", mode="replace"), PROBED]
)
def test_every_kind_goes_into_the_plan_and_into_the_fingerprint(sink: CommittingSink) -> None:
    task = operator(sink)
    (region,) = plan_of_dag(task.get_dag()).regions
    assert region.commit == task.drop_in.commit_spec
    assert region.commit is not None
    assert (region.commit.result, region.commit.kind, region.commit.mode) == ("t.delays", sink.kind, sink.mode)
    assert fingerprint_of(task) != fingerprint_of(operator(None))


# --- two functions of a user's ----------------------------------------------------------------------------------------


@pytest.fixture
def target(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = recovery / "target"
    monkeypatch.setenv("COMMITTING_TARGET", str(path))
    return path


def commits(target: Path) -> list[str]:
    return target.read_text().splitlines() if target.exists() else []


@pytest.mark.slow
def test_a_try_commits_before_it_succeeds_and_the_next_one_keeps_it(target: Path, submitted: Path) -> None:
    assert run_try(operator(PROBED))["decision"] == "ran"
    assert run_try(operator(PROBED), try_number=2)["decision"] == "kept"
    (line,) = commits(target)
    assert line.endswith(" t.delays")
    assert len(submissions(submitted)) == 1


@pytest.mark.slow
def test_what_was_certainly_not_done_is_done_by_the_next_try_without_spark(target: Path, submitted: Path) -> None:
    target.with_suffix(".refuses").touch()
    with pytest.raises(SinkNotApplied, match="closed"):
        run_try(operator(PROBED))
    target.with_suffix(".refuses").unlink()
    assert run_try(operator(PROBED), try_number=2)["decision"] == "kept"
    assert len(commits(target)) == len(submissions(submitted)) == 1


def test_case_15_in_doubt_a_person_confirms_and_it_goes_on(target: Path, recovery: Path, submitted: Path) -> None:
    target.with_suffix(".breaks").touch()
    with fails_with("sink-never-answers"):
        run_try(operator(PROBED))
    target.with_suffix(".breaks").unlink()
    with fails_with("writer-may-commit", by=AirflowFailException):
        run_try(operator(PROBED), try_number=2)
    assert commits(target) == []
    confirm_dead(journal_in(recovery, OPERATORS_GROUP), state_in(recovery, OPERATORS_GROUP, "t"), "t", "ann", "looked")
    assert run_try(operator(PROBED), try_number=3)["decision"] == "kept"
    assert len(commits(target)) == len(submissions(submitted)) == 1


def test_without_recovery_such_an_operator_is_refused(target: Path, submitted: Path) -> None:
    off = {"execution.batch.job-recovery.enabled": False}
    with fails_with("commit-without-recovery", by=(ConfigurationError, AirflowFailException), region="t"):
        run_try(operator(PROBED, job_recovery=off))
    assert submissions(submitted) == []


# --- a target that forgets --------------------------------------------------------------------------------------------


class IcebergLake:
    """``db.delays``, whose snapshots are expired."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        properties = {"type": "sql", "uri": f"sqlite:///{folder}/c.db", "warehouse": f"file://{folder}/w"}
        connection = json.dumps({"conn_type": "generic", "extra": json.dumps(properties)})
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", connection)
        self.catalog = load_catalog("lake", **properties)
        self.catalog.create_namespace("db")
        self.columns = pa.schema([("carrier", pa.string()), ("delay", pa.float64())])
        self.catalog.create_table("db.delays", self.columns)

    @property
    def table(self) -> Any:
        return self.catalog.load_table("db.delays")

    @property
    def rows(self) -> int:
        return int(self.table.scan().to_arrow().num_rows)

    def others_commit_and_the_rest_expires(self) -> None:
        held = [snapshot.snapshot_id for snapshot in self.table.snapshots()]
        self.table.append(self.columns.empty_table())
        self.table.maintenance.expire_snapshots().by_ids(held).commit()


@pytest.fixture
def iceberg(recovery: Path, monkeypatch: pytest.MonkeyPatch) -> IcebergLake:
    return IcebergLake(recovery, monkeypatch)


ICEBERG = IcebergTable(uri="iceberg://lake/db.delays")
LINEAGE = "d/date-2024-01-02T000000Z/~28operators~29/t"


@pytest.mark.slow
def test_fault_178_rows_whose_token_has_expired_are_not_appended_twice(iceberg: IcebergLake, submitted: Path) -> None:
    run_try(operator(ICEBERG))
    once = iceberg.rows
    iceberg.others_commit_and_the_rest_expires()
    assert run_try(operator(ICEBERG), try_number=2)["decision"] == "kept"
    for turn in (3, 4):
        with pytest.raises(
            AirflowFailException, match="was given attempt 1 and has forgotten what was committed before"
        ):
            run_try(operator(ICEBERG, "--carrier", "B6"), try_number=turn)
    assert iceberg.rows == once > 0
    taken_out = {"airflow-recovery.lineage": LINEAGE, "airflow-recovery.attempt": "0"}
    iceberg.table.delete("carrier is not null or carrier is null", snapshot_properties=taken_out)
    assert run_try(operator(ICEBERG, "--carrier", "B6"), try_number=5)["decision"] == "ran"
    assert iceberg.rows == once


@pytest.mark.slow
def test_fault_178_control_nobody_asks_what_the_table_has_forgotten_and_the_rows_are_there_twice(
    iceberg: IcebergLake, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit, "forgotten_before", lambda *given: None)
    run_try(operator(ICEBERG))
    once = iceberg.rows
    iceberg.others_commit_and_the_rest_expires()
    run_try(operator(ICEBERG, "--carrier", "B6"), try_number=2)
    assert iceberg.rows == 2 * once


@pytest.mark.slow
def test_a_person_takes_a_token_out_of_an_iceberg_table_with_its_rows(iceberg: IcebergLake, submitted: Path) -> None:
    run_try(operator(ICEBERG))
    once = iceberg.rows
    with pytest.raises(AirflowFailException, match="its sink appends and holds attempt 1 already"):
        run_try(operator(ICEBERG, "--carrier", "B6"), try_number=2)
    taken_out = {"airflow-recovery.lineage": LINEAGE, "airflow-recovery.attempt": "0"}
    iceberg.table.delete("carrier is not null or carrier is null", snapshot_properties=taken_out)
    assert run_try(operator(ICEBERG, "--carrier", "B6"), try_number=3)["decision"] == "ran"
    assert iceberg.rows == once


def test_fault_178_a_commit_that_may_have_been_forgotten_is_in_doubt(
    iceberg: IcebergLake, submitted: Path, recovery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was made, its task died, and its snapshot was expired before anybody asked."""
    with monkeypatch.context() as dying:
        dying.setattr(commit._Commit, "_end", _dies)
        with pytest.raises(RuntimeError, match="died after the commit"):
            run_try(operator(ICEBERG))
    once = iceberg.rows
    iceberg.others_commit_and_the_rest_expires()
    with fails_with("sink-has-forgotten", by=AirflowFailException):
        run_try(operator(ICEBERG), try_number=2)
    assert iceberg.rows == once > 0
    state, journal = state_in(recovery, OPERATORS_GROUP, "t"), journal_in(recovery, OPERATORS_GROUP)
    confirm_dead(journal, state, "t", "ann", "looked")
    state = state_in(recovery, OPERATORS_GROUP, "t")
    monkeypatch.setenv("AIRFLOW__RECOVERY__ALLOWED_LOCATIONS", ICEBERG.uri)  # a command has no DAG file
    open_committer = open_committers(open_stores(RecoverySettings.load()))
    with fails_with("target-forgot-what-was-before"):
        look_at_abandon(journal, state, "t", open_committer)
    assert look_at_abandon(journal, state, "t", open_committer, not_applied=True).target_says == "not asked"


def _dies(*given: Any) -> None:
    raise RuntimeError("died after the commit")


# --- a real table -----------------------------------------------------------------------------------------------------


class Table:
    """``delays`` in a database of the test's own."""

    def __init__(self, address: dict[str, str | int]) -> None:
        self._address = address

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        connection = psycopg2.connect(**self._address)
        try:
            with connection, connection.cursor() as cursor:
                cursor.execute(statement)
                return cursor.fetchall() if cursor.description else []
        finally:
            connection.close()

    def carriers(self) -> list[str]:
        return [carrier for (carrier,) in self.ask("SELECT carrier FROM delays ORDER BY carrier")]


@pytest.fixture
def table(postgres: dict[str, str | int], recovery: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    found = Table(postgres)
    found.ask(
        "DROP TABLE IF EXISTS delays, airflow_recovery_commits; "
        "CREATE TABLE delays (carrier text, delay double precision)"
    )
    connection = {
        "conn_type": "postgres", "host": postgres["host"], "port": postgres["port"], "schema": postgres["dbname"],
        "login": postgres["user"], "password": postgres["password"],
    }  # fmt: skip
    monkeypatch.setenv("AIRFLOW_CONN_WAREHOUSE", json.dumps(connection))
    return found


class Killed(BaseException):
    """As if the process had been killed: nobody catches it."""


def kill_after_the_finish(task: RecoverableSparkSubmitOperator, monkeypatch: pytest.MonkeyPatch) -> None:
    def killed(*given: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(region_task, "commit_own", killed)
        with pytest.raises(Killed):
            run_try(task)


@pytest.mark.parametrize("mode", ["append", "replace"])
def test_fault_12_killed_between_finish_and_commit_the_next_try_commits_once_without_spark(
    table: Table, submitted: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    sink = PostgresTable(conn_id="warehouse", table="delays", mode=mode)
    kill_after_the_finish(operator(sink), monkeypatch)
    assert table.carriers() == []
    for number in (2, 3):
        assert run_try(operator(sink), try_number=number)["decision"] == "kept"
        assert table.carriers() == ["AA", "AA"]
    assert len(submissions(submitted)) == 1


def test_fault_12_control_without_the_token_they_are_there_twice(
    table: Table, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow_recovery.sinks.postgres import _PostgresCommitter

    sink = PostgresTable(conn_id="warehouse", table="delays")
    real = _PostgresCommitter.commit
    monkeypatch.setattr(_PostgresCommitter, "_held", lambda self, cursor, token: None)
    monkeypatch.setattr(_PostgresCommitter, "_take", lambda self, cursor, token: True)
    monkeypatch.setattr(region_task, "keep_rows", lambda *given: "")

    def killed_after(self: Any, committable: Any) -> str:
        real(self, committable)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(_PostgresCommitter, "commit", killed_after)
        with pytest.raises(Killed):
            run_try(operator(sink))
    run_try(operator(sink), try_number=2)
    assert table.carriers() == ["AA"] * 4


@pytest.mark.slow
def test_other_code_replaces_its_rows_and_never_appends_a_second_time(table: Table, submitted: Path) -> None:
    replace = PostgresTable(conn_id="warehouse", table="delays", mode="replace")
    run_try(operator(replace))
    run_try(operator(replace, "--carrier", "UA"), try_number=2)
    assert table.carriers() == ["UA", "UA"]
    table.ask("TRUNCATE delays, airflow_recovery_commits")
    append = PostgresTable(conn_id="warehouse", table="delays")
    run_try(operator(append, task_id="added"))
    with pytest.raises(AirflowFailException, match="its sink appends and holds attempt 1 already"):
        run_try(operator(append, "--carrier", "DL", task_id="added"), try_number=2)
    assert table.carriers() == ["AA", "AA"]


@pytest.mark.parametrize(("layout", "found"), [("partitioned", "day=1/part-0.parquet"), ("csv", "part-0.csv")])
def test_rows_that_the_sink_would_not_see_whole_are_not_committed(
    table: Table, recovery: Path, submitted: Path, layout: str, found: str
) -> None:
    task = operator(PostgresTable(conn_id="warehouse", table="delays"), "--layout", layout)
    with fails_with("committed-files-unfit", by=AirflowFailException, where="t@1", found=found):
        run_try(task)
    assert table.carriers() == []
    assert not state_in(recovery, OPERATORS_GROUP, "t").of("t").attempts[1].is_finished


# --- refused for good -------------------------------------------------------------------------------------------------


@pytest.fixture
def strict(table: Table) -> Table:
    """It takes no rows of carrier XX."""
    table.ask("ALTER TABLE delays ADD CONSTRAINT no_xx CHECK (carrier <> 'XX')")
    return table


@pytest.mark.slow
def test_fault_97_other_code_gets_out_of_a_commit_that_is_refused_for_good(strict: Table, submitted: Path) -> None:
    sink = PostgresTable(conn_id="warehouse", table="delays", mode="replace")
    for number in (1, 2):
        with pytest.raises(AirflowFailException, match='violates check constraint "no_xx"'):
            run_try(operator(sink, "--carrier", "XX"), try_number=number)
    assert len(submissions(submitted)) == 1
    run_try(operator(sink, "--carrier", "UA"), try_number=3)
    assert strict.carriers() == ["UA", "UA"]


def test_control_where_it_is_not_asked_whether_it_would_run_it_is_blocked_for_ever(
    strict: Table, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(region_task.RegionTask, "_why_it_would_run", lambda self, state, externals: None)
    sink = PostgresTable(conn_id="warehouse", table="delays", mode="replace")
    for number, carrier in enumerate(["XX", "UA", "UA"], start=1):
        with pytest.raises(AirflowFailException, match='violates check constraint "no_xx"'):
            run_try(operator(sink, "--carrier", carrier), try_number=number)
    assert strict.carriers() == []


@pytest.mark.airflow
def test_fault_97_what_is_appended_is_abandoned_by_a_person(strict: Table, recovery: Path, submitted: Path) -> None:
    """By Airflow's own command line, which asks the target through the connection."""
    sink = PostgresTable(conn_id="warehouse", table="delays")
    for number, carrier in enumerate(["XX", "UA"], start=1):
        with pytest.raises(AirflowFailException, match=r"airflow recovery abandon d .* t --group") as error:
            run_try(operator(sink, "--carrier", carrier), try_number=number)
    command = shlex.split(str(error.value).rpartition("airflow recovery ")[2])

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "AIRFLOW_HOME": str(recovery), "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////no/db"}
        words = [sys.executable, "-m", "airflow", "recovery", *arguments]
        return subprocess.run(words, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)

    assert call(*command).returncode == ExitCode.REFUSED  # of whoever might still commit nothing is known
    assert call("confirm", *command[1:]).returncode == ExitCode.CLEAR_BY_HAND
    looked = call(*command, "--dry-run")
    assert looked.returncode == ExitCode.DONE, looked.stderr
    assert "the target says: NOT_APPLIED" in looked.stdout
    done = call(*command)
    assert done.returncode == ExitCode.CLEAR_BY_HAND, done.stderr
    assert run_try(operator(sink, "--carrier", "UA"), try_number=3)["decision"] == "ran"
    assert strict.carriers() == ["UA", "UA"]
    again = call(*command)
    assert again.returncode == ExitCode.NOT_FOUND
    assert "there is nothing to abandon" in again.stderr


@pytest.mark.slow
def test_fault_100_a_target_that_the_code_does_not_declare_is_left_alone(
    table: Table, recovery: Path, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may write the journal writes an outcome that names a table of his choice."""
    table.ask("CREATE TABLE IF NOT EXISTS payroll (carrier text, delay double precision); DELETE FROM payroll")
    other = PostgresTable(conn_id="warehouse", table="payroll", mode="replace")
    kill_after_the_finish(operator(other), monkeypatch)
    sink = PostgresTable(conn_id="warehouse", table="delays", mode="replace")
    with pytest.raises(
        AirflowFailException, match=r"expected its sink to be one that this DAG's code declares.*payroll"
    ):
        run_try(operator(sink), try_number=2)
    assert table.ask("SELECT count(*) FROM payroll") == [(0,)]
    # The control: where what the outcome says is believed.
    with monkeypatch.context() as patch:
        patch.setattr(commit, "declared", lambda prepared, specs, name, where: prepared)
        run_try(operator(sink), try_number=3)
    assert table.ask("SELECT count(*) FROM payroll") == [(2,)]


@pytest.mark.slow
def test_of_the_declared_target_it_is_todays_mode_that_counts(
    table: Table, submitted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_after_the_finish(operator(PostgresTable(conn_id="warehouse", table="delays")), monkeypatch)
    table.ask("INSERT INTO delays VALUES ('B6', 1)")
    run_try(operator(PostgresTable(conn_id="warehouse", table="delays", mode="replace")), try_number=2)
    assert table.carriers() == ["AA", "AA"]
