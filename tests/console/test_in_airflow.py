"""``airflow recovery``: the commands as Airflow's command line loads them, without a database."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, insert, select
from sqlalchemy.orm import Session

from airflow_recovery.attempt.rebuild import RebuildRequest
from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult, Observation, TaskTry
from airflow_recovery.console.exit_codes import ExitCode
from airflow_recovery.console.in_airflow import AirflowDeployment
from airflow_recovery.console.main import subcommands
from airflow_recovery.console.user import user_name
from airflow_recovery.get_provider_info import get_provider_info
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.testing.local_airflow.sqlite import template_database
from airflow_recovery.testing.patience import HANG_S
from airflow_recovery.testing.s3_server import ACCESS_KEY, REGION, SECRET_KEY

RUN = ("flights", "2026-01-01")


def airflow(home: Path, journal: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a home without a database: whatever asked for one would fail."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("AIRFLOW")}
    env |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__RECOVERY__JOURNAL": journal,
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////nowhere/airflow.db",
    }
    command = [sys.executable, "-m", "airflow", "recovery", *arguments]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=HANG_S, check=False)


@pytest.mark.airflow
def test_plan_and_show_need_no_database_and_no_scheduler(recorded, tmp_path: Path) -> None:
    world = recorded.world()
    world.until_green()
    world.delete_results("busiest", 1)
    planned = airflow(tmp_path / "home", recorded.uri, "plan", *RUN)
    assert planned.returncode == ExitCode.DONE, planned.stderr
    assert "4 regions: 1 run, 3 keep." in planned.stdout
    shown = airflow(tmp_path / "home", recorded.uri, "show", *RUN, "--json")
    assert json.loads(shown.stdout)["group_id"] == "flights"
    missing = airflow(tmp_path / "home", recorded.uri, "show", "flights", "2026-01-02")
    assert missing.returncode == ExitCode.NOT_FOUND
    assert "The nearest run keys of 1: date-2026-01-01T000000Z." in missing.stderr


@pytest.mark.airflow
@pytest.mark.s3
def test_the_aws_connection_is_read_from_the_environment_or_the_metadata_database(
    tmp_path: Path, s3_server_names, start_s3_server
) -> None:
    """A journal in S3 that only the connection can reach: nothing of AWS is in the environment."""
    s3_server = start_s3_server(s3_server_names[0])
    connection = {
        "conn_type": "aws",
        "login": ACCESS_KEY,
        "password": SECRET_KEY,
        "extra": {"endpoint_url": s3_server.endpoint_url, "region_name": REGION},
    }
    env = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "AWS_"))}
    env |= {
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW__RECOVERY__JOURNAL": f"s3://recovery-tests/{tmp_path.name}",
        "AIRFLOW__RECOVERY__AWS_CONN_ID": "recovery_s3",
        "AWS_EC2_METADATA_DISABLED": "true",
    }

    def call(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "airflow", *arguments]
        return subprocess.run(command, env=env | more, capture_output=True, text=True, timeout=HANG_S, check=False)

    of_environment = call("recovery", "show", *RUN, AIRFLOW_CONN_RECOVERY_S3=json.dumps(connection))
    assert of_environment.returncode == ExitCode.NOT_FOUND, of_environment.stderr
    assert "is empty: no run has claimed an attempt yet." in of_environment.stderr
    shutil.copyfile(template_database(env), tmp_path / "airflow.db")
    nowhere = call("recovery", "show", *RUN)
    assert (nowhere.returncode, "Expected the connection 'recovery_s3'" in nowhere.stderr) == (ExitCode.USAGE, True)
    assert call("connections", "add", "recovery_s3", "--conn-json", json.dumps(connection)).returncode == 0
    of_database = call("recovery", "show", *RUN)
    assert of_database.returncode == ExitCode.NOT_FOUND, of_database.stderr
    assert "is empty: no run has claimed an attempt yet." in of_database.stderr
    # Airflow logs there where a connection comes from; a script would read it.
    assert (of_environment.stdout, of_database.stdout) == ("", "")


def test_the_provider_names_the_commands() -> None:
    (name,) = get_provider_info()["cli"]
    module, _, function = name.rpartition(".")
    (group,) = getattr(__import__(module, fromlist=[function]), function)()
    assert group.name == "recovery"
    assert [subcommand.name for subcommand in group.subcommands] == [subcommand.name for subcommand in subcommands()]


def test_airflows_own_parser_reads_every_argument() -> None:
    from airflow.cli.cli_parser import get_parser

    args = get_parser().parse_args(["recovery", "plan", *RUN, "--restart", "a", "--from", "b", "--apply", "--json"])
    assert (args.dag, args.run, args.restart, args.from_, args.apply) == (*RUN, ["a"], ["b"], True)


def parser_with_a_broken_plan(monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    """Airflow's parser of all commands, made anew, where something that `plan` imports is not there."""
    from airflow.cli.cli_parser import get_parser

    monkeypatch.setitem(sys.modules, "airflow_recovery.console.plan", None)
    parser: argparse.ArgumentParser = get_parser.__wrapped__()
    return parser


