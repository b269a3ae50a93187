"""The table of all that is done to the soak. To add one: a function here, and its row in `DISTURBANCES`."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]

from airflow_recovery.testing.local_airflow import LocalAirflowError
from airflow_recovery.testing.local_airflow.task_processes import TITLE
from scripts.soak.ground import SMALL_DISK, WORKERS, Ground
from scripts.soak.people import (
    backfill,
    clear_a_failed_run,
    clear_some_tasks,
    collect_garbage,
    deploy,
    look_on,
    lose_a_result,
    pin_or_release,
    purge,
    restart_by_plan,
)
from scripts.soak.runs import NothingToDisturb, Runs
from scripts.soak.s3_faults import KINDS
from scripts.spark_drivers import drivers_of, kill_9

SCHEDULERS = ("scheduler", "scheduler-2")
FREEZABLE = (*SCHEDULERS, *WORKERS, "api-server", "triggerer", "dag-processor")


@dataclass
class World:
    """What a disturbance may lay its hands on."""

    ground: Ground
    runs: Runs

    @property
    def backup(self) -> Path:
        """Where the newest backup of the metadata database lies."""
        return self.ground.folder / "backup"


Played = AbstractContextManager[str]
"""What is done is done inside; its value says to whom."""


@dataclass(frozen=True)
class Disturbance:
    """``what`` it does, for the report. ``weight``: how often; ``lasts``: between how many seconds it is kept up.

    Those ``beside`` others are kept up while the next ones come.
    """

    name: str
    what: str
    weight: int
    play: Callable[[World, random.Random], Played]
    lasts: tuple[float, float] = (0.0, 0.0)
    beside: bool = False


def _at_once(do: Callable[[World, random.Random], str]) -> Callable[[World, random.Random], Played]:
    @contextmanager
    def play(world: World, drawn: random.Random) -> Iterator[str]:
        yield do(world, drawn)

    return play


def _kill_and_start(*components: str, both: bool = False) -> Callable[[World, random.Random], Played]:
    @contextmanager
    def play(world: World, drawn: random.Random) -> Iterator[str]:
        airflow = world.ground.airflow
        chosen = components if both else (drawn.choice(components),)
        for component in chosen:
            airflow.kill(component)
        try:
            yield ", ".join(chosen)
        finally:
            airflow.start(*chosen)

    return play


@contextmanager
def _freeze(world: World, drawn: random.Random) -> Iterator[str]:
    component = drawn.choice(FREEZABLE)
    with world.ground.airflow.frozen(component):
        yield component


@contextmanager
def _cut_off(world: World, drawn: random.Random) -> Iterator[str]:
    worker = drawn.choice(WORKERS)
    world.ground.airflow.cut_off(worker)
    try:
        yield worker
    finally:
        world.ground.airflow.connect_again(worker)


@contextmanager
def _broker_down(world: World, drawn: random.Random) -> Iterator[str]:
    with world.ground.airflow.broker_down():
        yield "redis"


@contextmanager
def _database_down(world: World, drawn: random.Random) -> Iterator[str]:
    with world.ground.airflow.database_down():
        yield "postgresql"
    start_all(world.ground)


def _restore(world: World, drawn: random.Random) -> str:
    airflow = world.ground.airflow
    if not world.backup.exists():
        raise NothingToDisturb("no backup yet")
    airflow.restore_database(world.backup)
    start_all(world.ground)
    return f"{len(world.runs.names)} runs were there"


def start_all(ground: Ground) -> None:
    """Start whatever of Airflow and Spark does not run. Raises `LocalAirflowError` where it does not come up.

    One that still runs may be about to end, of a database that went away: then it is started, too.
    """
    for tries_left in (2, 1, 0):
        try:
            ground.airflow.start(*ground.airflow.components, SMALL_DISK)
            break
        except LocalAirflowError:
            if not tries_left:
                raise
    ground.spark.start()


def _some_driver(world: World, drawn: random.Random) -> Any:
    drivers = sorted(drivers_of(world.ground.airflow.home), key=lambda process: int(process.pid))
    if not drivers:
        raise NothingToDisturb("no driver")
    return drawn.choice(drivers)


def _kill_driver(world: World, drawn: random.Random) -> str:
    driver = _some_driver(world, drawn)
    name = application_of(driver)
    with suppress(ProcessLookupError):
        kill_9(driver)
    return name


@contextmanager
def _freeze_driver(world: World, drawn: random.Random) -> Iterator[str]:
    driver = _some_driver(world, drawn)
    family = [driver, *driver.children(recursive=True)]
    name = application_of(driver)
    for process in family:
        with suppress(psutil.NoSuchProcess):
            process.suspend()
    try:
        yield name
    finally:
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def application_of(driver: Any) -> str:
    """The name under which a JVM was submitted."""
    with suppress(psutil.Error, ValueError, IndexError):
        command = driver.cmdline()
        return str(command[command.index("--name") + 1])
    return str(driver.pid)


def running_tasks(ground: Ground) -> list[Any]:
    """The processes of tasks that run on the soak's machines now, and on nobody else's."""
    found = []
    for worker in WORKERS:
        with suppress(psutil.Error, KeyError):
            for process in psutil.Process(ground.airflow.processes[worker].pid).children(recursive=True):
                with suppress(psutil.Error):
                    if " ".join(process.cmdline()).startswith(TITLE):
                        found.append(process)
    return sorted(found, key=lambda process: int(process.pid))


def _kill_task(world: World, drawn: random.Random) -> str:
    tasks = running_tasks(world.ground)
    if not tasks:
        raise NothingToDisturb("no task")
    task = drawn.choice(tasks)
    supervised = drawn.random() < 0.5
    with suppress(psutil.NoSuchProcess, ProcessLookupError):
        kill_9(task.parent() if supervised else task)
    return "a supervisor" if supervised else "a task"


def _kill_spark(world: World, drawn: random.Random) -> str:
    world.ground.spark.kill()
    world.ground.spark.start()
    return "the Connect server"


@contextmanager
def _ill_s3(world: World, drawn: random.Random) -> Iterator[str]:
    kind = drawn.choice(KINDS)
    with world.ground.faults.ill(kind):
        yield kind


@contextmanager
def _full_disk(world: World, drawn: random.Random) -> Iterator[str]:
    scratch = world.ground.scratch_of(SMALL_DISK)
    if scratch is None:
        raise NothingToDisturb(f"{SMALL_DISK} does not run")
    ballast = scratch / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as out:
        while True:
            out.write(b"\0" * 65536)
    try:
        yield SMALL_DISK
    finally:
        ballast.unlink(missing_ok=True)


def _of_people(do: Callable[[Ground, Runs, random.Random], str]) -> Callable[[World, random.Random], Played]:
    return _at_once(lambda world, drawn: do(world.ground, world.runs, drawn))


DISTURBANCES = (
    Disturbance("kill a scheduler", "kill -9 of one of the two", 3, _kill_and_start(*SCHEDULERS), (0, 10)),
    Disturbance("kill both schedulers", "kill -9 of both at once", 1, _kill_and_start(*SCHEDULERS, both=True), (0, 10)),
    Disturbance(
        "kill a worker", "kill -9 of a machine with all that runs on it", 4, _kill_and_start(*WORKERS), (0, 15)
    ),
    Disturbance(
        "kill the API server", "kill -9; a new one after some seconds", 2, _kill_and_start("api-server"), (0, 20)
    ),
    Disturbance("kill the triggerer", "kill -9", 2, _kill_and_start("triggerer"), (0, 10)),
    Disturbance("kill the DAG processor", "kill -9", 1, _kill_and_start("dag-processor"), (0, 10)),
    Disturbance("freeze a component", "SIGSTOP of it with its children, of a worker its machine", 4, _freeze, (5, 45)),
    Disturbance("cut a worker off", "its way to the API server is cut", 2, _cut_off, (5, 45), True),
    Disturbance("kill the broker", "kill -9 of Redis, which forgets what waited in it", 2, _broker_down, (0, 8)),
    Disturbance("stop the database", "PostgreSQL is shut down, and started again", 1, _database_down, (0, 8)),
    Disturbance("restore the database", "a backup from before is put in its place", 1, _at_once(_restore)),
    Disturbance("kill a driver", "kill -9 of the JVM of an application", 4, _at_once(_kill_driver)),
    Disturbance("freeze a driver", "SIGSTOP of a JVM with its Python", 2, _freeze_driver, (10, 40), True),
    Disturbance("kill a task", "kill -9 of a task's process, or of its supervisor", 4, _at_once(_kill_task)),
    Disturbance("kill Spark Connect", "kill -9 of the server that most DAGs share", 1, _at_once(_kill_spark)),
    Disturbance("make S3 ill", "503s, lost replies, latency, or replies that break off", 5, _ill_s3, (20, 60), True),
    Disturbance("fill a disk", "the temporary folder of one worker has no room left", 1, _full_disk, (20, 60), True),
    Disturbance("clear a failed run", "what has failed, and what waits for it", 4, _of_people(clear_a_failed_run)),
    Disturbance("clear tasks", "some task of a run, with what is behind it", 3, _of_people(clear_some_tasks)),
    Disturbance("lose a result", "an object of a result is deleted; the run is cleared", 3, _of_people(lose_a_result)),
    Disturbance("look on", "show, plan or events of a run", 2, _of_people(look_on)),
    Disturbance("restart by plan", "airflow recovery restart", 2, _of_people(restart_by_plan)),
    Disturbance("pin, release", "a pin, its end, or a release of an attempt", 2, _of_people(pin_or_release)),
    Disturbance("collect garbage", "airflow recovery gc, beside everything", 2, _of_people(collect_garbage)),
    Disturbance("purge", "airflow recovery gc --purge of the runs of one DAG that are silent", 2, _of_people(purge)),
    Disturbance("backfill", "two dates of a DAG", 2, _of_people(backfill)),
    Disturbance("deploy", "a constant in a vertex goes forth or back", 2, _of_people(deploy)),
)


def first_round(seed: int) -> list[Disturbance]:
    """Each kind once, in the order of ``seed``: none is drawn a second time before all were tried."""
    return random.Random(f"{seed} first round").sample(DISTURBANCES, len(DISTURBANCES))


def drawn_for(seed: int, tick: int, owed: Sequence[Disturbance] = ()) -> tuple[Disturbance, float, random.Random]:
    """What tick number ``tick`` of the soak with ``seed`` does, how long, and by what chance it chooses its victim.

    It is the first of those that are ``owed``; where none is, one by weight.
    """
    drawn = random.Random(f"{seed} {tick}")
    (disturbance,) = owed[:1] or drawn.choices(DISTURBANCES, weights=[one.weight for one in DISTURBANCES])
    return disturbance, drawn.uniform(*disturbance.lasts), drawn
