"""A PostgreSQL server of a local Airflow's own: made in a folder of its own, started, emptied, backed up, removed."""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from airflow_recovery.testing.free_port import free_port
from airflow_recovery.testing.local_airflow.error import LocalAirflowError
from airflow_recovery.testing.local_airflow.migration import cache_folder, migrate
from airflow_recovery.testing.local_airflow.processes import DATABASE, Processes
from airflow_recovery.testing.patience import HANG_S

OWNER = "airflow"
EMPTY = "airflow_empty"
"""Migrated and empty; the database that Airflow uses is copied from it."""
DEBIAN_PROGRAMS = Path("/usr/lib/postgresql")
"""Debian keeps the programs of each version in ``<version>/bin`` below this folder, and not on the PATH."""
NEEDED = ("initdb", "postgres", "pg_isready", "createdb", "dropdb", "pg_dump", "pg_restore")
SETTINGS = {
    # A killed scheduler's workers keep its connection open, and with it the lock on the pools that no other scheduler
    # can do without: the server has to end it. Production sets 30 s. Here a scheduler may be slow, and
    # `PostgresDatabase.end_connections` ends those of a killed one.
    "idle_in_transaction_session_timeout": "30min",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    # Nobody pulls this machine's plug; a killed server keeps what the kernel has.
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
}


class PostgresDatabase:
    """The database ``airflow`` of a server of its own, on a free port of 127.0.0.1, with a password drawn anew.

    Its files are not below Airflow's home but in a folder of the system's temporary folder: PostgreSQL refuses to run
    as root, and whom it runs as then may not enter, say, pytest's folders.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.folder: Path | None = None
        self._password = secrets.token_hex(16)

    def url_for(self, component: str) -> str:
        """SQLAlchemy's URL; the same for every component."""
        del component
        return self._url(OWNER)

    @property
    def settings(self) -> dict[str, str]:
        """What Airflow needs with this database: nothing."""
        return {}

    def make_folder(self) -> list[Path]:
        """Make the folder that has to be removed at the end, whatever happens."""
        find_programs()
        self.folder = Path(tempfile.mkdtemp(prefix="airflow-recovery-postgresql-"))
        return [self.folder]

    def prepare(self, env: Mapping[str, str], processes: Processes) -> None:
        """Start the server, with an empty database that is migrated. Raises `LocalAirflowError` where it can't be."""
        self.start(processes)
        self._make_empty(env)
        self._run("createdb", "--template", EMPTY, OWNER)

    def start(self, processes: Processes) -> None:
        """Start the server: the first time with no database but its own ``postgres``, later with what it had."""
        if not self._data.exists():
            self._initialise()
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port)]
        for name, value in SETTINGS.items():
            command += ["-c", f"{name}={value}"]
        assert self.folder is not None
        processes.start(DATABASE, command, self._client_env, self.folder, user=self._user)
        self._wait_ready(processes)

    @contextmanager
    def down(self, processes: Processes) -> Iterator[None]:
        """Inside, the server is shut down, whoever is connected to it; then it is started again, with what it had."""
        processes.kill(DATABASE, signal.SIGINT)  # its "fast" shutdown, which waits for no client
        try:
            yield
        finally:
            self.start(processes)

    def recreate(self) -> None:
        """Drop the database, whoever is connected to it, and make an empty, migrated one of the same name."""
        self._run("dropdb", "--force", OWNER)
        self._run("createdb", "--template", EMPTY, OWNER)

    def back_up(self, path: Path) -> None:
        """Write all that is in it to ``path`` (pg_dump), while it is in use."""
        self._run("pg_dump", "--format=custom", "--compress=0", f"--file={path}", OWNER)

    def restore(self, path: Path) -> None:
        """Drop the database, whoever is connected to it, and make it again from a backup."""
        self._run("dropdb", "--force", OWNER)
        self._fill(OWNER, path)

    def miss_heartbeat(self, ti_id: str) -> None:
        """Let Airflow believe that the running task instance has given no heartbeat for years."""
        import psycopg2  # type: ignore[import-untyped]

        address = {**self.address, "dbname": OWNER}
        with contextlib.closing(psycopg2.connect(**address)) as connection, connection, connection.cursor() as cursor:
            cursor.execute(
                "UPDATE task_instance SET last_heartbeat_at = '2000-01-01T00:00:00Z' "
                "WHERE id = %s AND state = 'running'",
                [ti_id],
            )

    def end_connections(self, ports: Collection[int]) -> None:
        """End the connections that come from these ports. Their processes were killed, and others hold them open."""
        import psycopg2

        with contextlib.closing(psycopg2.connect(**self.address)) as connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE client_port = ANY(%s)", [[*ports]]
            )

    def remove(self) -> None:
        """Remove its files. The server has been stopped."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None

    def _initialise(self) -> None:
        assert self.folder is not None
        password = self.folder / "password"
        password.write_text(self._password)
        self._data.mkdir()
        if self._user is not None:
            for path in (self.folder, password, self._data):
                shutil.chown(path, self._user)
        options = ["--auth=scram-sha-256", f"--pwfile={password}", f"--username={OWNER}"]
        self._run("initdb", f"--pgdata={self._data}", *options, "--encoding=UTF8", "--no-locale", "--no-sync")
        password.unlink()

    def _wait_ready(self, processes: Processes) -> None:
        def is_ready() -> bool:
            asked = subprocess.run(self._command("pg_isready"), capture_output=True, env=self._client_env)
            return asked.returncode == 0

        processes.wait_until(is_ready, "PostgreSQL to be ready", lambda: "", DATABASE)

    def _make_empty(self, env: Mapping[str, str]) -> None:
        """Restore what `airflow db migrate` makes; made once for this Airflow version (saves 10 s a start)."""
        from importlib.metadata import version

        template = cache_folder() / f"airflow-{version('apache-airflow-core')}-{self._programs.parent.name}.pgdump"
        if template.exists():
            self._fill(EMPTY, template)
            return
        self._run("createdb", "--template=template0", EMPTY)
        migrate(env, self._url(EMPTY))
        fresh = template.with_name(f"{template.name}.{secrets.token_hex(8)}")
        self._run("pg_dump", "--format=custom", f"--file={fresh}", EMPTY)
        fresh.replace(template)

    def _fill(self, database: str, dump: Path) -> None:
        self._run("createdb", "--template=template0", database)
        self._run("pg_restore", "--exit-on-error", "--single-transaction", f"--dbname={database}", str(dump))

    def _run(self, program: str, *arguments: str) -> None:
        """Run one of PostgreSQL's programs. Only what touches the server's files needs to be its user."""
        user = self._user if program == "initdb" else None
        done = subprocess.run(
            self._command(program, *arguments),
            env=self._client_env,
            cwd=self.folder,
            user=user,
            group=_group_of(user),
            extra_groups=None if user is None else [],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )
        if done.returncode != 0:
            raise LocalAirflowError(f"{program} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}")

    def _command(self, program: str, *arguments: str) -> list[str]:
        return [str(self._programs / program), *arguments]

    @property
    def address(self) -> dict[str, str | int]:
        """How psycopg2 connects to the server's own database."""
        own: dict[str, str | int] = {"user": OWNER, "password": self._password, "dbname": "postgres"}
        return {"host": "127.0.0.1", "port": self.port, **own}

    def _url(self, database: str) -> str:
        return f"postgresql+psycopg2://{OWNER}:{self._password}@127.0.0.1:{self.port}/{database}"

    @property
    def _data(self) -> Path:
        assert self.folder is not None
        return self.folder / "data"

    @property
    def _client_env(self) -> dict[str, str]:
        # Nothing of a PostgreSQL that the caller may have configured for himself.
        env = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
        own = {"PGHOST": "127.0.0.1", "PGPORT": str(self.port), "PGUSER": OWNER, "PGPASSWORD": self._password}
        return {**env, **own, "PGDATABASE": "postgres"}

    @cached_property
    def _programs(self) -> Path:
        return find_programs()

    @cached_property
    def _user(self) -> str | None:
        return unprivileged_user()