def test_a_subcommand_that_cannot_be_imported_takes_no_other_command_along(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parser = parser_with_a_broken_plan(monkeypatch)
    assert "`airflow recovery plan` can't be used" in caplog.text
    assert "airflow_recovery.console.plan" in caplog.text
    assert parser.parse_args(["version"]).func
    assert parser.parse_args(["recovery", "show", *RUN]).run == RUN[1]
    with pytest.raises(ModuleNotFoundError):
        parser.parse_args(["recovery", "plan"]).func(argparse.Namespace())


def test_control_without_the_guard_no_airflow_command_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def unguarded(self: Any, parser: argparse.ArgumentParser) -> None:
        self._subcommand.load().add_arguments(parser)

    monkeypatch.setattr("airflow_recovery.console.definition._Arguments.add_to_parser", unguarded)
    with pytest.raises(ModuleNotFoundError):
        parser_with_a_broken_plan(monkeypatch)


def test_loading_the_commands_is_light() -> None:
    code = (
        "import sys; from airflow_recovery.console.main import subcommands; [each.load() for each in subcommands()];"
        "print([each for each in ('airflow', 'boto3', 'pyspark', 'requests', 'jinja2') if each in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class FakeHook:
    """The API server of `RecoveryApiHook`."""

    def __init__(self, conn_id: str) -> None:
        assert conn_id == "api"

    def observe(self, dag_id: str, run_id: str) -> Observation:
        assert (dag_id, run_id) == ("flights", "manual")
        states = {"g.a": "success", "g.b": "running", "g.c": None, "g.d": "success"}
        return Observation({key: TaskTry(key, -1, 1, f"ti-{key}", state) for key, state in states.items()})

    def clear(self, dag_id: str, run_id: str, request: ClearRequest) -> ClearResult:
        assert request == ClearRequest(consumers={"g.a": "ti-g.a", "g.b": "ti-g.b"}, unblock=True)
        return ClearResult(("g.a", "g.b"))


def deployment(tmp_path: Path, **settings: Any) -> AirflowDeployment:
    return AirflowDeployment(RecoverySettings(f"file://{tmp_path}/j", f"file://{tmp_path}/r", **settings))


def test_tasks_are_cleared_through_the_connection_to_the_api_server(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("airflow_recovery.hooks.recovery_api.RecoveryApiHook", FakeHook)
    found = deployment(tmp_path, api_conn_id="api").clear("flights", "manual", ["g.a", "g.b", "g.c", "g.gone"])
    assert found == ("g.a", "g.b", "g.c")  # c has not begun: it will look by itself


@pytest.fixture
def database(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Engine:
    """The metadata database that this host reaches."""

    @contextmanager
    def create_session() -> Iterator[Session]:
        with Session(engine) as session:
            yield session
            session.commit()

    monkeypatch.setattr("airflow_recovery.airflow_compat.create_session", create_session)
    return engine


def test_without_a_connection_tasks_are_cleared_in_the_metadata_database(
    tmp_path: Path, database: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.models import Log
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.state import DagRunState

    states = {"g.a": "success", "g.b": "running", "g.c": None, "g.d": "success"}
    more = {
        "map_index": -1,
        "try_number": 1,
        "max_tries": 0,
        "pool": "p",
        "pool_slots": 1,
        "span_status": "not_started",
    }
    with Session(database) as session, session.begin():
        session.add(DagRun(dag_id="flights", run_id="manual", run_type="manual", state=DagRunState.SUCCESS))
        session.flush()
        for key, state in states.items():
            values = {"id": uuid.uuid4(), "dag_id": "flights", "run_id": "manual", "task_id": key, "state": state}
            session.execute(insert(TaskInstance).values(**values, **more))
    monkeypatch.setattr("sys.argv", ["airflow", "recovery", "restart", "flights", "--connect", "sc://host/;token=t0p"])
    found = deployment(tmp_path).clear("flights", "manual", ["g.a", "g.b", "g.c", "g.gone"])
    assert found == ("g.a", "g.b", "g.c")
    with Session(database) as session:
        now = {each.task_id: each.state for each in session.scalars(select(TaskInstance))}
        assert now == {"g.a": None, "g.b": "restarting", "g.c": None, "g.d": "success"}
        assert session.scalar(select(DagRun.state)) == "queued"
        (audited,) = session.scalars(select(Log))
    assert (audited.event, audited.dag_id, audited.run_id) == ("cli_recovery_clear", "flights", "manual")
    assert (audited.owner, audited.owner_display_name) == (user_name(), user_name())
    extra = json.loads(audited.extra or "")
    assert extra["consumers"] == ["g.a", "g.b"]
    assert extra["host_name"] == socket.gethostname()
    assert extra["full_command"].startswith("['airflow', 'recovery', 'restart', 'flights', '--connect', 'sc://host/;")
    assert "t0p" not in extra["full_command"]


def test_without_a_connection_a_rebuild_is_in_the_audit_log_but_a_dry_run_is_not(
    tmp_path: Path, database: Engine
) -> None:
    from airflow.models import Log
    from airflow.models.dagrun import DagRun

    with Session(database) as session, session.begin():
        session.add(DagRun(dag_id="rebuilt", run_id="manual", run_type="manual"))
    for is_dry in (True, False):
        deployment(tmp_path).rebuild("rebuilt", RebuildRequest("run-manual", {"g.a": "a note"}, dry_run=is_dry))
    with Session(database) as session:
        (audited,) = session.scalars(select(Log).where(Log.dag_id == "rebuilt"))
    assert (audited.event, audited.run_id, audited.owner) == ("cli_recovery_rebuild", "manual", user_name())
    assert json.loads(audited.extra or "")["tasks"] == ["g.a"]


def test_a_run_that_the_metadata_database_does_not_have_is_not_cleared(tmp_path: Path, database: Engine) -> None:
    assert deployment(tmp_path).clear("flights", "of another deployment", ["g.a"]) is None


def test_without_a_connection_and_a_database_there_is_no_way_to_clear(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = create_engine(f"sqlite:///{tmp_path}/no/folder/airflow.db")
    monkeypatch.setattr("airflow_recovery.airflow_compat.create_session", lambda: Session(nowhere))
    assert deployment(tmp_path).clear("flights", "manual", ["g.a"]) is None


def test_results_and_other_locations_are_opened_as_tasks_open_them(tmp_path: Path) -> None:
    found = deployment(tmp_path)
    assert found.open_location(f"file://{tmp_path}/r/flights/x").base_uri == f"file://{tmp_path}/r"
    assert found.open_location(f"file://{tmp_path}/own").base_uri == f"file://{tmp_path}/own"
