"""The PostgreSQL server of a local Airflow, by itself: Airflow's tables are not needed for this."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg2
import pytest

from airflow_recovery.testing.local_airflow import LocalAirflow, LocalAirflowError, postgres
from airflow_recovery.testing.local_airflow.postgres import EMPTY, PostgresDatabase
from airflow_recovery.testing.local_airflow.processes import DATABASE, Processes
from airflow_recovery.testing.patience import wait_until

OWNER = """
import json, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_postgres_database import Bare, Processes, started
database, processes = started(Path(sys.argv[1]))
said = {"pid": processes.running["postgresql"].pid, "folder": str(database.folder)}
(Path(sys.argv[1]) / "said.partial").write_text(json.dumps(said))
(Path(sys.argv[1]) / "said.partial").rename(Path(sys.argv[1]) / "said.json")
time.sleep(86400)
"""


class Bare(PostgresDatabase):
    """One whose empty database has a table of ours in place of Airflow's."""

    def _make_empty(self, env: object) -> None:
        self._run("createdb", "--template=template0", EMPTY)
        with psycopg2.connect(self.dsn(EMPTY)) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE runs (name text)")
        connection.close()

    def dsn(self, database: str = "airflow") -> str:
        return self._url(database).replace("+psycopg2", "")

    def runs(self) -> list[str]:
        connection = psycopg2.connect(self.dsn())
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT name FROM runs ORDER BY name")
            found = [name for (name,) in cursor.fetchall()]
        connection.close()
        return found

    def add(self, name: str) -> None:
        connection = psycopg2.connect(self.dsn())
        with connection, connection.cursor() as cursor:
            cursor.execute("INSERT INTO runs VALUES (%s)", (name,))
        connection.close()


def started(home: Path) -> tuple[Bare, Processes]:
    database, processes = Bare(), Processes(home)
    processes.guard(database.make_folder())
    try:
        database.prepare({}, processes)
    except BaseException:
        processes.stop()
        database.remove()
        raise
    return database, processes


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Bare, Processes]]:
    database, processes = started(tmp_path)
    try:
        yield database, processes
    finally:
        processes.stop()
        database.remove()


def family(pid: int) -> list[psutil.Process]:
    process = psutil.Process(pid)
    return [process, *process.children(recursive=True)]


@pytest.mark.slow
def test_a_database_is_lost_and_restored_while_somebody_is_connected(
    server: tuple[Bare, Processes], tmp_path: Path
) -> None:
    database, _ = server
    database.add("first")
    backup = tmp_path / "backup"
    lasting = psycopg2.connect(database.dsn())

    database.back_up(backup)
    database.add("second")
    database.restore(backup)

    assert database.runs() == ["first"]
    with pytest.raises(psycopg2.OperationalError), lasting.cursor() as cursor:
        cursor.execute("SELECT 1")
    database.recreate()
    assert database.runs() == []


@pytest.mark.slow
def test_a_database_that_was_away_has_what_it_had(server: tuple[Bare, Processes]) -> None:
    database, processes = server
    database.add("first")
    lasting = psycopg2.connect(database.dsn())

    with database.down(processes), pytest.raises(psycopg2.OperationalError, match="refused"):
        psycopg2.connect(database.dsn())

    assert database.runs() == ["first"]
    with pytest.raises(psycopg2.OperationalError), lasting.cursor() as cursor:
        cursor.execute("SELECT 1")


def user_of(process: psutil.Process) -> str | None:
    """`None` where it has ended meanwhile: the server's helpers come and go."""
    try:
        return process.username()
    except psutil.NoSuchProcess:
        return None


@pytest.mark.slow
def test_it_does_not_run_as_root_and_leaves_nothing(tmp_path: Path) -> None:
    database, processes = started(tmp_path)
    folder = database.folder
    assert folder is not None
    try:
        members = family(processes.running[DATABASE].pid)
        assert len(members) > 1
        assert {user for member in members if (user := user_of(member))} == {
            postgres.unprivileged_user() or pwd.getpwuid(os.getuid())[0]
        }
    finally:
        processes.stop()
        database.remove()

    assert not [member for member in members if member.is_running()]
    assert not folder.exists()


@pytest.mark.slow
def test_it_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    owner = subprocess.Popen([sys.executable, "-c", OWNER, str(tmp_path), str(Path(__file__).parent)])
    try:
        wait_until((tmp_path / "said.json").exists, "the server to be up", is_over=lambda: owner.poll() is not None)
        said = json.loads((tmp_path / "said.json").read_text())
        members = family(said["pid"])
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()

    wait_until(lambda: not any(member.is_running() for member in members), "the end of the server")
    wait_until(lambda: not Path(said["folder"]).exists(), "the removal of its folder")


def test_without_postgresql_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(postgres, "DEBIAN_PROGRAMS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))

    with (
        pytest.raises(LocalAirflowError, match="apt-get install postgresql"),
        LocalAirflow(tmp_path / "home", tmp_path, database="postgresql"),
    ):
        raise AssertionError("it started")


def test_a_server_that_does_not_start_shows_its_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(postgres.SETTINGS, "shared_buffers", "nonsense")

    with pytest.raises(LocalAirflowError, match=r"(?s)to be ready.*nonsense"):
        started(tmp_path)


def test_what_needs_a_database_server_is_refused_with_sqlite(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="postgresql"):
        LocalAirflow(tmp_path, tmp_path, schedulers=2)
    with pytest.raises(LocalAirflowError, match="postgresql"):
        LocalAirflow(tmp_path, tmp_path).recreate_database()
    with pytest.raises(LocalAirflowError, match="postgresql"), LocalAirflow(tmp_path, tmp_path).database_down():
        raise AssertionError("it is down")
