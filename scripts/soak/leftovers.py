"""What nobody owns, while no run is at work: processes, connections of databases, temporary files, objects.

The functions that judge are given plain values, so that a test can put something wrong among them.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import psycopg2  # type: ignore[import-untyped]

from airflow_recovery.errors import StoreError
from airflow_recovery.journal.layout import names_record
from airflow_recovery.locations import scheme_of
from airflow_recovery.testing.local_airflow.task_processes import TITLE
from airflow_recovery.verify.history import History
from airflow_recovery.verify.records import Manifest
from scripts.soak.ground import BUCKET, RESULTS, WAREHOUSE, WORKERS, Ground
from scripts.soak.people import history_of
from scripts.soak.runs import RunName

OF_A_RUN = ("org.apache.spark.deploy.SparkSubmit", "airflow_recovery.driver", TITLE.strip(), "server_keeper")
"""Words of a command line that only what belongs to a run has."""
MOST_IDLE_S = 60.0
_ATTEMPT = re.compile(r"[0-9]{8}")
_KNOWN_IN_JOURNAL = ("_owner", "_journal", "_key", "_shared/", "_streams/", "_splits/", "_servers/")
_PROBED = re.compile(r"_probe/(?:raced|[0-9a-f]{32}(?:-race-[0-9](?:[/-]0)?)?)")
"""What start-up probes leave: the mark of the last race, and the objects of one that was killed."""
MOST_PROBED = 20
_BESIDE_RECORDS = re.compile(r"h/[^/]+/[0-9]{8}|snap/newest")


@dataclass(frozen=True)
class Process:
    """One process of the soak's, as the kernel tells: ``command`` as one text."""

    pid: int
    parent: int
    command: str


def processes_of_no_run(processes: Iterable[Process]) -> list[str]:
    """A text for each process that only a run has a use for: there is no run."""
    return [
        f"process {process.pid} ({process.command[:150]})"
        for process in processes
        if any(word in process.command for word in OF_A_RUN)
    ]


@dataclass(frozen=True)
class Connection:
    """One connection of a client: ``client`` is its port, ``idle_s`` for how long its transaction has done nothing."""

    database: str
    client: int
    state: str
    idle_s: float


def connections_of_nobody(connections: Iterable[Connection], owners: Mapping[int, str]) -> list[str]:
    """A text for each connection that should not be there: ``owners`` are the living processes, by their ports."""
    texts = []
    for connection in connections:
        owner = owners.get(connection.client)
        what = f"a connection to {connection.database} from port {connection.client}"
        if owner is None:
            texts.append(f"{what}, which no process has")
        elif connection.state.startswith("idle in transaction") and connection.idle_s > MOST_IDLE_S:
            texts.append(f"{what} ({owner[:80]}) has been {connection.state} for {connection.idle_s:.0f} s")
        elif connection.database in (WAREHOUSE, "lake") and "soak" not in owner:
            texts.append(f"{what} ({owner[:80]}): only tasks have a use for it")
    return texts


def objects_of_nobody(keys: Iterable[str], named: frozenset[str], runs: frozenset[str]) -> list[str]:
    """Of the keys below the results, those that no record names.

    ``named``: the keys of all registered objects; ``runs``: the prefixes (``dag/run key/group/``) that have a journal.
    """
    texts = []
    probed = 0
    for key in sorted(keys):
        if key in named or key == "_owner":
            continue
        if _PROBED.fullmatch(key) and (probed := probed + 1) <= MOST_PROBED:
            continue
        folder, _, name = key.rpartition("/")
        if name == "_SUCCESS" and any(other.startswith(f"{folder}/") for other in named):
            continue  # Spark's own mark beside files that count
        if key.startswith("_channels/") and any(key.startswith(f"_channels/{run}") for run in runs):
            continue
        texts.append(f"{RESULTS}/{key}")
    return texts


def strange_records(keys: Iterable[str]) -> list[str]:
    """Of the keys below the journal, those that its format does not have."""
    texts = []
    for key in sorted(keys):
        below = "/".join(key.split("/")[3:])
        is_beside = key.startswith(_KNOWN_IN_JOURNAL) or _PROBED.fullmatch(key)
        is_known = is_beside or names_record(below) or _BESIDE_RECORDS.fullmatch(below)
        if not is_known:
            texts.append(key)
    return texts


