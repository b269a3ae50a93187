"""What the process of one try does: the product's own code, with points at its seams."""

from __future__ import annotations

import io
import logging
import os
import sys
import threading
import traceback
import uuid
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timezone
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from airflow_recovery.attempt.publish import PublishTask
from airflow_recovery.attempt.region_task import RegionTask
from airflow_recovery.attempt.release import release_consumed, release_published
from airflow_recovery.attempt.run import RetryGrant, Run, TaskIdentity
from airflow_recovery.attempt.task_instances import ClearRequest, ClearResult, Observation, TaskTry
from airflow_recovery.driver.process import die_with_parent
from airflow_recovery.errors import RecoveryError
from airflow_recovery.hooks.settings import RecoverySettings
from airflow_recovery.hooks.stores import Stores, open_stores
from airflow_recovery.journal.journal import Journal
from airflow_recovery.journal.recording import Recorder
from airflow_recovery.journal.stream import EventWriter
from airflow_recovery.results.prober import ResultProber
from airflow_recovery.store.object_store import ObjectStore
from airflow_recovery.store.opening import open_store
from airflow_recovery.store.probe import probe
from airflow_recovery.task.region_program import RegionProgram
from airflow_recovery.testing.crash_kit.application import Drive, ForkedApplication
from airflow_recovery.testing.crash_kit.crasher import Crasher
from airflow_recovery.testing.crash_kit.job_setup import PUBLISH, Engine, JobSetup
from airflow_recovery.testing.crash_kit.plain_driver import drive_plain
from airflow_recovery.testing.crash_kit.points import CrashPoint, Harm, Step, When
from airflow_recovery.testing.crash_kit.seams import install
from airflow_recovery.testing.crash_kit.target import StandInTarget

ONLY_AT_THE_END_S = 3600.0
"""Between two flushes of the event stream: more of them would come when the machine is slow, and points would move."""
MAX_SAID = 200
"""Characters of why a try failed; its log has all of it."""
FROZEN = "frozen"
ENDED = "ended"
BROKE = "broke"


def be_the_task(
    setup: JobSetup, own: TaskTry, grant: RetryGrant, armed: Mapping[CrashPoint, Harm], airflow: Connection
) -> NoReturn:
    """In a forked process: run the try, tell ``airflow`` how it ended, and end the process."""
    try:
        die_with_parent()
        _write_into(setup, own)
        crasher = Crasher(
            own.task_id,
            own.try_number,
            record=setup.folder / "points",
            armed=armed,
            announce=lambda: airflow.send((FROZEN,)),
        )
        install(crasher, setup.results)
        crasher.passes(When.AFTER, Step.TRY)
        ended = _try(setup, own, grant, PipeClearClient(airflow, crasher), crasher)
        with crasher.around(Step.REPORT):
            airflow.send((ENDED, *ended))
            airflow.recv()
    except BaseException:
        traceback.print_exc()
        airflow.send((BROKE, traceback.format_exc()))
    finally:
        sys.stdout.flush()
        os._exit(0)


def _try(
    setup: JobSetup, own: TaskTry, grant: RetryGrant, clear_client: PipeClearClient, crasher: Crasher
) -> tuple[str, str]:
    log = logging.getLogger("crash_kit")
    settings = RecoverySettings(journal=setup.journal, results=setup.results)
    stores = open_stores(settings)
    writer = uuid.uuid4().hex
    events = EventWriter(stores.journal, setup.identity, writer, flush_interval_s=ONLY_AT_THE_END_S)
    run = Run(
        plan=setup.plan.record,
        journal=Journal(stores.journal, setup.identity, writer=writer, listener=Recorder(events.record, _now)),
        task_instances=clear_client,
        available=ResultProber(_opener(stores)),
        task_keys={name: name for name in setup.plan.regions},
        task=TaskIdentity("run 1", own.try_number, own.ti_id, grant),
        now=_now,
        log=log,
        events=events,
        publish_keys=(PUBLISH,),
        open_committer=lambda spec: StandInTarget(open_store(setup.target), spec, crasher),
    )
    try:
        if own.task_id == PUBLISH:
            PublishTask(run).execute()
            release_published(run, stores.results, settings.retention)
        else:
            _region_task(setup, own.task_id, run, stores, crasher).execute()
            release_consumed(run, own.task_id, stores.results, settings.retention)
    except RecoveryError as error:
        log.error("The try fails: %s: %s", type(error).__name__, error)
        return "failed", f"{type(error).__name__}: {error}"[:MAX_SAID]
    finally:
        events.close()
    return "success", ""


def _region_task(setup: JobSetup, region: str, run: Run, stores: Stores, crasher: Crasher) -> RegionTask:
    program = RegionProgram(
        job=setup.job,
        ref=setup.reference,
        region=setup.plan.regions[region],
        facts=setup.facts,
        identity=setup.identity,
        stores=stores,
        log=run.log,
    )
    application = ForkedApplication(program, _drive(setup.engine), crasher)
    return RegionTask(run, region, application, prepare_journal=lambda: probe(stores.journal))


def _drive(engine: Engine) -> Drive:
    if engine is Engine.PLAIN:
        return drive_plain
    from airflow_recovery.driver.driver import drive

    os.environ["PYSPARK_SUBMIT_ARGS"] = (
        "--master local[2] --conf spark.ui.enabled=false --conf spark.ui.showConsoleProgress=false "
        "--conf spark.sql.shuffle.partitions=2 --driver-memory 512m pyspark-shell"
    )
    return drive


def _opener(stores: Stores) -> Callable[[str], ObjectStore]:
    def open_location(location: str) -> ObjectStore:
        base = stores.results.base_uri
        return stores.results if location.startswith(f"{base}/") else stores.open_external(location)

    return open_location


def _write_into(setup: JobSetup, own: TaskTry) -> None:
    """The log of the try, for this process and its driver."""
    path = setup.folder / f"{own.task_id} try {own.try_number}.log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    # Without a buffer: its lock, which a thread of the task holds while it writes, would stay locked in the driver.
    raw = io.FileIO(descriptor, "w", closefd=False)
    sys.stdout = sys.stderr = io.TextIOWrapper(raw, encoding="utf-8", write_through=True)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    logging.basicConfig(force=True, level=logging.INFO, format="%(message)s", stream=sys.stdout)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat()


class PipeClearClient:
    """The `TaskInstances` of a try: it asks the fake Airflow in the parent process."""

    def __init__(self, airflow: Connection, crasher: Crasher) -> None:
        self._airflow = airflow
        self._crasher = crasher
        self._lock = threading.Lock()

    def observe(self) -> Observation | None:
        """Ask the fake Airflow in the parent process, as `FakeClearClient` does."""
        observation: Observation | None = self._ask("observe")
        return observation

    def clear(self, request: ClearRequest) -> ClearResult:
        """Ask the fake Airflow in the parent process, as `FakeClearClient` does."""
        with self._crasher.around(Step.CLEAR):
            result: ClearResult = self._ask("clear", request)
            return result

    def states(self, keys: Collection[str]) -> Mapping[str, str | None]:
        """Ask the fake Airflow in the parent process, as `FakeClearClient` does."""
        states: Mapping[str, str | None] = self._ask("states", tuple(keys))
        return states

    def live_check(self) -> None:
        """Ask the fake Airflow in the parent process, as `FakeClearClient` does."""
        self._ask("live_check")

    def _ask(self, request: str, *arguments: Any) -> Any:
        with self._lock:
            self._airflow.send((request, *arguments))
            answer, error = self._airflow.recv()
        if error is not None:
            raise error
        return answer