def find_programs() -> Path:
    """The folder with PostgreSQL's programs, server and clients; of several versions the newest, the PATH's first.

    Raises `LocalAirflowError` where they are not installed.
    """
    on_path = shutil.which("initdb")
    paths = [Path(on_path).resolve().parent] if on_path else []
    paths += sorted(DEBIAN_PROGRAMS.glob("*/bin"), key=lambda path: _number(path.parent.name), reverse=True)
    for folder in paths:
        if all((folder / program).exists() for program in NEEDED):
            return folder
    raise LocalAirflowError(
        f"expected PostgreSQL's programs ({', '.join(NEEDED)}) on the PATH or below {DEBIAN_PROGRAMS}, found none: "
        "install the server (Debian: apt-get install postgresql), or put its bin folder on the PATH"
    )


def unprivileged_user() -> str | None:
    """Whom PostgreSQL runs as: `None` for the user of this process, another one where that is root."""
    if os.geteuid() != 0:
        return None
    known = {user.pw_name for user in pwd.getpwall()}
    for name in ("postgres", "nobody"):
        if name in known:
            return name
    raise LocalAirflowError("PostgreSQL does not run as root: expected a user postgres or nobody, found neither")


def _group_of(user: str | None) -> int | None:
    return None if user is None else pwd.getpwnam(user).pw_gid


def _number(version: str) -> float:
    try:
        return float(version)
    except ValueError:
        return 0.0