def left_processes(ground: Ground) -> list[Process]:
    """Everything on the soak's machines, and what has been started for this Airflow elsewhere."""
    home = str(ground.airflow.home)
    found: dict[int, Process] = {}
    for worker in WORKERS:
        running = ground.airflow.processes.get(worker)
        with suppress(psutil.Error):
            if running is not None:
                for process in psutil.Process(running.pid).children(recursive=True):
                    _add(found, process)
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get("AIRFLOW_HOME") == home:
                _add(found, process)
    return [found[pid] for pid in sorted(found)]


def _add(found: dict[int, Process], process: Any) -> None:
    with suppress(psutil.Error):
        if process.status() != psutil.STATUS_ZOMBIE:
            found[process.pid] = Process(process.pid, process.ppid(), " ".join(process.cmdline()))


def open_connections(ground: Ground) -> tuple[list[Connection], dict[int, str]]:
    """The server's connections, and whose their ports are."""
    statement = (
        "SELECT datname, client_port, state, coalesce(extract(epoch FROM now() - state_change), 0) "
        "FROM pg_stat_activity WHERE client_port IS NOT NULL AND datname IS NOT NULL AND pid <> pg_backend_pid()"
    )
    own = psycopg2.connect(**ground.airflow.database_address)
    own.autocommit = True
    try:
        with own.cursor() as cursor:
            cursor.execute(statement)
            rows = cursor.fetchall()
    finally:
        own.close()
    connections = [Connection(row[0], int(row[1]), row[2] or "", float(row[3])) for row in rows]
    owners: dict[int, str] = {}
    for socket in psutil.net_connections(kind="tcp"):
        if socket.pid is not None and socket.laddr:
            with suppress(psutil.Error):
                owner = "soak" if socket.pid == os.getpid() else " ".join(psutil.Process(socket.pid).cmdline())
                owners.setdefault(int(socket.laddr.port), owner)
    return connections, owners


def registered(ground: Ground, runs: Sequence[RunName]) -> tuple[frozenset[str], frozenset[str]]:
    """The keys of all registered objects, relative to the results, and the prefixes of the runs."""
    keys: set[str] = set()
    prefixes = set()
    for name in runs:
        history = history_of(ground, name)
        prefixes.add(history.where.removeprefix(f"{ground.journal.base_uri}/"))
        keys.update(_named(history))
    return frozenset(keys), frozenset(prefixes)


def _named(history: History) -> Iterable[str]:
    manifests: list[Manifest] = []
    for attempt in history.attempts():
        if attempt.outcome is not None and attempt.outcome.is_finished and not attempt.has("released"):
            manifests += attempt.outcome.outputs
        for batch in attempt.batches.values():
            manifests += batch.outputs
    for manifest in manifests:
        location = manifest.location.replace("s3a://", "s3://", 1)
        if scheme_of(location) == "s3" and location.startswith(f"{RESULTS}/"):
            for path in manifest.objects:
                yield f"{location.removeprefix(f'{RESULTS}/')}/{path}"


def unfinished_uploads(ground: Ground) -> list[str]:
    """Multipart uploads that nobody completes."""
    with suppress(StoreError):
        return [f"s3://{BUCKET}: upload of {upload.key}" for upload in ground.results.uploads()]
    return []


def unused_folders(ground: Ground) -> dict[str, int]:
    """Per worker, how many of our folders of processes that are gone lie among its temporary files.

    Who uses a folder of ours holds a lock on it (`airflow_recovery.driver.private_folder`).
    """
    found = {}
    for worker in WORKERS:
        scratch = ground.scratch_of(worker)
        with suppress(OSError):
            folders = [] if scratch is None else [*scratch.glob(f"airflow-recovery-{os.getuid()}/*-*")]
            found[worker] = sum(is_unused(folder) for folder in folders if folder.is_dir())
    return found


def is_unused(folder: Path) -> bool:
    """Whether no process holds a lock on it."""
    try:
        held = os.open(folder, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(held)
    return True
